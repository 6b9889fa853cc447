#pragma once
/// What stands in a run directory before a run begins in it, and what of it may go. In doubt nothing is removed.
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "exec/state/generations.h"
#include "plan/spec/job.h"
#include "plan/spec/plan.h"

namespace orrery::exec {

/// Names in a run directory that more than one place uses.
inline constexpr const char* kCheckpoints = "checkpoints";
inline constexpr const char* kSavedMark = "saved.json";  ///< there as soon as a checkpoint has been saved

/// What a run has left there that beginning anew would lose: "records of 20 steps, 2 checkpoints"; empty where nothing
/// was recorded yet (a plan, a lock and encoded text alone).
[[nodiscard]] std::string recorded_in(const std::filesystem::path& run);

/// E0640 where something is recorded and neither going on nor overwriting was asked for.
[[nodiscard]] base::Result<bool> may_begin_in(const std::filesystem::path& run);

/// Of a run that is to go on: whether there are checkpoints to try; false where nothing was saved yet, so that it
/// begins at step 1. E0641 where that is in doubt: the folder is a link to nothing or cannot be listed, or something
/// says that steps were saved and no checkpoint is there. Diagnostics say what was found and what would go on.
[[nodiscard]] base::Result<bool> may_resume_in(const std::filesystem::path& run);

/// E0641 of checkpoints of which none is whole.
[[nodiscard]] base::Diagnostic nothing_whole(const std::filesystem::path& run, const std::string& found);

/// Whether the run's own record says that it has done all its steps.
[[nodiscard]] bool recorded_as_completed(const std::filesystem::path& run);

/// Removes what processes that died have left half written, by the names that runs give: temporaries of the records,
/// checkpoints without a name, files of offloaded state of other runs than `run_id`. The directory is locked.
/// Throws Failure.
void sweep_debris(const std::filesystem::path& run, const std::string& run_id);

/// Removes an earlier run's records and checkpoints, damaged ones included, and nothing that is not a run's by its
/// name. A link to a folder of checkpoints stays. What is killed while it removes leaves a mark, by which
/// finish_removing goes on, so that nobody resumes half of what was to go. Throw Failure.
void remove_run(const std::filesystem::path& run);
void finish_removing(const std::filesystem::path& run);

/// Whether the stored plan is of the model that is to go on (E0625 where not). Names and sources may differ.
[[nodiscard]] base::Result<bool> same_model(const std::filesystem::path& run, const plan::Plan& plan);

/// Warnings of what is gone on from. E0628 where the next step would not read what the run that is resumed would have
/// read: the place in the data is the number of sequences that were read, whatever the size of batches. E0642 of each
/// checkpoint that was damaged, E0643 of one whose manifest has no checksum. `now`: this run's data.
[[nodiscard]] base::Diagnostics said_of(const std::filesystem::path& run, const Resumed& resumed,
                                        const plan::Plan& plan, const plan::Training& training, const DataMark& now);

/// Keeps a damaged checkpoint under another name, with the records of its time. Throws Failure.
void keep_damaged(const std::filesystem::path& run, const DamagedGeneration& damaged);

}  // namespace orrery::exec
