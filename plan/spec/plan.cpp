// make_plan: the only way to a Plan. Every rule that a split breaks is one diagnostic with a stable code.
#include "plan/spec/plan.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/ensure.h"
#include "base/units.h"
#include "plan/spec/expert_rules.h"
#include "plan/spec/plan_rules.h"
#include "plan/spec/recommender_rules.h"
#include "plan/spec/server_rules.h"
#include "plan/spec/table_tiers.h"

namespace orrery::plan {

std::int64_t Plan::first_layer(StageId stage, int chunk) const {
  return std::accumulate(spec_.stages.layers_per_stage.begin(),
                         spec_.stages.layers_per_stage.begin() + spec_.place_of(stage, chunk) % spec_.places(),
                         std::int64_t{0});
}

std::int64_t Plan::layers(StageId stage) const {
  std::int64_t sum = 0;
  for (int chunk = 0; chunk < spec_.stages.virtual_stages; ++chunk) sum += chunk_layers(stage, chunk);
  return sum;
}

namespace {

// In the order of their diagnostics.
constexpr void (*kRules[])(const Proposed&, BrokenRules&) = {mesh_rules,
                                                             tensor_rules,
                                                             stage_rules,
                                                             batch_rules,
                                                             zero_rules,
                                                             mirrored_rules,
                                                             asynchronous_rules,
                                                             context_rules,
                                                             offload_rules,
                                                             rounding_rules,
                                                             whole_matrix_rules,
                                                             adapter_rules,
                                                             masked_rules,
                                                             distance_rules,
                                                             gradient_compression_rules,
                                                             activation_encoding_rules,
                                                             loss_chunk_rules};

base::Diagnostics broken_rules(const Proposed& p) {
  BrokenRules broken;
  const PlanSpec& s = p.spec;
  const bool positive = s.mesh.data > 0 && s.mesh.tensor > 0 && s.mesh.pipeline > 0 && s.mesh.context > 0 &&
                        s.mesh.expert > 0 && s.stages.virtual_stages > 0 && s.shape.micro_batch > 0 &&
                        s.shape.batch > 0 && s.shape.sequence > 0;
  broken.rule(positive, "P01", "every degree, the micro-batch, the batch and the sequence must be at least 1");
  if (!positive) return broken.take();
  for (const auto rules : kRules) rules(p, broken);
  base::Diagnostics found = broken.take();
  for (const base::Diagnostics& more : {refused_experts(p.model, s), refused_by_server(s), refused_without_tables(s)})
    found.insert(found.end(), more.begin(), more.end());
  return found;
}

// As even as possible. The first and last stages also hold embedding and head, so remaining blocks go to the middle
// from the front, and the ends never have more than the others. Where the ends count as layers, the first stage has
// one block less for the embedding and the last one less for the head (BLOOM: 70 layers on 12 stages as 5, 6 ... 6, 5);
// with layers + 2 stages the ends have no block.
std::vector<std::int64_t> even_split(std::int64_t layers, int stages, bool ends_as_layers) {
  if (ends_as_layers && stages > 1) {
    std::vector<std::int64_t> split = even_split(layers + kEnds, stages, false);
    --split.front();
    --split.back();
    return split;
  }
  std::vector<std::int64_t> split(static_cast<std::size_t>(stages), layers / stages);
  std::int64_t rest = layers % stages;
  const int first = stages > 2 && rest <= stages - 2 ? 1 : 0;
  for (int s = first; rest > 0; ++s, --rest) ++split[static_cast<std::size_t>(s)];
  return split;
}

}  // namespace

base::Result<Plan> make_plan(std::shared_ptr<const models::Model> model,
                             std::shared_ptr<const clusters::Cluster> cluster, PlanSpec spec) {
  ENSURE(model && cluster, "a plan needs a model and a cluster");
  if (spec.states.has_server()) {
    if (spec.states.zero_stage == 0 && spec.mesh.data > 1)
      spec.states.zero_stage = 1;           // the server is sharded as ZeRO 1
    spec.states.overlap_gradients = false;  // workers push them after the passes of another step
  }
  const auto& tables = model->recommender;
  base::Diagnostics broken = tables ? refused_tables(*tables, *cluster, spec) : broken_rules({*model, *cluster, spec});
  if (!broken.empty()) return base::fail(std::move(broken));
  if (tables) broken = place_and_settle(*tables, *cluster, spec);
  if (!broken.empty()) return base::fail(std::move(broken));
  if (spec.stages.layers_per_stage.empty())
    spec.stages.layers_per_stage = even_split(model->layers, spec.places(), spec.stages.ends_as_layers);
  Plan plan;
  plan.model_ = std::move(model);
  plan.cluster_ = std::move(cluster);
  plan.spec_ = std::move(spec);
  return plan;
}

std::string describe(const PlanSpec& spec) {
  std::string text;
  const auto degree = [&](const char* name, int value) {
    if (value == 1) return;
    if (!text.empty()) text += " x ";
    text += fmt::format("{} {}", name, value);
  };
  degree("data", spec.mesh.data);
  degree("tensor", spec.mesh.tensor);
  degree("pipeline", spec.mesh.pipeline);
  degree("context", spec.mesh.context);
  degree("expert", spec.mesh.expert);
  if (text.empty()) text = "serial";
  if (spec.mesh.routes_own_rows())
    text += fmt::format(", each expert over {}", base::count_of(spec.mesh.expert_ways(), "rank"));
  if (spec.mesh.pipeline > 1) text += fmt::format(", {}", name_of(spec.stages.order));
  if (spec.stages.virtual_stages > 1 && !spec.stages.folds())
    text += fmt::format(" of {} chunks", spec.stages.virtual_stages);
  text += fmt::format(", micro-batch {}", spec.shape.micro_batch);
  if (spec.states.zero_stage > 0) text += fmt::format(", ZeRO {}", spec.states.zero_stage);
  if (spec.states.zero_group > 0) text += fmt::format(" over {}", spec.states.zero_group);
  if (spec.states.staleness) text += fmt::format(", parameter server of staleness {}", *spec.states.staleness);
  if (spec.mesh.sequence_parallel) text += ", sequence-parallel";
  if (spec.recomputation.what != Recompute::none)
    text += fmt::format(", recompute {}", name_of(spec.recomputation.what));
  if (!spec.recomputation.modules.empty())
    text += fmt::format(" ({})", fmt::join(spec.recomputation.modules.rows(), ", "));
  if (spec.recomputation.layers)
    text += fmt::format(" of {} layers a {}", *spec.recomputation.layers,
                        spec.stages.virtual_stages > 1 ? "chunk" : "stage");
  if (spec.recomputation.partition_checkpoints) text += ", checkpoints partitioned";
  if (spec.reduces_early()) text += ", gradients overlapped";
  const auto leaves = [&](const char* what, Space space) {
    if (space != Space::device) text += fmt::format(", {} on {}", what, name_of(space));
  };
  leaves("activations", spec.offload.activations);
  leaves("optimizer", spec.offload.optimizer);
  leaves("parameters", spec.offload.parameters);
  if (spec.low_rank())
    text += fmt::format(", PowerSGD of rank {}{}", spec.compression.rank,
                        spec.plain_steps() > 0 ? fmt::format(" from step {} on", spec.plain_steps() + 1) : "");
  else if (spec.compresses())
    text += fmt::format(", gradients in {}{}", name_of(spec.compression.gradients),
                        spec.compression.group > 0 ? fmt::format(" by groups of {}", spec.compression.group) : "");
  if (spec.compression.activations != ActivationEncoding::none)
    text += spec.compression.activations == ActivationEncoding::lossless
                ? ", activations without zeros"
                : fmt::format(", activations in {}", name_of(spec.compression.activations));
  const auto travels = [&](const char* what, PooledType type) {
    if (type != PooledType::fp32) text += fmt::format(", {} in {}", what, name_of(type));
  };
  if (spec.embedding.sharding != TableSharding::automatic)
    text += fmt::format(", tables {}", name_of(spec.embedding.sharding));
  travels("pooled vectors", spec.embedding.forward);
  travels("their gradients", spec.embedding.backward);
  if (spec.tokens.encoded())
    text += fmt::format(", tokens to experts in {}, back in {}", name_of(spec.tokens.dispatch),
                        name_of(spec.tokens.combine));
  if (spec.embedding.stored != PooledType::fp32) text += fmt::format(", tables in {}", name_of(spec.embedding.stored));
  for (const Space space : {Space::host, Space::nvme}) {
    const auto& tiers = spec.embedding.tiers.tiers();
    const auto there = std::count_if(tiers.begin(), tiers.end(), [&](const TableTier& t) { return t.space == space; });
    if (there > 0) text += fmt::format(", {} of {} tables on {}", there, tiers.size(), name_of(space));
  }
  if (spec.numerics.loss_chunks > 1) text += fmt::format(", loss in {} chunks", spec.numerics.loss_chunks);
  if (spec.states.optimizer != States{}.optimizer) text += fmt::format(", {}", name_of(spec.states.optimizer));
  if (spec.numerics.rounding != Rounding::nearest)
    text += fmt::format(", {} rounding", name_of(spec.numerics.rounding));
  return text;
}

}  // namespace orrery::plan
