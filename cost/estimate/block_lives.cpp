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

void BlockLives::live(int from, int to, double bytes, bool leaves) {
  if (bytes <= 0) return;
  plan::ScratchBuffer& one = within_.emplace_back();
  one.from = from;
  one.to = std::max(from, to);
  one.bytes = static_cast<std::int64_t>(bytes);
  one.leaves = leaves;
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
  for (const Late& late : late_) {
    const auto next = std::find_if(runs_.begin(), runs_.end(), [&](const Run& run) { return run.first > late.place; });
    int to = behind(late.place);
    if (next != runs_.end()) to = next + 1 == runs_.end() ? behind(next->last) : ahead(ahead((next + 1)->first));
    live(late.from, to, late.bytes);
  }
  for (plan::ScratchBuffer& one : within_) one.arrives = one.from < first_compute_;
  number_places();
  return std::move(within_);
}

void ReductionLives::add_late(plan::Outline outline, int made) {
  One& one = all_.emplace_back(One{std::move(outline), made});
  visit(one, 0, -1);
  pending_.push_back(&one);
}

void ReductionLives::add_up() {
  if (pending_.empty()) return;
  const int place = block_.step(!on_host_);
  for (One* one : pending_) {
    visit(*one, one->outline.parts - 1, place);
    if (on_host_) one->copied = place;
    for (std::size_t i = 0; keeps_ && i < one->outline.slots.size(); ++i)
      if (one->outline.slots[i].memory == plan::Memory::gradients) one->uses[i].second = place;
  }
  pending_.clear();
}

void ReductionLives::visit(One& one, int part, int place) {
  one.uses.resize(one.outline.slots.size(), {-1, -1});
  const auto use = [&](int operand, int at) {
    if (operand < 0) return;
    auto& [first, last] =
        one.uses[static_cast<std::size_t>(one.outline.operands[static_cast<std::size_t>(operand)].slot)];
    if (first < 0) first = at;
    last = at;
  };
  for (const plan::Item& item : one.outline.items) {
    if (item.part != part) continue;
    const int at = place >= 0 ? place : block_.step(!item.is_message());
    for (const int operand : {item.source, item.target}) use(operand, at);
    for (const models::Op& op : item.ops)
      for (const std::vector<int>* operands : {&op.in, &op.out})
        for (const int operand : *operands) use(operand, at);
  }
}

void ReductionLives::finish() {
  turns_.flush();
  add_up();
  for (const One& one : all_)
    for (std::size_t i = 0; i < one.uses.size(); ++i) {
      const plan::Slot& slot = one.outline.slots[i];
      const auto [first, last] = one.uses[i];
      const bool full = slot.memory == plan::Memory::gradients && one.made >= 0;
      if (first < 0 || (slot.memory != plan::Memory::temporary && !full)) continue;
      const int from = full ? one.made : first;
      const double bytes = arena_bytes(slot.elements, slot.dtype);
      last == one.copied ? block_.live_behind(from, last, bytes) : block_.live(from, last, bytes);
    }
  all_.clear();
}

}  // namespace orrery::cost
