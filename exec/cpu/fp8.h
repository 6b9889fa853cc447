#pragma once
/// fp8 products on the CPU: operands rounded to the codes that tensor cores would read, and their values.
#include <array>

#include "exec/cpu/machine.h"
#include "models/fp8.h"

namespace orrery::exec {

/// The rounded operands of a product, in the memory that the call has for them.
struct RoundedOperands {
  Operand a, b;                               ///< codes, (m,k) and (n,k)
  std::array<float, 256> a_values, b_values;  ///< what each code stands for, its scale taken out again
};
/// Of a call of an fp8 product (models/fp8.h), whose operands are bf16.
[[nodiscard]] RoundedOperands round_operands(Machine& machine, const Call& call);

}  // namespace orrery::exec
