// Buffers, views and steps of one class, and the lifetimes of its buffers.
#include "plan/lower/class_builder.h"

#include <algorithm>

#include "base/ensure.h"
#include "plan/outline/layer_pass.h"
#include "plan/schedule/rewrite.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

BufferId ClassBuilder::buffer(std::string name, Purpose purpose, DType dtype, std::int64_t elements, bool persistent) {
  return class_.buffers.append(
      {.name = std::move(name), .purpose = purpose, .dtype = dtype, .elements = elements, .persistent = persistent});
}
View ClassBuilder::whole(BufferId buffer) const {
  return {buffer, 0, class_.buffers[buffer].elements};
}
int ClassBuilder::view(const View& v) {
  class_.views.push_back(v);
  return static_cast<int>(class_.views.size()) - 1;
}

Step& ClassBuilder::push(Step step) {
  class_.blocks.back().steps.push_back(std::move(step));
  return class_.blocks.back().steps.back();
}

Step& ClassBuilder::compute(Phase phase, std::string part, std::vector<Op> ops, LayerId layer) {
  Step step{
      .kind = StepKind::compute, .stream = Stream::compute, .phase = phase, .layer = layer, .part = std::move(part)};
  for (const Op& op : ops) {
    for (int v : op.in)
      if (v >= 0) note(step.reads, class_.views[static_cast<std::size_t>(v)].buffer);
    for (int v : op.out)
      if (v >= 0) note(step.writes, class_.views[static_cast<std::size_t>(v)].buffer);
  }
  step.ops = std::move(ops);
  return push(std::move(step));
}

Step& ClassBuilder::collective(Phase phase, Stream stream, CollectiveKind kind, GroupId group, View source, View target,
                               BucketId bucket, LayerId layer, Reduce reduce) {
  Step step{.kind = StepKind::collective, .stream = stream, .phase = phase, .layer = layer, .bucket = bucket};
  step.part = name_of(kind);
  step.collective = kind;
  step.reduce = reduce;
  step.group = group;
  step.source = source;
  step.target = target;
  step.reads = {source.buffer};
  step.writes = {target.buffer};
  return push(std::move(step));
}

Step& ClassBuilder::exchange(Phase phase, Stream stream, GroupId group, View source, View target, LayerId layer,
                             const CountedRows& counted) {
  Step& step = collective(phase, stream, CollectiveKind::all_to_all, group, source, target, {}, layer);
  step.counted = counted;
  if (!counted.any()) return step;
  note(step.reads, view_at(counted.sent).buffer);
  note(step.reads, view_at(counted.received).buffer);
  return step;
}

void ClassBuilder::copy_rows(Phase phase, Stream stream, View source, View target, const RowMove& rows) {
  Step step{.kind = StepKind::copy, .stream = stream, .phase = phase};
  step.part = rows.states ? "rows' states" : "rows";
  step.source = source;
  step.target = target;
  step.rows = rows;
  step.reads = {source.buffer};
  note(step.reads, view_at(rows.list).buffer);
  step.writes = {target.buffer};
  push(std::move(step));
}

void ClassBuilder::send(Phase phase, int peer, int tag, BufferId source) {
  Step step{.kind = StepKind::send, .stream = Stream::pipeline_send, .phase = phase, .part = "send"};
  step.peer = peer;
  step.tag = tag;
  step.source = whole(source);
  step.reads = {source};
  push(std::move(step));
}
void ClassBuilder::receive(Phase phase, int peer, int tag, BufferId target) {
  Step step{.kind = StepKind::recv, .stream = Stream::pipeline_recv, .phase = phase, .part = "recv"};
  step.peer = peer;
  step.tag = tag;
  step.target = whole(target);
  step.writes = {target};
  push(std::move(step));
}

Op ClassBuilder::flat(OpKind kind, DType dtype, std::int64_t m, std::vector<int> in, std::vector<int> out) {
  Op op;
  op.kind = kind;
  op.dtype = dtype;
  op.m = m;
  op.in = std::move(in);
  op.out = std::move(out);
  return op;
}
Op ClassBuilder::zero_of(BufferId index) {
  const Buffer& b = class_.buffers[index];
  return flat(OpKind::fill_zero, b.dtype, b.elements, {}, {view(whole(index))});
}

void ClassBuilder::settle_lives() {
  struct Use {
    int first_block = -1, first_step = -1, last_block = -1, last_step = -1;
  };
  base::ById<BufferId, Use> uses(class_.buffers.size());
  Ring<BufferId> ring;
  for (int b = 0; b < static_cast<int>(class_.blocks.size()); ++b)
    for (int s = 0; s < static_cast<int>(class_.blocks[static_cast<std::size_t>(b)].steps.size()); ++s) {
      const Step& step = class_.blocks[static_cast<std::size_t>(b)].steps[static_cast<std::size_t>(s)];
      const auto touch = [&](BufferId index) {
        Use& use = uses[index];
        if (use.first_block < 0) use.first_block = b, use.first_step = s;
        use.last_block = b, use.last_step = s;
      };
      for (BufferId index : step.reads) touch(index);
      for (BufferId index : step.writes) touch(index);
      if (step.kind == StepKind::collective && step.collective == CollectiveKind::ring_shift)
        ring.shift(step.source.buffer, step.target.buffer);
      if (step.kind != StepKind::compute) continue;
      for (BufferId index : step.reads)
        if (const auto arrival = ring.first_read(index)) touch(arrival->sent);
    }
  for (const Kept& kept : kept_) {
    Use& use = uses[kept.buffer];
    if (std::pair(kept.block, kept.step) > std::pair(use.last_block, use.last_step))
      use.last_block = kept.block, use.last_step = kept.step;
  }
  for (const BufferId index : uses.keys()) {
    if (class_.buffers[index].persistent) continue;
    const Use& use = uses[index];
    ENSURE(use.first_block >= 0, "buffer {} is never used", class_.buffers[index].name);
    class_.buffers[index].per_micro_batch = use.first_block != use.last_block;
    step_at(use.first_block, use.first_step).births.push_back(index);
    step_at(use.last_block, use.last_step).deaths.push_back(index);
    if (class_.buffers[index].per_micro_batch || class_.buffers[index].purpose != Purpose::activations) continue;
    class_.buffers[index].purpose = Purpose::workspace;  // an activation that backward does not read
  }
}
Step& ClassBuilder::step_at(int block, int step) {
  return class_.blocks[static_cast<std::size_t>(block)].steps[static_cast<std::size_t>(step)];
}

}  // namespace orrery::plan
