// A training step: what the schedule needs from outside, and what all ranks agree on after it.
#include "exec/run/trainer.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/ensure.h"
#include "exec/failure.h"
#include "plan/lower/lower.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/check.h"
#include "plan/schedule/rehearse.h"

namespace orrery::exec {
namespace {

/// The value of the ranks that have it (NaN elsewhere); +inf if it is NaN on one that has it.
double agree(Transport& transport, double value, bool have) {
  const double mine = !have               ? -std::numeric_limits<double>::infinity()
                      : std::isnan(value) ? std::numeric_limits<double>::infinity()
                                          : value;
  return transport.maximum(mine);
}

/// Enlarges the training step's arena where the evaluation needs more; not known to happen, but nothing forbids it.
plan::Placement& larger(plan::Placement& step, const plan::Placement& evaluation) {
  step.arena_bytes = std::max(step.arena_bytes, evaluation.arena_bytes);
  step.host.arena_bytes = std::max(step.host.arena_bytes, evaluation.host.arena_bytes);
  step.nvme.arena_bytes = std::max(step.nvme.arena_bytes, evaluation.nvme.arena_bytes);
  return step;
}

}  // namespace

Trainer::HeldOut::HeldOut(const plan::Plan& plan, const plan::Placement& step, const plan::RankClass& step_class,
                          int rank, Batches data)
    : batches(std::move(data)),
      schedule(plan::lower(plan, {.forward_only = true})),
      placement(plan::place_beside(step_class, step, schedule.class_of(rank))) {
  base::Diagnostics faults = plan::check(schedule);
  if (faults.empty()) faults = plan::rehearse(schedule);
  ENSURE(faults.empty(), "the lowered evaluation is unsound: {}", base::render(faults, false));
}

Trainer::Trainer(const plan::Plan& plan, const plan::Training& training, const plan::Schedule& schedule,
                 Backend& backend, Transport& transport, const Waiter& waiter, Batches batches,
                 const Executor::Options& options, std::optional<Batches> held_out)
    : plan_(plan),
      training_(training),
      transport_(transport),
      placement_(plan::place(schedule.class_of(transport.rank()))),
      held_out_(held_out ? std::make_unique<HeldOut>(plan, placement_, schedule.class_of(transport.rank()),
                                                     transport.rank(), std::move(*held_out))
                         : nullptr),
      batches_(std::move(batches)),
      executor_(schedule, held_out_ ? larger(placement_, held_out_->placement) : placement_, backend, transport, waiter,
                options) {
  if (!held_out_) return;
  Executor::Options beside;
  beside.check = options.check;
  beside.record = false;
  beside.queue_messages = options.queue_messages;
  beside.graphs = options.graphs;
  beside.arena = &executor_.arena();
  held_out_->executor.emplace(held_out_->schedule, held_out_->placement, backend, transport, waiter, beside);
}

StepInput Trainer::input_of(const Batches& batches, std::int64_t index) const {
  const plan::PlanSpec& spec = plan_.spec();
  StepInput input;
  input.iteration = index;
  input.context.step = index;
  input.context.tensor_rank = plan_.shard_of(transport_.rank());
  input.context.tensor_ways = spec.mesh.tensor;
  input.context.part = plan_.part_of(transport_.rank());
  const std::int64_t first = plan_.replica_of(transport_.rank()) * (spec.shape.batch / spec.mesh.data);
  input.end = end_;
  input.load = [&batches, &spec, first](const Instance& of, std::span<std::int32_t> tokens,
                                        std::span<std::int32_t> targets) {
    batches.load(of.step, first + of.micro_batch * spec.shape.micro_batch, spec.shape.micro_batch, tokens, targets);
  };
  if (batches.clicks() != nullptr)
    input.load_clicks = [&batches, &spec, first](const Instance& of, const ClickBatch& out) {
      batches.load_clicks(of.step, first + of.micro_batch * spec.shape.micro_batch, spec.shape.micro_batch, out);
    };
  if (batches.masked())
    input.load_masked = [&batches, &spec, first](const Instance& of, const MaskedBatch& out) {
      batches.load_masked(of.step, first + of.micro_batch * spec.shape.micro_batch, spec.shape.micro_batch, out);
    };
  return input;
}

// Evaluation is rare, so it reads without reading ahead.
void Trainer::read_ahead(StepInput& input) {
  if (batches_.clicks() == nullptr || training_.read_ahead == 0) return;
  if (!reader_) {
    const std::int64_t mine = plan_.spec().shape.batch / plan_.spec().mesh.data;
    reader_ =
        std::make_unique<ClickReader>(batches_, plan_.replica_of(transport_.rank()) * mine, mine, training_.read_ahead);
  }
  input.load_clicks = [this](const Instance& of, const ClickBatch& out) { reader_->load(of.step, out); };
}

double Trainer::evaluate() {
  ENSURE(held_out_ && training_.evaluation, "the job does not evaluate");
  Executor& executor = *held_out_->executor;
  // Decided on all ranks alike: a rank whose stage holds nothing would wait for the others for ever.
  if (transport_.maximum(executor_.arena().resting() ? 0.0 : 1.0) > 0)
    throw Failure("the plan's pipeline holds micro-batches from step to step, so it cannot evaluate between steps",
                  FailureKind::input);
  double sum = 0;
  std::vector<float> scores, labels;
  for (std::int64_t batch = 0; batch < training_.evaluation->batches; ++batch) {
    StepInput input = input_of(held_out_->batches, batch);
    input.end = training_.evaluation->batches;
    if (plan_.model().recommender)
      input.see_clicks = [&](std::span<const float> logits, std::span<const float> clicked) {
        scores.insert(scores.end(), logits.begin(), logits.end());
        labels.insert(labels.end(), clicked.begin(), clicked.end());
      };
    (void)executor.run_step(input);
    sum += executor.loss();
  }
  if (plan_.model().recommender) {
    auc_ = area_of(scores, labels);
    judge_click_model();
  }
  return agree(transport_, sum / static_cast<double>(training_.evaluation->batches),
               executor.rank_class().loss.exists());
}

// All evaluations have the same samples. Each rank draws a share of them.
void Trainer::judge_click_model() {
  const ClickSource& source = *held_out_->batches.clicks();
  if (click_model_judged_ || !source.knows_chances()) return;
  click_model_judged_ = true;
  const std::int64_t all = training_.evaluation->batches * plan_.spec().shape.batch, ranks = transport_.size(),
                     first = all / ranks * transport_.rank(),
                     end = transport_.rank() + 1 == ranks ? all : first + all / ranks;
  std::vector<float> chances(static_cast<std::size_t>(end - first)), labels(chances.size());
  source.read_chances(first, chances, labels);
  best_auc_ = area_of(chances, labels);
}

// Every rank has only its part of the samples.
std::optional<double> Trainer::area_of(const std::vector<float>& scores, const std::vector<float>& labels) {
  std::string mine(2 * scores.size() * sizeof(float), '\0');
  if (!scores.empty()) {
    std::memcpy(mine.data(), scores.data(), mine.size() / 2);
    std::memcpy(mine.data() + mine.size() / 2, labels.data(), mine.size() / 2);
  }
  std::vector<float> all, clicked;
  for (const std::string& one : transport_.gather_text(mine)) {
    std::vector<float> values(one.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), one.data(), one.size());
    const auto half = static_cast<std::ptrdiff_t>(values.size() / 2);
    all.insert(all.end(), values.begin(), values.begin() + half);
    clicked.insert(clicked.end(), values.begin() + half, values.end());
  }
  return transport_.rank() == 0 ? std::optional(exec::area_under_curve(all, clicked)) : std::nullopt;
}

std::int64_t Trainer::arena_peak() const {
  const std::int64_t step = executor_.arena().use().peak_extent;
  return held_out_ ? std::max(step, held_out_->executor->arena().use().peak_extent) : step;
}

StepResult Trainer::step_here(std::int64_t index, const std::function<void()>& before_optimizer,
                              const std::function<void(const plan::StepRef&)>& before_each) {
  StepInput input = input_of(batches_, index);
  read_ahead(input);
  input.context.learning_rate = plan::learning_rate_at(training_, index);
  const plan::Optimizer& optimizer = training_.optimizer;
  input.context.beta1 = optimizer.beta1;
  input.context.beta2 = optimizer.beta2;
  input.context.epsilon = optimizer.epsilon;
  input.context.weight_decay = optimizer.weight_decay;
  if (plan::traits_of(optimizer.kind).whole_matrices()) {
    input.context.matrix_rate = input.context.learning_rate;
    input.context.matrix_decay = optimizer.weight_decay;
    input.context.learning_rate = plan::adamw_rate_at(training_, index);
    input.context.weight_decay = optimizer.adamw_weight_decay;
  }
  input.context.momentum = optimizer.momentum;
  input.context.nesterov = optimizer.nesterov;
  input.context.adaptive = optimizer.adaptive;
  input.context.clip_update = optimizer.clip_update;
  input.context.decay_power = optimizer.decay_power;
  input.context.scale_factor = training_.loss_scaling.factor;
  input.context.scale_interval = training_.loss_scaling.interval;
  input.context.seed = training_.seed;
  input.context.clip_norm = training_.clip_norm.value_or(0);
  input.before_optimizer = before_optimizer;
  input.before_each = before_each;
  StepResult result;
  result.seconds = std::chrono::duration<double>(executor_.run_step(input)).count();
  result.learning_rate = plan::learning_rate_at(training_, index);
  result.loss = executor_.loss();
  result.gradient_norm = executor_.gradient_norm();
  result.loss_scale = executor_.loss_scale().scale;
  result.skipped = executor_.loss_scale().skipped;
  result.lossless = executor_.lossless();
  result.experts = executor_.expert_use();
  result.caches = executor_.cache_use();
  return result;
}

StepResult Trainer::step(std::int64_t index, const std::function<void()>& before_optimizer) {
  StepResult result = step_here(index, before_optimizer);
  const plan::RankClass& rank_class = executor_.rank_class();
  result.loss = agree(transport_, result.loss, rank_class.loss.exists());
  if (plan_.spec().stages.asynchronous()) {
    double squares = 0;
    for (const plan::StageId stage : plan::stages_with_norms(plan_))
      squares += std::pow(agree(transport_, result.gradient_norm, rank_class.stage == stage), 2);
    result.gradient_norm = std::sqrt(squares);
  } else {
    result.gradient_norm = agree(transport_, result.gradient_norm, rank_class.gradient_norm.exists());
  }
  result.seconds = transport_.maximum(result.seconds);
  return result;
}

}  // namespace orrery::exec
