// Lowers a step for one rank, and puts a split plan's mathematics into it.
#include "plan/lower/serial.h"

#include <utility>

#include "plan/lower/buckets.h"
#include "plan/lower/serial_compression.h"
#include "plan/lower/serial_server.h"
#include "plan/lower/serial_stages.h"
#include "plan/lower/write_first.h"
#include "plan/spec/expert_rules.h"

namespace orrery::plan {

using models::DType;

namespace {

// What remains of a plan on one rank.
PlanSpec alone(const PlanSpec& split, const models::Model& model) {
  PlanSpec spec;
  if (model.experts.aux_coefficient > 0) spec.stages.order = Order::gpipe;
  spec.shape.micro_batch = model.recommender ? split.shape.batch : split.shape.micro_batch;
  spec.numerics.vocab_multiple = split.numerics.vocab_multiple;
  spec.shape.batch = split.shape.batch;
  spec.shape.sequence = split.shape.sequence;
  spec.numerics.precision = split.numerics.precision;
  spec.numerics.flash = split.numerics.flash;
  spec.states.optimizer = split.states.optimizer;
  spec.states.momentum = split.states.momentum;
  spec.numerics.rounding = split.numerics.rounding;
  spec.compression.activations = split.compression.activations;
  spec.tokens.dispatch = split.tokens.dispatch;
  spec.tokens.combine = split.tokens.combine;
  if (model.recommender) spec.embedding.tiers = TableTiers({TableTier{}});  // where tables live changes no result
  return spec;
}

// P94 has no row in plan/spec/rules.h: nothing is wrong with these plans, only no serial program equals them.
base::Diagnostics refused(const PlanSpec& spec, const models::Model& model) {
  base::Diagnostics found;
  const auto rule = [&](bool holds, const char* message, const char* help) {
    if (!holds) found.push_back({base::Severity::error, "P94", {}, message, help, {}});
  };
  const bool split = spec.mesh.tensor > 1 || (model.experts.any() && spec.mesh.expert_ways() > 1);
  rule(!spec.low_rank() || !split,
       "PowerSGD on ranks' parts of a matrix approximates differently than on the whole matrix, so no serial program "
       "can match it",
       "verify it with tensor: 1 and experts that are not split, or such splits with compression: {gradients: none}");
  rule(!spec.compresses() || spec.mesh.context == 1,
       "ranks with parts of a sequence compress the gradients of their parts, so no serial program can match them",
       "verify it with context: 1, or verify context parallelism with compression: {gradients: none}");
  rule(!spec.compresses() || spec.holders(true).stride % spec.mesh.tensor == 0,
       "ranks of a tensor group that have the same parts of the same experts compress the gradients of their own rows, "
       "so no serial program can match them",
       "verify it with expert x expert_tensor a multiple of tensor, or compression: {gradients: none}");
  rule(
      !spec.compresses() || !has_balancing_loss(model),
      "replicas take turns whose gradients are compressed, but a balancing loss needs the tokens of all of them before "
      "the first backward pass",
      "verify it with aux_coefficient: 0, or compression: {gradients: none}");
  rule(spec.numerics.precision != DType::fp8 || (!split && spec.mesh.context == 1),
       "ranks that have parts of matrices round them to 8 bits by themselves: no serial program has their scales, nor "
       "their order of sums, which decides where a value between two codes goes",
       "prove it with precision: bf16, or fp8 with tensor: 1, context: 1 and experts that are not split");
  rule(
      !model.recommender || !spec.states.has_server(),
      "a parameter server's workers look rows up before those of other workers move: no serial program has their turns "
      "yet",
      "prove the same placement without staleness");
  return found;
}

// The lowered step of one rank with the split plan's mathematics. `shared`: the bucket of a tied table, if there is
// one.
RankClass rewritten(const Plan& split, RankClass lowered, BucketId shared) {
  const PlanSpec& spec = split.spec();
  SerialStep step(std::move(lowered));
  if (spec.stages.asynchronous() || spec.states.has_server()) age_weights(step, split);
  if (spec.stages.asynchronous()) clip_by_stages(step, split, shared);
  if (spec.states.has_server())
    serve_in_turns(step, split);
  else if (spec.compresses())
    compress_in_turns(step, split, shared);
  return std::move(step.made);
}

}  // namespace

base::Result<SerialProgram> serial_program(const Plan& split, clusters::Cluster device, const LowerOptions& options) {
  const PlanSpec& spec = split.spec();
  if (base::Diagnostics found = refused(spec, split.model()); !found.empty()) return base::fail(std::move(found));
  auto one = make_plan(std::make_shared<const models::Model>(split.model()),
                       std::make_shared<const clusters::Cluster>(std::move(device)), alone(spec, split.model()));
  if (!one) return base::fail(one.error());
  const bool own = spec.stages.asynchronous() || spec.states.has_server() || spec.compresses();
  LowerOptions plain = options;
  plain.zero_gradients = options.zero_gradients || own;
  Schedule schedule = lower(*one, plain);
  if (own && !options.forward_only) {
    RankClass& only = schedule.classes.front();
    only = rewritten(split, std::move(only), stage_parameters(*one, kFirstStage).shared);
    schedule.spec.compression = spec.compression;  // gives the rank of the factors
    if (!options.zero_gradients) write_first(only);
  }
  return SerialProgram{std::move(*one), std::move(schedule), own};
}

}  // namespace orrery::plan
