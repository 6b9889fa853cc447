#pragma once
/// What the search may choose: for each field of a PlanSpec that a job may bound (plan/spec/fields.h) a member of the
/// same name in the same part. An empty list leaves the dimension free and one value fixes it, unless the member's
/// comment says otherwise.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/spec/parts.h"
#include "plan/spec/stages.h"
#include "plan/spec/table_placement.h"

namespace orrery::plan {

struct MeshBounds {
  std::vector<int> data, tensor, pipeline, context, expert;
  std::vector<int> expert_tensor;  ///< empty: 0, and with sequence parallelism powers of two below `tensor`
  std::vector<bool> sequence_parallel;
  bool operator==(const MeshBounds&) const = default;
};
struct StagesBounds {
  std::vector<int> virtual_stages;
  std::vector<std::int64_t> layers_per_stage;  ///< fixes the split when given
  std::optional<bool> ends_as_layers;
  std::vector<Order> order;
  std::string order_file;  ///< the file of a custom order, as written; apps/ reads its contents into `passes`
  PassOrder passes;
  bool operator==(const StagesBounds&) const = default;
};
struct ShapeBounds {
  std::vector<int> micro_batch;
  bool operator==(const ShapeBounds&) const = default;
};
struct StatesBounds {
  std::vector<int> zero_stage;
  std::vector<int> zero_group;  ///< 0: all replicas; empty: all, and those of a node where they span nodes
  std::optional<bool> overlap_gradients;
  std::optional<int> staleness;  ///< asynchronous data parallelism with a parameter server; absent: synchronous
  bool operator==(const StatesBounds&) const = default;
};
struct RecomputationBounds {
  std::vector<Recompute> what;
  Modules modules;  ///< empty: those of the stack's users, or the core of attention
  std::optional<std::int64_t> layers;
  std::vector<bool> partition_checkpoints;
  bool operator==(const RecomputationBounds&) const = default;
};
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
struct NumericsBounds {
  std::optional<bool> flash;
  std::vector<int> loss_chunks;  ///< empty: 1, and more where only that fits
  bool operator==(const NumericsBounds&) const = default;
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
struct TokensBounds {
  std::vector<models::TokenCodec> dispatch, combine;  ///< empty: none, as fewer bits change the mathematics
  std::optional<double> bound, imbalance;
  bool operator==(const TokensBounds&) const = default;
};

struct Bounds {
  MeshBounds mesh;
  StagesBounds stages;
  ShapeBounds shape;
  StatesBounds states;
  RecomputationBounds recomputation;
  OffloadBounds offload;
  CompressionBounds compression;
  NumericsBounds numerics;
  EmbeddingBounds embedding;
  TokensBounds tokens;
  bool operator==(const Bounds&) const = default;
};

}  // namespace orrery::plan
