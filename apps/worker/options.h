#pragma once
/// The worker's command line. `orrery train` writes it; people may use it too.
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/result.h"
#include "exec/run/sample.h"

namespace orrery::worker {

struct Options {
  std::string plan, run, run_id;
  std::string backend = "cpu";
  std::string transport = "mpi";      ///< or "threads": all ranks in this process (of a probe: one)
  std::int64_t steps = 0;             ///< 0: those of the plan's job
  int threads = 0;                    ///< per rank; 0: cores / ranks
  std::int64_t checkpoint_every = 0;  ///< steps; 0: by time
  std::int64_t keep = 2;              ///< number of newest checkpoints to keep
  std::chrono::seconds checkpoint_interval{60};
  bool checkpoint = true;
  bool resume = false;
  bool overwrite = false;
  bool recompute_whole_layer = false;
  bool zero_gradients = false;
  bool progress_thread = false;  ///< CPU ranks: messages progress while the rank computes
  bool graphs = true;            ///< CUDA: run sequences of steps as graphs
  bool queue_messages = true;    ///< NCCL: the device orders messages, not the host
  bool repeat = true;            ///< CUDA: repeat bit by bit, whatever it costs
  bool serial = false;           ///< one rank: the plan's serial program instead of the plan
  bool stop_on_spike = false;    ///< as in exec::GuardOptions; so is the next
  std::optional<std::int64_t> hash_every;
  bool check_memory = false;  ///< check for overlaps, and fill newborn buffers with NaN
  std::set<std::int64_t> dump_gradients;
  std::chrono::seconds deadline{120};
  bool sample = false;            ///< print text from the run's newest checkpoint instead of training
  exec::SampleOptions text;       ///< what and how to sample
  bool probe = false;             ///< measure this machine instead of training
  std::int64_t budget_s = 40;     ///< time to measure for
  std::int64_t most_bytes = 0;    ///< of one workload of a probe, per rank; 0: the default
  std::int64_t stream_bytes = 0;  ///< of one array of a probe, too large for any cache; 0: the default
};

[[nodiscard]] base::Result<Options> parse_options(int count, char** arguments);
[[nodiscard]] const char* usage();

}  // namespace orrery::worker
