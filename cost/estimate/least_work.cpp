// Sums over layers.
#include "cost/estimate/least_work.h"

#include <algorithm>

namespace orrery::cost {

namespace {

/// A pass over a layer.
struct Work {
  double waited = 0;    ///< with all messages but those at its end
  double at_end = 0;    ///< those, for which the next layer waits
  double reads_at = 0;  ///< the part of `waited` before it reads its input
};

Work work_of(const std::vector<Segment>& segments, bool beside) {
  Work out;
  bool reads = false;
  for (const Segment& s : segments) {
    if (s.reads_input && !reads) reads = true, out.reads_at = out.waited;
    if (s.kind == Segment::Kind::tensor && !beside) out.at_end += s.seconds;
    if (s.kind != Segment::Kind::compute) continue;
    // The first to add to a gradient may write it, which takes less.
    out.waited += out.at_end + std::min(s.seconds, s.writing({true, true, true}));
    out.at_end = 0;
  }
  if (!reads) out.reads_at = out.waited;
  return out;
}

}  // namespace

ChunkWork work_of(const std::vector<LayerRun>& chunk, bool beside) {
  ChunkWork out;
  Work forward, backward;  // after the loop: of the top layer
  double weights = 0;
  for (const LayerRun& run : chunk) {
    const LayerCosts& c = *run.costs;
    const auto count = static_cast<double>(run.count);
    forward = work_of(c.forward.segments, beside);
    out.forward += count * (forward.waited + forward.at_end);
    backward = work_of(c.backward.segments, beside);
    double again = 0;
    if (c.recomputation == plan::Recompute::full) {
      const Work recomputed = work_of(c.recompute.segments, beside);
      again = recomputed.waited + recomputed.at_end;
    }
    out.backward += count * (backward.waited + backward.at_end + again);
    weights += count * work_of(c.weights.segments, beside).waited;
  }
  // A pass ends with its last layer's messages: nothing in it waits for them.
  out.forward -= forward.at_end;
  out.backward -= work_of(chunk.front().costs->backward.segments, beside).at_end;
  out.all = out.forward + out.backward + weights;
  out.forward -= work_of(chunk.front().costs->forward.segments, beside).reads_at;
  const LayerCosts& top = *chunk.back().costs;
  if (top.recomputation == plan::Recompute::full)  // it may begin before the gradient has come
    out.backward -= work_of(top.recompute.segments, beside).waited + work_of(top.recompute.segments, beside).at_end;
  out.backward -= backward.reads_at;
  return out;
}

double least_work(const std::vector<std::vector<ChunkWork>>& stages, const plan::PlanSpec& spec,
                  std::int64_t micro_batches) {
  const auto passes = static_cast<double>(micro_batches) / (spec.stages.mirrors() ? 2 : 1);
  double way = 0;
  std::vector<double> ends;
  for (const std::vector<ChunkWork>& chunks : stages) {
    double all = 0;
    for (const ChunkWork& chunk : chunks) all += passes * chunk.all;
    ends.push_back(way + all);
    if (!spec.stages.mirrors()) way += chunks.front().forward;
  }
  // Gradients travel back, where none leaves before its pass has ended (least_end.cpp).
  for (std::size_t s = ends.size(); s-- > 1 && !spec.stages.splits_backward();)
    ends[s - 1] = std::max(ends[s - 1], ends[s] + stages[s - 1].front().backward);
  return *std::ranges::max_element(ends);
}

}  // namespace orrery::cost
