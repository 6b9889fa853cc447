// A serial step: its blocks and its program.
#include "plan/lower/serial_step.h"

#include <algorithm>

#include "base/ensure.h"
#include "base/index.h"

namespace orrery::plan {

using base::at;
using models::Op;

SerialStep::SerialStep(RankClass lowered) {
  made = std::move(lowered);
  for (std::size_t b = 0; b < made.blocks.size(); ++b) places_[made.blocks[b].name] = static_cast<std::int32_t>(b);
  for (const Entry& entry : made.program)
    if (entry.micro_batch >= 0) passes_[entry.micro_batch].push_back(entry);
}

Block& SerialStep::block(const char* name) {
  return made.blocks[at(places_.at(name))];
}

Step SerialStep::step_of(Phase phase, const char* name, std::vector<Op> ops) {
  build.open("");
  Step step = build.compute(phase, name, std::move(ops));
  made.blocks.pop_back();
  return step;
}

std::int32_t SerialStep::block_of(const std::string& name, Phase phase, std::vector<Op> ops) {
  build.open(name);
  build.compute(phase, name, std::move(ops));
  return static_cast<std::int32_t>(made.blocks.size()) - 1;
}

void SerialStep::settle(Step& step) const {
  const auto listed = [&](bool in) {
    std::vector<BufferId> out;
    for (const Op& op : step.ops)
      for (const int v : in ? op.in : op.out)
        if (v >= 0 && std::find(out.begin(), out.end(), made.views[at(v)].buffer) == out.end())
          out.push_back(made.views[at(v)].buffer);
    return out;
  };
  step.reads = listed(true);
  step.writes = listed(false);
}

void SerialStep::pass(std::int64_t micro_batch) {
  for (const Entry& entry : passes_.at(static_cast<std::int32_t>(micro_batch))) made.program.push_back(entry);
}

std::size_t place_of(const Block& block, const char* part) {
  const auto found =
      std::find_if(block.steps.begin(), block.steps.end(), [&](const Step& s) { return s.part == part; });
  ENSURE(found != block.steps.end(), "a training step without its {}", part);
  return static_cast<std::size_t>(found - block.steps.begin());
}

}  // namespace orrery::plan
