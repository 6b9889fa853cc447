#pragma once
/// What a run directory contains before a run begins in it, and what of it may be removed. If in doubt, nothing is.
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "exec/state/generations.h"
#include "plan/spec/job.h"
#include "plan/spec/plan.h"

namespace orrery::exec {

/// Names in a run directory that are used in more than one place.
inline constexpr const char* kCheckpoints = "checkpoints";
inline constexpr const char* kSavedMark = "saved.json";  ///< exists once a checkpoint has been saved

/// What a run has left there that a new one would lose: "records of 20 steps, 2 checkpoints"; empty if nothing has been
/// recorded (only a plan, a lock and encoded text).
[[nodiscard]] std::string recorded_in(const std::filesystem::path& run);

/// E0640 if something is recorded and neither resuming nor overwriting was asked for.
[[nodiscard]] base::Result<bool> may_begin_in(const std::filesystem::path& run);

/// Whether a run to be resumed has checkpoints to try; false if nothing was saved yet, so that it begins at step 1.
/// E0641 if that is in doubt: the folder is a dangling link or cannot be listed, or something says that steps were
/// saved and there is no checkpoint. Diagnostics say what was found and how to resume.
[[nodiscard]] base::Result<bool> may_resume_in(const std::filesystem::path& run);

/// E0641 for checkpoints none of which is whole.
[[nodiscard]] base::Diagnostic nothing_whole(const std::filesystem::path& run, const std::string& found);

/// Whether the run's own record says that it has done all its steps.
[[nodiscard]] bool recorded_as_completed(const std::filesystem::path& run);

/// Removes what dead processes have left half-written, by the names that runs use: temporaries of the records,
/// checkpoints without a name, files of offloaded state of runs other than `run_id`. The directory must be locked.
/// Throws Failure.
void sweep_debris(const std::filesystem::path& run, const std::string& run_id);

/// Removes an earlier run's records and checkpoints, including damaged ones, and nothing whose name is not a run's. A
/// link to a folder of checkpoints stays. If it is killed meanwhile, it leaves a mark by which finish_removing
/// completes the removal, so that no run resumes from the half that is left. Both throw Failure.
void remove_run(const std::filesystem::path& run);
void finish_removing(const std::filesystem::path& run);

/// Whether the stored plan is of the model to be resumed (E0625 if not), and whether its checkpoints have all that the
/// plan continues from (E0670). Names and sources may differ.
[[nodiscard]] base::Result<bool> may_go_on(const std::filesystem::path& run, const plan::Plan& plan);

/// Warnings about what is resumed. E0628 if the next step would not read the data that the resumed run would have read
/// next (the position in the data is the number of sequences read, whatever the batch size). E0642 for each damaged
/// checkpoint, E0643 for one whose manifest has no checksum. `now`: this run's data.
[[nodiscard]] base::Diagnostics said_of(const std::filesystem::path& run, const Resumed& resumed,
                                        const plan::Plan& plan, const plan::Training& training, const DataMark& now);

/// Keeps a damaged checkpoint under another name, with the records up to its time. Throws Failure.
void keep_damaged(const std::filesystem::path& run, const DamagedGeneration& damaged);

}  // namespace orrery::exec
