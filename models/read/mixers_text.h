#pragma once
/// State spaces and the pattern of blocks in a model's file: reads them, checks relations between their numbers, writes
/// them.
#include <string>
#include <vector>

#include "base/yaml.h"
#include "models/model.h"

namespace orrery::models {

[[nodiscard]] StateSpace read_state_space(const base::Cursor& at);
[[nodiscard]] std::vector<BlockParts> read_pattern(const base::Cursor& at);
/// E0112 at the keys of `root`.
void check_pattern(const base::Cursor& root, const Model& model);
/// Lines behind `margin`; empty if the model has none.
[[nodiscard]] std::string state_space_text(const StateSpace& ssm, const std::string& margin);
[[nodiscard]] std::string pattern_text(const std::vector<BlockParts>& pattern, const std::string& margin);

}  // namespace orrery::models
