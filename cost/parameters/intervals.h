#pragma once
/// How far measurements lie from predictions, by software and by whether a run crosses nodes: the basis of a
/// prediction's interval. Made from rows that the fit has not seen (`orrery validate --intervals`), and kept in
/// cost/intervals.yaml, so that a prediction has an interval without any measurement.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/parameters/ground.h"
#include "cost/parameters/stack.h"
#include "cost/parameters/validation.h"
#include "models/model.h"

namespace orrery::cost {

/// The name of the spreads that rows of strangers show: software without runs of its own, as it is predicted. Carried
/// rows, taken as if their software were unknown, are the generic stacks' evidence.
inline constexpr const char* kStrangers = "strangers";

/// A spread of which no row shows anything.
inline constexpr Interval kNothingSeen = {1, 1};

/// Measured over predicted: 10th and 90th percentile, of step times and of peak memory.
struct Spread {
  std::string stack;  ///< empty: software without any known row
  bool several_nodes = false;
  Interval time, memory;
  std::int64_t rows = 0;  ///< measured step times of exactly this kind; others count with less weight
  bool operator==(const Spread&) const = default;
};

/// Whether this is one of the stacks for which the spreads of unknown software are made: eager, compiled, of tables.
[[nodiscard]] bool is_kind(const std::string& stack);

struct Intervals {
  std::vector<Spread> spreads;
  std::vector<Ground> grounds;      ///< empty: every stack is trusted everywhere
  std::optional<Spread> elsewhere;  ///< for a stack's predictions outside its ground
};

/// The aspects of a prediction that determine its uncertainty. Without a device: what the stack's runs covered.
struct Setting {
  const clusters::Device* device = nullptr;
  bool mixture = false;
  bool adapters = false;  ///< only adapters train (models/lora.h)
  bool states = false;    ///< of mixers that read in order, of which nobody's measured run is among the rows
  bool indexed = false;   ///< attention reads chosen tokens alone: likewise
};
[[nodiscard]] Setting setting_of(const clusters::Cluster& cluster, const models::Model& model);
[[nodiscard]] Ground ground_of(const std::string& stack, const Setting& setting);  ///< which has a device
/// Whether some run of the stack had such a model on a similar device: same architecture, peak and memory bandwidth
/// within a factor of 1.5. A stack without runs has ground nowhere. Of a stack fitted to a user's runs, those count; a
/// file that does not say what they were of is trusted everywhere.
[[nodiscard]] bool has_ground(const Intervals& intervals, const Stack& stack, const Setting& setting);

/// The spread of the stack, or that of unknown software; nothing if there is neither. Of the generic stacks of language
/// models, with strangers' spread of times, not of memory: so wide, runs that died would fit (docs/validation.md).
[[nodiscard]] std::optional<Spread> spread_of(const Intervals& intervals, const std::string& stack, bool several_nodes);
/// The same for a loaded stack: one fitted to runs has its own spread; outside its ground, the spread is at least as
/// wide as `elsewhere`, and as that of the stack which a fit began with. The memory of a fit is so only for kinds of
/// models that none of its runs was of, on whatever device.
[[nodiscard]] std::optional<Spread> spread_of(const Intervals& intervals, const Stack& stack, bool several_nodes,
                                              const Setting& setting = {});

/// The basis of a stack's predictions. `stands_in`: the stack is used in place of the software in question.
[[nodiscard]] Basis basis_of(const Intervals& intervals, const Stack& stack, bool stands_in = false);
/// The same in words, with the number of runs and what was left out.
[[nodiscard]] std::string basis_text(const Intervals& intervals, const Stack& stack, bool several_nodes,
                                     bool stands_in = false, const Setting& setting = {});

/// The probability that a plan with `predicted` bytes fits `capacity`, if measured over predicted lies in `factors`
/// with a probability of 80 % and its logarithm is normal.
[[nodiscard]] double fits_probability(double predicted, double capacity, const Interval& factors);
/// The most bytes that a prediction may say for a plan that fits `capacity` with at least `probability`, in (0, 1).
[[nodiscard]] double most_that_fits(double capacity, const Interval& factors, double probability);
[[nodiscard]] Interval around(double predicted, const Interval& factors);

/// Format of cost/intervals.yaml; strict. Writing and parsing gives the same values. A spread without `memory` says
/// nothing of it.
[[nodiscard]] base::Result<Intervals> parse_intervals(std::string_view text, std::string file);
[[nodiscard]] std::string write_intervals(const Intervals& intervals);

}  // namespace orrery::cost
