#pragma once
/// How far measured values lie from predictions, by software and by whether a run crosses nodes: what makes an interval
/// of a prediction. Made from rows that the prediction had not seen (`orrery validate --intervals`), kept in
/// cost/intervals.yaml, so that any prediction carries one without a measurement.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/parameters/stack.h"
#include "cost/parameters/validation.h"
#include "models/model.h"

namespace orrery::cost {

/// Measured over predicted: 10th and 90th percentile, of step times and of peak memory.
struct Spread {
  std::string stack;  ///< empty: software of which no row is known
  bool several_nodes = false;
  Interval time, memory;
  std::int64_t rows = 0;  ///< measured step times of this very kind; those of other kinds count less
  bool operator==(const Spread&) const = default;
};

/// What runs of a stack were of. Its numbers say less of another kind of device, and of mixtures where all were dense.
struct Ground {
  std::string stack, device;
  clusters::Architecture architecture = clusters::Architecture::ampere;
  double peak = 0, memory_bandwidth = 0;  ///< of the device: FLOP/s in 16 bits, bytes/s
  bool mixtures = false;
  bool operator==(const Ground&) const = default;
};

struct Intervals {
  std::vector<Spread> spreads;
  std::vector<Ground> grounds;      ///< a stack that has none is taken at its word everywhere
  std::optional<Spread> elsewhere;  ///< of a stack's predictions where it has no ground
};

/// What is predicted, as far as it matters for how sure that is. Without a device: what the stack's runs were of.
struct Setting {
  const clusters::Device* device = nullptr;
  bool mixture = false;
  bool adapters = false;  ///< they alone train (models/lora.h)
};
[[nodiscard]] Setting setting_of(const clusters::Cluster& cluster, const models::Model& model);
[[nodiscard]] Ground ground_of(const std::string& stack, const clusters::Device& device, bool mixtures);
/// Whether some run of the stack was of such a model on a device like this: of the same architecture, peak and memory
/// bandwidth within a factor of 1.5.
[[nodiscard]] bool has_ground(const Intervals& intervals, const std::string& stack, const Setting& setting);

/// The spread of the stack, or that of software unknown; nothing when there is neither.
[[nodiscard]] std::optional<Spread> spread_of(const Intervals& intervals, const std::string& stack, bool several_nodes);
/// The same of a stack at hand: what was fitted to runs has its own; where it has no ground, it is as wide as
/// `elsewhere` at least.
[[nodiscard]] std::optional<Spread> spread_of(const Intervals& intervals, const Stack& stack, bool several_nodes,
                                              const Setting& setting = {});

/// What a prediction of a stack rests on. `stands_in`: it is not the software in question, but taken for it.
[[nodiscard]] Basis basis_of(const Intervals& intervals, const Stack& stack, bool stands_in = false);
/// The same in words, with how many runs and what was left out.
[[nodiscard]] std::string basis_text(const Intervals& intervals, const Stack& stack, bool several_nodes,
                                     bool stands_in = false, const Setting& setting = {});

/// Probability that what is predicted to need `predicted` bytes fits `capacity`, where measured over predicted lies in
/// `factors` four times of five and its logarithm is normal.
[[nodiscard]] double fits_probability(double predicted, double capacity, const Interval& factors);
[[nodiscard]] Interval around(double predicted, const Interval& factors);

/// cost/intervals.yaml; strict. write then parse gives the same values.
[[nodiscard]] base::Result<Intervals> parse_intervals(std::string_view text, std::string file);
[[nodiscard]] std::string write_intervals(const Intervals& intervals);

}  // namespace orrery::cost
