// Rules of recommendation models.
#include "plan/spec/recommender_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/units.h"
#include "models/layers/mixers.h"
#include "models/operators/operators.h"
#include "plan/spec/expert_rules.h"
#include "plan/spec/rules.h"
#include "plan/spec/server_rules.h"

namespace orrery::plan {
namespace {

class TableRules {
 public:
  TableRules(const models::Recommender& model, const clusters::Cluster& cluster, const PlanSpec& spec)
      : model_(model), cluster_(cluster), spec_(spec) {}

  base::Diagnostics broken() {
    const bool positive = spec_.mesh.data > 0 && spec_.shape.micro_batch > 0 && spec_.shape.batch > 0 &&
                          spec_.mesh.tensor > 0 && spec_.mesh.pipeline > 0 && spec_.mesh.context > 0 &&
                          spec_.mesh.expert > 0 && spec_.stages.virtual_stages > 0;
    rule(positive, "P01", "every degree, the micro-batch and the batch must be at least 1");
    if (!positive) return std::move(found_);
    mesh();
    unknown();
    rule(spec_.numerics.precision != models::DType::fp8 && spec_.numerics.precision != models::DType::fp4, "P133",
         "recommendation models are not computed in fp8 or fp4");
    const OptimizerTraits& optimizer = traits_of(spec_.states.optimizer);
    const bool moves_all = optimizer.momentum_optional && spec_.states.momentum;
    rule(optimizer.tables && !moves_all, "P134",
         optimizer.tables ? "momentum would move rows that no sample has looked up, so tables cannot have any"
                          : fmt::format("{} cannot update tables", optimizer.name));
    placement();
    server();
    return std::move(found_);
  }

 private:
  void rule(bool holds, RuleCode code, const std::string& message, const std::string& help = {}) {
    if (!holds) found_.push_back(code.broken(message, help));
  }

  void mesh() {
    rule(spec_.mesh.tensor == 1 && spec_.mesh.pipeline == 1 && spec_.mesh.context == 1 && spec_.mesh.expert == 1 &&
             spec_.stages.virtual_stages == 1,
         "P130",
         "a recommendation model has its MLPs on every rank and its tables distributed, so only `data` applies");
    rule(spec_.mesh.ranks() == cluster_.size(), "P02",
         fmt::format("data {} makes {}, but the cluster has {}", spec_.mesh.data,
                     base::count_of(spec_.mesh.ranks(), "rank"), base::count_of(cluster_.size(), "device")),
         "change data, or the number of devices");
    rule(spec_.shape.batch % spec_.mesh.data == 0, "P09",
         fmt::format("data {} does not divide the batch of {}", spec_.mesh.data, spec_.shape.batch),
         "choose another batch");
    rule(spec_.shape.batch % spec_.mesh.data != 0 || spec_.shape.micro_batch == spec_.shape.batch / spec_.mesh.data,
         "P131",
         fmt::format("a recommendation model takes all its samples at once, but micro-batch is {} of {} per rank",
                     spec_.shape.micro_batch, spec_.shape.batch / spec_.mesh.data),
         fmt::format("micro_batch: {}, or leave it out", spec_.shape.batch / spec_.mesh.data));
    rule(spec_.shape.sequence == 1, "P131", "a sample is not a sequence", "leave `sequence` out");
  }

  void unknown() {
    const PlanSpec usual;
    const bool whole =
        spec_.states.zero_stage == 0 || spec_.states.has_server();  // a server's shards are those of ZeRO 1
    const bool plain = whole && spec_.states.zero_group == 0 && spec_.recomputation.what == Recompute::none &&
                       !spec_.recomputation.layers && !spec_.recomputation.partition_checkpoints &&
                       !spec_.mesh.sequence_parallel && !spec_.offload.any() &&
                       spec_.compression == usual.compression && spec_.numerics.loss_chunks == 1 &&
                       spec_.stages.passes.empty() &&
                       (spec_.stages.order == usual.stages.order || spec_.stages.order == Order::gpipe) &&
                       spec_.numerics.rounding == Rounding::nearest;
    rule(plain, "P132",
         "ZeRO, recomputation, offload, compressed gradients and orders of a pipeline are of transformers: a "
         "recommendation model has none of them yet");
  }

  void server() {
    base::Diagnostics broken = refused_by_server(spec_);
    found_.insert(found_.end(), broken.begin(), broken.end());
    const std::vector<TableTier>& tiers = spec_.embedding.tiers.tiers();
    const bool far =
        std::any_of(tiers.begin(), tiers.end(), [](const TableTier& t) { return t.space != Space::device; });
    rule(!spec_.states.has_server() || !far, "P83",
         "a cache of tables outside the device's memory keeps rows for one step, and a parameter server's gradients in "
         "flight need theirs for several",
         "tiers: device, or no staleness");
  }

  void placement() {
    const std::vector<TablePlace>& places = spec_.embedding.placement.places();
    if (spec_.embedding.placement.empty()) return;
    rule(places.size() == model_.tables.size(), "P135",
         fmt::format("a placement of {} for a model with {}", base::count_of(std::ssize(places), "table"),
                     model_.tables.size()),
         "give a place for each table, or leave `placement` out");
    if (places.size() != model_.tables.size()) return;
    for (std::size_t t = 0; t < places.size(); ++t) {
      const TablePlace& place = places[t];
      if (place.replicated) continue;
      const auto table = [&](const std::string& what) { return fmt::format("table {}: {}", t, what); };
      const std::set<int> ranks(place.ranks.begin(), place.ranks.end());
      rule(ranks.size() == place.ranks.size() && !ranks.empty() && *ranks.rbegin() < spec_.mesh.data, "P135",
           table(fmt::format("{}: parts must be on different ranks below {}", text_of(place), spec_.mesh.data)),
           "name each rank once");
      rule(model_.embedding_dim % place.columns == 0, "P135",
           table(fmt::format("{} parts of the columns do not divide embedding_dim {}", place.columns,
                             model_.embedding_dim)),
           "use a number of parts that divides it");
      rule(place.ranks.empty() || place.row_parts() <= model_.tables[t].rows, "P135",
           table(fmt::format("{} parts of {} rows", place.row_parts(), model_.tables[t].rows)),
           "use no more parts than rows");
    }
  }

  const models::Recommender& model_;
  const clusters::Cluster& cluster_;
  const PlanSpec& spec_;
  base::Diagnostics found_;
};

}  // namespace

base::Diagnostics refused_tables(const models::Recommender& model, const clusters::Cluster& cluster,
                                 const PlanSpec& spec) {
  return TableRules(model, cluster, spec).broken();
}

Optimizer usual_table_optimizer() {
  return usual(OptimizerKind::rowwise_adagrad);
}

base::Diagnostics refused_training(const Training& training) {
  base::Diagnostics found;
  const auto none = [&](bool given, const char* key, const char* why) {
    if (given)
      found.push_back({base::Severity::error,
                       "E0662",
                       {},
                       fmt::format("`{}` in a job for a recommendation model: {}", key, why),
                       fmt::format("leave {} out", key),
                       {}});
  };
  none(training.clip_norm.has_value(), "clip_norm",
       "rows move where their gradient is summed, before the norm is known");
  none(training.optimizer.weight_decay != 0, "weight_decay", "rows that no sample looks up do not move");
  none(training.dropout.has_value(), "dropout", "it has none");
  none(training.lora.has_value(), "lora", "adapters are for a transformer's blocks");
  none(!training.tokenizer.empty(), "tokenizer", "its data is not text");
  return found;
}

base::Diagnostics refused_data(const models::Model& model, const Training& training) {
  if (model.recommender || !training.generated) return {};
  return {{base::Severity::error,
           "E0664",
           {},
           fmt::format("`data: {{generate: ...}}` draws clicks for a recommendation model, but {} reads tokens",
                       model.name),
           "name a file or a folder of text",
           {}}};
}

base::Diagnostics refused_resume(const PlanSpec& spec) {
  const std::vector<TablePlace>& places = spec.embedding.placement.places();
  const bool sharded = std::any_of(places.begin(), places.end(), [](const TablePlace& p) { return !p.replicated; });
  if (spec.states.staleness.value_or(0) == 0 || !sharded) return {};
  return {
      {base::Severity::error,
       "E0670",
       {},
       fmt::format("a run with a parameter server of staleness {} is not resumed where ranks share tables: steps in "
                   "flight looked up older rows than its checkpoints have",
                   *spec.states.staleness),
       "staleness: 0 or replicated tables resume; or begin anew from the weights",
       {}}};
}

namespace {

/// What of a model only CPU ranks compute so far (exec/cuda/refused.cpp), with its verb; empty: nothing.
std::string on_cpu_alone(const models::Model& model) {
  if (model.recommender) return {};
  if (!model.norm_weight) return "norms without weights are";
  if (model.activation == models::Activation::xielu) return "xIELU is";
  for (const models::MixerTraits* one : models::mixers_of(model))
    if (models::traits_of(one->core).run_by == models::RunBy::cpu) return fmt::format("{} are", one->titles);
  if (model.gate_scale != 1) return "scales of an MLP's gate are";
  if (std::any_of(model.skip_scales.begin(), model.skip_scales.end(), [](double one) { return one != 1; }))
    return "scales of what is added to are";
  if (model.attention_gate) return "gates of attention's output are";
  if (model.attention_sinks) return "attention sinks are";
  if (model.value_dim > 0) return "values of a width of their own are";
  if (model.value_norm) return "norms of values are";
  if (model.experts.own_router_norm) return "a router's trained numbers of experts are";
  return {};
}

}  // namespace

base::Diagnostics refused_execution(const models::Model& model, const clusters::Cluster& cluster,
                                    const PlanSpec& spec) {
  if (spec.numerics.precision == models::DType::fp4)
    return {{base::Severity::error,
             "E0669",
             {},
             "products in fp4 are predicted, and not executed",
             "precision: bf16, or fp8 on GPUs and CPU ranks",
             {}}};
  if (model.streams.any())
    return {{base::Severity::error,
             "E0669",
             {},
             fmt::format("{}'s several residual streams are predicted, and not executed", model.name),
             "without `streams` the same layers have one",
             {}}};
  if (model.experts.any() && model.experts.scores == models::Scores::sparse_mixer)
    return {
        {base::Severity::error,
         "E0669",
         {},
         fmt::format("{}'s routers draw experts while they train (scores: sparse_mixer), which is predicted, and not "
                     "executed",
                     model.name),
         "experts: {scores: softmax_chosen} trains the same layers with a softmax over the chosen experts",
         {}}};
  if (const models::Experts& e = model.experts;
      e.any() && (e.scores == models::Scores::sqrt_softplus || e.hashed > 0 || e.limit > 0))
    return {
        {base::Severity::error,
         "E0669",
         {},
         fmt::format("{}'s experts are scored by roots of softplus, chosen by ids, or limited, which is predicted, and "
                     "not executed",
                     model.name),
         "experts: {scores: sigmoid, hashed: 0, limit: 0} trains the same sizes",
         {}}};
  if (model.indexer.any())
    return {
        {base::Severity::error,
         "E0669",
         {},
         fmt::format("{}'s attention reads only tokens that an indexer chooses, which is predicted, and not executed",
                     model.name),
         "without `indexer` the same layers train with attention to all tokens",
         {}}};
  if (model.layer_inputs.any() || model.shared_keys.any())
    return {{base::Severity::error,
             "E0669",
             {},
             fmt::format("{}'s {}, which is predicted, and not executed", model.name,
                         model.layer_inputs.any() ? "layers have inputs of their own"
                                                  : "last layers read keys and values of others"),
             "without `layer_inputs` and `shared_keys` the same layers train",
             {}}};
  for (const models::MixerTraits* one : models::mixers_of(model))
    if (models::traits_of(one->core).run_by == models::RunBy::nothing)
      return {{base::Severity::error,
               "E0669",
               {},
               fmt::format("{}'s {} are predicted, and not executed", model.name, one->titles),
               "a model without such blocks trains",
               {}}};
  if (const std::string alone = on_cpu_alone(model);
      !alone.empty() && cluster.device().kind != clusters::DeviceKind::cpu)
    return {{base::Severity::error,
             "E0669",
             {},
             fmt::format("{} predicted on GPUs, and executed on CPU ranks", alone),
             "a cluster of CPU ranks, such as localhost-2",
             {}}};
  if (!model.recommender) return refused_balancing(model, spec);
  if (spec.embedding.stored != PooledType::fp32)
    return {{base::Severity::error,
             "E0669",
             {},
             fmt::format("tables in {} are predicted, and executed in fp32 alone", name_of(spec.embedding.stored)),
             "embedding: {stored: fp32}",
             {}}};
  if (spec.states.has_server() && cluster.device().kind != clusters::DeviceKind::cpu)
    return {{base::Severity::error,
             "E0669",
             {},
             "a recommendation model's parameter server is predicted on GPUs, and executed on CPU ranks",
             "leave `staleness` out",
             {}}};
  if (!spec.embedding.tiers.empty() && cluster.device().kind != clusters::DeviceKind::cpu)
    return {{base::Severity::error,
             "E0669",
             {},
             "tables in the host's memory or on NVMe (embedding.tiers) can be predicted on GPUs, but are executed on "
             "CPU ranks only",
             "tiers: device, if the tables fit there",
             {}}};
  if (spec.numerics.precision == models::DType::fp32) return {};
  return {{base::Severity::error,
           "E0669",
           {},
           fmt::format("recommendation models can be predicted in {}, but are executed in fp32 only",
                       models::name_of(spec.numerics.precision)),
           "precision: fp32; pooled vectors travel in fewer bits with embedding: {forward: fp16}",
           {}}};
}

base::Diagnostics refused_without_tables(const PlanSpec& spec) {
  base::Diagnostics found;
  const auto rule = [&](bool holds, RuleCode code, const std::string& message) {
    if (!holds) found.push_back(code.broken(message));
  };
  rule(spec.embedding == Embedding{}, "P136", "places of tables for a model that has none");
  const OptimizerTraits& optimizer = traits_of(spec.states.optimizer);
  rule(!optimizer.tables_only, "P137", fmt::format("{} for a model without tables", optimizer.name));
  return found;
}

}  // namespace orrery::plan
