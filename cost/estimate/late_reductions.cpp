// Two chains: the passes of layers, and the reductions that follow them.
#include "cost/estimate/late_reductions.h"

#include <algorithm>

namespace orrery::cost {

namespace {

/// Seconds of the pass that completes a layer's gradients: on the device, or for the host to issue it.
double last_pass(const LayerCosts& costs, bool splits_backward) {
  const Pass& pass = splits_backward ? costs.weights : costs.backward;
  double seconds = pass.compute + pass.messages + pass.recomputed, host = pass.host;
  if (!splits_backward && costs.recomputation == plan::Recompute::full) {
    seconds += costs.recompute.compute + costs.recompute.messages;
    host += costs.recompute.host;
  }
  return std::max(seconds, host);
}

}  // namespace

double late_reductions(const std::vector<std::vector<LayerRun>>& chunks, const plan::PlanSpec& spec,
                       const std::function<double(const BucketSize&)>& reduction) {
  double computed = 0, reduced = 0;
  const bool begins = std::any_of(chunks.begin(), chunks.end(), [](const std::vector<LayerRun>& chunk) {
    return chunk.front().costs->kind == models::LayerKind::embedding;
  });
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk)
    for (auto run = chunk->rbegin(); run != chunk->rend(); ++run) {
      LayerCosts buckets;
      buckets.own_elements = run->costs->own_elements;
      buckets.expert_elements = run->costs->expert_elements;
      buckets.expert_matrices = run->costs->expert_matrices;
      buckets.partial_elements = run->costs->partial_elements;
      buckets.own_matrices = run->costs->own_matrices;
      buckets.shared_matrices = run->costs->shared_matrices;
      // If the embedding is on the same stage, a tied table is complete after the embedding's pass, not the head's.
      const bool waits = begins && run->costs->kind == models::LayerKind::head;
      buckets.shared_elements = waits ? 0 : run->costs->shared_elements;
      double messages = 0;
      for (const BucketSize& b : buckets_of({{&buckets, 1}}, spec)) messages += reduction(b);
      for (std::int64_t i = 0; i < run->count; ++i) {
        computed += last_pass(*run->costs, spec.splits_backward());
        reduced = std::max(reduced, computed) + messages;
      }
    }
  return std::max(0.0, reduced - computed);
}

}  // namespace orrery::cost
