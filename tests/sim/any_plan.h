#pragma once
/// Random plans of every technique that a plan may have, over clusters, models and stacks of the catalogue: what the
/// closed form and the replay must agree on. Nothing that make_plan accepts is left out.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/schedule/orders.h"
#include "tests/sim/search/search_support.h"
#include "tests/sim/small_clusters.h"

namespace orrery::sim::testing {

/// What a plan runs on, and with which software. Devices of a cluster share a fabric (Ethernet, InfiniBand, PCIe …).
struct Site {
  const char* cluster;
  std::vector<int> devices;
  std::vector<models::DType> precisions;
  std::vector<const char*> stacks;
  bool cpu = false;
};

inline const std::vector<Site>& sites() {
  using enum models::DType;
  static const std::vector<const char*> gpu = {
      "megatron-lm",   "megatron-core", "megatron-bridge",         "generic-eager",     "generic-compiled",
      "deepspeed",     "orrery-cuda",   "megatron-deepspeed-2022", "megatron-fsdp",     "torchtitan-2024",
      "deepseek-2024", "dle-bert-2020", "megascale-2024",          "megatron-zero-2020"};
  static const std::vector<Site> all = {
      {"localhost-4", {0}, {fp32, bf16, fp16}, {"orrery-cpu", "orrery-cpu-overlap"}, true},
      {"localhost-8", {0}, {fp32, bf16, fp16}, {"orrery-cpu", "orrery-cpu-overlap"}, true},
      {"dgx-1v", {8, 16, 32}, {fp16, fp32}, gpu},
      {"dgx-2", {16, 32}, {fp16, fp32}, gpu},
      {"aws-p3dn", {16, 32}, {fp16, fp32}, gpu},
      {"aws-g5", {8}, {bf16, fp16}, gpu},
      {"pcie-a100-80gb", {8}, {bf16, fp16}, gpu},
      {"pcie-l40s", {8, 16, 32}, {bf16, fp8}, gpu},
      {"dgx-a100", {8, 16, 32}, {bf16, fp16, fp32}, gpu},
      {"aws-p4d", {16, 32}, {bf16, fp16}, gpu},
      {"hgx-h100-1024", {8, 16, 32, 64}, {bf16, fp8}, gpu},
      {"hgx-h100-roce", {16, 32, 64}, {bf16, fp8}, gpu},
      {"hgx-b200", {8, 16}, {bf16, fp8, fp4}, gpu},
      {"gb200-nvl64", {32, 64}, {bf16, fp8, fp4}, gpu},
      {"mi300x", {8, 16}, {bf16, fp8}, {"generic-eager", "generic-compiled", "torchtitan-2024"}},
      {"tpu-v4", {8, 16, 32}, {bf16}, {"maxtext", "generic-compiled"}},
  };
  return all;
}

struct AnyPlan {
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const cost::Pricing> pricing;
  std::optional<plan::Plan> plan;
  std::vector<std::string> traits;  ///< what it has, for tables of deviations
  std::string where;                ///< model, cluster and stack, for messages
  std::string stack;
};

/// Of which models plans are drawn. What one set draws does not change with the other, so that numbers stay comparable.
enum class Families {
  usual,
  newer  ///< short convolutions, state spaces beside attention, windows of two kinds, indexers, a module that predicts
         ///< further
};

/// Draws plans in an order that a seed fixes.
class AnyPlans {
 public:
  explicit AnyPlans(std::uint64_t seed, Families families = Families::usual) : seed_(seed), families_(families) {}
  /// The plan of an index; none depends on another.
  AnyPlan at(int index) {
    Dice dice(seed_ * 1000003 + static_cast<std::uint64_t>(index));
    for (;;)
      if (std::optional<AnyPlan> plan = draw(dice, place(dice))) return *std::move(plan);
  }
  /// Plans of one model on one cluster with one stack: at most `count`, of as many attempts.
  std::vector<AnyPlan> family(int index, int count) {
    Dice dice(seed_ * 1000003 + static_cast<std::uint64_t>(index));
    const Place at = place(dice);
    std::vector<AnyPlan> out;
    for (int i = 0; i < count; ++i)
      if (std::optional<AnyPlan> plan = draw(dice, at)) out.push_back(*std::move(plan));
    return out;
  }

 private:
  using Models = std::vector<const char*>;

  static bool one_in(Dice& dice, int n) { return dice.below(n) == 0; }
  template <class T>
  static const T& of(Dice& dice, const std::vector<T>& all) {
    return all[static_cast<std::size_t>(dice.below(static_cast<int>(all.size())))];
  }

  std::shared_ptr<const clusters::Cluster> cluster_of(const char* name, int devices) {
    auto& known = clusters_[{name, devices}];
    if (!known) known = cluster(name, devices);
    return known;
  }

  static models::Model model_of(Dice& dice, bool cpu) {
    static const Models small = {"tiny-gpt", "tiny-gpt", "tiny-bert", "tiny-moe"};
    static const Models large = {"gpt2-124m",   "gpt2-124m",     "gpt2-1558m", "llama2-7b",   "llama3-8b",
                                 "bert-large",  "falcon-7b",     "gemma2-9b",  "gpt-oss-20b", "mixtral-8x7b",
                                 "deepseek-v3", "qwen3-30b-a3b", "gptj-6b",    "olmo2-7b",    "nemotron-h-8b"};
    models::Model m = *testing::model(of(dice, cpu ? small : large));
    m.layers = std::max<std::int64_t>(dice.of({2, 4, 6, 8, 8, 12, 16, 16, 22}), m.experts.first_dense + 1);
    if (m.experts.any() && one_in(dice, 2)) m.experts.aux_coefficient = 0;  // which wants GPipe
    if (one_in(dice, 8)) m.dropout = {0.1, 0.1, 0.1};
    if (one_in(dice, 8) && m.experts.count == 0) m.activation = models::Activation::relu;
    if (one_in(dice, 8)) m.lora = {.rank = 16, .alpha = 32};
    return m;
  }

  static models::Model newer_model_of(Dice& dice, bool cpu) {
    static const Models small = {"lfm2-1.2b", "falcon-h1-0.5b"};
    static const Models large = {"lfm2-1.2b",     "lfm2-8b-a1b", "falcon-h1-0.5b", "falcon-h1-0.5b",
                                 "mimo-v2-flash", "glm-5",       "glm-5",          "deepseek-v3"};
    models::Model m = *testing::model(of(dice, cpu ? small : large));
    m.layers = std::max<std::int64_t>(dice.of({2, 4, 6, 8, 8, 12, 16, 16, 22}), m.experts.first_dense + 1);
    if (!one_in(dice, 4)) m.experts.aux_coefficient = 0;        // which wants GPipe
    if (m.indexer.any()) m.indexer.every = dice.of({1, 2, 4});  // layers that share what one of them chooses
    if (m.indexer.every > 1) m.indexer.first = dice.of({1, 2, 3});
    if (m.further.any()) m.further.modules = dice.below(2);
    if (one_in(dice, 8)) m.lora = {.rank = 16, .alpha = 32};
    return m;
  }

  struct Place {
    const Site& site;
    std::shared_ptr<const clusters::Cluster> cluster;
    std::shared_ptr<const models::Model> model;
    const char* stack;
  };
  Place place(Dice& dice) {
    const Site& site = of(dice, sites());
    const auto cluster = cluster_of(site.cluster, of(dice, site.devices));
    const bool newer = families_ == Families::newer;
    auto model =
        std::make_shared<const models::Model>(newer ? newer_model_of(dice, site.cpu) : model_of(dice, site.cpu));
    return {site, cluster, std::move(model), of(dice, site.stacks)};
  }

  std::optional<AnyPlan> draw(Dice& dice, const Place& at) {
    const auto& [site, cluster, model, stack] = at;
    const plan::PlanSpec spec = spec_of(dice, *model, *cluster, site);
    auto made = plan::make_plan(model, cluster, spec);
    if (!made) return std::nullopt;
    AnyPlan out;
    auto& pricing = prices_[{site.cluster, cluster->size(), stack}];
    if (!pricing) pricing = std::make_shared<cost::Pricing>(cluster, bare(testing::stack(stack)));
    out.pricing = pricing;
    out.model = model;
    out.stack = stack;
    out.where = fmt::format("{} of {} layers on {} {} with {}", model->name, model->layers, cluster->size(),
                            site.cluster, stack);
    out.traits = traits_of(*made, *model, site, stack);
    out.plan = *std::move(made);
    return out;
  }

  /// What a framework keeps besides, the closed form alone knows: here the schedule's buffers are compared.
  static cost::Stack bare(cost::Stack stack) {
    stack.memory = {};
    return stack;
  }

  static plan::PlanSpec spec_of(Dice& dice, const models::Model& model, const clusters::Cluster& cluster,
                                const Site& site) {
    using plan::Order;
    plan::PlanSpec s;
    s.mesh.tensor = dice.of({1, 1, 2, 2, 4, 8});
    s.mesh.pipeline = dice.of({1, 1, 2, 2, 4, 4, 8});
    s.mesh.context = dice.of({1, 1, 1, 1, 2, 4});
    s.mesh.data = std::max(1, cluster.size() / (s.mesh.tensor * s.mesh.pipeline * s.mesh.context));
    s.shape.micro_batch = dice.of({1, 1, 2, 4});
    s.shape.batch = s.mesh.data * s.shape.micro_batch * dice.of({1, 2, 4, 4, 8, 8, 12, 16, 24, 32});
    s.shape.sequence = site.cpu ? dice.of({32, 64, 128})
                                : std::min<std::int64_t>(dice.of({512, 1024, 2048, 4096}), model.max_sequence);
    s.numerics.precision = of(dice, site.precisions);
    s.states.zero_stage = s.mesh.replicas() > 1 ? dice.below(4) : 0;
    if (s.states.zero_stage > 0 && one_in(dice, 4))
      s.states.zero_group = std::max(1, s.mesh.replicas() / dice.of({2, 4}));
    s.mesh.sequence_parallel = s.mesh.tensor > 1 && one_in(dice, 2);
    s.states.overlap_gradients = one_in(dice, 2);
    s.numerics.flash = s.mesh.context > 1 || !one_in(dice, 4);
    if (s.mesh.pipeline > 1)
      order(dice, s, model);
    else if (model.experts.aux_coefficient > 0)
      s.stages.order = Order::gpipe;
    if (s.stages.order == Order::custom) s.stages.passes = passes_of(s);
    recomputation(dice, s, model);
    optimizer(dice, s);
    elsewhere(dice, s);
    fewer_bits(dice, s);
    experts(dice, s, model);
    if (one_in(dice, 10)) s.numerics.loss_chunks = dice.of({2, 4});
    if (one_in(dice, 20) && s.mesh.pipeline == 1) s.states.staleness = dice.below(3);
    if (site.cpu) s.numerics.vocab_multiple = 1;
    // Drawn last, and only where it may be: other plans stay what they were.
    if (s.recomputation.what == plan::Recompute::full && s.mesh.tensor > 1 && !s.mesh.sequence_parallel &&
        s.compression.activations == plan::ActivationEncoding::none)
      s.recomputation.partition_checkpoints = one_in(dice, 2);
    return s;
  }

  static void order(Dice& dice, plan::PlanSpec& s, const models::Model& model) {
    using plan::Order;
    s.stages.order =
        dice.of({Order::one_f_one_b, Order::one_f_one_b, Order::one_f_one_b, Order::one_f_one_b, Order::gpipe,
                 Order::gpipe, Order::zb_h1, Order::zb_h2, Order::zb_v, Order::dualpipe_v, Order::dualpipe,
                 Order::pipedream, Order::pipedream_vertical, Order::pipedream_2bw, Order::custom});
    if (model.experts.aux_coefficient > 0) s.stages.order = Order::gpipe;
    if (s.stages.folds()) s.stages.virtual_stages = 2;
    if (s.stages.order == Order::one_f_one_b && one_in(dice, 3)) s.stages.virtual_stages = dice.of({2, 2, 3, 4});
    s.stages.ends_as_layers = one_in(dice, 6);
    if (s.places() > model.layers || !one_in(dice, 6)) return;
    s.stages.layers_per_stage.assign(static_cast<std::size_t>(s.places()), 1);
    for (std::int64_t left = model.layers - s.places(); left > 0; --left)
      ++s.stages.layers_per_stage[static_cast<std::size_t>(dice.below(s.places()))];
  }

  /// A table such as a user writes: 1F1B, whose weights' gradients follow two passes late.
  static plan::PassOrder passes_of(const plan::PlanSpec& s) {
    std::vector<plan::PassOrder::Cell> rows;
    for (int stage = 0; stage < s.mesh.pipeline; ++stage) {
      std::string row;
      std::vector<std::int64_t> late;
      const auto cell = [&](char kind, std::int64_t micro_batch) {
        row += fmt::format("{}{}{} ", stage, kind, micro_batch);
      };
      for (const plan::Turn& turn : plan::turns(plan::Order::one_f_one_b, stage, s.mesh.pipeline, s.micro_batches())) {
        cell(turn.forward ? 'F' : 'I', turn.micro_batch);
        if (!turn.forward) late.push_back(turn.micro_batch);
        if (late.size() > 1) cell('W', late.front()), late.erase(late.begin());
      }
      for (const std::int64_t one : late) cell('W', one);
      row.pop_back();
      rows.push_back({row, {}});
    }
    return *plan::PassOrder::parse_rows(rows);
  }

  static void recomputation(Dice& dice, plan::PlanSpec& s, const models::Model& model) {
    using plan::Recompute;
    s.recomputation.what = dice.of({Recompute::none, Recompute::none, Recompute::full, Recompute::selective});
    if (s.recomputation.what != Recompute::none && one_in(dice, 4)) s.recomputation.layers = dice.of({0, 1, 2});
    if (s.recomputation.what != Recompute::selective || one_in(dice, 2)) return;
    for (const plan::Module one : {plan::Module::core, plan::Module::norms, plan::Module::up_projections,
                                   plan::Module::activations, plan::Module::mlp, plan::Module::experts}) {
      const bool there = one == plan::Module::up_projections ? model.latent.any()
                         : one == plan::Module::experts      ? model.experts.any()
                                                             : true;
      if (there && one_in(dice, 2)) s.recomputation.modules = s.recomputation.modules.with(one);
    }
  }

  static void optimizer(Dice& dice, plan::PlanSpec& s) {
    using enum plan::OptimizerKind;
    s.states.optimizer =
        dice.of({adamw, adamw, adamw, adamw, adamw, adamw, adam, sgd, lamb, adafactor, adamw_8bit, lion, muon});
    s.states.momentum = s.states.optimizer != sgd || one_in(dice, 2);
    if (s.numerics.precision == models::DType::bf16 && one_in(dice, 10))
      s.numerics.rounding = plan::Rounding::stochastic;
  }

  static void elsewhere(Dice& dice, plan::PlanSpec& s) {
    using plan::Space;
    if (!one_in(dice, 6)) return;
    if (one_in(dice, 2)) s.offload.activations = Space::host;
    if (one_in(dice, 2)) s.offload.optimizer = dice.of({Space::host, Space::nvme});
    if (one_in(dice, 3)) s.offload.parameters = dice.of({Space::host, Space::nvme});
    s.offload.prefetch = dice.of({1, 2});
  }

  static void fewer_bits(Dice& dice, plan::PlanSpec& s) {
    using enum plan::GradientCompression;
    using Encoding = plan::ActivationEncoding;
    if (s.mesh.replicas() > 1 && one_in(dice, 4)) s.compression.gradients = dice.of({bf16, fp16, powersgd, powersgd});
    const bool halves = s.compression.gradients == bf16 || s.compression.gradients == fp16;
    if (halves && one_in(dice, 2)) s.compression.group = std::max(1, s.mesh.replicas() / dice.of({2, 4}));
    if (s.compression.gradients == powersgd && one_in(dice, 2)) s.compression.start = 100;
    if (one_in(dice, 8))
      s.compression.activations = dice.of({Encoding::fp16, Encoding::fp10, Encoding::fp8, Encoding::lossless});
  }

  static void experts(Dice& dice, plan::PlanSpec& s, const models::Model& model) {
    using enum models::TokenCodec;
    if (!model.experts.any()) return;
    s.mesh.expert = dice.of({1, 2, 4, 8});
    if (s.mesh.sequence_parallel || s.mesh.tensor == 1) s.mesh.expert_tensor = dice.of({0, 0, 1, 2, 4});
    if (one_in(dice, 3)) s.tokens.imbalance = 1.3;
    if (s.mesh.expert > 1 && one_in(dice, 4))
      s.tokens.dispatch = dice.of({none, bf16, fp8}), s.tokens.combine = dice.of({none, bf16});
  }

  static std::vector<std::string> traits_of(const plan::Plan& plan, const models::Model& model, const Site& site,
                                            const char* stack) {
    const plan::PlanSpec& s = plan.spec();
    std::vector<std::string> out = {"all"};
    const auto note = [&](bool has, std::string name) {
      if (has) out.push_back(std::move(name));
    };
    note(true, std::string("cluster ") + site.cluster);
    note(true, std::string("stack ") + stack);
    note(true, "model " + model.name);
    note(true, std::string("precision ") + models::name_of(s.numerics.precision));
    note(s.mesh.pipeline > 1, std::string("order ") + plan::name_of(s.stages.order) +
                                  (s.stages.folds() || s.stages.virtual_stages == 1 ? "" : ", interleaved"));
    note(s.mesh.pipeline == 1, "one stage");
    note(s.stages.ends_as_layers, "ends as layers");
    note(true, fmt::format("ZeRO {}", s.mesh.replicas() > 1 ? s.states.zero_stage : 0));
    note(s.states.zero_group > 0 && s.sub_groups() > 1, "sub-groups");
    note(s.mesh.tensor > 1, s.mesh.sequence_parallel ? "tensor, sequence parallel" : "tensor");
    note(s.mesh.context > 1, "context");
    note(s.recompute_of(0).what() != plan::Recompute::none, std::string("recompute ") +
                                                                plan::name_of(s.recomputation.what) +
                                                                (s.recomputation.modules.empty() ? "" : ", modules"));
    note(s.recomputation.layers.has_value(), "recompute, some layers");
    note(s.recomputation.partition_checkpoints, "checkpoints in parts");
    note(s.reduces_early(), "reduced within backward");
    note(s.offload.activations != plan::Space::device, "offload of activations");
    note(s.offload.optimizer != plan::Space::device, "offload of the optimizer");
    note(s.offload.parameters != plan::Space::device, "offload of parameters");
    note(s.compresses(), std::string("gradients ") + plan::name_of(s.compression.gradients));
    note(s.exchanges_by_node(), "gradients by node");
    note(s.plain_steps() > 0, "PowerSGD, late");
    note(s.compression.activations != plan::ActivationEncoding::none,
         std::string("activations ") + plan::name_of(s.compression.activations));
    note(model.experts.any(), "experts");
    note(s.mesh.expert > 1, "expert parallel");
    note(s.mesh.routes_own_rows(), "experts over other ranks");
    note(s.tokens.imbalance > 1, "experts, uneven");
    note(model.lora.any(), "adapters");
    note(model.indexer.every > 1, "indexer that layers share");
    note(model.further.any(), "further prediction");
    note(model.dropout.any(), "dropout");
    note(true, std::string("optimizer ") + plan::traits_of(s.states.optimizer).name);
    note(s.numerics.loss_chunks > 1, "loss in chunks");
    note(s.states.has_server(), "parameter server");
    return out;
  }

  std::uint64_t seed_;
  Families families_;
  std::map<std::pair<std::string, int>, std::shared_ptr<const clusters::Cluster>> clusters_;
  std::map<std::tuple<std::string, int, std::string>, std::shared_ptr<const cost::Pricing>> prices_;
};

}  // namespace orrery::sim::testing
