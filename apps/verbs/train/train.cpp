// train: starts the worker on this machine's ranks, shows progress, and reads the results.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/interrupt.h"
#include "apps/plan_warnings.h"
#include "apps/verbs/train/preflight.h"
#include "apps/verbs/train/verify_serial.h"
#include "apps/verbs/verb.h"
#include "base/units.h"
#include "clusters/read.h"
#include "exec/data/encode_data.h"
#include "exec/launch/restart.h"
#include "exec/launch/supervise.h"
#include "exec/run/sample_child.h"
#include "plan/lower/serial.h"
#include "plan/spec/recommender_rules.h"
#include "reports/json.h"
#include "reports/tables/text.h"

namespace orrery::apps {
namespace {

struct TrainOptions {
  std::string plan;
  std::string run;
  std::optional<std::int64_t> steps;
  bool resume = false;
  bool overwrite = false;             ///< deletes an earlier run in the directory; otherwise one is refused
  std::int64_t checkpoint_every = 0;  ///< steps; 0: by time
  int keep = 2;                       ///< number of newest checkpoints to keep
  std::string on_spike = "warn";
  std::optional<std::int64_t> hash_every;  ///< steps
  int threads = 1;                         ///< per rank
  int restarts = 0;                        ///< after failures
  bool oversubscribe = false;              ///< allow more than eight ranks per core
  std::int64_t grace_s = 30;               ///< from a stop request until the ranks are killed
  std::int64_t deadline_s = 60;            ///< longest wait of one rank for others
  bool verify_serial = false;
  bool repeat = true;   ///< GPUs: only kernels that repeat bit by bit, even where others are faster
  bool sample = false;  ///< print text from the model after the run; without a plan, from `run`
  exec::SampleOptions text;
};

std::string progress_line(const exec::StepReport& report, bool samples) {
  const double share = report.steps > 0 ? static_cast<double>(report.step) / static_cast<double>(report.steps) : 0;
  const double left = static_cast<double>(report.steps - report.step) * report.step_time_s;
  const std::string again = report.lossless_again > 0
                                ? fmt::format("  {} of {} ReLUs again", report.lossless_again, report.lossless_tensors)
                                : "";
  return fmt::format("{} {}/{}  loss {:.4f}  {} a step  {} {}/s  {} left{}", bar(share, 24), report.step, report.steps,
                     report.loss, base::human(base::Seconds{report.step_time_s}),
                     base::human_count(report.tokens_per_s), samples ? "samples" : "tokens",
                     base::human(base::Seconds{left}), again);
}

int exit_code_of(exec::RunEnd end) {
  switch (end) {
    case exec::RunEnd::completed: return kOk;
    case exec::RunEnd::stopped: return kInterrupted;
    case exec::RunEnd::failed: return kFailure;
    case exec::RunEnd::timed_out: return kFailure;
    case exec::RunEnd::not_started: return kMissing;
  }
  return kFailure;
}

reports::TrainSummary summary_of(const std::string& run, const exec::Completion& done) {
  reports::TrainSummary summary;
  summary.directory = run;
  summary.steps = done.steps;
  summary.first_loss = done.first_loss;
  summary.final_loss = done.final_loss;
  summary.step_time_s = done.step_time_s;
  summary.tokens_per_s = done.tokens_per_s;
  summary.memory_peak_bytes = done.memory_peak_bytes;
  summary.completed = done.completed;
  summary.backend = done.backend;
  summary.lossless_tensors = done.lossless_tensors;
  summary.lossless_again = done.lossless_again;
  summary.lossless_densest = done.lossless_densest;
  summary.bad_lines = done.bad_lines;
  summary.held_out_auc = done.held_out_auc;
  summary.best_auc = done.best_auc;
  summary.checkpoints = done.checkpoints.count;
  summary.checkpoint_pause_s = done.checkpoints.pause_s;
  summary.checkpoint_write_s = done.checkpoints.write_s;
  summary.checkpoint_bytes = done.checkpoints.bytes;
  return summary;
}

/// The plan as a file that every rank reads. One from standard input lies in the run directory meanwhile, where the
/// first rank also copies it to plan.yaml once the run may begin there.
class RanksPlan {
 public:
  RanksPlan(const TrainOptions& options, const LoadedPlan& loaded) : path_(options.plan), given_(options.plan == "-") {
    if (!given_) return;
    path_ = std::filesystem::path(options.run) / fmt::format("plan-given-{}.yaml", ::getpid());
    write_file(path_, plan::write_plan_file(loaded.file));
  }
  ~RanksPlan() {
    std::error_code ignored;
    if (given_) std::filesystem::remove(path_, ignored);
  }
  RanksPlan(const RanksPlan&) = delete;
  RanksPlan& operator=(const RanksPlan&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool given_;
};

/// Translates the remaining options into a command for the worker.
exec::TrainCommand command_for(const TrainOptions& options, const LoadedPlan& loaded, const RanksPlan& file) {
  exec::TrainCommand command;
  command.worker = program_folder() / "orrery-worker";
  command.ranks = loaded.file.spec.mesh.ranks();
  command.plan = file.path();
  command.run = options.run;
  command.steps = options.steps.value_or(0);
  command.threads = options.threads;
  command.backend = loaded.file.cluster.device().kind != clusters::DeviceKind::cpu ? "cuda" : "cpu";
  command.resume = options.resume;
  command.overwrite = options.overwrite;
  command.checkpoint_every = options.checkpoint_every;
  command.keep = options.keep;
  command.grace = std::chrono::seconds(options.grace_s);
  command.deadline = std::chrono::seconds(options.deadline_s);
  command.stop_on_spike = options.on_spike == "stop";
  command.hash_every = options.hash_every;
  command.repeat = options.repeat || command.backend != "cuda";
  command.progress_thread = loaded.stack.overlap_data;
  command.recompute_whole_layer = loaded.stack.recompute_whole_layer;
  command.zero_gradients = loaded.stack.zero_gradients;
  return command;
}

/// Few enough that rounding stays small.
constexpr std::int64_t kComparedSteps = 20;

/// How far the serial run is from the same steps with their sums in another order, for a reader of a difference.
std::optional<reports::RoundingAlone> rounding_alone(const exec::TrainCommand& serial, const LoadedPlan& loaded,
                                                     const exec::RunWatchers& watchers) {
  const auto other = serial_in_another_order(loaded);
  if (!other) return std::nullopt;
  exec::TrainCommand command = serial;
  command.run = serial.run.parent_path() / "reordered";
  command.plan = serial.run.parent_path() / "reordered-plan.yaml";
  command.serial = false;
  write_file(command.plan, plan::write_plan_file(*other));
  if (exec::supervise(command, watchers, &Interrupt::requested()).end != exec::RunEnd::completed) return std::nullopt;
  const auto compared = compare_with_serial(command.run, serial.run, command.steps, {});
  if (!compared) return std::nullopt;
  return reports::RoundingAlone{other->spec.shape.micro_batch, compared->loss, compared->gradient_first,
                                compared->gradient_last};
}

/// Runs the same job on one rank, below the run's own directory, and compares. Appends diagnostics.
std::optional<reports::SerialComparison> verify(const exec::TrainCommand& split, const LoadedPlan& loaded,
                                                const exec::RunWatchers& watchers, Outcome& outcome) {
  const auto add = [&](const base::Diagnostics& found) {
    outcome.diagnostics.insert(outcome.diagnostics.end(), found.begin(), found.end());
    outcome.exit_code = kFailure;
    return std::nullopt;
  };
  exec::TrainCommand command = split;
  command.run = split.run / "serial";
  command.ranks = 1;
  command.serial = true;
  const exec::RunOutcome run = exec::supervise(command, watchers, &Interrupt::requested());
  if (run.end != exec::RunEnd::completed) {
    add(run.diagnostics);
    return add({base::Diagnostic{
        base::Severity::error, "R0005", {}, "the serial run failed: " + run.reason, run.error_tail, {}}});
  }
  auto compared = compare_with_serial(split.run, command.run, command.steps, serial_bounds(loaded.file.spec));
  if (!compared) return add(compared.error());
  if (!compared->equal) {
    outcome.exit_code = kCheckFailed;
    compared->rounding = rounding_alone(command, loaded, watchers);
  }
  if (split.ranks > 1) compared->rounded = rounded_only_split(loaded.plan.spec());
  return *compared;
}

/// Adds text sampled from the run to the outcome.
void add_sample(const TrainOptions& options, Outcome& outcome) {
  exec::SampleCommand command;
  command.worker = program_folder() / "orrery-worker";
  command.run = options.run;
  command.options = options.text;
  command.threads = options.threads;
  const exec::SampleOutcome sampled = exec::sample_with_worker(command, &Interrupt::requested());
  outcome.diagnostics.insert(outcome.diagnostics.end(), sampled.diagnostics.begin(), sampled.diagnostics.end());
  if (!sampled.text) {
    outcome.exit_code = Interrupt::requested().load() ? kInterrupted
                        : sampled.exit_code > 6       ? kFailure
                                                      : std::max(sampled.exit_code, 1);
    const bool said = std::any_of(sampled.diagnostics.begin(), sampled.diagnostics.end(),
                                  [](const auto& one) { return one.severity == base::Severity::error; });
    if (!said) {
      const std::string why = sampled.error_tail.substr(0, sampled.error_tail.find_last_not_of(" \n") + 1);
      outcome.diagnostics.push_back(
          {base::Severity::error, "R0005", {options.run, 0, 0, 1}, "no text was drawn", why, {}});
    }
    return;
  }
  nlohmann::json result =
      outcome.json.empty() ? nlohmann::json{{"run", options.run}} : nlohmann::json::parse(outcome.json);
  result["sample"] = {{"prompt", options.text.prompt}, {"text", *sampled.text}};
  outcome.json = result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  outcome.text += (outcome.text.empty() ? "" : "\n") + exec::printable(options.text.prompt) + *sampled.text + "\n";
}

/// Encodes a corpus before ranks start, as it takes longer than they wait for each other.
base::Result<bool> encode_text(const TrainOptions& options, const LoadedPlan& loaded, Progress& progress) {
  if (loaded.file.job.training.tokenizer.empty()) return true;
  struct Stopped {};
  try {
    const auto tokens = exec::job_tokens(
        loaded.file.job.training, loaded.file.model.vocab, options.run, [&](std::int64_t done, std::int64_t all) {
          if (Interrupt::requested()) throw Stopped();
          progress.line(fmt::format("encoding text: {} of {}", base::human(base::Bytes{static_cast<double>(done)}),
                                    base::human(base::Bytes{static_cast<double>(all)})));
        });
    progress.clear();
    if (!tokens) return base::fail(tokens.error());
  } catch (const Stopped&) {
    progress.clear();
  }
  return true;
}

/// Stopped before any rank was started.
Outcome stopped_early(const TrainOptions& options) {
  Outcome outcome;
  outcome.exit_code = kInterrupted;
  outcome.diagnostics.push_back({base::Severity::warning,
                                 "R0005",
                                 {options.plan, 0, 0, 1},
                                 "stopped before the first step: there was nothing to save",
                                 "start it again in the same way",
                                 {}});
  return outcome;
}

/// What would run on what, or why it does not.
Outcome not_run(const Preflight& before, const TrainOptions& options, const Context& context) {
  Outcome outcome;
  outcome.exit_code = before.missing() ? kMissing : kOk;
  outcome.diagnostics = before.findings;
  outcome.json = nlohmann::json{{"run", options.run}, {"preflight", preflight_json(before)}}.dump();
  outcome.text = reports::text_of(preflight_table(before), context.terminal.style);
  const std::string plan = options.plan == "-" ? "the plan from standard input" : options.plan;
  if (!before.missing()) outcome.text += fmt::format("\nWould train {} into {}\n", plan, options.run);
  return outcome;
}

/// Why a run's directory must not be made there: a file has its name, or folders outside the current one are missing.
base::Diagnostics refused_run(const TrainOptions& options, const Context& context) {
  std::error_code error;
  const std::filesystem::path run = std::filesystem::absolute(options.run, error).lexically_normal();
  if (std::filesystem::exists(run, error) && !std::filesystem::is_directory(run, error))
    return {{base::Severity::error,
             "U0003",
             {options.run, 0, 0, 1},
             fmt::format("{} is a file, but a run needs a directory", base::quoted(options.run)),
             "choose another name for --run",
             {}}};
  return context.outputs.refused_folder((run.has_filename() ? run : run.parent_path()).parent_path().string());
}

Outcome run_train(const TrainOptions& options, const Context& context) {
  if (options.plan.empty()) {
    Outcome outcome;
    add_sample(options, outcome);
    return outcome;
  }
  if (base::Diagnostics refused = refused_run(options, context); !refused.empty())
    return {kUsage, {}, {}, std::move(refused)};
  const auto loaded = load_plan_argument(context.catalog, options.plan);
  if (!loaded) return bad_input(loaded.error());
  if (base::Diagnostics refused =
          plan::refused_execution(loaded->plan.model(), loaded->plan.cluster(), loaded->plan.spec());
      !refused.empty())
    return bad_input(refused);

  const Preflight before = preflight(*loaded, options.plan, options.run, options.oversubscribe);
  if (context.outputs.dry_run() || before.missing()) return not_run(before, options, context);

  Progress progress(context.terminal.progress);
  if (const auto encoded = encode_text(options, *loaded, progress); !encoded) return bad_input(encoded.error());
  if (Interrupt::requested()) return stopped_early(options);

  const RanksPlan file(options, *loaded);
  exec::TrainCommand command = command_for(options, *loaded, file);
  if (options.verify_serial) {
    auto device = clusters::resized(loaded->file.cluster, 1);
    if (!device) return bad_input(device.error());
    if (const auto serial = plan::serial_program(loaded->plan, std::move(*device)); !serial)
      return bad_input(serial.error());
    if (command.steps == 0) command.steps = std::min(kComparedSteps, loaded->file.job.training.steps);
    command.dump_gradients = {1, command.steps};
    command.checkpoint = false;
  }

  exec::RunWatchers watchers;
  const bool samples = loaded->file.model.recommender.has_value();
  watchers.step = [&](const exec::StepReport& report) { progress.line(progress_line(report, samples)); };
  watchers.message = [&](const std::string& text) {
    if (context.quiet) return;
    progress.clear();
    std::fprintf(stderr, "%s\n", text.c_str());
  };
  if (!options.repeat && command.repeat)
    watchers.message("--no-repeat changes nothing: the CPU backend always repeats bit by bit");
  const exec::RestartedOutcome restarted =
      exec::supervise_with_restarts(command, {.most = options.restarts}, watchers, &Interrupt::requested());
  const exec::RunOutcome& run = restarted.last;
  progress.clear();

  Outcome outcome;
  outcome.exit_code = exit_code_of(run.end);
  if (run.end == exec::RunEnd::failed &&
      (run.worker_code == kBadInput || run.worker_code == kCheckFailed || run.worker_code == kMissing))
    outcome.exit_code = run.worker_code;  // the worker's codes mean the same; the launcher's may be a signal's
  if (run.completion) {
    reports::TrainSummary summary = summary_of(options.run, *run.completion);
    summary.restarts = static_cast<std::int64_t>(restarted.failures.size());
    summary.samples = samples;
    if (options.verify_serial && run.end == exec::RunEnd::completed) {
      summary.serial = verify(command, *loaded, watchers, outcome);
      progress.clear();
    }
    outcome.json = reports::train_json(summary).dump();
    outcome.text = reports::train_text(summary, context.terminal.style);
  }
  outcome.diagnostics.insert(outcome.diagnostics.begin(), run.diagnostics.begin(), run.diagnostics.end());
  outcome.diagnostics.insert(outcome.diagnostics.begin(), before.findings.begin(), before.findings.end());
  if (auto warning = changed_mathematics(loaded->plan.spec(), placing(*loaded)))
    outcome.diagnostics.insert(outcome.diagnostics.begin(), std::move(*warning));
  for (base::Diagnostic& one : outcome.diagnostics)
    if (one.where.file.empty()) one.where.file = options.plan;  // a finding without a place refers to the plan
  const bool said = std::any_of(run.diagnostics.begin(), run.diagnostics.end(),
                                [](const auto& one) { return one.severity == base::Severity::error; });
  if (run.end != exec::RunEnd::completed && !said) {
    const bool stopped = run.end == exec::RunEnd::stopped;
    outcome.diagnostics.push_back(base::Diagnostic{stopped ? base::Severity::warning : base::Severity::error,
                                                   "R0005",
                                                   {},
                                                   run.reason,
                                                   stopped ? "continue with --resume" : run.error_tail,
                                                   {}});
  }
  if (options.sample && run.end == exec::RunEnd::completed) add_sample(options, outcome);
  return outcome;
}

void add_running(Flags flags, TrainOptions& o) {
  flags.option("PLAN", o.plan, "Plan file; may be left out with --sample, which trains nothing");
  flags.option("--run", o.run, "Run directory to write").required().value("DIR");
  flags.option("--steps", o.steps, "Training steps; default: as the job says")
      .range(std::int64_t{1}, std::int64_t{1} << 40)
      .value("N");
  flags.flag("--resume", o.resume, "Continue from the run directory's newest whole checkpoint");
  flags.flag("--overwrite", o.overwrite, "Remove an earlier run from the directory and start over")
      .excludes("--resume");
  flags.option("--checkpoint-every", o.checkpoint_every, "Steps between checkpoints; default: one a minute")
      .range(std::int64_t{1}, std::int64_t{1} << 40)
      .value("N");
  flags
      .flag("--verify-serial", o.verify_serial,
            "Also run the job on one rank, and compare losses and gradients; 20 steps unless told otherwise")
      .excludes("--resume");
  flags.option("--keep", o.keep, "Number of newest checkpoints to keep; default 2").range(1, 1 << 20).value("N");
  flags.option("--restarts", o.restarts, "Restarts after failures, from the newest checkpoint")
      .range(0, 1 << 20)
      .excludes("--verify-serial")
      .value("N");
  flags
      .option("--grace", o.grace_s,
              "Seconds for saving after SIGTERM, SIGINT, SIGHUP or SIGUSR1 asks for a stop; default 30")
      .range(1, 1 << 30)
      .value("S");
  flags
      .option("--deadline", o.deadline_s,
              "Seconds that a rank may wait for another; after them the run ends and names it; default 60")
      .range(1, 1 << 30)
      .value("S");
  flags.option("--on-spike", o.on_spike, "What to do about a spike of the loss or the gradient norm; default warn")
      .one_of({"warn", "stop"})
      .value("warn|stop");
  flags
      .option("--hash-every", o.hash_every,
              "Steps between comparisons of replicas; 0: only before checkpoints; default: as often as half a "
              "percent of the time allows")
      .range(std::int64_t{0}, std::int64_t{1} << 40)
      .value("N");
  flags.option("--threads", o.threads, "Threads per rank").range(1, 1024).value("K");
  flags.flag("--oversubscribe", o.oversubscribe, "Allow more than eight ranks per core, for tests");
  flags.flag(
      "--no-repeat", [&o] { o.repeat = false; },
      "GPUs: a faster backward pass of attention, whose results do not repeat bit by bit");
}

/// Flags of `--sample`.
void add_sampling(Flags flags, TrainOptions& o) {
  exec::SampleOptions& text = o.text;
  flags.flag("--sample", o.sample, "Print text drawn from the model in the run's newest checkpoint");
  flags.option("--prompt", text.prompt, "Text to continue").value("TEXT");
  flags.option("--tokens", text.tokens, "Tokens to draw; default 128").range(0, 1 << 30).value("N");
  flags.option("--temperature", text.temperature, "0: always the most likely token; default 1")
      .range(0.0, 1e6)
      .value("T");
  flags.option("--top-k", text.top_k, "Draw from the K most likely tokens; default: from all")
      .range(1, 1 << 30)
      .value("K");
  flags.option("--sample-seed", text.seed, "Seed of the draws; default 1").value("S");
  flags.option("--tokenizer", text.tokenizer, "Vocabulary of the text; default: the job's, else bytes").value("PATH");
}

void add_train_flags(Flags flags, TrainOptions& o) {
  add_running(flags, o);
  add_sampling(flags, o);
}

}  // namespace

Verb train_verb() {
  return verb_of<TrainOptions>({
      .name = "train",
      .says = "Run a plan on this machine's ranks",
      .examples = "  orrery train plan.yaml --run runs/first                run it on this machine's ranks\n"
                  "  orrery train plan.yaml --run runs/first --dry-run      would it run here?\n"
                  "  orrery train plan.yaml --run runs/first --resume       go on from the newest checkpoint\n"
                  "  orrery train plan.yaml --run runs/check --verify-serial",
      .flags = add_train_flags,
      .run = run_train,
      .missing = [](const TrainOptions& o) { return std::string(o.plan.empty() && !o.sample ? "PLAN" : ""); },
      .saves_when_stopped = true,
  });
}

}  // namespace orrery::apps
