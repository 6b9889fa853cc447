// Resolves names to values. Every failure is a list of diagnostics at the place where the name was written.
#include "apps/inputs.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "apps/files.h"
#include "apps/input_kinds.h"
#include "apps/name_hints.h"
#include "apps/plan_warnings.h"
#include "base/ensure.h"
#include "base/yaml.h"
#include "clusters/read.h"
#include "cost/parameters/as_run.h"
#include "cost/parameters/habits.h"
#include "models/read/read.h"
#include "plan/lower/lower.h"
#include "plan/schedule/asynchronous.h"
#include "plan/spec/expert_loads.h"
#include "plan/spec/precision.h"
#include "plan/spec/recommender_rules.h"

namespace orrery::apps {
namespace fs = std::filesystem;
namespace {

/// Whether a name can only be a path. A dot alone does not make one: `p5.48xlarge`, `llm.c` and `llama-3.1-8b` are
/// names.
bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".yml") ||
         name.ends_with(".json");
}

constexpr std::pair<const char*, InputKind> kParts[] = {
    {kModels, InputKind::model}, {kClusters, InputKind::cluster}, {kStacks, InputKind::stack}};

/// What the catalogue has under this name, but for one of its folders.
InputKind elsewhere(const Catalog& catalog, std::string_view folder, const std::string& name) {
  for (const auto& [other, is] : kParts)
    if (other != folder && catalog.find(other, name)) return is;
  return InputKind::unknown;
}

/// The text of a job or a plan, which no name of the catalogue is.
base::Result<std::string> read_wanted(const Catalog& catalog, const std::string& argument, InputKind wanted) {
  auto text = read_argument(argument);
  std::error_code error;
  if (text || is_path(argument) || fs::exists(argument, error)) return text;
  const InputKind is = elsewhere(catalog, {}, argument);
  if (is == InputKind::unknown) return text;
  return base::fail("E0125", fmt::format("`{}` is {}, but {} is expected", argument, name_of(is), name_of(wanted)),
                    help_with_name(is, argument, wanted));
}

/// Errors of a file that could not be read, at the place that names it.
base::Diagnostics unreadable(base::Diagnostics found, const char* folder, const std::string& name,
                             const base::Location& from, const std::vector<std::string>& names) {
  // "meta-llama/Llama-2-7b-hf": an organisation and a model of Hugging Face's hub.
  const bool of_hub = folder == kModels && std::count(name.begin(), name.end(), '/') == 1 && name.front() != '/' &&
                      name.front() != '.' && !name.ends_with(".yaml") && !name.ends_with(".yml") &&
                      !name.ends_with(".json");
  for (base::Diagnostic& one : found) {
    if (from.line > 0) one.where = from;
    const std::string like = of_hub ? names_like(name, names) : std::string();
    if (!like.empty())
      one.help = fmt::format(
          "the catalogue has {}; any other model of Hugging Face's hub has to be here first: name the folder that "
          "holds "
          "its config.json",
          like);
    else if (of_hub)
      one.help =
          "a model of Hugging Face's hub has to be here first: name the folder that holds its config.json, or "
          "the file itself; `orrery model NAME` reads it, and the catalogue's names need no file";
    else if (from.line > 0 && fs::path(name).is_relative())
      one.help = fmt::format("check the path; it is relative to the folder of {}", from.file);
  }
  return found;
}

/// A file or a catalogue entry: its path and text.
base::Result<Entry> resolve(const Catalog& catalog, const char* folder, const char* kind, const std::string& name,
                            const base::Location& from, const fs::path& base_folder) {
  // As a path, an empty name would be the folder itself.
  if (name.empty())
    return base::fail({base::Diagnostic{base::Severity::error,
                                        "E0203",
                                        from,
                                        fmt::format("a {} without a name", kind),
                                        "write a catalogue name or a path",
                                        {}}});
  // `-` is standard input only on the command line: a file must name files.
  if (name == "-" && from.line == 0) {
    auto text = read_argument(name);
    if (!text) return base::fail(text.error());
    return Entry{name, std::move(*text)};
  }
  const bool looks_like_path = is_path(name);
  if (!looks_like_path)
    if (auto entry = catalog.find(folder, name)) return *entry;
  fs::path path = relative_to(base_folder, name);
  std::error_code error;
  // A Hugging Face folder, with weights beside config.json.
  if (folder == kModels && fs::is_regular_file(path / "config.json", error)) path /= "config.json";
  if (fs::exists(path, error) || looks_like_path) {
    auto text = read_file(path);
    if (text) return Entry{path, std::move(*text)};
    if (folder == kModels && fs::is_directory(path, error))
      return base::fail({base::Diagnostic{base::Severity::error,
                                          "E0201",
                                          from,
                                          fmt::format("the folder `{}` has no config.json", path.string()),
                                          "a folder of a model is one as Hugging Face's tools save it",
                                          {}}});
    return base::fail(unreadable(text.error(), folder, name, from, catalog.names(folder)));
  }
  const InputKind is = elsewhere(catalog, folder, name);
  const bool none = is == InputKind::unknown;
  const auto* wanted =
      std::find_if(std::begin(kParts), std::end(kParts), [&](const auto& part) { return part.first == folder; });
  ENSURE(wanted != std::end(kParts), "names in {}", folder);
  return base::fail({base::Diagnostic{
      base::Severity::error,
      "E0203",
      from,
      none ? fmt::format("no {} `{}` in the catalogue, and no such file", kind, name)
           : fmt::format("`{}` is {}, but a {} is expected", name, name_of(is), kind),
      none && from.line > 0 && fs::exists(name, error)
          ? fmt::format("it is in the current folder, but a path is relative to the folder of {}", from.file)
      : none ? help_with(folder, name, catalog.names(folder),
                         [&](const std::string& one) {
                           const auto cluster = describe_cluster(catalog, one);
                           return cluster ? cluster->device().name : std::string();
                         })
             : help_with_name(is, name, wanted->second),
      {}}});
}

/// Looks up catalogue entries, and cluster files by their path from `folder`.
clusters::Find finder(const Catalog& catalog, const fs::path& folder) {
  return [&catalog, folder](const std::string& name) -> std::optional<std::string> {
    if (auto entry = catalog.find(kClusters, name)) return std::move(entry->text);
    if (!name.ends_with(".yaml")) return std::nullopt;
    auto text = read_file(relative_to(folder, name));
    if (text) return std::move(*text);
    return std::nullopt;
  };
}

template <class T>
void collect(base::Diagnostics& into, const base::Result<T>& result) {
  if (!result) into.insert(into.end(), result.error().begin(), result.error().end());
}

/// Location of `key` ("stack", "software.compiled") in a map, or of the key of its nearest parent there. What a model
/// does not say, its family does.
base::Location place_under(base::Cursor at, const std::string& key) {
  std::optional<base::Location> found;
  std::optional<base::Cursor> model;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t dot = std::min(key.find('.', begin), key.size());
    const std::string part = key.substr(begin, dot - begin);
    if (!at.is_map() || !at.has(part)) {
      if (found && at.is_map()) found = model && model->has("family") ? model->at("family").where() : at.where_key();
      break;
    }
    at = at.at(part);
    if (at.path() == "model" && at.is_map()) model = at;
    found = at.where();
    begin = dot + 1;
  }
  return found.value_or(base::Location{at.findings().file(), 0, 0, 1});
}

/// The same in a file, for messages about its value; the diagnostic adds the source line.
base::Location place_of(const base::Document& document, const std::string& key) {
  return place_under(document.root(), key);
}

/// Adds to each finding in `file` its line of `text`, for the caret; lines after the end of `text` are those of
/// `--set`.
base::Diagnostics with_lines(base::Diagnostics found, const std::string& file, const std::string& text,
                             const std::vector<std::string>& settings = {}) {
  const auto own = static_cast<int>(std::count(text.begin(), text.end(), '\n')) + 1;
  for (base::Diagnostic& one : found) {
    if (one.where.file != file || one.where.line < 1 || !one.source_line.empty()) continue;
    if (const int beyond = one.where.line - own; beyond >= 1 && static_cast<std::size_t>(beyond) <= settings.size()) {
      one.where.file = "--set";
      one.where.line = beyond;
      one.source_line = settings[static_cast<std::size_t>(beyond) - 1];
      continue;
    }
    std::istringstream lines(text);
    for (int i = 0; i < one.where.line; ++i) std::getline(lines, one.source_line);
  }
  return found;
}

std::vector<base::Override> overrides_of(const std::vector<std::string>& settings) {
  std::vector<base::Override> out;
  for (const std::string& one : settings) {
    const std::size_t equals = std::min(one.find('='), one.size());
    out.push_back({one.substr(0, equals), equals < one.size() ? one.substr(equals + 1) : std::string()});
  }
  return out;
}

/// The value; of a file that could not be read as one, the kind that it is instead where that is known.
template <class T>
base::Result<T> or_other_kind(base::Result<T> read, const std::string& text, const std::string& file,
                              InputKind wanted) {
  if (read) return read;
  base::Diagnostics other = wrong_kind(text, file, wanted);
  return other.empty() ? std::move(read) : base::fail(std::move(other));
}

std::string stack_of(const plan::Job& job, const models::Model& model, const clusters::Cluster& cluster) {
  if (!job.stack.empty()) return job.stack;
  return cluster.stack.empty() ? cost::usual_stack(cluster, model, job.bounds.stages.order) : cluster.stack;
}

}  // namespace

base::Result<models::Model> load_model(const Catalog& catalog, const std::string& name, const base::Location& from,
                                       const fs::path& folder, base::Diagnostics* warnings) {
  auto entry = resolve(catalog, kModels, "model", name, from, folder);
  if (!entry) return base::fail(entry.error());
  const std::string file = entry->path.string();
  return or_other_kind(models::parse_model(entry->text, file, warnings), entry->text, file, InputKind::model);
}

base::Result<clusters::Cluster> load_cluster(const Catalog& catalog, const std::string& name,
                                             const base::Location& from, const fs::path& folder) {
  auto entry = resolve(catalog, kClusters, "cluster", name, from, folder);
  if (!entry) return base::fail(entry.error());
  const std::string file = entry->path.string();
  return or_other_kind(clusters::parse_cluster(entry->text, file, finder(catalog, entry->path.parent_path())),
                       entry->text, file, InputKind::cluster);
}

base::Result<clusters::Cluster> describe_cluster(const Catalog& catalog, const std::string& name) {
  auto entry = resolve(catalog, kClusters, "cluster", name, {name, 0, 0, 1}, ".");
  if (!entry) return base::fail(entry.error());
  return clusters::parse_description(entry->text, entry->path.string(), finder(catalog, entry->path.parent_path()));
}

base::Result<clusters::Known> load_known(const Catalog& catalog) {
  const auto entry = catalog.find(kImport, "known");
  if (!entry)
    return base::fail("E0203", "clusters/import/known.yaml is missing from the catalogue", "install Orrery again");
  return clusters::parse_known(entry->text, entry->path.string());
}

base::Result<cost::Stack> load_stack(const Catalog& catalog, const std::string& name, const base::Location& from,
                                     const fs::path& folder) {
  auto entry = resolve(catalog, kStacks, "software stack", name, from, folder);
  if (!entry) return base::fail(entry.error());
  const std::string file = entry->path.string();
  return or_other_kind(cost::parse_stack(entry->text, file), entry->text, file, InputKind::stack);
}

base::Result<cost::Stacks> load_stacks(const Catalog& catalog, const std::string& name, const base::Location& from,
                                       const plan::Software& software, const PlaceOf& place) {
  auto named = load_stack(catalog, name, from);
  if (!named) return base::fail(named.error());
  std::map<std::string, cost::Stack> others;
  base::Diagnostics found;
  const auto find = [&](const std::string& other) -> const cost::Stack* {
    if (const auto known = others.find(other); known != others.end()) return &known->second;
    const bool of_word = software.gemm_rate_of == other;
    auto loaded = load_stack(catalog, other, of_word ? place("software.gemm_rate_of") : from);
    if (!loaded) collect(found, loaded);
    return loaded ? &others.emplace(other, std::move(*loaded)).first->second : nullptr;
  };
  const std::vector<cost::RefusedWord> refused = cost::refused_words(*named, software, find);
  if (!found.empty()) return base::fail(std::move(found));
  for (const cost::RefusedWord& word : refused)
    found.push_back({base::Severity::error,
                     "P147",
                     place("software." + word.key),
                     fmt::format("`software: {{{}}}` has no meaning here: {}", word.key, word.why),
                     word.help,
                     {}});
  if (!found.empty()) return base::fail(std::move(found));
  cost::Stacks stacks(std::move(*named), find, software);
  if (!found.empty()) return base::fail(std::move(found));
  return stacks;
}

namespace {

/// An error if the devices have no matrix units for a type.
base::Diagnostics without_units(const clusters::Device& device, models::DType precision, const base::Location& at) {
  if (plan::computes_in(device, precision)) return {};
  const char* instead = models::name_of(plan::instead_of(device, precision));
  return {base::Diagnostic{base::Severity::error,
                           "P103",
                           at,
                           fmt::format("{} has no matrix units for {}", device.name, models::name_of(precision)),
                           fmt::format("precision: {}", instead),
                           {}}};
}

/// An error if the job asks for fused attention and the software has no kernels for the devices. `named`: it names one
/// of CUDA's, which accelerators besides GPUs do not run.
base::Diagnostics without_kernels(const cost::Stack& stack, const clusters::Device& device, bool asked, bool named,
                                  const base::Location& at) {
  const bool other = named && device.kind == clusters::DeviceKind::accelerator;
  if (!asked || !stack.flash || (stack.attends_fused(device) && !other)) return {};
  return {base::Diagnostic{base::Severity::error,
                           "P145",
                           at,
                           fmt::format("{} has no kernels of fused attention for {}", stack.name, device.name),
                           named ? "leave out `attention_kernel`, or attention_kernel: math" : "flash: false",
                           {}}};
}

}  // namespace

namespace {

/// The finding at the key of this text, or of its nearest parent there; without a text at its file.
base::Diagnostic at_key(const std::string& file, const std::string& text, const std::vector<std::string>& settings,
                        const std::string& key, base::Diagnostic found) {
  const base::Document document = base::Document::parse(text, file, overrides_of(settings));
  if (document.root().exists()) found.where = place_of(document, key);
  if (!document.root().exists() || found.where.line == 0) found.where = {file, 1, 1, 1};
  return with_lines({std::move(found)}, file, text, settings).front();
}

}  // namespace

base::Diagnostic LoadedJob::at(const std::string& key, base::Diagnostic found) const {
  return at_key(file, text, settings, key, std::move(found));
}

base::Diagnostic LoadedPlan::at(const std::string& key, base::Diagnostic found) const {
  return at_key(name, text, {}, key, std::move(found));
}

base::Result<LoadedJob> load_job(const Catalog& catalog, const std::string& path, base::Diagnostics& warnings,
                                 const std::vector<std::string>& settings) {
  auto text = read_wanted(catalog, path, InputKind::job);
  if (!text) return base::fail(text.error());
  const base::Document document = base::Document::parse(*text, path, overrides_of(settings));
  const base::Cursor root = document.root();
  if (!root.exists()) return base::fail(document.findings().all());
  if (base::Diagnostics other = other_kind(document, *text, InputKind::job); !other.empty())
    return base::fail(std::move(other));
  std::optional<plan::Job> job = plan::read_job(root);
  base::Diagnostics findings = document.close();
  if (document.findings().failed()) return base::fail(std::move(findings));
  warnings.insert(warnings.end(), findings.begin(), findings.end());
  const fs::path folder = fs::absolute(path).parent_path();
  auto model = load_model(catalog, job->model, place_of(document, "model"), folder, &warnings);
  auto cluster = load_cluster(catalog, job->cluster, place_of(document, "cluster"), folder);
  base::Diagnostics found;
  collect(found, model);
  collect(found, cluster);
  if (cluster && job->devices > 0) {
    cluster = clusters::resized(*cluster, job->devices);
    if (!cluster)
      for (base::Diagnostic one : cluster.error()) {
        one.where = place_of(document, "devices");
        found.push_back(std::move(one));
      }
  }
  // A plan made from the job must work from any folder.
  if (is_path(job->stack)) job->stack = relative_to(folder, job->stack).string();
  if (auto& other = job->software.gemm_rate_of; other && is_path(*other)) other = relative_to(folder, *other).string();
  if (!found.empty() && !job->stack.empty())
    collect(found, load_stack(catalog, job->stack, place_of(document, "stack")));
  if (!found.empty()) return base::fail(with_lines(std::move(found), path, *text, settings));

  auto stacks = load_stacks(catalog, stack_of(*job, *model, *cluster),
                            place_of(document, job->stack.empty() ? "cluster" : "stack"), job->software,
                            [&](const std::string& key) { return place_of(document, key); });
  if (!stacks) return base::fail(with_lines(stacks.error(), path, *text, settings));
  if (root.is_map() && !root.has("precision") && !model->recommender)
    job->precision = plan::usual_precision(cluster->device());
  const bool said_fused = plan::attends_fused(job->software);
  base::Diagnostics lacking = without_units(cluster->device(), job->precision, place_of(document, "precision"));
  for (base::Diagnostic& one :
       without_kernels(stacks->named(), cluster->device(), job->bounds.numerics.flash.value_or(said_fused), said_fused,
                       place_of(document, said_fused ? "software.attention_kernel" : "plan.flash")))
    lacking.push_back(std::move(one));
  if (!lacking.empty()) return base::fail(with_lines(std::move(lacking), path, *text, settings));

  if (!job->bounds.stages.order_file.empty()) {
    const std::string order = relative_to(folder, std::exchange(job->bounds.stages.order_file, {})).string();
    auto table = read_file(order);
    if (!table) return base::fail(table.error());
    auto passes = plan::PassOrder::parse_csv(*table, order);
    if (!passes) return base::fail(with_lines(passes.error(), order, *table));
    job->bounds.stages.passes = std::move(*passes);
  }
  if (!job->expert_loads.from.empty()) {
    job->expert_loads.from = relative_to(folder, job->expert_loads.from).string();
    const std::string log = (fs::path(job->expert_loads.from) / "metrics.jsonl").string();
    auto lines = read_file(log);
    if (!lines) return base::fail(lines.error());
    auto loads = plan::loads_of_log(*lines, log, model->experts, model->expert_layers(model->blocks()));
    if (!loads) return base::fail(with_lines(loads.error(), log, *lines));
    job->expert_loads.layers = std::move(*loads);
  }
  if (model->recommender) {
    if (!root.has("training") || !root.at("training").has("optimizer"))
      job->training.optimizer = plan::usual_table_optimizer();
    if (base::Diagnostics refused = plan::refused_training(job->training); !refused.empty()) {
      for (base::Diagnostic& one : refused) one.where = place_of(document, "training");
      return base::fail(with_lines(std::move(refused), path, *text, settings));
    }
  }
  if (base::Diagnostics refused = plan::refused_data(*model, job->training); !refused.empty()) {
    refused.front().where = root.at("training").at("data").where();
    return base::fail(with_lines(std::move(refused), path, *text, settings));
  }
  const bool longest = job->sequence == 0;
  if (longest) job->sequence = model->max_sequence;
  if (job->training.dropout) model->dropout = *job->training.dropout;
  if (job->training.lora) model->lora = *job->training.lora;
  plan::Training& training = job->training;
  if (!training.data.empty()) training.data = relative_to(folder, training.data).string();
  if (!training.tokenizer.empty()) training.tokenizer = relative_to(folder, training.tokenizer).string();
  if (training.evaluation && !training.evaluation->data.empty())
    training.evaluation->data = relative_to(folder, training.evaluation->data).string();
  if (!training.initial_weights.empty())
    training.initial_weights = relative_to(folder, training.initial_weights).string();
  return LoadedJob{std::move(*job),
                   std::make_shared<const models::Model>(std::move(*model)),
                   std::make_shared<const clusters::Cluster>(std::move(*cluster)),
                   std::move(*stacks),
                   path,
                   std::move(*text),
                   settings,
                   longest};
}

base::Result<LoadedPlan> load_plan_in(const Catalog& catalog, const base::Document& document, const base::Cursor& at) {
  plan::PlanFile file = plan::read_plan_file(at);
  at.finish();
  const std::string& path = document.findings().file();
  const auto place = [&](const char* key) {
    return at.is_map() && at.has(key) ? at.at(key).where() : base::Location{path, 0, 0, 1};
  };
  document.findings().sort();
  if (document.findings().failed()) return base::fail(document.findings().all());
  auto plan = plan::make_plan(std::make_shared<const models::Model>(file.model),
                              std::make_shared<const clusters::Cluster>(file.cluster), file.spec);
  if (!plan) {
    base::Diagnostics found = plan.error();
    for (base::Diagnostic& one : found)
      if (one.where.file.empty()) one.where = place("plan");
    return base::fail(std::move(found));
  }
  const auto place_in_job = [&](const std::string& key) { return place_under(at.optional("job"), key); };
  auto stacks = load_stacks(catalog, stack_of(file.job, file.model, file.cluster), place("cluster"), file.job.software,
                            place_in_job);
  if (!stacks) return base::fail(stacks.error());
  base::Diagnostics lacking = without_units(file.cluster.device(), file.spec.numerics.precision, place("plan"));
  const bool said_fused = plan::attends_fused(file.job.software);
  for (base::Diagnostic& one : without_kernels(stacks->named(), file.cluster.device(), said_fused, said_fused,
                                               place_in_job("software.attention_kernel")))
    lacking.push_back(std::move(one));
  if (!lacking.empty()) return base::fail(std::move(lacking));
  cost::Stack stack = stacks->of(file.spec.states.zero_stage, file.cluster);
  auto warning = beyond_software(*stacks, file.spec, [&](const std::string& key, base::Diagnostic found) {
    found.where = place_under(at, key);
    return found;
  });
  return LoadedPlan{std::move(file), std::move(*plan), std::move(stack), std::move(*stacks), std::move(warning), path};
}

namespace {

base::Result<LoadedPlan> plan_of(const Catalog& catalog, const base::Result<std::string>& text,
                                 const std::string& path) {
  if (!text) return base::fail(text.error());
  const base::Document document = base::Document::parse(*text, path);
  if (!document.root().exists()) return base::fail(document.findings().all());
  if (base::Diagnostics other = other_kind(document, *text, InputKind::plan); !other.empty())
    return base::fail(std::move(other));
  auto loaded = load_plan_in(catalog, document, document.root());
  if (!loaded) return loaded;
  loaded->text = *text;
  if (loaded->warning) loaded->warning = with_lines({*loaded->warning}, path, *text).front();
  return loaded;
}

}  // namespace

base::Result<LoadedPlan> load_plan(const Catalog& catalog, const std::string& path) {
  return plan_of(catalog, read_file(path), path);
}

base::Result<LoadedPlan> load_plan_argument(const Catalog& catalog, const std::string& argument) {
  if (std::error_code error; fs::is_regular_file(fs::path(argument) / "plan.yaml", error))
    return base::fail({base::Diagnostic{base::Severity::error,
                                        "E0125",
                                        {argument, 0, 0, 1},
                                        "this is the directory of a run, but a plan is expected",
                                        fmt::format("its plan is {}", (fs::path(argument) / "plan.yaml").string()),
                                        {}}});
  return plan_of(catalog, read_wanted(catalog, argument, InputKind::plan), argument);
}

base::Result<LoadedPlan> load_made_plan(const Catalog& catalog, const plan::PlanFile& file, const std::string& name) {
  return plan_of(catalog, plan::write_plan_file(file), name);
}

LoadedJob job_of(const LoadedPlan& loaded) {
  LoadedJob job{loaded.file.job,
                std::make_shared<const models::Model>(loaded.file.model),
                std::make_shared<const clusters::Cluster>(loaded.file.cluster),
                loaded.stacks,
                {},
                {},
                {}};
  const plan::PlanSpec& spec = loaded.plan.spec();
  job.job.batch = spec.shape.batch;
  job.job.sequence = spec.shape.sequence;
  job.job.precision = spec.numerics.precision;
  job.job.vocab_multiple = spec.numerics.vocab_multiple;
  return job;
}

base::Result<std::vector<cost::Calibration>> load_calibrations(const Catalog& catalog,
                                                               const std::vector<std::string>& files) {
  std::vector<cost::Calibration> calibrations;
  base::Diagnostics found;
  const auto read = [&](const std::string& text, const std::string& name) {
    auto calibration = or_other_kind(cost::parse_calibration(text, name), text, name, InputKind::calibration);
    if (calibration)
      calibrations.push_back(std::move(*calibration));
    else
      found.insert(found.end(), calibration.error().begin(), calibration.error().end());
  };
  for (const std::string& name : catalog.names(kCalibrated))
    if (auto entry = catalog.find(kCalibrated, name)) read(entry->text, entry->path.string());
  for (const std::string& file : files) {
    auto text = read_argument(file);
    if (text)
      read(*text, file);
    else
      found.insert(found.end(), text.error().begin(), text.error().end());
  }
  if (!found.empty()) return base::fail(std::move(found));
  return calibrations;
}

base::Result<cost::Intervals> load_intervals(const Catalog& catalog) {
  const auto entry = catalog.find("cost", "intervals");
  return entry ? cost::parse_intervals(entry->text, entry->path.string()) : cost::Intervals{};
}

}  // namespace orrery::apps
