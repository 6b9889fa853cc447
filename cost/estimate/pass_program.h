#pragma once
/// A chunk's passes over one micro-batch, as steps for a rank's clock: the steps of its layers, and between them
/// gathers and reductions of ZeRO and reductions within the last pass, in the order in which lowering writes them
/// (plan/lower/layer_passes.h). Of a plan that keeps something outside the device these are its passes as fast as they
/// could be if it copied nothing: lowered_passes.h has them as they are. Private to cost/.
#include <array>
#include <cstdint>
#include <vector>

#include "cost/estimate/memory.h"
#include "cost/estimate/rank_clock.h"
#include "cost/estimate/stage_groups.h"
#include "cost/estimate/step_end.h"
#include "cost/prices/pricing.h"
#include "plan/schedule/orders.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// What a chunk's passes depend on besides its layers.
struct PassSurroundings {
  const plan::PlanSpec& spec;
  const Pricing& pricing;
  StepEnds& ends;
  const StageGroups& groups;
  const models::Op* load = nullptr;  ///< reads a micro-batch's tokens; null unless the chunk has an end of the model
  BesideCompute exchange = {};       ///< of all-to-alls
  bool embeds = false;               ///< the stage has the embedding: a tied table's gradients are complete after it
  const std::vector<std::array<int, 3>>* begun = nullptr;  ///< BegunGathers::of for the chunk's layers
  int gathers = 0;                                         ///< number of gathers that have begun with the step
};

/// Gathers that begin with the step, in the order in which its first passes read the results. `steps`: the messages;
/// `of`, by chunk and layer: the message that brings its own parameters, its experts' and the tied table's; -1: none.
struct BegunGathers {
  std::vector<PassStep> steps;
  std::vector<std::vector<std::array<int, 3>>> of;
};
[[nodiscard]] BegunGathers begun_gathers(const std::vector<std::vector<LayerRun>>& chunks, const plan::PlanSpec& spec,
                                         const NextGathers& next);

/// The first of a pass's steps that waits until what has been sent has arrived: the first one that computes, not what
/// begins ahead of it. Where backward is split or a pipeline never drains, only the last one needs the memory that a
/// message holds. The number of steps if none computes.
[[nodiscard]] std::size_t first_freed(const std::vector<PassStep>& steps, plan::Move::Kind kind,
                                      const plan::Stages& stages);

/// `layers`: the chunk's, in forward order.
[[nodiscard]] ChunkPrograms programs_of(const std::vector<LayerRun>& layers, const PassSurroundings& surroundings);

}  // namespace orrery::cost
