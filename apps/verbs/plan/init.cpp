// init: writes a commented job to begin with, without asking anything.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "apps/catalog.h"
#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/verbs/verb.h"
#include "base/ensure.h"
#include "base/units.h"
#include "base/yaml.h"
#include "clusters/cluster.h"
#include "models/layers/counts.h"
#include "models/read/read.h"
#include "plan/spec/dlrm_arguments.h"
#include "plan/spec/fields.h"
#include "plan/spec/precision.h"
#include "plan/spec/recommender_rules.h"

namespace orrery::apps {
namespace {

struct InitOptions {
  std::string model = "tiny-gpt";
  std::string dlrm;                      ///< arguments of the public DLRM benchmark, instead of a model
  std::string cluster;                   ///< empty: as many CPU ranks as this machine has cores for
  std::int64_t batch = 0, sequence = 0;  ///< 0: four per device; the model's longest
  std::string output = "job.yaml";       ///< "-": stdout
  bool overwrite = false;
};

constexpr std::size_t kComments = 28;  // column at which comments begin
constexpr std::size_t kWide = 100;     // columns
constexpr double kMostShown = 1024;    // larger bounds are not shown: they only say that there is one

/// Comments that are no keys.
std::string prose(const std::string& indent, const std::string& comment) {
  std::string out, line = indent + "##";
  std::istringstream words(comment);
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kWide) out += std::exchange(line, indent + "##") + "\n";
    line += " " + word;
  }
  return out + line + "\n";
}

/// `text` with its comment beside it, or above where the line would be too wide.
std::string said(const std::string& text, const std::string& comment) {
  const std::string beside = fmt::format("{:<{}} # {}\n", text, kComments, comment);
  if (beside.size() <= kWide) return beside;
  return prose(text.substr(0, text.find_first_not_of(' ')), comment) + text + "\n";
}

/// The largest catalogue cluster of CPU ranks that this machine has cores for.
std::string cluster_here() {
  int ranks = 1;
  while (ranks < 8 && 2 * ranks <= static_cast<int>(std::thread::hardware_concurrency())) ranks *= 2;
  return fmt::format("localhost-{}", ranks);
}

/// Of a transformer four sequences per device: small enough to fit, large enough for every split to have work. Of a
/// recommendation model 512 samples per device, as MLPerf's runs have (65,536 on 128).
std::int64_t batch_for(const clusters::Cluster& cluster, bool clicks) {
  return (clicks ? 512 : 4) * static_cast<std::int64_t>(cluster.size());
}

/// Tokens of a sequence that the job begins with: what the model takes, but no more than pretraining mostly uses. A
/// model that takes more was trained on more only at the end.
std::int64_t sequence_for(const models::Model& model) {
  constexpr std::int64_t kMostUsual = 8192;
  return std::min<std::int64_t>(model.max_sequence, kMostUsual);
}

/// A path of the command line as the job writes it: relative to the job's own folder. Names of the catalogue stay.
std::string from_job(const Catalog& catalog, const char* folder, const std::string& name, const std::string& job) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool in_catalogue = name.find('/') == name.npos && catalog.find(folder, name).has_value();
  if (in_catalogue || job == "-" || fs::path(name).is_absolute() || !fs::exists(name, error)) return name;
  return fs::absolute(name).lexically_normal().lexically_proximate(fs::absolute(job).lexically_normal().parent_path());
}

template <class T>
std::string choices(const plan::FieldInfo& field) {
  if constexpr (std::is_same_v<T, bool>)
    return "false, true";
  else if constexpr (std::is_same_v<T, plan::Order>)  // `custom` is what plan files call an order from a file
    return fmt::format("{}, or a file: my-order.csv", fmt::join(field.words->begin(), field.words->end() - 1, ", "));
  else if constexpr (std::is_enum_v<T>)
    return fmt::format("{}", fmt::join(*field.words, ", "));
  else
    return field.high <= kMostShown ? fmt::format("{} to {}", field.low, field.high) : std::string();
}

/// Every key of `plan:`, commented out, from the table that reads them.
std::string free_fields() {
  std::string out, open;
  const plan::PlanSpec defaults;
  plan::for_each_field(plan::kChosenFields, [&](const auto& field) {
    using T = typename std::remove_cvref_t<decltype(field)>::Value;
    if constexpr (!plan::kIsList<T> && !plan::kIsRows<T>) {
      const std::string group = field.group;
      if (!group.empty() && group != open) out += "  # " + group + ":\n";
      open = group;
      const auto& value = field.of(defaults);
      const std::string comment =
          choices<T>(field).empty() ? field.says : fmt::format("{} ({})", field.says, choices<T>(field));
      const std::string indent = group.empty() ? "" : "  ";
      // No number says that it is absent.
      out += plan::is_absent(value)
                 ? prose("  ", fmt::format("{}{}: {}", indent, field.key, comment))
                 : said(fmt::format("  # {}{}: {}", indent, field.key, plan::value_text(field, value)), comment);
    }
  });
  return out;
}

/// The `training` part for a recommendation model.
std::string clicks_text(const plan::Training& t) {
  std::string out;
  if (t.generated)
    out +=
        said(fmt::format("  data: {}", plan::generated_text(*t.generated)), "or a file in Criteo's form: clicks.tsv");
  else
    out += said(t.data.empty() ? "  # data: clicks.tsv" : "  data: " + base::yaml_text(t.data),
                "samples in Criteo's form, one per line, or its .bin; or {generate: {samples: 100000}}");
  if (t.order == plan::DataOrder::shuffled) out += "  order: shuffled\n";
  out += said("  # initial_weights: w.safetensors", "random without it");
  const std::string rate = fmt::format("learning_rate: {}", t.optimizer.learning_rate);
  const bool momentum = plan::traits_of(t.optimizer.kind).keys.momentum;
  out += said(fmt::format("  optimizer: {{name: {}, {}, {}}}", name_of(t.optimizer.kind), rate,
                          momentum ? "momentum: 0" : fmt::format("epsilon: {}", t.optimizer.epsilon)),
              "sgd with momentum: 0, rowwise_adagrad or adam");
  if (t.schedule.warmup_steps > 0)
    out += fmt::format("  learning_rate_schedule: {{warmup_steps: {}}}\n", t.schedule.warmup_steps);
  if (t.categories) out += fmt::format("  categories: {}\n", plan::name_of(*t.categories));
  out += said("  # bad_lines: skip", "skip and count samples that cannot be read");
  return out + said(fmt::format("  seed: {}", t.seed), "of weights and shuffling");
}

/// Defaults for a recommendation model.
plan::Training usual_clicks() {
  plan::Training t;
  t.optimizer = plan::usual_table_optimizer();
  return t;
}

std::string job_text(const InitOptions& options, const models::Model& model, const clusters::Cluster& cluster,
                     const std::string& cluster_name, const plan::Training& clicks_training,
                     const std::vector<std::string>& notes) {
  const bool here = cluster.device().kind == clusters::DeviceKind::cpu;
  const std::string file = options.output == "-" ? "job.yaml" : options.output;
  const std::int64_t sequence = options.sequence > 0 ? options.sequence : sequence_for(model);
  std::string out =
      "# yaml-language-server: $schema=job.schema.json\n#   (the editor knows every key once you ran: orrery schema "
      "job > job.schema.json)\n# A job: what is trained, on what, and what the search may choose. Written by `orrery "
      "init`.\n#\n";
  const auto line = [&](const std::string& command, const char* does) {
    out += fmt::format("#   {:<{}} {}\n", command, std::max<std::size_t>(36, 26 + file.size()), does);
  };
  line(fmt::format("orrery plan {} -o plan.yaml", file), "the best plans; the first is kept");
  line("orrery simulate plan.yaml", "where its time and memory go");
  if (here) line("orrery train plan.yaml --run run", "run it on this machine's ranks");
  out += "#\n# Orrery decides what is commented out; docs/formats.md explains every key.\n";
  for (const std::string& note : notes) out += "# " + note + "\n";
  out += said("model: " + base::yaml_text(options.model),
              fmt::format("{} parameters; a catalogue name, a model file or a Hugging Face config.json",
                          base::human_count(static_cast<double>(models::parameters(model)))));
  out += said("cluster: " + base::yaml_text(cluster_name),
              fmt::format("{} x {}; a catalogue name or a cluster file", cluster.size(), cluster.device().name));
  out +=
      said(fmt::format("# devices: {}", cluster.size()), "of the cluster; more than it has are more of its nodes: 64");
  const bool clicks = model.recommender.has_value();
  out += said(fmt::format("batch: {}", options.batch > 0 ? options.batch : batch_for(cluster, clicks)),
              clicks ? "samples of a step, over all ranks" : "sequences of a step, over all ranks");
  if (!clicks)
    out += said(fmt::format("sequence: {}", sequence),
                fmt::format("tokens of each; the model takes {}", model.max_sequence));
  out += said(fmt::format("precision: {}", clicks ? "fp32" : models::name_of(plan::usual_precision(cluster.device()))),
              "fp32, tf32, bf16, fp16, fp8 or fp4");
  out += said("objective: time", "time, cost, energy or memory");
  out += said("# fits_probability: 0.95", "least probability that a plan fits in memory");
  out += said(fmt::format("# stack: {}", cost::usual_stack(cluster, model)),
              "the software that runs it; see `cost/stacks`");
  if (!here) out += said("# software: {autocast: true}", "how that is set up, where it differs from its file");
  out += fmt::format(
      "\n# A value fixes a field, a list bounds it: `tensor: [1, 2, 4]`. Uncomment `plan:` too.\n"
      "# data x tensor x pipeline x context is the number of devices, {}: leave one of them open.\n# plan:\n{}",
      cluster.size(), free_fields());
  out += "\ntraining:\n";
  out += said(fmt::format("  steps: {}", clicks ? clicks_training.steps : 20), "of the run");
  if (clicks) return out + clicks_text(clicks_training);
  out += here ? said("  data: /usr/share/common-licenses", "text, a folder of text, or a token file")
              : said("  # data: tokens.bin", "text, a folder of text, or a token file");
  out += said("  # initial_weights: w.safetensors", "random without it");
  out += said("  optimizer: {name: adamw, learning_rate: 1e-3}",
              fmt::format("{}", fmt::join(plan::kOptimizerWords, ", ")));
  out += "  learning_rate_schedule: {warmup_steps: 4, decay: cosine, minimum: 1e-4}\n";
  out += said("  clip_norm: 1.0", "of the gradient's global norm");
  out += said("  seed: 1", "of weights, shuffling and dropout");
  return out;
}

/// Source of a job: an existing model, or one that the benchmark's arguments describe.
struct Made {
  models::Model model;
  std::string model_file;  ///< path of a model that is written beside the job; else empty
  plan::Training clicks = usual_clicks();
  std::vector<std::string> notes;
  base::Diagnostics warnings = {};
};

base::Result<Made> make(InitOptions& options, const Context& context) {
  Made made;
  if (options.dlrm.empty()) {
    auto model = load_model(context.catalog, options.model, {options.model, 0, 0, 1}, ".", &made.warnings);
    if (!model) return base::fail(model.error());
    made.model = std::move(*model);
    options.model = from_job(context.catalog, kModels, options.model, options.output);
    return made;
  }
  auto command = plan::read_dlrm_arguments(options.dlrm);
  if (!command) return base::fail(command.error());
  std::filesystem::path file = options.output;
  file.replace_filename(file.stem().string() + "-model.yaml");
  made.model = std::move(command->model);
  made.model_file = file.string();
  made.clicks = command->training;
  made.notes = std::move(command->notes);
  options.model = file.filename().string();  // a job's paths are relative to its own folder
  if (options.batch == 0) options.batch = command->batch;
  return made;
}

Outcome run_init(const InitOptions& given, const Context& context) {
  InitOptions options = given;
  const std::string named_cluster = options.cluster.empty() ? cluster_here() : options.cluster;
  if (!options.dlrm.empty() && options.output == "-")
    return usage("--dlrm writes two files, a model and a job", "name the job: orrery init job.yaml --dlrm '…'");
  if (!options.dlrm.empty() && options.model != InitOptions{}.model)
    return usage("--dlrm describes a model, but --model names another", "use one of the two");
  const auto made = make(options, context);
  if (!made) return bad_input(made.error());
  if (made->model.positions == models::Positions::learned && options.sequence > made->model.max_sequence)
    return usage(
        fmt::format("--sequence {}: {} has {} positions", options.sequence, made->model.name, made->model.max_sequence),
        "a longer sequence needs another model");
  const auto cluster = load_cluster(context.catalog, named_cluster, {named_cluster, 0, 0, 1}, ".");
  if (!cluster) return bad_input(cluster.error());
  const std::string cluster_name = from_job(context.catalog, kClusters, named_cluster, options.output);
  std::error_code error;
  for (const std::string& file : {options.output, made->model_file})
    if (file != "-" && !file.empty() && !options.overwrite && !context.outputs.force() &&
        std::filesystem::is_regular_file(file, error))
      return Outcome{kUsage,
                     {},
                     {},
                     {{base::Severity::error,
                       "U0003",
                       {},
                       fmt::format("{} already exists", base::quoted(file)),
                       "choose another name, or replace it with --overwrite",
                       {}}}};
  if (auto refused = context.outputs.refused({{made->model_file, FileKind::job, options.overwrite}}, {});
      !refused.empty())
    return Outcome{kUsage, {}, {}, std::move(refused)};
  std::string text = job_text(options, made->model, *cluster, cluster_name, made->clicks, made->notes);
  const auto parsed = plan::parse_job(text, options.output);
  ENSURE(parsed.has_value(), "init wrote a job that does not parse: {}", base::render(parsed.error(), false));
  Outcome outcome;
  outcome.diagnostics = made->warnings;
  outcome.json = nlohmann::json{{"job", options.output}, {"model", options.model}, {"cluster", cluster_name}}.dump();
  if (options.output == "-") {
    outcome.text = std::move(text);
    return outcome;
  }
  if (!made->model_file.empty())
    context.outputs.write(made->model_file,
                          "# The model of a command line of the public DLRM benchmark. Written by `orrery init`.\n" +
                              models::write_model(made->model));
  context.outputs.write(options.output, text);
  outcome.text =
      fmt::format("{}{} trains {} on {}; next: orrery plan {}\n", context.outputs.dry_run() ? "Would write: " : "",
                  options.output, options.model, cluster_name, options.output);
  return outcome;
}

void add_init_flags(Flags flags, InitOptions& o) {
  flags.option("JOB,-o,--output", o.output, "File to write; default job.yaml, - for stdout");
  flags.option("--model", o.model, "Catalogue name, model YAML or Hugging Face config.json; default: tiny-gpt")
      .value("MODEL");
  flags.option("--dlrm", o.dlrm, "Instead of a model, arguments of the public DLRM benchmark")
      .not_empty()
      .value("'ARGS'");
  flags.option("--cluster", o.cluster, "Catalogue name or cluster YAML; default: this machine's CPU ranks")
      .value("CLUSTER");
  flags.option("--batch", o.batch, "Sequences or samples per step; default: 4 per device, of clicks 512")
      .count()
      .range(1, 1 << 24)
      .value("N");
  flags
      .option("--sequence", o.sequence, "Tokens per sequence, 2k is 2,048; default: the model's longest, 8,192 at most")
      .length()
      .range(1, 1 << 24)
      .value("N");
  flags.flag("--overwrite", o.overwrite, "Replace an existing file");
}

}  // namespace

Verb init_verb() {
  return verb_of<InitOptions>({
      .name = "init",
      .says = "Write a commented job to begin with",
      .examples = "  orrery init                                            a job for this machine\n"
                  "  orrery init llama.yaml --model llama3-8b --cluster hgx-h100\n"
                  "  orrery init dlrm.yaml --dlrm '--arch-mlp-bot=13-512-2 --loss-function=bce'",
      .flags = add_init_flags,
      .run = run_init,
      .outputs = [](const InitOptions& o) -> std::vector<OutputFile> {
        return {{o.output, FileKind::job, o.overwrite, true}};
      },
  });
}

}  // namespace orrery::apps
