/// States and updates by optimizer.
#include "cost/update.h"

#include "plan/buckets.h"
#include "plan/factors.h"
#include "plan/lower.h"
#include "plan/place.h"

namespace orrery::cost {

using models::DType;
using models::Op;
using models::OpKind;
using plan::OptimizerKind;

double arena_bytes(std::int64_t elements, DType dtype) {
  const std::int64_t bytes = elements * models::size_of(dtype);
  return static_cast<double>((bytes + plan::kAlignment - 1) / plan::kAlignment * plan::kAlignment);
}

namespace {

bool has_master(const plan::PlanSpec& spec) {
  return plan::expand_options(spec).dtype != DType::fp32 && spec.rounding == plan::Rounding::nearest;
}

bool quantises(const BucketSize& bucket, const plan::PlanSpec& spec) {
  return spec.optimizer == OptimizerKind::adamw_8bit && !bucket.embedding;
}

}  // namespace

double state_bytes(const BucketSize& bucket, std::int64_t optimized, const plan::PlanSpec& spec, double moment_bytes) {
  const double full = arena_bytes(optimized, DType::fp32);
  const double master = has_master(spec) ? full : 0;
  if (quantises(bucket, spec))
    return master +
           2 * (arena_bytes(optimized, DType::uint8) + arena_bytes(optimized / models::kQuantisedBlock, DType::fp32));
  if (spec.moments() < 2) return master + spec.moments() * full;
  return master + moment_bytes / static_cast<double>(models::size_of(DType::fp32)) * full;
}

TensorBytes tensor_bytes(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  std::int64_t parameters = 0, factors = 0;
  for (const BucketSize& b : buckets) {
    parameters += b.count * b.parameters;
    factors += b.count * b.factors.elements;
  }
  TensorBytes out;
  if (!plan::looks_at_tensors(spec.optimizer)) return out;
  out.temporary = arena_bytes(2 * parameters, DType::fp32);
  if (spec.optimizer != OptimizerKind::adafactor) return out;
  out.states = arena_bytes(factors, DType::fp32);
  out.temporary += out.states;
  return out;
}

UpdateOps update_ops(const BucketSize& bucket, std::int64_t optimized, const plan::PlanSpec& spec) {
  const auto make = [&](OpKind kind, std::size_t states) {
    Op op;
    op.kind = kind;
    op.dtype = plan::gradient_dtype(spec.precision);
    op.m = optimized;
    op.stochastic = spec.rounding == plan::Rounding::stochastic;
    op.out.assign(1 + states + (has_master(spec) ? 1 : 0), 0);
    return op;
  };
  const plan::OptimizerTraits& traits = plan::traits_of(spec.optimizer);
  if (spec.optimizer == OptimizerKind::adamw_8bit)
    return {{}, quantises(bucket, spec) ? make(OpKind::adamw_8bit, 4) : make(OpKind::adamw, 2)};
  if (spec.optimizer == OptimizerKind::lamb) return {{make(OpKind::lamb_moments, 2)}, make(OpKind::lamb, 0)};
  if (spec.optimizer == OptimizerKind::adafactor)
    return {{make(OpKind::factor_sums, 0), make(OpKind::factor_norms, 0)}, make(OpKind::adafactor, 0)};
  Op update = make(traits.update, static_cast<std::size_t>(traits.moments));
  if (spec.moments() == 0) update.out[1] = -1;
  return {{}, update};
}

}  // namespace orrery::cost
