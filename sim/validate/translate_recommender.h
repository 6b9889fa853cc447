#pragma once
/// A recommendation model's row: its sizes, and how its software places tables. Private to sim/validate/.
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/parameters/stack.h"
#include "models/model.h"
#include "plan/spec/plan.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// The model from the catalogue if the row names one, otherwise built from its sizes. 26 tables are Criteo's, the
/// largest of them truncated to reach the stated number of rows (as MLPerf's reference truncates at 40 million); with
/// another number, tables are of equal size. V01: sizes that no model has.
[[nodiscard]] base::Result<std::shared_ptr<const models::Model>> recommender_of(
    const Setup& setup, const std::vector<models::Model>& catalogue, std::vector<std::string>& notes);

/// All ranks are data-parallel; a batch that is not divisible by their number is rounded up. Tables stay on the devices
/// if these together have room for them.
[[nodiscard]] base::Result<plan::PlanSpec> recommender_spec(const Setup& setup, const models::Recommender& model,
                                                            const clusters::Cluster& cluster, const cost::Stack& stack,
                                                            models::DType precision, std::vector<std::string>& notes);

}  // namespace orrery::sim
