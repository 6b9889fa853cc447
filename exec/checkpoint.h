#pragma once
/// Checkpoints: weights and both moments as logical tensors. Each rank writes what it alone owns into one safetensors
/// file; manifest.json says which part of which logical tensor stands where, so that another plan can read it too.
///
///   checkpoints/step-000020/manifest.json, rank-00000.safetensors …
///
/// A checkpoint is written under a temporary name, synced and renamed: what has the name is whole. Every file's length
/// and CRC-32 are checked before a value reaches the model.
#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exec/arena.h"
#include "exec/backend.h"
#include "exec/checkpoint_parts.h"
#include "exec/transport.h"
#include "plan/schedule.h"

namespace orrery::exec {

/// Everything that a checkpoint reads or writes of a run.
struct CheckpointContext {
  const plan::Schedule& schedule;
  Arena& arena;
  Backend& backend;
  Transport& transport;
};

/// Saves behind the training: begin() copies what this rank owns to the host, a thread writes and syncs it while the
/// next steps run, and commit(), once all ranks have written, gives the checkpoint its name. A rank holds a second copy
/// of its weights and states meanwhile.
class CheckpointSaver {
 public:
  /// Keeps the newest `keep` checkpoints of `folder` (at least 1).
  CheckpointSaver(const CheckpointContext& context, std::filesystem::path folder, int keep);
  /// What was begun and not committed has no name, and is no checkpoint.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Collective. `step`: how many training steps are done; `sequences`: how much of the data they have read, -1: as
  /// many batches of the plan. Nothing else may be pending.
  void begin(std::int64_t step, std::int64_t sequences = -1);
  [[nodiscard]] bool pending() const { return writer_.joinable(); }
  /// Whether this rank's part is on the disk, or has failed: commit() would not wait for it.
  [[nodiscard]] bool written() const { return written_; }
  /// Collective. Waits for what begin() set out, and returns its step. Throws Failure where a file could not be
  /// written.
  std::int64_t commit();

 private:
  [[nodiscard]] std::filesystem::path temporary_name() const;
  CheckpointContext context_;
  std::filesystem::path folder_;
  int keep_;
  std::int64_t step_ = 0, sequences_ = 0;
  std::vector<CheckpointPart> parts_;
  CheckpointFile file_;
  std::exception_ptr failure_;
  std::atomic<bool> written_{false};
  std::thread writer_;
};

/// Collective. begin() and commit() in one. Keeps the newest `keep` checkpoints (at least 1).
void save_checkpoint(const CheckpointContext& context, const std::filesystem::path& folder, std::int64_t step,
                     int keep = 2);

/// Collective. Loads a checkpoint folder; returns its step. Throws Failure when a file is damaged, when a parameter is
/// missing or has another shape, or when some element is covered by no file.
std::int64_t load_checkpoint(const CheckpointContext& context, const std::filesystem::path& checkpoint);

/// The newest whole checkpoint below `folder`, if any.
[[nodiscard]] std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder);

}  // namespace orrery::exec
