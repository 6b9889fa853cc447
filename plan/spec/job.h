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
#include "plan/spec/bounds.h"
#include "plan/spec/optimizers.h"
#include "plan/spec/parts.h"
#include "plan/spec/software.h"
#include "plan/spec/stages.h"
#include "plan/spec/table_placement.h"

namespace orrery::plan {

enum class Objective { time, cost, energy, memory };
enum class DataOrder { sequential, shuffled };
enum class BadLines : std::uint8_t { refuse, skip };  ///< what to do with samples that cannot be read
/// What a category in a file of samples is: a hash, taken modulo its table's rows, or a row, which the table must have.
enum class Categories : std::uint8_t { hashed, rows };
[[nodiscard]] const char* name_of(Categories categories);
enum class Decay { none, cosine, linear, inverse_square_root, wsd };

struct Optimizer {
  OptimizerKind kind = OptimizerKind::adamw;
  double learning_rate = 1e-3;
  double beta1 = 0.9;     ///< Adam and its variants, LAMB and Lion
  double beta2 = 0.95;    ///< likewise
  double epsilon = 1e-8;  ///< likewise
  double weight_decay = 0.1;
  double momentum = 0.9;     ///< sgd, where 0 means none and no state for it; muon
  bool nesterov = false;     ///< sgd
  bool adaptive = true;      ///< adafactor: rates are relative to the parameter's own size (section 8 of its paper)
  double clip_update = 1;    ///< adafactor: d of section 6
  double decay_power = 0.8;  ///< adafactor: beta2 of step t is 1 - t^-decay_power (section 7.2)
  /// muon: for the parameters that it leaves to AdamW, with beta1, beta2 and epsilon from above. Their rate follows the
  /// schedule of the matrices' rate in proportion.
  double adamw_learning_rate = 1e-3, adamw_weight_decay = 0.1;
  bool operator==(const Optimizer&) const = default;
};

/// Dynamic loss scaling of fp16: the scale grows by `factor` after `interval` steps without overflow; an overflow
/// shrinks it by `factor` and skips the step.
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
  std::int64_t decay_steps = 0;  ///< wsd: how many last steps of the run decay; 0: a tenth of the run
  bool operator==(const LearningRateSchedule&) const = default;
};

/// Loss on held-out data, during the run.
struct Evaluation {
  std::string data;           ///< path, read as `Training::data` is; empty where samples are generated
  std::int64_t every = 100;   ///< steps between evaluations; one more follows the last step
  std::int64_t batches = 10;  ///< of Job::batch sequences, from the start of the data
  bool operator==(const Evaluation&) const = default;
};

inline constexpr std::int64_t kMostGenerated = std::int64_t{1} << 40;

/// Samples of a recommendation model that are drawn from a known click model instead of read
/// (exec/data/click_generator.h). An evaluation then takes the samples that follow them.
struct GeneratedSamples {
  std::int64_t samples = 0;
  std::uint64_t seed = 1;  ///< of the click model and the samples
  bool operator==(const GeneratedSamples&) const = default;
};

/// As in a job: "{generate: {samples: 1000, seed: 1}}".
[[nodiscard]] std::string generated_text(const GeneratedSamples& drawn);

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
  std::optional<models::Lora> lora;        ///< adapters alone train, in place of the model's own
  std::optional<Evaluation> evaluation;
  BadLines bad_lines =
      BadLines::refuse;  ///< recommendation models only; skip: count unreadable samples and leave them out
  std::optional<Categories> categories;       ///< likewise; nothing: hashed in lines, rows in records
  int read_ahead = 2;                         ///< likewise; batches read while others are computed; 0: none
  std::optional<GeneratedSamples> generated;  ///< likewise; in place of `data`
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
/// Learning rate of the parameters that Muon leaves to AdamW: the same schedule, with the job's peak and minimum
/// multiplied by adamw_learning_rate / learning_rate.
[[nodiscard]] double adamw_rate_at(const Training& training, std::int64_t step);

/// How evenly tokens choose among experts, as predictions take it; nothing given: evenly.
struct ExpertLoads {
  std::optional<double> zipf;  ///< the i-th expert of a layer gets i^-zipf (models/loads.h)
  std::string from;            ///< the folder of a run, as written; apps/ puts what its log holds into `layers`
  std::vector<std::vector<double>> layers;  ///< tokens of each expert, of each layer that has any, step by step
  bool operator==(const ExpertLoads&) const = default;
};

/// Of 20 plans that are said to fit, one may run out of memory.
inline constexpr double kUsualFit = 0.95;

struct Job {
  std::string model;    ///< catalogue name or path
  std::string cluster;  ///< catalogue name or path
  int devices = 0;      ///< of such a cluster; 0: as many as it has
  std::int64_t batch = 0;
  std::int64_t sequence = 0;  ///< 0: the model's max_sequence
  models::DType precision = models::DType::fp32;
  Rounding rounding = Rounding::nearest;  ///< stochastic: for bf16 parameters without masters
  std::int64_t vocab_multiple = 128;      ///< the vocabulary is padded to a multiple of this
  Objective objective = Objective::time;
  double fits_probability = kUsualFit;  ///< with which a plan must fit a GPU's memory; 0: its predicted memory fits
  std::string stack;                    ///< software stack by name; empty: the cluster's default
  Software software;                    ///< how that was set up, where the stack leaves it open
  Bounds bounds;
  ExpertLoads expert_loads;
  Training training;
  bool operator==(const Job&) const = default;
};

/// An optimizer with its own defaults.
[[nodiscard]] Optimizer usual(OptimizerKind kind);

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
[[nodiscard]] const char* name_of(models::TokenCodec codec);  ///< "none", "bf16", "fp8", "int8"
[[nodiscard]] const char* name_of(ActivationEncoding kind);   ///< "none", "fp16", "fp10", "fp8"

}  // namespace orrery::plan
