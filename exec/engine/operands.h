#pragma once
/// Where a rank's views and buffers lie: a class's views as addresses in its arena.
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "exec/engine/arena.h"
#include "exec/engine/backend.h"
#include "exec/engine/communication.h"
#include "exec/engine/ranges.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

class Operands {
 public:
  /// All references must outlive this.
  Operands(const plan::Schedule& schedule, const plan::RankClass& rank_class, Arena& arena, int rank);

  /// This rank's place among such ranks.
  [[nodiscard]] int place_among(plan::DealtOver ranks) const { return places_[static_cast<std::size_t>(ranks)]; }
  /// Where this rank's shard begins within its bucket, in elements.
  [[nodiscard]] std::int64_t shard_offset(const plan::Bucket& bucket) const {
    return place_among(bucket.dealt()) * bucket.shard_elements();
  }
  [[nodiscard]] std::byte* address(const plan::View& view, const Instance& of) const;
  [[nodiscard]] std::byte* address(int view, const Instance& of) const { return address(view_at(view), of); }
  /// Of a view that an operator names; nothing for -1.
  [[nodiscard]] Operand at(int view, const Instance& of) const;
  [[nodiscard]] const plan::View& view_at(int view) const { return class_.views[static_cast<std::size_t>(view)]; }
  [[nodiscard]] const plan::Buffer& buffer_of(int view) const { return class_.buffers[view_at(view).buffer]; }
  [[nodiscard]] Touch touch(plan::BufferId buffer, const Instance& of, bool writes) const {
    return {arena_.data(buffer, of), arena_.bytes(buffer), writes};
  }
  /// What a step uses of memory.
  [[nodiscard]] std::vector<Touch> touches(const plan::Step& step, const Instance& of) const;
  /// The runs of a bucket's elements that an operator treats differently; none for most operators.
  [[nodiscard]] std::span<const ElementRange> ranges(const models::Op& op);

 private:
  [[nodiscard]] std::int64_t element_offset(const plan::View& view) const {
    return view.offset + place_among(view.dealt) * view.elements;
  }
  [[nodiscard]] std::vector<ElementRange> ranges_of(const models::Op& op, RangeGrain grain) const;

  const plan::Schedule& schedule_;
  const plan::RankClass& class_;
  Arena& arena_;
  int rank_;
  std::array<int, plan::kDealtOver> places_ = {};    ///< by plan::DealtOver
  std::map<int, std::vector<ElementRange>> ranges_;  ///< by view: an optimizer's first operand
};

}  // namespace orrery::exec
