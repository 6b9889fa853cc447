#pragma once
/// Executor: walks one rank's program for one training step, exactly as plan/schedule.h says, and measures a span for
/// every step it executes. It decides nothing.
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

#include "exec/arena.h"
#include "exec/backend.h"
#include "exec/communication.h"
#include "exec/copies.h"
#include "exec/masked_data.h"
#include "exec/ranges.h"
#include "exec/transport.h"
#include "exec/waiter.h"
#include "plan/place.h"
#include "plan/schedule.h"

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

/// What one operator of a compute step took on this rank: the mean of the middle half of its executions.
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

/// What a training step needs from outside the schedule.
struct StepInput {
  std::int64_t iteration = 0;
  StepContext context;
  /// Training steps of the run, all told: passes of later ones are not run ahead. Never: far away.
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  /// Fills one micro-batch of this replica: both spans hold B*T ids, of whole sequences.
  std::function<void(const Instance& of, std::span<std::int32_t> tokens, std::span<std::int32_t> targets)> load;
  /// The same of a masked-language model.
  std::function<void(const Instance& of, const MaskedBatch& batch)> load_masked = {};
  /// Called once, when all gradients are reduced and no parameter is updated yet. May be empty.
  std::function<void()> before_optimizer;
};

class Executor {
 public:
  struct Options {
    Arena::Check check = Arena::Check::none;
    bool record = true;  ///< spans
    /// thread: messages move while this rank computes; for transports whose calls return at once.
    Communication::Progress progress = Communication::Progress::inlined;
    std::size_t most_iterations = 1000;  ///< recording stops here: a long run must not fill the memory
    const Arena* arena = nullptr;        ///< another executor's memories to work in, while that one rests
    std::string state_file = {};         ///< this rank's file for what the plan has on NVMe
  };

  /// Collective: makes the groups of the schedule on all ranks. Allocates the arena.
  Executor(const plan::Schedule& schedule, const plan::Placement& placement, Backend& backend, Transport& transport,
           const Waiter& waiter, const Options& options);

  /// One training step. Returns its duration on this rank.
  std::chrono::nanoseconds run_step(const StepInput& input);

  [[nodiscard]] Arena& arena() { return arena_; }
  [[nodiscard]] const Arena& arena() const { return arena_; }
  [[nodiscard]] const plan::RankClass& rank_class() const { return class_; }
  [[nodiscard]] std::vector<RawSpan> spans() const { return {spans_.begin(), spans_.end()}; }
  [[nodiscard]] const std::vector<IterationRecord>& iterations() const { return iterations_; }
  /// Times of single operators; empty on asynchronous backends. The first training step does not count where there
  /// are others: it touches pages.
  [[nodiscard]] std::vector<OperatorRecord> operators() const;
  /// Element offset within its bucket of this rank's shard.
  [[nodiscard]] std::int64_t shard_offset(const plan::Bucket& bucket) const;
  /// The step's mean loss and the global gradient norm, where this rank's class has them (NaN elsewhere).
  [[nodiscard]] double loss() const { return loss_; }
  [[nodiscard]] double gradient_norm() const { return norm_; }
  /// fp16: the scale that the step's loss had, and whether its update was skipped.
  struct LossScale {
    double scale = 0;  ///< 0: gradients are not scaled
    bool skipped = false;
  };
  [[nodiscard]] const LossScale& loss_scale() const { return loss_scale_; }

 private:
  struct Place {
    plan::StepRef at;
    Instance of;
  };
  void run_one(const plan::Step& step, const Place& place, const StepInput& input);
  void give_birth(const plan::Step& step, const Place& place);
  void compute(const plan::Step& step, const Place& place, const StepInput& input);
  void run_timed(const plan::Step& step, const Place& place, const StepInput& input);
  void run_op(const models::Op& op, const Instance& of, const StepInput& input);
  [[nodiscard]] StepContext context_of(const Instance& of, const StepInput& input) const;
  void run_ops(const std::vector<models::Op>& ops, const Instance& of, const StepInput& input);
  void load_tokens(const models::Op& op, const Instance& of, const StepInput& input);
  void keep_part(const models::Op& op, int part);
  struct Ring {
    int next = 0, previous = 0;
  };
  [[nodiscard]] Ring ring_of(const plan::Step& step) const;  ///< this rank's neighbours in a ring shift's group
  void communicate(const plan::Step& step, const Place& place);
  [[nodiscard]] Communication::Start starter(const plan::Step& step, const Instance& of, RawSpan* span);
  [[nodiscard]] Communication::Start copier(const plan::Step& step, const Instance& of, RawSpan* span);
  [[nodiscard]] std::string describe(const plan::Step& step, const Place& place) const;
  [[nodiscard]] std::vector<Touch> touches(const plan::Step& step, const Instance& of) const;
  [[nodiscard]] Touch touch(int buffer, const Instance& of, bool writes) const;
  [[nodiscard]] std::int64_t element_offset(const plan::View& view) const;
  [[nodiscard]] Operand operand(int view, const Instance& of) const;
  [[nodiscard]] std::byte* address(const plan::View& view, const Instance& of) const;
  [[nodiscard]] const std::vector<ElementRange>& ranges(const models::Op& op, RangeGrain grain);
  [[nodiscard]] double read_scalar(int buffer);
  void read_loss_scale(std::size_t value, double& into);
  void make_groups();
  void connect_peers();
  void find_optimizer();

  const plan::Schedule& schedule_;
  const plan::RankClass& class_;
  Backend& backend_;
  Transport& transport_;
  Options options_;
  int data_rank_ = 0;
  Arena arena_;
  CopyEngines copies_;
  std::map<std::pair<int, plan::Stream>, GroupId> groups_;  ///< a communicator for each group and stream
  std::map<int, std::vector<ElementRange>> ranges_;         ///< by the first operand's view
  plan::StepRef optimizer_;    ///< the first step that updates a parameter; entry -1 when there is none
  std::deque<RawSpan> spans_;  ///< a message in flight writes to its own while others come
  std::vector<IterationRecord> iterations_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::vector<float>>> operators_;  ///< by block and step
  bool recording_ = false;
  bool opened_ = false;  ///< a step has run: entries that open a run have
  std::int32_t current_iteration_ = 0;
  struct Marked {
    std::size_t span;
    Backend::Mark from, to;
  };
  std::vector<Marked> marked_;  ///< asynchronous backends: resolved at the end of the step
  std::vector<std::int32_t> tokens_, targets_, token_types_, masked_rows_, next_sentence_;
  double loss_, norm_;
  LossScale loss_scale_;
  Communication communication_;  ///< last: a thread of its own may still write spans
};

}  // namespace orrery::exec
