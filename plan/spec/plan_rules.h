#pragma once
/// The rules that every plan of a model with layers obeys, by what they are about. Each writes down those that a
/// proposed plan breaks. Private to plan/: plan/spec/plan.cpp lists them in the order of their diagnostics.
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "plan/spec/message.h"
#include "plan/spec/plan.h"
#include "plan/spec/rules.h"

namespace orrery::plan {

struct Proposed {
  const models::Model& model;
  const clusters::Cluster& cluster;
  const PlanSpec& spec;
};

class BrokenRules {
 public:
  /// Message and help: texts, or what writes them.
  template <class Message, class Help = std::string_view>
  void rule(bool holds, RuleCode code, const Message& message, const Help& help = {}) {
    if (!holds) found_.push_back(code.broken(written(message), written(help)));
  }
  [[nodiscard]] base::Diagnostics take() { return std::move(found_); }

 private:
  base::Diagnostics found_;
};

// -- plan/spec/mesh_rules.cpp: ranks, and how tensor, context and recomputation divide a layer
void mesh_rules(const Proposed& p, BrokenRules& broken);
/// Tensor and sequence parallelism, recomputation, state spaces.
void tensor_rules(const Proposed& p, BrokenRules& broken);
void context_rules(const Proposed& p, BrokenRules& broken);
/// The heads of a masked-language model choose rows of whole sequences.
void masked_rules(const Proposed& p, BrokenRules& broken);
/// A ring knows which chunk a block of keys is, but not how far away each key is.
void distance_rules(const Proposed& p, BrokenRules& broken);

// -- plan/spec/stage_rules.cpp: pipelines and micro-batches
inline constexpr std::int64_t kEnds = 2;  ///< layers that are no blocks: embedding and head
void stage_rules(const Proposed& p, BrokenRules& broken);
void batch_rules(const Proposed& p, BrokenRules& broken);
void mirrored_rules(const Proposed& p, BrokenRules& broken);
void asynchronous_rules(const Proposed& p, BrokenRules& broken);

// -- plan/spec/state_rules.cpp: where states are, and how they are updated
void zero_rules(const Proposed& p, BrokenRules& broken);
void offload_rules(const Proposed& p, BrokenRules& broken);
void rounding_rules(const Proposed& p, BrokenRules& broken);
void whole_matrix_rules(const Proposed& p, BrokenRules& broken);
void adapter_rules(const Proposed& p, BrokenRules& broken);

// -- plan/spec/compression_rules.cpp: fewer bits, and fewer rows at a time
void gradient_compression_rules(const Proposed& p, BrokenRules& broken);
void activation_encoding_rules(const Proposed& p, BrokenRules& broken);
/// Parts of the head's rows are equal, so that they share memory and kernels.
void loss_chunk_rules(const Proposed& p, BrokenRules& broken);

}  // namespace orrery::plan
