// A training step whose updates a sharded server makes, and the order of passes before it.
#include "plan/lower/parameter_server.h"

#include <algorithm>

#include "base/index.h"
#include "models/operators/operators.h"
#include "plan/lower/compress.h"
#include "plan/lower/lower.h"
#include "plan/lower/lower_optimizer.h"
#include "plan/schedule/asynchronous.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

namespace {

using base::at;

enum BlockOf : std::int32_t { kBegin, kForward, kBackward, kPush, kFinish, kStart };

constexpr const char* kLosses = "losses";

BufferId buffer_named(const RankClass& c, const std::string& name) {
  for (const BufferId i : c.buffers.keys())
    if (c.buffers[i].name == name) return i;
  return {};
}

// Everywhere in the block, operands and steps that name buffer `from` name `to` from now on.
void rename(RankClass& c, Block& block, BufferId from, BufferId to) {
  for (Step& step : block.steps) {
    for (Op& op : step.ops)
      for (std::vector<int>* operands : {&op.in, &op.out})
        for (int& operand : *operands) {
          if (operand < 0 || c.views[at(operand)].buffer != from) continue;
          View v = c.views[at(operand)];
          v.buffer = to;
          c.views.push_back(v);
          operand = static_cast<int>(c.views.size()) - 1;
        }
    for (std::vector<BufferId>* list : {&step.reads, &step.writes}) std::replace(list->begin(), list->end(), from, to);
  }
}

// The step's loss is cleared where its first pass begins; its gradients only once those of the step before have left.
Block without_loss(RankClass& c, BufferId losses) {
  Step& zero = c.blocks[kBegin].steps.front();
  Block start{"start", {zero}};
  const auto clears = [&](const Op& op, BufferId buffer) { return c.views[at(op.out.front())].buffer == buffer; };
  Step& first = start.steps.front();
  first.part = "zero_loss";
  first.phase = Phase::reporting;
  std::erase_if(first.ops, [&](const Op& op) { return !clears(op, losses); });
  first.writes = {losses};
  std::erase_if(zero.ops, [&](const Op& op) { return clears(op, losses); });
  std::erase(zero.writes, losses);
  return start;
}

}  // namespace

void report_pushed_loss(ClassBuilder& build, const PlanSpec& spec) {
  if (spec.states.staleness == 0) return;
  const BufferId losses = build.buffer(kLosses, Purpose::scalars, DType::fp32, 1, true);
  const View loss = build.whole(build.result().loss);
  build.compute(Phase::reporting, "loss",
                {build.flat(OpKind::copy, DType::fp32, 1, {build.view(build.whole(losses))}, {build.view(loss)})});
}

void lower_served(const StepEnd& end) {
  ClassBuilder& build = end.build;
  const Groups& groups = end.groups;
  const DType gradient = gradient_dtype(end.spec.numerics.precision);
  const int workers = end.spec.mesh.data;
  const auto persistent = [&](std::string name, Purpose purpose, DType dtype, std::int64_t elements) {
    return build.buffer(std::move(name), purpose, dtype, elements, true);
  };
  const BufferId coefficients = persistent("clip_coefficients", Purpose::scalars, DType::fp32, workers);
  for (const BucketId b : build.result().buckets.keys()) {
    const std::int64_t elements = build.bucket(b).elements;
    const BufferId received =
        persistent(build.bucket(b).name + ".received", Purpose::communication, gradient, elements);
    build.bucket(b).received = received;
  }

  build.open("push");
  std::vector<Op> squares = {build.zero_of(end.norm_squared)};
  const Reducing reducing{build, groups, end.spec};
  std::vector<OutlineWriter> pushes;
  for (const BucketId b : build.result().buckets.keys()) {
    pushes.push_back(reducing.of(b));
    pushes.back().write(0);
    for (Op& op : squares_of(build, groups, end.spec, b, end.norm_squared)) squares.push_back(std::move(op));
  }
  build.compute(Phase::optimizer, "norm", std::move(squares));
  const View norm = build.whole(end.norm_squared);
  if (groups.tensor)
    build.collective(Phase::optimizer, Stream::data, CollectiveKind::all_reduce, groups.tensor, norm, norm);
  build.compute(
      Phase::optimizer, "clip",
      {build.flat(OpKind::clip_coefficient, DType::fp32, 1, {build.view(norm)},
                  {build.view(build.whole(build.result().gradient_norm)), build.view(build.whole(end.coefficient))})});
  const BufferId loss = build.result().loss;
  report_pushed_loss(build, end.spec);
  build.collective(Phase::gradient_reduce, Stream::data, CollectiveKind::all_gather, groups.data,
                   build.whole(end.coefficient), build.whole(coefficients));
  for (OutlineWriter& push : pushes) push.write(1);

  build.open("finish");
  lower_update(build, groups, end.spec, coefficients);
  build.collective(Phase::reporting, Stream::data, CollectiveKind::all_reduce, groups.data, build.whole(loss),
                   build.whole(loss));
}

void serve(const Plan& plan, RankClass& c) {
  const std::int32_t s = *plan.spec().states.staleness, workers = plan.spec().mesh.data;
  const auto m = static_cast<std::int32_t>(plan.micro_batches());
  // A worker's gradient is the mean over its own tokens; the reported loss stays the mean over all.
  for (const BlockOf pass : {kForward, kBackward})
    for (Step& step : c.blocks[pass].steps)
      for (Op& op : step.ops)
        if (models::traits_of(op).loss_gradient) op.scale *= workers;
  if (s > 0) {
    make_versions(c, std::vector<int>(c.buckets.size(), s));
    copy_versions(c, c.blocks[kPush], 0);
    for (const BlockOf b : {kForward, kBackward}) read_versions(c, c.blocks[b]);
    for (const Bucket& bucket : c.buckets) c.buffers[bucket.gradients].versions = s;
    const BufferId losses = buffer_named(c, kLosses);
    c.buffers[losses].versions = s;
    for (const BlockOf b : {kBegin, kForward, kBackward}) rename(c, c.blocks[b], c.loss, losses);
    c.blocks.push_back(without_loss(c, losses));
  }
  c.program.clear();
  const auto add = [&](std::int32_t block, std::int32_t micro_batch, std::int32_t ahead, bool opening) {
    c.program.push_back({block, micro_batch, ahead, opening});
  };
  const auto passes = [&](std::int32_t ahead, bool opening) {
    if (s > 0) add(kStart, -1, ahead, opening);
    if (s == 0 || opening) add(kBegin, -1, ahead, opening);
    for (std::int32_t i = 0; i < m; ++i) {
      add(kForward, i, ahead, opening);
      if (i == 0 && s > 0 && !opening) {
        add(kFinish, -1, 0, false);
        add(kBegin, -1, ahead, false);
      }
      add(kBackward, i, ahead, opening);
    }
  };
  if (s == 0) {
    passes(0, false);
    add(kPush, -1, 0, false);
    add(kFinish, -1, 0, false);
    return;
  }
  for (std::int32_t ahead = 0; ahead < s; ++ahead) passes(ahead, true);
  add(kPush, -1, 0, false);
  passes(s, false);
}

}  // namespace orrery::plan
