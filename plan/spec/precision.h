#pragma once
/// Which types a device trains in.
#include "clusters/cluster.h"
#include "models/operators/op.h"

namespace orrery::plan {

/// Whether the device computes products in this type: NVIDIA's fp16 from Volta, bf16 and tf32 from Ampere, fp8 from Ada
/// and Hopper; others what their files give. CPU ranks round to any.
[[nodiscard]] bool computes_in(const clusters::Device& device, models::DType type);

/// The default type to train in on this device: bf16 where it has units for it, else fp16; fp32 on CPU ranks.
[[nodiscard]] models::DType usual_precision(const clusters::Device& device);

/// The nearest type to one that the device lacks.
[[nodiscard]] models::DType instead_of(const clusters::Device& device, models::DType type);

}  // namespace orrery::plan
