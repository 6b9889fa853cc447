#pragma once
/// Newton-Schulz as in Muon's public code (github.com/KellerJordan/Muon, zeropower_via_newtonschulz5), once for all
/// backends: x = linear x + (cubic A + quintic A A) x with A = x x^T, starting from x / its norm. It brings singular
/// values of 0.003 and more near 1, and leaves 0 at 0.
namespace orrery::exec {

struct NewtonSchulz {
  static constexpr float kLinear = 3.4445F, kCubic = -4.7750F, kQuintic = 2.0315F;
  static constexpr double kGuard = 1e-7;  ///< added to the norm, so that 0 is not divided by 0
};

}  // namespace orrery::exec
