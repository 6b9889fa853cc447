#pragma once
/// How `validate` shows what it finds out beside errors.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost/validation.h"
#include "reports/table.h"

namespace orrery::reports {

/// `validate --fit-stacks`: `written` are the files that changed.
[[nodiscard]] nlohmann::json stack_fits_json(const std::vector<cost::FamilyFit>& fits,
                                             const std::vector<std::string>& written);
[[nodiscard]] std::string stack_fits_text(const std::vector<cost::FamilyFit>& fits, const TableStyle& style);

}  // namespace orrery::reports
