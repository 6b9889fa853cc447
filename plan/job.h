#pragma once
/// Job: what a user asks for. It names a model and a cluster, the batch, and bounds on what the search may choose.
/// Plain and unchecked beyond its own text; names are resolved by apps/.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/yaml.h"
#include "models/dtype.h"

namespace orrery::plan {

enum class Objective { time, cost, energy, memory };
enum class Order { gpipe, one_f_one_b, zb_h1, zb_h2, zb_v };  ///< plan/orders.h
enum class Recompute { none, selective, full };
/// Memories of a rank: the device's own, its share of the host's, files on the node's drives.
enum class Space : std::uint8_t { device, host, nvme };
inline constexpr std::size_t kSpaces = 3;
enum class DataOrder { sequential, shuffled };
enum class OptimizerKind { adamw };
enum class Decay { none, cosine };

/// What lives outside the device's memory (plan/offload.h); `device`: it stays.
struct Offload {
  /// host: what blocks save for backward leaves after forward and comes back ahead of it; with full recomputation their
  /// checkpoints (ZeRO, Rajbhandari et al. 2020, section 6.1: P_a+cpu).
  Space activations = Space::device;
  /// host: master values, moments and summed gradients, and the update on the host's cores (ZeRO-Offload, Ren et al.
  /// 2021); nvme: master values and moments are streamed from files through the host (ZeRO-Infinity, Rajbhandari 2021).
  Space optimizer = Space::device;
  Space parameters = Space::device;  ///< host, nvme: a layer's values come for its passes and go (ZeRO-Infinity)
  int prefetch = 1;                  ///< layers ahead of their use that values come back
  bool operator==(const Offload&) const = default;
  [[nodiscard]] bool any() const {
    return activations != Space::device || optimizer != Space::device || parameters != Space::device;
  }
};

struct Optimizer {
  OptimizerKind kind = OptimizerKind::adamw;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  bool operator==(const Optimizer&) const = default;
};

/// Constant, or linear warm-up then cosine decay to `minimum` over `steps` of the run.
struct LearningRateSchedule {
  std::int64_t warmup_steps = 0;
  Decay decay = Decay::none;
  double minimum = 0;
  bool operator==(const LearningRateSchedule&) const = default;
};

struct Training {
  std::int64_t steps = 20;
  std::string data;  ///< path as written; resolved against the job file's folder by apps/
  DataOrder order = DataOrder::sequential;
  std::string initial_weights;  ///< safetensors; empty = seeded
  Optimizer optimizer;
  LearningRateSchedule schedule;
  std::optional<double> clip_norm;
  std::uint64_t seed = 1;
  bool operator==(const Training&) const = default;
};

/// Learning rate of step s (from 0) in a run of N = training.steps, with W warm-up steps, peak L and minimum M:
/// L (s+1)/W while s < W; then L without decay, or M + (L-M) (1 + cos(pi min(1, (s-W)/max(1, N-W))))/2. Warm-up and
/// cosine as in llm.c's llmc/schedulers.h; the cosine is SGDR's (Loshchilov and Hutter 2017, equation 5).
[[nodiscard]] double learning_rate_at(const Training& training, std::int64_t step);

/// What the search may choose: an empty list leaves the dimension free, one value fixes it.
struct Bounds {
  std::vector<int> data, tensor, pipeline, context, expert, virtual_stages, micro_batch, zero_stage;
  std::vector<Order> schedule;
  std::vector<Recompute> recompute;
  std::vector<std::int64_t> layers_per_stage;  ///< fixes the split when given
  std::optional<bool> flash;
  std::vector<bool> sequence_parallel;
  std::optional<std::int64_t> recompute_layers;
  std::optional<bool> ends_as_layers;
  std::vector<Space> offload_activations, offload_optimizer, offload_parameters;  ///< empty: the device, if all fits
  std::optional<int> offload_prefetch;
  bool operator==(const Bounds&) const = default;
};

struct Job {
  std::string model;    ///< catalogue name or path
  std::string cluster;  ///< catalogue name or path
  std::int64_t batch = 0;
  std::int64_t sequence = 0;  ///< 0: the model's max_sequence
  models::DType precision = models::DType::fp32;
  Objective objective = Objective::time;
  std::string stack;  ///< software stack by name; empty: the cluster's default
  Bounds bounds;
  Training training;
  bool operator==(const Job&) const = default;
};

[[nodiscard]] base::Result<Job> parse_job(std::string_view text, std::string file,
                                          base::Diagnostics* warnings = nullptr);
[[nodiscard]] Job read_job(const base::Cursor& at);
[[nodiscard]] std::string write_job(const Job& job, int indent = 0);

[[nodiscard]] const char* name_of(Order order);          ///< "gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v"
[[nodiscard]] const char* name_of(Recompute recompute);  ///< "none", "selective", "full"
[[nodiscard]] const char* name_of(Objective objective);
[[nodiscard]] const char* name_of(Space space);  ///< "device", "host", "nvme"

}  // namespace orrery::plan
