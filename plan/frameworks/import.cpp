// Finds the command that trains, and gathers its settings; the frameworks' tables read them.
#include "plan/frameworks/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "models/read/read.h"
#include "plan/frameworks/flatten.h"
#include "plan/frameworks/launched.h"
#include "plan/frameworks/shell.h"

namespace orrery::plan {
namespace {

constexpr std::size_t kMostScript = std::size_t{1} << 20;

base::Diagnostic run_problem(const char* code, const base::Location& where, std::string message, std::string help) {
  return {base::Severity::error, code, where, std::move(message), std::move(help), {}};
}

std::string file_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
}

bool begins_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && std::isalpha(static_cast<unsigned char>(word[2])) != 0;
}

const std::set<std::string_view>& megatron_keys() {
  static const std::set<std::string_view> all = [] {
    std::set<std::string_view> out;
    for (const Setting& one : megatron_settings_table()) out.insert(one.key);
    return out;
  }();
  return all;
}

int known_flags(const std::vector<TracedText>& words) {
  int out = 0;
  for (const TracedText& one : words)
    if (begins_flag(one.text)) out += megatron_keys().contains(one.text.substr(2, one.text.find('=') - 2)) ? 1 : 0;
  return out;
}

/// Arguments of torchrun, deepspeed, srun and mpirun, which stand before the program.
const std::set<std::string, std::less<>> kLauncher = {"nproc_per_node",
                                                      "nproc-per-node",
                                                      "nnodes",
                                                      "node_rank",
                                                      "node-rank",
                                                      "master_addr",
                                                      "master-addr",
                                                      "master_port",
                                                      "master-port",
                                                      "rdzv_endpoint",
                                                      "rdzv-endpoint",
                                                      "rdzv_backend",
                                                      "rdzv-backend",
                                                      "rdzv_id",
                                                      "rdzv-id",
                                                      "max_restarts",
                                                      "max-restarts",
                                                      "tee",
                                                      "num_nodes",
                                                      "num_gpus",
                                                      "hostfile",
                                                      "force_multi",
                                                      "include",
                                                      "exclude",
                                                      "ntasks",
                                                      "ntasks-per-node",
                                                      "nodes",
                                                      "gpus-per-node",
                                                      "jobid",
                                                      "wait",
                                                      "kill-on-bad-exit",
                                                      "no_python",
                                                      "no_local_rank",
                                                      "launcher",
                                                      "bind_cores_to_rank",
                                                      "role",
                                                      "log_dir",
                                                      "log-dir",
                                                      "redirects",
                                                      "rdzv_conf",
                                                      "standalone",
                                                      "local-addr",
                                                      "local_addr",
                                                      "container-image",
                                                      "container-mounts",
                                                      "export",
                                                      "cpu-bind",
                                                      "mpi",
                                                      "label",
                                                      "unbuffered",
                                                      "output",
                                                      "error",
                                                      "gres"};

/// The flags of a command, with what belongs to its launcher apart.
struct CommandLine {
  std::vector<Given> flags, launcher;  ///< numbers of the latter are read by launched_by
  std::vector<GivenValue> stray;       ///< words that nothing is known of: variables that are set nowhere
};

/// Places of a text's bytes, as place_in finds them, in one pass over the text.
class Places {
 public:
  Places(std::string_view text, const std::string& file) : file_(file), places_(text.size() + 1) {
    int line = 1, column = 1;
    for (std::size_t i = 0; i <= text.size(); ++i) {
      places_[i] = {line, column};
      if (i == text.size()) break;
      const bool ends = text[i] == '\n';
      const bool begins = i + 1 == text.size() || (static_cast<unsigned char>(text[i + 1]) & 0xC0U) != 0x80U;
      line += ends ? 1 : 0;
      column = ends ? 1 : column + (begins ? 1 : 0);
    }
  }
  [[nodiscard]] base::Location at(std::size_t offset) const {
    const auto [line, column] = places_[std::min(offset, places_.size() - 1)];
    return {file_, line, column, 1};
  }

 private:
  const std::string& file_;
  std::vector<std::pair<int, int>> places_;
};

CommandLine command_line(const std::vector<TracedText>& words, std::string_view text, const std::string& file) {
  CommandLine out;
  const Places places(text, file);
  std::size_t program = 0;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i].text.ends_with(".py")) {
      program = i;
      break;
    }
  std::vector<Given>* into = nullptr;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const TracedText& word = words[i];
    const auto where = [&](std::size_t at) {
      return places.at(word.from.empty() ? 0 : word.from[std::min(at, word.from.size() - 1)]);
    };
    if (begins_flag(word.text)) {
      const std::size_t equals = word.text.find('=');
      Given one{word.text.substr(2, equals == std::string::npos ? equals : equals - 2), where(0), {}};
      one.where.length = static_cast<int>(one.key.size()) + 2;
      if (equals != std::string::npos)
        one.values.push_back(
            {word.text.substr(equals + 1), where(equals + 1), hole_in(std::string_view(word.text).substr(equals + 1))});
      into = (i < program && kLauncher.contains(one.key)) ||
                     (kLauncher.contains(one.key) && !megatron_keys().contains(one.key))
                 ? &out.launcher
             : i < program ? nullptr
                           : &out.flags;
      if (into != nullptr) into->push_back(std::move(one));
      continue;
    }
    const std::string missing = hole_in(word.text);
    GivenValue value{word.text, where(0), missing};
    value.where.length = std::max(1, static_cast<int>(missing.empty() ? word.text.size() : missing.size()));
    const bool whole = !missing.empty() && word.text.size() == missing.size() + 2;
    if (i == program && program > 0) {
      into = nullptr;
    } else if (into == nullptr || into->empty()) {
      if (i > program && whole) out.stray.push_back(std::move(value));
    } else if (whole && !into->back().values.empty()) {
      if (into == &out.flags) out.stray.push_back(std::move(value));
    } else {
      into->back().values.push_back(std::move(value));
    }
  }
  return out;
}

/// A launch script as settings.
struct ScriptSettings {
  std::vector<Given> given;
  std::string deepspeed;  ///< its configuration, if the script writes it; with as many lines before it
  int ranks = 0, per_node = 0;
  std::vector<std::string> assumed;
  std::vector<GivenValue> stray;
  std::optional<GivenValue> configured;  ///< DeepSpeed's configuration by its name, if the script does not write it
};

base::Diagnostics no_command(const ShellScript& script, const RunFile& file) {
  if (!script.sourced.empty())
    return {run_problem("E0651", place_in(file.text, file.name, script.sourced.front().second),
                        fmt::format("this script launches nothing itself: it leaves that to {}",
                                    base::quoted(file_name(script.sourced.front().first))),
                        fmt::format("give that file too: orrery import {} {}", file_name(file.name),
                                    file_name(script.sourced.front().first)))};
  return {run_problem("E0651", {file.name, 1, 1, 1},
                      file.text.empty() ? "the file is empty" : "no command here trains with Megatron-LM's flags",
                      "a launch script of pretrain_gpt.py, or its arguments (--num-layers 12 …)")};
}

base::Result<ScriptSettings> script_settings(const std::vector<RunFile>& scripts, const RunQuestion& question) {
  // The last of several is the one that launches; others are what it sources.
  std::map<std::string, std::string> others;
  for (const RunFile& one : scripts) {
    if (one.text.size() > kMostScript)
      return base::fail(
          {run_problem("E0651", {one.name, 1, 1, 1}, "the file is longer than a launch script, 1 MiB", "")});
    others[file_name(one.name)] = one.text;
  }
  base::Diagnostics refused;
  for (const RunFile& file : scripts) {
    std::map<std::string, std::string> rest = others;
    rest.erase(file_name(file.name));
    ShellScript script = read_shell(file.text, file.name, question.set, rest);
    if (!script.errors.empty()) return base::fail(std::move(script.errors));
    ScriptSettings out;
    const ShellCommand* best = nullptr;
    int most = 2;  // fewer known flags are another program's
    for (const ShellCommand& one : script.commands)
      if (const int known = known_flags(one.words); known > most) most = known, best = &one;
    std::vector<TracedText> words;
    if (best != nullptr) words = best->words;
    if (best == nullptr) {  // a file of arguments: each line is a command of its own
      for (const ShellCommand& one : script.commands)
        if (begins_flag(one.words.front().text)) words.insert(words.end(), one.words.begin(), one.words.end());
      if (known_flags(words) < 3) words.clear();
    }
    if (words.empty()) {  // what its variables hold, where the command is out of reach
      std::string names;
      for (const auto& [name, value] : script.variables) {
        std::vector<TracedText> own;
        std::size_t begin = 0;
        for (std::size_t at = 0; at <= value.text.size(); ++at) {
          const bool space = at == value.text.size() || std::isspace(static_cast<unsigned char>(value.text[at])) != 0;
          if (!space) continue;
          if (at > begin) own.push_back(value.part(begin, at));
          begin = at + 1;
        }
        if (known_flags(own) == 0) continue;
        names += (names.empty() ? "" : ", ") + name;
        words.insert(words.end(), own.begin(), own.end());
      }
      if (known_flags(words) < 3) words.clear();
      if (!words.empty()) out.assumed.push_back("no command was found; the flags are those of the variables " + names);
    }
    if (words.empty()) {
      const base::Diagnostics why = no_command(script, file);
      refused.insert(refused.end(), why.begin(), why.end());
      continue;
    }
    CommandLine line = command_line(words, file.text, file.name);
    out.given = std::move(line.flags);
    out.stray = std::move(line.stray);
    const Launched launched = launched_by(words, file.text);
    out.ranks = launched.ranks, out.per_node = launched.per_node;
    for (const Given& one : out.given)
      if (one.key == "deepspeed_config" && !one.values.empty()) {
        const auto found = script.documents.find(one.values.front().text);
        out.configured.reset();
        if (found == script.documents.end()) {
          out.configured = one.values.front();
          continue;
        }
        const TracedText& body = found->second;
        const int line_of = body.from.empty() ? 1 : place_in(file.text, file.name, body.from.front()).line;
        out.deepspeed.assign(static_cast<std::size_t>(line_of) - 1, '\n');
        for (std::size_t i = 0; i < body.text.size(); ++i)
          if (body.text[i] != kHole) out.deepspeed += body.text[i];
      }
    return out;
  }
  return base::fail(std::move(refused));
}

/// `--set key=value` in place of what a file gives.
void apply_set(std::vector<Given>& given, std::span<const Setting> table, const RunQuestion& question) {
  for (const auto& [key, value] : question.set) {
    const bool known = std::any_of(table.begin(), table.end(), [&](const Setting& one) { return one.key == key; });
    if (!known) continue;
    Given one{key, {"--set", 0, 0, 1}, {}};
    std::istringstream words(value);  // a list has spaces between its values
    for (std::string word; words >> word;) one.values.push_back({word, {"--set", 0, 0, 1}});
    std::erase_if(given, [&](const Given& other) { return other.key == key; });
    given.push_back(std::move(one));
  }
}

/// Whether a text has a word, which is not part of a longer one.
bool has_word(std::string_view text, std::string_view word) {
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1))
    if ((at == 0 || !inside(text[at - 1])) && (at + word.size() >= text.size() || !inside(text[at + word.size()])))
      return true;
  return false;
}

/// E0650: `--set` gives what is neither a setting of these tables nor a variable of the scripts.
base::Diagnostics unread_sets(const std::vector<std::span<const Setting>>& tables, const std::vector<RunFile>& scripts,
                              const RunQuestion& question) {
  base::Diagnostics out;
  std::vector<std::string> known;
  for (const std::span<const Setting> table : tables)
    for (const Setting& one : table) known.emplace_back(one.key);
  for (const auto& [key, value] : question.set) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    if (!key.empty() && std::any_of(scripts.begin(), scripts.end(), [&, name = std::string_view(key)](const auto& one) {
          return has_word(one.text, name);
        }))
      continue;
    const std::string near = base::did_you_mean(key, known);
    out.push_back(run_problem("E0650", {"--set", 0, 0, 1}, fmt::format("nothing reads {}", base::quoted(key)),
                              near.empty() ? "it is no setting that these files can have, and no variable of a script"
                                           : fmt::format("did you mean {}?", near)));
  }
  return out;
}

void name_model(models::Model& m, const RunQuestion& question, const std::string& file) {
  m.name = question.name.empty() ? "imported" : question.name;
  const bool llama = m.normalisation == models::Normalisation::rms_norm && m.activation == models::Activation::swiglu &&
                     m.positions == models::Positions::rope;
  m.family = llama ? models::Family::llama : models::Family::gpt;
  m.sources = {fmt::format("{}, read by orrery import", file_name(file))};
}

class RunImport {
 public:
  RunImport(const std::vector<RunFile>& files, const RunQuestion& question) : question_(question) {
    for (const RunFile& one : files) by_format_[one.format].push_back(one);
  }

  base::Result<ImportedRun> run() {
    const auto& scripts = by_format_[RunFormat::megatron];
    const auto& titans = by_format_[RunFormat::torchtitan];
    const auto& speeds = by_format_[RunFormat::deepspeed];
    const auto& configs = by_format_[RunFormat::config];
    const int kinds = (scripts.empty() ? 0 : 1) + (titans.empty() ? 0 : 1) + (speeds.empty() ? 0 : 1);
    if (titans.size() > 1 || speeds.size() > 1 || configs.size() > 1 || (kinds > 1 && !titans.empty()))
      return base::fail({run_problem("E0650", {last_name(), 1, 1, 1}, "these files are not one run",
                                     "give the files of one run: a script, a TOML, or a JSON with its config.json")});
    if (kinds == 0)
      return base::fail(
          {run_problem("E0650", {configs.front().name, 1, 1, 1}, "a model's config.json alone says nothing of a run",
                       "give DeepSpeed's JSON beside it; or name it in a job, model: config.json")});
    if (!configs.empty()) {
      auto model = models::parse_model(configs.front().text, configs.front().name);
      if (!model) return tl::unexpected(model.error());
      given_model_ = std::move(*model);
      from_.push_back(configs.front().name + ": the model");
    }
    if (!question_.model.empty()) {
      auto model = question_.find_model(question_.model);
      if (!model) return tl::unexpected(model.error());
      given_model_ = std::move(*model);
      catalogue_ = question_.model;
      from_.push_back("--model: the model");
    }
    std::vector<std::span<const Setting>> tables;
    if (!scripts.empty()) tables.push_back(megatron_settings_table());
    if (!titans.empty()) tables.push_back(torchtitan_settings_table());
    const bool configures = std::any_of(scripts.begin(), scripts.end(), [](const RunFile& one) {
      return one.text.find("deepspeed_config") != std::string::npos;
    });
    if (!speeds.empty() || configures) tables.push_back(deepspeed_settings_table());
    if (base::Diagnostics unread = unread_sets(tables, scripts, question_); !unread.empty())
      return base::fail(std::move(unread));
    if (!scripts.empty()) return megatron(scripts, speeds);
    return titans.empty() ? deepspeed(speeds.front()) : torchtitan(titans.front());
  }

 private:
  [[nodiscard]] std::string last_name() const {
    for (const auto& [format, files] : by_format_)
      if (!files.empty()) return files.back().name;
    return {};
  }
  [[nodiscard]] int ranks(int said) {
    if (question_.ranks > 0) return question_.ranks;
    if (said > 0 || question_.ranks_otherwise == 0) return said;
    assumed_.push_back(
        fmt::format("{} ranks, as many as the cluster has devices: the files do not say", question_.ranks_otherwise));
    return question_.ranks_otherwise;
  }

  base::Result<ImportedRun> megatron(const std::vector<RunFile>& scripts, const std::vector<RunFile>& speeds) {
    auto script = script_settings(scripts, question_);
    if (!script) return tl::unexpected(script.error());
    Reading reading("Megatron-LM");
    reading.flags = true;
    Draft draft = megatron_defaults();
    apply_set(script->given, megatron_settings_table(), question_);
    if (script->stray.size() > Reading::kMostUnknown) {
      assumed_.push_back(fmt::format("{} more variables that are set nowhere add nothing",
                                     script->stray.size() - Reading::kMostUnknown));
      script->stray.resize(Reading::kMostUnknown);
    }
    for (const GivenValue& one : script->stray)
      reading.warnings.push_back(
          {base::Severity::warning,
           "E0656",
           one.where,
           fmt::format("{} is set nowhere in the file: what it adds is not read", base::quoted(one.missing)),
           "if it moves time or memory: --set NAME='--flag value'",
           {}});
    read_settings(megatron_settings_table(), script->given, reading, draft);
    draft.ranks = ranks(script->ranks);
    const std::string& file = scripts.back().name;
    if (given_model_) {  // its shapes in place of the script's
      const models::Model& m = *given_model_;
      draft.model.layers = m.layers, draft.model.hidden = m.hidden, draft.model.heads = m.heads;
      if (draft.model.vocab == 0) draft.model.vocab = m.vocab;
      if (draft.spec.shape.sequence == 0) draft.spec.shape.sequence = m.max_sequence;
    }
    if (script->configured && script->deepspeed.empty())
      engine_file(*script->configured, scripts.back(), speeds, reading);
    if (!speeds.empty() || !script->deepspeed.empty()) {
      const std::string& text = speeds.empty() ? script->deepspeed : speeds.front().text;
      engine(text, speeds.empty() ? file : speeds.front().name, reading, draft);
    }
    finish_megatron(reading, draft, {file, 1, 1, 1});
    if (given_model_) {
      draft.model = *given_model_;
    } else {
      name_model(draft.model, question_, file);
      from_.push_back(fmt::format("{}: model, mesh, batch, precision, optimizer", file_name(file)));
    }
    for (std::string& one : script->assumed) assumed_.push_back(std::move(one));
    return give(reading, std::move(draft), "Megatron-LM", script->per_node);
  }

  /// A configuration of DeepSpeed's that a script names is one of the files given.
  void engine_file(const GivenValue& named, const RunFile& script, const std::vector<RunFile>& speeds,
                   Reading& reading) {
    const std::string name = file_name(named.text), shown = named.missing.empty() ? name : named.missing;
    if (speeds.empty())
      return reading.error(
          "E0654", named.where,
          fmt::format("DeepSpeed's configuration {} is not among the files given", base::quoted(shown)),
          named.missing.empty()
              ? fmt::format("give {} too: orrery import {} {}", name, file_name(script.name), name)
              : fmt::format("give that file too: orrery import {} CONFIG.json", file_name(script.name)));
    if (named.missing.empty() && name != file_name(speeds.front().name))
      assumed_.push_back(fmt::format("{} stands for {}", file_name(speeds.front().name), name));
  }

  /// What DeepSpeed's engine is told beside a script's flags: partitions and offload.
  void engine(const std::string& text, const std::string& file, Reading& reading, Draft& into) const {
    auto given = json_settings(text, file);
    if (!given) {
      reading.errors.insert(reading.errors.end(), given.error().begin(), given.error().end());
      return;
    }
    Reading own("DeepSpeed");
    Draft draft = deepspeed_defaults();
    apply_set(*given, deepspeed_settings_table(), question_);
    read_settings(deepspeed_settings_table(), *given, own, draft);
    reading.take(own);
    into.spec.states.zero_stage = std::max(into.spec.states.zero_stage, draft.spec.states.zero_stage);
    if (draft.spec.offload.optimizer != Space::device) into.spec.offload.optimizer = draft.spec.offload.optimizer;
    if (draft.spec.offload.parameters != Space::device) into.spec.offload.parameters = draft.spec.offload.parameters;
    if (into.spec.numerics.precision == models::DType::fp32)
      into.spec.numerics.precision = draft.spec.numerics.precision;
    into.open["deepspeed"] = 1;
  }

  base::Result<ImportedRun> torchtitan(const RunFile& file) {
    auto given = toml_settings(file.text, file.name);
    if (!given) return tl::unexpected(given.error());
    Reading reading("torchtitan");
    Draft draft = torchtitan_defaults();
    apply_set(*given, torchtitan_settings_table(), question_);
    read_settings(torchtitan_settings_table(), *given, reading, draft);
    const std::string name = draft.words["model.name"], flavor = draft.words["model.flavor"];
    if (name.empty() && flavor.empty() && draft.open.empty() && !reading.failed())
      return base::fail({run_problem("E0651", {file.name, 1, 1, 1}, "no section of torchtitan's is in this TOML",
                                     "torchtitan's job configuration: [model], [training], [parallelism] …")});
    if (!given_model_) {
      for (const TorchtitanModel& one : torchtitan_models())
        if (name == one.name && (flavor == one.flavor || flavor.starts_with(std::string(one.flavor) + "_")))
          catalogue_ = one.catalogue;
      if (catalogue_.empty()) {
        reading.error("E0654", place_of_model(*given, file),
                      fmt::format("the catalogue has no counterpart of torchtitan's model {} {}", base::quoted(name),
                                  base::quoted(flavor)),
                      "name its model with --model: the catalogue's, a model YAML, or a config.json");
        return base::fail(std::move(reading.errors));
      }
      auto model = question_.find_model(catalogue_);
      if (!model) return tl::unexpected(model.error());
      given_model_ = std::move(*model);
      from_.push_back(fmt::format("{}: the model's name, {} of the catalogue", file_name(file.name), catalogue_));
    }
    from_.push_back(file_name(file.name) + ": mesh, batch, precision, optimizer");
    draft.model = *given_model_;
    const auto shards = draft.open.find("parallelism.data_parallel_shard_degree");
    const bool all_said = shards != draft.open.end() && shards->second >= 1;
    draft.ranks = all_said || reading.failed() ? question_.ranks : ranks(0);
    finish_torchtitan(reading, draft, {file.name, 1, 1, 1});
    return give(reading, std::move(draft), "torchtitan", 0);
  }
  static base::Location place_of_model(const std::vector<Given>& given, const RunFile& file) {
    for (const Given& one : given)
      if (one.key == "model.flavor" || one.key == "model.name") return one.where;
    return {file.name, 1, 1, 1};
  }

  base::Result<ImportedRun> deepspeed(const RunFile& file) {
    auto given = json_settings(file.text, file.name);
    if (!given) return tl::unexpected(given.error());
    if (!given_model_)
      return base::fail(
          {run_problem("E0654", {file.name, 1, 1, 1}, "DeepSpeed's configuration says nothing of the model",
                       "give its config.json beside it, or name it with --model")});
    Reading reading("DeepSpeed");
    Draft draft = deepspeed_defaults();
    apply_set(*given, deepspeed_settings_table(), question_);
    read_settings(deepspeed_settings_table(), *given, reading, draft);
    draft.model = *given_model_;
    if (draft.spec.shape.sequence == 0) {
      draft.spec.shape.sequence = std::max<std::int64_t>(1, draft.model.max_sequence);
      assumed_.push_back(fmt::format("sequences of {}, the model's longest: --set sequence_length gives others",
                                     draft.spec.shape.sequence));
    }
    // All three batches say how many there are; two leave the accumulation open.
    const bool follow = draft.open.contains("train_batch_size") && draft.open.contains("gradient_accumulation_steps") &&
                        draft.spec.shape.micro_batch > 0;
    draft.ranks = follow || reading.failed() ? question_.ranks : ranks(0);
    finish_deepspeed(reading, draft, {file.name, 1, 1, 1});
    from_.push_back(fmt::format("{}: {}batch, precision, ZeRO, optimizer", file_name(file.name),
                                follow && question_.ranks == 0 ? "ranks, " : ""));
    return give(reading, std::move(draft), "DeepSpeed", 0);
  }

  base::Result<ImportedRun> give(Reading& reading, Draft draft, const char* framework, int per_node) {
    if (reading.failed()) {
      base::Diagnostics all = std::move(reading.errors);
      return base::fail(std::move(all));
    }
    ImportedRun out;
    out.framework = framework;
    out.model = std::move(draft.model);
    if (framework == std::string("Megatron-LM") && given_model_) out.model = *given_model_;
    out.model_name = catalogue_;
    out.spec = std::move(draft.spec);
    out.training = std::move(draft.training);
    out.stack = std::move(draft.stack);
    out.per_node = per_node;
    take_optimizer(out.spec, out.training);
    for (const std::string& one : from_) out.notes.push_back("From " + one);
    for (const std::string& one : assumed_) out.notes.push_back("Assumed: " + one);
    for (const std::string& one : reading.assumed) out.notes.push_back("Assumed: " + one);
    for (const std::string& one : reading.passed_over()) {
      std::string said = one;
      said.front() = 'N';
      out.notes.push_back(std::move(said));
    }
    for (const base::Diagnostic& one : reading.warnings)
      out.notes.push_back(fmt::format("{} (line {})", one.message, one.where.line));
    out.warnings = std::move(reading.warnings);
    return out;
  }

  const RunQuestion& question_;
  std::map<RunFormat, std::vector<RunFile>> by_format_;
  std::optional<models::Model> given_model_;
  std::string catalogue_;
  std::vector<std::string> from_, assumed_;
};

}  // namespace

base::Result<ImportedRun> import_run(const std::vector<RunFile>& files, const RunQuestion& question) {
  return RunImport(files, question).run();
}

}  // namespace orrery::plan
