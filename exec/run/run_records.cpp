// Metrics, timeline and record of a run, and the events that go with them.
#include "exec/run/run_records.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "exec/events.h"
#include "exec/files/checksum.h"
#include "exec/run/run_start.h"
#include "exec/state/agreement.h"
#include "exec/state/gather_logical.h"
#include "exec/state/weight_names.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

/// Ranks of a stage have the same work.
std::vector<int> stages_of_ranks(const plan::Plan& plan) {
  std::vector<int> out;
  for (int rank = 0; rank < plan.spec().mesh.ranks(); ++rank) out.push_back(rank / plan.spec().mesh.ranks_per_stage());
  return out;
}

}  // namespace

RunRecords::RunRecords(const RunParts& run, Trainer& trainer, Guards& guards)
    : run_(run),
      trainer_(trainer),
      guards_(guards),
      tally_(run.plan.spec().plain_steps()),
      stragglers_(stages_of_ranks(run.plan)) {}

void RunRecords::open(RunBeginning& beginning) {
  const RunOptions& options = run_.options;
  first_step_ = beginning.first_step();
  together(run_.transport, [&] {
    if (!run_.first_rank()) return;
    if (options.overwrite) remove_run(options.directory);
    for (const DamagedGeneration& one : beginning.resumed().damaged) keep_damaged(options.directory, one);
    for (const char* name : {"completed.json", "failure.json"}) remove_tree(options.directory / name);
    if (first_step_ < options.steps) remove_tree(options.directory / "timeline.json");
    write_atomically(options.directory / "plan.yaml", options.plan_text);
    (void)beginning.data();  // a failure to read it ends all ranks
    metrics_.emplace(options.directory / "metrics.jsonl", first_step_);
    if (metrics_->damaged() > 0)
      run_.warn("E0645", fmt::format("{} lines of metrics.jsonl were not records of a step", metrics_->damaged()),
                "they are kept in metrics.jsonl.damaged");
    tally_.resume(metrics_->kept(), first_step_ >= options.steps);
  });
}

CheckpointNotes RunRecords::notes(RunBeginning& beginning) {
  CheckpointNotes notes;
  notes.run_id = run_.options.run_id;
  notes.job = fmt::format("{:08x}", crc32(std::as_bytes(std::span(run_.options.plan_text))));
  if (!run_.first_rank()) return notes;
  notes.data = beginning.data();
  notes.marker = run_.options.directory / kSavedMark;
  notes.before = [this] { metrics_->sync(); };
  notes.warn = [this](const std::string& what) {
    run_.warn("E0644", what, "the checkpoint itself was saved; there may be more older ones than --keep says");
  };
  return notes;
}

void RunRecords::started() {
  run_.report({{"event", "started"},
               {"steps", run_.options.steps},
               {"resumed_from", first_step_},
               {"backend", run_.backend.name()},
               {"device", run_.backend.device_name()},
               {"ranks", run_.transport.size()},
               {"threads", run_.options.threads},
               {"oversubscribed", run_.options.oversubscribed}});
}

void RunRecords::kernels() {
  if (!run_.first_rank() || std::exchange(kernels_reported_, true)) return;
  ordered_json choices = ordered_json::array();
  for (const KernelChoice& choice : run_.backend.kernel_choices())
    choices.push_back({{"operator", choice.op}, {"kernel", choice.kernel}, {"reason", choice.reason}});
  if (!choices.empty()) run_.report({{"event", "kernels"}, {"choices", choices}});
}

void RunRecords::saved(const RunCheckpoints::Saved& saved) const {
  run_.report({{"event", "checkpoint"},
               {"step", saved.step},
               {"pause_s", saved.cost.slowest.pause()},
               {"write_s", saved.cost.slowest.write},
               {"durable_s", saved.durable_s},
               {"bytes", saved.cost.bytes}});
}

void RunRecords::note(std::int64_t last, const std::vector<StepResult>& mine, const std::string& packed,
                      std::optional<double> held_out) {
  const std::vector<std::string> lines = run_.transport.gather_text(packed);
  ExpertLoads loads;
  if (run_.plan.model().experts.any()) loads = gather_loads(run_.transport, run_.plan, mine.back().experts);
  std::vector<CacheUses> caches;
  if (trainer_.executor().rank_class().cache.exists()) caches = gather_caches(run_.transport, mine);
  if (!run_.first_rank()) return;
  const std::int64_t first = last - static_cast<std::int64_t>(mine.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    std::vector<RankMetrics> ranks;
    for (const std::string& line : lines)
      ranks.push_back(unpack_metrics(line.substr(i * sizeof(RankMetrics), sizeof(RankMetrics))));
    note_step(first + static_cast<std::int64_t>(i) + 1, mine[i], ranks, i < caches.size() ? caches[i] : CacheUses{},
              loads, i + 1 == mine.size() ? held_out : std::nullopt);
  }
}

void RunRecords::note_step(std::int64_t number, const StepResult& mine, const std::vector<RankMetrics>& ranks,
                           const CacheUses& caches, const ExpertLoads& loads, std::optional<double> held_out) {
  StepMetrics step = join_metrics(ranks, run_.plan);
  step.step = number;
  step.learning_rate = mine.learning_rate;
  step.loss_scale = mine.loss_scale;
  step.skipped = mine.skipped;
  step.held_out_loss = held_out;
  if (held_out) step.held_out_auc = trainer_.area_under_curve();
  step.tokens_per_s = run_.tokens() / step.seconds;
  step.expert_loads = loads;
  step.caches = caches;
  step.bad_lines = trainer_.data().bad_lines();
  step.spikes = guards_.see_joined(step, [this](const ordered_json& event) { run_.report(event); });
  metrics_->append(step, ranks);
  tally_.add(step);
  ordered_json event = {{"event", "step"},
                        {"step", number},
                        {"steps", run_.options.steps},
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
  run_.report(event);
  name_stragglers(ranks, number);
  if (held_out) run_.report(evaluation_event(number, *held_out, step.held_out_auc));
}

void RunRecords::name_stragglers(const std::vector<RankMetrics>& ranks, std::int64_t step) {
  if (run_.options.oversubscribed) return;  // ranks that share a core are slow by turns
  std::vector<double> busy;
  for (const RankMetrics& rank : ranks) busy.push_back(rank.busy_s);
  for (const Straggler& one : stragglers_.note(busy))
    run_.report({{"event", "straggler"}, {"step", step}, {"rank", one.rank}, {"ratio", one.ratio}});
}

void RunRecords::gradients(std::int64_t step) {
  const LogicalTensors all =
      gather_logical(run_.schedule, Gathered::gradients, trainer_.executor().arena(), run_.backend, run_.transport);
  if (!run_.first_rank()) return;
  const fs::path folder = run_.options.directory / "gradients";
  fs::create_directories(folder);
  write_tensors((folder / fmt::format("step-{:06}.safetensors", step)).string(), all);
  run_.report({{"event", "gradients"}, {"step", step}});
}

void RunRecords::finish(bool completed, std::int64_t done, const ClockLine& clock, const SavedTotals& checkpoints) {
  if (run_.options.timeline && done > first_step_) write_timeline(clock);
  if (!run_.first_rank()) return;
  report_graphs();
  const Guards::Counts& counts = guards_.counts();
  Completion record;
  record.run_id = run_.options.run_id;
  record.completed = completed;
  record.steps = done;
  record.resumed_from = first_step_;
  tally_.write(record, run_.tokens());
  record.backend = run_.backend.name();
  record.device = run_.backend.device_name();
  record.ranks = run_.transport.size();
  record.threads = run_.options.threads;
  record.oversubscribed = run_.options.oversubscribed;
  record.spikes = counts.spikes;
  record.skipped = counts.skipped;
  record.looks = counts.looks;
  record.looks_s = counts.looks_s;
  record.checkpoints = checkpoints;
  record.bad_lines = trainer_.data().bad_lines();
  record.held_out_auc = trainer_.area_under_curve();
  record.best_auc = trainer_.best_area();
  if (const auto warning = tally_.little_room(run_.plan.spec().compression.capacity))
    run_.report(diagnostic_event(*warning));
  write_atomically(run_.options.directory / "completed.json", write_completion(record));
  run_.report({{"event", completed ? "completed" : "stopped"}, {"step", done}});
}

void RunRecords::report_graphs() const {
  if (!run_.backend.captures()) return;
  const Executor::GraphCounts& g = trainer_.executor().graphs();
  run_.report({{"event", "graphs"},
               {"captured", g.captured},
               {"replayed", g.replayed},
               {"steps_in_graphs", g.steps},
               {"steps_without", g.plain_steps},
               {"failed", g.failed},
               {"reason", g.reason}});
}

void RunRecords::write_timeline(const ClockLine& clock) {
  Executor& executor = trainer_.executor();
  const RankRecord mine{clock, executor.iterations(), executor.spans(), executor.operators()};
  const std::vector<std::string> packed = run_.transport.gather_text(pack(mine));
  if (!run_.first_rank()) return;
  std::vector<RankRecord> records;
  for (const std::string& one : packed) records.push_back(unpack(one));
  const plan::Timeline timeline = measured_timeline(run_.schedule, records, run_.options.oversubscribed);
  write_atomically(run_.options.directory / "timeline.json", plan::write_timeline(timeline, run_.schedule));
}

}  // namespace orrery::exec
