// A training step: what the schedule needs from outside, and what all ranks agree on afterwards.
#include "exec/trainer.h"

#include <cmath>
#include <limits>

#include "plan/asynchronous.h"

namespace orrery::exec {
namespace {

/// The value of the ranks that have it (NaN elsewhere); +inf where it is not a number on one that has it.
double agree(Transport& transport, double value, bool have) {
  const double mine = !have               ? -std::numeric_limits<double>::infinity()
                      : std::isnan(value) ? std::numeric_limits<double>::infinity()
                                          : value;
  return transport.maximum(mine);
}

}  // namespace

Trainer::Trainer(const plan::Plan& plan, const plan::Training& training, const plan::Schedule& schedule,
                 Backend& backend, Transport& transport, const Waiter& waiter, Batches batches,
                 const Executor::Options& options)
    : plan_(plan),
      training_(training),
      transport_(transport),
      placement_(plan::place(schedule.class_of(transport.rank()))),
      batches_(std::move(batches)),
      executor_(schedule, placement_, backend, transport, waiter, options) {}

StepResult Trainer::step_here(std::int64_t index, const std::function<void()>& before_optimizer) {
  const plan::PlanSpec& spec = plan_.spec();
  StepInput input;
  input.iteration = index;
  input.context.step = index;
  input.context.learning_rate = plan::learning_rate_at(training_, index);
  input.context.beta1 = training_.optimizer.beta1;
  input.context.beta2 = training_.optimizer.beta2;
  input.context.epsilon = training_.optimizer.epsilon;
  input.context.weight_decay = training_.optimizer.weight_decay;
  input.context.clip_norm = training_.clip_norm.value_or(0);
  input.context.tensor_rank = plan_.shard_of(transport_.rank());
  input.context.tensor_ways = spec.tensor;
  input.context.part = plan_.part_of(transport_.rank());
  const std::int64_t first = plan_.replica_of(transport_.rank()) * (spec.batch / spec.data);
  input.end = end_;
  input.load = [&, first](const Instance& of, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
    batches_.load(of.step, first + of.micro_batch * spec.micro_batch, spec.micro_batch, tokens, targets);
  };
  input.before_optimizer = before_optimizer;
  StepResult result;
  result.seconds = std::chrono::duration<double>(executor_.run_step(input)).count();
  result.learning_rate = input.context.learning_rate;
  result.loss = executor_.loss();
  result.gradient_norm = executor_.gradient_norm();
  return result;
}

StepResult Trainer::step(std::int64_t index, const std::function<void()>& before_optimizer) {
  StepResult result = step_here(index, before_optimizer);
  const plan::RankClass& rank_class = executor_.rank_class();
  result.loss = agree(transport_, result.loss, rank_class.loss >= 0);
  if (plan_.spec().asynchronous()) {
    double squares = 0;
    for (int stage = 0; stage < plan::stages_with_norms(plan_); ++stage)
      squares += std::pow(agree(transport_, result.gradient_norm, rank_class.stage == stage), 2);
    result.gradient_norm = std::sqrt(squares);
  } else {
    result.gradient_norm = agree(transport_, result.gradient_norm, rank_class.gradient_norm >= 0);
  }
  result.seconds = transport_.maximum(result.seconds);
  return result;
}

}  // namespace orrery::exec
