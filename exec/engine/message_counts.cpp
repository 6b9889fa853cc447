// Counts of the device's messages.
#include "exec/engine/message_counts.h"

#include <fmt/core.h>

#include <cstring>
#include <memory>
#include <utility>

namespace orrery::exec {

void MessageCounts::expect(const plan::CountedRows& counted) {
  for (const int view : {counted.sent, counted.received}) {
    views_.insert(view);
    computed_[operands_.view_at(view).buffer] = false;
  }
}

void MessageCounts::forget(const plan::Step& step) {
  if (views_.empty()) return;
  for (const plan::BufferId buffer : step.writes) {
    const auto found = computed_.find(buffer);
    if (found == computed_.end()) continue;
    found->second = step.kind == plan::StepKind::compute;
    std::erase_if(counts_, [&](const auto& one) { return operands_.view_at(one.first.first).buffer == buffer; });
  }
}

void MessageCounts::fetch(const plan::CountedRows& counted, const At& at, const Instance& of, const Points& behind) {
  const auto missing = [&](int view) { return !counts_.contains({view, of.micro_batch}); };
  if (!missing(counted.sent) && !missing(counted.received)) return;
  if (room_.empty()) {
    std::size_t all = 0;
    for (const int view : views_) all += words(view);
    room_ = backend_.allocate_slot(all * sizeof(std::int32_t));
  }
  std::unique_ptr<Request> last;
  std::vector<std::pair<int, std::size_t>> places;
  std::size_t filled = 0;
  for (const int view : views_) {
    const plan::View& counts = operands_.view_at(view);
    const bool needed = view == counted.sent || view == counted.received;
    const bool there = computed_.at(counts.buffer) && arena_.alive(counts.buffer, of);
    if (!missing(view) || !(needed || there)) continue;
    const std::size_t bytes = words(view) * sizeof(std::int32_t);
    const std::byte* const from = view == counted.sent       ? at.sent
                                  : view == counted.received ? at.received
                                                             : operands_.address(counts, of);
    last = backend_.queue_copy(kLane, room_.data() + filled, from, bytes, behind, false);
    places.emplace_back(view, filled);
    filled += bytes;
  }
  const auto arrived = [&] {
    transport_.check_health();
    return last->test();
  };
  waiter_.until(arrived, [&] { return fmt::format("the counts {}", operands_.buffer_of(counted.sent).name); });
  for (const auto& [view, place] : places) {
    std::vector<std::int32_t>& counts = counts_[{view, of.micro_batch}];
    counts.resize(words(view));
    std::memcpy(counts.data(), room_.data() + place, words(view) * sizeof(std::int32_t));
  }
}

}  // namespace orrery::exec
