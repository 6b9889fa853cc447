// Which family a config.json is read as: by its model_type, else by the names of its classes.
#include "models/read/which_family.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "models/read/unread.h"

namespace orrery::models {
namespace {

using base::Cursor;

const FamilyTraits* of_model_type(const std::string& type) {
  for (const FamilyTraits& family : families())
    for (const char* known : family.model_types)
      if (type == known) return &family;
  return nullptr;
}

const FamilyTraits* of_architecture(const std::string& architecture) {
  const FamilyTraits* found = nullptr;  // the longest name wins: Llama4For… is not a Llama
  for (const FamilyTraits& family : families())
    if (architecture.rfind(family.architectures, 0) == 0 &&
        (!found || std::string_view(family.architectures).size() > std::string_view(found->architectures).size()))
      found = &family;
  return found;
}

void refuse_family(const Cursor& root, const Cursor& at, const char* what, const std::string& name) {
  const Unread of = unread(root, name);
  at.error(
      "E0110",
      fmt::format("{} {} is not a supported family{}{}", what, base::quoted(name), of.why.empty() ? "" : ": ", of.why),
      of.help);
}

const FamilyTraits* family_of_part(const Cursor& part) {
  const Cursor classes = part.optional("architectures");
  if (const Cursor type = part.optional("model_type"); type.exists()) {
    const std::string found = type.text("?");
    const FamilyTraits* family = of_model_type(found);
    if (!family) refuse_family(part, type, "model_type", found);
    return family;
  }
  const std::vector<Cursor> architectures = classes.exists() ? classes.items() : std::vector<Cursor>{};
  if (architectures.empty()) {
    part.error("E0110", "neither model_type nor architectures says which family this is", unread(part, "").help);
    return nullptr;
  }
  const std::string found = architectures.front().text("?");
  const FamilyTraits* family = of_architecture(found);
  if (!family) refuse_family(part, architectures.front(), "architecture", found);
  return family;
}

}  // namespace

LanguagePart language_part(const Cursor& root) {
  LanguagePart part{root};
  for (bool deeper = true; deeper;) {
    deeper = false;
    if (part.at.has("num_hidden_layers") || part.at.has("n_layer")) break;
    for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config"})
      if (const Cursor nested = part.at.optional(key); nested.exists()) {
        if (!nested.is_map()) {
          nested.error("E0104", fmt::format("`{}` must be a map of keys, those of the language model", key));
          return part;
        }
        part = {nested, part.path.empty() ? key : part.path + "." + key};
        deeper = true;
        break;
      }
  }
  return part;
}

const FamilyTraits* family_of(const Cursor& root, const LanguagePart& part) {
  // A class may give its text part the name of the class that it began as (MiniMax-M3's: minimax_m2).
  const Cursor whole = root.optional("model_type");
  const FamilyTraits* const family =
      part.path.empty() || !whole.is_scalar() ? nullptr : of_model_type(whole.scalar_text());
  if (family == nullptr) return family_of_part(part.at);
  (void)part.at.optional("model_type"), (void)part.at.optional("architectures");
  return family;
}

}  // namespace orrery::models
