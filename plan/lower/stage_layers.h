#pragma once
/// What lowering asks of a stage's layers. Private to plan/.
#include <string>
#include <vector>

#include "plan/lower/buckets.h"
#include "plan/lower/class_builder.h"

namespace orrery::plan {

/// How buffers of a layer are named: "embedding", "h.3", "head".
[[nodiscard]] std::string label(const StageLayer& layer);
/// Where bucket `bucket` of the stage stands among the layer's own.
[[nodiscard]] std::size_t place_of(const StageLayer& layer, int bucket);
/// For people: which half of a block a run of operators belongs to. `attention`: whether it has been passed.
[[nodiscard]] const char* name_of_part(const std::vector<models::Op>& ops, Phase phase, bool& attention);
[[nodiscard]] CollectiveKind kind_of(models::GroupCollective collective);
/// Whether backward of this layer reads any parameter: an embedding does not, so nothing is gathered for it.
[[nodiscard]] bool backward_reads_parameters(const StageLayer& layer);

/// Of a mixture of experts: what its layers count, sum up and choose by (RankClass::tally and the next). An evaluation
/// counts nothing.
void add_expert_buffers(ClassBuilder& build, const models::Model& model, const std::vector<StageLayer>& layers,
                        bool forward_only);

}  // namespace orrery::plan
