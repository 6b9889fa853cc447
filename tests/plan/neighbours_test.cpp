// A device may make one kernel of a block's last addition and the norm that begins the next block, if the norm writes
// elsewhere than the addition reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/lower/lower.h"
#include "plan/schedule/place.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace neighbours_test {

using models::DType;
using models::Op;
using models::OpKind;

struct Range {
  std::int64_t begin = 0, end = 0;
};

struct Pairs {
  int all = 0, apart = 0;
};

/// Additions that end a step with the norm that begins the next one, of all passes of a step.
Pairs pairs_of(const RankClass& c) {
  const Placement placed = place(c);
  std::map<BufferId, Placed> last;
  std::size_t birth = 0;
  Pairs pairs;
  const Op* before = nullptr;
  std::vector<Range> read;
  const auto view = [&](int index) -> const View& { return c.views[static_cast<std::size_t>(index)]; };
  const auto range = [&](int index) {
    const View& v = view(index);
    const Buffer& b = c.buffers[v.buffer];
    const std::int64_t persistent = placed.persistent[v.buffer];
    const std::int64_t size = models::size_of(b.dtype);
    const std::int64_t at = (persistent >= 0 ? persistent : last.at(v.buffer).offset) + v.offset * size;
    return Range{at, at + v.elements * size};
  };
  for (std::size_t e = 0; e < c.program.size(); ++e) {
    const Block& block = c.blocks[static_cast<std::size_t>(c.program[e].block)];
    for (std::size_t s = 0; s < block.steps.size(); ++s) {
      const auto here = StepRef{static_cast<std::int32_t>(e), static_cast<std::int32_t>(s)};
      for (; birth < placed.births.size() && !(here < placed.births[birth].at); ++birth)
        last[placed.births[birth].buffer] = placed.births[birth];
      const std::vector<Op>& ops = block.steps[s].ops;
      if (ops.empty()) {
        before = nullptr;
        continue;
      }
      const bool norm = ops.front().kind == OpKind::layer_norm || ops.front().kind == OpKind::rms_norm;
      if (before && norm && view(ops.front().in[0]) == view(before->out[0])) {
        ++pairs.all;
        bool apart = true;
        for (const int written : ops.front().out)
          if (written >= 0)
            for (const Range& r : read)
              apart = apart && (range(written).end <= r.begin || r.end <= range(written).begin);
        pairs.apart += apart ? 1 : 0;
      }
      before = ops.back().kind == OpKind::add_bias ? &ops.back() : nullptr;
      read.clear();
      if (!before) continue;
      for (const int v : before->in)
        if (v >= 0) read.push_back(range(v));
    }
  }
  return pairs;
}

TEST(Neighbours, ANormWritesElsewhereThanTheAdditionBeforeItReads) {
  for (const std::int64_t layers : {2, 5, 12})
    for (const DType precision : {DType::fp32, DType::bf16}) {
      PlanSpec spec;
      spec.shape.micro_batch = 4;
      spec.numerics.precision = precision;
      const Pairs pairs = pairs_of(lower(samples::make(spec, samples::tiny_gpt(layers))).classes.front());
      EXPECT_EQ(pairs.all, layers * 2) << "two micro-batches; the last norm is the head's";
      EXPECT_EQ(pairs.apart, pairs.all) << layers << " layers";
    }
}

}  // namespace neighbours_test
}  // namespace orrery::plan
