#pragma once
/// Small models, clusters and plans that the tests of several rooms share.
#include <memory>
#include <string>
#include <vector>

#include "base/ensure.h"
#include "plan/spec/plan.h"

namespace orrery::samples {

inline constexpr std::size_t kFinish = 3;  ///< block that ends a step without virtual stages; variants stand behind it

inline models::Model tiny_gpt(std::int64_t layers = 4, std::int64_t hidden = 32, std::int64_t vocab = 64) {
  models::Model m;
  m.name = "tiny";
  m.layers = layers;
  m.hidden = hidden;
  m.heads = m.kv_heads = 4;
  m.head_dim = hidden / 4;
  m.ffn_hidden = 4 * hidden;
  m.vocab = vocab;
  m.max_sequence = 16;
  return m;
}

/// With its two heads.
inline models::Model tiny_bert() {
  models::Model m = tiny_gpt();
  m.family = models::Family::bert;
  m.causal = m.pre_norm = false;
  m.token_types = 2;
  m.gelu = models::Gelu::erf;
  m.masked_fraction = 0.15;
  m.next_sentence = true;
  return m;
}

inline clusters::Cluster cpu_cluster(int ranks) {
  clusters::Cluster c;
  c.name = "localhost-" + std::to_string(ranks);
  clusters::Device d;
  d.name = "cpu";
  d.kind = clusters::DeviceKind::cpu;
  d.peak["fp32"] = base::FlopsPerSecond{1e11};
  d.vector_peak = base::FlopsPerSecond{1e10};
  d.memory = base::Bytes{2e9};
  d.memory_bandwidth = base::BytesPerSecond{1e10};
  c.devices = {d};
  c.devices_per_node = ranks;
  c.intra = {"shared-memory", base::BytesPerSecond{4e9}, base::Seconds{2e-6}};
  c.inter = c.intra;
  c.stack = "orrery-cpu";
  return c;
}

inline base::Result<plan::Plan> try_make(plan::PlanSpec spec, models::Model model = tiny_gpt()) {
  if (spec.shape.batch == 1) spec.shape.batch = 8;
  if (spec.shape.sequence == 1) spec.shape.sequence = 16;
  spec.numerics.vocab_multiple = 1;
  return plan::make_plan(std::make_shared<models::Model>(std::move(model)),
                         std::make_shared<clusters::Cluster>(cpu_cluster(spec.mesh.ranks())), spec);
}

inline plan::Plan make(plan::PlanSpec spec, models::Model model = tiny_gpt()) {
  auto made = try_make(std::move(spec), std::move(model));
  ENSURE(made.has_value(), "{}", base::render(made.error(), false));
  return *made;
}

/// Every split that the executor must run equal to serial (and a few more), by name.
inline std::vector<std::pair<std::string, plan::PlanSpec>> splits() {
  std::vector<std::pair<std::string, plan::PlanSpec>> all;
  const auto add = [&](std::string name, int data, int tensor, int pipeline, int zero = 0,
                       plan::Order order = plan::Order::one_f_one_b,
                       plan::Recompute recompute = plan::Recompute::none) {
    plan::PlanSpec s;
    s.mesh.data = data;
    s.mesh.tensor = tensor;
    s.mesh.pipeline = pipeline;
    s.states.zero_stage = zero;
    s.stages.order = order;
    s.recomputation.what = recompute;
    s.shape.micro_batch = 2;
    s.shape.batch = 8;
    s.shape.sequence = 16;
    all.emplace_back(std::move(name), s);
  };
  using plan::Order;
  using plan::Recompute;
  add("serial", 1, 1, 1);
  add("data 2", 2, 1, 1);
  add("tensor 2", 1, 2, 1);
  add("pipeline 2, 1f1b", 1, 1, 2);
  add("pipeline 2, gpipe", 1, 1, 2, 0, Order::gpipe);
  add("ZeRO 1", 2, 1, 1, 1);
  add("ZeRO 2", 2, 1, 1, 2);
  add("ZeRO 3", 2, 1, 1, 3);
  add("data 2 x tensor 2", 2, 2, 1);
  add("data 2 x pipeline 2", 2, 1, 2);
  add("tensor 2 x pipeline 2", 1, 2, 2);
  add("recompute", 1, 1, 1, 0, Order::one_f_one_b, Recompute::full);
  add("ZeRO 3, recompute", 2, 1, 1, 3, Order::one_f_one_b, Recompute::full);
  add("tensor 2, recompute", 1, 2, 1, 0, Order::one_f_one_b, Recompute::full);
  add("data 2 x tensor 2 x pipeline 2, ZeRO 3, recompute", 2, 2, 2, 3, Order::one_f_one_b, Recompute::full);
  add("data 2 x tensor 2 x pipeline 2, ZeRO 1, gpipe", 2, 2, 2, 1, Order::gpipe);
  add("selective", 1, 1, 1, 0, Order::one_f_one_b, Recompute::selective);
  add("data 2 x tensor 2, ZeRO 3, selective", 2, 2, 1, 3, Order::one_f_one_b, Recompute::selective);
  add("pipeline 2, recompute of one layer a stage", 1, 1, 2, 0, Order::one_f_one_b, Recompute::full);
  all.back().second.recomputation.layers = 1;
  for (const int zero : {0, 1, 2, 3})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      add("sequence-parallel, ZeRO " + std::to_string(zero) + ", recompute " + plan::name_of(recompute), 2, 2, 2, zero,
          Order::one_f_one_b, recompute);
      all.back().second.mesh.sequence_parallel = true;
    }
  for (const int context : {2, 4})
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      add("context " + std::to_string(context) + ", recompute " + plan::name_of(recompute), 1, 1, 1, 1,
          Order::one_f_one_b, recompute);
      all.back().second.mesh.context = context;
    }
  for (const int zero : {0, 1, 2, 3}) {
    add("context 2 x data 2 x tensor 2 x pipeline 2, sequence-parallel, ZeRO " + std::to_string(zero), 2, 2, 2, zero);
    all.back().second.mesh.context = 2;
    all.back().second.mesh.sequence_parallel = true;
  }
  const auto chunked = [&](std::string name, int data, int tensor, int pipeline, int chunks, int zero,
                           Recompute recompute = Recompute::none) {
    add(std::move(name), data, tensor, pipeline, zero, Order::one_f_one_b, recompute);
    all.back().second.stages.virtual_stages = chunks;
    all.back().second.shape.micro_batch = 1;
  };
  chunked("pipeline 2 of 2 chunks", 1, 1, 2, 2, 0);
  chunked("pipeline 4 of 1 layer, ZeRO 1", 2, 1, 4, 1, 1);
  chunked("data 2 x pipeline 2 of 2 chunks, ZeRO 3", 2, 1, 2, 2, 3);
  chunked("data 2 x tensor 2 x pipeline 2 of 2 chunks, ZeRO 2, recompute", 2, 2, 2, 2, 2, Recompute::full);
  chunked("tensor 2 x pipeline 2 of 2 chunks, sequence-parallel", 1, 2, 2, 2, 0, Recompute::selective);
  all.back().second.mesh.sequence_parallel = true;
  for (const Order order : {Order::zb_h1, Order::zb_h2, Order::zb_v, Order::dualpipe_v})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      const std::string name = std::string(plan::name_of(order)) + ", recompute " + plan::name_of(recompute);
      for (const bool sharded : {false, true}) {
        add(name, 2, sharded ? 2 : 1, 2, 1, order, recompute);
        all.back().second.mesh.sequence_parallel = sharded;
        all.back().second.stages.virtual_stages = all.back().second.stages.folds() ? 2 : 1;
        all.back().second.shape.micro_batch = 1;
      }
    }
  // Each that reduces behind its passes also reduces within them.
  for (std::size_t i = 0, n = all.size(); i < n; ++i) {
    plan::PlanSpec early = all[i].second;
    early.states.overlap_gradients = true;
    if (early.reduces_early()) all.emplace_back(all[i].first + ", gradients overlapped", early);
  }
  return all;
}

}  // namespace orrery::samples
