/// Folds, fits without them, and quantiles of the residuals.
#include "sim/validate/cross_validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>

#include "sim/validate/software.h"
#include "sim/validate/validate.h"

namespace orrery::sim {

namespace {

constexpr double kSameStack = 8,
                 kSameReach = 2;  // weights; 1: other software, or the other reach (one node, several)

struct Fold {
  std::size_t family = 0;
  std::string source, name;
  bool by_model = false;
  std::vector<std::size_t> places;  // in cases.ready
};

struct Run {
  const std::vector<Row>& rows;
  const Cases& cases;
  StackFitter& fitter;
  const std::function<bool()>& go_on;
  std::vector<Fold> folds;
  std::map<std::size_t, std::size_t> fold_of;                            // by place
  std::map<std::pair<std::size_t, std::size_t>, StackNumbers> without_;  // two folds of one family, or one twice
  std::map<std::size_t, StackNumbers> all_;                              // by family

  [[nodiscard]] const Row& row(std::size_t place) const { return rows[cases.ready[place].row]; }
  [[nodiscard]] double measured(std::size_t place) const { return *row(place).measured.seconds; }
  [[nodiscard]] bool going() const { return !go_on || go_on(); }

  const StackNumbers& all(std::size_t family) {
    const auto found = all_.find(family);
    if (found != all_.end()) return found->second;
    return all_[family] = fitter.fit(
               family, [](std::size_t) { return true; }, go_on);
  }
  const StackNumbers& without(std::size_t a, std::size_t b) {
    const std::pair<std::size_t, std::size_t> key = std::minmax(a, b);
    const auto found = without_.find(key);
    if (found != without_.end()) return found->second;
    const auto use = [&](std::size_t place) { return fold_of.at(place) != a && fold_of.at(place) != b; };
    return without_[key] = fitter.fit(folds[a].family, use, go_on);
  }
};

void make_folds(Run& run) {
  for (std::size_t f = 0; f < run.fitter.families().size(); ++f) {
    std::map<std::string, std::vector<std::size_t>> sources;
    for (const std::size_t place : run.fitter.cases_of(f)) sources[run.row(place).setup.source].push_back(place);
    const bool by_model = sources.size() == 1;
    for (const auto& [source, places] : sources) {
      std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::size_t>> models;
      for (const std::size_t place : places) {
        const Setup& s = run.row(place).setup;
        // Recommendation models have no layers: group by cross layers and devices.
        const std::pair model(s.layers.value_or(s.tables.cross_layers.value_or(0)), s.hidden.value_or(*s.gpus));
        models[by_model ? model : std::pair<std::int64_t, std::int64_t>()].push_back(place);
      }
      for (auto& [model, of_model] : models)
        run.folds.push_back({f, source,
                             by_model ? fmt::format("{} x {} of {}", model.first, model.second, source) : source,
                             by_model, std::move(of_model)});
    }
  }
  for (std::size_t i = 0; i < run.folds.size(); ++i)
    for (const std::size_t place : run.folds[i].places) run.fold_of[place] = i;
}

LogResidual residual(const Run& run, std::size_t place, double predicted) {
  const Case& one = run.cases.ready[place];
  return {std::log(run.measured(place) / predicted), run.row(place).setup.source, one.subject.pricing->stack().name,
          several_nodes(one), run.row(place).setup.family == kRecommender};
}

bool is_of_tables(const Run& run, const Fold& fold) {
  return run.row(fold.places.front()).setup.family == kRecommender;
}

/// The residuals from which an interval of fold `of` may be made: of the same kind of model.
std::vector<LogResidual> others(Run& run, std::size_t of) {
  const Fold& fold = run.folds[of];
  std::vector<LogResidual> out;
  for (std::size_t g = 0; g < run.folds.size() && run.going(); ++g) {
    const Fold& other = run.folds[g];
    if (g == of || (!fold.by_model && other.source == fold.source)) continue;
    if (is_of_tables(run, other) != is_of_tables(run, fold)) continue;
    const std::vector<double> seconds =
        run.fitter.predict(other.places, run.without(g, other.family == fold.family ? of : g));
    for (std::size_t i = 0; i < other.places.size(); ++i) out.push_back(residual(run, other.places[i], seconds[i]));
  }
  return out;
}

cost::ErrorSummary errors(const std::vector<cost::LeftOutPrediction>& rows,
                          double cost::LeftOutPrediction::*predicted) {
  std::vector<double> out;
  for (const cost::LeftOutPrediction& row : rows) out.push_back(std::abs(row.*predicted / row.measured_s - 1));
  return summary_of(std::move(out));
}

double inside(const std::vector<cost::LeftOutPrediction>& rows) {
  double sum = 0;
  for (const cost::LeftOutPrediction& row : rows)
    sum += row.measured_s >= row.interval.low && row.measured_s <= row.interval.high ? 1 : 0;
  return rows.empty() ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(rows.size());
}

std::vector<cost::LeftOutPrediction> predict_fold(Run& run, std::size_t f) {
  const Fold& fold = run.folds[f];
  const std::vector<double> in_sample = run.fitter.predict(fold.places, run.all(fold.family));
  const std::vector<double> left_out = run.fitter.predict(fold.places, run.without(f, f));
  const std::vector<double> usual = run.fitter.predict(fold.places, run.fitter.usual(fold.family));
  const std::vector<LogResidual> known = others(run, f);
  std::vector<cost::LeftOutPrediction> out;
  std::map<std::pair<std::string, bool>, cost::Interval> factors;
  for (std::size_t i = 0; i < fold.places.size(); ++i) {
    const std::size_t place = fold.places[i];
    const Case& one = run.cases.ready[place];
    const std::pair<std::string, bool> kind{one.subject.pricing->stack().name, several_nodes(one)};
    if (!factors.count(kind)) factors[kind] = spread_over(known, kind.first, kind.second);
    out.push_back({run.row(place).setup.id, fold.source, kind.first, fold.name, run.measured(place), in_sample[i],
                   left_out[i], usual[i], cost::around(left_out[i], factors[kind])});
  }
  return out;
}

double quantile(const std::vector<std::pair<double, double>>& sorted, double total, double share) {
  // Each value is at the middle of its weight; linear between the middles.
  double before = 0, last_place = 0, last_value = sorted.front().first;
  for (const auto& [value, weight] : sorted) {
    const double place = (before + weight / 2) / total;
    if (place >= share)
      return place > last_place && before > 0
                 ? last_value + (value - last_value) * (share - last_place) / (place - last_place)
                 : value;
    before += weight;
    last_place = place;
    last_value = value;
  }
  return last_value;
}

/// Three digits: more would suggest false precision.
cost::Interval rounded(const cost::Interval& i) {
  constexpr double kParts = 1000;
  return {std::floor(i.low * kParts) / kParts, std::ceil(i.high * kParts) / kParts};
}

}  // namespace

cost::Interval spread_over(const std::vector<LogResidual>& residuals, const std::string& stack, bool several) {
  if (residuals.empty()) return {1, 1};
  std::map<std::string, double> count;
  for (const LogResidual& r : residuals) count[r.source] += 1;
  std::vector<std::pair<double, double>> weighted;
  double total = 0;
  for (const LogResidual& r : residuals) {
    const double weight = (r.stack == stack ? kSameStack : 1) * (r.several_nodes == several ? kSameReach : 1) /
                          std::sqrt(count[r.source]);
    weighted.emplace_back(r.value, weight);
    total += weight;
  }
  std::sort(weighted.begin(), weighted.end());
  constexpr double kLow = 0.1, kHigh = 0.9;
  return {std::exp(quantile(weighted, total, kLow)), std::exp(quantile(weighted, total, kHigh))};
}

cost::Interval spread_over_sources(const std::vector<LogResidual>& residuals, bool several) {
  if (residuals.empty()) return {1, 1};
  std::map<std::string, double> count;
  for (const LogResidual& r : residuals) count[r.source] += 1;
  std::vector<std::pair<double, double>> weighted;
  double total = 0;
  for (const LogResidual& r : residuals) {
    const double weight = (r.several_nodes == several ? kSameReach : 1) / count[r.source];
    weighted.emplace_back(r.value, weight);
    total += weight;
  }
  std::sort(weighted.begin(), weighted.end());
  // One more source lies below the k-th of n with probability k / (n + 1), not k / n (conformal prediction: Vovk,
  // Gammerman and Shafer 2005); the middle of the k-th's weight is at (k - 1/2) / n.
  constexpr double kLow = 0.1, kHalf = 0.5;
  const double low = kLow - (kHalf - kLow) / static_cast<double>(count.size());
  return {std::exp(quantile(weighted, total, low)), std::exp(quantile(weighted, total, 1 - low))};
}

std::vector<cost::Spread> generic_spreads(const std::vector<Row>& rows, const Library& library) {
  const auto issues = [&](const Setup& setup) {  // whether a host issues kernels one by one
    for (const cost::Stack& stack : library.stacks)
      if (stack.name == setup.stack)
        for (const cost::Parameter& p : stack.parameters)
          if (p.name == "stack.host_op_time") return p.value > 0;
    return !is_compiled(setup);
  };
  std::vector<cost::Spread> out;
  for (const cost::Stack& stack : library.stacks) {
    if (!cost::is_kind(stack.name)) continue;
    std::vector<Row> of_kind;
    const bool tables = stack.name == cost::kGenericRecommender;
    for (const Row& row : rows)
      if ((row.setup.family == kRecommender) == tables &&
          (tables || issues(row.setup) == (stack.name != cost::kGenericCompiled)))
        of_kind.push_back(row);
    Library alone = library;
    alone.stacks.clear();
    alone.stand_in = stack;
    const Cases cases = make_cases(of_kind, std::move(alone));
    const StackNumbers as_they_are;
    Predictor predictor(as_they_are);
    std::vector<LogResidual> time, memory;
    for (const Case& one : cases.ready) {
      const Row& row = of_kind[one.row];
      LogResidual residual{0, row.setup.source, stack.name, several_nodes(one), tables};
      const cost::Estimate estimate = predictor.predict(one);
      if (row.measured.seconds) {
        residual.value = std::log(*row.measured.seconds / estimate.step_time);
        time.push_back(residual);
      }
      if (row.measured.memory_bytes) {
        residual.value = std::log(*row.measured.memory_bytes / estimate.memory_peak);
        memory.push_back(residual);
      }
    }
    for (const bool several : {false, true})
      out.push_back({stack.name, several, rounded(spread_over_sources(time, several)),
                     rounded(spread_over_sources(memory, several)), 0});
  }
  // A kind without published peaks takes the memory spread of the other kind.
  for (cost::Spread& spread : out)
    for (const cost::Spread& other : out)
      if (spread.memory == cost::kNothingSeen && other.several_nodes == spread.several_nodes)
        spread.memory = other.memory;
  return out;
}

std::vector<cost::Spread> strangers_spreads(const std::vector<Row>& rows, const Cases& cases,
                                            const cost::Validation& predicted) {
  std::vector<LogResidual> time;
  for (std::size_t i = 0; i < cases.ready.size(); ++i) {
    const Case& one = cases.ready[i];
    const cost::ValidatedRow& row = predicted.rows.at(i);
    const bool unknown = one.subject.stands_in || one.subject.pricing->stack().generic;
    if (!unknown || one.subject.model->recommender) continue;
    if (const auto seconds = rows[one.row].measured.seconds; seconds && !row.out_of_memory)
      time.push_back({std::log(*seconds / row.predicted_s), row.source, row.stack, several_nodes(one)});
  }
  std::vector<cost::Spread> out;
  for (const bool several : {false, true})
    out.push_back({cost::kStrangers, several, rounded(spread_over_sources(time, several)), cost::kNothingSeen, 0});
  return out;
}

cost::CrossValidation cross_validate(const std::vector<Row>& rows, const Cases& cases, StackFitter& fitter,
                                     const std::function<bool()>& go_on, const std::function<void(double)>& progress) {
  Run run{rows, cases, fitter, go_on, {}, {}, {}, {}};
  make_folds(run);
  cost::CrossValidation out;
  for (std::size_t f = 0; f < run.folds.size(); ++f) {
    if (progress) progress(static_cast<double>(f) / static_cast<double>(run.folds.size()));
    std::vector<cost::LeftOutPrediction> predicted = predict_fold(run, f);
    if (!run.going()) {  // a fold whose fits were stopped has no valid result
      out.complete = false;
      break;
    }
    const Fold& fold = run.folds[f];
    out.folds.push_back({fold.name, fitter.families()[fold.family].stacks, fold.by_model, predicted.size(),
                         errors(predicted, &cost::LeftOutPrediction::in_sample_s).median,
                         errors(predicted, &cost::LeftOutPrediction::left_out_s).median,
                         errors(predicted, &cost::LeftOutPrediction::usual_s).median, inside(predicted)});
    out.rows.insert(out.rows.end(), predicted.begin(), predicted.end());
  }
  out.in_sample = errors(out.rows, &cost::LeftOutPrediction::in_sample_s);
  out.left_out = errors(out.rows, &cost::LeftOutPrediction::left_out_s);
  out.usual = errors(out.rows, &cost::LeftOutPrediction::usual_s);
  out.inside = inside(out.rows);
  std::vector<double> widths;
  for (const cost::LeftOutPrediction& row : out.rows) widths.push_back(std::log(row.interval.high / row.interval.low));
  out.width = summary_of(std::move(widths)).median;
  return out;
}

std::vector<cost::Ground> grounds_of(const std::vector<Row>& rows, const Cases& cases) {
  constexpr int kLeastRuns = 3;
  std::vector<std::pair<cost::Ground, int>> all;
  for (const Case& one : cases.ready) {
    const cost::Stack& stack = one.subject.pricing->stack();
    if (!rows[one.row].measured.seconds || stack.generic || one.subject.stands_in) continue;
    const cost::Ground ground =
        cost::ground_of(stack.name, {&one.subject.pricing->cluster().device(), one.subject.model->experts.any()});
    const auto same = std::find_if(all.begin(), all.end(), [&](const auto& known) { return known.first == ground; });
    if (same == all.end())
      all.emplace_back(ground, 1);
    else
      ++same->second;
  }
  std::vector<cost::Ground> out;
  for (const auto& [ground, runs] : all)
    if (runs >= kLeastRuns) out.push_back(ground);
  std::sort(out.begin(), out.end(), [](const cost::Ground& a, const cost::Ground& b) {
    return std::tie(a.stack, a.device, a.mixtures) < std::tie(b.stack, b.device, b.mixtures);
  });
  return out;
}

namespace {

/// Whether a stack is of recommendation models.
bool is_of_tables(const cost::Stack& stack) {
  return std::any_of(stack.parameters.begin(), stack.parameters.end(),
                     [](const cost::Parameter& p) { return p.name == "stack.lookup_passes"; });
}

/// The spread over the residuals of one kind; that of the kind's generic stack if there are none.
cost::Interval spread_of_kind(const std::vector<LogResidual>& all, const std::string& stack, bool several, bool tables,
                              const std::vector<cost::Spread>& generic, cost::Interval cost::Spread::*quantity) {
  std::vector<LogResidual> of_kind;
  std::copy_if(all.begin(), all.end(), std::back_inserter(of_kind),
               [&](const LogResidual& r) { return r.tables == tables; });
  if (!of_kind.empty()) return rounded(spread_over(of_kind, stack, several));
  for (const cost::Spread& spread : generic)
    if (spread.several_nodes == several && spread.stack == (tables ? cost::kGenericRecommender : cost::kGenericEager))
      return spread.*quantity;
  return {1, 1};
}

}  // namespace

cost::Intervals intervals_from(const std::vector<Row>& rows, const Cases& cases, const cost::CrossValidation& left_out,
                               const std::vector<cost::Stack>& stacks, const std::vector<cost::Spread>& generic) {
  std::map<std::string, const cost::LeftOutPrediction*> by_id;
  for (const cost::LeftOutPrediction& row : left_out.rows) by_id[row.source + "\n" + row.id] = &row;
  std::vector<LogResidual> time, memory;
  const StackNumbers as_they_are;
  Predictor predictor(as_they_are);
  for (const Case& one : cases.ready) {
    const Row& row = rows[one.row];
    LogResidual residual{0, row.setup.source, one.subject.pricing->stack().name, several_nodes(one),
                         row.setup.family == kRecommender};
    if (const auto found = by_id.find(row.setup.source + "\n" + row.setup.id); found != by_id.end()) {
      residual.value = std::log(found->second->measured_s / found->second->left_out_s);
      time.push_back(residual);
    }
    if (row.measured.memory_bytes) {
      residual.value = std::log(*row.measured.memory_bytes / predictor.predict(one).memory_peak);
      memory.push_back(residual);
    }
  }
  cost::Intervals out;
  std::vector<std::pair<std::string, bool>> names{{"", false}};
  for (const cost::Stack& stack : stacks) names.emplace_back(stack.name, is_of_tables(stack));
  for (const auto& [stack, tables] : names)
    for (const bool several : {false, true}) {
      const auto own = std::count_if(time.begin(), time.end(), [&, &name = stack](const LogResidual& r) {
        return r.stack == name && r.several_nodes == several;
      });
      out.spreads.push_back({stack, several, spread_of_kind(time, stack, several, tables, generic, &cost::Spread::time),
                             spread_of_kind(memory, stack, several, tables, generic, &cost::Spread::memory), own});
    }
  out.spreads.insert(out.spreads.end(), generic.begin(), generic.end());
  out.grounds = grounds_of(rows, cases);
  return out;
}

}  // namespace orrery::sim
