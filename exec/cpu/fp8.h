#pragma once
/// fp8 products on the CPU: rounds operands to the codes that tensor cores would read, and gives the codes' values.
#include <array>

#include "exec/cpu/machine.h"
#include "models/operators/fp8.h"

namespace orrery::exec {

/// A product's rounded operands, in the memory that its call provides.
struct RoundedOperands {
  Operand a, b;                               ///< codes, (m,k) and (n,k)
  std::array<float, 256> a_values, b_values;  ///< the value of each code, without its scale
};
/// For a call of an fp8 product (models/operators/fp8.h) with bf16 operands.
[[nodiscard]] RoundedOperands round_operands(Machine& machine, const Call& call);

}  // namespace orrery::exec
