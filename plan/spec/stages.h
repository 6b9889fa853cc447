#pragma once
/// Stages: how layers are divided among the stages of a pipeline, and in which order passes run there.
#include <cstdint>
#include <iterator>
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

/// How many steps older than its own the weights are from which a stage computes gradients.
enum class WeightDelay : std::uint8_t { none, one, stages_behind, all_stages };

/// What holds of an order; the passes themselves are in plan/schedule/orders.cpp.
struct OrderTraits {
  const char* word = "";  ///< in files
  /// Whether a backward pass is split in two, gradients of inputs and of weights.
  bool splits_backward = false;
  /// Whether a rank's second chunk runs up the stages: the model is folded into a V, so that the first stage has both
  /// its ends.
  bool folds = false;
  /// Whether the stages hold the model twice, down with the first chunk and up with the second, and half of the
  /// micro-batches enter at either end: stages s and pipeline - 1 - s hold the same parameters.
  bool mirrors = false;
  WeightDelay delay = WeightDelay::none;  ///< none: the pipeline drains at the end of a step
};
/// In the order of the enumeration.
inline constexpr OrderTraits kOrders[] = {
    {.word = "gpipe"},
    {.word = "1f1b"},
    {.word = "zb-h1", .splits_backward = true},
    {.word = "zb-h2", .splits_backward = true},
    {.word = "zb-v", .splits_backward = true, .folds = true},
    {.word = "dualpipe-v", .splits_backward = true, .folds = true},
    {.word = "pipedream", .delay = WeightDelay::stages_behind},
    {.word = "pipedream-vertical", .delay = WeightDelay::all_stages},
    {.word = "pipedream-2bw", .delay = WeightDelay::one},
    {.word = "dualpipe", .splits_backward = true, .folds = true, .mirrors = true},
    {.word = "custom", .splits_backward = true},  // it may run the two back to back, and folds if its table does
};
static_assert(std::size(kOrders) == static_cast<std::size_t>(Order::custom) + 1);
[[nodiscard]] constexpr const OrderTraits& traits_of(Order order) {
  return kOrders[static_cast<std::size_t>(order)];
}

struct Stages {
  int virtual_stages = 1;  ///< chunks of layers on each rank, run interleaved (Narayanan et al. 2021, section 2.2.2)
  /// Number of blocks of each stage, in model order; with virtual stages, of each chunk: entry
  /// PlanSpec::place_of(s, c) is chunk c of rank s. Empty = as even as possible.
  std::vector<std::int64_t> layers_per_stage = {};
  bool ends_as_layers = false;  ///< an even split counts embedding and head as layers: end stages have fewer blocks
  Order order = Order::one_f_one_b;
  PassOrder passes = {};  ///< of a custom order; otherwise empty
  bool operator==(const Stages&) const = default;

  [[nodiscard]] bool splits_backward() const { return traits_of(order).splits_backward; }
  [[nodiscard]] bool folds() const { return traits_of(order).folds || (order == Order::custom && passes.folds()); }
  [[nodiscard]] bool mirrors() const { return traits_of(order).mirrors; }
  /// Whether the pipeline never drains: gradients come from older weights than those they update.
  [[nodiscard]] bool asynchronous() const { return traits_of(order).delay != WeightDelay::none; }
};

}  // namespace orrery::plan
