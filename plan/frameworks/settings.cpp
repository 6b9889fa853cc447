// Values from texts, and what is said of settings.
#include "plan/frameworks/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "plan/frameworks/import.h"
#include "plan/frameworks/neox.h"
#include "plan/spec/fields.h"

namespace orrery::plan {

bool read_number(std::string_view text, double& out) {
  std::string plain;  // Python and TOML allow 220_000_000 and a plus
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '_' && !(i == 0 && text[i] == '+')) plain += text[i];
  const char* const last = plain.data() + plain.size();
  const auto [end, failed] = std::from_chars(plain.data(), last, out);
  return failed == std::errc() && end == last && !plain.empty() && std::isfinite(out);
}

std::optional<std::int64_t> product_up_to(std::int64_t most, std::initializer_list<std::int64_t> factors) {
  std::int64_t out = 1;
  for (const std::int64_t one : factors) {
    if (one > most / out) return std::nullopt;
    out *= std::max<std::int64_t>(one, 1);
  }
  return out;
}

std::string Reading::shown(const Given& at) const {
  return flags ? "--" + at.key : fmt::format("`{}`", at.said.empty() ? at.key : at.said);
}

void Reading::error(const char* code, const base::Location& where, std::string message, std::string help) {
  constexpr std::size_t kMost = 20;
  if (errors.size() < kMost)
    errors.push_back({base::Severity::error, code, where, std::move(message), std::move(help), {}});
}

const GivenValue* Reading::value(const Given& at) {
  if (at.values.empty()) {
    error("E0653", at.where, fmt::format("{} has no value", shown(at)), "is the file cut?");
    return nullptr;
  }
  const GivenValue& one = at.values.front();
  if (!one.missing.empty()) {
    const bool variable =
        one.missing.front() == '$' && one.missing.size() > 1 && one.missing[1] != '(' && one.missing[1] != '{';
    error("E0652", one.where, fmt::format("{} is {}, which only a run can tell", shown(at), base::quoted(one.missing)),
          variable ? fmt::format("give it: --set {}=VALUE", one.missing.substr(1))
                   : fmt::format("give the value: --set {}=VALUE", at.key));
    return nullptr;
  }
  if (one.text == "auto" && !flags) {
    error("E0652", one.where, fmt::format("{} is \"auto\": the Trainer's own arguments decide it", shown(at)),
          fmt::format("give the value: --set {}=VALUE", at.key));
    return nullptr;
  }
  return &one;
}

std::int64_t Reading::integer(const Given& at, std::int64_t low, std::int64_t high) {
  const GivenValue* const one = value(at);
  if (one == nullptr) return low;
  double number = 0;
  if (read_number(one->text, number) && number == std::floor(number) && number >= static_cast<double>(low) &&
      number <= static_cast<double>(high))
    return static_cast<std::int64_t>(number);
  error("E0653", one->where,
        fmt::format("{} is a whole number from {} to {}, found {}", shown(at), low, high, base::quoted(one->text)), "");
  return low;
}

double Reading::number(const Given& at, double low, double high) {
  const GivenValue* const one = value(at);
  if (one == nullptr) return low;
  double number = 0;
  if (read_number(one->text, number) && number >= low && number <= high) return number;
  error("E0653", one->where,
        fmt::format("{} is a number from {} to {}, found {}", shown(at), low, high, base::quoted(one->text)), "");
  return low;
}

bool Reading::boolean(const Given& at) {
  if (at.values.empty()) return true;
  const GivenValue* const one = value(at);
  if (one == nullptr) return false;
  std::string word = one->text;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "0" || word == "no" || word == "off" || word == "null" || word == "none") return false;
  error("E0653", one->where, fmt::format("{} is true or false, found {}", shown(at), base::quoted(one->text)), "");
  return false;
}

std::string Reading::text(const Given& at) {
  const GivenValue* const one = value(at);
  return one == nullptr ? std::string() : one->text;
}

std::string Reading::all(const Given& at) {
  std::string out;
  for (const GivenValue& one : at.values) out += (out.empty() ? "" : " ") + one.text;
  return value(at) == nullptr ? std::string() : out;
}

std::string Reading::word(const Given& at, const std::vector<std::string>& known) {
  const GivenValue* const one = value(at);
  if (one == nullptr) return known.front();
  if (std::find(known.begin(), known.end(), one->text) != known.end()) return one->text;
  const std::string near = base::did_you_mean(one->text, known);
  error("E0653", one->where,
        fmt::format("{} is {}, which Orrery has no counterpart for", shown(at), base::quoted(one->text)),
        near.empty() ? fmt::format("read are: {}", fmt::join(known, ", ")) : fmt::format("did you mean {}?", near));
  return known.front();
}

void Reading::leave(const Given& at, const std::string& because) {
  warnings.push_back({base::Severity::warning,
                      "E0655",
                      at.where,
                      fmt::format("not carried over: {}, because {}", shown(at), because),
                      {},
                      {}});
}

void Reading::pass_over(const Given& at, const std::string& because) {
  auto found = std::find_if(passed_.begin(), passed_.end(), [&](const auto& one) { return one.first == because; });
  if (found == passed_.end()) found = passed_.insert(passed_.end(), {because, {}});
  found->second.push_back(shown(at));
}

void Reading::unknown(const Given& at) {
  if (++unknown_ > kMostUnknown) {
    if (unknown_ == kMostUnknown + 1) {
      counted_ = warnings.size();
      warnings.push_back({base::Severity::warning, "E0656", at.where, {}, {}, {}});
    }
    warnings[counted_].message =
        fmt::format("{} more settings of {} are not known either", unknown_ - kMostUnknown, framework_);
    return;
  }
  warnings.push_back(
      {base::Severity::warning,
       "E0656",
       at.where,
       fmt::format("{}: this setting of {} is not known, and nothing of it is carried over", shown(at), framework_),
       "if it moves time or memory, the prediction is of another run",
       {}});
}

void Reading::take(const Reading& other) {
  errors.insert(errors.end(), other.errors.begin(), other.errors.end());
  warnings.insert(warnings.end(), other.warnings.begin(), other.warnings.end());
  assumed.insert(assumed.end(), other.assumed.begin(), other.assumed.end());
  passed_.insert(passed_.end(), other.passed_.begin(), other.passed_.end());
}

std::vector<std::string> Reading::passed_over() const {
  std::vector<std::string> out;
  for (const auto& [because, keys] : passed_)
    out.push_back(fmt::format("not carried over: {}, because {}", fmt::join(keys, ", "), because));
  return out;
}

void read_settings(std::span<const Setting> table, const std::vector<Given>& given, Reading& reading, Draft& into) {
  std::map<std::string_view, const Setting*> rows;
  for (const Setting& one : table) rows.emplace(one.key, &one);
  std::map<std::string_view, const Given*> last;
  for (const Given& one : given) last[one.key] = &one;
  for (const Given& one : given) {
    if (last[one.key] != &one) continue;
    const auto row = rows.find(one.key);
    if (row == rows.end())
      reading.unknown(one);
    else if (row->second->read != nullptr)
      row->second->read(reading, one, into);
    else if (row->second->matters)
      reading.leave(one, row->second->why);
    else
      reading.pass_over(one, row->second->why);
  }
}

const char* name_of(RunFormat format) {
  switch (format) {
    case RunFormat::megatron: return "megatron";
    case RunFormat::torchtitan: return "torchtitan";
    case RunFormat::deepspeed: return "deepspeed";
    case RunFormat::nemo: return "nemo";
    case RunFormat::neox: return "neox";
    case RunFormat::config: return "config.json";
  }
  return "?";
}

std::optional<RunFormat> run_format(std::string_view text, const std::string& name) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const auto has = [&](std::string_view word) { return text.find(word) != std::string_view::npos; };
  if (first != std::string_view::npos && text[first] == '{') {
    if (has("\"model_type\"") || has("\"architectures\"")) return RunFormat::config;
    if (is_neox(text)) return RunFormat::neox;
    return RunFormat::deepspeed;
  }
  if (name.ends_with(".toml")) return RunFormat::torchtitan;
  if (name.ends_with(".sh") || name.ends_with(".slurm") || name.ends_with(".sbatch") || text.starts_with("#!"))
    return RunFormat::megatron;
  if (has("\n[parallelism]") || has("\n[training]") || text.starts_with("[model]")) return RunFormat::torchtitan;
  // Other programs' YAML has a trainer and a model too.
  const auto section = [&](const std::string& key) { return text.starts_with(key) || has("\n" + key); };
  if (section("trainer:") && section("model:") && has("tensor_model_parallel_size:")) return RunFormat::nemo;
  if ((name.ends_with(".yml") || name.ends_with(".yaml")) && is_neox(text)) return RunFormat::neox;
  if (has("--num-layers") || has("--hidden-size") || has("--micro-batch-size")) return RunFormat::megatron;
  return std::nullopt;
}

Bounds bounds_of(const PlanSpec& spec, const models::Model& model) {
  Bounds out;
  const PlanSpec defaults;
  for_each_field(kChosenFields, [&](const auto& field) {
    const auto& value = field.of(spec);
    auto& bound = field.of(out);
    using Value = std::remove_cvref_t<decltype(value)>;
    using Bound = std::remove_cvref_t<decltype(bound)>;
    const bool usual = value == field.of(defaults);
    if (usual && *field.group != '\0') return;
    if (usual && std::string_view(field.key).starts_with("expert") && !model.experts.any()) return;
    if constexpr (std::is_same_v<Bound, Value>)
      bound = value;  // rows, lists and what may be absent
    else if constexpr (kIsList<Bound>)
      bound = {static_cast<typename Bound::value_type>(value)};
    else
      bound = static_cast<typename Bound::value_type>(value);
  });
  return out;
}

namespace {

nlohmann::json all_written(std::span<const Setting> table, const PlanFile& file, const Plan& plan) {
  nlohmann::json out;
  for (const Setting& one : table)
    if (one.write != nullptr) out[one.key] = one.write({file, plan});
  return out;
}

/// Other values than a word has.
template <class Of, class T>
std::vector<T> others(const SoftwareField<Of>& field, const T& said) {
  std::vector<T> out;
  if constexpr (std::is_same_v<T, bool>) {
    out.push_back(!said);
  } else if constexpr (std::is_enum_v<T>) {
    for (std::size_t i = 0; i < field.words->size(); ++i)
      if (static_cast<T>(i) != said) out.push_back(static_cast<T>(i));
  } else if constexpr (std::is_same_v<T, std::string>) {
    out.push_back(said + " of another");
  } else if (field.words == nullptr) {
    out = {said + 1};
  } else {
    for (const std::string& word : *field.words)
      if (const T number = std::stoll(word); number != said) out.push_back(number);
  }
  return out;
}

/// Whether the settings, as they are read back, say that no kernel fuses attention.
bool say_unfused(std::span<const Setting> table, const nlohmann::json& written) {
  std::vector<Given> given;
  for (const auto& [key, value] : written.items())
    if (value.is_string()) given.push_back({key, {}, {GivenValue{value.get<std::string>(), {}}}});
  Reading reading("");
  Draft draft;
  read_settings(table, given, reading, draft);
  const auto flash = draft.open.find("flash");
  return flash != draft.open.end() && flash->second == 0;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> unwritten_words(std::span<const Setting> table, const PlanFile& file,
                                                                 const Plan& plan) {
  std::vector<std::pair<std::string, std::string>> out;
  const auto lines = software_lines(file.job.software);
  if (lines.empty()) return out;
  const nlohmann::json written = all_written(table, file, plan);
  for_each_software_field([&](const auto& field) {
    const auto said = field.of(file.job.software);
    if (!said) return;
    const auto instead = others(field, *said);
    const auto differs = [&](const auto& value) {
      PlanFile other = file;
      field.of(other.job.software) = value;
      return all_written(table, other, plan) != written;
    };
    if (differs(std::decay_t<decltype(field.of(file.job.software))>()) || std::ranges::all_of(instead, differs)) return;
    // The plan's own `flash: false` writes the same.
    if constexpr (std::is_same_v<std::decay_t<decltype(*said)>, AttentionKernel>)
      if (*said == AttentionKernel::math && say_unfused(table, written)) return;
    const auto line = std::ranges::find(lines, std::string(field.key), &std::pair<std::string, std::string>::first);
    out.push_back(*line);
  });
  return out;
}

}  // namespace orrery::plan
