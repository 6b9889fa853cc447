/// Types by device.
#include "plan/spec/precision.h"

namespace orrery::plan {

using models::DType;

bool computes_in(const clusters::Device& device, DType type) {
  if (device.kind == clusters::DeviceKind::cpu) return true;
  // A device file may give one of the two 16-bit types for both; only Volta lacks bf16.
  if (type == DType::bf16) return device.architecture != clusters::Architecture::volta;
  if (type == DType::fp4 || type == DType::fp8 || type == DType::tf32)
    return device.peak.count(models::name_of(type)) > 0;
  return true;
}

DType usual_precision(const clusters::Device& device) {
  if (device.kind == clusters::DeviceKind::cpu) return DType::fp32;
  return computes_in(device, DType::bf16) ? DType::bf16 : DType::fp16;
}

DType instead_of(const clusters::Device& device, DType type) {
  return type == DType::tf32 ? DType::fp32 : usual_precision(device);
}

}  // namespace orrery::plan
