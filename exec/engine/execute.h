#pragma once
/// Executor: walks one rank's program for one training step, exactly as plan/schedule/schedule.h prescribes, and
/// measures a span for each executed step. It decides nothing.
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exec/engine/arena.h"
#include "exec/engine/backend.h"
#include "exec/engine/batch_loader.h"
#include "exec/engine/communication.h"
#include "exec/engine/copies.h"
#include "exec/engine/graph_runs.h"
#include "exec/engine/message_counts.h"
#include "exec/engine/message_names.h"
#include "exec/engine/operands.h"
#include "exec/engine/step_input.h"
#include "exec/engine/transport.h"
#include "exec/engine/waiter.h"
#include "plan/schedule/place.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// Nanoseconds on this process's steady clock.
using Nanoseconds = std::int64_t;
[[nodiscard]] Nanoseconds now();

/// One executed step on this rank's own clock.
struct RawSpan {
  std::int32_t iteration = 0;
  plan::StepRef at;
  std::int32_t micro_batch = -1;
  Nanoseconds ready = 0, end = 0;
};

/// How long one operator of a compute step took on this rank: the mean of the middle half of its executions.
struct OperatorRecord {
  std::int32_t block = 0, step = 0, op = 0;
  std::int64_t count = 0;
  double seconds = 0;
};

/// When a training step began and ended on this rank's clock.
struct IterationRecord {
  std::int32_t iteration = 0;
  Nanoseconds begin = 0, end = 0;
};

class Executor {
 public:
  struct Options {
    Arena::Check check = Arena::Check::none;
    bool record = true;  ///< record spans
    /// thread: messages advance while this rank computes; for transports whose calls return at once.
    Communication::Progress progress = Communication::Progress::inlined;
    std::size_t most_iterations = 1000;  ///< recording stops here, so that a long run does not fill the memory
    const Arena* arena = nullptr;        ///< another executor's memories to work in, while that one rests
    std::string state_file = {};         ///< this rank's file for what the plan keeps on NVMe
    /// Messages of a queueing transport are ordered on the device; false: the host waits for them, as for any other.
    bool queue_messages = true;
    bool graphs = true;             ///< runs of steps become graphs, if backend and transport can
    std::int64_t sample_every = 1;  ///< record spans only in training steps that are multiples of it
  };
  /// What happened with graphs so far in the run.
  struct GraphCounts {
    std::int64_t captured = 0, replayed = 0;  ///< graphs made, and their launches
    std::int64_t steps = 0, plain_steps = 0;  ///< the program's steps in graphs and outside, since graphs are used
    std::int64_t failed = 0;                  ///< runs that could not be captured, and run without a graph
    std::string reason;                       ///< of the last failure, or why there are no graphs; empty: there are
  };

  /// Collective: all ranks make the schedule's groups. Allocates the arena.
  Executor(const plan::Schedule& schedule, const plan::Placement& placement, Backend& backend, Transport& transport,
           const Waiter& waiter, const Options& options);

  /// Runs one training step. Returns its duration on this rank.
  std::chrono::nanoseconds run_step(const StepInput& input);

  [[nodiscard]] Arena& arena() { return arena_; }
  [[nodiscard]] const Arena& arena() const { return arena_; }
  [[nodiscard]] const plan::RankClass& rank_class() const { return class_; }
  [[nodiscard]] std::vector<RawSpan> spans() const { return {spans_.begin(), spans_.end()}; }
  [[nodiscard]] const std::vector<IterationRecord>& iterations() const { return iterations_; }
  /// Times of single operators; empty on asynchronous backends. Leaves out the first training step if there are others,
  /// because it touches pages for the first time.
  [[nodiscard]] std::vector<OperatorRecord> operators() const;
  /// Where this rank's shard begins within its bucket, in elements.
  [[nodiscard]] std::int64_t shard_offset(const plan::Bucket& bucket) const { return operands_.shard_offset(bucket); }
  /// The step's mean loss and global gradient norm, if this rank's class has them (else NaN).
  [[nodiscard]] double loss() const { return loss_; }
  [[nodiscard]] double gradient_norm() const { return norm_; }
  /// fp16: the loss scale of the step, and whether its update was skipped.
  struct LossScale {
    double scale = 0;  ///< 0: gradients are not scaled
    bool skipped = false;
  };
  [[nodiscard]] const LossScale& loss_scale() const { return loss_scale_; }
  /// What the step stored without zeros (models::OpKind::sparse_encode) on this rank.
  struct Lossless {
    std::int64_t tensors = 0;
    std::int64_t again = 0;  ///< had more nonzero values than room: backward computed them again
    double densest = 0;      ///< the largest share of nonzero values
  };
  [[nodiscard]] const Lossless& lossless() const { return lossless_; }
  [[nodiscard]] const GraphCounts& graphs() const { return graph_counts_; }
  /// What a mixture of experts did in the step.
  struct ExpertUse {
    double aux_loss = std::numeric_limits<double>::quiet_NaN();  ///< without its coefficient; NaN: a dense model
    double z_loss = std::numeric_limits<double>::quiet_NaN();
    /// For each layer with experts of this rank's stage: how many tokens of the whole step chose each expert.
    std::vector<std::pair<plan::LayerId, std::vector<float>>> loads;
  };
  [[nodiscard]] const ExpertUse& expert_use() const { return expert_use_; }
  /// How a table's cache served the step on this rank.
  struct CacheUse {
    std::int64_t lookups = 0, hits = 0;                 ///< hits: rows in the cache before the step
    std::int64_t fetched_bytes = 0, written_bytes = 0;  ///< with states
    bool operator==(const CacheUse&) const = default;
  };
  /// By table; empty if all tables are on the device.
  [[nodiscard]] std::map<int, CacheUse> cache_use() const;

 private:
  struct Place {
    plan::StepRef at;
    Instance of;
  };
  [[nodiscard]] const plan::Step& step_at(const Place& place) const;
  [[nodiscard]] std::vector<Place> places(const StepInput& input) const;
  void walk(std::span<const Place> places, const StepInput& input);
  /// What must happen before a step may run: births, and waiting for messages.
  void arrive(const plan::Step& step, const Place& place);
  void leave(const plan::Step& step, const Place& place, bool queues);
  void fetch(plan::BufferId buffer);

  // -- graphs (execute_graphs.cpp)
  /// Training steps that walk the same places, at the same addresses, with the same constants.
  struct Pattern {
    std::int64_t phase = 0;  ///< of the arena's rings
    std::size_t turn = 0;    ///< how often the set of steps that run has changed so far (Step::from_step, until_step)
    std::vector<std::int32_t> entries;
    std::vector<double> constants;  ///< that operators take from the context, except those that change every step
    auto operator<=>(const Pattern&) const = default;
  };
  /// The span of a step in a graph, from marks in the graph.
  struct GraphSpan {
    plan::StepRef at;
    std::int32_t micro_batch = -1;
    Backend::Mark from = 0, to = 0;
  };
  struct KeptGraph {
    std::unique_ptr<Backend::Graph> graph;
    std::vector<GraphSpan> spans;
    bool failed = false;
  };
  struct PatternGraphs {
    std::vector<GraphRun> runs;
    std::vector<bool> messages;                    ///< by run: whether it has messages
    std::array<std::vector<KeptGraph>, 2> graphs;  ///< by run; the second has marks for spans
  };
  void prepare_graphs();
  [[nodiscard]] std::string why_no_graphs() const;
  [[nodiscard]] std::int64_t period() const;  ///< steps after which addresses repeat
  [[nodiscard]] Pattern pattern_of(const StepInput& input) const;
  void walk_by_graphs(std::span<const Place> places, const StepInput& input);
  [[nodiscard]] PatternGraphs traced_walk(std::span<const Place> places, const StepInput& input);
  [[nodiscard]] TracedStep traced(const Place& place, const StepInput& input, std::vector<Touch>& of_host, bool& frees);
  /// Whether the host takes part in operators of a compute step on the device.
  [[nodiscard]] static bool host_takes_part(const plan::Step& step, const StepInput& input);
  void keep_books(std::span<const Place> places);
  void fill_slots(std::span<const Place> places, const StepInput& input);
  void run_graph(PatternGraphs& pattern, std::size_t run, std::span<const Place> places, const StepInput& input,
                 bool ends_step);
  [[nodiscard]] bool capture(KeptGraph& kept, std::span<const Place> places, const StepInput& input, bool ends_step);
  void read_ahead(std::span<const Place> places, const StepInput& input);
  void see_gradients(const StepInput& input);
  void run_one(const plan::Step& step, const Place& place, const StepInput& input);
  void execute(const plan::Step& step, const Place& place, const StepInput& input);
  void give_birth(const plan::Step& step, const Place& place);
  void compute(const plan::Step& step, const Place& place, const StepInput& input);
  void run_timed(const plan::Step& step, const Place& place, const StepInput& input);
  void run_op(const models::Op& op, const plan::Step& step, const Instance& of, const StepInput& input);
  [[nodiscard]] StepContext context_of(const plan::Step& step, const Instance& of, const StepInput& input) const;
  void run_ops(const plan::Step& step, const Instance& of, const StepInput& input);
  void count_lossless(const models::Op& op, const Operand& bytes);
  struct Ring {
    int next = 0, previous = 0;
  };
  [[nodiscard]] Ring ring_of(const plan::Step& step) const;  ///< this rank's neighbours in a ring shift's group
  void communicate(const plan::Step& step, const Place& place);
  [[nodiscard]] Communication::Start starter(const plan::Step& step, const Instance& of, RawSpan* span);
  [[nodiscard]] Communication::Start counted_exchange(const plan::Step& step, const Instance& of, GroupId group);
  [[nodiscard]] std::vector<std::int32_t> read_counts(int view, const std::byte* at) const;
  void find_counts();
  [[nodiscard]] bool queued(const plan::Step& step) const;
  [[nodiscard]] Communication::Start copier(const plan::Step& step, const Instance& of, RawSpan* span);
  [[nodiscard]] std::string summary_of_place(const Place& place) const;
  [[nodiscard]] std::int32_t block_of(const Place& place) const;
  void make_groups();
  void connect_peers();
  void find_optimizer();
  [[nodiscard]] bool host_shares() const;

  const plan::Schedule& schedule_;
  const plan::RankClass& class_;
  Backend& backend_;
  Transport& transport_;
  Options options_;
  std::int64_t steady_from_ = 0;  ///< training step from which spans are kept: they come from steps of one kind
  Arena arena_;
  Operands operands_{schedule_, class_, arena_, transport_.rank()};
  BatchLoader batches_{backend_, operands_, schedule_.tables.get()};
  MessageNames names_{schedule_, class_, transport_.rank()};
  CopyEngines copies_;
  std::map<std::pair<plan::GroupId, plan::Stream>, GroupId> groups_;  ///< a communicator for each group and stream
  plan::StepRef optimizer_;    ///< the first that updates a parameter, else what follows clipping; entry -1: none
  std::deque<RawSpan> spans_;  ///< a message in flight writes to its own span while others are added
  std::vector<IterationRecord> iterations_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::vector<float>>> operators_;  ///< by block and step
  bool recording_ = false;
  bool saw_optimizer_ = false;  ///< in this training step
  bool opened_ = false;         ///< a step has run, so entries that open a run are over
  std::int32_t current_iteration_ = 0;
  struct Marked {
    std::size_t span;
    Backend::Mark from, to;
  };
  std::vector<Marked> marked_;     ///< asynchronous backends: resolved at the end of the step
  std::array<bool, 2> fetched_{};  ///< loss and norm of this step are on their way
  bool may_graph_ = false;
  std::int64_t period_ = 1;
  std::map<Pattern, PatternGraphs> patterns_;
  std::vector<std::int64_t> turns_;  ///< training steps from which a different set of the program's steps runs
  bool host_shares_ = true;          ///< within a step, more than the device's copies touches host memory
  GraphCounts graph_counts_;
  double loss_, norm_;
  const Waiter& waiter_;
  MessageCounts counts_{backend_, transport_, waiter_, arena_, operands_};
  Recorder* recorder_;                                             ///< null: messages are not recorded
  std::map<std::pair<std::int32_t, std::int32_t>, int> messages_;  ///< their numbers there, by block and step
  LossScale loss_scale_;
  void read_expert_use();
  ExpertUse expert_use_;
  Lossless lossless_;
  Communication communication_;  ///< last: its thread may still write spans
};

}  // namespace orrery::exec
