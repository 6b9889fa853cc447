// The supervisor: command line of the worker, its events, its end.
#include "exec/supervise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <random>

#include "exec/child.h"
#include "exec/events.h"
#include "exec/failure.h"

namespace orrery::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kTail = 16 << 10;
constexpr std::chrono::milliseconds kPoll{50};

std::string new_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::vector<std::string> worker_command(const TrainCommand& c, const std::string& run_id) {
  std::vector<std::string> out = {c.launcher,
                                  "-n",
                                  std::to_string(c.ranks),
                                  c.worker.string(),
                                  "--plan",
                                  c.plan.string(),
                                  "--run",
                                  c.run.string(),
                                  "--backend",
                                  c.backend,
                                  "--run-id",
                                  run_id,
                                  "--deadline",
                                  std::to_string(c.deadline.count())};
  const auto add = [&](const char* flag, const std::string& value) {
    out.emplace_back(flag);
    out.push_back(value);
  };
  if (c.steps > 0) add("--steps", std::to_string(c.steps));
  if (c.threads > 0) add("--threads", std::to_string(c.threads));
  add("--checkpoint-interval", std::to_string(c.checkpoint_interval.count()));
  if (c.checkpoint_every > 0) add("--checkpoint-every", std::to_string(c.checkpoint_every));
  if (!c.dump_gradients.empty()) add("--dump-gradients", fmt::format("{}", fmt::join(c.dump_gradients, ",")));
  if (c.keep != TrainCommand{}.keep) add("--keep", std::to_string(c.keep));
  if (c.resume) out.emplace_back("--resume");
  if (c.serial) out.emplace_back("--serial");
  if (!c.checkpoint) out.emplace_back("--no-checkpoint");
  if (c.progress_thread) out.emplace_back("--progress-thread");
  if (!c.repeat) out.emplace_back("--no-repeat");
  if (c.recompute_whole_layer) out.emplace_back("--recompute-whole-layer");
  return out;
}

double number(const nlohmann::json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : 0;
}

/// What is known of the run while it goes on.
class Watch {
 public:
  Watch(const TrainCommand& command, const RunWatchers& watchers) : command_(command), watchers_(watchers) {}

  void out_line(const std::string& line) {
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("event") || !event["event"].is_string()) return error_line(line);
    const auto what = event["event"].get<std::string>();
    last_progress_ = Clock::now();
    if (what == "diagnostic") return diagnostic(event);
    started_ = true;
    if (what == "step" && watchers_.step) watchers_.step(step_of(event));
    if (!watchers_.message) return;
    if (what == "checkpoint") watchers_.message(fmt::format("checkpoint saved at step {:.0f}", number(event, "step")));
    if (what == "evaluation")
      watchers_.message(
          fmt::format("loss on held-out data after step {:.0f}: {:.4f}", number(event, "step"), number(event, "loss")));
    if (what == "graphs" && number(event, "failed") > 0)
      watchers_.message(fmt::format("{:.0f} runs of steps could not be captured as CUDA graphs and ran without: {}",
                                    number(event, "failed"), event.value("reason", "")));
    if (what == "kernels" && event.contains("choices"))
      for (const nlohmann::json& choice : event["choices"]) {
        const std::string reason = choice.value("reason", "");
        watchers_.message(fmt::format("{} by {}{}{}", choice.value("operator", ""), choice.value("kernel", ""),
                                      reason.empty() ? "" : ": ", reason));
      }
    if (what == "started" && event.value("oversubscribed", false))
      watchers_.message(
          fmt::format("{:.0f} ranks of {:.0f} threads are more than this machine's cores: timings mean nothing",
                      number(event, "ranks"), number(event, "threads")));
    if (what == "started" && number(event, "resumed_from") > 0)
      watchers_.message(fmt::format("resumed after step {:.0f}", number(event, "resumed_from")));
  }

  /// The worker's own sentence is the reason; what else stands on standard error is the tail.
  void error_line(const std::string& line) {
    constexpr std::string_view kOurs = "orrery-worker: ";
    if (line.rfind(kOurs, 0) == 0) {
      if (!reason_.empty()) return;  // of another rank: one failure makes many ranks speak
      reason_ = line.substr(kOurs.size());
      const std::size_t code_end = reason_.find("]: ");  // "error[E0611]: …": the sentence alone
      if (reason_.rfind("error[", 0) == 0 && code_end != std::string::npos) reason_.erase(0, code_end + 3);
      return;
    }
    tail_ += line + "\n";
    if (tail_.size() > 2 * kTail) tail_.erase(0, tail_.size() - kTail);
  }

  /// True when the run has been silent for longer than it may.
  [[nodiscard]] bool silent() const {
    return Clock::now() - last_progress_ > (started_ ? command_.step_timeout : command_.start_timeout);
  }
  [[nodiscard]] bool started() const { return started_; }
  [[nodiscard]] const base::Diagnostics& diagnostics() const { return diagnostics_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }
  [[nodiscard]] std::string tail() const { return tail_.size() > kTail ? tail_.substr(tail_.size() - kTail) : tail_; }

 private:
  /// Ranks may all say the same.
  void diagnostic(const nlohmann::json& event) {
    auto found = diagnostic_of(event);
    if (!found || std::find(diagnostics_.begin(), diagnostics_.end(), *found) != diagnostics_.end()) return;
    if (reason_.empty() && found->severity == base::Severity::error) reason_ = found->message;
    diagnostics_.push_back(std::move(*found));
  }

  static StepReport step_of(const nlohmann::json& event) {
    StepReport report;
    report.step = static_cast<std::int64_t>(number(event, "step"));
    report.steps = static_cast<std::int64_t>(number(event, "steps"));
    report.loss = number(event, "loss");
    report.gradient_norm = number(event, "gradient_norm");
    report.learning_rate = number(event, "learning_rate");
    report.step_time_s = number(event, "step_time_s");
    report.tokens_per_s = number(event, "tokens_per_s");
    report.memory_peak_bytes = number(event, "memory_peak_bytes");
    report.lossless_tensors = static_cast<std::int64_t>(number(event, "lossless_tensors"));
    report.lossless_again = static_cast<std::int64_t>(number(event, "lossless_computed_again"));
    return report;
  }

  const TrainCommand& command_;
  const RunWatchers& watchers_;
  Clock::time_point last_progress_ = Clock::now();
  bool started_ = false;
  std::string reason_, tail_;
  base::Diagnostics diagnostics_;
};

std::string death_of(int exit_code) {
  if (exit_code == 0) return "the ranks ended without finishing the run";
  if (exit_code > 128) return fmt::format("mpiexec was killed by signal {}", exit_code - 128);
  return fmt::format("a rank died (mpiexec returned {})", exit_code);
}

}  // namespace

RunOutcome supervise(const TrainCommand& command, const RunWatchers& watchers, const std::atomic<bool>* stop) {
  RunOutcome outcome;
  const std::string run_id = new_run_id();
  Watch watch(command, watchers);
  bool timed_out = false;
  try {
    if (!std::filesystem::exists(command.worker))
      throw Failure(fmt::format("the worker {} is not there: it is built where MPI and a BLAS are found",
                                command.worker.string()),
                    FailureKind::environment);
    Child child(worker_command(command, run_id));
    std::optional<Clock::time_point> asked;
    while (child.pump(
        kPoll, [&](const std::string& line) { watch.out_line(line); },
        [&](const std::string& line) { watch.error_line(line); })) {
      if (!asked && stop && stop->load()) {
        asked = Clock::now();
        child.signal(SIGTERM);  // mpiexec passes it on; the ranks finish their step and save
      }
      const bool too_late = asked && Clock::now() - *asked > command.step_timeout;
      if (!timed_out && (watch.silent() || too_late)) {
        timed_out = true;
        child.kill_group();
      }
    }
    outcome.exit_code = child.exit_code();
  } catch (const Failure& failure) {
    outcome.end = RunEnd::not_started;
    outcome.reason = failure.what();
    return outcome;
  }
  outcome.error_tail = watch.tail();
  outcome.diagnostics = watch.diagnostics();
  outcome.completion = read_completion(command.run);
  if (outcome.completion && outcome.completion->run_id != run_id) outcome.completion.reset();
  if (outcome.completion) {
    outcome.end = outcome.completion->completed ? RunEnd::completed : RunEnd::stopped;
    if (outcome.end == RunEnd::stopped)
      outcome.reason = fmt::format("stopped after step {}; --resume goes on from there", outcome.completion->steps);
  } else if (timed_out) {
    outcome.end = RunEnd::timed_out;
    outcome.reason = watch.started()
                         ? fmt::format("no progress for {} s", command.step_timeout.count())
                         : fmt::format("the ranks did not start within {} s", command.start_timeout.count());
  } else {
    outcome.end = RunEnd::failed;
    outcome.reason = watch.reason().empty() ? death_of(outcome.exit_code) : watch.reason();
  }
  return outcome;
}

}  // namespace orrery::exec
