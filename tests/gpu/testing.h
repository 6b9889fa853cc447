#pragma once
/// Runs one operator on the CPU backend and on the CUDA backend and compares. The CUDA backend is either the module on
/// a real GPU (program test_gpu) or the same sources on the emulated runtime (program test_cuda_emulated).
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "exec/engine/backend.h"
#include "models/operators/op.h"

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

/// How far a GPU may be from the CPU backend without a fault, of ||cuda - cpu|| / ||cpu||. What was found without a
/// GPU: the same kernels, compiled with fused multiply-adds, elementary functions off by as many units as NVIDIA
/// states, products summed as the cited measurements of tensor cores have them; then the largest difference over nine
/// seeds.
namespace bound {
/// fp32: other orders of sums, fused multiply-adds, expf, logf, tanhf and erff off by 2 units of the last place (CUDA
/// Programming Guide, "Mathematical Functions"). Found: 4e-7.
inline constexpr double kFp32 = 2e-6;
/// GELU's gradient in fp32: 1 - tanh^2, where tanh is off by 2 units near 1, times up to 40. Found: 3.6e-6.
inline constexpr double kGeluGradient = 1e-5;
/// Both sides compute in fp32 and round once: what differs are the few values that lie between two neighbours. Tensor
/// cores truncate products to 24 bits of the largest and sum in fp32 (Khattak and Mikaitis, "Accurate Models of NVIDIA
/// Tensor Cores", arXiv:2512.07004; Fasi et al., PeerJ CS 7:e330). Found: less than a tenth of these.
inline constexpr double kRoundedOnceBf16 = 1e-3, kRoundedOnceFp16 = 2e-4;
/// Any value may round to its other neighbour: a unit of the last place, 2^-7 and 2^-10 of the value at most. For what
/// is rounded in between on one side only: probabilities of attention on tensor cores, which are rounded to 16 bits,
/// and a product whose activation cuBLASLt computes from what it has not rounded yet, by a tanh that is off by 2^-11
/// (PTX ISA, tanh.approx.f32). Found: 3.1e-3 and 6.1e-4.
inline constexpr double kOneUnitBf16 = 8e-3, kOneUnitFp16 = 1e-3;
/// fp8 on Hopper: the cores keep 13 bits behind the leading one of what they sum, also into fp32 (DeepSeek-V3 Technical
/// Report, arXiv:2412.19437, 3.5.2; arXiv:2512.07004); cuBLASLt adds up such sums in fp32 from time to time, it does
/// not say how often (CUBLASLT_MATMUL_DESC_FAST_ACCUM off). Found with 128 terms between: 5e-5 in fp32; rounded to
/// bf16, 1e-3.
inline constexpr double kFp8IntoFp32 = 5e-4, kFp8IntoBf16 = 4e-3;
/// tf32: the cores ignore all but 10 bits of an operand (PTX ISA, mma with .tf32), the CPU rounds to them, and how the
/// library prepares them is not documented: each operand may differ by 2^-10. Found with truncation: 9.5e-4.
inline constexpr double kTf32 = 2e-3;
}  // namespace bound

struct Case {
  std::string name;
  models::Op op;
  std::vector<Slot> in, out;
  std::vector<ElementRange> ranges;
  StepContext context;
  double tolerance = bound::kFp32;  ///< per output
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

/// Cases as they come, with operands drawn in their order.
struct CaseMaker {
  std::mt19937 random;
  std::vector<Case> cases = {};

  Case& add(const std::string& name, models::OpKind kind, std::int64_t n, std::int64_t m, std::int64_t k = 0) {
    Case& c = cases.emplace_back();
    c.name = name;
    c.op.kind = kind;
    c.op.n = n;
    c.op.m = m;
    c.op.k = k;
    return c;
  }
  Slot floats(std::int64_t elements, float scale = 1) { return random_floats(random, elements, scale); }
  Slot ids(std::int64_t elements, std::int32_t bound) { return random_ids(random, elements, bound); }
};

/// Cases of every operator, with awkward sizes; those of 16-bit types are the same with operands of those types.
[[nodiscard]] std::vector<Case> all_cases();
[[nodiscard]] std::vector<Case> update_cases();       ///< norms, loss scaling and updates, in all types
[[nodiscard]] std::vector<Case> masked_cases();       ///< BERT's operators, in fp32
[[nodiscard]] std::vector<Case> compression_cases();  ///< in all types
[[nodiscard]] std::vector<Case> feature_cases();      ///< of families that are no GPT-2 and no Llama, in fp32
[[nodiscard]] std::vector<Case> dropout_cases();      ///< and ReLU, in fp32
[[nodiscard]] std::vector<Case> sparse_cases();       ///< in all types
[[nodiscard]] std::vector<Case> table_cases();        ///< of recommendation models
[[nodiscard]] std::vector<Case> rounded_cases();      ///< products in fp8 and tf32
[[nodiscard]] std::vector<Case> expert_cases();       ///< and latent attention's and Muon's, in all types
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
  double tolerance = bound::kFp32;
  StepContext context = {};
};
/// All slots after the chain ran.
[[nodiscard]] std::vector<std::vector<float>> run_on(Backend& backend, std::byte* arena, const Chain& chain);

}  // namespace orrery::exec::gpu_test
