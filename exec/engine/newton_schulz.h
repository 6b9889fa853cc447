#pragma once
/// Newton-Schulz as Muon's public code has it (github.com/KellerJordan/Muon, zeropower_via_newtonschulz5), once for all
/// backends: x = linear x + (cubic A + quintic A A) x with A = x x^T, from x over its norm on. It brings singular
/// values of 0.003 and more near 1, and 0 stays.
namespace orrery::exec {

struct NewtonSchulz {
  static constexpr float kLinear = 3.4445F, kCubic = -4.7750F, kQuintic = 2.0315F;
  static constexpr double kGuard = 1e-7;  ///< beside the norm
};

}  // namespace orrery::exec
