#pragma once
/// A step of a block in words, to compare blocks whose buffers have other numbers.
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"
#include "plan/schedule/waits.h"

namespace orrery::plan {

/// What a step does, how much of it, and on which earlier steps of its block it depends.
inline std::string told(const RankClass& c, const std::vector<Step>& steps, std::size_t i) {
  const Step& step = steps[i];
  std::string text = std::string(name_of(step.kind)) + " " + step.part + " " + name_of(step.phase) + " " +
                     std::to_string(static_cast<int>(step.stream)) + " " + std::to_string(step.on_host);
  if (step.kind != StepKind::compute) text += " " + std::to_string(step.message_bytes(c.buffers));
  for (const models::Op& op : step.ops)
    text += " " + std::to_string(static_cast<int>(op.kind)) + ":" + std::to_string(op.m) + "," + std::to_string(op.n) +
            (op.accumulate ? " adds" : "");
  text += " after";
  const auto uses = [&](std::size_t of) { return BufferUses{&c, &steps[of], -1}; };
  for (std::size_t j = 0; j < i; ++j)
    if (steps[j].kind != StepKind::compute && conflict_between(uses(i), uses(j))) text += " " + std::to_string(j);
  return text + (step.deaths.empty() ? "" : " frees");
}

}  // namespace orrery::plan
