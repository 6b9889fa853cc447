#pragma once
/// What a run leaves in its directory while it goes on and at its end: metrics of each step, gradients on request, the
/// timeline, and the record of what it did. Rank 0 writes; the others hand it their parts.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/run/guards.h"
#include "exec/run/measured.h"
#include "exec/run/metrics.h"
#include "exec/run/run_beginning.h"
#include "exec/run/run_checkpoints.h"
#include "exec/run/run_parts.h"
#include "exec/run/run_tally.h"
#include "exec/run/stragglers.h"
#include "exec/run/trainer.h"

namespace orrery::exec {

class RunRecords {
 public:
  RunRecords(const RunParts& run, Trainer& trainer, Guards& guards);

  /// From here on this run's records count: an earlier run's are removed, except what is resumed. Collective.
  void open(RunBeginning& beginning);
  /// What checkpoints say about this run. Rank 0's alone are whole.
  [[nodiscard]] CheckpointNotes notes(RunBeginning& beginning);

  void started();
  /// Reports the kernels chosen, once the first steps have determined them.
  void kernels();
  void saved(const RunCheckpoints::Saved& saved) const;

  /// Steps since ranks last met, of which `last` is the newest. `mine`: by step; `packed`: this rank's lines of them,
  /// one after the other. `held_out`: the loss of an evaluation after the last one. Collective.
  void note(std::int64_t last, const std::vector<StepResult>& mine, const std::string& packed,
            std::optional<double> held_out);
  /// Writes this step's gradients, before the optimizer uses them. Collective.
  void gradients(std::int64_t step);

  /// The timeline and the run's record, after `done` steps. Collective.
  void finish(bool completed, std::int64_t done, const ClockLine& clock, const SavedTotals& checkpoints);

 private:
  void note_step(std::int64_t step, const StepResult& mine, const std::vector<RankMetrics>& ranks,
                 const CacheUses& caches, const ExpertLoads& loads, std::optional<double> held_out);
  void name_stragglers(const std::vector<RankMetrics>& ranks, std::int64_t step);
  void write_timeline(const ClockLine& clock);
  void report_graphs() const;

  const RunParts& run_;
  Trainer& trainer_;
  Guards& guards_;
  std::int64_t first_step_ = 0;
  std::optional<MetricsFile> metrics_;  ///< rank 0, as are the next two
  RunTally tally_;
  Stragglers stragglers_;
  bool kernels_reported_ = false;
};

}  // namespace orrery::exec
