#pragma once
/// How a mixture of experts is divided: rows, experts and columns of one rank.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "models/experts.h"
#include "models/layers/expand.h"
#include "models/layers/expert_slots.h"

namespace orrery::models {

struct MixtureSizes {
  /// Experts are split over other ranks than the tensor group, and each rank routes its own rows.
  bool own_routes = false;
  std::int64_t ways = 1;                ///< ranks that split an expert
  std::int64_t routed = 0, tokens = 0;  ///< rows that this rank routes, and those that it sends
  std::int64_t local = 0, width = 0;    ///< experts per rank, and this rank's columns of each
  std::int64_t capacity = 0;            ///< rows of a slot
  double expected = 1;                  ///< the share of a slot that is filled
  /// Whether ranks that split an expert gather the rows that they route.
  [[nodiscard]] bool gathers() const { return own_routes && ways > 1; }
};

/// `all`, `own`: a micro-batch's rows of the tensor group, and those of this rank. Slots of several ranks hold as many
/// rows as the bound allows, and never more than can arrive.
[[nodiscard]] inline MixtureSizes mixture_sizes(const Experts& experts, const ExpandOptions& options, std::int64_t all,
                                                std::int64_t own) {
  constexpr std::int64_t kLeast = 64;  // small batches need no bound
  MixtureSizes m;
  m.own_routes = options.expert_ways > 0 && options.expert_ways != options.tensor;
  m.ways = options.expert_ways > 0 ? options.expert_ways : options.tensor;
  m.routed = m.own_routes ? own : all;
  m.tokens = m.own_routes ? own * m.ways : all;
  m.local = experts.count / options.expert;
  m.width = experts.hidden / m.ways;
  const ExpertSlot slot =
      expert_slot(experts, {m.tokens, options.batch, options.sequence * options.context, options.expert});
  const auto bounded = static_cast<std::int64_t>(std::ceil(options.expert_bound * slot.balanced)) + kLeast;
  m.capacity = options.expert > 1 ? std::min(slot.most, bounded) : slot.most;
  m.expected = std::min(1.0, options.imbalance * slot.balanced / static_cast<double>(m.capacity));
  return m;
}

}  // namespace orrery::models
