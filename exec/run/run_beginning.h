#pragma once
/// How a run begins: it locks its directory, then takes its parameters from a checkpoint, a file or the seed.
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "exec/data/mark.h"
#include "exec/files/files.h"
#include "exec/run/run_parts.h"
#include "exec/run/trainer.h"
#include "exec/state/checkpoint.h"
#include "exec/state/generations.h"

namespace orrery::exec {

class RunBeginning {
 public:
  RunBeginning(const RunParts& run, Trainer& trainer, const CheckpointContext& context)
      : run_(run), trainer_(trainer), context_(context) {}

  /// Locks the run directory until this is destroyed: a second trainer in it would mix two runs. An earlier run's
  /// records are resumed or removed only on request. Collective; its result is rank 0's alone.
  [[nodiscard]] base::Result<bool> lock();

  /// Loads parameters from a checkpoint, a file or the seed. Writes nothing yet, so that a failed start leaves what
  /// was there. Input errors that only reading the values shows become Diagnostics like the others.
  [[nodiscard]] base::Result<bool> load();

  /// Steps that the resumed run has done; 0 if this is a new one.
  [[nodiscard]] std::int64_t first_step() const { return first_step_; }
  [[nodiscard]] const Resumed& resumed() const { return resumed_; }
  /// Rank 0: what this run reads. Expensive, so it is made once, when it is first wanted.
  [[nodiscard]] const DataMark& data();

 private:
  [[nodiscard]] base::Result<bool> parameters();
  [[nodiscard]] base::Result<bool> resume();

  const RunParts& run_;
  Trainer& trainer_;
  const CheckpointContext& context_;
  FileLock lock_;                 ///< rank 0
  std::optional<DataMark> data_;  ///< rank 0
  Resumed resumed_;
  std::int64_t first_step_ = 0;
};

}  // namespace orrery::exec
