#pragma once
/// Checkpoints: weights and both moments as logical tensors. Each rank writes what it alone owns into one safetensors
/// file. manifest.json says where each part of a logical tensor is, so that another plan can read it too.
///
///   checkpoints/step-000020/manifest.json, rank-00000.safetensors …
///
/// A checkpoint is written under a temporary name, synced and renamed, so a folder with the final name is complete.
/// Manifest and files are checked against each other before any value reaches the model. A failure on one rank is a
/// failure on all of them.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "exec/engine/arena.h"
#include "exec/engine/backend.h"
#include "exec/engine/transport.h"
#include "exec/state/checkpoint_manifest.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// The parts of a run that a checkpoint reads or writes.
struct CheckpointContext {
  const plan::Schedule& schedule;
  Arena& arena;
  Backend& backend;
  Transport& transport;
};

/// What a run tells its saver besides the values. All of it is optional.
struct CheckpointNotes {
  std::string run_id, job;       ///< written into manifests
  std::optional<DataMark> data;  ///< likewise
  std::filesystem::path marker;  ///< rank 0: a file whose existence says that the run has saved a checkpoint
  std::function<void()> before;  ///< rank 0: makes sure of what must be on the disk before a checkpoint gets its name
  std::function<void(const std::string&)> warn;  ///< rank 0: reports problems that stop nothing
};

/// Saves while training goes on. begin() copies what this rank owns to the host; a thread writes and syncs it while the
/// next steps run; commit(), once all ranks have written, gives the checkpoint its name. Meanwhile a rank holds a
/// second copy of its weights and states. If a save fails on some rank, all ranks throw the same Failure, what was
/// written of it is removed, and earlier checkpoints stay as they are.
class CheckpointSaver {
 public:
  /// Keeps the newest `keep` checkpoints of `folder` (at least 1).
  CheckpointSaver(const CheckpointContext& context, std::filesystem::path folder, int keep);
  /// A save that was begun and not committed has no name, and is not a checkpoint.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  void describe(CheckpointNotes notes) { notes_ = std::move(notes); }
  /// Looks at each part as it is copied, on the rank that owns it. If it throws Failure, the checkpoint never gets its
  /// name: commit() throws on all ranks.
  using Look = std::function<void(const CheckpointPart&, std::span<const float>)>;
  void look(Look at_values) { look_ = std::move(at_values); }

  /// Collective. `step`: training steps done so far; `sequences`: how much of the data they have read, none: the plan's
  /// batch for each. No other save may be pending. Throws Failure if the folder cannot be made.
  void begin(std::int64_t step, std::optional<std::int64_t> sequences = {});
  [[nodiscard]] bool pending() const { return writer_.joinable(); }
  /// Whether this rank's part is on the disk or has failed, so that commit() would not wait for it.
  [[nodiscard]] bool written() const { return written_; }
  /// Of the last commit: when its file was on the disk, and the file's size in bytes.
  [[nodiscard]] std::chrono::steady_clock::time_point written_at() const { return written_at_; }
  [[nodiscard]] std::int64_t bytes() const { return file_.bytes; }
  /// Collective. Waits for the save that begin() started, and returns its step. Throws Failure if a value could not be
  /// copied or a file could not be written.
  std::int64_t commit();

 private:
  [[nodiscard]] std::filesystem::path temporary_name() const;
  [[nodiscard]] std::vector<std::vector<float>> copied();
  void together_or_none(const std::function<void()>& body);
  void give_name(const std::vector<std::string>& shares);
  void tidy();
  CheckpointContext context_;
  std::filesystem::path folder_;
  int keep_;
  CheckpointNotes notes_;
  Look look_;
  std::int64_t step_ = 0, sequences_ = 0;
  std::vector<CheckpointPart> parts_;
  CheckpointFile file_;
  std::exception_ptr failure_;
  std::chrono::steady_clock::time_point written_at_{};
  std::atomic<bool> written_{false};
  std::thread writer_;
};

/// Collective: begin() and commit() together. Keeps the newest `keep` checkpoints (at least 1).
void save_checkpoint(const CheckpointContext& context, const std::filesystem::path& folder, std::int64_t step,
                     int keep = 2);

/// Collective. Loads a checkpoint folder; returns its step. Throws on all ranks alike: DamagedCheckpoint if it is not
/// what was saved; Failure if it is another optimizer's, if a tensor of the plan is missing or has another shape, or if
/// there is one more. `head`: the manifest without its lists.
std::int64_t load_checkpoint(const CheckpointContext& context, const std::filesystem::path& checkpoint,
                             Manifest* head = nullptr);

/// The newest checkpoint below `folder` that has a manifest, if any. A folder that cannot be listed has none.
[[nodiscard]] std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder);

}  // namespace orrery::exec
