#pragma once
/// What a job lets the search choose.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/spec/parts.h"
#include "plan/spec/pass_order.h"
#include "plan/spec/stages.h"
#include "plan/spec/table_placement.h"

namespace orrery::plan {

/// What the search may choose: one member for each field of a PlanSpec that a job may bound (plan/spec/fields.h). An
/// empty list leaves the dimension free and one value fixes it, unless the member's comment says otherwise.
struct OffloadBounds {
  std::vector<Space> activations, optimizer, parameters;  ///< empty: the device, if all fits
  std::optional<int> prefetch;
  bool operator==(const OffloadBounds&) const = default;
};
struct CompressionBounds {
  std::vector<GradientCompression> gradients;   ///< empty: none, as it changes the mathematics
  std::vector<ActivationEncoding> activations;  ///< likewise
  std::optional<int> rank;
  std::optional<double> minimum_rate, capacity;
  std::vector<int> group;  ///< empty: 0, and a node's replicas where replicas span several nodes
  std::optional<std::int64_t> start;
  bool operator==(const CompressionBounds&) const = default;
};
struct TokensBounds {
  std::vector<models::TokenCodec> dispatch, combine;  ///< empty: none, as fewer bits change the mathematics
  bool operator==(const TokensBounds&) const = default;
};
struct EmbeddingBounds {
  std::vector<TableSharding> sharding;  ///< empty: automatic
  TablePlacement placement;
  std::vector<PooledType> forward, backward;  ///< empty: fp32, as fewer bits change the mathematics
  TableTiers tiers;                           ///< empty: the device, and other memories where only they have room
  std::optional<PooledType> stored;
  std::optional<double> skew;
  bool operator==(const EmbeddingBounds&) const = default;
};
struct Bounds {
  std::vector<int> data, tensor, pipeline, context, expert, virtual_stages, micro_batch, zero_stage;
  std::vector<Order> order;
  std::string order_file;  ///< the file of a custom order, as written; apps/ reads its contents into `passes`
  PassOrder passes;
  std::vector<Recompute> recompute;
  std::vector<std::int64_t> layers_per_stage;  ///< fixes the split when given
  std::optional<bool> flash;
  std::optional<int> staleness;  ///< asynchronous data parallelism with a parameter server; absent: synchronous
  std::vector<bool> partition_checkpoints, sequence_parallel;
  std::optional<std::int64_t> recompute_layers;
  std::optional<bool> ends_as_layers;
  OffloadBounds offload;
  CompressionBounds compression;
  std::optional<bool> overlap_gradients;
  std::vector<int> zero_group;   ///< 0: all replicas; empty: all, and those of a node where they span nodes
  std::vector<int> loss_chunks;  ///< empty: 1, and more where only that fits
  EmbeddingBounds embedding;
  std::vector<int> expert_tensor;  ///< empty: 0, and also 1 with sequence parallelism
  std::optional<double> expert_bound, expert_imbalance;
  TokensBounds tokens;
  bool operator==(const Bounds&) const = default;
};

}  // namespace orrery::plan
