// Assembles the table of families, and looks things up in it.
#include "models/read/families.h"

#include <algorithm>
#include <utility>

#include "base/ensure.h"

namespace orrery::models {

std::span<const FamilyTraits> families() {
  static const std::vector<FamilyTraits> kTable = [] {
    std::vector<FamilyTraits> all = gpt_families();
    for (std::vector<FamilyTraits> (*const more)() :
         {gptj_families, llama_families, glm_families, expert_families, deepseek_families, window_families,
          hybrid_families, recurrent_families, gemma4_families, sparse_families, biased_families})
      for (FamilyTraits& one : more()) all.push_back(std::move(one));
    std::sort(all.begin(), all.end(), [](const FamilyTraits& a, const FamilyTraits& b) { return a.family < b.family; });
    return all;
  }();
  return kTable;
}

const FamilyTraits& traits_of(Family family) {
  for (const FamilyTraits& one : families())
    if (one.family == family) return one;
  ENSURE(false, "family {} has no entry", static_cast<int>(family));
}

const char* name_of(Family family) {
  return family == Family::dlrm ? "dlrm" : traits_of(family).name;
}

std::string known_model_types() {
  std::string out;
  for (const FamilyTraits& one : families()) out += (out.empty() ? "" : ", ") + std::string(one.model_types.front());
  return out;
}

WeightNames weight_names(const Model& model) {
  const FamilyTraits& family = traits_of(model.family);
  WeightNames names = family.weights;
  if (family.names) family.names(names, model);
  if ((names.adjacent_pairs || names.swapped_pairs) && model.positions == Positions::rope)
    names.rotated = {model.head_dim, 0, model.rotary_columns(), names.swapped_pairs};
  return names;
}

}  // namespace orrery::models
