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

  /// The reduction of a bucket, with nothing noted down yet. `gradients`: the buffer with all of the gradients; none:
  /// the bucket's own. `label`: as in OutlinedBucket.
  [[nodiscard]] OutlineWriter of(BucketId bucket, BufferId gradients = {}, LayerId layer = {},
                                 std::string label = {}) const;
  /// Notes down the whole reduction.
  void write(BucketId bucket) const;
};

/// Reductions in several parts. All but the last part end with messages, if there is anything to send. A bucket's next
/// part follows the next bucket's gradients, so that its messages move while those gradients are made.
class CompressedReduction {
 public:
  CompressedReduction(ClassBuilder& build, const Groups& groups, const PlanSpec& spec, Reduces when)
      : how_{build, groups, spec, when} {}

  /// The next parts of the buckets before, then the first part of this one.
  void add(BucketId bucket, BufferId gradients, LayerId layer = {}) {
    OutlineWriter writer = how_.of(bucket, gradients, layer);
    const int parts = writer.parts();
    turns_.add(std::move(writer), parts);
  }
  /// The remaining parts of all buckets added so far.
  void flush() { turns_.flush(); }

 private:
  struct WritePart {
    void operator()(OutlineWriter& writer, int part) const { writer.write(part); }
  };
  Reducing how_;
  Turns<OutlineWriter, WritePart> turns_{WritePart{}};
};

}  // namespace orrery::plan
