#pragma once
/// A row of a recommendation model: its sizes, and how its software places tables. Private to sim/validate/.
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/parameters/stack.h"
#include "models/model.h"
#include "plan/spec/plan.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// Of the catalogue where the row names one, else made of its sizes: 26 tables are Criteo's, whose largest are cut off
/// so that all have the rows that are stated (as MLPerf's reference cuts them off at 40 million); others are alike.
/// V01: sizes that no model has.
[[nodiscard]] base::Result<std::shared_ptr<const models::Model>> recommender_of(
    const Setup& setup, const std::vector<models::Model>& catalogue, std::vector<std::string>& notes);

/// All ranks are of `data`; a batch that they do not divide is rounded up.
[[nodiscard]] base::Result<plan::PlanSpec> recommender_spec(const Setup& setup, const cost::Stack& stack,
                                                            models::DType precision, std::vector<std::string>& notes);

}  // namespace orrery::sim
