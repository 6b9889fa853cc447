#pragma once
/// Measurements beside the points of a scaling study: runs and published rows of the same job, whatever their plans.
#include <memory>
#include <string>
#include <vector>

#include "sim/scaling/study.h"
#include "sim/validate/rows.h"
#include "sim/validate/translate.h"

namespace orrery::sim {

/// What was measured, and of what.
struct MeasuredJob {
  const models::Model* model = nullptr;
  const clusters::Cluster* cluster = nullptr;
  const plan::PlanSpec* spec = nullptr;
  std::string source;
  double step_time_s = 0, predicted_s = 0;
  bool published = false;
};

/// Whether two models are one, however they are described: equal in shape, and in parameters to 2 % (vocabularies are
/// padded, and rows seldom say biases).
[[nodiscard]] bool same_model(const models::Model& a, const models::Model& b);

/// The series in which a measurement has a point: same model, devices, nodes, sequence, and the batch of its size.
[[nodiscard]] std::vector<std::size_t> series_of(const cost::ScalingStudy& study, const std::vector<StudyJob>& jobs,
                                                 const MeasuredJob& measured);
/// Puts it beside the points of those series.
void add_measured(cost::ScalingStudy& study, const std::vector<StudyJob>& jobs, const MeasuredJob& measured);

/// Of the timed rows those that have the numbers of some point.
[[nodiscard]] std::vector<Row> rows_near(const cost::ScalingStudy& study, const std::vector<Row>& rows);
/// Puts rows beside the points that they are of, each with the prediction of its own plan.
void add_rows(cost::ScalingStudy& study, const std::vector<StudyJob>& jobs, const std::vector<Row>& rows,
              Library library);

}  // namespace orrery::sim
