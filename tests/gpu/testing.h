#pragma once
/// Runs one operator on the CPU backend and on the CUDA backend and compares. The CUDA backend is either the module on
/// a real GPU (program test_gpu) or the same sources on the emulated runtime (program test_cuda_emulated).
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "exec/backend.h"
#include "models/op.h"

namespace orrery::exec::gpu_test {

/// The backend under test, one for the whole program.
[[nodiscard]] Backend& cuda_backend();
/// Variants of execution that must give the same bits: orders of threads when emulated, mere repetition on a GPU.
[[nodiscard]] int variants();
void choose_variant(int variant);

/// An operand: floats, stored as `dtype` says (uint8: as whole numbers), or token ids, or absent; or the memory of an
/// input (an operator working in place).
struct Slot {
  models::DType dtype = models::DType::fp32;
  std::vector<float> floats;
  std::vector<std::int32_t> ids;
  int same_as_input = -1;
  [[nodiscard]] std::int64_t elements() const {
    return static_cast<std::int64_t>(ids.empty() ? floats.size() : ids.size());
  }
};

struct Case {
  std::string name;
  models::Op op;
  std::vector<Slot> in, out;
  std::vector<ElementRange> ranges;
  StepContext context;
  double tolerance = 2e-6;  ///< of ||cuda - cpu|| / ||cpu|| per output
};

/// All operands after the operator ran: inputs, then outputs.
[[nodiscard]] std::vector<std::vector<float>> run_on(Backend& backend, std::byte* arena, const Case& c);
/// Bytes that run_on needs for this case.
[[nodiscard]] std::int64_t arena_bytes(const Case& c);

[[nodiscard]] Slot random_floats(std::mt19937& random, std::int64_t elements, float scale = 1);
[[nodiscard]] Slot random_ids(std::mt19937& random, std::int64_t elements, std::int32_t bound);
[[nodiscard]] Slot zeros(std::int64_t elements);
/// Values that an operator must overwrite: NaN.
[[nodiscard]] Slot unset(std::int64_t elements);
/// An output that has an input's memory.
[[nodiscard]] Slot in_place(int input);
/// The same values in another type.
[[nodiscard]] Slot of(Slot slot, models::DType dtype);

[[nodiscard]] double relative_difference(const std::vector<float>& a, const std::vector<float>& b);

/// Cases of every operator, with awkward sizes; those of 16-bit types are the same with operands of those types.
[[nodiscard]] std::vector<Case> all_cases();
[[nodiscard]] std::vector<Case> update_cases();       ///< norms, loss scaling and updates, in all types
[[nodiscard]] std::vector<Case> masked_cases();       ///< BERT's operators, in fp32
[[nodiscard]] std::vector<Case> compression_cases();  ///< in all types
[[nodiscard]] std::vector<Case> dropout_cases();      ///< and ReLU, in fp32
[[nodiscard]] std::vector<Case> sparse_cases();       ///< in all types
[[nodiscard]] std::vector<Case> rounded_cases();      ///< products in fp8 and tf32
/// The case with activations and weights in `dtype`, and gradients of weights in theirs.
[[nodiscard]] Case narrowed(const Case& c, models::DType dtype);

/// Operators over shared operands, run as one step.
struct Chain {
  std::string name;
  std::vector<Slot> slots;
  struct Link {
    models::Op op;
    std::vector<int> in, out;  ///< slots; -1: absent
  };
  std::vector<Link> links;
  double tolerance = 2e-6;
  StepContext context = {};
};
/// All slots after the chain ran.
[[nodiscard]] std::vector<std::vector<float>> run_on(Backend& backend, std::byte* arena, const Chain& chain);

}  // namespace orrery::exec::gpu_test
