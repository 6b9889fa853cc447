#pragma once
/// Pipelines that never drain. A training step is still one update, but in a stage's program only the backward passes
/// belong to the mini-batch of the current step: forward passes run `stages - 1 - stage` micro-batches ahead, and each
/// mini-batch reads, forward and backward, the weights of some steps ago (weight stashing). With w^(t) the weights
/// after t updates and d_s the delay of stage s, step t computes
///   w_s^(t+1) = w_s^(t) - lr grad_s f(w_0^(t-d_0), ..., w_(p-1)^(t-d_(p-1))),  w^(t) = w^(0) for t < 0
///   pipedream           d_s = p - 1 - s: PipeDream (Narayanan et al. 2019, SOSP, section 3.3), one micro-batch a step
///   pipedream_vertical  d_s = p - 1: its vertical sync
///   pipedream_2bw       d_s = 1: PipeDream-2BW (Narayanan et al. 2021, ICML, section 3.1), m >= p micro-batches a step
/// A stage keeps d_s versions besides the one that it updates. At the end of step t, w^(t) is copied to slot t mod d_s
/// of the ring, where the mini-batches of step t + d_s find it. Each stage clips by the norm of its own gradients,
/// because a global norm would make every stage wait for the first; but the two ends of a model with a tied token
/// table, which wait for each other anyway to sum its gradients, clip together.
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "plan/schedule/orders.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// d_s: how many steps older than its own the weights are that a mini-batch reads on a stage; with a parameter server
/// the staleness; otherwise 0.
[[nodiscard]] int weight_delay(const PlanSpec& spec, StageId stage);

/// The stages, from the first, whose squared gradient norms sum to the whole model's: all, or all but the last one
/// where that one clips with the first because they share the token table.
[[nodiscard]] base::Ids<StageId> stages_with_norms(const Plan& plan);

/// The number of training steps whose micro-batches a class holds at once; 1 where a step leaves nothing in flight.
[[nodiscard]] int steps_in_flight(const RankClass& rank_class);
[[nodiscard]] bool is_asynchronous(const Schedule& schedule);

/// Where an entry of an unrolled program comes from.
struct StepOfRun {
  std::int32_t step = 0;   ///< training step, from the start of the run
  std::int32_t entry = 0;  ///< in the class's own program
};

/// A class's program unrolled.
struct Walk {
  std::vector<Entry> program;
  std::vector<StepOfRun> origins;  ///< of each entry
};

/// The first `steps` training steps of a run as one program. Micro-batches are numbered through the run, so that
/// checker and simulator need no other rules. `ends`: the run ends there, and entries of later steps are left out.
[[nodiscard]] Walk unrolled(const RankClass& rank_class, std::int64_t steps, bool ends);
struct Unrolled {
  Schedule schedule;
  std::vector<std::vector<StepOfRun>> origins;  ///< by class and entry
};
[[nodiscard]] Unrolled unrolled(const Schedule& schedule, std::int64_t steps, bool ends);

/// By class and training step from a run's start: the age, in updates, of the weights that the step's passes read; -1
/// where its passes read different versions.
[[nodiscard]] std::vector<std::vector<int>> staleness(const Schedule& schedule, std::int64_t steps);

/// Private to plan/. make_versions gives each bucket's parameters a ring of earlier versions, as many as its delay (0:
/// none). copy_versions copies the newest version into the ring, as step `place` of a block. read_versions makes the
/// steps of a block for which `read` holds use the ring instead of the newest version.
void make_versions(RankClass& rank_class, const std::vector<int>& delays);
void copy_versions(RankClass& rank_class, Block& block, std::size_t place);
void read_versions(
    RankClass& rank_class, Block& block,
    const std::function<bool(const Step&)>& read = [](const Step&) { return true; });
/// Private to plan/: the first step of a block that writes parameters.
[[nodiscard]] std::size_t first_update(const RankClass& rank_class, const Block& block);

/// Private to plan/: blocks by move and chunk.
using BlocksOfMoves = std::map<std::pair<Move::Kind, int>, std::int32_t>;
/// Private to plan/: takes a class lowered for one training step, with messages and lifetimes settled, and adds what
/// asynchronous orders need: versions of weights and their readers, buffers that live across steps, and the program.
void make_asynchronous(const Plan& plan, StageId stage, const BlocksOfMoves& blocks, RankClass& rank_class);

}  // namespace orrery::plan
