#pragma once
/// Plan: how a model is split over a cluster, known to fit both. A PlanSpec is unchecked, as a file or the search
/// proposes it; a Plan is made by make_plan and by nothing else. Rank order: tensor fastest, then data, then pipeline:
/// rank = (stage * data + replica) * tensor + shard (context and expert are 1 until they are lowered).
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "models/model.h"
#include "plan/job.h"

namespace orrery::plan {

struct PlanSpec {
  int data = 1, tensor = 1, pipeline = 1, context = 1, expert = 1;
  int virtual_stages = 1;
  std::vector<std::int64_t>
      layers_per_stage;          ///< blocks on each stage; empty = as even as possible, earlier stages fewer
  std::int64_t micro_batch = 1;  ///< B: sequences per micro-batch and replica
  Order order = Order::one_f_one_b;
  int zero_stage = 0;
  Recompute recompute = Recompute::none;
  bool flash = true;
  std::int64_t vocab_multiple = 128;
  std::int64_t batch = 1;     ///< sequences per step over all ranks
  std::int64_t sequence = 1;  ///< T
  models::DType precision = models::DType::fp32;
  bool operator==(const PlanSpec&) const = default;
  [[nodiscard]] int ranks() const { return data * tensor * pipeline * context * expert; }
};

class Plan {
 public:
  [[nodiscard]] const PlanSpec& spec() const { return spec_; }
  [[nodiscard]] const models::Model& model() const { return *model_; }
  [[nodiscard]] const clusters::Cluster& cluster() const { return *cluster_; }
  [[nodiscard]] std::int64_t micro_batches() const;         ///< m, per replica and step
  [[nodiscard]] std::int64_t first_layer(int stage) const;  ///< index of the stage's first block
  [[nodiscard]] std::int64_t layers(int stage) const { return spec_.layers_per_stage[static_cast<std::size_t>(stage)]; }
  [[nodiscard]] int rank(int stage, int replica, int shard) const {
    return (stage * spec_.data + replica) * spec_.tensor + shard;
  }
  [[nodiscard]] int stage_of(int rank) const { return rank / (spec_.data * spec_.tensor); }
  [[nodiscard]] int replica_of(int rank) const { return rank / spec_.tensor % spec_.data; }
  [[nodiscard]] int shard_of(int rank) const { return rank % spec_.tensor; }

 private:
  friend base::Result<Plan> make_plan(std::shared_ptr<const models::Model>, std::shared_ptr<const clusters::Cluster>,
                                      PlanSpec);
  Plan() = default;
  std::shared_ptr<const models::Model> model_;
  std::shared_ptr<const clusters::Cluster> cluster_;
  PlanSpec spec_;
};

/// Checks everything that can be checked without a cost model: the mesh fills the cluster, heads, key/value heads and
/// widths divide by `tensor`, layers cover the stages, the batch divides into micro-batches, the sequence fits the
/// position table, what is not lowered yet is refused by name. Each violated rule is one diagnostic with a stable code
/// (P01 …), so that the search can count reasons. Memory is not checked here: that is cost's and the search's.
[[nodiscard]] base::Result<Plan> make_plan(std::shared_ptr<const models::Model> model,
                                           std::shared_ptr<const clusters::Cluster> cluster, PlanSpec spec);

/// "data 2 x tensor 4 x pipeline 8, 1f1b, micro-batch 1, zero 1, recompute full"
[[nodiscard]] std::string describe(const PlanSpec& spec);

}  // namespace orrery::plan
