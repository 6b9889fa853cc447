#pragma once
/// Pipelines that never drain. A training step is still one update, but of a stage's program only the backward passes
/// belong to the mini-batch of the step that runs: its forward passes are `stages - 1 - stage` micro-batches ahead, and
/// each mini-batch reads, forward and backward, the weights of some steps before (weight stashing). With w^(t) the
/// weights after t updates and d_s the delay of stage s, step t computes
///   w_s^(t+1) = w_s^(t) - lr grad_s f(w_0^(t-d_0), ..., w_(p-1)^(t-d_(p-1))),  w^(t) = w^(0) for t < 0
///   pipedream           d_s = p - 1 - s: PipeDream (Narayanan et al. 2019, SOSP, section 3.3), one micro-batch a step
///   pipedream_vertical  d_s = p - 1: its vertical sync
///   pipedream_2bw       d_s = 1: PipeDream-2BW (Narayanan et al. 2021, ICML, section 3.1), m >= p micro-batches a step
/// A stage keeps d_s versions beside the one that it updates. At the end of step t, w^(t) is copied to version t mod
/// d_s in the ring, where the mini-batches of step t + d_s find it. Each stage clips by the norm of its own gradients,
/// since a global norm would make every stage wait for the first; but the two ends of a model with a tied token table,
/// which wait for each other in any case to add up its gradients, clip together.
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "plan/schedule/orders.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// d_s: of how many steps before its own the weights are that a mini-batch reads on a stage; with a parameter server
/// its staleness. 0 of all others.
[[nodiscard]] int weight_delay(const PlanSpec& spec, int stage);

/// So many stages from the first have gradient norms that add up, as squares, to the whole model's: all, or, where the
/// last one clips with the first because they share the token table, all others.
[[nodiscard]] int stages_with_norms(const Plan& plan);

/// Training steps of which a class holds micro-batches at once: 1 where a step leaves nothing in flight.
[[nodiscard]] int steps_in_flight(const RankClass& rank_class);
[[nodiscard]] bool is_asynchronous(const Schedule& schedule);

/// Where an entry of an unrolled program comes from.
struct StepOfRun {
  std::int32_t step = 0;   ///< training step, from the start of the run
  std::int32_t entry = 0;  ///< of the class's own program
};

/// A class's program unrolled.
struct Walk {
  std::vector<Entry> program;
  std::vector<StepOfRun> origins;  ///< by entry
};

/// The first `steps` training steps of a run as one program: micro-batches are numbered through the run, so that
/// checker and simulator need no other rules. `ends`: the run ends there and what would be of later steps is left out.
[[nodiscard]] Walk unrolled(const RankClass& rank_class, std::int64_t steps, bool ends);
struct Unrolled {
  Schedule schedule;
  std::vector<std::vector<StepOfRun>> origins;  ///< by class and entry
};
[[nodiscard]] Unrolled unrolled(const Schedule& schedule, std::int64_t steps, bool ends);

/// By class and training step, of a run from its start: how many updates old the weights are that the step's passes
/// read, against the step's own number; -1 where its passes read different ones.
[[nodiscard]] std::vector<std::vector<int>> staleness(const Schedule& schedule, std::int64_t steps);

/// Private to plan/: of each bucket's parameters as many earlier versions as its delay, as a ring (none: no ring); the
/// copy of the newest ones into it, as step `place` of a block; and those of a block's steps that `read` it in place of
/// the newest.
void make_versions(RankClass& rank_class, const std::vector<int>& delays);
void copy_versions(RankClass& rank_class, Block& block, std::size_t place);
void read_versions(
    RankClass& rank_class, Block& block,
    const std::function<bool(const Step&)>& read = [](const Step&) { return true; });
/// Private to plan/: the first step of a block that writes parameters.
[[nodiscard]] std::size_t first_update(const RankClass& rank_class, const Block& block);

/// Private to plan/: blocks by move and chunk.
using BlocksOfMoves = std::map<std::pair<Move::Kind, int>, std::int32_t>;
/// Private to plan/: of a class as lowered for one training step, with messages between passes and its lives settled,
/// makes what asynchronous orders add: versions of weights and who reads which, what lives from step to step, and the
/// program.
void make_asynchronous(const Plan& plan, int stage, const BlocksOfMoves& blocks, RankClass& rank_class);

}  // namespace orrery::plan
