// Translates a stack's file into options for lowering.
#include "cost/parameters/habits.h"

namespace orrery::cost {

double number_of(const Stack& stack, std::string_view parameter, double otherwise) {
  for (const Parameter& p : stack.parameters)
    if (p.name == parameter) return p.value;
  return otherwise;
}

plan::LowerOptions lower_options(const Stack& stack) {
  return {.recompute_whole_layer = stack.recompute_whole_layer,
          .recompute_operators = number_of(stack, "stack.selective_operators", 0) != 0,
          .reduce_beside = number_of(stack, "stack.reduce_beside", 0) != 0,
          .gather_next = number_of(stack, "stack.gathers_next", 0) != 0,
          .zero_gradients = stack.zero_gradients};
}

plan::Schedule lower_for(const plan::Plan& plan, const Stack& stack) {
  const plan::RecommenderHabits habits{.reports = number_of(stack, "stack.reports", 1) != 0,
                                       .exchanges_indices = number_of(stack, "stack.exchanges_indices", 1) != 0};
  return plan::lower(plan, lower_options(stack), habits);
}

plan::Schedule lower_executed(const plan::Plan& plan, const Stack& stack) {
  return plan::lower(plan,
                     {.recompute_whole_layer = stack.recompute_whole_layer, .zero_gradients = stack.zero_gradients});
}

}  // namespace orrery::cost
