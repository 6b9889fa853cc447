// The run: start or resume, steps, stops, records.
#include "exec/run.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "exec/checkpoint.h"
#include "exec/failure.h"
#include "exec/files.h"
#include "exec/gather_logical.h"
#include "exec/initialise.h"
#include "exec/measured.h"
#include "exec/metrics.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::size_t kMostSpans = 300'000;  // in timeline.json, over all ranks: about 25 MB

std::size_t recorded_iterations(const plan::Schedule& schedule) {
  std::size_t longest = 1;
  for (const plan::RankClass& rank_class : schedule.classes) {
    std::size_t steps = 0;
    for (const plan::Entry& entry : rank_class.program)
      steps += rank_class.blocks[static_cast<std::size_t>(entry.block)].steps.size();
    longest = std::max(longest, steps);
  }
  return std::max<std::size_t>(2, kMostSpans / longest / static_cast<std::size_t>(schedule.spec.ranks()));
}

class Session {
 public:
  Session(const plan::Plan& plan, const plan::Training& training, const plan::Schedule& schedule, Backend& backend,
          Transport& transport, const Waiter& waiter, const RunOptions& options, Batches batches)
      : plan_(plan),
        training_(training),
        schedule_(schedule),
        backend_(backend),
        transport_(transport),
        waiter_(waiter),
        options_(options),
        before_(memory_now(nullptr)),
        trainer_(plan, training, schedule, backend, transport, waiter, std::move(batches),
                 {options.check, true, recorded_iterations(schedule)}),
        context_{schedule, trainer_.executor().arena(), backend, transport} {}

  /// Parameters from a checkpoint, a file or the seed; what was there of an earlier run is taken up or cleared away.
  base::Result<bool> start() {
    report({{"event", "preparing"}});  // drawing or reading a large model's weights takes its time
    if (first_rank()) {
      fs::create_directories(options_.directory);
      write_atomically(options_.directory / "plan.yaml", options_.plan_text);
    }
    transport_.barrier();
    std::optional<fs::path> latest;
    if (options_.resume) latest = latest_checkpoint(options_.directory / "checkpoints");
    if (latest) {
      first_step_ = load_checkpoint(context_, *latest);
      if (first_step_ >= options_.steps)
        return base::fail(
            "E0621", fmt::format("the run has done {} steps already, {} were asked for", first_step_, options_.steps),
            "ask for more with --steps, or train into another directory");
    } else if (!training_.initial_weights.empty()) {
      auto file = SafetensorsFile::open(training_.initial_weights);
      if (!file) return base::fail(file.error());
      auto source = file_source(*file, schedule_);
      if (!source) return base::fail(source.error());
      initialise(schedule_, transport_.rank(), trainer_.executor().arena(), backend_, *source);
    } else {
      initialise(schedule_, transport_.rank(), trainer_.executor().arena(), backend_, seeded_source(training_.seed));
    }
    if (first_rank()) fs::remove(options_.directory / "completed.json");  // an earlier run's; now this one's counts
    if (first_rank()) metrics_.emplace(options_.directory / "metrics.jsonl", first_step_);
    return true;
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
    bool stopped = false;
    done_ = first_step_;
    while (done_ < options_.steps && !stopped) {
      stopped = one_step();
      const bool last = done_ == options_.steps || stopped;
      const bool due = options_.checkpoint_every > 0 && done_ % options_.checkpoint_every == 0;
      if (options_.checkpoint && (last || due)) {
        save_checkpoint(context_, options_.directory / "checkpoints", done_);
        report({{"event", "checkpoint"}, {"step", done_}});
      }
    }
    clock_.end = read_clock(transport_, waiter_);
    return done_ == options_.steps;
  }

  void finish(bool completed) {
    write_timeline();
    if (!first_rank()) return;
    Completion record;
    record.run_id = options_.run_id;
    record.completed = completed;
    record.steps = done_;
    record.resumed_from = first_step_;
    record.first_loss = first_loss_;
    record.final_loss = last_loss_;
    if (durations_.size() > 1) durations_.erase(durations_.begin());
    record.step_time_s = median(durations_);
    record.tokens_per_s = tokens() / record.step_time_s;
    record.memory_peak_bytes = memory_peak_;
    record.backend = backend_.name();
    record.device = backend_.device_name();
    record.ranks = transport_.size();
    record.threads = options_.threads;
    record.oversubscribed = options_.oversubscribed;
    write_atomically(options_.directory / "completed.json", write_completion(record));
    report({{"event", completed ? "completed" : "stopped"}, {"step", done_}});
  }

 private:
  bool first_rank() const { return transport_.rank() == 0; }
  double tokens() const { return static_cast<double>(plan_.spec().batch * plan_.spec().sequence); }
  void report(const ordered_json& event) const {
    if (first_rank() && options_.report) options_.report(event.dump());
  }

  /// Returns true when some rank was asked to stop.
  bool one_step() {
    std::function<void()> capture;
    if (options_.dump_gradients.count(done_ + 1)) capture = [this] { dump_gradients(); };
    const StepResult mine = trainer_.step_here(done_, capture);
    ++done_;
    RankMetrics line;
    line.loss = mine.loss;
    line.gradient_norm = mine.gradient_norm;
    line.seconds = mine.seconds;
    line.memory = memory_now(&trainer_.executor().arena());
    line.memory.scratch = backend_.scratch_bytes();
    line.resident_before = before_.resident;
    const std::vector<std::string> lines = transport_.gather_text(pack_metrics(line));
    if (first_rank()) note(mine, lines);
    return transport_.maximum(options_.stop && options_.stop->load() ? 1.0 : 0.0) > 0;
  }

  void note(const StepResult& mine, const std::vector<std::string>& lines) {
    std::vector<RankMetrics> ranks;
    for (const std::string& line : lines) ranks.push_back(unpack_metrics(line));
    StepMetrics step = join_metrics(ranks);
    step.step = done_;
    step.learning_rate = mine.learning_rate;
    step.tokens_per_s = tokens() / step.seconds;
    metrics_->append(step, ranks);
    if (done_ == first_step_ + 1) first_loss_ = step.loss;
    last_loss_ = step.loss;
    memory_peak_ = step.memory_peak;
    durations_.push_back(step.seconds);
    report({{"event", "step"},
            {"step", done_},
            {"steps", options_.steps},
            {"loss", step.loss},
            {"gradient_norm", step.gradient_norm},
            {"learning_rate", step.learning_rate},
            {"step_time_s", step.seconds},
            {"tokens_per_s", step.tokens_per_s},
            {"memory_peak_bytes", step.memory_peak}});
    if (!std::isfinite(step.loss))
      throw Failure(fmt::format("the loss of step {} is not a finite number; the last checkpoint stands", done_));
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
    const RankRecord mine{clock_, trainer_.executor().iterations(), trainer_.executor().spans()};
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
  MemoryNow before_;  ///< before the arena
  Trainer trainer_;
  CheckpointContext context_;
  ClockLine clock_;
  std::optional<MetricsFile> metrics_;  ///< rank 0
  std::int64_t first_step_ = 0, done_ = 0;
  double first_loss_ = 0, last_loss_ = 0, memory_peak_ = 0;
  std::vector<double> durations_;
};

/// What went wrong on some rank, on all of them: a rank that could read its input must not wait for one that could not.
base::Result<bool> agreed(Transport& transport, base::Result<bool> mine) {
  const bool any = transport.maximum(mine ? 0.0 : 1.0) > 0;
  if (!mine || !any) return mine;
  return base::fail("E0622", "another rank could not read the run's input");
}

}  // namespace

base::Result<bool> run(const plan::Plan& plan, const plan::Training& training, const plan::Schedule& schedule,
                       Backend& backend, Transport& transport, const Waiter& waiter, const RunOptions& options) {
  if (plan.spec().precision != models::DType::fp32)
    return base::fail("E0623",
                      fmt::format("the plan computes in {}, the {} backend in fp32",
                                  models::name_of(plan.spec().precision), backend.name()),
                      "make the plan with precision: fp32");
  if (!plan.model().causal)
    return base::fail("E0624",
                      fmt::format("{} is not causal: each token sees the next one, which is what it would be trained "
                                  "to predict",
                                  plan.model().name),
                      "models that look both ways (BERT) are planned and simulated, not trained; train a causal one");
  auto stream = training.data.empty()
                    ? base::Result<TokenStream>(
                          base::fail("E0610", "the plan's job names no training data", "add training.data to the job"))
                    : TokenStream::open(training.data);
  auto opened = agreed(transport, stream ? base::Result<bool>(true) : base::Result<bool>(base::fail(stream.error())));
  if (!opened) return opened;
  Batches batches(std::move(*stream), training.order, training.seed, plan.spec().batch, plan.spec().sequence,
                  plan.model().vocab);
  Session one(plan, training, schedule, backend, transport, waiter, options, std::move(batches));
  auto started = agreed(transport, one.start());
  if (!started) return started;
  const bool completed = one.steps();
  one.finish(completed);
  return completed;
}

}  // namespace orrery::exec
