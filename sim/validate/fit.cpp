/// The loss over rows and its minimum.
#include "sim/validate/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/ensure.h"
#include "cost/parameters/parameters.h"
#include "sim/validate/grid_search.h"
#include "sim/validate/validate.h"

namespace orrery::sim {

namespace {

constexpr double kScatter = 0.05;            ///< usual error of a prediction, as a logarithm
constexpr std::size_t kMostOfASource = 200;  ///< evenly spread over a source: more rows add nothing new
constexpr double kCutOff = 0.7;              ///< a factor of two: the row's plan or time is not as stated

const Choice& choice_of(const std::string& parameter) {
  const auto found =
      std::find_if(choices().begin(), choices().end(), [&](const Choice& c) { return c.parameter == parameter; });
  ENSURE(found != choices().end(), "{} has no grid", parameter);
  return *found;
}

/// Half the squared distance from the usual value, in units of the prior's width.
double unbelief(const Choice& choice, double value) {
  const auto kind = cost::known_parameter(choice.parameter);
  ENSURE(kind && kind->prior > 0, "{} is never fitted", choice.parameter);
  const double z = std::log((value + choice.least) / (choice.usual + choice.least)) / kind->prior;
  return z * z / 2;
}

std::size_t nearest(const Choice& choice) {
  const auto at = std::min_element(choice.grid.begin(), choice.grid.end(), [&](double a, double b) {
    return std::abs(a - choice.usual) < std::abs(b - choice.usual);
  });
  return static_cast<std::size_t>(at - choice.grid.begin());
}

}  // namespace

StackFitter::StackFitter(const std::vector<Row>& rows, const Cases& cases, std::vector<StackFamily> families)
    : rows_(&rows), cases_(&cases), families_(std::move(families)), of_family_(families_.size()) {
  for (std::size_t i = 0; i < cases.ready.size(); ++i) {
    if (!rows[cases.ready[i].row].measured.seconds) continue;
    const std::string& stack = cases.ready[i].subject.pricing->stack().name;
    for (std::size_t f = 0; f < families_.size(); ++f)
      if (std::count(families_[f].stacks.begin(), families_[f].stacks.end(), stack) > 0) of_family_[f].push_back(i);
  }
}

StackNumbers StackFitter::numbers_at(const StackFamily& family, const std::vector<double>& values) const {
  StackNumbers out;
  for (const auto& [name, place] : family.follows) out[name] = values[place];
  return out;
}

StackNumbers StackFitter::usual(std::size_t family) const {
  std::vector<double> values;
  for (const NumberName& name : families_[family].free) values.push_back(choice_of(name.second).usual);
  return numbers_at(families_[family], values);
}

std::vector<double> StackFitter::predict(const std::vector<std::size_t>& cases, const StackNumbers& numbers) {
  std::vector<double>& kept = kept_[numbers];
  kept.resize(cases_->ready.size(), -1);
  Predictor predictor(numbers);
  std::vector<double> out;
  for (const std::size_t one : cases) {
    if (kept[one] < 0) kept[one] = predictor.seconds(cases_->ready[one]);
    out.push_back(kept[one]);
  }
  return out;
}

StackNumbers StackFitter::fit(std::size_t family, const std::function<bool(std::size_t)>& use,
                              const std::function<bool()>& go_on) {
  const StackFamily& of = families_[family];
  std::vector<std::size_t> used;
  std::map<std::string, double> count;  // by source
  const auto source = [&](std::size_t one) -> const std::string& {
    return (*rows_)[cases_->ready[one].row].setup.source;
  };
  std::map<std::string, std::vector<std::size_t>> by_source;
  for (const std::size_t one : of_family_[family])
    if (use(one)) by_source[source(one)].push_back(one);
  for (const auto& [name, of_source] : by_source) {
    const std::size_t taken = std::min(of_source.size(), kMostOfASource);
    for (std::size_t i = 0; i < taken; ++i) used.push_back(of_source[i * of_source.size() / taken]);
    count[name] = static_cast<double>(taken);
  }
  if (of.free.empty()) return {};
  if (used.empty()) return usual(family);
  std::vector<const Choice*> free;
  std::vector<std::size_t> sizes;
  GridPoint start;
  for (const NumberName& name : of.free) {
    free.push_back(&choice_of(name.second));
    sizes.push_back(free.back()->grid.size());
    start.push_back(nearest(*free.back()));
  }
  const auto values_at = [&](const GridPoint& point) {
    std::vector<double> values;
    for (std::size_t i = 0; i < point.size(); ++i) values.push_back(free[i]->grid[point[i]]);
    return values;
  };
  const auto loss = [&](const GridPoint& point) {
    const std::vector<double> values = values_at(point);
    const std::vector<double> seconds = predict(used, numbers_at(of, values));
    double sum = 0;
    for (std::size_t i = 0; i < used.size(); ++i) {
      const double measured = *(*rows_)[cases_->ready[used[i]].row].measured.seconds;
      sum += std::min(kCutOff, std::abs(std::log(seconds[i] / measured))) / kScatter /
             std::sqrt(count.at(source(used[i])));
    }
    for (std::size_t i = 0; i < values.size(); ++i) sum += unbelief(*free[i], values[i]);
    return sum;
  };
  return numbers_at(of, values_at(grid_search(sizes, start, loss, go_on).best));
}

namespace {

double median_error(const std::vector<double>& seconds, const std::vector<Row>& rows, const Cases& cases,
                    const std::vector<std::size_t>& places) {
  std::vector<double> errors;
  for (std::size_t i = 0; i < places.size(); ++i)
    errors.push_back(std::abs(seconds[i] / *rows[cases.ready[places[i]].row].measured.seconds - 1));
  return summary_of(std::move(errors)).median;
}

}  // namespace

std::vector<cost::FamilyFit> fit_stacks(StackFitter& fitter, const std::vector<Row>& rows, const Cases& cases,
                                        const std::vector<cost::Stack>& stacks, const std::function<bool()>& go_on) {
  std::vector<cost::FamilyFit> out;
  for (std::size_t f = 0; f < fitter.families().size(); ++f) {
    const StackFamily& family = fitter.families()[f];
    const std::vector<std::size_t>& places = fitter.cases_of(f);
    if (family.free.empty() || places.empty()) continue;
    cost::FamilyFit fit{family.stacks, places.size(), 0, 0, {}};
    const StackNumbers after = fitter.fit(
        f, [](std::size_t) { return true; }, go_on);
    fit.error_before = median_error(fitter.predict(places, {}), rows, cases, places);
    fit.error_after = median_error(fitter.predict(places, after), rows, cases, places);
    std::set<std::string> sources;
    for (const std::size_t one : places) sources.insert(rows[cases.ready[one].row].setup.source);
    const std::string chosen =
        fmt::format("{} {} published rows: {}", kChosen, places.size(), fmt::join(sources, ", "));
    for (const cost::Stack& stack : stacks)
      for (const cost::Parameter& p : stack.parameters)
        if (const auto at = family.follows.find({stack.name, p.name}); at != family.follows.end())
          fit.numbers.push_back({stack.name, p.name, p.value, after.at(at->first),
                                 family.free[at->second] == at->first ? chosen : p.source});
    out.push_back(std::move(fit));
  }
  return out;
}

namespace {

/// The quote that ends the text whose first character is at `i`; npos if there is none.
std::size_t end_of_text(const std::string& text, std::size_t i) {
  while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return i < text.size() ? i : std::string::npos;
}

}  // namespace

base::Result<std::string> rewritten_stack(std::string_view text, const std::string& file,
                                          const std::vector<cost::FittedNumber>& numbers) {
  std::string out(text);
  for (const cost::FittedNumber& number : numbers) {
    const auto kind = cost::known_parameter(number.parameter);
    ENSURE(kind.has_value(), "{} is not a known coefficient", number.parameter);
    const std::string begin = number.parameter + ": {value: ";
    constexpr std::string_view kSource = "source: \"";
    const std::size_t at = out.find(begin);
    const std::size_t source = at == std::string::npos ? at : out.find(kSource, at);
    const std::size_t end = source == std::string::npos ? source : end_of_text(out, source + kSource.size());
    if (end == std::string::npos || out.find('}', at) < source || out.compare(end, 2, "\"}") != 0)
      return base::fail(
          "V04", fmt::format("{}: {} has no row of the form `{}…, source: \"…\"}}`", file, number.parameter, begin));
    const std::string row = cost::parameter_row(number.parameter, number.after, kind->unit, number.source);
    out.replace(at, end + 2 - at, row, row.find(begin), std::string::npos);
  }
  return out;
}

}  // namespace orrery::sim
