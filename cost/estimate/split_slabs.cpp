/// Slabs by the passes in which they begin and end, counted over the order's moves.
#include "cost/estimate/split_slabs.h"

#include <algorithm>

#include "cost/estimate/offload.h"
#include "cost/estimate/slabs.h"
#include "plan/schedule/place.h"

namespace orrery::cost {

namespace {

using Kind = plan::Move::Kind;

/// For one chunk: what a micro-batch keeps, and which pass frees what it received and what it passes on.
struct Kept {
  double to_inputs = 0, to_weights = 0, between = 0;  ///< from forward; from the inputs' to the weights' gradients
  double boundary = 0;                                ///< of a message
  bool x_to_weights = false, dy_to_weights = false;   ///< false: freed in the pass before
  bool x_leaves = false;                              ///< forward frees its input: the host has it, or a part stays
};

const Life& life(const LayerCosts& layer, LifeId index) {
  return layer.lives[index];
}

/// Equal layers of a chunk that do the same with what forward makes.
struct Part {
  const LayerCosts* layer = nullptr;
  std::int64_t count = 1;
  bool offloads = false;  ///< a block of a plan whose activations wait on the host
  bool stays = false;     ///< but not what backward reads in these

  /// Whether the host has a tensor from forward until one of the backward passes fetches it.
  [[nodiscard]] bool leaves(LifeId index) const {
    return offloads && crosses(*layer, index) && (!stays || waits_for_weights(*layer, index));
  }
};

std::vector<Part> parts_of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec, std::int64_t staying) {
  std::vector<Part> parts;
  for (auto run = layers.rbegin(); run != layers.rend(); ++run) {
    const bool offloads = spec.offload.activations == plan::Space::host && run->costs->kind == models::LayerKind::block;
    const std::int64_t stay = offloads ? std::min(staying, run->count) : 0;
    staying -= stay;
    if (stay > 0) parts.push_back({run->costs, stay, true, true});
    if (run->count > stay) parts.push_back({run->costs, run->count - stay, offloads, false});
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

/// Adds a layer's own tensors, not those shared with its neighbours.
void add_own(Kept& kept, const Part& part) {
  const LayerCosts& layer = *part.layer;
  const auto count = static_cast<double>(part.count);
  const bool again = layer.recomputation == plan::Recompute::full;
  for (const LifeId i : layer.lives.keys()) {
    if (i == layer.x || i == layer.y || i == layer.dy || i == layer.dx) continue;
    const Life& l = life(layer, i);
    const bool from_forward = !again && !l.dropped && l.forward.any();
    const double waiting = l.encoded > 0 ? l.encoded : l.bytes;
    const bool from_backward = l.backward.any() || (again && l.recompute.any());
    if (from_forward && part.leaves(i)) {
      if (l.weights.any() && !waits_for_weights(layer, i)) kept.between += count * l.bytes;
    } else if (from_forward && l.weights.any())
      kept.to_weights += count * waiting;
    else if (from_forward && from_backward)
      kept.to_inputs += count * waiting;
    else if (from_backward && l.weights.any())
      kept.between += count * waiting;
  }
}

/// `received`: its input comes in a message, and is not encoded.
Kept kept_of(const std::vector<Part>& parts, bool received) {
  Kept kept;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const LayerCosts& layer = *parts[i].layer;
    add_own(kept, parts[i]);
    const bool first = i == 0, last = i + 1 == parts.size();
    if (layer.y.exists()) kept.boundary = life(layer, layer.y).bytes;
    if (layer.x.exists()) {
      const Life& x = life(layer, layer.x);
      const auto inner = static_cast<double>(parts[i].count - (first ? 1 : 0));
      kept.boundary = x.bytes;
      const double again = x.weights.any() && !waits_for_weights(layer, layer.x) ? x.bytes : 0;
      if (parts[i].leaves(layer.x)) {
        kept.between += static_cast<double>(parts[i].count) * again;  // fetched, also what was received
      } else if (x.encoded > 0) {  // waits in parts, and is whole again from the inputs' gradients on
        const double whole = first && received ? inner : static_cast<double>(parts[i].count);
        kept.to_inputs += whole * x.encoded;
        kept.between += whole * again;
      } else {
        (x.weights.any() ? kept.to_weights : kept.to_inputs) += inner * x.bytes;
      }
      if (first) kept.x_to_weights = x.weights.any();
      if (first) kept.x_leaves = parts[i].leaves(layer.x) || (x.encoded > 0 && !received);
    }
    if (layer.dy.exists()) {
      const Life& dy = life(layer, layer.dy);
      const auto inner = static_cast<double>(parts[i].count - (last ? 1 : 0));
      if (dy.weights.any()) kept.between += inner * dy.bytes;
      if (last) kept.dy_to_weights = dy.weights.any();
    }
  }
  return kept;
}

enum Slab : std::uint8_t { to_inputs, to_weights, between, received, received_gradient, handed_on, handed_back, slabs };

}  // namespace

double split_slabs(const std::vector<std::vector<LayerRun>>& chunks, const plan::PlanSpec& spec, plan::StageId stage,
                   std::int64_t micro_batches, const std::vector<std::int64_t>& staying, bool pooled, MovesMemo& memo) {
  std::vector<Kept> kept;
  std::vector<std::int64_t> sizes;
  // Between two chunks of one stage, at the fold of a V, nothing is sent.
  const bool folds = spec.stages.folds() && !spec.stages.mirrors() && stage == spec.mesh.last_stage();
  for (int c = 0; c < static_cast<int>(chunks.size()); ++c) {
    const auto at = static_cast<std::size_t>(c);
    kept.push_back(kept_of(parts_of(chunks[at], spec, staying[at]), spec.receives(stage, c, true)));
    const Kept& k = kept.back();
    const auto if_so = [&](bool there) { return there ? k.boundary : 0.0; };
    for (const double bytes : {k.to_inputs + if_so(spec.sends(stage, c, true)), k.to_weights,
                               k.between + if_so(spec.sends(stage, c, false)), if_so(spec.receives(stage, c, true)),
                               if_so(spec.receives(stage, c, false)), if_so(folds && c == 0), if_so(folds && c == 1)})
      sizes.push_back(static_cast<std::int64_t>(bytes));
  }
  SlabCount count(sizes);
  const auto change = [&](int chunk, Slab slab, int by) {
    count.change(static_cast<std::size_t>(chunk) * slabs + slab, by);
  };
  const std::int64_t enough = 4 * spec.mesh.pipeline;  // by then the most micro-batches are in flight
  const auto moves = memo.of(spec, std::min(micro_batches, enough), 1);
  for (const plan::Move& move : moves->at(stage.index())) {
    const int c = move.chunk;
    const Kept& k = kept[static_cast<std::size_t>(c)];
    const auto end = [&](Slab slab, bool here) {
      if (here) change(c, slab, -1);
    };
    switch (move.kind) {
      case Kind::update: break;  // only in asynchronous orders
      case Kind::receive_activation: change(c, received, 1); break;
      case Kind::receive_gradient: change(c, received_gradient, 1); break;
      case Kind::forward:
        change(c, to_inputs, 1);
        change(c, to_weights, 1);
        if (folds && c == 0) change(0, handed_on, 1);
        end(received, spec.receives(stage, c, true) && k.x_leaves);
        if (folds && c == 1 && k.x_leaves) change(0, handed_on, -1);
        break;
      case Kind::backward:
      case Kind::weights: {
        const bool weights = move.kind == Kind::weights;
        if (!weights) {
          change(c, between, 1);
          if (folds && c == 1) change(1, handed_back, 1);
        }
        change(c, weights ? to_weights : to_inputs, -1);
        if (weights) change(c, between, -1);
        end(received, spec.receives(stage, c, true) && !k.x_leaves && k.x_to_weights == weights);
        end(received_gradient, spec.receives(stage, c, false) && k.dy_to_weights == weights);
        if (folds && c == 1 && !k.x_leaves && k.x_to_weights == weights) change(0, handed_on, -1);
        if (folds && c == 0 && k.dy_to_weights == weights) change(1, handed_back, -1);
        break;
      }
      case Kind::send_activation:
      case Kind::send_gradient: break;  // freed with the passes
    }
  }
  return pooled ? count.sum() : count.at_once();
}

}  // namespace orrery::cost
