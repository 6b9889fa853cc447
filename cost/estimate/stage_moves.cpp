/// The moves of whole passes, and of a run that does not drain.
#include "cost/estimate/stage_moves.h"

#include <array>
#include <utility>

namespace orrery::cost {

namespace {

using plan::Move;
using Kind = Move::Kind;

/// Where messages stand inside the passes: a receive ahead of one, a send behind it.
std::vector<Move> whole_moves(const plan::PlanSpec& spec, plan::StageId stage, std::int64_t micro_batches) {
  std::vector<Move> out;
  out.reserve(static_cast<std::size_t>(6 * micro_batches));
  const std::array<bool, 2> receives = {spec.receives(stage, 0, false), spec.receives(stage, 0, true)};
  const std::array<bool, 2> sends = {spec.sends(stage, 0, false), spec.sends(stage, 0, true)};
  for (const plan::Turn& turn : plan::turns(spec.stages.order, stage.number(), spec.mesh.pipeline, micro_batches)) {
    const auto add = [&](Kind kind) { out.push_back({kind, turn.micro_batch, 0}); };
    if (receives[turn.forward]) add(turn.forward ? Kind::receive_activation : Kind::receive_gradient);
    add(turn.forward ? Kind::forward : Kind::backward);
    if (sends[turn.forward]) add(turn.forward ? Kind::send_activation : Kind::send_gradient);
  }
  return out;
}

/// The first training steps of a run that does not drain.
std::vector<Move> asynchronous_moves(const plan::PlanSpec& spec, plan::StageId stage, std::int64_t micro_batches,
                                     std::int64_t steps) {
  const plan::AsynchronousMoves of_step = plan::asynchronous_moves(spec, stage, micro_batches);
  std::vector<Move> out = of_step.opening;
  for (std::int64_t step = 0; step < steps; ++step)
    for (Move move : of_step.every) {
      move.micro_batch += static_cast<std::int32_t>(step * micro_batches);
      out.push_back(move);
    }
  return out;
}

}  // namespace

StageMoves stage_moves(const plan::PlanSpec& spec, std::int64_t micro_batches, std::int64_t steps) {
  if (spec.stages.asynchronous()) {
    StageMoves out;
    for (const plan::StageId s : spec.mesh.stages()) out.push_back(asynchronous_moves(spec, s, micro_batches, steps));
    return out;
  }
  if (spec.stages.virtual_stages > 1 || spec.stages.splits_backward()) return plan::moves_of(spec, micro_batches);
  StageMoves out;
  for (const plan::StageId stage : spec.mesh.stages()) out.push_back(whole_moves(spec, stage, micro_batches));
  return out;
}

std::shared_ptr<const StageMoves> MovesMemo::of(const plan::PlanSpec& spec, std::int64_t micro_batches,
                                                std::int64_t steps) {
  const auto made = [&] { return std::make_shared<const StageMoves>(stage_moves(spec, micro_batches, steps)); };
  if (spec.stages.order == plan::Order::custom) return made();  // a table of its own, and one plan that has it
  const Key key{spec.stages.order,
                spec.mesh.pipeline,
                spec.stages.virtual_stages,
                spec.recomputation.weights_wait(),
                plan::runs_beside(spec),
                micro_batches,
                steps};
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  constexpr std::size_t kMost = 4'000'000;  // 50 MB
  if (moves_ > kMost) known_.clear(), moves_ = 0;
  std::shared_ptr<const StageMoves> out = made();
  for (const std::vector<Move>& of_stage : *out) moves_ += of_stage.size();
  return known_.emplace(key, std::move(out)).first->second;
}

}  // namespace orrery::cost
