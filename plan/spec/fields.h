#pragma once
/// The fields of a plan, each defined once: key, bounds, words and description. Plan files, bounds of jobs,
/// timeline.json, --json and docs/plan-fields.md are written and read from this table; a member of a plan's parts
/// without a row here does not compile (plan/spec/fields.cpp). Private to plan/ and to code that shows plans.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "plan/spec/plan.h"
#include "plan/spec/words.h"

namespace orrery::plan {

/// What fields have in common, whatever the type of their value.
struct FieldInfo {
  const char* group = "";  ///< key of the map that holds it; empty: none
  const char* key = "";
  double low = 0, high = 0;                         ///< bounds of a number, inclusive
  const std::vector<std::string>* words = nullptr;  ///< of an enumeration, in its order
  bool always = true;     ///< plan files write it even at its default; in a group: whenever they write the group
  const char* says = "";  ///< one-line description, for docs/plan-fields.md
};

/// What a member holds that may be absent.
template <class T>
struct Present {
  using Type = T;
};
template <class T>
struct Present<std::optional<T>> {
  using Type = T;
};
template <class T>
inline constexpr bool kIsOptional = !std::is_same_v<T, typename Present<T>::Type>;

/// `of` is a generic lambda that returns a PlanSpec's member, or that of Bounds, which holds the choices.
template <class Of>
struct Field : FieldInfo {
  Of of;
  using Member = std::remove_cvref_t<std::invoke_result_t<Of, PlanSpec&>>;
  /// int, std::int64_t, bool, double, an enumeration, PassOrder, TablePlacement, TableTiers, Modules, or
  /// std::vector<std::int64_t>; of an optional one, what it holds
  using Value = typename Present<Member>::Type;
};
template <class Of>
Field(FieldInfo, Of) -> Field<Of>;

// One row per field; OF: its member.
// clang-format off
#define OF(member) [](auto& s) -> auto& { return s.member; }

/// What the search may choose, and a job may bound.
inline constexpr auto kChosenFields = std::make_tuple(
    Field{{"", "data", 1, kMostRanks, nullptr, true, "replicas of the model"}, OF(mesh.data)},
    Field{{"", "tensor", 1, kMostRanks, nullptr, true, "ranks that split each layer's matrices"}, OF(mesh.tensor)},
    Field{{"", "pipeline", 1, kMostRanks, nullptr, true, "stages of layers"}, OF(mesh.pipeline)},
    Field{{"", "context", 1, kMostRanks, nullptr, true, "ranks that split the tokens of a sequence"}, OF(mesh.context)},
    Field{{"", "expert", 1, kMostRanks, nullptr, true,
           "ranks of data x context that split a layer's experts"}, OF(mesh.expert)},
    Field{{"", "virtual_stages", 1, kMostLayers, nullptr, true,
           "chunks of layers on each rank, run interleaved"}, OF(stages.virtual_stages)},
    Field{{"", "layers_per_stage", 0, kMostLayers, nullptr, false,
           "blocks of each stage (of each chunk, with virtual stages); empty: as evenly as possible"},
          OF(stages.layers_per_stage)},
    Field{{"", "ends_as_layers", 0, 0, nullptr, false,
           "count embedding and head as one layer each in an even split"}, OF(stages.ends_as_layers)},
    Field{{"", "overlap_gradients", 0, 0, nullptr, false,
           "reduce gradients during the last micro-batch's backward pass"}, OF(states.overlap_gradients)},
    Field{{"", "micro_batch", 1, kMostBatch, nullptr, true, "sequences per micro-batch and replica"},
          OF(shape.micro_batch)},
    Field{{"", "schedule", 0, 0, &kOrderWords, true, "order of the pipeline's passes"}, OF(stages.order)},
    Field{{"", "passes", 0, 0, nullptr, false,
           "custom order: each rank's passes, `0F0 0F1 0B0 0B1`"}, OF(stages.passes)},
    Field{{"", "zero_stage", 0, 3, nullptr, true,
           "what ZeRO partitions: 1 optimizer states, 2 also gradients, 3 also parameters"}, OF(states.zero_stage)},
    Field{{"", "zero_group", 0, kMostRanks, nullptr, false,
           "number of neighbouring replicas that partition among themselves; 0: all"}, OF(states.zero_group)},
    Field{{"", "recompute", 0, 0, &kRecomputeWords, true, "what the backward pass recomputes"}, OF(recomputation.what)},
    Field{{"", "recompute_modules", 0, 0, nullptr, false,
           "selective: what is recomputed, of core, norms, up_projections, activations, mlp, experts; empty: core"},
          OF(recomputation.modules)},
    Field{{"", "recompute_layers", 0, kMostLayers, nullptr, false,
           "number of each stage's first layers that are recomputed; absent: all"}, OF(recomputation.layers)},
    Field{{"", "partition_checkpoints", 0, 0, nullptr, false,
           "each rank of the tensor group keeps a part of a recomputed block's input"},
          OF(recomputation.partition_checkpoints)},
    Field{{"", "sequence_parallel", 0, 0, nullptr, true,
           "split norms and residuals by rows over the tensor group"}, OF(mesh.sequence_parallel)},
    Field{{"", "flash", 0, 0, nullptr, true, "attention keeps row statistics instead of its score matrix"},
          OF(numerics.flash)},
    Field{{"", "staleness", 0, kMostStaleness, nullptr, false,
           "use a parameter server; age of a worker's weights in steps; absent: synchronous"}, OF(states.staleness)},
    Field{{"offload", "activations", 0, 0, &kSpaceWords, true,
           "where activations saved for backward are kept"}, OF(offload.activations)},
    Field{{"offload", "optimizer", 0, 0, &kSpaceWords, true,
           "where masters and moments are kept"}, OF(offload.optimizer)},
    Field{{"offload", "parameters", 0, 0, &kSpaceWords, true, "where parameters are kept"}, OF(offload.parameters)},
    Field{{"offload", "prefetch", 1, kMostPrefetch, nullptr, true,
           "how many layers ahead of their use values are fetched"}, OF(offload.prefetch)},
    Field{{"compression", "gradients", 0, 0, &kGradientWords, true,
           "how gradients travel between replicas"}, OF(compression.gradients)},
    Field{{"compression", "activations", 0, 0, &kActivationWords, true,
           "format in which saved activations are kept"}, OF(compression.activations)},
    Field{{"compression", "rank", 1, kMostRankOfPowerSgd, nullptr, true,
           "powersgd: columns of P and Q"}, OF(compression.rank)},
    Field{{"compression", "minimum_rate", 1, kMostRate, nullptr, true,
           "powersgd: matrices that shrink by less are sent whole"}, OF(compression.minimum_rate)},
    Field{{"compression", "capacity", kLeastCapacity, 1, nullptr, true,
           "lossless: share of nonzero values that there is room for"}, OF(compression.capacity)},
    Field{{"compression", "group", 0, kMostRanks, nullptr, false,
           "bf16, fp16: number of neighbouring replicas that first sum in full; 0: none"}, OF(compression.group)},
    Field{{"compression", "start", 0, kMostSteps, nullptr, false,
           "powersgd: number of first steps that reduce gradients in full"}, OF(compression.start)},
    Field{{"", "loss_chunks", 1, kMostLossChunks, nullptr, false,
           "parts into which the head's rows are divided; only one has logits at a time"}, OF(numerics.loss_chunks)},
    Field{{"embedding", "sharding", 0, 0, &kShardingWords, false,
           "how a recommendation model's tables are split if no placement is given"}, OF(embedding.sharding)},
    Field{{"embedding", "placement", 0, 0, nullptr, false,
           "for each table: `replicated`, `whole 3`, `row 0-7`, `column 0 1`, `grid 2x4 0-7`"},
          OF(embedding.placement)},
    Field{{"embedding", "forward", 0, 0, &kPooledWords, false,
           "type in which pooled vectors travel"}, OF(embedding.forward)},
    Field{{"embedding", "backward", 0, 0, &kPooledWords, false,
           "type in which their gradients travel"}, OF(embedding.backward)},
    Field{{"embedding", "tiers", 0, 0, nullptr, false,
           "for each table, or once for all: `device`, `host`, `nvme`, or with a cache: `host 64 MiB`, `nvme 1 GiB`"},
          OF(embedding.tiers)},
    Field{{"embedding", "stored", 0, 0, &kStoredWords, false, "type of the tables' values"}, OF(embedding.stored)},
    Field{{"embedding", "skew", 0, kMostSkew, nullptr, false,
           "exponent of Zipf's law for lookups of rows, in predictions; 0: even"},
          OF(embedding.skew)},
    Field{{"", "expert_tensor", 0, kMostRanks, nullptr, false,
           "neighbouring ranks that split an expert's matrices; 0: as many as `tensor`"}, OF(mesh.expert_tensor)},
    Field{{"", "expert_bound", 1, kMostBound, nullptr, false,
           "room for tokens from other ranks, as a multiple of what a balanced router sends; if a job "
           "leaves it free, as docs/formats.md says"}, OF(tokens.bound)},
    Field{{"", "expert_imbalance", 1, kMostBound, nullptr, false,
           "tokens of the fullest rank over the mean, in predictions"}, OF(tokens.imbalance)},
    Field{{"tokens", "dispatch", 0, 0, &kTokenWords, false,
           "type in which rows and gradients travel to experts: fp8 has a scale per 128 values, int8 one per row"},
          OF(tokens.dispatch)},
    Field{{"tokens", "combine", 0, 0, &kTokenWords, false, "type in which they travel back"}, OF(tokens.combine)});

/// The other fields of a plan file; a job gives batch, sequence and precision itself.
inline constexpr auto kFixedFields = std::make_tuple(
    Field{{"", "vocab_multiple", 1, 1 << 16, nullptr, true,
           "the vocabulary is padded to a multiple of this"}, OF(numerics.vocab_multiple)},
    Field{{"", "batch", 1, kMostBatch, nullptr, true, "sequences per step over all ranks"}, OF(shape.batch)},
    Field{{"", "sequence", 1, kMostSequence, nullptr, true, "tokens per sequence"}, OF(shape.sequence)},
    Field{{"", "precision", 0, 0, &kPrecisionWords, true, "type in which layers compute"}, OF(numerics.precision)});

/// Fields that a plan file leaves to its job; timeline.json and --json have them, as they carry no job.
inline constexpr auto kJobFields = std::make_tuple(
    Field{{"", "optimizer", 0, 0, &kOptimizerWords, false,
           "decides the optimizer states and the update"}, OF(states.optimizer)},
    Field{{"", "momentum", 0, 0, nullptr, false, "sgd: whether it uses momentum"}, OF(states.momentum)},
    Field{{"", "rounding", 0, 0, &kRoundingWords, false,
           "how bf16 parameters without masters are rounded"}, OF(numerics.rounding)});

#undef OF
// clang-format on

inline constexpr auto kFields = std::tuple_cat(kChosenFields, kFixedFields, kJobFields);

/// Calls `visit(field)` for each field, in the order of files.
template <class Fields, class Visit>
constexpr void for_each_field(const Fields& fields, const Visit& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, fields);
}

/// A value that is written as rows of text and parsed by its own `parse_rows`.
template <class T>
inline constexpr bool kIsRows = std::is_same_v<T, PassOrder> || std::is_same_v<T, TablePlacement> ||
                                std::is_same_v<T, TableTiers> || std::is_same_v<T, Modules>;
template <class T>
inline constexpr bool kIsList = false;
template <class T>
inline constexpr bool kIsList<std::vector<T>> = true;

/// A value as files write it: "none", "true", "[1, 2]".
template <class T>
[[nodiscard]] std::string value_text(const FieldInfo& field, const T& value) {
  if constexpr (std::is_same_v<T, models::DType>)
    return models::name_of(value);
  else if constexpr (std::is_enum_v<T>)
    return field.words->at(static_cast<std::size_t>(value));
  else if constexpr (kIsRows<T>)
    return value.empty() ? "[]" : fmt::format("[\"{}\"]", fmt::join(value.rows(), "\", \""));
  else if constexpr (kIsList<T>)
    return fmt::format("[{}]", fmt::join(value, ", "));
  else
    return fmt::format("{}", value);
}

template <class T>
[[nodiscard]] std::string value_text(const FieldInfo& field, const std::optional<T>& value) {
  return value ? value_text(field, *value) : "absent";
}

template <class T>
[[nodiscard]] bool is_absent(const T&) {
  return false;
}
template <class T>
[[nodiscard]] bool is_absent(const std::optional<T>& value) {
  return !value;
}

/// The value of a field that is not absent.
template <class T>
[[nodiscard]] const T& present(const T& value) {
  return value;
}
template <class T>
[[nodiscard]] const T& present(const std::optional<T>& value) {
  return *value;
}

}  // namespace orrery::plan
