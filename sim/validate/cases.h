#pragma once
/// Rows prepared once and predicted often: with the stacks' own numbers, or with others in their place.
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cost/estimate/estimate.h"
#include "cost/parameters/validation.h"
#include "sim/validate/rows.h"
#include "sim/validate/translate.h"

namespace orrery::sim {

class Fabric;

struct Case {
  std::size_t row = 0;  ///< index in the rows
  Subject subject;
};

/// Whether its devices are in more than one node.
[[nodiscard]] bool several_nodes(const Case& one);

struct Cases {
  std::vector<Case> ready;
  std::vector<cost::LeftOutRow> left_out;  ///< with the reason
};

/// `progress` is called with the number of rows done; returning false stops, and what is done is returned.
[[nodiscard]] Cases make_cases(const std::vector<Row>& rows, Library library,
                               const std::function<bool(std::size_t)>& progress = {});

/// A stack's numbers: {stack, parameter} -> SI value.
using StackNumbers = std::map<std::pair<std::string, std::string>, double>;

/// Predicts with some of the stacks' numbers replaced. Prices are kept for equal machines and stacks, so use one
/// Predictor for many cases. Not thread-safe.
class Predictor {
 public:
  explicit Predictor(const StackNumbers& numbers) : numbers_(numbers) {}
  [[nodiscard]] cost::Estimate predict(const Case& one);
  /// Bytes of the worst device at its peak, as the row's figure counts them.
  [[nodiscard]] double memory_peak(const Case& one);
  /// Bytes that a device must have for the run to survive, whatever the row's memory figure counts.
  [[nodiscard]] double memory_needed(const Case& one);
  /// Only the time of a training step.
  [[nodiscard]] double seconds(const Case& one);
  /// The step replayed: its time is what `plan` and `simulate` report, its memory is the schedule's. The only
  /// prediction for a recommendation model, which has no closed form.
  [[nodiscard]] cost::Estimate replayed(const Case& one);

 private:
  struct Priced {
    cost::Pricing pricing;
    std::map<const void*, cost::Estimator> estimators;  // by model
  };
  Priced& priced(const Case& one);
  cost::Estimator& estimator(const Case& one);
  const StackNumbers& numbers_;
  std::map<const void*, std::shared_ptr<const Fabric>> fabrics_;  ///< by cluster
  std::map<const cost::Pricing*, Priced> prices_;                 ///< by the cases' own pricing; equal ones are merged
};

}  // namespace orrery::sim
