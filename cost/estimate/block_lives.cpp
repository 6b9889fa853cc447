/// Intervals of a block's steps.
#include "cost/estimate/block_lives.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cost/estimate/fold.h"

namespace orrery::cost {

ScratchBytes scratch_bytes(std::vector<std::vector<plan::ScratchBuffer>> blocks, bool packs) {
  ScratchBytes out;
  for (const std::vector<plan::ScratchBuffer>& block : blocks)
    out.alive = std::max(out.alive, static_cast<double>(plan::most_alive(block)));
  if (packs) out.packed = static_cast<double>(plan::pack_blocks(blocks));
  return out;
}

int BlockLives::buffer(double bytes) {
  plan::ScratchBuffer& one = within_.emplace_back();
  one.from = kUnused;
  one.bytes = static_cast<std::int64_t>(bytes);
  return static_cast<int>(within_.size()) - 1;
}

void BlockLives::use(int buffer, int place) {
  plan::ScratchBuffer& one = at(buffer);
  if (one.from == kUnused) one.from = one.to = place;
  one.to = std::max(one.to, place);
}

void BlockLives::live(int from, int to, double bytes, bool leaves) {
  if (bytes <= 0) return;
  const int one = buffer(bytes);
  use(one, from);
  use(one, to);
  at(one).leaves = leaves;
}

void BlockLives::live_behind(int from, int place, double bytes) {
  live(from, place, bytes);
  if (bytes > 0) leave(static_cast<int>(within_.size()) - 1);
}

OutlineLives BlockLives::outlined(plan::Outline outline, const LivesByMemory& known) {
  OutlineLives out{std::move(outline)};
  for (const plan::Slot& slot : out.outline.slots) {
    const bool own = slot.memory == plan::Memory::temporary;
    const int one = own ? buffer(0) : known[static_cast<std::size_t>(slot.memory)];
    const auto bytes = static_cast<std::int64_t>(arena_bytes(slot.elements, slot.dtype));
    if (one >= 0) at(one).bytes = std::max(at(one).bytes, bytes);
    out.buffers.push_back(one);
  }
  return out;
}

void BlockLives::use(const OutlineLives& lives, int part, int place) {
  const plan::Outline& outline = lives.outline;
  for (const plan::Item& item : outline.items) {
    if (item.part != part) continue;
    const int here = place >= 0 ? place : step(!item.is_message());
    const auto use_operand = [&](int operand) {
      if (operand < 0) return;
      const int slot = outline.operands[static_cast<std::size_t>(operand)].slot;
      if (const int one = lives.buffers[static_cast<std::size_t>(slot)]; one >= 0) use(one, here);
    };
    for (const int operand : {item.source, item.target}) use_operand(operand);
    for (const models::Op& op : item.ops)
      for (const std::vector<int>* operands : {&op.in, &op.out}) std::ranges::for_each(*operands, use_operand);
  }
}

/// Turns places into steps, because packing also asks how long something lives.
void BlockLives::number_places() {
  std::vector<int> steps(static_cast<std::size_t>(at_) + kStep, 0);
  const auto step_at = [&](int place) -> int& { return steps[static_cast<std::size_t>(place)]; };
  for (int place = kStep; place < at_; place += kStep) step_at(place) = 1;
  for (const plan::ScratchBuffer& one : within_) step_at(one.from) = step_at(one.to) = 1;
  std::exclusive_scan(steps.begin(), steps.end(), steps.begin(), 0);
  for (plan::ScratchBuffer& one : within_) one.from = step_at(one.from), one.to = step_at(one.to);
}

std::vector<plan::ScratchBuffer> BlockLives::take() {
  for (const int late : late_) {
    const int place = at(late).to;
    const auto next = std::find_if(runs_.begin(), runs_.end(), [&](const Run& run) { return run.first > place; });
    int to = behind(place);
    if (next != runs_.end()) to = next + 1 == runs_.end() ? behind(next->last) : ahead(ahead((next + 1)->first));
    use(late, to);
  }
  std::erase_if(within_, [](const plan::ScratchBuffer& one) { return one.from == kUnused || one.bytes == 0; });
  for (plan::ScratchBuffer& one : within_) one.arrives = one.from < first_compute_;
  number_places();
  return std::move(within_);
}

ReductionLives::One ReductionLives::outlined(plan::Outline outline, int made) {
  LivesByMemory known = none_of_memory();
  int& gradients = known[static_cast<std::size_t>(plan::Memory::gradients)];
  if (made >= 0) block_.use(gradients = block_.buffer(0), made);
  return {block_.outlined(std::move(outline), known), gradients};
}

void ReductionLives::add_late(plan::Outline outline, int made) {
  const One& one = pending_.emplace_back(outlined(std::move(outline), made));
  block_.use(one.lives, 0);
}

void ReductionLives::add_up() {
  if (pending_.empty()) return;
  const int place = block_.step(!on_host_);
  for (const One& one : pending_) {
    block_.use(one.lives, one.lives.outline.parts - 1, place);
    if (keeps_ && one.gradients >= 0) block_.use(one.gradients, place);
    for (const int buffer : one.lives.buffers)
      if (on_host_ && buffer >= 0 && block_.last_use(buffer) == place) block_.leave(buffer);
  }
  pending_.clear();
}

void ReductionLives::finish() {
  turns_.flush();
  add_up();
}

}  // namespace orrery::cost
