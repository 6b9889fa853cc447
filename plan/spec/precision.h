#pragma once
/// Which types a device trains in.
#include "clusters/cluster.h"
#include "models/op.h"

namespace orrery::plan {

/// Whether the device's matrix units take this type: fp16 from Volta, bf16 and tf32 from Ampere, fp8 from Ada and
/// Hopper. CPU ranks round to any.
[[nodiscard]] bool computes_in(const clusters::Device& device, models::DType type);

/// What one trains in on this device where nobody says: bf16 where it has units for it, else fp16; CPU ranks fp32.
[[nodiscard]] models::DType usual_precision(const clusters::Device& device);

/// What comes nearest to a type that the device lacks.
[[nodiscard]] models::DType instead_of(const clusters::Device& device, models::DType type);

}  // namespace orrery::plan
