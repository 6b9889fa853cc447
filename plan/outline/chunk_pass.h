#pragma once
/// The order of a chunk's passes over one micro-batch: when each layer's parameters are gathered, when it runs, is
/// recomputed, and has its gradients reduced and added up. Lowering writes steps in this order
/// (plan/lower/layer_passes.cpp), and cost/ prices them in it (cost/estimate/pass_program.cpp).
#include <cstddef>
#include <utility>

#include "plan/outline/outline.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// Layers [first, last) of a stage, in model order.
struct Chunk {
  std::size_t first = 0, last = 0;
};

/// `pass` has:
/// - gather(layer): messages that bring the layer's parameters under ZeRO 3; returns what run() needs of them;
/// - run(layer, gathered).
/// A layer's parameters are gathered while the layer before runs.
template <class Pass>
void forward_order(const Chunk& chunk, Pass& pass) {
  auto next = pass.gather(chunk.first);
  for (std::size_t layer = chunk.first; layer < chunk.last; ++layer) {
    auto gathered = std::exchange(next, {});
    if (layer + 1 < chunk.last) next = pass.gather(layer + 1);
    pass.run(layer, std::move(gathered));
  }
}

/// `pass` has:
/// - gather(layer): as in forward_order;
/// - begin(layer, gathered), recompute(layer), run(layer): gradients of its inputs, and of its weights where the pass
///   is not split;
/// - reduce(layer): ZeRO 2 and 3: the messages that reduce its gradients; in fewer bits, the first part of the
/// reduction;
/// - add_up(): adds what has been reduced to this rank's shards, one layer later, so that compute hides the messages;
/// - end(): the remaining parts of reductions in fewer bits.
template <class Pass>
void backward_order(const Chunk& chunk, const PlanSpec& spec, Pass& pass) {
  auto next = pass.gather(chunk.last - 1);
  for (std::size_t layer = chunk.last; layer-- > chunk.first;) {
    auto gathered = std::exchange(next, {});
    if (layer > chunk.first) next = pass.gather(layer - 1);
    pass.begin(layer, std::move(gathered));
    pass.recompute(layer);
    pass.run(layer);
    if (zero_of(spec) < 2) continue;
    if (!spec.compresses()) pass.add_up();
    pass.reduce(layer);
  }
  pass.end();
  pass.add_up();
}

/// The weights' half of a split backward pass. `pass` has run(layer, last_alone): in the last step that runs, the last
/// product stands alone, because the step waits until memory of a message is free, and the others must not.
template <class Pass>
void weights_order(const Chunk& chunk, Pass& pass) {
  for (std::size_t layer = chunk.last; layer-- > chunk.first;) pass.run(layer, layer == chunk.first);
}

}  // namespace orrery::plan
