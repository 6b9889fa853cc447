// Keys and defaults of each optimizer.
#include "plan/spec/job_optimizer.h"

#include <fmt/format.h>

#include <variant>

#include "plan/spec/plan.h"
#include "plan/spec/words.h"

namespace orrery::plan {
namespace {

constexpr double kBelowOne = 1 - 1e-12;
constexpr double kAboveZero = 1e-30;

struct Key {
  const char* name;
  std::variant<double Optimizer::*, bool Optimizer::*> value;
  double least = 0, most = 0;            // of a number
  bool OptimizerKeys::*taken = nullptr;  // null: by every optimizer
};
// In the order in which they are read and written.
constexpr Key kKeys[] = {
    {"learning_rate", &Optimizer::learning_rate, 0, 1e3},
    {"beta1", &Optimizer::beta1, 0, kBelowOne, &OptimizerKeys::betas},
    {"beta2", &Optimizer::beta2, 0, kBelowOne, &OptimizerKeys::betas},
    {"epsilon", &Optimizer::epsilon, kAboveZero, 1, &OptimizerKeys::epsilon},
    {"weight_decay", &Optimizer::weight_decay, 0, 1e3},
    {"momentum", &Optimizer::momentum, 0, kBelowOne, &OptimizerKeys::momentum},
    {"nesterov", &Optimizer::nesterov, 0, 0, &OptimizerKeys::nesterov},
    {"adaptive", &Optimizer::adaptive, 0, 0, &OptimizerKeys::factors},
    {"clip_update", &Optimizer::clip_update, kAboveZero, 1e30, &OptimizerKeys::factors},
    {"decay_power", &Optimizer::decay_power, kAboveZero, 1, &OptimizerKeys::factors},
};

bool takes(const Optimizer& o, const Key& key) {
  return key.taken == nullptr || traits_of(o.kind).keys.*key.taken;
}

}  // namespace

Optimizer usual(OptimizerKind kind) {
  const OptimizerTraits& traits = traits_of(kind);
  Optimizer o;
  o.kind = kind;
  o.learning_rate = traits.learning_rate;
  o.beta1 = traits.beta1;
  o.beta2 = traits.beta2;
  o.epsilon = traits.epsilon;
  o.weight_decay = traits.weight_decay;
  o.momentum = traits.momentum;
  return o;
}

namespace {

// A missing key takes the optimizer's own value.
void read_adamw(const base::Cursor& at, Optimizer& o) {
  o.adamw_learning_rate = at.optional("learning_rate").number(0, 1e3, o.learning_rate);
  o.beta1 = at.optional("beta1").number(0, kBelowOne, o.beta1);
  o.beta2 = at.optional("beta2").number(0, kBelowOne, o.beta2);
  o.epsilon = at.optional("epsilon").number(kAboveZero, 1, o.epsilon);
  o.adamw_weight_decay = at.optional("weight_decay").number(0, 1e3, o.weight_decay);
}

}  // namespace

Optimizer read_optimizer(const base::Cursor& at) {
  Optimizer o = usual(choose(at.optional("name"), kOptimizerWords, Optimizer{}.kind));
  for (const Key& key : kKeys) {
    if (!takes(o, key)) continue;
    const base::Cursor value = at.optional(key.name);
    if (const auto* number = std::get_if<double Optimizer::*>(&key.value))
      o.** number = value.number(key.least, key.most, o.**number);
    else if (const auto* flag = std::get_if<bool Optimizer::*>(&key.value))
      o.** flag = value.boolean(o.**flag);
  }
  const OptimizerTraits& traits = traits_of(o.kind);
  if (traits.keys.adamw) read_adamw(at.optional("adamw"), o);
  if (!traits.decays && o.weight_decay != 0)
    at.optional("weight_decay")
        .error("E0121", fmt::format("{} has no weight decay; adamw has decoupled weight decay", traits.name),
               "name: adamw");
  if (o.nesterov && o.momentum == 0)
    at.optional("nesterov")
        .error("E0121", "nesterov looks ahead along the momentum, but that is 0", "give a momentum, say 0.9");
  return o;
}

std::vector<std::pair<std::string, std::string>> optimizer_lines(const Optimizer& o) {
  std::vector<std::pair<std::string, std::string>> out = {{"name", name_of(o.kind)}};
  for (const Key& key : kKeys)
    if (takes(o, key))
      out.emplace_back(key.name, std::visit([&](auto value) { return fmt::format("{}", o.*value); }, key.value));
  if (traits_of(o.kind).keys.adamw)
    out.emplace_back("adamw", fmt::format("{{learning_rate: {}, beta1: {}, beta2: {}, epsilon: {}, weight_decay: {}}}",
                                          o.adamw_learning_rate, o.beta1, o.beta2, o.epsilon, o.adamw_weight_decay));
  return out;
}

void take_optimizer(PlanSpec& spec, const Training& training) {
  spec.states.optimizer = training.optimizer.kind;
  spec.states.momentum = !traits_of(training.optimizer.kind).momentum_optional || training.optimizer.momentum > 0;
}

const char* name_of(OptimizerKind kind) {
  return traits_of(kind).name;
}
const char* name_of(Rounding rounding) {
  return kRoundingWords[static_cast<std::size_t>(rounding)].c_str();
}

}  // namespace orrery::plan
