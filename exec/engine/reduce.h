#pragma once
/// Element-wise reduction of host vectors, in a fixed order, for transports without MPI.
#include <bit>
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

/// Sums over 2, 4, 8 … members are binary trees of them, so that a sum of samples does not depend on how many ranks
/// share the samples (exec/cpu/sample_blocks.h): how often two sums, the latest ones, are joined after member `i` came.
[[nodiscard]] constexpr int joins_after(std::size_t i) {
  return std::countr_one(i);
}

}  // namespace orrery::exec
