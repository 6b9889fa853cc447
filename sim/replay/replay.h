#pragma once
/// The engine of simulate(): what each class of equal ranks did when, and what crossed the links. Private to sim/.
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plan/schedule/timeline.h"
#include "sim/links/flow_network.h"
#include "sim/links/traffic.h"

namespace orrery::sim {

/// Busy and waiting time of one rank's compute stream and of its messages in one training step.
struct RankTotals {
  std::vector<Picoseconds> compute;  ///< by plan::Phase; of the mean rank
  std::vector<Picoseconds> exposed;  ///< by plan::Stream of the awaited message; without contention
  Picoseconds contention = 0;        ///< exposed: beyond the time that the transfers take alone
  Picoseconds fuller_compute = 0;    ///< what the rank with most has beyond the mean rank (cost/prices/mean_share.h)
  Picoseconds fuller_messages = 0;   ///< exposed: the same for messages
  Picoseconds waiting = 0;           ///< for other ranks
  Picoseconds end = 0;
  struct Message {
    std::int64_t count = 0;
    Picoseconds time = 0, exposed = 0, contention = 0;
    bool operator==(const Message&) const = default;
  };
  std::vector<std::vector<Message>> messages;  ///< [block][step], summed over entries
  bool operator==(const RankTotals&) const = default;
};

/// A class of equal ranks.
struct ClassReplay {
  int job = 0;
  plan::StageId stage;
  int representative = 0;
  int count = 0;
  RankTotals totals;
};

struct Replay {
  std::vector<ClassReplay> classes;
  std::vector<int> links;                      ///< directions of the fabric that any message crosses
  std::vector<std::vector<double>> carried;    ///< bytes, by job and link
  std::vector<Picoseconds> makespan;           ///< by job
  std::vector<std::vector<plan::Span>> spans;  ///< by job, of the lowest rank of each stage; seconds
  std::int64_t spans_left_out = 0;             ///< beyond ReplayOptions::most_spans
  std::int64_t steps_walked = 0;               ///< over all classes; excludes skipped micro-batches
};

struct ReplayOptions {
  bool spans = true;
  bool every_rank = false;         ///< fold nothing
  bool every_micro_batch = false;  ///< skip none, not even micro-batches that repeat earlier ones
  /// If a step has more spans, those of skipped micro-batches are omitted, then the last ones.
  std::int64_t most_spans = std::numeric_limits<std::int64_t>::max();
  std::int64_t training_step = plan::kLateStep;  ///< of a run; steps of other training steps are omitted
};

/// `cluster` is every job's pricing.cluster(); `fabric` has its links, null if none are shared.
[[nodiscard]] Replay replay(std::span<const JobOnCluster> jobs, const clusters::Cluster& cluster, const Fabric* fabric,
                            const ReplayOptions& options);

}  // namespace orrery::sim
