/// Types by device.
#include "plan/spec/precision.h"

namespace orrery::plan {

using models::DType;

bool computes_in(const clusters::Device& device, DType type) {
  using clusters::Architecture;
  if (device.kind == clusters::DeviceKind::cpu) return true;
  const auto listed = [&](DType one) { return device.peak.count(models::name_of(one)) > 0; };
  if (type == DType::fp4 || type == DType::fp8 || type == DType::tf32) return listed(type);
  if (type != DType::bf16 && type != DType::fp16) return true;
  if (type == DType::bf16 && device.architecture == Architecture::volta) return false;
  // Of NVIDIA's architectures a file may give one of the two 16-bit types for both. Others lack the one that theirs
  // leave out: P100s bf16, TPUs fp16.
  const DType other = type == DType::bf16 ? DType::fp16 : DType::bf16;
  return device.architecture != Architecture::generic || listed(type) || !listed(other);
}

DType usual_precision(const clusters::Device& device) {
  if (device.kind == clusters::DeviceKind::cpu) return DType::fp32;
  return computes_in(device, DType::bf16) ? DType::bf16 : DType::fp16;
}

DType instead_of(const clusters::Device& device, DType type) {
  return type == DType::tf32 ? DType::fp32 : usual_precision(device);
}

}  // namespace orrery::plan
