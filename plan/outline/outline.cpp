// The parts that outlines consist of.
#include "plan/outline/outline.h"

#include <algorithm>

#include "base/ensure.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

std::int64_t Outline::message_bytes(const Item& item) const {
  const auto at = [&](int operand) { return operands[static_cast<std::size_t>(operand)].elements; };
  return std::max(at(item.source), at(item.target)) * models::size_of(slot_of(item.source).dtype);
}

int ranks_of(Over over, bool experts, const PlanSpec& spec) {
  const bool partitions = zero_of(spec) > 0;
  const int ends = spec.stages.mirrors() ? 2 : 1;
  const Holders holders = spec.holders(experts);
  switch (over) {
    case Over::tensor: return holders.ways;
    case Over::data: return partitions ? holders.shards : holders.count * ends;
    case Over::copies: return partitions ? holders.sub_groups() * ends : 1;
    case Over::near: return holders.near;
    case Over::far: return holders.count / holders.near;
    case Over::parts: return partitions ? holders.ways * holders.shards : holders.ways;
  }
  ENSURE(false, "no group {}", static_cast<int>(over));
}

DType gradient_dtype(DType precision) {
  return precision == DType::fp16 ? DType::fp16 : DType::fp32;
}
DType compute_dtype(DType precision) {
  const bool narrow = precision == DType::fp8 || precision == DType::fp4;
  return narrow ? DType::bf16 : precision == DType::tf32 ? DType::fp32 : precision;
}

bool has_master(const PlanSpec& spec) {
  const bool rounds =
      compute_dtype(spec.numerics.precision) != DType::fp32 && spec.numerics.rounding == Rounding::nearest;
  // The host updates its own values, whatever type the device computes in (ZeRO-Offload).
  return rounds || spec.offload.optimizer != Space::device;
}

int Sketch::temporary(const char* name, DType dtype, std::int64_t elements) {
  result_.slots.push_back({Memory::temporary, name, Purpose::communication, dtype, elements, part_});
  return static_cast<int>(result_.slots.size()) - 1;
}

int Sketch::of_stage(Memory memory, const char* name, std::int64_t elements, Purpose purpose, DType dtype) {
  result_.slots.push_back({memory, name, purpose, dtype, elements, part_});
  return static_cast<int>(result_.slots.size()) - 1;
}

int Sketch::slot(Memory memory) {
  for (std::size_t i = 0; i < result_.slots.size(); ++i)
    if (result_.slots[i].memory == memory) return static_cast<int>(i);
  Slot made{.memory = memory};
  const DType gradient = gradient_dtype(spec_.numerics.precision), compute = compute_dtype(spec_.numerics.precision);
  if (memory == Memory::gradients || memory == Memory::received)
    made.dtype = gradient, made.elements = bucket_.elements;
  else if (memory == Memory::gradient_shard)
    made.dtype = gradient, made.elements = bucket_.shard;
  else if (memory == Memory::parameters)
    made.dtype = compute, made.elements = bucket_.elements;
  else if (memory == Memory::parameter_shard)
    made.dtype = compute, made.elements = bucket_.shard;
  else if (memory == Memory::norm_squared || memory == Memory::coefficient)
    made.elements = 1;
  else if (memory == Memory::scaling)
    made.elements = 4;
  else
    made = state_of(memory, bucket_, spec_);
  made.part = part_;
  result_.slots.push_back(made);
  return static_cast<int>(result_.slots.size()) - 1;
}

int Sketch::run(int slot, std::int64_t offset, std::int64_t elements, bool own) {
  result_.operands.push_back({slot, offset, elements, own, -1});
  return static_cast<int>(result_.operands.size()) - 1;
}

int Sketch::parameter(Memory memory, int index) {
  const int operand = run(slot(memory), 0, 0);
  result_.operands.back().parameter = index;
  return operand;
}

int Sketch::optimized_gradient() {
  const int zero = zero_of(spec_);
  return zero >= 2 ? whole(Memory::gradient_shard) : zero == 1 ? own(Memory::gradients) : whole(Memory::gradients);
}
int Sketch::optimized_values() {
  const int zero = zero_of(spec_);
  return zero == 3 ? whole(Memory::parameter_shard) : zero >= 1 ? own(Memory::parameters) : whole(Memory::parameters);
}

Op Sketch::flat(OpKind kind, DType dtype, std::int64_t m, std::vector<int> in, std::vector<int> out) {
  Op op;
  op.kind = kind;
  op.dtype = dtype;
  op.m = m;
  op.in = std::move(in);
  op.out = std::move(out);
  return op;
}

Op Sketch::zero(int operand) const {
  return flat(OpKind::fill_zero, result_.slot_of(operand).dtype,
              result_.operands[static_cast<std::size_t>(operand)].elements, {}, {operand});
}

void Sketch::compute(Phase phase, const char* name, std::vector<Op> ops) {
  result_.items.push_back({.phase = phase, .part = part_, .name = name, .ops = std::move(ops)});
}

void Sketch::message(Phase phase, CollectiveKind kind, Over over, bool experts, int source, int target) {
  if (ranks_of(over, experts, spec_) < 2) return;
  result_.items.push_back({.phase = phase,
                           .part = part_,
                           .kind = kind,
                           .over = over,
                           .experts = experts && spec_.mesh.folds_experts(),
                           .source = source,
                           .target = target});
}

}  // namespace orrery::plan
