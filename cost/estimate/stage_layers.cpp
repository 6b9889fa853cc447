/// Finds a plan's layers.
#include "cost/estimate/stage_layers.h"

#include <algorithm>
#include <iterator>

#include "cost/estimate/block_kinds.h"
#include "cost/estimate/fold.h"
#include "cost/estimate/pass_lives.h"
#include "plan/lower/buckets.h"

namespace orrery::cost {

using models::LayerKind;

namespace {

/// A search tries ways of recomputation around ways to split experts, of which there are up to ten, in three kinds of
/// layer.
constexpr std::size_t kPrograms = 64;

/// A head has a block of its own for each module that predicts further.
bool may_have_experts(const models::Model& model, LayerKind kind, const models::BlockVariant& block) {
  if (kind == LayerKind::head) return model.experts.any() && model.further.any();
  return kind == LayerKind::block && block.parts.feed == models::Feed::experts;
}
/// Layers without experts are the same however these are divided.
void take_no_experts(models::ExpandOptions& options) {
  const models::ExpandOptions none;
  options.expert = options.expert_ways = 1;
  options.expert_bound = none.expert_bound, options.imbalance = none.imbalance;
  options.dispatch = none.dispatch, options.combine = none.combine;
}

}  // namespace

/// Place of a stage's first rank in its node, where the node's devices are not all linked alike.
int StageLayers::first_in_node(const plan::Plan& plan, plan::StageId stage) const {
  using enum clusters::NodeFabric;
  const clusters::NodeFabric fabric = pricing_.cluster().shape ? pricing_.cluster().shape->node.fabric : nvswitch;
  if (links_ == nullptr || fabric == nvswitch || fabric == shared_memory || fabric == torus) return 0;
  return plan.rank(stage, 0, 0) % std::max(1, pricing_.cluster().devices_per_node);
}

const LayerCosts& StageLayers::one(LayerKind kind, const plan::PlanSpec& spec, const plan::Repeats& repeats,
                                   std::int64_t index, int first, Asked asked) {
  const models::BlockVariant block = kind == LayerKind::block ? model_.variant(index) : models::BlockVariant{};
  if (of_ != spec) of_ = spec, known_.clear();
  for (const Known& k : known_)
    if (k.kind == kind && k.repeats == repeats && k.first == first && k.block == block && k.asked == asked)
      return *k.costs;
  models::ExpandOptions options = plan::expand_options(spec);
  if (!may_have_experts(model_, kind, block)) take_no_experts(options);
  const LayerCosts* costs = nullptr;
  if (asked == Asked::parameters) {
    const LayerCosts*& known = parameters_[parameter_key(kind, block, options, spec)];
    if (known == nullptr) known = &one(kind, spec, repeats, index, 0, Asked::sized);
    costs = known;
  } else {
    costs = &expanded(kind, block, options, spec, repeats, index, first, asked == Asked::priced);
  }
  known_.push_back({kind, repeats, block, first, asked, costs});
  return *costs;
}

const LayerCosts& StageLayers::expanded(LayerKind kind, const models::BlockVariant& block,
                                        const models::ExpandOptions& options, const plan::PlanSpec& spec,
                                        const plan::Repeats& repeats, std::int64_t index, int first, bool priced) {
  // Groups within a node share its links with no other node's.
  const int per_node = std::max(1, pricing_.cluster().devices_per_node);
  const bool within =
      spec.mesh.tensor * spec.mesh.context <= per_node && spec.mesh.expert_ways() * spec.mesh.expert <= per_node;
  const int ranks = within ? std::min(spec.mesh.ranks_per_stage(), per_node) : spec.mesh.ranks_per_stage();
  const plan::MeshAxes axes = plan::axes_of(pricing_.cluster(), spec);
  const auto groups = [&] {
    return LayerGroups{strided(first, 1, spec.mesh.tensor),
                       strided(first, spec.mesh.tensor, spec.mesh.context),
                       strided(first, spec.mesh.expert_ways(), spec.mesh.expert),
                       strided(first, 1, spec.mesh.expert_ways()),
                       {&pricing_, links_, ranks, axes}};
  };
  const ProgramKey program = program_key(kind, block, options);
  const LayerCosts& alone = store_->of(layer_key(program, spec, repeats), [&] {
    const LayerChoices choices{repeats, spec.stages.splits_backward(), spec.states.optimizer, spec.compression,
                               spec.recomputation.partition_checkpoints};
    auto recent = std::ranges::find(programs_, program, &Program::key);
    if (recent == programs_.end()) {
      if (programs_.size() == kPrograms) programs_.pop_front();
      programs_.push_back({program, models::expand(model_, kind, index, options)});
      recent = std::prev(programs_.end());
    }
    return layer_costs(recent->layer, choices, pricing_, groups());
  });
  if (!priced) return alone;
  return store_->of(alone, {links_ != nullptr ? ranks : 0, first, axes},
                    [&] { return with_messages(alone, pricing_, groups()); });
}

std::vector<LayerRun> StageLayers::chunk(const plan::Plan& plan, const plan::PlanSpec& spec, plan::StageId stage,
                                         int chunk, Asked asked) {
  std::vector<LayerRun> out;
  const int place = asked == Asked::priced ? first_in_node(plan, stage) : 0;
  const auto add = [&](LayerKind kind, const plan::Repeats& repeats, std::int64_t index, std::int64_t count) {
    out.push_back({&one(kind, spec, repeats, index, place, asked), count});
  };
  const auto end = [&](LayerKind kind) { add(kind, {}, 0, 1); };
  if (spec.begins(stage, chunk)) end(LayerKind::embedding);
  const std::int64_t blocks = plan.chunk_layers(stage, chunk);
  const std::int64_t again = std::min(blocks, spec.recomputation.layers.value_or(blocks));
  const std::int64_t first = plan.first_layer(stage, chunk);
  const bool operators = pricing_.calibration().get("stack.selective_operators", 0) != 0;
  // Messages overlap with the layers around them, so that time depends on the order of unequal layers, and so does
  // memory that outlives its layer.
  const auto blocks_of = asked == Asked::priced ? block_runs : outlives_layers(spec) ? block_parts : block_kinds;
  for (const BlockKind& kind : blocks_of(model_, first, again))
    add(LayerKind::block, spec.recompute_of(0, operators), kind.index, kind.count);
  for (const BlockKind& kind : blocks_of(model_, first + again, blocks - again))
    add(LayerKind::block, {}, kind.index, kind.count);
  if (spec.ends(stage, chunk)) end(LayerKind::head);
  return out;
}

std::vector<std::vector<LayerRun>> StageLayers::chunks(const plan::Plan& plan, const plan::PlanSpec& sized,
                                                       plan::StageId stage, Asked asked) {
  std::vector<std::vector<LayerRun>> out;
  for (int c = 0; c < sized.stages.virtual_stages; ++c) out.push_back(chunk(plan, sized, stage, c, asked));
  return out;
}

std::vector<LayerRun> StageLayers::of(const plan::Plan& plan, plan::StageId stage, Asked asked) {
  std::vector<LayerRun> out;
  for (int c = 0; c < plan.spec().stages.virtual_stages; ++c)
    for (const LayerRun& run : chunk(plan, plan.spec(), stage, c, asked)) out.push_back(run);
  return out;
}

}  // namespace orrery::cost
