#pragma once
/// Measurements beside the points of a scaling study: runs and published rows of the same job, with any plan.
#include <memory>
#include <string>
#include <vector>

#include "sim/scaling/study.h"
#include "sim/validate/rows.h"
#include "sim/validate/translate.h"

namespace orrery::sim {

/// A measurement and its subject.
struct MeasuredJob {
  const models::Model* model = nullptr;
  const clusters::Cluster* cluster = nullptr;
  const plan::PlanSpec* spec = nullptr;
  std::string source;
  double step_time_s = 0, predicted_s = 0;
  bool published = false;
};

/// Whether two descriptions mean the same model: equal shape, and parameters within 2 % (vocabularies are padded, and
/// rows rarely mention biases).
[[nodiscard]] bool same_model(const models::Model& a, const models::Model& b);

/// The series that have a point for a measurement: same model, devices, nodes, sequence, and the batch of that size.
[[nodiscard]] std::vector<std::size_t> series_of(const cost::ScalingStudy& study, const std::vector<StudyJob>& jobs,
                                                 const MeasuredJob& measured);
/// Adds it to the points of those series.
void add_measured(cost::ScalingStudy& study, const std::vector<StudyJob>& jobs, const MeasuredJob& measured);

/// The timed rows that match the numbers of some point.
[[nodiscard]] std::vector<Row> rows_near(const cost::ScalingStudy& study, const std::vector<Row>& rows);
/// Adds rows to the points that they belong to, each with the prediction for its own plan.
void add_rows(cost::ScalingStudy& study, const std::vector<StudyJob>& jobs, const std::vector<Row>& rows,
              Library library);

}  // namespace orrery::sim
