#pragma once
/// The MLP's activations, each listed once: its name in model files, whether it is gated, what its operators count. The
/// formulas are in exec/engine/activations.h, for every backend. Adding an activation takes an entry here and a formula
/// there.
#include <cstdint>

namespace orrery::models {

enum class Activation : std::uint8_t {
  gelu,          ///< Hendrycks and Gimpel 2016, in either form (Model::gelu)
  swiglu,        ///< silu(gate) * up (Shazeer 2020)
  relu,          ///< max(x, 0)
  squared_relu,  ///< max(x, 0)^2 (So et al. 2021, "Primer"; Nemotron)
  geglu,         ///< gelu(gate) * up, GELU in its tanh form (Shazeer 2020; Gemma)
  /// (up + 1) * gate sigmoid(1.702 gate), the gate at most 7 and up within 7 (Agarwal et al. 2025, gpt-oss, section 2)
  clamped_swiglu,
  /// softplus(p) x^2 + x/2 for x > 0, else (1/2 + softplus(n)) (exp(x) - 1 - x) + x/2; each layer trains its p and n
  /// (Huang and Schlag 2024, "Deriving Activation Functions Using Integration"; Apertus)
  xielu,
};

/// The function of one variable inside the operators activate, gate and their gradients. The first three activations
/// have operators of their own, with GELU and silu built in, and so has xIELU.
enum class Function : std::uint8_t { none, squared_relu, gelu, silu, clamped };

struct ActivationTraits {
  const char* name;                  ///< in model files
  bool gated;                        ///< the first product makes a gate and the values that it multiplies
  Function function;                 ///< none: it has operators of its own
  double forward_flops, grad_flops;  ///< per element; they matter only where memory is not the limit
};

/// In the enumeration's order.
inline constexpr ActivationTraits kActivations[] = {
    {"gelu", false, Function::none, 12, 20},  {"swiglu", true, Function::none, 10, 10},
    {"relu", false, Function::none, 1, 1},    {"squared_relu", false, Function::squared_relu, 2, 3},
    {"geglu", true, Function::gelu, 13, 24},  {"clamped_swiglu", true, Function::clamped, 14, 18},
    {"xielu", false, Function::none, 16, 24},
};

[[nodiscard]] constexpr const ActivationTraits& traits_of(Activation activation) {
  return kActivations[static_cast<int>(activation)];
}
/// The activation whose operators apply this function.
[[nodiscard]] constexpr const ActivationTraits& traits_of(Function function) {
  for (const ActivationTraits& one : kActivations)
    if (one.function == function) return one;
  return kActivations[0];
}

}  // namespace orrery::models
