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
#include "models/model.h"
#include "plan/spec/optimizers.h"
#include "plan/spec/pass_order.h"
#include "plan/spec/space.h"
#include "plan/spec/table_placement.h"

namespace orrery::plan {

enum class Objective { time, cost, energy, memory };
/// plan/schedule/orders.h; those of PipeDream are asynchronous and change the mathematics
/// (plan/schedule/asynchronous.h).
enum class Order {
  gpipe,
  one_f_one_b,
  zb_h1,
  zb_h2,
  zb_v,
  dualpipe_v,
  pipedream,
  pipedream_vertical,
  pipedream_2bw,
  dualpipe,
  custom  ///< a table of passes that a user writes (plan/spec/pass_order.h)
};
enum class Recompute { none, selective, full };
enum class DataOrder { sequential, shuffled };
enum class BadLines : std::uint8_t { refuse, skip };  ///< what becomes of samples that do not read
enum class Rounding { nearest, stochastic };
enum class Decay { none, cosine, linear, inverse_square_root, wsd };

/// How gradients travel over the data group (plan/lower/compress.h).
enum class GradientCompression : std::uint8_t { none, bf16, fp16, powersgd };
/// In what saved activations of blocks wait for backward: the formats of Gist (Jain et al. 2018, section 4.2; models/
/// encoding.h); lossless: what a ReLU has left, without its zeros (section 4.1).
enum class ActivationEncoding : std::uint8_t { none, fp16, fp10, fp8, lossless };

/// What travels or waits in fewer bits. All of it but `lossless` changes the mathematics.
struct Compression {
  GradientCompression gradients = GradientCompression::none;
  ActivationEncoding activations = ActivationEncoding::none;
  int rank = 4;  ///< powersgd: columns of P and Q
  /// powersgd: a matrix of n x m values is compressed where (n + m) * rank * minimum_rate < n * m.
  double minimum_rate = 2;
  double capacity = 0.6;  ///< lossless: the share of values that may be other than zero
  /// bf16, fp16: so many neighbouring replicas, those of a node, add up their gradients in full before the sum is
  /// rounded and exchanged with other nodes (plan/lower/compress.h). 0: all exchange at once.
  int group = 0;
  /// powersgd: in so many first steps of a run gradients are reduced whole (start_powerSGD_iter of PyTorch's hook).
  std::int64_t start = 0;
  bool operator==(const Compression&) const = default;
};

/// What lives outside the device's memory (plan/lower/offload.h); `device`: it stays.
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
  double beta1 = 0.9;     ///< Adam's kind, LAMB and Lion
  double beta2 = 0.95;    ///< the same
  double epsilon = 1e-8;  ///< the same
  double weight_decay = 0.1;
  double momentum = 0.9;     ///< sgd: 0: without, and without its state; muon
  bool nesterov = false;     ///< sgd
  bool adaptive = true;      ///< adafactor: rates are relative to the parameter's own size (its section 8)
  double clip_update = 1;    ///< adafactor: d of its section 6
  double decay_power = 0.8;  ///< adafactor: beta2 of step t is 1 - t^-decay_power (section 7.2)
  /// muon: of what it leaves to AdamW, with beta1, beta2 and epsilon from above. The rate follows the schedule of the
  /// matrices' in proportion.
  double adamw_learning_rate = 1e-3, adamw_weight_decay = 0.1;
  bool operator==(const Optimizer&) const = default;
};

/// Dynamic loss scaling of fp16: after `interval` steps without overflow the scale grows by `factor`, with each
/// overflow it shrinks by it and the step is skipped.
struct LossScaling {
  double initial = 65536;
  std::int64_t interval = 2000;
  double factor = 2;
  bool operator==(const LossScaling&) const = default;
};

/// Constant, or linear warm-up and then a decay towards `minimum` (learning_rate_at).
struct LearningRateSchedule {
  std::int64_t warmup_steps = 0;
  Decay decay = Decay::none;
  double minimum = 0;
  std::int64_t decay_steps = 0;  ///< wsd: the run's last so many decay; 0: a tenth of the run
  bool operator==(const LearningRateSchedule&) const = default;
};

/// Loss on held-out data, during the run.
struct Evaluation {
  std::string data;           ///< path, read as `Training::data` is
  std::int64_t every = 100;   ///< after every so many steps, and after the last
  std::int64_t batches = 10;  ///< of Job::batch sequences, from the start of the data
  bool operator==(const Evaluation&) const = default;
};

struct Training {
  std::int64_t steps = 20;
  std::string data;       ///< path as written; resolved against the job file's folder by apps/
  std::string tokenizer;  ///< path of a byte-level BPE vocabulary for text; empty: a byte is a token
  DataOrder order = DataOrder::sequential;
  std::string initial_weights;  ///< safetensors; empty = seeded
  Optimizer optimizer;
  LearningRateSchedule schedule;
  std::optional<double> clip_norm;
  LossScaling loss_scaling;
  std::uint64_t seed = 1;
  std::optional<models::Dropout> dropout;  ///< in place of the model's own rates
  std::optional<Evaluation> evaluation;
  BadLines bad_lines =
      BadLines::refuse;  ///< of a recommendation model's data; skip: they are counted, and none is read
  int read_ahead = 2;    ///< of the same: batches that are read while others are computed; 0: none
  bool operator==(const Training&) const = default;
};

/// Learning rate of step s (from 0) in a run of N = training.steps, with W warm-up steps, peak L and minimum M:
/// L (s+1)/W while s < W; then, with p = min(1, (s-W)/max(1, N-W)),
///   none                 L
///   cosine               M + (L-M) (1 + cos(pi p))/2   (llm.c's llmc/schedulers.h; SGDR, Loshchilov and Hutter 2017,
///                        equation 5)
///   linear               M + (L-M) (1 - p)
///   inverse_square_root  max(M, L sqrt(w/max(w, s+1))), w = max(1, W)   (Vaswani et al. 2017, equation 3)
///   wsd                  L, and over the last D = decay_steps steps M + (L-M) (1 - min(1, (s-(N-D))/D))   (warm-up,
///                        stable, decay: Hu et al. 2024, MiniCPM, section 4, with a linear decay as in Haegele et al.
///                        2024)
[[nodiscard]] double learning_rate_at(const Training& training, std::int64_t step);
/// What Muon leaves to AdamW moves by a rate of its own, with the same schedule: its peak and its minimum are the
/// job's, times adamw_learning_rate / learning_rate.
[[nodiscard]] double adamw_rate_at(const Training& training, std::int64_t step);

/// What the search may choose, a member for each that it may of a PlanSpec (plan/spec/fields.h): an empty list leaves
/// the dimension free, one value fixes it; without a value it is as said.
struct OffloadBounds {
  std::vector<Space> activations, optimizer, parameters;  ///< empty: the device, if all fits
  std::optional<int> prefetch;
  bool operator==(const OffloadBounds&) const = default;
};
struct CompressionBounds {
  std::vector<GradientCompression> gradients;   ///< empty: none, as it changes the mathematics
  std::vector<ActivationEncoding> activations;  ///< the same
  std::optional<int> rank;
  std::optional<double> minimum_rate, capacity;
  std::vector<int> group;  ///< empty: 0, and those of a node where replicas span several
  std::optional<std::int64_t> start;
  bool operator==(const CompressionBounds&) const = default;
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
  std::string order_file;  ///< of a custom order, as written; apps/ puts what it holds into `passes`
  PassOrder passes;
  std::vector<Recompute> recompute;
  std::vector<std::int64_t> layers_per_stage;  ///< fixes the split when given
  std::optional<bool> flash;
  std::optional<int> staleness;  ///< asynchronous data parallelism with a parameter server; absent: synchronous
  std::vector<bool> sequence_parallel;
  std::optional<std::int64_t> recompute_layers;
  std::optional<bool> ends_as_layers;
  OffloadBounds offload;
  CompressionBounds compression;
  std::optional<bool> overlap_gradients;
  std::vector<int> zero_group;   ///< 0: all replicas; empty: those of a node too, where they span nodes
  std::vector<int> loss_chunks;  ///< empty: 1, and more where only that fits
  EmbeddingBounds embedding;
  std::vector<int> expert_tensor;  ///< empty: 0, and 1 with rows over the tensor group
  std::optional<double> expert_bound, expert_imbalance;
  bool operator==(const Bounds&) const = default;
};

struct Job {
  std::string model;    ///< catalogue name or path
  std::string cluster;  ///< catalogue name or path
  std::int64_t batch = 0;
  std::int64_t sequence = 0;  ///< 0: the model's max_sequence
  models::DType precision = models::DType::fp32;
  Rounding rounding = Rounding::nearest;  ///< stochastic: bf16 parameters without masters
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

[[nodiscard]] const char* name_of(Order order);          ///< "gpipe", "1f1b", "zb-h1", … as in job files
[[nodiscard]] const char* name_of(Recompute recompute);  ///< "none", "selective", "full"
[[nodiscard]] const char* name_of(Objective objective);
[[nodiscard]] const char* name_of(OptimizerKind kind);  ///< as in job files
[[nodiscard]] const char* name_of(Rounding rounding);
[[nodiscard]] const char* name_of(Space space);               ///< "device", "host", "nvme"
[[nodiscard]] const char* name_of(GradientCompression kind);  ///< "none", "bf16", "fp16", "powersgd"
[[nodiscard]] const char* name_of(TableSharding sharding);    ///< "auto", "whole", "row", …
[[nodiscard]] const char* name_of(PooledType type);           ///< "fp32", "bf16", "fp16", "int8"
[[nodiscard]] const char* name_of(ActivationEncoding kind);   ///< "none", "fp16", "fp10", "fp8"

}  // namespace orrery::plan
