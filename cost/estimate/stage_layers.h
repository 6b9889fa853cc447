#pragma once
/// The layers of a plan's stages, each made once for all plans that share it. Private to cost/estimate/.
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cost/estimate/layer_store.h"
#include "cost/estimate/memory.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// What is asked of layers. The less it depends on, the more plans share it.
enum class Asked {
  parameters,  ///< sizes of parameters; whatever else it says may be another plan's
  sized,       ///< and of all else, and lives
  priced       ///< and seconds, which depend on how ranks are linked
};

class StageLayers {
 public:
  /// `links`: null if none are shared. What is passed must outlive this.
  StageLayers(const models::Model& model, const Pricing& pricing, SharedLinks* links, std::shared_ptr<LayerStore> store)
      : model_(model), pricing_(pricing), links_(links), store_(std::move(store)) {}

  /// `first`: the lowest rank of the groups.
  const LayerCosts& one(models::LayerKind kind, const plan::PlanSpec& spec, const plan::Repeats& repeats = {},
                        std::int64_t index = 0, int first = 0, Asked asked = Asked::priced);
  /// In forward order, by virtual stage, and all in a row. References in them stay valid as long as the store.
  std::vector<std::vector<LayerRun>> chunks(const plan::Plan& plan, plan::StageId stage, Asked asked) {
    return chunks(plan, plan.spec(), stage, asked);
  }
  /// The same layers as a plan has them that differs in the size of its micro-batches alone.
  std::vector<std::vector<LayerRun>> chunks(const plan::Plan& plan, const plan::PlanSpec& sized, plan::StageId stage,
                                            Asked asked);
  std::vector<LayerRun> of(const plan::Plan& plan, plan::StageId stage, Asked asked = Asked::priced);

 private:
  /// A layer of the plan that was asked for last.
  struct Known {
    models::LayerKind kind{};
    plan::Repeats repeats;
    models::BlockVariant block;
    int first = 0;
    Asked asked = Asked::priced;
    const LayerCosts* costs = nullptr;
  };
  /// A layer's program. The latest ones are kept: a search goes through plans that differ in what else they do with it.
  struct Program {
    ProgramKey key;
    models::LayerProgram layer;
  };

  const LayerCosts& expanded(models::LayerKind kind, const models::BlockVariant& block,
                             const models::ExpandOptions& options, const plan::PlanSpec& spec,
                             const plan::Repeats& repeats, std::int64_t index, int first, bool priced);
  [[nodiscard]] int first_in_node(const plan::Plan& plan, plan::StageId stage) const;
  std::vector<LayerRun> chunk(const plan::Plan& plan, const plan::PlanSpec& spec, plan::StageId stage, int chunk,
                              Asked asked);

  const models::Model& model_;
  const Pricing& pricing_;
  SharedLinks* links_;
  std::shared_ptr<LayerStore> store_;
  std::map<ParameterKey, const LayerCosts*> parameters_;
  std::deque<Program> programs_;
  plan::PlanSpec of_;  ///< the plan that was asked for last
  std::vector<Known> known_;
};

}  // namespace orrery::cost
