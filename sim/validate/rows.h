#pragma once
/// Published training measurements: text to rows. A row says what was trained, where, and how it was split (`Setup`),
/// and apart from that what was measured (`Measured`), so that no prediction can look at a measurement.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace orrery::sim {

/// What a row states. Empty text and missing numbers mean: not stated.
struct Setup {
  std::string id, source, kind;
  bool verified = false;
  std::string stack, framework, gpu_type, recompute, precision, family, schedule, offload, fsdp_sharding;
  std::string offload_activations, offload_optimizer, offload_parameters;  ///< "host", "nvme"; else the device
  std::string cluster;    ///< of the catalogue, in place of the one that is found by its devices
  std::string optimizer;  ///< in the source's words
  /// Of mixtures: the model's name and, in the source's words, what overlaps, what is recomputed, how balance is kept.
  std::string model, section, overlap, recompute_modules, routing;
  std::string memory_kind;  ///< what a figure of memory counts: asked for, not measured
  std::optional<std::int64_t> layers, hidden, heads, kv_heads, head_dim, ffn_hidden, vocab, sequence;
  std::optional<std::int64_t> experts, experts_per_token, moe_every, expert_ffn, shared_experts, first_dense;
  std::optional<std::int64_t> expert_tensor, shared_expert_ffn;
  std::optional<std::int64_t> latent_q, latent_kv, latent_nope, latent_rope, latent_value;  ///< of `mla`
  std::optional<std::int64_t> gpus, gpus_per_node, tensor, pipeline, data, context, expert, virtual_stages, zero_stage;
  std::optional<std::int64_t> zero_group;  ///< ranks among which ZeRO partitions
  std::optional<std::int64_t> micro_batch, batch;
  std::optional<bool> sequence_parallel, flash_attention, interleaved, scatter_gather;
  std::optional<double> inter_node_gbps;  ///< Gb/s of a node
  std::string inter_node_link;            ///< in the source's words: "IB NDR 8x400Gb/s per node"
  /// A recommendation model's.
  struct Tables {
    std::optional<std::int64_t> count, dim, lookups, dense, cross_layers, cross_rank;
    std::optional<double> rows_m, gigabytes;  ///< of all tables
    std::string bottom, top;                  ///< "512-256-128"
    std::string model;                        ///< of the catalogue, in place of all these
    std::string placement;                    ///< "row", "column" …; empty: as the software does it
    std::string forward, backward;            ///< what pooled vectors travel in; empty: as the precision has it
    std::string interaction;                  ///< the words about its kernel
    std::string stored;                       ///< the type of tables' values; empty: fp32
    std::optional<double> skew;               ///< of Zipf's law, by which rows are looked up; none: evenly
  } tables;
  int line = 0;  ///< of the file, for messages
};

/// What was observed; never read by a prediction.
struct Measured {
  std::optional<double> seconds;       ///< a training step
  std::optional<double> memory_bytes;  ///< peak of the worst device, as Setup::memory_kind says
};

struct Row {
  Setup setup;
  Measured measured;
};

/// Whose rows they are. Of one's own runs nobody writes `kind: training` and `verified: true`: they are taken as said,
/// and `oom: true` as `kind: oom`.
enum class Origin { published, own };

/// A run that died for lack of memory.
inline constexpr const char* kOutOfMemory = "oom";
/// The family of recommendation models.
inline constexpr const char* kRecommender = "dlrm";

/// Rows of one file: YAML (`results:`, a list of maps) or, where the name ends in .csv, a line of keys and a line for
/// each row. Keys that are not ours are passed over; one of ours with a value that cannot be meant is an error with its
/// place. A `null`, a text where a number stands elsewhere ("varies") and the word `unknown` count as not stated.
///
/// A long list is read a part at a time, so that memory follows its rows and not its values; up to 200,000 rows
/// (E0108). V05: a CSV file that cannot be taken apart.
[[nodiscard]] base::Result<std::vector<Row>> parse_rows(std::string_view text, std::string file,
                                                        Origin origin = Origin::published);

/// Why a row cannot be scored: the first key of the definition that it lacks, or that it is unverified or of another
/// kind than training and oom; empty when it can. Whether a time is given is not asked here.
[[nodiscard]] std::string unscorable(const Setup& setup);

}  // namespace orrery::sim
