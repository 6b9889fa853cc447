// The run: start or resume, steps, stops, records.
#include "exec/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "exec/data/encode_data.h"
#include "exec/data/mark.h"
#include "exec/events.h"
#include "exec/failure.h"
#include "exec/files/checksum.h"
#include "exec/files/files.h"
#include "exec/run/faults.h"
#include "exec/run/guards.h"
#include "exec/run/measured.h"
#include "exec/run/metrics.h"
#include "exec/run/run_checkpoints.h"
#include "exec/run/run_data.h"
#include "exec/run/run_start.h"
#include "exec/run/run_tally.h"
#include "exec/run/stragglers.h"
#include "exec/state/agreement.h"
#include "exec/state/checkpoint.h"
#include "exec/state/gather_logical.h"
#include "exec/state/generations.h"
#include "exec/state/initialise.h"
#include "exec/state/weight_names.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

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

/// Ranks of a stage have the same work.
std::vector<int> stages_of_ranks(const plan::Plan& plan) {
  std::vector<int> out;
  for (int rank = 0; rank < plan.spec().mesh.ranks(); ++rank) out.push_back(rank / plan.spec().mesh.ranks_per_stage());
  return out;
}

class Session {
 public:
  Session(const plan::Plan& plan, const plan::Training& training, const plan::Schedule& schedule, Backend& backend,
          Transport& transport, const Waiter& waiter, const RunOptions& options, RunData data,
          const std::vector<Fault>& faults)
      : plan_(plan),
        training_(training),
        schedule_(schedule),
        backend_(backend),
        transport_(transport),
        waiter_(waiter),
        options_(options),
        before_(memory_now(nullptr)),
        trainer_(plan, training, schedule, backend, transport, waiter, std::move(data.batches),
                 {options.check, true,
                  options.progress_thread ? Communication::Progress::thread : Communication::Progress::inlined,
                  recorded_iterations(schedule), nullptr, state_file(options, transport.rank()), options.queue_messages,
                  options.graphs, options.graphs && backend.captures() ? kSampled : 1},
                 std::move(data.held_out)),
        context_{schedule, trainer_.executor().arena(), backend, transport},
        checkpoints_(context_, options.directory / kCheckpoints, options.keep,
                     {options.checkpoint_every, options.checkpoint_interval},
                     [this](const RunCheckpoints::Saved& saved) { report_saved(saved); }),
        stragglers_(stages_of_ranks(plan)),
        faults_(faults, context_),
        guards_(context_, options.guards, options.threads) {}

  /// Locks the run directory: a second trainer in it would mix two runs. An earlier run's records are resumed or
  /// removed only on request.
  base::Result<bool> lock() {
    base::Result<bool> mine = true;
    together(transport_, [&] {
      if (!first_rank()) return;
      make_folders(options_.directory);
      lock_ = lock_file(options_.directory / "lock");
      if (lock_.held()) finish_removing(options_.directory);
      if (!lock_.held())
        mine = base::fail("E0626", fmt::format("another run is training in {}", options_.directory.string()),
                          "wait until it ends, or train into another directory");
      else if (!options_.resume && !options_.overwrite)
        mine = may_begin_in(options_.directory);
      if (mine) sweep_debris(options_.directory, options_.run_id);
    });
    return mine;
  }

  /// Loads parameters from a checkpoint, a file or the seed. Writes nothing yet, so that a failed start leaves what
  /// was there.
  base::Result<bool> load() {
    report({{"event", "preparing"}});  // drawing or reading the weights of a large model takes time
    if (options_.resume) {
      const auto resumed = resume();
      if (!resumed || *resumed) return resumed;
      report(diagnostic_event({base::Severity::warning,
                               "E0627",
                               {options_.directory.string(), 0, 0, 1},
                               "there is no checkpoint to resume from: the run begins at step 1",
                               "checkpoints are saved at the end, when stopped, and every minute or --checkpoint-every",
                               {}}));
    }
    if (!training_.initial_weights.empty()) {
      auto files = open_weights(training_.initial_weights);
      if (!files) return base::fail(files.error());
      auto source = file_source(*files, schedule_, &plan_.model(), seeded_source(training_.seed, options_.threads));
      if (!source) return base::fail(source.error());
      initialise(schedule_, transport_.rank(), trainer_.executor().arena(), backend_, *source,
                 training_.loss_scaling.initial);
    } else {
      initialise(schedule_, transport_.rank(), trainer_.executor().arena(), backend_,
                 seeded_source(training_.seed, options_.threads), training_.loss_scaling.initial, options_.threads);
    }
    return true;
  }

  /// The same; input errors that only reading the values shows become Diagnostics like the others.
  base::Result<bool> load_or_say() try { return load(); } catch (const InputFailure& failure) {
    return base::fail({failure.diagnostic()});
  }

  /// From here on this run's records count: an earlier run's are removed, except what is resumed.
  void open_records() {
    together(transport_, [&] {
      if (!first_rank()) return;
      if (options_.overwrite) remove_run(options_.directory);
      for (const DamagedGeneration& one : resumed_.damaged) keep_damaged(options_.directory, one);
      for (const char* name : {"completed.json", "failure.json"}) remove_tree(options_.directory / name);
      if (first_step_ < options_.steps) remove_tree(options_.directory / "timeline.json");
      write_atomically(options_.directory / "plan.yaml", options_.plan_text);
      if (!data_) data_ = mark_of(trainer_.data());
      metrics_.emplace(options_.directory / "metrics.jsonl", first_step_);
      if (metrics_->damaged() > 0)
        warn("E0645", fmt::format("{} lines of metrics.jsonl were not records of a step", metrics_->damaged()),
             "they are kept in metrics.jsonl.damaged");
      tally_.resume(metrics_->kept(), first_step_ >= options_.steps);
    });
    CheckpointNotes notes;
    notes.run_id = options_.run_id;
    notes.job = fmt::format("{:08x}", crc32(std::as_bytes(std::span(options_.plan_text))));
    if (first_rank()) {
      notes.data = data_;
      notes.marker = options_.directory / kSavedMark;
      notes.before = [this] { metrics_->sync(); };
      notes.warn = [this](const std::string& what) {
        warn("E0644", what, "the checkpoint itself was saved; there may be more older ones than --keep says");
      };
    }
    checkpoints_.describe(std::move(notes));
  }

  bool steps() {
    clock_.begin = read_clock(transport_, waiter_);
    report({{"event", "started"},
            {"steps", options_.steps},
            {"resumed_from", first_step_},
            {"backend", backend_.name()},
            {"device", backend_.device_name()},
            {"ranks", transport_.size()},
            {"threads", options_.threads},
            {"oversubscribed", options_.oversubscribed}});
    enter(RankPhase::training);
    done_ = first_step_;
    bool stopped = found(guards_.look(done_));
    trainer_.ends_after(options_.steps);
    while (done_ < options_.steps && !stopped) {
      stopped = some_steps();
      report_kernels();
      if (fault_) break;
      const bool last = done_ == options_.steps || stopped;
      enter(RankPhase::saving);
      if (options_.checkpoint && (last || due_)) checkpoints_.begin(done_, trainer_.sequences_before(done_));
      if (last) checkpoints_.wait_until_written();
      checkpoints_.commit_written();
      enter(RankPhase::training);
    }
    if (fault_) {
      checkpoints_.commit_pending();  // it dates from before the fault
      return false;
    }
    enter(RankPhase::ending);
    clock_.end = read_clock(transport_, waiter_);
    return done_ == options_.steps;
  }
  /// What made the guards end the run, on all ranks.
  [[nodiscard]] const std::optional<base::Diagnostics>& fault() const { return fault_; }

  /// Reports the kernels chosen, once the first steps have determined them.
  void report_kernels() {
    if (!first_rank() || std::exchange(kernels_reported_, true)) return;
    ordered_json choices = ordered_json::array();
    for (const KernelChoice& choice : backend_.kernel_choices())
      choices.push_back({{"operator", choice.op}, {"kernel", choice.kernel}, {"reason", choice.reason}});
    if (!choices.empty()) report({{"event", "kernels"}, {"choices", choices}});
  }

  void finish(bool completed) {
    if (options_.timeline && done_ > first_step_) write_timeline();
    if (!first_rank()) return;
    if (backend_.captures()) {
      const Executor::GraphCounts& g = trainer_.executor().graphs();
      report({{"event", "graphs"},
              {"captured", g.captured},
              {"replayed", g.replayed},
              {"steps_in_graphs", g.steps},
              {"steps_without", g.plain_steps},
              {"failed", g.failed},
              {"reason", g.reason}});
    }
    Completion record;
    record.run_id = options_.run_id;
    record.completed = completed;
    record.steps = done_;
    record.resumed_from = first_step_;
    tally_.write(record, tokens());
    record.backend = backend_.name();
    record.device = backend_.device_name();
    record.ranks = transport_.size();
    record.threads = options_.threads;
    record.oversubscribed = options_.oversubscribed;
    record.spikes = guards_.counts().spikes;
    record.skipped = guards_.counts().skipped;
    record.looks = guards_.counts().looks;
    record.looks_s = guards_.counts().looks_s;
    record.checkpoints = checkpoints_.totals();
    record.bad_lines = trainer_.data().bad_lines();
    record.held_out_auc = trainer_.area_under_curve();
    record.best_auc = trainer_.best_area();
    if (const auto warning = tally_.little_room(plan_.spec().compression.capacity)) report(diagnostic_event(*warning));
    write_atomically(options_.directory / "completed.json", write_completion(record));
    report({{"event", completed ? "completed" : "stopped"}, {"step", done_}});
  }

 private:
  /// Loads the newest whole checkpoint; false if there is none because none was ever saved.
  base::Result<bool> resume() {
    const fs::path folder = options_.directory / kCheckpoints;
    base::Result<bool> mine = true;
    bool any = false;
    together(transport_, [&] {
      if (!first_rank()) return;
      mine = may_resume_in(options_.directory);
      any = mine && *mine;
      if (any) mine = may_go_on(options_.directory, plan_);
    });
    if (auto all = agreed(transport_, mine); !all) return all;
    together(transport_, [&] {
      if (first_rank()) data_ = mark_of(trainer_.data());
    });
    if (transport_.maximum(any ? 1 : 0) == 0) return false;
    resumed_ = load_newest(context_, folder);
    if (!resumed_.from) {
      std::string found;
      for (const DamagedGeneration& one : resumed_.damaged) found += (found.empty() ? "" : "; ") + one.why;
      return base::fail({nothing_whole(options_.directory, found)});
    }
    first_step_ = resumed_.manifest.step;
    if (resumed_.manifest.sequences) trainer_.go_on_at(first_step_, *resumed_.manifest.sequences);
    const bool done = first_rank() && recorded_as_completed(options_.directory);
    if (transport_.maximum(first_step_ > options_.steps || (first_step_ == options_.steps && done) ? 1 : 0) > 0)
      return base::fail(
          "E0621", fmt::format("the run has already done {} steps, but {} were asked for", first_step_, options_.steps),
          "ask for more with --steps, or train into another directory");
    together(transport_, [&] {
      if (!first_rank()) return;
      for (const base::Diagnostic& one : said_of(options_.directory, resumed_, plan_, training_, *data_))
        report(diagnostic_event(one));
    });
    return true;
  }

  void warn(const char* code, std::string message, std::string help) const {
    report(diagnostic_event({base::Severity::warning,
                             code,
                             {options_.directory.string(), 0, 0, 1},
                             std::move(message),
                             std::move(help),
                             {}}));
  }

  bool first_rank() const { return transport_.rank() == 0; }
  double tokens() const { return static_cast<double>(plan_.spec().shape.batch * plan_.spec().shape.sequence); }
  void report(const ordered_json& event) const {
    if (first_rank() && options_.report) options_.report(event.dump());
  }

  void report_saved(const RunCheckpoints::Saved& saved) const {
    report({{"event", "checkpoint"},
            {"step", saved.step},
            {"pause_s", saved.cost.slowest.pause()},
            {"write_s", saved.cost.slowest.write},
            {"durable_s", saved.durable_s},
            {"bytes", saved.cost.bytes}});
  }

  /// The step at which ranks meet next: after every step or, where steps overlap between ranks, after several, because
  /// meeting drains that overlap.
  std::int64_t meeting() const {
    if (!plan_.spec().stages.asynchronous()) return done_ + 1;
    std::int64_t at = std::min(options_.steps, (done_ / kStepsBetweenMeetings + 1) * kStepsBetweenMeetings);
    if (options_.checkpoint_every > 0)
      at = std::min(at, (done_ / options_.checkpoint_every + 1) * options_.checkpoint_every);
    return at;
  }

  /// Runs steps until ranks meet. Returns true if some rank was asked to stop; sets due_, on all ranks alike.
  bool some_steps() {
    const std::int64_t first = done_, until = meeting();
    std::vector<StepResult> mine;
    std::string packed;
    while (done_ < until) {
      std::function<void()> capture;
      if (options_.dump_gradients.count(done_ + 1)) capture = [this] { dump_gradients(); };
      Recorder* recorder = waiter_.recorder();
      const std::int64_t waited_before = recorder ? recorder->waited() : 0;
      const auto begun = Clock::now();
      if (recorder) recorder->begin_step(done_ + 1);
      faults_.before_step(done_ + 1);
      mine.push_back(trainer_.step_here(done_, capture, guards_.watch(done_, faults_.within_step(done_ + 1))));
      ++done_;
      guards_.see(done_, mine.back());
      RankMetrics line;
      line.waited_s = recorder ? static_cast<double>(recorder->waited() - waited_before) * 1e-9 : 0;
      line.busy_s = std::chrono::duration<double>(Clock::now() - begun).count() - line.waited_s;
      line.take(mine.back());
      line.memory = memory_now(&trainer_.executor().arena());
      line.memory.arena_peak = trainer_.arena_peak();
      line.memory.scratch = backend_.scratch_bytes();
      line.resident_before = before_.resident;
      line.checkpoint_pause = checkpoints_.take_pause();
      packed += pack_metrics(line);
      if (done_ < until) report({{"event", "stepped"}, {"step", done_}});  // a sign of life; the loss is reported later
    }
    const std::vector<std::string> lines = transport_.gather_text(packed);
    if (plan_.model().experts.any()) loads_ = gather_loads(transport_, plan_, mine.back().experts);
    if (trainer_.executor().rank_class().cache.exists()) caches_ = gather_caches(transport_, mine);
    const std::optional<double> held_out = evaluate();
    if (first_rank())
      for (std::size_t i = 0; i < mine.size(); ++i)
        note(first + static_cast<std::int64_t>(i) + 1, mine[i], lines, i,
             i + 1 == mine.size() ? held_out : std::nullopt);
    if (held_out) guards_.see_held_out(done_, *held_out);
    const double wish = guards_.faulty()                                 ? kFault
                        : options_.stop && options_.stop->load()         ? kStop
                        : options_.checkpoint && checkpoints_.due(done_) ? kSave
                        : guards_.look_due(done_)                        ? kLook
                                                                         : 0;
    const double agreed = transport_.maximum(wish);
    due_ = agreed == kSave;
    const bool looks = agreed > 0 || done_ == options_.steps;  // also before each checkpoint
    if (found(agreed == kFault || (looks && guards_.look(done_)))) return true;
    return agreed == kStop;
  }

  /// Whether guards have found a fault; all ranks know it.
  bool found(bool fault) {
    if (fault) fault_ = guards_.faults();
    return fault;
  }
  /// The loss on held-out data, if it is due after this step.
  std::optional<double> evaluate() {
    const auto& evaluation = training_.evaluation;
    if (!evaluation || (done_ % evaluation->every != 0 && done_ != options_.steps)) return std::nullopt;
    return trainer_.evaluate();
  }

  /// `lines`: by rank, for all steps since ranks last met; `place`: index of this step among them.
  void note(std::int64_t number, const StepResult& mine, const std::vector<std::string>& lines, std::size_t place,
            std::optional<double> held_out) {
    std::vector<RankMetrics> ranks;
    for (const std::string& line : lines)
      ranks.push_back(unpack_metrics(line.substr(place * sizeof(RankMetrics), sizeof(RankMetrics))));
    StepMetrics step = join_metrics(ranks, plan_);
    step.step = number;
    step.learning_rate = mine.learning_rate;
    step.loss_scale = mine.loss_scale;
    step.skipped = mine.skipped;
    step.held_out_loss = held_out;
    if (held_out) step.held_out_auc = trainer_.area_under_curve();
    step.tokens_per_s = tokens() / step.seconds;
    step.expert_loads = loads_;
    if (place < caches_.size()) step.caches = caches_[place];
    step.bad_lines = trainer_.data().bad_lines();
    step.spikes = guards_.see_joined(step, [this](const ordered_json& event) { report(event); });
    metrics_->append(step, ranks);
    tally_.add(step);
    ordered_json event = {{"event", "step"},
                          {"step", number},
                          {"steps", options_.steps},
                          {"loss", step.loss},
                          {"gradient_norm", step.gradient_norm},
                          {"learning_rate", step.learning_rate},
                          {"step_time_s", step.seconds},
                          {"tokens_per_s", step.tokens_per_s},
                          {"memory_peak_bytes", step.memory_peak}};
    if (step.lossless.tensors > 0) {
      event["lossless_tensors"] = step.lossless.tensors;
      event["lossless_computed_again"] = step.lossless.again;
    }
    report(event);
    name_stragglers(ranks, number);
    if (held_out) report(evaluation_event(done_, *held_out, step.held_out_auc));
  }

  void name_stragglers(const std::vector<RankMetrics>& ranks, std::int64_t step) {
    if (options_.oversubscribed) return;  // ranks that share a core are slow by turns
    std::vector<double> busy;
    for (const RankMetrics& rank : ranks) busy.push_back(rank.busy_s);
    for (const Straggler& one : stragglers_.note(busy))
      report({{"event", "straggler"}, {"step", step}, {"rank", one.rank}, {"ratio", one.ratio}});
  }

  void enter(RankPhase phase) const {
    if (Recorder* recorder = waiter_.recorder()) recorder->enter(phase);
  }

  void dump_gradients() {
    const LogicalTensors all =
        gather_logical(schedule_, Gathered::gradients, trainer_.executor().arena(), backend_, transport_);
    if (!first_rank()) return;
    const fs::path folder = options_.directory / "gradients";
    fs::create_directories(folder);
    write_tensors((folder / fmt::format("step-{:06}.safetensors", done_ + 1)).string(), all);
    report({{"event", "gradients"}, {"step", done_ + 1}});
  }

  void write_timeline() {
    const RankRecord mine{clock_, trainer_.executor().iterations(), trainer_.executor().spans(),
                          trainer_.executor().operators()};
    const std::vector<std::string> packed = transport_.gather_text(pack(mine));
    if (!first_rank()) return;
    std::vector<RankRecord> records;
    for (const std::string& one : packed) records.push_back(unpack(one));
    const plan::Timeline timeline = measured_timeline(schedule_, records, options_.oversubscribed);
    write_atomically(options_.directory / "timeline.json", plan::write_timeline(timeline, schedule_));
  }

  const plan::Plan& plan_;
  const plan::Training& training_;
  const plan::Schedule& schedule_;
  Backend& backend_;
  Transport& transport_;
  const Waiter& waiter_;
  const RunOptions& options_;
  FileLock lock_;     ///< rank 0
  MemoryNow before_;  ///< before the arena was allocated
  Trainer trainer_;
  CheckpointContext context_;
  RunCheckpoints checkpoints_;
  Stragglers stragglers_;  ///< rank 0
  FaultInjector faults_;
  Guards guards_;
  ClockLine clock_;
  std::optional<MetricsFile> metrics_;  ///< rank 0
  std::vector<CacheUses> caches_;       ///< rank 0: of tables, in the steps since ranks met
  ExpertLoads loads_;                   ///< rank 0: of experts in the last step
  std::optional<DataMark> data_;        ///< rank 0: what this run reads
  Resumed resumed_;
  std::int64_t first_step_ = 0, done_ = 0;
  std::optional<base::Diagnostics> fault_;
  bool due_ = false;                            ///< a checkpoint, after this step
  RunTally tally_{plan_.spec().plain_steps()};  ///< rank 0
  bool kernels_reported_ = false;
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
  Session one(plan, training, schedule, backend, transport, waiter, options, std::move(*opened), *faults);
  if (auto locked = agreed(transport, one.lock()); !locked) return locked;
  if (auto loaded = agreed(transport, one.load_or_say()); !loaded) return loaded;
  one.open_records();
  const bool completed = one.steps();
  if (one.fault()) return base::fail(*one.fault());
  one.finish(completed);
  return completed;
}

}  // namespace orrery::exec
