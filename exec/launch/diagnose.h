#pragma once
/// Turns the traces that ranks left into a sentence: which rank ended or held up a run, how, in which training step and
/// in which message.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exec/launch/lifeline.h"

namespace orrery::exec {

/// A rank at the moment when the run was found to have failed.
struct RankAtFailure {
  std::optional<int> rank;  ///< none: it has not said which it is
  int process = 0;
  char state = '\0';  ///< state of its process (state_of_process); '\0': gone
  Recorded recorded;
};
/// `most`: newest messages of each rank.
[[nodiscard]] std::vector<RankAtFailure> look_at(const Lifelines& lines, std::size_t most);

/// The statuses that `mpiexec -print-all-exitcodes` prints: by rank, as from waitpid. Empty if the line has none.
[[nodiscard]] std::vector<int> wait_statuses_in(const std::string& line);

/// "rank 1 was killed by signal 9 (SIGKILL) in training step 17, during all_reduce over …", for the first rank that
/// ended before the run was done; empty if none did. `statuses`: by rank; may be empty.
[[nodiscard]] std::string who_died(const Lifelines& lines, const std::vector<int>& statuses);

/// Which rank keeps the others waiting: one that is stopped, one that computes while all others wait, or those that
/// wait for different things. Empty if that cannot be told.
[[nodiscard]] std::string who_holds_up(const std::vector<RankAtFailure>& ranks);

/// failure.json: the reason, and for each rank where it was and its last messages.
[[nodiscard]] std::string write_failure(const std::string& reason, const std::vector<RankAtFailure>& ranks);

}  // namespace orrery::exec
