/// Reads published rows leniently: the files belong to others, and have many more keys.
#include "sim/validate/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>

#include "base/yaml.h"
#include "sim/validate/mixture_rows.h"
#include "sim/validate/row_fields.h"
#include "sim/validate/row_words.h"
#include "sim/validate/unstated.h"

namespace orrery::sim {

namespace {

using base::Cursor;

constexpr double kMostSeconds = 1e9;
constexpr double kMostBytes = 1e15;
constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;  ///< and sequences of a replica
constexpr std::size_t kPart = std::size_t{512} << 10;       ///< bytes of a list read at a time

/// "131,072" and "131_072" without what sets off thousands.
std::string without_separators(std::string text) {
  const auto digit = [&](std::size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]));
  };
  constexpr std::size_t kGroup = 3;
  for (std::size_t i = 1; i < text.size(); ++i)
    if ((text[i] == ',' || text[i] == '_') && digit(i - 1) && digit(i + 1) && digit(i + 2) && digit(i + kGroup) &&
        !digit(i + kGroup + 1))
      text.erase(i, 1);
  return text;
}

/// A number, if the row has one; text counts as not stated, and one's own is warned of.
std::optional<double> number_at(const RowFields& row, const char* key, double low, double high) {
  const std::string text = without_separators(row.stated(key));
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::isnan(value)) {
    row.unread(key, "a number");
    return std::nullopt;
  }
  if (!(value >= low && value <= high)) {
    row.error(key, "E0105", fmt::format("`{}` is {}, which cannot be right", key, text),
              fmt::format("from {} to {}", low, high));
    return std::nullopt;
  }
  return value;
}

std::optional<std::int64_t> integer_at(const RowFields& row, const char* key, std::int64_t low = 1,
                                       std::int64_t high = kMostSize) {
  const auto value = number_at(row, key, static_cast<double>(low), static_cast<double>(high));
  if (!value) return std::nullopt;
  if (*value != std::floor(*value)) {  // an average micro-batch of 1.5 is not a size
    row.unread(key, "a whole number");
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*value);
}

std::optional<bool> switch_at(const RowFields& row, const char* key) {
  const std::string text = row.stated(key);
  if (text == "true" || text == "True" || text == "TRUE" || text == "yes" || text == "Yes") return true;
  if (text == "false" || text == "False" || text == "FALSE" || text == "no" || text == "No") return false;
  if (!text.empty()) row.unread(key, "true or false");
  return std::nullopt;
}

/// A whole number in a row.
template <class Of>
struct Integer {
  std::optional<std::int64_t> Of::*member;
  const char* key;
  std::int64_t low = 1, high = kMostSize;
};

/// "4k", "128K": lengths of sequences are counted in 1,024 tokens.
std::optional<std::int64_t> length_at(const RowFields& row, const char* key) {
  const std::string text = row.stated(key);
  constexpr std::size_t kMostDigits = 6;
  if (text.size() < 2 || text.size() > kMostDigits || (text.back() != 'k' && text.back() != 'K'))
    return integer_at(row, key);
  std::int64_t value = 0;
  const char* const last = text.data() + text.size() - 1;
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last || value < 1) {
    row.unread(key, "a length");
    return std::nullopt;
  }
  return value * 1024;
}
constexpr Integer<Setup> kIntegers[] = {
    {&Setup::layers, "layers"},
    {&Setup::hidden, "hidden"},
    {&Setup::heads, "heads"},
    {&Setup::kv_heads, "kv_heads"},
    {&Setup::head_dim, "head_dim"},
    {&Setup::ffn_hidden, "ffn_hidden"},
    {&Setup::vocab, "vocab"},
    {&Setup::experts, "experts"},
    {&Setup::experts_per_token, "moe_topk"},
    {&Setup::moe_every, "moe_every"},
    {&Setup::expert_ffn, "expert_ffn"},
    {&Setup::shared_experts, "shared_experts", 0},
    {&Setup::shared_expert_ffn, "shared_expert_ffn", 0},
    {&Setup::latent_q, "mla.q_lora", 0},
    {&Setup::latent_kv, "mla.kv_lora"},
    {&Setup::latent_nope, "mla.nope"},
    {&Setup::latent_rope, "mla.rope"},
    {&Setup::latent_value, "mla.v"},
    {&Setup::first_dense, "dense_layers", 0},
    {&Setup::further, "mtp_layers", 0},
    {&Setup::gpus, "gpus", 1, kMostRanks},
    {&Setup::gpu_gb, "gpu_mem_gb"},
    {&Setup::gpu_watts, "gpu_power_w"},
    {&Setup::gpus_per_node, "gpus_per_node"},
    {&Setup::tensor, "tp", 1, kMostRanks},
    {&Setup::pipeline, "pp", 1, kMostRanks},
    {&Setup::data, "dp", 1, kMostRanks},
    {&Setup::context, "cp", 1, kMostRanks},
    {&Setup::expert, "ep", 1, kMostRanks},
    {&Setup::expert_tensor, "etp", 1, kMostRanks},
    {&Setup::virtual_stages, "virtual_stages"},
    {&Setup::zero_stage, "zero_stage", 0},
    {&Setup::zero_group, "zero_group"},
    {&Setup::micro_batch, "micro_batch", 1, kMostRanks},
    {&Setup::batch, "global_batch"},
    {&Setup::accumulation, "grad_accum", 1, kMostRanks},
    {&Setup::local_batch, "local_batch", 1, kMostRanks},
    {&Setup::lora_rank, "lora_rank"},
    {&Setup::packed, "packed_tokens"},
};
/// From what take_arithmetic() derives the rest.
constexpr Integer<Setup> kSplit[] = {{&Setup::gpus, "gpus"},
                                     {&Setup::tensor, "tp"},
                                     {&Setup::pipeline, "pp"},
                                     {&Setup::data, "dp"},
                                     {&Setup::context, "cp"},
                                     {&Setup::micro_batch, "micro_batch"},
                                     {&Setup::batch, "global_batch"},
                                     {&Setup::accumulation, "grad_accum"},
                                     {&Setup::local_batch, "local_batch"}};
constexpr Integer<Setup::Tables> kIntegersOfTables[] = {
    {&Setup::Tables::count, "embedding_tables"},
    {&Setup::Tables::dim, "embedding_dim"},
    {&Setup::Tables::lookups, "multi_hot_lookups_per_sample"},
    {&Setup::Tables::dense, "dense_features"},
    {&Setup::Tables::cross_layers, "cross_layers", 0},
    {&Setup::Tables::cross_rank, "cross_low_rank"},
    {&Setup::Tables::staleness, "staleness", 0},
};

void read_tables(const RowFields& row, Setup::Tables& t) {
  for (const auto& [member, key, low, high] : kIntegersOfTables) t.*member = integer_at(row, key, low, high);
  constexpr double kMostRowsM = 1e7, kMostGigabytes = 1e6;
  t.rows_m = number_at(row, "table_rows_total_m", 1e-6, kMostRowsM);
  t.gigabytes = number_at(row, "model_size_gb", 1e-6, kMostGigabytes);
  t.bottom = row.stated("bottom_mlp");
  t.top = row.stated("top_mlp");
  t.model = row.stated("catalog_model");
  t.placement = row.stated("table_placement");
  t.forward = row.stated("pooled_forward");
  t.backward = row.stated("pooled_backward");
  t.interaction = row.stated("section");
  t.stored = row.stated("tables_stored");
  constexpr double kMostSkew = 10;
  t.skew = number_at(row, "lookup_skew", 0, kMostSkew);
}

/// "none", "selective", "partial" and "full" in others' words ("true", "activation checkpointing").
std::string recompute_kind(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text == "true" || text == "yes" || text == "on") return "full";
  if (text == "false" || text == "no" || text == "off") return "none";
  for (const char* kind : {"none", "selective", "partial", "full"})
    if (text.find(kind) != std::string::npos) return kind;
  return text.find("checkpoint") != std::string::npos ? "full" : text;
}

/// "params+optimizer to CPU", where no key of its own says it.
void take_offload(Setup& s) {
  std::string words = s.offload;
  std::transform(words.begin(), words.end(), words.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto has = [&](const char* word) { return words.find(word) != std::string::npos; };
  const bool host = has("cpu") || has("host"), drive = has("nvme");
  if (host == drive) return;  // neither, or "NVMe/CPU", which leaves open what is where
  const char* const where = host ? "host" : "nvme";
  const std::pair<const char*, std::string*> parts[] = {
      {"param", &s.offload_parameters}, {"optimizer", &s.offload_optimizer}, {"activation", &s.offload_activations}};
  for (const auto& [word, into] : parts)
    if (has(word) && into->empty()) *into = where;
}

/// Where no key of its own says it: "full", or "8 of 32 layers".
std::string recompute_words(const Setup& s) {
  for (const char* word : {"none", "selective", "partial", "full", "true", "false", "yes", "no", "on", "off"})
    if (small_letters(s.recompute_modules) == word) return recompute_kind(word);
  return recomputed_layers(s) ? "partial" : std::string();
}

Setup setup_of(const RowFields& row, Origin origin) {
  Setup s;
  s.line = row.line();
  s.id = row.stated("id");
  s.source = row.stated("source");
  s.kind = row.stated("kind");
  s.verified = switch_at(row, "verified").value_or(origin == Origin::own);
  if (s.kind.empty() && origin == Origin::own)
    s.kind = switch_at(row, kOutOfMemory).value_or(false) ? kOutOfMemory : "training";
  s.stack = row.stated("stack");
  s.framework = row.stated("framework");
  s.gpu_type = row.stated("gpu_type");
  s.device_at = row.where("gpu_type");
  s.cluster = row.stated("catalog_cluster");
  s.machine = row.stated("cluster");
  s.recompute = recompute_kind(row.stated("recompute_kind"));
  s.precision = row.stated("precision_kind");
  s.precision_words = row.stated("precision");
  s.family = row.stated("family");
  s.schedule = row.stated("pp_schedule");
  s.offload = row.stated("offload");
  s.offload_activations = row.stated("offload_activations");
  s.offload_optimizer = row.stated("offload_optimizer");
  s.offload_parameters = row.stated("offload_parameters");
  take_offload(s);
  s.optimizer = row.stated("optimizer");
  s.lora_targets = row.stated("lora_targets");
  s.model = row.stated("model");
  s.section = row.stated("section");
  s.overlap = row.stated("overlap");
  s.recompute_modules = row.stated("recompute");
  s.routing = row.stated("moe_routing");
  s.attention_kernel = row.stated("attention_kernel");
  s.memory_kind = row.stated("peak_mem_kind");
  s.activation = row.stated("activation");
  s.fsdp_sharding = row.stated("fsdp_sharding");
  s.date = row.stated("date");
  s.network_state = row.stated("network_state");
  s.mixed_precision = row.stated("fsdp_mixed_precision");
  for (const auto& [member, key, low, high] : kIntegers) s.*member = integer_at(row, key, low, high);
  if (s.recompute.empty()) s.recompute = recompute_words(s);
  s.sequence = length_at(row, "seq_len");
  if (row.stated("vocab_note") == "assumed") s.vocab.reset();
  s.sequence_parallel = switch_at(row, "sequence_parallel");
  s.partition_checkpoints = switch_at(row, "partition_checkpoints");
  s.flash_attention = switch_at(row, "flash_attention");
  s.interleaved = switch_at(row, "interleaved");
  s.scatter_gather = switch_at(row, "scatter_gather");
  s.tied_embeddings = switch_at(row, "tied_embeddings");
  s.gated_mlp = switch_at(row, "gated_mlp");
  s.compiled = switch_at(row, "torch_compile");
  s.inter_node_link = row.text("inter_node_link");
  read_tables(row, s.tables);
  s.inter_node_gbps = number_at(row, "inter_node_gbps_per_node", 0.001, 1e6);
  s.params_b = number_at(row, "params_b", 1e-6, 1e6);
  return s;
}

Measured measured_of(const RowFields& row) {
  Measured m;
  m.seconds = number_at(row, "iter_time_s", 1e-9, kMostSeconds);
  if (!m.seconds) m.seconds = number_at(row, "derived_iter_time_s", 1e-9, kMostSeconds);
  constexpr double kGB = 1e9, kGiB = 1024.0 * 1024 * 1024;
  if (const auto gb = number_at(row, "peak_mem_gb", 1e-6, kMostBytes / kGB)) m.memory_bytes = *gb * kGB;
  if (const auto gib = number_at(row, "peak_mem_gib", 1e-6, kMostBytes / kGiB)) m.memory_bytes = *gib * kGiB;
  return m;
}

constexpr const char* kThroughputs[] = {"tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s",
                                        "samples_per_s_per_gpu"};

/// A step's seconds by the throughput that the row states.
std::optional<double> seconds_of(const RowFields& row, const Setup& s) {
  const auto rate = [&](const char* key) {
    constexpr double kMostRate = 1e15;
    auto all = number_at(row, key, 1e-9, kMostRate);
    if (!all && s.gpus)
      if (const auto each = number_at(row, (std::string(key) + "_per_gpu").c_str(), 1e-9, kMostRate))
        all = *each * static_cast<double>(*s.gpus);
    return all;
  };
  if (!s.batch || s.packed) return std::nullopt;
  const auto batch = static_cast<double>(*s.batch);
  if (const auto tokens = rate("tokens_per_s"); tokens && s.sequence)
    return batch * static_cast<double>(*s.sequence) / *tokens;
  if (const auto samples = rate("samples_per_s")) return batch / *samples;
  return std::nullopt;
}

/// A row of a YAML list.
class YamlFields : public RowFields {
 public:
  YamlFields(const Cursor& row, bool own) : RowFields(row.findings(), own), row_(row) {}
  [[nodiscard]] std::string text(const char* key) const override { return at(key).scalar_text(); }
  [[nodiscard]] base::Location where(const char* key) const override { return at(key).where(); }
  [[nodiscard]] int line() const override { return row_.where().line; }

 private:
  /// "mla.nope" is a key of the mapping `mla`.
  [[nodiscard]] Cursor at(const std::string& key) const {
    const std::size_t dot = key.find('.');
    if (dot == std::string::npos) return row_.optional(key);
    const Cursor whole = row_.optional(key.substr(0, dot));
    return whole.is_map() ? whole.optional(key.substr(dot + 1)) : whole;
  }
  Cursor row_;
};

/// `warned`: keys of other rows of the file that were warned of.
base::Result<std::vector<Row>> parse_list(std::string_view text, const std::string& file, Origin origin,
                                          base::Diagnostics* warnings, std::set<std::string>& warned) {
  const bool told = warnings != nullptr;
  const auto read = [origin, told, &warned](const Cursor& root) {
    std::vector<Row> rows;
    for (const Cursor& item : root.at("results").items()) {
      if (!item.is_map()) {
        item.error("E0104", "a row is a mapping of keys to values");
        continue;
      }
      const bool own = told && (origin == Origin::own || YamlFields(item, false).stated("source").empty());
      rows.push_back(row_of(YamlFields(item, own), origin));
      if (rows.back().setup.id.empty()) item.error("E0102", "the row has no `id`");
      if (!own) continue;
      const std::vector<std::string> keys = item.keys();
      for (const std::string& key : keys)
        if (warned.insert(key).second) warn_of_key(key, keys, item.optional(key).where(), false, item.findings());
    }
    root.ignore();
    return rows;
  };
  return base::read_document<std::vector<Row>>(text, file, read, warnings);
}

/// A part of a long list: whole rows, and the line of the file on which the first one begins.
struct ListPart {
  std::string text;
  int line = 0;
};

/// Divides the rows of `results:` into parts if they are a block list; otherwise returns none.
std::vector<ListPart> parts_of(std::string_view text) {
  std::vector<ListPart> parts;
  constexpr std::string_view kKey = "results:";
  bool inside = false;
  std::size_t indent = std::string_view::npos;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1);
    const std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    ++number;
    const std::size_t begin = line.find_first_not_of(" \r\n");
    if (!inside) {
      inside = line.substr(0, kKey.size()) == kKey;
      // A list in brackets, or given by an alias, is read as a whole.
      const std::size_t rest = inside ? line.find_first_not_of(" \r\n", kKey.size()) : std::string_view::npos;
      if (rest != std::string_view::npos && line[rest] != '#') return {};
      continue;
    }
    const bool blank = begin == std::string_view::npos || line[begin] == '#';
    const bool opens = !blank && line[begin] == '-' && (begin + 1 == line.size() || std::isspace(line[begin + 1]) != 0);
    if (opens && indent == std::string_view::npos) indent = begin;
    if (opens && begin == indent) {
      if (parts.empty() || parts.back().text.size() > kPart) parts.push_back({std::string(kKey) + "\n", number});
    } else if (!blank && (indent == std::string_view::npos || begin <= indent)) {
      break;  // the list ends
    }
    if (!parts.empty()) parts.back().text += line;
  }
  return parts;
}

base::Result<std::vector<Row>> parse_long_list(std::string_view text, const std::string& file, Origin origin,
                                               base::Diagnostics* warnings) {
  std::vector<ListPart> parts = parts_of(text);
  std::set<std::string> warned;
  if (parts.empty()) return parse_list(text, file, origin, warnings, warned);
  std::vector<Row> rows;
  for (ListPart& part : parts) {
    const int shift = part.line - 2;  // in the part, the rows follow the key's line
    base::Diagnostics said;
    auto read = parse_list(part.text, file, origin, warnings != nullptr ? &said : nullptr, warned);
    std::string().swap(part.text);
    for (base::Diagnostic& one : said)
      if (one.where.line > 0) one.where.line += shift;
    if (warnings != nullptr) warnings->insert(warnings->end(), said.begin(), said.end());
    if (!read) {
      base::Diagnostics found = read.error();
      for (base::Diagnostic& one : found)
        if (one.where.line > 0) one.where.line += shift;
      return base::fail(std::move(found));
    }
    for (Row& row : *read) {
      row.setup.line += shift;
      row.setup.device_at.line += shift;
      rows.push_back(std::move(row));
    }
    if (rows.size() > kMostRows) return too_many_rows(file);
  }
  return rows;
}

bool ends_in_csv(const std::string& file) {
  constexpr std::string_view kCsv = ".csv";
  return file.size() > kCsv.size() && file.compare(file.size() - kCsv.size(), kCsv.size(), kCsv) == 0;
}

}  // namespace

tl::unexpected<base::Diagnostics> too_many_rows(const std::string& file) {
  return base::fail({base::Diagnostic{base::Severity::error,
                                      "E0108",
                                      {file, 0, 0, 1},
                                      fmt::format("more than {} rows", kMostRows),
                                      "give them in several runs",
                                      {}}});
}

Row row_of(const RowFields& fields, Origin origin) {
  Measured measured = measured_of(fields);
  const bool ran = measured.seconds || switch_at(fields, kOutOfMemory).value_or(false) ||
                   std::any_of(std::begin(kThroughputs), std::end(kThroughputs),
                               [&](const char* key) { return !fields.stated(key).empty(); });
  const bool says_no_kind = fields.stated("kind").empty();
  Setup setup = setup_of(fields, says_no_kind && ran ? Origin::own : origin);
  // A degree in words ("8 (SP)") is stated, though nobody can read it: nothing takes its place.
  const bool readable = std::all_of(std::begin(kSplit), std::end(kSplit), [&](const Integer<Setup>& one) {
    return setup.*one.member || fields.stated(one.key).empty();
  });
  if (readable) take_arithmetic(setup);
  if (!measured.seconds) measured.seconds = seconds_of(fields, setup);
  return {std::move(setup), measured};
}

base::Result<std::vector<Row>> parse_rows(std::string_view text, std::string file, Origin origin,
                                          base::Diagnostics* warnings) {
  if (ends_in_csv(file)) return parse_csv_rows(text, file, origin, warnings);
  if (text.size() > kPart) return parse_long_list(text, file, origin, warnings);
  std::set<std::string> warned;
  return parse_list(text, file, origin, warnings, warned);
}

namespace {

std::string unscorable_tables(const Setup& s) {
  const Setup::Tables& t = s.tables;
  const bool named = !t.model.empty();
  const std::pair<const char*, bool> needed[] = {{"embedding_tables", named || t.count.has_value()},
                                                 {"embedding_dim", named || t.dim.has_value()},
                                                 {"bottom_mlp", named || !t.bottom.empty()},
                                                 {"top_mlp", named || !t.top.empty()},
                                                 {"gpus", s.gpus.has_value()},
                                                 {"global_batch", s.batch.has_value()},
                                                 {"gpu_type", !s.gpu_type.empty()}};
  for (const auto& [key, given] : needed)
    if (!given) return fmt::format("it does not state {}", key);
  return {};
}

}  // namespace

std::string unscorable(const Setup& s) {
  if (s.kind != "training" && s.kind != kOutOfMemory)
    return fmt::format("its kind is {}, not training", s.kind.empty() ? "not stated" : s.kind);
  if (!s.verified) return "it is not verified (`verified: true` says that it is)";
  if (!s.contradiction.empty()) return s.contradiction;
  if (s.family == kRecommender) return unscorable_tables(s);
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
    if (!given) {
      const bool of_model =
          std::string_view(key) == "layers" || std::string_view(key) == "hidden" || std::string_view(key) == "heads";
      const bool named = of_model && !s.model.empty();
      return fmt::format("it does not state {}{}", key,
                         named ? fmt::format(", and its model '{}' is none of the catalogue's", s.model) : "");
    }
  return {};
}

}  // namespace orrery::sim
