// Gathers the settings of a run's files; the frameworks' tables read them.
#include "plan/frameworks/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>

#include "models/read/read.h"
#include "plan/frameworks/flatten.h"
#include "plan/frameworks/launch_script.h"
#include "plan/frameworks/nemo.h"
#include "plan/frameworks/neox.h"

namespace orrery::plan {
namespace {

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

using FilesByFormat = std::map<RunFormat, std::vector<RunFile>>;

std::string last_name(const FilesByFormat& files) {
  for (const auto& [format, some] : files)
    if (!some.empty()) return some.back().name;
  return {};
}

/// E0650 unless the files are those of one run.
base::Diagnostics not_one_run(FilesByFormat& files) {
  const auto count = [&](RunFormat format) { return files[format].size(); };
  int kinds = 0;
  for (const RunFormat one :
       {RunFormat::megatron, RunFormat::torchtitan, RunFormat::deepspeed, RunFormat::nemo, RunFormat::neox})
    kinds += count(one) > 0 ? 1 : 0;
  const std::size_t most = std::max(
      {count(RunFormat::torchtitan), count(RunFormat::deepspeed), count(RunFormat::config), count(RunFormat::nemo)});
  const bool alone = count(RunFormat::torchtitan) + count(RunFormat::nemo) + count(RunFormat::neox) > 0;
  if (most > 1 || (kinds > 1 && alone))
    return {run_problem("E0650", {last_name(files), 1, 1, 1}, "these files are not one run",
                        "give the files of one run: a script, a TOML, a YAML (of GPT-NeoX several), or a JSON with "
                        "its config.json")};
  if (kinds == 0)
    return {run_problem("E0650", {last_name(files), 1, 1, 1}, "a model's config.json alone says nothing of a run",
                        "give DeepSpeed's JSON beside it; or name it in a job, model: config.json")};
  return {};
}

base::Location place_of_model(const std::vector<Given>& given, const RunFile& file) {
  for (const Given& one : given)
    if (one.key == "model.flavor" || one.key == "model.name") return one.where;
  return {file.name, 1, 1, 1};
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
    const auto& nemos = by_format_[RunFormat::nemo];
    const auto& neoxes = by_format_[RunFormat::neox];
    if (base::Diagnostics found = not_one_run(by_format_); !found.empty()) return base::fail(std::move(found));
    if (!configs.empty()) {
      auto model = models::parse_model(configs.front().text, configs.front().name, &of_model_);
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
    if (!scripts.empty() || !nemos.empty() || !neoxes.empty()) tables.push_back(megatron_settings_table());
    if (!titans.empty()) tables.push_back(torchtitan_settings_table());
    const bool configures = std::any_of(scripts.begin(), scripts.end(), [](const RunFile& one) {
      return one.text.find("deepspeed_config") != std::string::npos;
    });
    if (!neoxes.empty()) tables.push_back(neox_settings_table());
    if (!speeds.empty() || configures || !neoxes.empty()) tables.push_back(deepspeed_settings_table());
    if (base::Diagnostics unread = unread_sets(tables, scripts, question_); !unread.empty())
      return base::fail(std::move(unread));
    if (!scripts.empty()) return megatron(scripts, speeds);
    if (!nemos.empty()) return nemo(nemos.front());
    if (!neoxes.empty()) return neox(neoxes);
    return titans.empty() ? deepspeed(speeds.front()) : torchtitan(titans.front());
  }

 private:
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
    take_shapes(draft);
    if (script->configured && script->deepspeed.empty())
      engine_file(*script->configured, scripts.back(), speeds, reading);
    if (!speeds.empty() || !script->deepspeed.empty()) {
      const std::string& text = speeds.empty() ? script->deepspeed : speeds.front().text;
      auto given = json_settings(text, speeds.empty() ? file : speeds.front().name);
      if (given)
        engine(std::move(*given), reading, draft);
      else
        reading.errors.insert(reading.errors.end(), given.error().begin(), given.error().end());
    }
    finish_megatron(reading, draft, {file, 1, 1, 1});
    take_model(draft, file);
    for (std::string& one : script->assumed) assumed_.push_back(std::move(one));
    return give(reading, std::move(draft), "Megatron-LM", script->per_node);
  }

  base::Result<ImportedRun> nemo(const RunFile& file) {
    auto settings = nemo_settings(file.text, file.name);
    if (!settings) return tl::unexpected(settings.error());
    Reading reading("NeMo");
    Draft draft = megatron_defaults();
    take_flags(*settings, reading, draft);
    draft.ranks = ranks(settings->ranks);
    take_shapes(draft);
    finish_megatron(reading, draft, {file.name, 1, 1, 1});
    take_model(draft, file.name);
    return give(reading, std::move(draft), "NeMo", settings->per_node);
  }

  base::Result<ImportedRun> neox(const std::vector<RunFile>& files) {
    std::vector<std::pair<std::string_view, std::string>> texts;
    for (const RunFile& one : files) texts.emplace_back(one.text, one.name);
    auto settings = neox_settings(texts);
    if (!settings) return tl::unexpected(settings.error());
    Reading reading("GPT-NeoX");
    Draft draft = neox_defaults();
    for (const auto& [key, value] : question_.set) settings->set.insert(key);
    apply_set(settings->own, neox_settings_table(), question_);
    take_flags(*settings, reading, draft);
    engine(std::move(settings->deepspeed), reading, draft);
    const NeoxRanks said = neox_ranks(*settings, reading);
    draft.ranks = ranks(said.all);
    take_shapes(draft);
    const base::Location whole = {files.front().name, 1, 1, 1};
    begin_neox(*settings, reading, draft, whole);
    finish_megatron(reading, draft, whole);
    finish_neox(*settings, reading, draft);
    take_model(draft, files.front().name);
    if (!given_model_ && draft.model.parallel) draft.model.family = models::Family::gpt_neox;
    return give(reading, std::move(draft), "GPT-NeoX", said.per_node);
  }
  void take_flags(AsFlags& settings, Reading& reading, Draft& draft) const {
    apply_set(settings.given, megatron_settings_table(), question_);
    read_settings(megatron_settings_table(), settings.given, reading, draft);
    for (const Given& one : settings.unknown) reading.unknown(one);
    for (const auto& [one, because] : settings.passed) reading.pass_over(one, because);
    for (const auto& [one, because] : settings.left) reading.leave(one, because);
  }

  /// Shapes of a model that is given, in place of the file's own.
  void take_shapes(Draft& draft) const {
    if (!given_model_) return;
    const models::Model& m = *given_model_;
    draft.model.layers = m.layers, draft.model.hidden = m.hidden, draft.model.heads = m.heads;
    if (draft.model.vocab == 0) draft.model.vocab = m.vocab;
    if (draft.spec.shape.sequence == 0) draft.spec.shape.sequence = m.max_sequence;
  }
  /// The model that is given, or the one that the file describes.
  void take_model(Draft& draft, const std::string& file) {
    if (given_model_) {
      draft.model = *given_model_;
      return;
    }
    name_model(draft.model, question_, file);
    from_.push_back(fmt::format("{}: model, mesh, batch, precision, optimizer", file_name(file)));
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
  void engine(std::vector<Given> given, Reading& reading, Draft& into) const {
    Reading own("DeepSpeed");
    Draft draft = deepspeed_defaults();
    apply_set(given, deepspeed_settings_table(), question_);
    read_settings(deepspeed_settings_table(), given, own, draft);
    reading.take(own);
    into.spec.states.zero_stage = std::max(into.spec.states.zero_stage, draft.spec.states.zero_stage);
    if (draft.spec.offload.optimizer != Space::device) into.spec.offload.optimizer = draft.spec.offload.optimizer;
    if (draft.spec.offload.parameters != Space::device) into.spec.offload.parameters = draft.spec.offload.parameters;
    if (draft.spec.numerics.precision == models::DType::fp16) into.training.loss_scaling = draft.training.loss_scaling;
    if (into.spec.numerics.precision == models::DType::fp32)
      into.spec.numerics.precision = draft.spec.numerics.precision;
    for_each_software_field([&](const auto& field) {
      if (field.of(draft.software)) field.of(into.software) = field.of(draft.software);
    });
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
    out.model_name = catalogue_;
    out.spec = std::move(draft.spec);
    out.training = std::move(draft.training);
    out.stack = std::move(draft.stack);
    out.software = std::move(draft.software);
    const models::DType precision = out.spec.numerics.precision;
    if (precision != models::DType::fp8 && precision != models::DType::fp4)  // set, but not in use
      out.software.fp8_recipe.reset(), out.software.fp8_param_gather.reset();
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
    out.warnings = std::move(of_model_);
    out.warnings.insert(out.warnings.end(), reading.warnings.begin(), reading.warnings.end());
    return out;
  }

  const RunQuestion& question_;
  FilesByFormat by_format_;
  std::optional<models::Model> given_model_;
  base::Diagnostics of_model_;  ///< warnings of its config.json
  std::string catalogue_;
  std::vector<std::string> from_, assumed_;
};

}  // namespace

base::Result<ImportedRun> import_run(const std::vector<RunFile>& files, const RunQuestion& question) {
  return RunImport(files, question).run();
}

}  // namespace orrery::plan
