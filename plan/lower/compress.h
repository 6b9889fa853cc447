#pragma once
/// Reductions of gradients as lowering notes them down (plan/outline/reduction.h). Private to plan/.
#include <cstdint>
#include <optional>

#include "plan/lower/write_outline.h"
#include "plan/outline/reduction.h"
#include "plan/outline/turns.h"

namespace orrery::plan {

/// How buckets are reduced at one time of a step.
struct Reducing {
  ClassBuilder& build;
  const Groups& groups;
  const PlanSpec& spec;
  Reduces when = Reduces::at_the_end;
  bool low_rank = true;  ///< PowerSGD, where the plan has it

  /// A bucket's reduction, none of it noted yet. `gradients`: the buffer that has them all; none: the bucket's own.
  /// `label`: OutlinedBucket's.
  [[nodiscard]] OutlineWriter of(int bucket, BufferId gradients = {}, std::int32_t layer = -1,
                                 std::string label = {}) const;
  /// All of it.
  void write(int bucket) const;
};

/// Reductions in several parts with messages behind all but the last, where there is something to send. Parts stand one
/// bucket apart, so that a bucket's messages move while the next one's gradients are made.
class CompressedReduction {
 public:
  CompressedReduction(ClassBuilder& build, const Groups& groups, const PlanSpec& spec, Reduces when)
      : how_{build, groups, spec, when} {}

  /// The next bucket's first part, behind the next parts of those before it.
  void add(int bucket, BufferId gradients, std::int32_t layer) {
    OutlineWriter writer = how_.of(bucket, gradients, layer);
    const int parts = writer.parts();
    turns_.add(std::move(writer), parts);
  }
  /// What of the buckets added so far is left.
  void flush() { turns_.flush(); }

 private:
  struct WritePart {
    void operator()(OutlineWriter& writer, int part) const { writer.write(part); }
  };
  Reducing how_;
  Turns<OutlineWriter, WritePart> turns_{WritePart{}};
};

}  // namespace orrery::plan
