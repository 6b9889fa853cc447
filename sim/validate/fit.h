#pragma once
/// Fits the stacks' numbers to measured rows. The stacks themselves state what is fitted: a number whose source begins
/// with `kChosen` is free, one whose source is "as NAME" follows NAME's number (and its rows count for it); all others
/// are fixed. Stacks that depend on each other in this way are fitted together.
///
/// The loss of a set of rows is the sum of |ln(predicted / measured)| in units of a typical scatter. Each term is cut
/// off where it says more about the row than about the stack. A source of n rows weighs sqrt(n), so that one source of
/// many rows does not decide alone. Added to this, for each number, is half the squared distance from its usual value,
/// in units of its prior's width (ParameterKind::prior). The minimum is the most probable set of numbers under Laplace
/// errors and a normal prior, so that three rows cannot move a number far.
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cost/parameters/validation.h"
#include "sim/validate/cases.h"

namespace orrery::sim {

/// The beginning of a fitted number's source.
inline constexpr const char* kChosen = "coarse grid over";

/// A number that may be fitted: its usual value before any row is seen, the least difference that counts (added before
/// taking logarithms, for numbers that may be 0), and the values that it may take, ascending.
struct Choice {
  std::string parameter;
  double usual = 0;
  double least = 0;
  std::vector<double> grid;
};
[[nodiscard]] const std::vector<Choice>& choices();

using NumberName = std::pair<std::string, std::string>;  ///< stack, parameter

/// Stacks that share numbers.
struct StackFamily {
  std::vector<std::string> stacks;            ///< sorted
  std::vector<NumberName> free;               ///< sorted
  std::map<NumberName, std::size_t> follows;  ///< every free number and every follower -> index in `free`
};

/// All families, including those without free numbers, by their first stack. A free number that is not in choices() is
/// an error (V03).
[[nodiscard]] base::Result<std::vector<StackFamily>> stack_families(const std::vector<cost::Stack>& stacks);

/// Whether a number of the stack, or the number that it follows, was fitted to published rows of this source, as the
/// numbers' own sources tell. `source` begins with the rows' source: "PTD-P (Narayanan SC21), table 1".
[[nodiscard]] bool was_fitted_to(const std::vector<cost::Stack>& stacks, const std::string& stack,
                                 std::string_view source);

/// Measured rows for fits. Predictions are kept, so that fits to overlapping sets of rows are cheap.
class StackFitter {
 public:
  /// `rows` and `cases` must outlive it.
  StackFitter(const std::vector<Row>& rows, const Cases& cases, std::vector<StackFamily> families);

  [[nodiscard]] const std::vector<StackFamily>& families() const { return families_; }
  /// Indices in cases.ready of a family's measured rows, ascending.
  [[nodiscard]] const std::vector<std::size_t>& cases_of(std::size_t family) const { return of_family_[family]; }
  /// Fits the numbers to the family's cases for which `use` is true; without any, returns the usual values. `go_on` is
  /// called often; when it returns false, the best so far is returned.
  [[nodiscard]] StackNumbers fit(std::size_t family, const std::function<bool(std::size_t)>& use,
                                 const std::function<bool()>& go_on = {});
  /// The usual values of all numbers of a family that are free or follow.
  [[nodiscard]] StackNumbers usual(std::size_t family) const;
  /// Seconds of these cases with these numbers.
  [[nodiscard]] std::vector<double> predict(const std::vector<std::size_t>& cases, const StackNumbers& numbers);

 private:
  [[nodiscard]] StackNumbers numbers_at(const StackFamily& family, const std::vector<double>& values) const;
  const std::vector<Row>* rows_;
  const Cases* cases_;
  std::vector<StackFamily> families_;
  std::vector<std::vector<std::size_t>> of_family_;
  std::map<StackNumbers, std::vector<double>> kept_;  ///< seconds by case; negative: not computed yet
};

/// Fits every family to all its measured rows. A family without measured rows keeps its numbers.
[[nodiscard]] std::vector<cost::FamilyFit> fit_stacks(StackFitter& fitter, const std::vector<Row>& rows,
                                                      const Cases& cases, const std::vector<cost::Stack>& stacks,
                                                      const std::function<bool()>& go_on = {});

/// The text of a stack's file with some numbers and their sources replaced, otherwise unchanged. An error (V04) names a
/// number that has no row of the form `NAME: {value: …, source: "…"}`.
[[nodiscard]] base::Result<std::string> rewritten_stack(std::string_view text, const std::string& file,
                                                        const std::vector<cost::FittedNumber>& numbers);

}  // namespace orrery::sim
