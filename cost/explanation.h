#pragma once
/// What explains a prediction, as plain records: a plan with one thing changed, numbers that its step time hangs on,
/// its operators. sim/explain/ makes them, reports/ shows them. Seconds, bytes, FLOPs.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "cost/results.h"

namespace orrery::cost {

struct Variation {
  std::string change;                    ///< "micro-batch 4", "10 GB more memory"
  std::optional<Prediction> prediction;  ///< none: there is no such plan
  std::string refusal;                   ///< then why, in the words of a rule or of a search
  std::string code;                      ///< of the rule
};

/// By what a number is divided and multiplied to see what hangs on it.
inline constexpr double kSensitivityFactor = 1.25;

/// A number that a prediction rests on, and the step time with less and with more of it, all else equal.
struct Sensitivity {
  std::string what;                    ///< "bandwidth of NICs", "device.gemm.efficiency"
  std::string value, source, meaning;  ///< as it is: "25 GB/s"
  double less_s = 0, more_s = 0;       ///< of the step with the number divided, and multiplied
  [[nodiscard]] double swing() const { return std::abs(less_s - more_s); }
};

/// All executions of one kind of operator in one pass: of the mean rank and a step.
struct OperatorRow {
  std::string name, phase;  ///< "matmul", "backward"
  double count = 0, seconds = 0, flops = 0, bytes = 0;
};
struct Operators {
  std::vector<OperatorRow> rows;  ///< longest first
  /// Of the model's FLOPs as MFU counts them (full attention matrix, forward times 3), what masks leave out. Mean rank.
  double masked_flops = 0;
  double peak_flops = 0, bandwidth = 0;  ///< of a device, at the plan's precision; 0: unknown
};

}  // namespace orrery::cost
