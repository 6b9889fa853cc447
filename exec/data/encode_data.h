#pragma once
/// Encodes text once, into a token file that training reads: Megatron's .bin and .idx, one sequence per document.
#include <cstdint>
#include <filesystem>
#include <functional>

#include "base/result.h"
#include "exec/data/tokenizer.h"
#include "plan/spec/job.h"

namespace orrery::exec {

/// The token file for `data`, in `cache` under `name`; encoded there unless it already was, from the same files with
/// the same vocabulary. `data` that already holds tokens (.bin, .idx) is returned as it is. Documents are the files of
/// a folder, in order of their paths, split at the vocabulary's word for the end of a text; its token follows each
/// document. Uses bounded memory; the same input gives the same bytes. `progress`: bytes done, of how many.
/// Diagnostics E0611, E0612, E0615 to E0617; throws Failure if the cache cannot be written.
[[nodiscard]] base::Result<std::filesystem::path> encoded_data(
    const std::filesystem::path& data, const std::filesystem::path& tokenizer, const std::filesystem::path& cache,
    const std::string& name, const std::function<void(std::int64_t, std::int64_t)>& progress = {});

/// Where a job's tokens are once its text is encoded: in `run`/tokens if the job names a tokenizer, else where the
/// job says. E0618 if the tokenizer has more tokens than the model.
struct JobTokens {
  std::filesystem::path data, held_out;  ///< empty: the job names none
};
[[nodiscard]] base::Result<JobTokens> job_tokens(const plan::Training& training, std::int64_t vocab,
                                                 const std::filesystem::path& run,
                                                 const std::function<void(std::int64_t, std::int64_t)>& progress = {});

/// The data files of a folder: regular ones without links, sorted by path.
[[nodiscard]] base::Result<std::vector<std::filesystem::path>> data_files(const std::filesystem::path& path);

/// The length of the beginning of `text` that can be encoded now if more follows: up to just before a line end that
/// follows an ASCII letter, because no piece of the known expressions spans that place. 0 if there is no such place.
[[nodiscard]] std::size_t safe_cut(std::string_view text);

}  // namespace orrery::exec
