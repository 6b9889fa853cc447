#pragma once
/// What lowering asks about a stage's layers. Private to plan/.
#include <map>
#include <string>
#include <vector>

#include "plan/lower/buckets.h"
#include "plan/lower/class_builder.h"

namespace orrery::plan {

/// The prefix of names of a layer's buffers: "embedding", "h.3", "head".
[[nodiscard]] std::string label(const StageLayer& layer);
/// The place of the stage's bucket `bucket` among the layer's own buckets.
[[nodiscard]] std::size_t place_of(const StageLayer& layer, BucketId bucket);
/// For display: the half of a block that a run of operators belongs to. `attention`: whether the attention is already
/// done.
[[nodiscard]] const char* name_of_part(const std::vector<models::Op>& ops, Phase phase, bool& attention);

/// A step that loads the inputs that a chunk with the embedding, the head or both reads for a micro-batch, and the
/// buffers that it fills.
[[nodiscard]] std::map<models::TensorRole, BufferId> load_inputs(ClassBuilder& build, const Plan& plan, bool embeds,
                                                                 bool heads);

/// The number of a layer's mixture among the model's blocks; that of a module that predicts further, which is a part of
/// the head, comes behind them. None: it has no mixture.
[[nodiscard]] LayerId mixture_of(const models::Model& model, models::LayerKind kind, LayerId layer);

/// Buffers of a mixture of experts: its layers' counts, their sums, and the biases of the choice (RankClass::tally and
/// the next members). An evaluation has no counts.
void add_expert_buffers(ClassBuilder& build, const models::Model& model, const std::vector<StageLayer>& layers,
                        bool forward_only);

}  // namespace orrery::plan
