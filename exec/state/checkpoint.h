#pragma once
/// Checkpoints: weights and both moments as logical tensors. Each rank writes what it alone owns into one safetensors
/// file; manifest.json says which part of which logical tensor stands where, so that another plan can read it too.
///
///   checkpoints/step-000020/manifest.json, rank-00000.safetensors …
///
/// A checkpoint is written under a temporary name, synced and renamed: what has the name is whole. Manifest and files
/// are held against each other before a value reaches the model. What fails on one rank fails on all of them together.
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

/// Everything that a checkpoint reads or writes of a run.
struct CheckpointContext {
  const plan::Schedule& schedule;
  Arena& arena;
  Backend& backend;
  Transport& transport;
};

/// What a run tells its saver beside the values. All may be left as they are.
struct CheckpointNotes {
  std::string run_id, job;       ///< into manifests
  std::optional<DataMark> data;  ///< the same
  std::filesystem::path marker;  ///< rank 0: a file that says, once it is there, that the run has saved a checkpoint
  std::function<void()> before;  ///< rank 0: what must be on the disk before a checkpoint has its name
  std::function<void(const std::string&)> warn;  ///< rank 0: what went wrong and stops nothing
};

/// Saves behind the training: begin() copies what this rank owns to the host, a thread writes and syncs it while the
/// next steps run, and commit(), once all ranks have written, gives the checkpoint its name. A rank holds a second copy
/// of its weights and states meanwhile. A save that fails on some rank throws the same Failure on all of them, takes
/// away what was written of it, and leaves earlier checkpoints as they are.
class CheckpointSaver {
 public:
  /// Keeps the newest `keep` checkpoints of `folder` (at least 1).
  CheckpointSaver(const CheckpointContext& context, std::filesystem::path folder, int keep);
  /// What was begun and not committed has no name, and is no checkpoint.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  void describe(CheckpointNotes notes) { notes_ = std::move(notes); }
  /// Sees each part as it is copied, on the rank that owns it. Where it throws Failure, the checkpoint never gets its
  /// name: commit() throws on all ranks.
  using Look = std::function<void(const CheckpointPart&, std::span<const float>)>;
  void look(Look at_values) { look_ = std::move(at_values); }

  /// Collective. `step`: how many training steps are done; `sequences`: how much of the data they have read, -1: as
  /// many batches of the plan. Nothing else may be pending. Throws Failure where the folder cannot be made.
  void begin(std::int64_t step, std::int64_t sequences = -1);
  [[nodiscard]] bool pending() const { return writer_.joinable(); }
  /// Whether this rank's part is on the disk, or has failed: commit() would not wait for it.
  [[nodiscard]] bool written() const { return written_; }
  /// Of what was committed last: when its file was on the disk, and the file's bytes.
  [[nodiscard]] std::chrono::steady_clock::time_point written_at() const { return written_at_; }
  [[nodiscard]] std::int64_t bytes() const { return file_.bytes; }
  /// Collective. Waits for what begin() set out, and returns its step. Throws Failure where a value could not be
  /// copied or a file not be written.
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

/// Collective. begin() and commit() in one. Keeps the newest `keep` checkpoints (at least 1).
void save_checkpoint(const CheckpointContext& context, const std::filesystem::path& folder, std::int64_t step,
                     int keep = 2);

/// Collective. Loads a checkpoint folder; returns its step. Throws, on all ranks alike, DamagedCheckpoint where it is
/// not what was saved, and Failure when it is another optimizer's, or lacks a tensor of the plan's, has another shape
/// of it or one more. `head`: the manifest, without its lists.
std::int64_t load_checkpoint(const CheckpointContext& context, const std::filesystem::path& checkpoint,
                             Manifest* head = nullptr);

/// The newest checkpoint below `folder` that has a manifest, if any. What cannot be listed has none.
[[nodiscard]] std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder);

}  // namespace orrery::exec
