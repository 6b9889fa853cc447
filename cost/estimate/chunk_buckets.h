#pragma once
/// The buckets of a chunk's layers, and what ZeRO does with them in its passes: gathers of parameters, zeroing and
/// writing of gradients, reductions. Each time is asked for once. Private to cost/estimate/.
#include <array>
#include <initializer_list>
#include <optional>
#include <vector>

#include "cost/estimate/pass_program.h"
#include "cost/estimate/pass_writer.h"

namespace orrery::cost {

/// By bucket the last message of a layer's gathers; -1: none.
struct Gathered {
  std::array<int, 3> last = {-1, -1, -1};

  /// Ahead of the first compute segment that reads it.
  void wait(PassWriter& out, const Segment& s);
};

/// ZeRO-2 and 3 zero a pass's gradients in the first step of a layer's backward pass; seconds.
struct Zeroing {
  bool any = false;
  std::array<bool, 3> writes = {};  ///< by bucket: operators write gradients instead of adding to zeros
  double device = 0, host = 0;
};

class ChunkBuckets {
 public:
  using Segments = std::vector<Segment>;

  /// Keeps references to `around` and to the layers' costs.
  ChunkBuckets(const std::vector<LayerRun>& layers, const PassSurroundings& around);

  [[nodiscard]] const PassSurroundings& around() const { return around_; }
  [[nodiscard]] int zero() const;
  /// Whether a step's first pass writes gradients to which the others add, and takes another time for it. ZeRO-2 and 3
  /// have new ones in every pass; where steps overlap, or others sum up, all add.
  [[nodiscard]] bool first_writes() const;
  /// Which buckets a step's first pass over a layer then writes. In a split backward pass the product with a tied table
  /// comes after the embedding's scatter, which only adds.
  [[nodiscard]] std::array<bool, 3> first_written(const LayerCosts& c) const;

  /// Begins ZeRO-3's gathers of a layer. `reads`: the segments of the pass over the layer.
  Gathered gather(PassWriter& out, const LayerCosts& c, std::initializer_list<const Segments*> reads);
  [[nodiscard]] Zeroing zeroed(const LayerCosts& c);
  /// The reduction of a trained bucket that every pass, or only the last one, ends with; null: nothing is trained.
  [[nodiscard]] const ReductionTimes* reduction(const LayerCosts& c, LayerBucket bucket, plan::Reduces when);

 private:
  struct OfLayer {
    const LayerCosts* costs = nullptr;
    std::array<std::optional<plan::BucketShape>, 3> trained, frozen;
    std::array<const ReductionTimes*, 3> in_pass = {}, in_frozen = {}, late = {};  ///< as far as asked for
  };

  void keep(const LayerCosts& c);
  [[nodiscard]] OfLayer& of(const LayerCosts& c);
  const ReductionTimes& known(const plan::BucketShape& b, plan::Reduces when, const ReductionTimes*& times);

  const PassSurroundings& around_;
  std::vector<OfLayer> kept_;
  StepEnds::Room room_;
};

}  // namespace orrery::cost
