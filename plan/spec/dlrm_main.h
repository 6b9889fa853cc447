#pragma once
/// torchrec_dlrm/dlrm_main.py, the benchmark on TorchRec, and what both scripts' readers share.
#include <span>
#include <string_view>

#include "base/result.h"
#include "plan/spec/dlrm_arguments.h"
#include "plan/spec/dlrm_words.h"

namespace orrery::plan {

[[nodiscard]] std::span<const DlrmArgument> dlrm_main_arguments();
/// `launcher`: the words before the script, which say how many processes there are; `own`: those behind it.
[[nodiscard]] base::Result<DlrmCommand> read_dlrm_main(std::string_view text, std::span<const DlrmWord> launcher,
                                                       std::span<const DlrmWord> own);

/// A model within the bounds of the reader of models.
[[nodiscard]] base::Result<models::Model> checked_model(models::Recommender r);
/// Samples that the job draws, with the note that says how they differ: the labels of both scripts' random data do not
/// depend on anything.
void draw_samples(DlrmCommand& command);
inline constexpr const char* kOneEpoch =
    "The benchmark goes through its data once per epoch; here `steps` says how far to go.";

}  // namespace orrery::plan
