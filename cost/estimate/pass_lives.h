#pragma once
/// Memory that lives only within a stage's passes, laid out as lowering lays it out (plan/lower/layer_passes), but with
/// only a few of many equal layers.
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cost/estimate/block_lives.h"
#include "cost/estimate/memory.h"
#include "cost/estimate/numbers_hash.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// A chunk of a stage's layers. `staying`: the number of blocks at its top that keep on the device what other blocks
/// send to the host (offload.h). `frees_head`: what the head keeps for backward (logits) is freed
/// before the blocks run backward, as a framework frees tensors; in an arena its slab stays.
struct ChunkPlace {
  plan::StageId stage;
  int chunk = 0;
  std::int64_t staying = 0;
  bool frees_head = false;
};

/// Whether parameters, gradients or activations of a layer are still in scratch memory, or already, while another one
/// runs, so that the order of unequal layers counts.
[[nodiscard]] bool outlives_layers(const plan::PlanSpec& spec);

/// Of a head: whether a tensor waits for its backward pass, and for nothing below it.
[[nodiscard]] bool leaves_with_head(const LayerCosts& layer, LifeId index);

/// Scratch memory by what it depends on, so that plans that agree in this share it.
class PassMemo {
 public:
  /// Over all blocks of a chunk: forward, backward, and in a split backward the weights' gradients. `layers`: in
  /// forward order. `packs`: as in scratch_bytes(), and what lives in a lowered `end` (null: there is none) is kept
  /// apart from the passes' messages, which is not remembered.
  [[nodiscard]] ScratchBytes of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec,
                                const ChunkPlace& place, bool packs, const EndMemory* end);
  /// Of layers of micro-batches of one sequence: what is alive at the same time at least, for each sequence of larger
  /// ones. Of plans that keep activations on the device, as they are.
  [[nodiscard]] double of_rows(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec,
                               const ChunkPlace& place);

 private:
  std::unordered_map<std::vector<std::int64_t>, ScratchBytes, NumbersHash> known_;
};

}  // namespace orrery::cost
