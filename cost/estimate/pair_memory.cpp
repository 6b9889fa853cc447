/// Places a stage's passes as a run would.
#include "cost/estimate/pair_memory.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "cost/estimate/offload.h"
#include "cost/parameters/habits.h"
#include "plan/lower/lower.h"
#include "plan/schedule/pack.h"
#include "plan/schedule/place.h"

namespace orrery::cost {

std::optional<PairBytes> pair_bytes(const plan::Plan& plan, plan::StageId stage, MovesMemo& moves, const Stack& stack) {
  if (!plan::runs_beside(plan.spec()) || stack.memory.stated) return std::nullopt;
  plan::LowerOptions options = lower_options(stack);
  options.shares_programs = true;
  plan::SomeLayers all;
  for (int c = 0; c < plan.spec().stages.virtual_stages; ++c) {
    all.chunks.push_back(true);
    std::vector<std::int64_t>& blocks = all.blocks.emplace_back(static_cast<std::size_t>(plan.chunk_layers(stage, c)));
    std::iota(blocks.begin(), blocks.end(), std::int64_t{0});
  }
  const plan::LoweredPasses lowered = plan::lower_passes(
      plan, stage, patterns_of(plan.spec(), plan.micro_batches(), moves)->at(stage.index()), all, options);
  const plan::RankClass& passes = lowered.schedule.classes.front();
  const plan::Placement placed = plan::sizes_of(passes);
  std::int64_t persistent = 0;
  for (const plan::BufferId b : passes.buffers.keys())
    if (placed.persistent[b] >= 0) persistent = std::max(persistent, placed.persistent[b] + passes.buffers[b].bytes());
  std::vector<std::vector<plan::ScratchBuffer>> blocks;
  for (const plan::Block& block : passes.blocks) blocks.push_back(plan::scratch_of(passes, block, plan::Space::device));
  const auto scratch = static_cast<double>(plan::pack_blocks(blocks));
  persistent = plan::round_up(persistent, plan::kAlignment);
  return PairBytes{static_cast<double>(placed.arena_bytes - persistent) - scratch, scratch};
}

}  // namespace orrery::cost
