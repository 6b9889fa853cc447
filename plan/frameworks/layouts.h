#pragma once
/// Two small languages of Megatron-LM's flags: which layers have experts ("([0]*3+[1]*58)"), and which stage has which
/// layers ("Et*3|t*4|t*3L").
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/spec/plan.h"

namespace orrery::plan {

/// For each of so many layers whether it has experts: from a number N (the first of every N) or a Python expression of
/// lists. None: it is not understood, or of another length.
[[nodiscard]] std::optional<std::vector<bool>> layers_of_pattern(std::string_view text, std::int64_t layers);

/// Stages in model order; virtual stages go round after round.
[[nodiscard]] std::string layout_text(const Plan& plan);
/// Layers of each stage: E, L and m are embedding, loss and a module that predicts further, t a layer, * repeats, |
/// divides stages, parentheses repeat several. None: it is not understood.
[[nodiscard]] std::optional<std::vector<std::int64_t>> stages_of_layout(std::string_view text);

}  // namespace orrery::plan
