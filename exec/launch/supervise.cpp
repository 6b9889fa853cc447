// The supervisor: the worker's command line, its events, and its end.
#include "exec/launch/supervise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <random>

#include "exec/events.h"
#include "exec/failure.h"
#include "exec/files/files.h"
#include "exec/launch/child.h"
#include "exec/launch/diagnose.h"
#include "exec/launch/lifeline.h"
#include "exec/launch/process_tree.h"

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
                                  "-print-all-exitcodes",
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
  if (c.stop_on_spike) add("--on-spike", "stop");
  if (c.hash_every) add("--hash-every", std::to_string(*c.hash_every));
  if (c.resume) out.emplace_back("--resume");
  if (c.overwrite) out.emplace_back("--overwrite");
  if (c.serial) out.emplace_back("--serial");
  if (!c.checkpoint) out.emplace_back("--no-checkpoint");
  if (c.progress_thread) out.emplace_back("--progress-thread");
  if (!c.repeat) out.emplace_back("--no-repeat");
  if (c.recompute_whole_layer) out.emplace_back("--recompute-whole-layer");
  if (c.zero_gradients) out.emplace_back("--zero-gradients");
  return out;
}

double number(const nlohmann::json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : 0;
}

std::string text(const nlohmann::json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// What is known of the run while it is under way.
class Watch {
 public:
  Watch(const TrainCommand& command, const RunWatchers& watchers) : command_(command), watchers_(watchers) {}

  void out_line(const std::string& line) {
    const nlohmann::json event = event_of_line(line);
    if (event.is_null()) return error_line(line);
    const auto what = event["event"].get<std::string>();
    last_progress_ = Clock::now();
    if (what == "diagnostic") return diagnostic(event);
    started_ = true;
    if (what == "started") training_ = true;
    if (what == "started") resumed_from_ = static_cast<std::int64_t>(number(event, "resumed_from"));
    if (what == "checkpoint") checkpoint_ = static_cast<std::int64_t>(number(event, "step"));
    if (what == "completed" || what == "stopped") finished_ = true;
    if (what == "step" && watchers_.step) watchers_.step(step_of(event));
    if (!watchers_.message) return;
    if (what == "checkpoint")
      watchers_.message(saved_message(number(event, "step"), number(event, "bytes"), number(event, "pause_s"),
                                      number(event, "durable_s")));
    if (what == "evaluation")
      watchers_.message(
          fmt::format("loss on held-out data after step {:.0f}: {:.4f}", number(event, "step"), number(event, "loss")));
    if (what == "graphs" && number(event, "failed") > 0)
      watchers_.message(
          fmt::format("{:.0f} runs of steps could not be captured as CUDA graphs and ran without graphs: {}",
                      number(event, "failed"), text(event, "reason")));
    if (what == "kernels" && event.contains("choices"))
      for (const nlohmann::json& choice : event["choices"]) {
        const std::string reason = text(choice, "reason");
        watchers_.message(fmt::format("{} by {}{}{}", text(choice, "operator"), text(choice, "kernel"),
                                      reason.empty() ? "" : ": ", reason));
      }
    if (what == "started" && event.value("oversubscribed", false))
      watchers_.message(
          fmt::format("{:.0f} ranks of {:.0f} threads are more than this machine's cores: timings mean nothing",
                      number(event, "ranks"), number(event, "threads")));
    if (what == "straggler")
      watchers_.message(fmt::format("rank {:.0f} is slow: it is busy {:.2f} times as long per step as its peers",
                                    number(event, "rank"), number(event, "ratio")));
    if (what == "started" && number(event, "resumed_from") > 0)
      watchers_.message(fmt::format("resumed after step {:.0f}", number(event, "resumed_from")));
  }

  /// The worker's own sentence is the reason; the rest of standard error is the tail.
  void error_line(const std::string& line) {
    if (std::vector<int> statuses = wait_statuses_in(line); !statuses.empty()) {
      wait_statuses_ = std::move(statuses);
      return;
    }
    constexpr std::string_view kOurs = "orrery-worker: ";
    if (line.rfind(kOurs, 0) == 0) {
      if (!reason_.empty()) return;  // of another rank: one failure makes many ranks report
      reason_ = line.substr(kOurs.size());
      const std::size_t code_end = reason_.find("]: ");  // "error[E0611]: …": only the sentence
      if (reason_.rfind("error[", 0) == 0 && code_end != std::string::npos) reason_.erase(0, code_end + 3);
      return;
    }
    // MPICH says of each rank that it was made to abort, not why.
    if (line.rfind("Abort(", 0) == 0 && line.find("application called MPI_Abort") != std::string::npos) return;
    tail_ += line + "\n";
    if (tail_.size() > 2 * kTail) tail_.erase(0, tail_.size() - kTail);
  }

  /// True if the run has been silent for longer than allowed.
  [[nodiscard]] bool silent() const {
    return Clock::now() - last_progress_ > (started_ ? command_.step_timeout : command_.start_timeout);
  }
  [[nodiscard]] bool started() const { return started_; }
  [[nodiscard]] bool training() const { return training_; }
  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] std::optional<std::int64_t> checkpoint() const { return checkpoint_; }
  [[nodiscard]] std::int64_t resumed_from() const { return resumed_from_; }
  [[nodiscard]] const std::vector<int>& wait_statuses() const { return wait_statuses_; }
  [[nodiscard]] const base::Diagnostics& diagnostics() const { return diagnostics_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }
  [[nodiscard]] std::string tail() const { return tail_.size() > kTail ? tail_.substr(tail_.size() - kTail) : tail_; }

 private:
  /// Several ranks may report the same.
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
  bool started_ = false, training_ = false, finished_ = false;
  std::optional<std::int64_t> checkpoint_;
  std::int64_t resumed_from_ = 0;
  std::vector<int> wait_statuses_;
  std::string reason_, tail_;
  base::Diagnostics diagnostics_;
};

constexpr std::chrono::milliseconds kLastWords{1000};  // after a rank's end, for the launcher to end and to report why
constexpr std::chrono::seconds kRundown{10};           // after the run's own record, for everything to end
constexpr std::size_t kMessagesKept = 2000;            // of each rank, in failure.json

std::string death_of(int exit_code) {
  if (exit_code == 0) return "the ranks ended without finishing the run";
  if (exit_code > 128) return fmt::format("mpiexec was killed by signal {}", exit_code - 128);
  return fmt::format("a rank died (mpiexec returned {})", exit_code);
}

/// One run, from its start to the end of its last process.
class Supervision {
 public:
  Supervision(const TrainCommand& command, const RunWatchers& watchers, const std::atomic<bool>* stop)
      : command_(command),
        stop_(stop),
        watch_(command, watchers),
        lines_(run_id_),
        tree_(run_id_),
        child_(worker_command(command, run_id_), {fmt::format("{}={}", kRunMark, run_id_)}) {}

  RunOutcome run() {
    while (pump()) {
      obey_stop();
      look_at_ranks();
      if (watch_.silent()) end(Cut::silent);
    }
    (void)tree_.end();  // kills what outlives the launcher
    serve();
    return outcome();
  }

 private:
  enum class Cut : std::uint8_t { none, before_start, too_late, silent, lost, finished };

  bool pump() {
    const bool more = child_.pump(
        kPoll, [this](const std::string& line) { watch_.out_line(line); },
        [this](const std::string& line) { watch_.error_line(line); }, lines_.descriptors());
    serve();
    return more;
  }

  void serve() {
    lines_.serve([this](const std::string& line) { watch_.out_line(line); });
  }

  void obey_stop() {
    if (!asked_ && stop_ && stop_->load()) {
      asked_ = Clock::now();
      if (!watch_.training()) {
        end(Cut::before_start);
      } else {
        lines_.stop();
        if (lines_.ranks().empty()) child_.signal(SIGTERM);  // a launcher of some other program
      }
    }
    if (asked_ && Clock::now() - *asked_ > command_.grace) end(Cut::too_late);
  }

  /// A rank that is gone before the run is done ends the run, whatever the launcher does.
  void look_at_ranks() {
    const RankLine* failed = first_failed();
    const RankLine* gone = first_gone();
    if (failed != nullptr || gone != nullptr) note_failure();
    if (watch_.finished()) {
      if (!finished_at_) finished_at_ = Clock::now();
      if (Clock::now() - *finished_at_ > kRundown) end(Cut::finished);
    } else if (gone != nullptr && Clock::now() - gone->gone_at > kLastWords) {
      end(Cut::lost);
    }
  }

  void end(Cut why) {
    if (cut_ != Cut::none || child_.ended()) return;
    if (why == Cut::silent || why == Cut::too_late || why == Cut::lost) note_failure();
    cut_ = why;
    (void)tree_.end();
    child_.kill_group();  // a child that has not called exec yet has no mark
  }

  /// Records where every rank was when the failure was first noticed.
  void note_failure() {
    if (!at_failure_.empty()) return;
    at_failure_ = look_at(lines_, kMessagesKept);
  }

  [[nodiscard]] const RankLine* first_gone() const {
    const RankLine* first = nullptr;
    for (const auto& line : lines_.ranks())
      if (line->gone && !line->done_with && (!first || line->gone_at < first->gone_at)) first = line.get();
    return first;
  }
  [[nodiscard]] const RankLine* first_failed() const {
    const RankLine* first = nullptr;
    for (const auto& line : lines_.ranks())
      if (!line->failure.empty() && (!first || line->failed_at < first->failed_at)) first = line.get();
    return first;
  }

  /// The ranks' own words, the words of the process that found them dead, or the launcher's, whichever came first.
  [[nodiscard]] std::string why_it_failed() const {
    const RankLine *failed = first_failed(), *gone = first_gone();
    if (failed != nullptr && gone != nullptr && gone->gone_at < failed->failed_at) failed = nullptr;
    if (failed != nullptr) {
      const std::string holder = failed->late ? who_holds_up(at_failure_) : std::string();
      return holder.empty() ? failed->failure : fmt::format("{} ({})", holder, failed->failure);
    }
    if (!watch_.reason().empty()) return watch_.reason();
    const std::string death = who_died(lines_, watch_.wait_statuses());
    return death.empty() ? death_of(child_.exit_code()) : death;
  }

  [[nodiscard]] std::string why_it_was_cut() const {
    const std::string holder = who_holds_up(at_failure_);
    std::string text =
        cut_ == Cut::too_late
            ? fmt::format("the ranks did not save within the grace period of {} s", command_.grace.count())
        : watch_.started() ? fmt::format("no progress for {} s", command_.step_timeout.count())
                           : fmt::format("the ranks did not start within {} s", command_.start_timeout.count());
    return holder.empty() ? text : fmt::format("{}: {}", text, holder);
  }

  [[nodiscard]] int worker_code() const {
    int code = 0;
    for (const auto& line : lines_.ranks())
      if (code == 0 && line->done_with) code = *line->done_with;
    return code;
  }

  RunOutcome outcome() {
    RunOutcome out;
    out.exit_code = child_.exit_code();
    out.worker_code = worker_code();
    out.trained = watch_.training();
    out.checkpoint = watch_.checkpoint();
    out.resumed_from = watch_.resumed_from();
    out.error_tail = watch_.tail();
    out.diagnostics = watch_.diagnostics();
    out.completion = read_completion(command_.run);
    if (out.completion && out.completion->run_id != run_id_) out.completion.reset();
    if (out.completion) {
      out.end = out.completion->completed ? RunEnd::completed : RunEnd::stopped;
      if (out.end == RunEnd::stopped)
        out.reason = fmt::format("stopped after step {}; --resume continues from there", out.completion->steps);
      return out;
    }
    if (cut_ == Cut::before_start) {
      out.end = RunEnd::stopped;
      out.reason = "stopped before the first step: there was nothing to save";
      return out;
    }
    const bool timed_out = cut_ == Cut::silent || cut_ == Cut::too_late;
    out.end = timed_out ? RunEnd::timed_out : RunEnd::failed;
    out.reason = timed_out ? why_it_was_cut() : why_it_failed();
    record_failure(out.reason);
    return out;
  }

  void record_failure(const std::string& reason) const {
    if (at_failure_.empty() || !std::filesystem::is_directory(command_.run)) return;
    try {
      write_atomically(command_.run / "failure.json", write_failure(reason, at_failure_));
    } catch (const Failure&) {
      // The disk may be what failed; the reason is still reported.
    }
  }

  const TrainCommand& command_;
  const std::atomic<bool>* stop_;
  const std::string run_id_ = new_run_id();
  Watch watch_;
  Lifelines lines_;
  ProcessTree tree_;
  Child child_;
  Cut cut_ = Cut::none;
  std::optional<Clock::time_point> asked_, finished_at_;
  std::vector<RankAtFailure> at_failure_;
};

}  // namespace

RunOutcome supervise(const TrainCommand& command, const RunWatchers& watchers, const std::atomic<bool>* stop) {
  try {
    if (!std::filesystem::exists(command.worker))
      throw Failure(
          fmt::format("the worker {} does not exist: building it needs MPI and a BLAS", command.worker.string()),
          FailureKind::environment);
    return Supervision(command, watchers, stop).run();
  } catch (const Failure& failure) {
    RunOutcome outcome;
    outcome.end = RunEnd::not_started;
    outcome.reason = failure.what();
    return outcome;
  }
}

}  // namespace orrery::exec
