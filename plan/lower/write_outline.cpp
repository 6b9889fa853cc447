// Outlines, bound to buffers and groups.
#include "plan/lower/write_outline.h"

#include <utility>

#include "base/ensure.h"
#include "base/index.h"

namespace orrery::plan {

using base::at;
using models::Op;

BufferId& field_of(Bucket& bucket, Memory memory) {
  if (memory == Memory::gradients) return bucket.gradients;
  if (memory == Memory::gradient_shard) return bucket.gradient_shard;
  if (memory == Memory::parameters) return bucket.parameters;
  if (memory == Memory::parameter_shard) return bucket.shard;
  if (memory == Memory::master) return bucket.master;
  if (memory == Memory::first_moment) return bucket.first_moment;
  if (memory == Memory::second_moment) return bucket.second_moment;
  if (memory == Memory::first_scale) return bucket.first_scale;
  if (memory == Memory::second_scale) return bucket.second_scale;
  if (memory == Memory::error) return bucket.error;
  if (memory == Memory::low_rank_q) return bucket.low_rank_q;
  ENSURE(memory == Memory::received, "memory {} is of no bucket", static_cast<int>(memory));
  return bucket.received;
}

ShapeOf::ShapeOf(const Bucket& bucket, const PlanSpec& spec) {
  shape_.elements = bucket.elements;
  shape_.shard = bucket.shard_elements();
  shape_.partial = bucket.partial_elements;
  shape_.parameters = static_cast<std::int64_t>(bucket.ranges.size());
  shape_.embedding = bucket.embedding;
  shape_.experts = bucket.experts;
  for (const ParameterRange& range : bucket.ranges) {
    if (spec.low_rank()) matrices_.push_back(matrix_of(range.tensor));
    if (!traits_of(spec.states.optimizer).factored()) continue;
    const FactorCount factors = factor_count(range.tensor);
    shape_.factors.elements += factors.elements;
    shape_.factors.met += factors.met;
  }
  shape_.matrices = &matrices_;
  if (!traits_of(spec.states.optimizer).whole_matrices()) return;
  whole_ = whole_matrices(bucket);
  if (!whole_.matrices.empty()) shape_.whole = &whole_;
}

OutlinedBucket outlined(ClassBuilder& build, BucketId bucket, LayerId layer) {
  OutlinedBucket out{.bucket = bucket, .layer = layer};
  for (int memory = 0; memory < static_cast<int>(Memory::temporary); ++memory)
    out.buffers[at(memory)] = field_of(build.bucket(bucket), static_cast<Memory>(memory));
  return out;
}

BufferId& buffer_of(OutlinedBucket& bucket, Memory memory) {
  return bucket.buffers[static_cast<std::size_t>(memory)];
}

void OutlineWriter::make_buffers(int part) {
  if (part <= made_) return;
  made_ = part;
  buffers_.resize(outline_.slots.size());
  for (std::size_t i = 0; i < outline_.slots.size(); ++i) {
    const Slot& slot = outline_.slots[i];
    if (slot.memory != Memory::temporary) {
      buffers_[i] = bucket_.buffers[static_cast<std::size_t>(slot.memory)];
    } else if (slot.part == part) {
      const std::string name = bucket_.label + build_.bucket(bucket_.bucket).name + "." + slot.name;
      buffers_[i] = build_.buffer(name, slot.purpose, slot.dtype, slot.elements);
    }
  }
}

View OutlineWriter::view(int operand) const {
  const Operand& o = outline_.operands[at(operand)];
  const BufferId buffer = buffers_[at(o.slot)];
  ENSURE(buffer.exists(), "memory {} has no buffer", static_cast<int>(outline_.slots[at(o.slot)].memory));
  if (o.parameter >= 0) {
    const ParameterRange& range = build_.bucket(bucket_.bucket).ranges[at(o.parameter)];
    return {buffer, range.offset, range.elements};
  }
  return {buffer, o.offset, o.elements, o.own ? build_.bucket(bucket_.bucket).dealt() : DealtOver::nobody};
}

Op OutlineWriter::bound(Op op) {
  for (std::vector<int>* operands : {&op.in, &op.out})
    for (int& operand : *operands)
      if (operand >= 0) operand = build_.view(view(operand));
  return op;
}

void OutlineWriter::write(int part) {
  make_buffers(part);
  for (const Item& item : outline_.items) {
    if (item.part != part) continue;
    if (item.is_message()) {
      const GroupId over = groups_.of(item.experts).over(item.over);
      ENSURE(over.exists(), "no group {} for bucket {}", static_cast<int>(item.over), bucket_.bucket);
      build_.collective(item.phase, Stream::data, item.kind, over, view(item.source), view(item.target), bucket_.bucket,
                        bucket_.layer);
      continue;
    }
    std::vector<Op> ops;
    for (const Op& op : item.ops) ops.push_back(bound(op));
    build_.compute(item.phase, item.name, std::move(ops), bucket_.layer).bucket = bucket_.bucket;
  }
}

std::vector<Op> OutlineWriter::operators(int part) {
  make_buffers(part);
  std::vector<Op> ops;
  for (const Item& item : outline_.items)
    if (item.part == part)
      for (const Op& op : item.ops) ops.push_back(bound(op));
  return ops;
}

void write_outline(ClassBuilder& build, const Groups& groups, Outline outline, OutlinedBucket bucket) {
  OutlineWriter writer(build, groups, std::move(outline), std::move(bucket));
  for (int part = 0; part < writer.parts(); ++part) writer.write(part);
}

}  // namespace orrery::plan
