#pragma once
/// The clockwork of simulate(): what each class of equal ranks did when, and what passed the links. Private to sim/.
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plan/schedule/timeline.h"
#include "sim/flow_network.h"
#include "sim/traffic.h"

namespace orrery::sim {

/// Busy and waiting time of one rank's compute stream and of its messages over one training step.
struct RankTotals {
  std::vector<Picoseconds> compute;  ///< by plan::Phase
  std::vector<Picoseconds> exposed;  ///< by plan::Stream of the message waited for
  Picoseconds bubble = 0;
  Picoseconds end = 0;
  struct Message {
    std::int64_t count = 0;
    Picoseconds time = 0, exposed = 0;
    bool operator==(const Message&) const = default;
  };
  std::vector<std::vector<Message>> messages;  ///< [block][step], summed over entries
  bool operator==(const RankTotals&) const = default;
};

/// Equal ranks.
struct ClassReplay {
  int job = 0, stage = 0;
  int representative = 0;
  int count = 0;
  RankTotals totals;
};

struct Replay {
  std::vector<ClassReplay> classes;
  std::vector<int> links;                      ///< directions of the fabric that anything crosses
  std::vector<std::vector<double>> carried;    ///< bytes, by job and link
  std::vector<Picoseconds> makespan;           ///< by job
  std::vector<std::vector<plan::Span>> spans;  ///< by job, of the lowest rank of each stage; seconds
  std::int64_t spans_left_out = 0;             ///< beyond ReplayOptions::most_spans
  std::int64_t steps_walked = 0;  ///< of all classes; those of micro-batches that do as others before them are not
};

struct ReplayOptions {
  bool spans = true;
  bool every_rank = false;         ///< fold nothing
  bool every_micro_batch = false;  ///< walk all of them, also those that do as others before them
  /// Where a step has more, micro-batches that do as others before them are left out, and what is still too much.
  std::int64_t most_spans = std::numeric_limits<std::int64_t>::max();
  std::int64_t training_step = plan::kLateStep;  ///< of a run: steps of others are left out
};

/// `cluster` is every job's pricing.cluster(); `fabric` its links, null if nobody shares any.
[[nodiscard]] Replay replay(std::span<const JobOnCluster> jobs, const clusters::Cluster& cluster, const Fabric* fabric,
                            const ReplayOptions& options);

}  // namespace orrery::sim
