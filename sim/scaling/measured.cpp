/// Matches measurements with points.
#include "sim/scaling/measured.h"

#include <algorithm>
#include <cmath>

#include "models/layers/counts.h"
#include "sim/validate/cases.h"

namespace orrery::sim {
namespace {

/// False if the row's numbers match no point: it then needs no model.
bool may_be_of(const cost::ScalingStudy& study, const Row& row) {
  if (!row.measured.seconds || !row.setup.gpus || row.setup.kind == kOutOfMemory) return false;
  for (const cost::ScalingSeries& series : study.series) {
    if (row.setup.sequence && *row.setup.sequence != series.sequence) continue;
    for (const cost::ScalingPoint& point : series.points)
      if (*row.setup.gpus == point.devices && (!row.setup.batch || *row.setup.batch == point.batch)) return true;
  }
  return false;
}

}  // namespace

bool same_model(const models::Model& a, const models::Model& b) {
  constexpr double kAlike = 0.02;
  const auto all_a = static_cast<double>(models::parameters(a)), all_b = static_cast<double>(models::parameters(b));
  return a.recommender.has_value() == b.recommender.has_value() && a.layers == b.layers && a.hidden == b.hidden &&
         a.heads == b.heads && a.kv_heads == b.kv_heads && std::abs(all_a - all_b) <= kAlike * std::max(all_a, all_b);
}

std::vector<std::size_t> series_of(const cost::ScalingStudy& study, const std::vector<StudyJob>& jobs,
                                   const MeasuredJob& measured) {
  std::vector<std::size_t> out;
  const plan::PlanSpec& spec = *measured.spec;
  for (std::size_t i = 0; i < study.series.size(); ++i) {
    const cost::ScalingSeries& series = study.series[i];
    const StudyJob& job = jobs[series.job];
    const auto here = [&](const cost::ScalingPoint& p) {
      return p.devices == spec.mesh.ranks() && p.batch == spec.shape.batch;
    };
    const auto point = std::find_if(series.points.begin(), series.points.end(), here);
    if (point != series.points.end() && series.sequence == spec.shape.sequence &&
        models::size_of(spec.numerics.precision) == models::size_of(job.job.precision) &&
        measured.cluster->device().name == series.device && measured.cluster->nodes == point->nodes &&
        same_model(*measured.model, *job.model))
      out.push_back(i);
  }
  return out;
}

void add_measured(cost::ScalingStudy& study, const std::vector<StudyJob>& jobs, const MeasuredJob& measured) {
  for (const std::size_t i : series_of(study, jobs, measured)) {
    cost::ScalingSeries& series = study.series[i];
    // A file may repeat rows of the project's own.
    if (std::any_of(series.measured.begin(), series.measured.end(), [&](const cost::MeasuredPoint& one) {
          return one.source == measured.source && one.step_time_s == measured.step_time_s;
        }))
      continue;
    cost::MeasuredPoint& out = series.measured.emplace_back();
    out.source = measured.source;
    out.plan = plan::describe(*measured.spec);
    out.devices = measured.spec->mesh.ranks();
    out.batch = measured.spec->shape.batch;
    out.step_time_s = measured.step_time_s;
    out.predicted_s = measured.predicted_s;
    out.published = measured.published;
    out.best_plan = std::any_of(series.points.begin(), series.points.end(), [&](const cost::ScalingPoint& point) {
      return point.best && point.best->spec == *measured.spec;
    });
    std::stable_sort(series.measured.begin(), series.measured.end(),
                     [](const cost::MeasuredPoint& a, const cost::MeasuredPoint& b) { return a.devices < b.devices; });
  }
}

std::vector<Row> rows_near(const cost::ScalingStudy& study, const std::vector<Row>& rows) {
  std::vector<Row> near;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(near),
               [&](const Row& row) { return may_be_of(study, row); });
  return near;
}

void add_rows(cost::ScalingStudy& study, const std::vector<StudyJob>& jobs, const std::vector<Row>& rows,
              Library library) {
  const Cases cases = make_cases(rows, std::move(library));
  const StackNumbers as_they_are;
  Predictor predictor(as_they_are);
  for (const Case& one : cases.ready) {
    const plan::PlanSpec spec = one.subject.plan.spec();
    const Setup& setup = rows[one.row].setup;
    MeasuredJob measured{one.subject.model.get(),
                         &one.subject.pricing->cluster(),
                         &spec,
                         setup.source.empty() ? setup.id : setup.source + " (" + setup.id + ")",
                         *rows[one.row].measured.seconds,
                         0,
                         true};
    if (series_of(study, jobs, measured).empty()) continue;
    measured.predicted_s = predictor.replayed(one).step_time;
    add_measured(study, jobs, measured);
  }
}

}  // namespace orrery::sim
