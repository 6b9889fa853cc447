/// Reads the `memory:` part of a stack file.
#include "cost/parameters/memory_recipe.h"

#include <vector>

namespace orrery::cost {

const char* name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::allocated: return "allocated";
    case MemoryKind::reserved: return "reserved";
    case MemoryKind::device: return "device";
    case MemoryKind::needed: return "needed";
  }
  return "?";
}

MemoryKind memory_kind(const std::string& words, MemoryKind otherwise) {
  const auto says = [&](const char* word) { return words.find(word) != std::string::npos; };
  if (says("nvidia-smi") || says("device")) return MemoryKind::device;
  if (says("reserved") || says("cached")) return MemoryKind::reserved;
  if (says("allocated") || says("memory active")) return MemoryKind::allocated;  // active_bytes: what tensors use
  return otherwise;
}

namespace {
const std::vector<std::string> kRoundedWeights = {"none", "beside", "instead"};
}

const char* name_of(RoundedWeights kind) {
  return kRoundedWeights[static_cast<std::size_t>(kind)].c_str();
}

void take_model_code(const MemoryRecipe& code, MemoryRecipe& recipe) {
  if (!recipe.stated) return;
  recipe.loss_copies = code.loss_copies;
  recipe.loss_apart = code.loss_apart;
  recipe.composes_gates = code.composes_gates;
  recipe.composes_norms = code.composes_norms;
  recipe.repeats_keys = code.repeats_keys;
}

MemoryRecipe read_memory_recipe(const base::Cursor& at) {
  MemoryRecipe r;
  if (!at.exists()) return r;
  constexpr double kMostBytes = 64, kMostCopies = 16, kMostElements = 1e12;
  r.stated = true;
  r.reported = static_cast<MemoryKind>(at.at("reported").choice({"allocated", "reserved", "device"}));
  r.dropout = at.optional("dropout").boolean(false);
  r.loss_copies = static_cast<int>(at.optional("loss_copies").integer(0, static_cast<std::int64_t>(kMostCopies)));
  r.loss_apart = at.optional("loss_apart").boolean(false);
  r.gradients_beside = at.optional("gradients_beside").boolean(false);
  r.update_fp16 = at.optional("update_fp16").number(0, kMostBytes);
  r.update_bf16 = at.optional("update_bf16").number(0, kMostBytes);
  r.update_in_one_piece = at.optional("update_in_one_piece").boolean(false);
  r.reduce_bucket = at.optional("reduce_bucket").integer(0, static_cast<std::int64_t>(kMostElements));
  r.keeps_messages = at.optional("keeps_messages").boolean(false);
  r.keeps_gathered = at.optional("keeps_gathered").boolean(false);
  r.composes_gates = at.optional("composes_gates").boolean(false);
  r.composes_norms = at.optional("composes_norms").boolean(false);
  r.wide_sums = at.optional("wide_sums").boolean(false);
  r.repeats_keys = at.optional("repeats_keys").boolean(false);
  r.gathers_rows = at.optional("gathers_rows").boolean(false);
  constexpr double kMostGradient = 4;
  if (const base::Cursor bytes = at.optional("gradient_bytes"); bytes.exists())
    r.gradient_bytes = bytes.number(1, kMostGradient);
  r.saves_rounded = at.optional("saves_rounded").boolean(false);
  if (const base::Cursor weights = at.optional("rounded_weights"); weights.exists())
    r.rounded_weights = static_cast<RoundedWeights>(weights.choice(kRoundedWeights));
  r.weighs_in_experts = at.optional("weighs_in_experts").boolean(false);
  r.narrow_values = at.optional("narrow_values").boolean(false);
  if (const base::Cursor kept = at.optional("kept_in_fp8"); kept.exists()) {
    const auto bytes = [&](const char* key, double otherwise) { return kept.optional(key).number(1, 2, otherwise); };
    r.kept_in_fp8 = {bytes("products", 1), bytes("gates", 2), bytes("attention", 2)};
  }
  r.gathers_masters = at.optional("gathers_masters").boolean(false);
  constexpr double kMostShare = 4;
  r.fragmentation = at.optional("fragmentation").number(0, kMostShare);
  r.pipeline_fragmentation = at.optional("pipeline_fragmentation").number(0, kMostShare);
  r.stuck = at.optional("stuck").number(0, kMostShare);
  return r;
}

}  // namespace orrery::cost
