// Stages of an asynchronous pipeline on one rank.
#include "plan/lower/serial_stages.h"

#include <algorithm>

#include "base/index.h"
#include "plan/schedule/asynchronous.h"

namespace orrery::plan {

using base::at;
using models::DType;
using models::Op;
using models::OpKind;

namespace {

// The stage of the split plan that has the step's layer.
StageId stage_of(const Plan& split, const Step& step) {
  const Mesh& mesh = split.spec().mesh;
  if (!step.layer) return step.part == "embedding" ? kFirstStage : mesh.last_stage();
  StageId found = kFirstStage;
  for (const StageId stage : mesh.stages())
    if (split.first_layer(stage) <= step.layer.number()) found = stage;
  return found;
}

}  // namespace

void age_weights(SerialStep& to, const Plan& split) {
  const auto delay_of = [&](const Step& step) { return weight_delay(split.spec(), stage_of(split, step)); };
  std::vector<int> delays(to.made.buckets.size(), 0);
  for (const char* name : {"forward", "backward"})
    for (const Step& step : to.block(name).steps)
      for (std::size_t b = 0; b < to.made.buckets.size(); ++b)
        if (std::find(step.reads.begin(), step.reads.end(), to.made.buckets[b].parameters) != step.reads.end())
          delays[b] = std::max(delays[b], delay_of(step));
  make_versions(to.made, delays);
  Block& finish = to.block("finish");
  copy_versions(to.made, finish, first_update(to.made, finish));
  for (const char* name : {"forward", "backward"})
    read_versions(to.made, to.block(name), [&](const Step& step) { return delay_of(step) > 0; });
}

void clip_by_stages(SerialStep& to, const Plan& split, BucketId shared) {
  const Mesh& mesh = split.spec().mesh;
  const bool tied = shared.exists();
  base::ById<BucketId, StageId> stage(to.made.buckets.size());
  for (const Step& step : to.block("forward").steps)
    for (std::size_t b = 0; b < to.made.buckets.size(); ++b)
      for (const BufferId buffer : {to.made.buckets[b].parameters, to.made.buckets[b].stashed})
        if (!stage[b] && buffer && std::find(step.reads.begin(), step.reads.end(), buffer) != step.reads.end())
          stage[b] = stage_of(split, step) == mesh.last_stage() && tied ? kFirstStage : stage_of(split, step);
  const std::size_t clip = place_of(to.block("finish"), "clip"), norm = place_of(to.block("finish"), "norm");
  const BufferId coefficient = to.made.views[at(to.block("finish").steps[clip].ops.front().out.at(1))].buffer;
  const std::vector<Op> squares = to.block("finish").steps[norm].ops;  // one per bucket, in order
  const std::int64_t stages = mesh.pipeline;
  const BufferId totals = to.persistent("stage_norms_squared", Purpose::scalars, DType::fp32, stages),
                 norms = to.persistent("stage_norms", Purpose::scalars, DType::fp32, stages),
                 coefficients = to.persistent("stage_clip_coefficients", Purpose::scalars, DType::fp32, stages);
  std::vector<Op> ops = {to.build.zero_of(totals)};
  for (std::size_t b = 0; b < to.made.buckets.size(); ++b) {
    ops.push_back(squares.at(b));
    ops.back().out = {to.part(totals, stage[b].number(), 1)};
  }
  for (std::int64_t s = 0; s < stages; ++s)
    ops.push_back(to.build.flat(OpKind::clip_coefficient, DType::fp32, 1, {to.part(totals, s, 1)},
                                {to.part(norms, s, 1), to.part(coefficients, s, 1)}));
  Step by_stage = to.step_of(Phase::optimizer, "clip_stages", std::move(ops));
  Block& finish = to.block("finish");  // not earlier: noting a step opens a block
  finish.steps.insert(finish.steps.begin() + static_cast<std::ptrdiff_t>(clip) + 1, std::move(by_stage));
  for (std::size_t i = clip + 2; i < finish.steps.size(); ++i) {
    Step& step = finish.steps[i];
    if (!step.bucket) continue;
    for (Op& op : step.ops)
      for (int& operand : op.in)
        if (operand >= 0 && to.made.views[at(operand)].buffer == coefficient)
          operand = to.part(coefficients, stage[step.bucket].number(), 1);
    to.settle(step);
  }
}

}  // namespace orrery::plan
