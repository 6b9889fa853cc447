// Moves gathers of parameters from the last block to the first.
#include "plan/lower/gather_next.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "base/index.h"

namespace orrery::plan {

namespace {

/// A gather between buffers that outlast the step.
bool moves(const Step& step, const RankClass& c) {
  const auto lasts = [&](BufferId buffer) { return c.buffers[buffer].persistent; };
  return step.kind == StepKind::collective && step.phase == Phase::parameter_gather &&
         std::ranges::all_of(step.reads, lasts) && std::ranges::all_of(step.writes, lasts);
}

/// For each buffer, the number of the first step that reads it, counted over all blocks except the first.
std::map<BufferId, int> first_reads(const RankClass& c) {
  std::map<BufferId, int> first;
  int count = 0;
  for (std::size_t b = 1; b < c.blocks.size(); ++b)
    for (const Step& step : c.blocks[b].steps) {
      for (const BufferId buffer : step.reads) first.emplace(buffer, count);
      ++count;
    }
  return first;
}

}  // namespace

void gather_next(RankClass& rank_class) {
  std::vector<Step>& end = rank_class.blocks.back().steps;
  const auto stays =
      std::stable_partition(end.begin(), end.end(), [&](const Step& step) { return !moves(step, rank_class); });
  std::vector<Step> gathers(std::make_move_iterator(stays), std::make_move_iterator(end.end()));
  end.erase(stays, end.end());
  const std::map<BufferId, int> first = first_reads(rank_class);
  const auto read = [&](const Step& step) {
    const auto found = first.find(step.target.buffer);
    return found == first.end() ? std::numeric_limits<int>::max() : found->second;
  };
  std::stable_sort(gathers.begin(), gathers.end(), [&](const Step& a, const Step& b) { return read(a) < read(b); });
  std::vector<Step>& begin = rank_class.blocks.front().steps;
  begin.insert(begin.begin(), std::make_move_iterator(gathers.begin()), std::make_move_iterator(gathers.end()));
}

}  // namespace orrery::plan
