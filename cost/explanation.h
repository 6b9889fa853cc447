#pragma once
/// Explanations of a prediction, as plain records: the plan with one thing changed, the numbers that its step time is
/// sensitive to, its operators. sim/explain/ makes them, reports/ shows them. Seconds, bytes, FLOPs.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "cost/results.h"

namespace orrery::cost {

struct Variation {
  std::string change;                    ///< "micro-batch 4", "10 GB more memory"
  std::optional<Prediction> prediction;  ///< none: no such plan exists
  std::string refusal;  ///< otherwise the reason, in the words of a rule or of a search; beside a prediction, why the
                        ///< change is of no use to this plan if it is not faster
  std::string code;     ///< the rule's
  std::optional<double> fits_probability = {};  ///< with the predicted memory; none where that is exact
  double least_probability = 0;                 ///< the probability with which the job's plans must fit
};

/// The factor by which a number is divided and multiplied in a sensitivity study.
inline constexpr double kSensitivityFactor = 1.25;

/// A number that a prediction rests on, and the step time when it is smaller and larger, all else equal.
struct Sensitivity {
  std::string what;                   ///< "bandwidth of NICs", "device.gemm.efficiency"
  double value = 0;                   ///< the unchanged number
  std::string unit, source, meaning;  ///< of it; "B/s"
  double less_s = 0, more_s = 0;      ///< step time with the number divided, and multiplied
  [[nodiscard]] double swing() const { return std::abs(less_s - more_s); }
};

/// All executions of one kind of operator in one pass; means over ranks, per step.
struct OperatorRow {
  std::string name, phase;  ///< "matmul", "backward"
  double count = 0, seconds = 0, flops = 0, bytes = 0;
};
struct Operators {
  std::vector<OperatorRow> rows;  ///< longest first
  /// Model FLOPs that masks skip although MFU counts them (full attention matrix, forward times 3). Of the mean rank.
  double masked_flops = 0;
  double peak_flops = 0, bandwidth = 0;  ///< of a device, at the plan's precision; 0: unknown
};

}  // namespace orrery::cost
