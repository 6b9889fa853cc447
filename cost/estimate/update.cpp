/// States and updates, by optimizer.
#include "cost/estimate/update.h"

#include <algorithm>

#include "plan/lower/buckets.h"
#include "plan/lower/factors.h"
#include "plan/lower/lower.h"
#include "plan/lower/whole_matrices.h"
#include "plan/schedule/place.h"

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

/// Elements of a bucket's directions on this rank; gathered_directions: those of all ranks, if there are several.
std::int64_t own_directions(const BucketSize& bucket, const plan::PlanSpec& spec) {
  return spec.replicas() > 1 && spec.zero_stage > 0 ? bucket.shard : bucket.elements;
}
std::int64_t gathered_directions(const BucketSize& bucket, const plan::PlanSpec& spec) {
  const std::int64_t all = bucket.elements * spec.tensor;
  return all > own_directions(bucket, spec) ? all : 0;
}

/// One bucket's directions at a time, plus the workspace of the largest matrix throughout.
double of_whole_matrices(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  double directions = 0, workspace = 0;
  for (const BucketSize& b : buckets) {
    if (b.whole == nullptr) continue;
    directions = std::max(directions, arena_bytes(own_directions(b, spec), DType::fp32) +
                                          arena_bytes(gathered_directions(b, spec), DType::fp32));
    workspace = std::max(workspace, arena_bytes(plan::newton_schulz_workspace(*b.whole), DType::fp32));
  }
  return directions + workspace;
}

}  // namespace

double state_bytes(const BucketSize& bucket, std::int64_t optimized, const plan::PlanSpec& spec, double moment_bytes) {
  const double full = arena_bytes(optimized, DType::fp32);
  const double master = has_master(spec) ? full : 0;
  if (quantises(bucket, spec))
    return master +
           2 * (arena_bytes(optimized, DType::uint8) + arena_bytes(optimized / models::kQuantisedBlock, DType::fp32));
  if (spec.moments() < 2) return master + spec.moments() * full;
  if (bucket.whole != nullptr)
    return master + full + arena_bytes(plan::second_moment_elements(*bucket.whole, optimized), DType::fp32);
  return master + moment_bytes / static_cast<double>(models::size_of(DType::fp32)) * full;
}

TensorBytes tensor_bytes(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec) {
  std::int64_t parameters = 0, factors = 0;
  for (const BucketSize& b : buckets) {
    parameters += b.count * b.parameters;
    factors += b.count * b.factors.elements;
  }
  TensorBytes out;
  if (plan::traits_of(spec.optimizer).whole_matrices) out.temporary = of_whole_matrices(buckets, spec);
  if (!plan::traits_of(spec.optimizer).whole_tensors) return out;
  out.temporary = arena_bytes(2 * parameters, DType::fp32);
  if (spec.optimizer != OptimizerKind::adafactor) return out;
  out.states = arena_bytes(factors, DType::fp32);
  out.temporary += out.states;
  return out;
}

void UpdateChain::add(const Part& part) {
  waits_ = waits_ || part.directions > 0;
  for (std::int64_t i = 0; i < part.count; ++i) {
    computed_ += part.directions;
    if (part.meet > 0) computed_ = gathered_ = std::max(gathered_, computed_) + part.meet;
    computed_ += part.update;
    gathered_ = std::max(gathered_, computed_) + part.gather;
  }
  const auto count = static_cast<double>(part.count);
  updates_ += count * (part.directions + part.meet + part.update);
  gathers_ += count * part.gather;
}

std::pair<double, double> UpdateChain::times(bool overlaps) const {
  if (!overlaps) return {updates_, gathers_};
  return {waits_ ? computed_ : updates_, std::max(0.0, gathered_ - computed_)};
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
  if (traits.whole_matrices) {
    if (bucket.whole == nullptr) return {{}, make(OpKind::adamw, 2)};
    UpdateOps out{{}, make(traits.update, 2)};
    out.update.k = plan::second_moment_elements(*bucket.whole, optimized);
    out.directions = {make(OpKind::muon_moments, 1)};
    out.directions.front().out.resize(2);
    const std::int64_t piece = own_directions(bucket, spec);
    out.products = plan::newton_schulz(*bucket.whole, piece, static_cast<int>(bucket.elements / piece));
    out.gathered = gathered_directions(bucket, spec);
    return out;
  }
  Op update = make(traits.update, static_cast<std::size_t>(traits.moments));
  if (spec.moments() == 0) update.out[1] = -1;
  return {{}, update};
}

}  // namespace orrery::cost
