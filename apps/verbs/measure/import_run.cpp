// import of what a run of another framework is launched with: a plan, or a job that fixes it.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/verbs/measure/import.h"
#include "base/printable.h"
#include "base/units.h"
#include "clusters/read.h"
#include "cost/parameters/as_run.h"
#include "models/read/read.h"
#include "plan/frameworks/import.h"
#include "reports/json.h"

namespace orrery::apps {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kNoteWidth = 110;  // columns

/// Notes as comments, each over as many lines as it takes.
std::string comments_of(const std::vector<std::string>& notes) {
  std::string out;
  for (const std::string& note : notes) {
    std::string line = "# ";
    bool first = true;
    std::istringstream words(base::printable(note));
    for (std::string word; words >> word; first = false) {
      if (!first && line.size() + 1 + word.size() > kNoteWidth) out += std::exchange(line, "#  ") + "\n";
      line += (first ? "" : " ") + word;
    }
    out += line + "\n";
  }
  return out;
}

/// Adds to each diagnostic the line of a file that it points at.
base::Diagnostics with_lines(base::Diagnostics all, const std::vector<plan::RunFile>& files) {
  constexpr std::size_t kLongest = 240;
  for (base::Diagnostic& one : all) {
    if (!one.source_line.empty() || one.where.line < 1) continue;
    for (const plan::RunFile& file : files) {
      if (file.name != one.where.file) continue;
      std::istringstream lines(file.text);
      std::string line;
      for (int i = 0; i < one.where.line && std::getline(lines, line); ++i) {
      }
      if (line.size() <= kLongest && one.where.column <= static_cast<int>(line.size()) + 1) one.source_line = line;
    }
  }
  return all;
}

std::string stem_of(const std::string& path) {
  return fs::path(path).stem().string();
}

struct Written {
  std::string text;        ///< of the file that was asked for
  std::string model_path;  ///< of a job's own model; empty: it has a name
  std::string model_text;
};

/// A job names its model: one of the catalogue's, or a file beside it.
Written job_text(const ImportOptions& options, const plan::PlanFile& file, const plan::ImportedRun& run,
                 const std::string& notes) {
  Written out;
  plan::Job job = file.job;
  job.bounds = plan::bounds_of(run.spec, file.model);
  job.vocab_multiple = run.spec.numerics.vocab_multiple;
  if (run.model_name.empty()) {
    const std::string name = (options.output.empty() || options.output == "-" ? "job" : stem_of(options.output));
    out.model_path = (fs::path(options.output).parent_path() / (name + "-model.yaml")).string();
    out.model_text = "# The model of a job by `orrery import`.\n" + models::write_model(file.model);
    job.model = "./" + name + "-model.yaml";
  }
  out.text = "# A job by `orrery import`: its plan leaves nothing open.\n" + notes + plan::write_job(job);
  return out;
}

Written plan_text(const plan::PlanFile& file, const std::string& notes) {
  std::string text = plan::write_plan_file(file);
  text.insert(text.find('\n') + 1, "# By `orrery import`.\n" + notes);
  return {std::move(text), {}, {}};
}

/// What the files say of their software and the stack knows; the rest becomes warnings.
plan::Software software_of(const plan::ImportedRun& run, const Context& context, const std::string& file,
                           base::Diagnostics& warnings) {
  std::map<std::string, cost::Stack> others;
  const cost::FindStack find = [&](const std::string& name) -> const cost::Stack* {
    if (const auto known = others.find(name); known != others.end()) return &known->second;
    auto loaded = load_stack(context.catalog, name, {file, 0, 0, 1});
    return loaded ? &others.emplace(name, std::move(*loaded)).first->second : nullptr;
  };
  const cost::Stack* const stack = find(run.stack);
  if (stack == nullptr) return run.software;  // whoever loads it says so
  for (const cost::RefusedWord& word : cost::refused_words(*stack, run.software, find))
    warnings.push_back({base::Severity::warning,
                        "E0655",
                        {file, 1, 1, 1},
                        fmt::format("not carried over: `software: {{{}}}`, because {}", word.key, word.why),
                        word.help,
                        {}});
  return cost::known_words(*stack, run.software, find);
}

/// `warnings`: of the model that is named. It has to outlive the question.
plan::RunQuestion question_of(const ImportOptions& options, const clusters::Cluster& cluster, const Context& context,
                              base::Diagnostics& warnings) {
  plan::RunQuestion question;
  question.ranks = options.ranks;
  question.ranks_otherwise = cluster.size();
  question.model = options.model;
  question.name = stem_of(options.files.front());
  for (const std::string& one : options.settings)
    question.set[one.substr(0, one.find('='))] = one.substr(std::min(one.find('=') + 1, one.size()));
  question.find_model = [&options, &context, &warnings](const std::string& name) {
    return load_model(context.catalog, name, {options.files.front(), 0, 0, 1}, ".", &warnings);
  };
  return question;
}

}  // namespace

std::optional<Outcome> import_run(const ImportOptions& options, const std::vector<std::string>& texts,
                                  const Context& context) {
  std::vector<plan::RunFile> files;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto format = plan::run_format(texts[i], options.files[i]);
    if (!format) return std::nullopt;
    files.push_back({texts[i], options.files[i], *format});
  }
  if (options.cluster.empty())
    return bad_input({{base::Severity::error,
                       "E0654",
                       {options.files.front(), 1, 1, 1},
                       "such files do not say which GPUs and links the run has",
                       "name the cluster: --cluster hgx-h100; `orrery explain --clusters` lists them",
                       {}}});
  const auto found = load_cluster(context.catalog, options.cluster, {options.cluster, 0, 0, 1}, ".");
  if (!found) return bad_input(found.error());
  base::Diagnostics of_model;
  auto run = plan::import_run(files, question_of(options, *found, context, of_model));
  if (!run) return bad_input(with_lines(run.error(), files));
  const int ranks = run->spec.mesh.ranks();
  auto cluster = ranks == found->size() ? *found : clusters::resized(*found, ranks);
  if (!cluster) return bad_input(cluster.error());

  plan::PlanFile file;
  file.model = run->model;
  file.cluster = *cluster;
  file.job.model = run->model_name.empty() ? run->model.name : run->model_name;
  file.job.cluster = options.cluster;
  if (ranks != found->size()) file.job.devices = ranks;
  file.job.batch = run->spec.shape.batch;
  file.job.sequence = run->spec.shape.sequence;
  file.job.precision = run->spec.numerics.precision;
  file.job.stack = run->stack;
  file.job.software = software_of(*run, context, options.files.front(), run->warnings);
  file.job.training = run->training;
  file.spec = run->spec;
  // Read as any plan is: what no cluster can run is found here, with its rule.
  const auto loaded = load_made_plan(context.catalog, file, options.files.front());
  if (!loaded) {
    base::Diagnostics refused = loaded.error();
    for (base::Diagnostic& one : refused) one.where = {options.files.front(), 1, 1, 1}, one.source_line.clear();
    return bad_input(std::move(refused));
  }
  file.spec = loaded->plan.spec();

  std::vector<std::string> notes = run->notes;
  notes.insert(notes.begin(),
               fmt::format("Read from {} ({}).", fs::path(options.files.front()).filename().string(), run->framework));
  const std::string head = comments_of(notes);
  const Written written = options.as == "job" ? job_text(options, file, *run, head) : plan_text(file, head);
  Outcome outcome;
  outcome.diagnostics = std::move(of_model);
  for (base::Diagnostic& one : with_lines(std::move(run->warnings), files))
    outcome.diagnostics.push_back(std::move(one));
  if (loaded->warning) outcome.diagnostics.push_back(*loaded->warning);
  nlohmann::json inputs = nlohmann::json::array();
  for (const plan::RunFile& one : files) inputs.push_back({{"file", one.name}, {"format", plan::name_of(one.format)}});
  outcome.json =
      nlohmann::json{
          {"inputs", std::move(inputs)},
          {"framework", run->framework},
          {"path", options.output.empty() ? nlohmann::json(nullptr) : nlohmann::json(options.output)},
          {"text", written.text},
          {"model", written.model_text.empty() ? nlohmann::json(nullptr) : nlohmann::json(written.model_text)},
          {"notes", notes},
          {"split", reports::spec_json(file.spec)}}
          .dump();
  if (options.output.empty()) {
    outcome.text = written.text + (written.model_text.empty() ? "" : "---\n" + written.model_text);
    return outcome;
  }
  if (!written.model_text.empty()) context.outputs.write(written.model_path, written.model_text);
  context.outputs.write(options.output, written.text);
  outcome.text =
      fmt::format("{} on {}: {}\n", file.model.name, base::count_of(ranks, "device"), plan::describe(file.spec));
  for (const std::string& one : run->notes)
    if (one.starts_with("Assumed")) outcome.text += "  " + one + "\n";
  if (!written.model_path.empty()) outcome.text += fmt::format("{} {}\n", context.outputs.wrote(), written.model_path);
  outcome.text += fmt::format("{} {}    next: orrery {} {}\n", context.outputs.wrote(), options.output,
                              options.as == "job" ? "plan" : "explain", options.output);
  return outcome;
}

std::vector<OutputFile> run_outputs(const ImportOptions& options) {
  if (options.as != "job") return {{options.output, FileKind::plan}};
  std::vector<OutputFile> out = {{options.output, FileKind::job}};
  if (!options.output.empty() && options.output != "-")
    out.push_back({(fs::path(options.output).parent_path() / (stem_of(options.output) + "-model.yaml")).string(),
                   FileKind::model});
  return out;
}

bool is_run(const ImportOptions& options) {
  if (options.files.empty() || !options.format.empty()) return false;
  std::error_code error;
  if (!fs::is_regular_file(options.files.front(), error)) return !options.as.empty();
  const auto text = read_argument(options.files.front());
  return text && plan::run_format(*text, options.files.front()).has_value();
}

}  // namespace orrery::apps
