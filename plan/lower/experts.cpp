// Names a rank's experts.
#include "plan/lower/experts.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/ensure.h"

namespace orrery::plan {
namespace {

// Replaces the expert number that the name already has.
std::string named(const ParameterRange& range, std::int64_t expert) {
  constexpr std::string_view kBefore = ".experts.";
  const std::size_t begin = range.name.find(kBefore);
  ENSURE(begin != std::string::npos, "{} does not say which expert's it is", range.name);
  const std::size_t number = begin + kBefore.size(), end = range.name.find('.', number);
  return range.name.substr(0, number) + std::to_string(expert) + range.name.substr(end);
}

std::int64_t experts_of(const Bucket& bucket) {
  std::int64_t experts = 0;
  for (const ParameterRange& range : bucket.ranges) experts = std::max(experts, range.tensor.expert + 1);
  return experts;
}

/// False in the second copy of a mirrored model.
bool first_copy(const RankClass& rank_class, LayerId layer) {
  const std::string begin = fmt::format("h.{}.", layer);
  for (const Bucket& bucket : rank_class.buckets)
    for (const ParameterRange& range : bucket.ranges)
      if (range.name.starts_with(begin)) return range.counts_in_norm;
  return true;
}

}  // namespace

std::string name_on_rank(const ParameterRange& range, const Bucket& bucket, const PlanSpec& spec, int rank) {
  if (range.tensor.expert < 0) return range.name;
  return named(range, spec.mesh.expert_index(rank) * experts_of(bucket) + range.tensor.expert);
}

std::vector<std::string> names_on_ranks(const ParameterRange& range, const Bucket& bucket, const PlanSpec& spec) {
  if (range.tensor.expert < 0) return {range.name};
  const std::int64_t experts = experts_of(bucket);
  std::vector<std::string> out;
  for (int i = 0; i < spec.mesh.expert; ++i) out.push_back(named(range, i * experts + range.tensor.expert));
  return out;
}

std::vector<ParameterRange> expert_bias_ranges(const RankClass& rank_class) {
  std::vector<ParameterRange> out;
  if (!rank_class.expert_biases) return out;
  const std::int64_t experts = rank_class.buffers[rank_class.expert_biases].elements /
                               static_cast<std::int64_t>(rank_class.expert_layers.size());
  for (const LayerId layer : rank_class.expert_layers) {
    ParameterRange range;
    range.name = range.tensor.name = fmt::format("h.{}.mlp.router.balance", layer);
    range.offset = static_cast<std::int64_t>(out.size()) * experts;
    range.elements = experts;
    range.replicated = true;
    range.counts_in_norm = first_copy(rank_class, layer);
    range.tensor.shape = range.tensor.logical_shape = {experts};
    out.push_back(std::move(range));
  }
  return out;
}

void name_experts(Schedule& schedule, int rank) {
  if (schedule.spec.mesh.expert == 1) return;
  const RankClass* const own = &schedule.class_of(rank);
  for (RankClass& c : schedule.classes) {
    if (&c != own) continue;
    for (Bucket& bucket : c.buckets)
      for (ParameterRange& range : bucket.ranges)
        range.name = range.tensor.name = name_on_rank(range, bucket, schedule.spec, rank);
  }
}

}  // namespace orrery::plan
