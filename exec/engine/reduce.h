#pragma once
/// Element-wise reduction of host vectors, in a fixed order, for transports without MPI.
#include <cstddef>
#include <cstdint>

#include "models/dtype.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// into[i] = into[i] (+ or max) from[i]. bf16 and fp16 are summed in fp32 and rounded to nearest even. Throws Failure
/// for fp8.
void reduce_into(std::byte* into, const std::byte* from, std::int64_t elements, models::DType dtype,
                 plan::Reduce reduce);

/// The same for 16-bit vectors, into fp32, so that a sum of several is rounded only once.
void reduce_wide(float* into, const std::byte* from, std::int64_t elements, models::DType dtype, plan::Reduce reduce);

}  // namespace orrery::exec
