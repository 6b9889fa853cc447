#pragma once
/// One operator with all arguments of its call. Operands are checked before anything is queued, because a kernel that
/// reads past an operand reads another buffer of the arena, which nothing would detect.
#include <fmt/core.h>

#include <type_traits>

#include "base/ensure.h"
#include "exec/cuda/kernels/updates.h"
#include "exec/cuda/products.h"
#include "exec/engine/backend.h"

namespace orrery::exec::cuda {

template <class T>
constexpr models::DType dtype_of() {
  if constexpr (std::is_same_v<T, __half>) return models::DType::fp16;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return models::DType::bf16;
  return models::DType::fp32;
}

/// Calls body(std::type_identity<T>) with the type that kernels use for `dtype`.
template <class Body>
void by_type(models::DType dtype, const char* what, const Body& body) {
  switch (dtype) {
    case models::DType::fp32: return body(std::type_identity<float>());
    case models::DType::bf16: return body(std::type_identity<__nv_bfloat16>());
    case models::DType::fp16: return body(std::type_identity<__half>());
    case models::DType::fp4:
    case models::DType::fp8:
    case models::DType::tf32:
    case models::DType::int32:
    case models::DType::int64:
    case models::DType::uint8: break;
  }
  throw Failure(
      fmt::format("the CUDA backend computes in fp32, bf16 and fp16, not {} in {}", what, models::name_of(dtype)));
}

struct Call {
  const models::Op& op;
  std::span<const Operand> in, out;
  const StepContext& context;
  cudaStream_t stream;
  KernelScratch scratch;
  DropoutDraw draw = {};  ///< if the operator has a dropout rate

  [[nodiscard]] const Operand& checked(bool input, std::size_t index, std::int64_t elements) const {
    const std::span<const Operand> all = input ? in : out;
    const char* side = input ? "input" : "output";
    ENSURE(index < all.size() && all[index].data != nullptr, "{} has no {} {}", models::name_of(op.kind), side, index);
    ENSURE(all[index].elements >= elements, "{}, {} {}: {} elements where {} are needed", models::name_of(op.kind),
           side, index, all[index].elements, elements);
    return all[index];
  }
  [[nodiscard]] static bool has(std::span<const Operand> all, std::size_t index) {
    return index < all.size() && all[index].data != nullptr;
  }
  template <class T>
  [[nodiscard]] T* typed(bool input, std::size_t index, std::int64_t elements) const {
    const Operand& operand = checked(input, index, elements);
    if (operand.dtype != dtype_of<T>())
      throw Failure(fmt::format("the CUDA backend has no {} with {} {} in {} where {} is expected",
                                models::name_of(op.kind), input ? "input" : "output", index,
                                models::name_of(operand.dtype), models::name_of(dtype_of<T>())));
    return reinterpret_cast<T*>(operand.data);
  }
  template <class T = float>
  [[nodiscard]] const T* input(std::size_t index, std::int64_t elements) const {
    return typed<T>(true, index, elements);
  }
  template <class T = float>
  [[nodiscard]] const T* optional(std::size_t index, std::int64_t elements) const {
    return has(in, index) ? input<T>(index, elements) : nullptr;
  }
  template <class T = float>
  [[nodiscard]] T* output(std::size_t index, std::int64_t elements) const {
    return typed<T>(false, index, elements);
  }
  template <class T = float>
  [[nodiscard]] T* optional_output(std::size_t index, std::int64_t elements) const {
    return has(out, index) ? output<T>(index, elements) : nullptr;
  }
  [[nodiscard]] const std::int32_t* ids(std::size_t index, std::int64_t elements) const {
    return reinterpret_cast<const std::int32_t*>(checked(true, index, elements).data);
  }
  /// Vectors of any floating type, for updates; null if optional and absent.
  [[nodiscard]] Floats floats(const Operand& operand) const {
    if (operand.dtype == models::DType::fp32) return {operand.data, Stored::fp32};
    if (operand.dtype == models::DType::bf16) return {operand.data, Stored::bf16};
    if (operand.dtype == models::DType::fp16) return {operand.data, Stored::fp16};
    throw Failure(fmt::format("the CUDA backend has no {} on values in {}", models::name_of(op.kind),
                              models::name_of(operand.dtype)));
  }
  [[nodiscard]] Floats input_floats(std::size_t index, std::int64_t elements) const {
    return floats(checked(true, index, elements));
  }
  [[nodiscard]] Floats output_floats(std::size_t index, std::int64_t elements) const {
    return floats(checked(false, index, elements));
  }
  [[nodiscard]] Floats optional_output_floats(std::size_t index, std::int64_t elements) const {
    return has(out, index) ? output_floats(index, elements) : Floats{};
  }
};

/// The product of a call, with its sizes and types checked.
[[nodiscard]] Product product_of(const Call& call);

/// Families of operators that would make exec/cuda/operators.cpp too long.
void run_masked(const Call& call);       ///< BERT's own
void run_compression(const Call& call);  ///< values in fewer bits
/// Throws: tables outside the device's memory run only on CPU ranks.
[[noreturn]] void refuse_tiers(const models::Op& op);
[[noreturn]] void refuse_on_cuda(const models::Op& op);
void refuse_attention(const models::Op& op);    ///< with sinks, or values of a width of their own
void refuse_value_norms(const models::Op& op);  ///< of head_norm
void run_latent(const Call& call);              ///< latent attention's
/// Whether an operator works on rows in slots; its last operand then says how many rows are there
/// (models/operators/op.h).
[[nodiscard]] bool runs_in_slots(const models::Op& op);
/// A product of operands in two types, one of them fp32. False, with nothing queued, if both have the same type.
[[nodiscard]] bool run_mixed_product(const Call& call);

}  // namespace orrery::exec::cuda
