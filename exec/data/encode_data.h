#pragma once
/// Text encoded once, into a token file that training reads: Megatron's .bin and .idx, one sequence a document.
#include <cstdint>
#include <filesystem>
#include <functional>

#include "base/result.h"
#include "exec/data/tokenizer.h"
#include "plan/spec/job.h"

namespace orrery::exec {

/// The token file for `data`, in `cache` under `name`: encoded there unless it is already, from the same files by the
/// same vocabulary. `data` that holds tokens already (.bin, .idx) is returned as it is. Documents are the files of a
/// folder, in the order of their paths, and within a file what its word for the end of a text divides; the token for it
/// stands behind each. Bounded memory; the same input gives the same bytes. `progress`: bytes done, of how many.
/// Diagnostics E0611, E0612, E0615 to E0617; throws Failure where the cache cannot be written.
[[nodiscard]] base::Result<std::filesystem::path> encoded_data(
    const std::filesystem::path& data, const std::filesystem::path& tokenizer, const std::filesystem::path& cache,
    const std::string& name, const std::function<void(std::int64_t, std::int64_t)>& progress = {});

/// Where a job's tokens are once its text is encoded: into `run`/tokens when the job names a tokenizer, else where the
/// job says. E0618 where the tokenizer has more tokens than the model.
struct JobTokens {
  std::filesystem::path data, held_out;  ///< empty: the job names none
};
[[nodiscard]] base::Result<JobTokens> job_tokens(const plan::Training& training, std::int64_t vocab,
                                                 const std::filesystem::path& run,
                                                 const std::function<void(std::int64_t, std::int64_t)>& progress = {});

/// The files of a folder that are its data: regular ones, links left out, sorted by path.
[[nodiscard]] base::Result<std::vector<std::filesystem::path>> data_files(const std::filesystem::path& path);

/// How much of `text` may be encoded now, when more follows: up to before a line's end that follows an ASCII letter,
/// where no piece of the known expressions begins before and ends behind. 0 where there is no such place.
[[nodiscard]] std::size_t safe_cut(std::string_view text);

}  // namespace orrery::exec
