/// Reads published rows leniently: the files are others', with many keys beside ours.
#include "sim/validate/rows.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/yaml.h"

namespace orrery::sim {

namespace {

using base::Cursor;

constexpr double kMostSeconds = 1e9;
constexpr double kMostBytes = 1e15;
constexpr std::int64_t kMostSize = std::int64_t{1} << 40;

std::string text_at(const Cursor& row, const char* key) {
  const std::string text = row.optional(key).scalar_text();
  return text == "unknown" || text == "null" || text == "~" ? std::string() : text;
}

/// A number where the row has one; text means that none is stated.
std::optional<double> number_at(const Cursor& row, const char* key, double low, double high) {
  const Cursor at = row.optional(key);
  const std::string text = text_at(row, key);
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!(value >= low && value <= high)) {
    at.error("E0105", fmt::format("`{}` is {}, which cannot be meant", key, text),
             fmt::format("from {} to {}", low, high));
    return std::nullopt;
  }
  return value;
}

std::optional<std::int64_t> integer_at(const Cursor& row, const char* key, std::int64_t low = 1) {
  const auto value = number_at(row, key, static_cast<double>(low), static_cast<double>(kMostSize));
  if (!value || *value != std::floor(*value)) return std::nullopt;  // an average micro-batch of 1.5 is no size
  return static_cast<std::int64_t>(*value);
}

std::optional<bool> switch_at(const Cursor& row, const char* key) {
  const std::string text = text_at(row, key);
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

Setup setup_of(const Cursor& row) {
  Setup s;
  s.line = row.where().line;
  s.id = text_at(row, "id");
  s.source = text_at(row, "source");
  s.kind = text_at(row, "kind");
  s.verified = switch_at(row, "verified").value_or(false);
  s.stack = text_at(row, "stack");
  s.gpu_type = text_at(row, "gpu_type");
  s.recompute = text_at(row, "recompute_kind");
  s.precision = text_at(row, "precision_kind");
  s.family = text_at(row, "family");
  s.schedule = text_at(row, "pp_schedule");
  s.offload = text_at(row, "offload");
  s.offload_activations = text_at(row, "offload_activations");
  s.offload_optimizer = text_at(row, "offload_optimizer");
  s.offload_parameters = text_at(row, "offload_parameters");
  s.optimizer = text_at(row, "optimizer");
  s.memory_kind = text_at(row, "peak_mem_kind");
  s.fsdp_sharding = text_at(row, "fsdp_sharding");
  s.layers = integer_at(row, "layers");
  s.hidden = integer_at(row, "hidden");
  s.heads = integer_at(row, "heads");
  s.kv_heads = integer_at(row, "kv_heads");
  s.head_dim = integer_at(row, "head_dim");
  s.ffn_hidden = integer_at(row, "ffn_hidden");
  s.vocab = integer_at(row, "vocab");
  if (text_at(row, "vocab_note") == "assumed") s.vocab.reset();
  s.sequence = integer_at(row, "seq_len");
  s.experts = integer_at(row, "experts");
  s.experts_per_token = integer_at(row, "moe_topk");
  s.moe_every = integer_at(row, "moe_every");
  s.expert_ffn = integer_at(row, "expert_ffn");
  s.gpus = integer_at(row, "gpus");
  s.gpus_per_node = integer_at(row, "gpus_per_node");
  s.tensor = integer_at(row, "tp");
  s.pipeline = integer_at(row, "pp");
  s.data = integer_at(row, "dp");
  s.context = integer_at(row, "cp");
  s.expert = integer_at(row, "ep");
  s.virtual_stages = integer_at(row, "virtual_stages");
  s.zero_stage = integer_at(row, "zero_stage", 0);
  s.zero_group = integer_at(row, "zero_group");
  s.micro_batch = integer_at(row, "micro_batch");
  s.batch = integer_at(row, "global_batch");
  s.sequence_parallel = switch_at(row, "sequence_parallel");
  s.flash_attention = switch_at(row, "flash_attention");
  s.interleaved = switch_at(row, "interleaved");
  s.scatter_gather = switch_at(row, "scatter_gather");
  s.inter_node_gbps = number_at(row, "inter_node_gbps_per_node", 0.001, 1e6);
  return s;
}

Measured measured_of(const Cursor& row) {
  Measured m;
  m.seconds = number_at(row, "iter_time_s", 1e-9, kMostSeconds);
  if (!m.seconds) m.seconds = number_at(row, "derived_iter_time_s", 1e-9, kMostSeconds);
  constexpr double kGB = 1e9, kGiB = 1024.0 * 1024 * 1024;
  if (const auto gb = number_at(row, "peak_mem_gb", 1e-6, kMostBytes / kGB)) m.memory_bytes = *gb * kGB;
  if (const auto gib = number_at(row, "peak_mem_gib", 1e-6, kMostBytes / kGiB)) m.memory_bytes = *gib * kGiB;
  return m;
}

}  // namespace

base::Result<std::vector<Row>> parse_rows(std::string_view text, std::string file) {
  return base::read_document<std::vector<Row>>(text, std::move(file), [](const Cursor& root) {
    std::vector<Row> rows;
    for (const Cursor& item : root.at("results").items()) {
      if (!item.is_map()) {
        item.error("E0104", "a row is a mapping of keys to values");
        continue;
      }
      rows.push_back({setup_of(item), measured_of(item)});
      if (rows.back().setup.id.empty()) item.error("E0102", "the row has no `id`");
    }
    root.ignore();
    return rows;
  });
}

std::string unscorable(const Setup& s) {
  if (s.kind != "training") return fmt::format("its kind is {}, not training", s.kind.empty() ? "not stated" : s.kind);
  if (!s.verified) return "it is not verified";
  const std::pair<const char*, bool> needed[] = {{"layers", s.layers.has_value()},
                                                 {"hidden", s.hidden.has_value()},
                                                 {"heads", s.heads.has_value()},
                                                 {"seq_len", s.sequence.has_value()},
                                                 {"gpus", s.gpus.has_value()},
                                                 {"tp", s.tensor.has_value()},
                                                 {"pp", s.pipeline.has_value()},
                                                 {"dp", s.data.has_value()},
                                                 {"micro_batch", s.micro_batch.has_value()},
                                                 {"global_batch", s.batch.has_value()},
                                                 {"gpu_type", !s.gpu_type.empty()}};
  for (const auto& [key, given] : needed)
    if (!given) return fmt::format("it does not state {}", key);
  return {};
}

}  // namespace orrery::sim
