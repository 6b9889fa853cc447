/// Sums of passes, and the way to a stage and back.
#include "cost/estimate/least_end.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace orrery::cost {

namespace {

Ticks compute_of(std::span<const PassStep> steps) {
  Ticks sum = 0;
  for (const PassStep& step : steps)
    if (step.kind == PassStep::Kind::compute) sum += step.time;
  return sum;
}

/// A pass with its own messages; nothing is awaited after it.
Ticks alone(const PassProgram& program, const RankClock::Overlaps& overlaps) {
  Ticks sum = 0;
  if (!program.parts.empty()) {
    for (const PassPart& part : program.parts) sum += part.device;
    return sum;
  }
  RankClock clock(overlaps, program.reach);
  clock.state.host = std::numeric_limits<Ticks>::min() / 4;
  clock.run(program.steps);
  return clock.state.device;
}

/// From a pass's input to its end.
Ticks behind_input(const PassProgram& program) {
  Ticks sum = 0;
  for (const PassPart& part : program.parts)
    if (part.begin >= program.input) sum += part.device;
  return program.parts.empty() ? compute_of(std::span(program.steps).subspan(program.input)) : sum;
}

/// All passes of a chunk, from first operator to first operator; none takes less than the copies in between.
/// `beside`: messages of some passes are hidden behind other passes.
Ticks all_of(const ChunkPrograms& chunk, const RankClock::Overlaps& overlaps, std::int64_t passes,
             const StageProgram::Copies& copies, bool beside) {
  const auto least = [&](const PassProgram& program) {
    return beside ? compute_of(program.steps) : alone(program, overlaps);
  };
  const Ticks forward = std::max(ticks(copies.forward), least(chunk.forward));
  const Ticks backward = std::max(ticks(copies.backward), least(chunk.backward));
  const Ticks weights = least(chunk.weights);
  Ticks sum = passes * (forward + backward + weights);
  // The first and the last pass have messages that are not their own: they count with their compute alone.
  const auto special = [&](const PassProgram& program, Ticks usual) {
    if (!program.steps.empty()) sum += compute_of(program.steps) - usual;
  };
  special(chunk.first, forward);
  const auto first = [&](const PassProgram& program, Ticks usual) {
    if (!program.steps.empty()) sum += least(program) - usual;
  };
  first(chunk.first_backward, backward);
  first(chunk.first_weights, weights);
  special(chunk.last_backward, backward);
  special(chunk.last_weights, weights);
  return sum;
}

const PassProgram& or_usual(const PassProgram& special, const PassProgram& usual) {
  return special.steps.empty() ? usual : special;
}
/// `once`: the last one is also the first.
const PassProgram& last_backward(const ChunkPrograms& chunk, bool once) {
  return or_usual(chunk.last_backward, once ? or_usual(chunk.first_backward, chunk.backward) : chunk.backward);
}

}  // namespace

std::vector<double> least_end(const PipelineTimes& times, const plan::PlanSpec& spec, std::int64_t micro_batches) {
  std::vector<double> out, copied;  // copied: with copies, the last of which may end after the last gradient
  const ChunkPrograms* before = nullptr;
  Ticks way = 0, of_chunk = 0;
  const std::int64_t passes = spec.stages.mirrors() ? micro_batches / 2 : micro_batches;
  const bool beside = plan::runs_beside(spec);
  for (std::size_t s = 0; s < times.stages.size(); ++s) {
    const auto& chunks = times.stages[s].chunks;
    const std::vector<StageProgram::Copies>& copies = times.stages[s].copies;
    Ticks all = 0, with_copies = 0, coming = 0;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      if (chunks[c].get() != std::exchange(before, chunks[c].get()))
        of_chunk = all_of(*chunks[c], times.overlaps, passes, {}, beside);
      all += of_chunk;
      if (copies.empty()) continue;
      with_copies += all_of(*chunks[c], times.overlaps, passes, copies[c], beside);
      coming += passes * ticks(copies[c].in);
    }
    // What a stage's first pass does before its input arrives goes on while the input is on its way.
    const ChunkPrograms& chunk = *chunks.front();
    const PassProgram& first = or_usual(chunk.first, chunk.forward);
    const Ticks whole = chunk.first.steps.empty() ? alone(first, times.overlaps) : compute_of(first.steps);
    const Ticks behind = s == 0 || spec.stages.mirrors() ? whole : behind_input(first);
    out.push_back(seconds(way + all - whole + behind));
    if (!copies.empty()) {
      with_copies += behind - std::max(whole, ticks(copies[0].forward));
      coming -= std::min(way, ticks(copies[0].first));
    }
    copied.push_back(copies.empty() ? 0 : seconds(way + std::max(with_copies, coming)));
    if (s + 1 < times.stages.size() && !spec.stages.mirrors()) way += behind + ticks(times.hop[s]);
  }
  // The gradients of the last micro-batch reach the stages one after the other, unless they leave before a pass ends.
  for (std::size_t s = out.size(); s-- > 1 && !spec.stages.splits_backward();) {
    const ChunkPrograms &sender = *times.stages[s].chunks.front(), &chunk = *times.stages[s - 1].chunks.front();
    const bool once = micro_batches == 1;
    const PassProgram& last = last_backward(sender, once);
    if (last.sent < last.steps.size()) continue;
    const Ticks backward = behind_input(last_backward(chunk, once));
    out[s - 1] = std::max(out[s - 1], out[s] + times.hop[s - 1] + seconds(backward));
  }
  for (std::size_t s = 0; s < out.size(); ++s) out[s] = std::max(out[s], copied[s]);
  return out;
}

}  // namespace orrery::cost
