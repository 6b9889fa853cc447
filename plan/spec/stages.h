#pragma once
/// Stages: how layers are divided among the stages of a pipeline, and in which order passes run there.
#include <cstdint>
#include <vector>

#include "plan/spec/pass_order.h"

namespace orrery::plan {

/// plan/schedule/orders.h describes them; the PipeDream orders are asynchronous and change the mathematics
/// (plan/schedule/asynchronous.h).
enum class Order {
  gpipe,
  one_f_one_b,
  zb_h1,
  zb_h2,
  zb_v,
  dualpipe_v,
  pipedream,
  pipedream_vertical,
  pipedream_2bw,
  dualpipe,
  custom  ///< a table of passes that a user writes (plan/spec/pass_order.h)
};

struct Stages {
  int virtual_stages = 1;  ///< chunks of layers on each rank, run interleaved (Narayanan et al. 2021, section 2.2.2)
  /// Number of blocks of each stage, in model order; with virtual stages, of each chunk: entry
  /// PlanSpec::place_of(s, c) is chunk c of rank s. Empty = as even as possible.
  std::vector<std::int64_t> layers_per_stage = {};
  bool ends_as_layers = false;  ///< an even split counts embedding and head as layers: end stages have fewer blocks
  Order order = Order::one_f_one_b;
  PassOrder passes = {};  ///< of a custom order; otherwise empty
  bool operator==(const Stages&) const = default;

  /// Whether a backward pass is split in two, gradients of inputs and of weights (the zero-bubble orders, DualPipe, and
  /// custom orders, which may run the two back to back).
  [[nodiscard]] bool splits_backward() const {
    return order == Order::zb_h1 || order == Order::zb_h2 || order == Order::custom || folds();
  }
  /// Whether a rank's second chunk runs up the stages: the model is folded into a V, so that the first stage has both
  /// its ends, or the stages hold it twice (mirrors()).
  [[nodiscard]] bool folds() const {
    return order == Order::zb_v || order == Order::dualpipe_v || mirrors() ||
           (order == Order::custom && passes.folds());
  }
  /// Whether the stages hold the model twice, down with the first chunk and up with the second, and half of the
  /// micro-batches enter at either end: stages s and pipeline - 1 - s hold the same parameters.
  [[nodiscard]] bool mirrors() const { return order == Order::dualpipe; }
  /// Whether the pipeline never drains: gradients come from older weights than those they update.
  [[nodiscard]] bool asynchronous() const {
    return order == Order::pipedream || order == Order::pipedream_vertical || order == Order::pipedream_2bw;
  }
};

}  // namespace orrery::plan
