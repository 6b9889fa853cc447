#pragma once
/// Published training measurements: text to rows. A row states what was trained, where, and how it was split (`Setup`),
/// separately from what was measured (`Measured`), so that no prediction can look at a measurement.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace orrery::sim {

/// What a row states. Empty text and missing numbers mean that it is not stated.
struct Setup {
  std::string id, source, kind;
  bool verified = false;
  std::string stack, framework, gpu_type, recompute, precision, family, schedule, offload, fsdp_sharding;
  std::string offload_activations, offload_optimizer, offload_parameters;  ///< "host", "nvme"; otherwise the device
  std::string cluster;          ///< catalogue name; replaces the cluster found by its devices
  std::string machine;          ///< the cluster in the source's words; taken if the catalogue has one of this name
  std::string optimizer;        ///< in the source's words
  std::string date;             ///< of the run: begins with its year
  std::string network_state;    ///< "slow": its network was ill
  std::string mixed_precision;  ///< FSDP's, in the source's words: "PURE"
  /// Of mixtures: the model's name and, in the source's words, what overlaps, what is recomputed, how load is balanced.
  std::string model, section, overlap, recompute_modules, routing;
  std::string precision_words;   ///< beside `precision`: "bf16, autocast"
  std::string attention_kernel;  ///< in the source's words: "FlashAttention-3", "cuDNN"
  std::string memory_kind;       ///< what a memory figure counts: a setting, not a measurement
  std::string activation;        ///< in the source's words: "SwiGLU", "GeGLU", "gelu"
  std::optional<std::int64_t> layers, hidden, heads, kv_heads, head_dim, ffn_hidden, vocab, sequence;
  std::optional<std::int64_t> experts, experts_per_token, moe_every, expert_ffn, shared_experts, first_dense, further;
  std::optional<std::int64_t> expert_tensor, shared_expert_ffn;
  std::optional<std::int64_t> latent_q, latent_kv, latent_nope, latent_rope, latent_value;  ///< of `mla`
  std::optional<std::int64_t> gpus, gpus_per_node, tensor, pipeline, data, context, expert, virtual_stages, zero_stage;
  std::optional<std::int64_t> zero_group;  ///< ranks among which ZeRO shards
  std::optional<std::int64_t> micro_batch, batch, accumulation, local_batch;
  bool open_micro_batch = false;          ///< `micro_batch` is assumed, not stated
  std::vector<std::string> assumed;       ///< what was left open and is filled in, for the prediction's notes
  std::string contradiction;              ///< why the row's own numbers cannot all be right; empty: they can
  std::string catalogued;                 ///< the catalogue's model that the row means by its name
  std::optional<std::int64_t> lora_rank;  ///< only adapters train
  std::string lora_targets;               ///< in the source's words
  std::optional<std::int64_t> packed;  ///< mean tokens of the samples that share a sequence; attention keeps them apart
  std::optional<bool> sequence_parallel, partition_checkpoints, flash_attention, interleaved, scatter_gather;
  std::optional<bool> tied_embeddings, gated_mlp, compiled;
  std::optional<std::int64_t> gpu_gb;     ///< memory of a device, where its name does not say it
  std::optional<std::int64_t> gpu_watts;  ///< the power that a device may draw, where its name does not say it
  std::optional<double> inter_node_gbps;  ///< Gb/s per node
  std::optional<double> params_b;         ///< billions of parameters
  std::string inter_node_link;            ///< in the source's words: "IB NDR 8x400Gb/s per node"
  /// Of a recommendation model.
  struct Tables {
    std::optional<std::int64_t> count, dim, lookups, dense, cross_layers, cross_rank;
    std::optional<double> rows_m, gigabytes;  ///< of all tables
    std::string bottom, top;                  ///< "512-256-128"
    std::string model;                        ///< catalogue name; replaces all of these
    std::string placement;                    ///< "row", "column" …; empty: the software's default
    std::string forward, backward;            ///< type in which pooled vectors are sent; empty: that of the precision
    std::string interaction;                  ///< the source's words on its kernel
    std::string stored;                       ///< the type of tables' values; empty: fp32
    std::optional<std::int64_t> staleness;    ///< of a parameter server; none: synchronous
    std::optional<double> skew;               ///< of Zipf's law, by which rows are looked up; none: evenly
  } tables;
  int line = 0;              ///< in the file, for messages
  base::Location device_at;  ///< of `gpu_type`
};

/// What was observed; never read by a prediction.
struct Measured {
  std::optional<double> seconds;       ///< per training step
  std::optional<double> memory_bytes;  ///< peak of the worst device, counted as Setup::memory_kind says
};

struct Row {
  Setup setup;
  Measured measured;
};

/// The origin of rows. A user's own runs need no `kind: training` and `verified: true`: these are assumed; `oom: true`
/// means `kind: oom`. A row without a kind that states a step time or `oom: true` is taken as one's own wherever it
/// stands: published rows state their kind.
enum class Origin { published, own };

/// A run that ran out of memory.
inline constexpr const char* kOutOfMemory = "oom";
/// The family of recommendation models.
inline constexpr const char* kRecommender = "dlrm";

/// Rows of one file: YAML (`results:`, a list of maps) or, if the name ends in .csv, a line of keys and a line per row.
/// Unknown keys are ignored; a known key with an impossible value is an error at its place. A `null`, text in place of
/// a number ("varies") and the word `unknown` count as not stated. Of one's own rows `warnings` says what is not read
/// (V06): text in place of a number, a column that is unknown, a key in other words than these.
///
/// A long list is read in parts, so that memory grows with its rows, not its values; up to 200,000 rows (E0108). V05: a
/// CSV file that cannot be parsed.
[[nodiscard]] base::Result<std::vector<Row>> parse_rows(std::string_view text, std::string file,
                                                        Origin origin = Origin::published,
                                                        base::Diagnostics* warnings = nullptr);

/// Why a row cannot be scored: the first required key that it lacks, or that it is unverified or of a kind other than
/// training and oom; empty if it can. Ignores whether a time is given.
[[nodiscard]] std::string unscorable(const Setup& setup);

}  // namespace orrery::sim
