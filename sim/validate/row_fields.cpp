/// What of one's own rows is not read, and other tools' words for their keys.
#include "sim/validate/row_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

#include "base/other_words.h"
#include "models/synonyms.h"

namespace orrery::sim {

namespace {

/// Those of a model's sizes stand in models/synonyms.h.
constexpr base::OtherKey kOtherColumns[] = {
    {"", "step_time", "iter_time_s"},
    {"", "step_time_s", "iter_time_s"},
    {"", "iter_time", "iter_time_s"},
    {"", "iteration_time", "iter_time_s"},
    {"", "time_per_step", "iter_time_s"},
    {"", "seconds_per_step", "iter_time_s"},
    {"", "tokens_per_second", "tokens_per_s"},
    {"", "tokens_per_sec", "tokens_per_s"},
    {"", "tokens_per_second_per_gpu", "tokens_per_s_per_gpu"},
    {"", "tokens_per_sec_per_gpu", "tokens_per_s_per_gpu"},
    {"", "samples_per_second", "samples_per_s"},
    {"", "samples_per_sec", "samples_per_s"},
    {"", "peak_memory_gb", "peak_mem_gb"},
    {"", "memory_gb", "peak_mem_gb"},
    {"", "max_memory_gb", "peak_mem_gb"},
    {"", "peak_memory_gib", "peak_mem_gib"},
    {"", "memory_gib", "peak_mem_gib"},
    {"", "device", "gpu_type"},
    {"", "hardware", "gpu_type"},
    {"", "accelerator", "gpu_type"},
    {"", "gpu", "gpu_type"},
    {"", "devices", "gpus"},
    {"", "num_gpus", "gpus"},
    {"", "n_gpus", "gpus"},
    {"", "world_size", "gpus"},
    {"", "seq", "seq_len"},
    {"", "sequence", "seq_len"},
    {"", "seq_length", "seq_len"},
    {"", "sequence_length", "seq_len"},
    {"", "tensor", "tp"},
    {"", "tensor_parallel", "tp"},
    {"", "tensor_model_parallel_size", "tp"},
    {"", "pipeline", "pp"},
    {"", "pipeline_parallel", "pp"},
    {"", "pipeline_model_parallel_size", "pp"},
    {"", "data", "dp"},
    {"", "data_parallel", "dp"},
    {"", "context", "cp"},
    {"", "context_parallel", "cp"},
    {"", "expert_parallel", "ep"},
    {"", "vp", "virtual_stages"},
    {"", "vpp", "virtual_stages"},
    {"", "mbs", "micro_batch"},
    {"", "micro_batch_size", "micro_batch"},
    {"", "batch", "global_batch"},
    {"", "batch_size", "global_batch"},
    {"", "gbs", "global_batch"},
    {"", "global_batch_size", "global_batch"},
    {"", "ga", "grad_accum"},
    {"", "gradient_accumulation", "grad_accum"},
    {"", "gradient_accumulation_steps", "grad_accum"},
    {"", "zero", "zero_stage"},
    {"", "dtype", "precision"},
    {"", "activation_checkpointing", "recompute_kind"},
    {"", "recomputation", "recompute_kind"},
};

/// A row without values that notes what is asked of it.
class AskedKeys : public RowFields {
 public:
  explicit AskedKeys(base::Findings& findings) : RowFields(findings, false) {}
  [[nodiscard]] std::string text(const char* key) const override {
    const std::string whole = key;
    keys_.insert(whole);  // of a table's columns
    keys_.insert(whole.substr(0, whole.find('.')));
    return {};
  }
  [[nodiscard]] base::Location where(const char*) const override { return {}; }
  [[nodiscard]] int line() const override { return 0; }
  [[nodiscard]] std::vector<std::string> keys() const { return {keys_.begin(), keys_.end()}; }

 private:
  mutable std::set<std::string> keys_;
};

/// What the end of a key says of its unit, how a value may say it too, and what to write.
struct UnitOfKey {
  std::string_view ending;
  std::string_view unit;
  const char* wanted;
};
constexpr UnitOfKey kUnitsOfKeys[] = {
    {"iter_time_s", "s", "in seconds, digits alone"},
    {"_gb", "gb", "in GB of 10^9 bytes, digits alone"},
    {"_gib", "gib", "in GiB of 2^30 bytes, digits alone"},
};

/// How to write a number of this key of which `said` was not one.
std::string number_wanted(const std::string& key, const std::string& said, const std::string& wanted) {
  const std::size_t digits = std::min(said.find_first_not_of("0123456789."), said.size());
  for (const UnitOfKey& one : kUnitsOfKeys) {
    if (!key.ends_with(one.ending)) continue;
    std::string rest;
    for (const char c : said.substr(digits))
      if (c != ' ') rest += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return digits > 0 && rest == one.unit ? fmt::format("write {}: the key says the unit", said.substr(0, digits))
                                          : fmt::format("write it {}, or leave it empty", one.wanted);
  }
  return fmt::format("write {}, or leave it empty", wanted);
}

bool is_among(const std::string& key, const std::vector<std::string>& all) {
  return std::find(all.begin(), all.end(), key) != all.end();
}

}  // namespace

std::string RowFields::stated(const char* key) const {
  std::string value = text(key);
  return value == "unknown" || value == "null" || value == "~" ? std::string() : value;
}

void RowFields::error(const char* key, const char* code, std::string message, std::string help) const {
  findings_->error(code, where(key), std::move(message), std::move(help));
}

void RowFields::unread(const char* key, const std::string& wanted) const {
  if (!own_) return;
  const std::string said = text(key);
  if (!told_.insert(key).second) return;  // rows are asked for some keys more than once
  findings_->warning(
      "V06", where(key),
      fmt::format("`{}` is {}, which is not {}: the row is read without it", key, base::quoted(said), wanted),
      number_wanted(key, said, wanted));
}

const std::vector<std::string>& keys_of_rows() {
  static const std::vector<std::string> keys = [] {
    base::Findings findings("", "");
    const AskedKeys asked(findings);
    (void)row_of(asked, Origin::own);
    return asked.keys();
  }();
  return keys;
}

void warn_of_key(const std::string& key, const std::vector<std::string>& keys, const base::Location& where, bool any,
                 base::Findings& findings) {
  if (key.empty() || is_among(key, keys_of_rows())) return;
  std::string ours = base::our_key(key, {}, kOtherColumns);
  if (ours.empty()) ours = models::our_key(key);
  if (!is_among(ours, keys_of_rows())) ours.clear();
  const bool there = !ours.empty() && is_among(ours, keys);
  if ((ours.empty() || there) && !any) return;
  std::string help = "docs/formats.md (Rows of measured runs) has the keys; others are left aside";
  if (there)
    help = fmt::format("`{}` says it, and is read", ours);
  else if (!ours.empty())
    help = fmt::format("here it is called `{}`", ours);
  else if (const std::string near = base::did_you_mean(key, keys_of_rows()); !near.empty() && !is_among(near, keys))
    help = fmt::format("did you mean `{}`?", near);
  findings.warning("V06", where, fmt::format("`{}` is no key of rows: it is not read", key), help);
}

}  // namespace orrery::sim
