// Tells files apart by their keys.
#include "apps/input_kinds.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include "apps/files.h"

namespace orrery::apps {
namespace fs = std::filesystem;
namespace {

/// A kind of file: the keys at its top that only it has, what it is called, and what to do with one. `{}`: the file.
struct KnownKind {
  InputKind kind;
  std::vector<const char*> keys;  ///< all of them; messages point at the first
  const char* name;
  const char* use;
};

const std::vector<KnownKind>& known_kinds() {
  static const std::vector<KnownKind> all = {
      {InputKind::printed,
       {"command", "result"},
       "what a verb prints with --json",
       "name the file that the verb was given; `orrery report` shows what plan and simulate print"},
      {InputKind::plan, {"format_version", "plan"}, "a plan", "`orrery simulate {0}` predicts it"},
      {InputKind::job, {"batch", "model"}, "a job", "`orrery plan {0} -o plan.yaml` makes a plan from it"},
      {InputKind::calibration, {"calibration", "parameters"}, "a calibration", "`--calibration {0}` predicts with it"},
      {InputKind::stack, {"stack", "parameters"}, "a software stack", "a job names it: `stack: {0}`"},
      {InputKind::cluster,
       {"device", "node"},
       "a cluster",
       "`orrery explain --cluster {0}` shows it; `orrery init --model MODEL --cluster {0}` writes a job for it"},
      {InputKind::cluster,
       {"like"},
       "a cluster",
       "`orrery explain --cluster {0}` shows it; `orrery init --model MODEL --cluster {0}` writes a job for it"},
      {InputKind::model,
       {"family", "layers"},
       "a model",
       "`orrery model {0}` shows it; `orrery init --model {0} --cluster CLUSTER` writes a job for it"},
      {InputKind::model,
       {"model_type"},
       "a model of Hugging Face's",
       "`orrery model {0}` shows it; `orrery init --model {0} --cluster CLUSTER` writes a job for it"},
      {InputKind::rows,
       {"results"},
       "a file of published runs",
       "`orrery validate {0}` compares them with predictions"}};
  return all;
}

const KnownKind* known_kind_of(const base::Cursor& root) {
  if (!root.exists() || !root.is_map()) return nullptr;
  for (const KnownKind& one : known_kinds())
    if (std::all_of(one.keys.begin(), one.keys.end(), [&](const char* key) { return root.has(key); })) return &one;
  return nullptr;
}

/// What to do about a file of another kind than the one that is wanted.
std::string help_with_kind(const KnownKind& is, InputKind wanted, const std::string& file) {
  const bool part = wanted == InputKind::model || wanted == InputKind::cluster;
  const char* name = wanted == InputKind::model ? "model" : "cluster";
  if (is.kind == InputKind::plan && part)
    return fmt::format("its `{}:` holds the {}, which can be copied into a file", name, name);
  if (is.kind == InputKind::job && part) return fmt::format("name the {} that it names here", name);
  std::string help = fmt::format(fmt::runtime(is.use), file == kStandardInput ? "FILE" : file);
  if (is.kind == InputKind::plan && wanted == InputKind::job)
    help += "; its `job:` holds the job that it was made from, which can be copied into a file";
  if (is.kind == InputKind::printed && wanted == InputKind::plan)
    help =
        "name the plan that the verb was given; `orrery plan JOB -o plan.yaml` makes one. `orrery report` shows what "
        "plan and simulate print";
  return help;
}

}  // namespace

const char* name_of(InputKind kind) {
  const auto& all = known_kinds();
  const auto found = std::find_if(all.begin(), all.end(), [&](const KnownKind& one) { return one.kind == kind; });
  return found == all.end() ? "another file" : found->name;
}

std::string help_with_name(InputKind is, const std::string& name, InputKind wanted) {
  const auto& all = known_kinds();
  const auto found = std::find_if(all.begin(), all.end(), [&](const KnownKind& one) { return one.kind == is; });
  return found == all.end() ? std::string() : help_with_kind(*found, wanted, name);
}

base::Diagnostics other_kind(const base::Document& document, const std::string& text, InputKind wanted) {
  const base::Cursor root = document.root();
  const std::string file = document.findings().file();
  const bool one_map = wanted == InputKind::job || wanted == InputKind::plan || wanted == InputKind::model ||
                       wanted == InputKind::cluster;
  if (one_map && !root.is_map() && file.ends_with(".csv"))
    return base::fail("E0125", fmt::format("`{}` is a table, but {} is expected", file, name_of(wanted)),
                      "rows of runs go to `orrery validate FILE` and `orrery calibrate --rows FILE`, an order of a "
                      "pipeline's passes to a job's `schedule:`")
        .value();
  const KnownKind* is = known_kind_of(root);
  if (is == nullptr || is->kind == wanted) return {};
  base::Diagnostics found =
      base::fail("E0125", fmt::format("this is {}, but {} is expected", is->name, name_of(wanted)),
                 help_with_kind(*is, wanted, file))
          .value();
  // A job names the model or cluster that is wanted.
  const bool names_it = is->kind == InputKind::job && (wanted == InputKind::model || wanted == InputKind::cluster);
  const std::string key = !names_it ? is->keys.front() : wanted == InputKind::model ? "model" : "cluster";
  base::Diagnostic& one = found.front();
  one.where = root.has(key) ? root.at(key).where() : base::Location{file, 1, 1, 1};
  std::istringstream lines(text);
  for (int i = 0; i < one.where.line; ++i) std::getline(lines, one.source_line);
  return found;
}

InputKind kind_of_input(const std::string& path) {
  std::error_code error;
  if (path != kStandardInput && !fs::is_regular_file(path, error)) return InputKind::unknown;
  const auto text = read_argument(path);
  if (!text) return InputKind::unknown;
  const base::Document document = base::Document::parse(*text, path);
  const KnownKind* known = known_kind_of(document.root());
  return known == nullptr ? InputKind::unknown : known->kind;
}

base::Diagnostics wrong_kind(const std::string& text, const std::string& file, InputKind wanted) {
  return other_kind(base::Document::parse(text, file), text, wanted);
}

}  // namespace orrery::apps
