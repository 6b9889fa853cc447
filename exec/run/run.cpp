// The run: it begins, does its steps until it is done or stopped, and ends. Checks of what cannot run come first.
#include "exec/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "exec/events.h"
#include "exec/failure.h"
#include "exec/run/faults.h"
#include "exec/run/guards.h"
#include "exec/run/metrics.h"
#include "exec/run/run_beginning.h"
#include "exec/run/run_checkpoints.h"
#include "exec/run/run_data.h"
#include "exec/run/run_parts.h"
#include "exec/run/run_records.h"
#include "exec/run/run_start.h"
#include "exec/state/agreement.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostSpans = 300'000;  // in timeline.json, over all ranks: about 25 MB
using Clock = std::chrono::steady_clock;
constexpr std::int64_t kStepsBetweenMeetings = 16;  // of a pipeline that does not drain
// Where steps are graphs, spans come from graphs with marks in them, which are a little slower: one step in kSampled.
constexpr std::int64_t kSampled = 4;
constexpr double kLook = 1, kSave = 2, kStop = 3, kFault = 4;  // a rank's request after a step; the largest wins

std::size_t recorded_iterations(const plan::Schedule& schedule) {
  std::size_t longest = 1;
  for (const plan::RankClass& rank_class : schedule.classes) {
    std::size_t steps = 0;
    rank_class.program.each_kind([&](const plan::Entry& entry, std::int64_t times, std::int32_t) {
      steps += static_cast<std::size_t>(times) * rank_class.blocks[static_cast<std::size_t>(entry.block)].steps.size();
    });
    longest = std::max(longest, steps);
  }
  return std::max<std::size_t>(2, kMostSpans / longest / static_cast<std::size_t>(schedule.spec.mesh.ranks()));
}

// A rank's file for what the plan keeps on NVMe, in the run's directory, which may be a link to a drive.
std::string state_file(const RunOptions& options, int rank) {
  std::error_code ignored;  // a failure shows when the file is made
  fs::create_directories(options.directory, ignored);
  return (options.directory / fmt::format("offload-{}-rank-{:05}.state", options.run_id, rank)).string();
}

Executor::Options executor_options(const RunParts& run) {
  using Progress = Communication::Progress;
  const RunOptions& options = run.options;
  return {options.check,
          true,
          options.progress_thread ? Progress::thread : Progress::inlined,
          recorded_iterations(run.schedule),
          nullptr,
          state_file(options, run.transport.rank()),
          options.queue_messages,
          options.graphs,
          options.graphs && run.backend.captures() ? kSampled : 1};
}

class Session {
 public:
  Session(const RunParts& run, RunData data, const std::vector<Fault>& faults)
      : run_(run),
        before_(memory_now(nullptr)),
        beginning_(run_, trainer_, context_),
        trainer_(run.plan, run.training, run.schedule, run.backend, run.transport, run.waiter, std::move(data.batches),
                 executor_options(run), std::move(data.held_out)),
        context_{run.schedule, trainer_.executor().arena(), run.backend, run.transport},
        faults_(faults, context_),
        guards_(context_, run.options.guards, run.options.threads),
        records_(run_, trainer_, guards_),
        checkpoints_(context_, run.options.directory / kCheckpoints, run.options.keep,
                     {run.options.checkpoint_every, run.options.checkpoint_interval},
                     [this](const RunCheckpoints::Saved& saved) { records_.saved(saved); }) {}

  /// Locks the directory and loads what the run begins with.
  base::Result<bool> begin() {
    if (auto locked = agreed(run_.transport, beginning_.lock()); !locked) return locked;
    if (auto loaded = agreed(run_.transport, beginning_.load()); !loaded) return loaded;
    records_.open(beginning_);
    checkpoints_.describe(records_.notes(beginning_));
    done_ = beginning_.first_step();
    return true;
  }

  /// Whether all steps are done; false if the run was stopped or a guard ended it.
  bool steps() {
    clock_.begin = read_clock(run_.transport, run_.waiter);
    records_.started();
    enter(RankPhase::training);
    bool stopped = found(guards_.look(done_));
    trainer_.ends_after(run_.options.steps);
    while (done_ < run_.options.steps && !stopped) {
      stopped = some_steps();
      records_.kernels();
      if (fault_) break;
      const bool last = done_ == run_.options.steps || stopped;
      enter(RankPhase::saving);
      if (run_.options.checkpoint && (last || due_)) checkpoints_.begin(done_, trainer_.sequences_before(done_));
      if (last) checkpoints_.wait_until_written();
      checkpoints_.commit_written();
      enter(RankPhase::training);
    }
    if (fault_) {
      checkpoints_.commit_pending();  // it dates from before the fault
      return false;
    }
    enter(RankPhase::ending);
    clock_.end = read_clock(run_.transport, run_.waiter);
    return done_ == run_.options.steps;
  }
  /// What made the guards end the run, on all ranks.
  [[nodiscard]] const std::optional<base::Diagnostics>& fault() const { return fault_; }

  void finish(bool completed) { records_.finish(completed, done_, clock_, checkpoints_.totals()); }

 private:
  /// The step at which ranks meet next: after every step or, where steps overlap between ranks, after several, because
  /// meeting drains that overlap.
  std::int64_t meeting() const {
    if (!run_.plan.spec().stages.asynchronous()) return done_ + 1;
    std::int64_t at = std::min(run_.options.steps, (done_ / kStepsBetweenMeetings + 1) * kStepsBetweenMeetings);
    if (const std::int64_t every = run_.options.checkpoint_every; every > 0)
      at = std::min(at, (done_ / every + 1) * every);
    return at;
  }

  /// Runs steps until ranks meet. Returns true if some rank was asked to stop; sets due_, on all ranks alike.
  bool some_steps() {
    const std::int64_t until = meeting();
    std::vector<StepResult> mine;
    std::string packed;
    while (done_ < until) {
      packed += pack_metrics(one_step(mine));
      if (done_ < until)  // a sign of life; the loss is reported later
        run_.report({{"event", "stepped"}, {"step", done_}});
    }
    const std::optional<double> held_out = evaluate();
    records_.note(done_, mine, packed, held_out);
    if (held_out) guards_.see_held_out(done_, *held_out);
    const double wish = guards_.faulty()                                     ? kFault
                        : run_.options.stop && run_.options.stop->load()     ? kStop
                        : run_.options.checkpoint && checkpoints_.due(done_) ? kSave
                        : guards_.look_due(done_)                            ? kLook
                                                                             : 0;
    const double agreed = run_.transport.maximum(wish);
    due_ = agreed == kSave;
    const bool looks = agreed > 0 || done_ == run_.options.steps;  // also before each checkpoint
    if (found(agreed == kFault || (looks && guards_.look(done_)))) return true;
    return agreed == kStop;
  }

  /// Adds the step's result to `all`; returns this rank's part of its line.
  RankMetrics one_step(std::vector<StepResult>& all) {
    std::function<void()> capture;
    if (run_.options.dump_gradients.count(done_ + 1)) capture = [this] { records_.gradients(done_ + 1); };
    Recorder* recorder = run_.waiter.recorder();
    const std::int64_t waited_before = recorder ? recorder->waited() : 0;
    const auto begun = Clock::now();
    if (recorder) recorder->begin_step(done_ + 1);
    faults_.before_step(done_ + 1);
    all.push_back(trainer_.step_here(done_, capture, guards_.watch(done_, faults_.within_step(done_ + 1))));
    ++done_;
    guards_.see(done_, all.back());
    RankMetrics line;
    line.waited_s = recorder ? static_cast<double>(recorder->waited() - waited_before) * 1e-9 : 0;
    line.busy_s = std::chrono::duration<double>(Clock::now() - begun).count() - line.waited_s;
    line.take(all.back());
    line.memory = memory_now(&trainer_.executor().arena());
    line.memory.arena_peak = trainer_.arena_peak();
    line.memory.scratch = run_.backend.scratch_bytes();
    line.resident_before = before_.resident;
    line.checkpoint_pause = checkpoints_.take_pause();
    return line;
  }

  /// Whether guards have found a fault; all ranks know it.
  bool found(bool fault) {
    if (fault) fault_ = guards_.faults();
    return fault;
  }
  /// The loss on held-out data, if it is due after this step.
  std::optional<double> evaluate() {
    const auto& evaluation = run_.training.evaluation;
    if (!evaluation || (done_ % evaluation->every != 0 && done_ != run_.options.steps)) return std::nullopt;
    return trainer_.evaluate();
  }
  void enter(RankPhase phase) const {
    if (Recorder* recorder = run_.waiter.recorder()) recorder->enter(phase);
  }

  const RunParts run_;
  MemoryNow before_;        ///< before the arena was allocated
  RunBeginning beginning_;  ///< it locks the directory until all else is gone
  Trainer trainer_;
  CheckpointContext context_;
  FaultInjector faults_;
  Guards guards_;
  RunRecords records_;
  RunCheckpoints checkpoints_;  ///< its thread ends before the records that it tells of
  ClockLine clock_;
  std::int64_t done_ = 0;
  std::optional<base::Diagnostics> fault_;
  bool due_ = false;  ///< a checkpoint, after this step
};

}  // namespace

base::Result<bool> run(const plan::Plan& plan, const plan::Training& training, const plan::Schedule& schedule,
                       Backend& backend, Transport& transport, const Waiter& waiter, const RunOptions& options) {
  const std::string refusal = backend.refusal(plan.spec().numerics.precision);
  const auto computes =
      refusal.empty()
          ? base::Result<bool>(true)
          : base::Result<bool>(base::fail("E0623", refusal, "make the plan with precision: bf16, or with fp32"));
  if (auto all = agreed(transport, computes); !all) return all;  // ranks may have different devices
  if (!plan.model().causal && plan.model().masked_fraction <= 0)
    return base::fail(
        "E0624",
        fmt::format("{} is not causal: each token sees the next one, which it would be trained to predict",
                    plan.model().name),
        "use masked_fraction: 0.15 to predict masked tokens, as BERT does; or train a causal model");
  if (training.evaluation && plan.spec().stages.asynchronous())
    return base::fail("E0629",
                      "an asynchronous pipeline holds micro-batches between steps, when an evaluation would run",
                      "leave `training.evaluation` out, or use schedule: 1f1b");
  const auto faults = parse_faults(options.faults);
  const auto readable = faults ? base::Result<bool>(true) : base::Result<bool>(base::fail(faults.error()));
  if (auto all = agreed(transport, readable); !all) return all;
  auto opened = open_data(plan, training, transport, options.directory);
  if (!opened) return base::fail(opened.error());
  if (transport.rank() == 0 && options.report)
    for (const base::Diagnostic& one : data_warnings(training, plan.spec(), opened->batches, options.steps))
      options.report(diagnostic_event(one).dump());
  Session one({plan, training, schedule, backend, transport, waiter, options}, std::move(*opened), *faults);
  if (auto begun = one.begin(); !begun) return begun;
  const bool completed = one.steps();
  if (one.fault()) return base::fail(*one.fault());
  one.finish(completed);
  return completed;
}

}  // namespace orrery::exec
