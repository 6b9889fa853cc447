#pragma once
/// Orders in which the stages of a pipeline run their passes.

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

}  // namespace orrery::plan
