#pragma once
/// The power that a step takes from the grid, by what its devices do in it (docs/formulas.md, power).
#include "cost/results.h"

namespace orrery::cost {

/// How much power a device draws in each state, from 0 (idle) to 1 (its rated power); computing draws the rated power.
/// From MLPerf Training v4.0's power logs of one site (Sustainable Metal Cloud, Llama 2 70B LoRA on 64 H100s).
inline constexpr double kMovingShare = 0.45;   ///< messages and copies that computation does not hide
inline constexpr double kWaitingShare = 0.12;  ///< a context is open, but nothing runs

/// Energy of all nodes, for the `breakdown` of a step of `step_time` seconds. What the breakdown does not explain
/// counts as computing. All 0 if the device has no rated power.
[[nodiscard]] Energy energy_of(const Breakdown& breakdown, double step_time, const clusters::Cluster& cluster);

}  // namespace orrery::cost
