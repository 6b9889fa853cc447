// Divides passes into parts, and counts their messages anew.
#include "cost/estimate/pair_program.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "plan/schedule/orders.h"

namespace orrery::cost {

namespace {

using Counts = std::array<std::int64_t, plan::kStreams>;

std::int64_t& of_stream(Counts& counts, const PassStep& step) {
  return counts[static_cast<std::size_t>(step.stream)];
}

/// Where a pass's parts begin, and its end.
std::vector<std::size_t> parts_of(const PassProgram& pass) {
  std::vector<std::size_t> out = {0};
  Counts begun = {}, awaited = {};
  std::size_t waits = 0;  // where those ahead of the next compute step begin
  bool for_own = false;   // one of them is for a message of a layer
  for (std::size_t i = 0; i < pass.steps.size(); ++i) {
    const PassStep& step = pass.steps[i];
    const bool of_layer = step.stream == plan::Stream::tensor || step.stream == plan::Stream::context ||
                          step.stream == plan::Stream::exchange;
    if (step.kind == PassStep::Kind::begin) ++of_stream(begun, step);
    if (step.kind == PassStep::Kind::wait && of_layer) {
      const std::int64_t message = of_stream(begun, step) + 1 - step.back;  // counted from 1
      for_own = for_own || message > of_stream(awaited, step);
      of_stream(awaited, step) = std::max(of_stream(awaited, step), message);
    }
    if (step.kind == PassStep::Kind::wait) continue;
    if (step.kind == PassStep::Kind::compute && for_own) out.push_back(waits), for_own = false;
    waits = i + 1;
  }
  out.push_back(pass.steps.size());
  return out;
}

/// One of the two passes while it is written.
struct Writing {
  const PassProgram& pass;
  std::vector<std::size_t> parts;
  bool backward;
  std::array<std::vector<std::int64_t>, plan::kStreams> numbers = {};  ///< of its messages, among those of both
};

void write(PairProgram& out, Counts& begun, Writing& from, std::size_t part) {
  for (std::size_t i = from.parts[part]; i < from.parts[part + 1]; ++i) {
    PassStep step = from.pass.steps[i];
    if (i == from.pass.input) out.stops.push_back({out.all.steps.size(), from.backward, false});
    if (i == from.pass.freed) out.stops.push_back({out.all.steps.size(), from.backward, true});
    std::vector<std::int64_t>& numbers = from.numbers[static_cast<std::size_t>(step.stream)];
    if (step.kind == PassStep::Kind::begin) numbers.push_back(of_stream(begun, step)++);
    if (step.kind == PassStep::Kind::wait || step.kind == PassStep::Kind::after) {
      // What began before both passes is as far back as all that they have begun since.
      const std::int64_t own = static_cast<std::int64_t>(numbers.size()) - step.back;
      const std::int64_t number = own < 0 ? own : numbers[static_cast<std::size_t>(own)];
      step.back = static_cast<std::uint32_t>(of_stream(begun, step) - number);
      out.all.reach = std::max(out.all.reach, step.back);
    }
    out.all.steps.push_back(step);
  }
}

}  // namespace

PairProgram pair_of(const PassProgram& forward, const PassProgram& backward) {
  PairProgram out;
  Counts begun = {};
  Writing there{forward, parts_of(forward), false}, back{backward, parts_of(backward), true};
  const auto count = [](const Writing& one) { return static_cast<std::int32_t>(one.parts.size()) - 1; };
  for (const plan::PairPart& next : plan::in_turn(count(there), count(back)))
    write(out, begun, next.backward ? back : there, static_cast<std::size_t>(next.part));
  std::ranges::sort(out.stops);
  return out;
}

std::size_t reach_of(const std::vector<std::shared_ptr<const ChunkPrograms>>& chunks, bool pairs) {
  std::size_t most = 0, begun = 0;
  const auto begins = [](const PassStep& step) { return step.kind == PassStep::Kind::begin; };
  for (const auto& chunk : chunks)
    for (const PassProgram* program :
         {&chunk->forward, &chunk->backward, &chunk->weights, &chunk->first, &chunk->first_backward,
          &chunk->first_weights, &chunk->last_backward, &chunk->last_weights}) {
      most = std::max<std::size_t>(most, program->reach);
      if (pairs) begun = std::max(begun, static_cast<std::size_t>(std::ranges::count_if(program->steps, begins)));
    }
  return most + 2 * begun;
}

}  // namespace orrery::cost
