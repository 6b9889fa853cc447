#pragma once
/// Chooses the stacks' numbers over measured rows. What is chosen is written in the stacks themselves: a number whose
/// source begins with `kChosen` is free, one whose source is "as NAME" follows NAME's (and its rows count for it);
/// everything else stays. Stacks that so depend on each other are fitted together.
///
/// The loss of a set of rows is the sum of |ln(predicted / measured)|, cut off where it says more about the row than
/// about the stack, in units of a usual scatter; a source of n rows weighs as sqrt(n), so that one source of many rows
/// does not decide alone. To it comes, for each number, half the square of its distance from what is usual, in units of
/// the width within which that is believed (ParameterKind::prior): the most probable numbers under Laplace's errors and
/// a normal prior, so that three rows cannot pull a number far.
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cost/parameters/validation.h"
#include "sim/validate/cases.h"

namespace orrery::sim {

/// How the source of a chosen number begins.
inline constexpr const char* kChosen = "coarse grid over";

/// A number that may be fitted: what is usual before any row is seen, the least difference that counts (added before
/// logarithms are taken, for numbers that may be 0), and the values it may take, ascending.
struct Choice {
  std::string parameter;
  double usual = 0;
  double least = 0;
  std::vector<double> grid;
};
[[nodiscard]] const std::vector<Choice>& choices();

using NumberName = std::pair<std::string, std::string>;  ///< stack, parameter

/// Stacks whose numbers hang together.
struct StackFamily {
  std::vector<std::string> stacks;            ///< sorted
  std::vector<NumberName> free;               ///< sorted
  std::map<NumberName, std::size_t> follows;  ///< every free number and every follower -> place in `free`
};

/// All families, those without free numbers too, by their first stack. A free number that choices() does not have is
/// an error (V03).
[[nodiscard]] base::Result<std::vector<StackFamily>> stack_families(const std::vector<cost::Stack>& stacks);

/// Measured rows as fits see them. Predictions are kept, so that fits to overlapping sets of rows are cheap.
class StackFitter {
 public:
  /// `rows` and `cases` must outlive it.
  StackFitter(const std::vector<Row>& rows, const Cases& cases, std::vector<StackFamily> families);

  [[nodiscard]] const std::vector<StackFamily>& families() const { return families_; }
  /// Places in cases.ready of a family's measured rows, ascending.
  [[nodiscard]] const std::vector<std::size_t>& cases_of(std::size_t family) const { return of_family_[family]; }
  /// The numbers that those of the family's cases choose for which `use` is true; without any, what is usual. `go_on`
  /// is asked often; when false, the best so far.
  [[nodiscard]] StackNumbers fit(std::size_t family, const std::function<bool(std::size_t)>& use,
                                 const std::function<bool()>& go_on = {});
  /// What is usual, for all numbers of a family that are free or follow.
  [[nodiscard]] StackNumbers usual(std::size_t family) const;
  /// Seconds of these cases with these numbers.
  [[nodiscard]] std::vector<double> predict(const std::vector<std::size_t>& cases, const StackNumbers& numbers);

 private:
  [[nodiscard]] StackNumbers numbers_at(const StackFamily& family, const std::vector<double>& values) const;
  const std::vector<Row>* rows_;
  const Cases* cases_;
  std::vector<StackFamily> families_;
  std::vector<std::vector<std::size_t>> of_family_;
  std::map<StackNumbers, std::vector<double>> kept_;  ///< seconds by case; negative: not yet asked for
};

/// Fits every family to all its measured rows. A family without measured rows keeps its numbers.
[[nodiscard]] std::vector<cost::FamilyFit> fit_stacks(StackFitter& fitter, const std::vector<Row>& rows,
                                                      const Cases& cases, const std::vector<cost::Stack>& stacks,
                                                      const std::function<bool()>& go_on = {});

/// The text of a stack's file with some of its numbers and their sources replaced and everything else as it was. An
/// error (V04) names a number that has no line of the form `NAME: {value: …, source: "…"}`.
[[nodiscard]] base::Result<std::string> rewritten_stack(std::string_view text, const std::string& file,
                                                        const std::vector<cost::FittedNumber>& numbers);

}  // namespace orrery::sim
