#pragma once
/// Seconds of one operator on one device: one formula, one function. Formulas and their sources are in
/// docs/formulas.md.
#include <array>

#include "base/units.h"
#include "clusters/cluster.h"
#include "cost/parameters/calibration.h"
#include "models/op.h"

namespace orrery::cost {

/// The device.* coefficients and the datasheet's peaks, multiplied out once.
constexpr std::size_t kRates = 5;  ///< dtypes that products compute in
struct DeviceRates {
  bool gpu = true;
  int multiprocessors = 1;
  std::array<double, kRates> matmul{};  ///< FLOP/s at best shapes: fp32, bf16, fp16, fp8, tf32
  std::array<double, kRates> peak{};    ///< FLOP/s of the datasheet, by the same
  double k_half = 0, tile_rows = 1, tile_columns = 1, halving_loss = 0, narrow_load_loss = 0;
  double operand_bandwidth = 0;                                        ///< bytes/s; CPU only
  double conversion = 0;                                               ///< bytes/s; CPU only: see conversion_time
  double memory = 0;                                                   ///< bytes/s
  double cache = 0, cache_size = 0;                                    ///< bytes/s, bytes; CPU only
  double elementwise_passes = 1, score_passes = 1;                     ///< of the stack; GPUs only
  double lookup_passes = 1, interaction_passes = 1, index_passes = 1;  ///< the same
  double flash = 0, flash_grad = 0, unfused = 0, misaligned = 0, head_overhead = 0;
  double accumulation_bytes = 0;                       ///< of the stack, a weight's gradient and micro-batch
  double permute_passes = 1, grouped_share = 1;        ///< of the stack, of experts' rows and products
  bool tf32_attention = true;                          ///< of the stack: whether attention of a tf32 plan rounds too
  bool casts_each = false;                             ///< of the stack: see side_time
  double softmax_multiple = 1, softmax_longest = 1e9;  ///< of the stack: where its softmax is one kernel
  std::array<double, kFamilies> vector{};              ///< bytes/s by Family; 0: memory alone limits
};
[[nodiscard]] DeviceRates device_rates(const clusters::Cluster& cluster, const Calibration& calibration);

/// GPU matrix product (m,k)x(k,n): whole waves of output tiles over the multiprocessors, each tile paying its prologue
/// (`k_half` extra of k), with the best of the tile shapes that halve from the largest; at least the memory's time.
/// Wave and tile quantisation: NVIDIA, "Matrix Multiplication Background User's Guide".
/// Operands are `dtype` in memory and `arithmetic` in the product.
[[nodiscard]] base::Seconds gpu_matmul_time(const DeviceRates& rates, models::DType dtype, models::DType arithmetic,
                                            double m, double n, double k);

/// A CPU computes in fp32 what is stored in 16 bits: what it takes to widen operands and to round results, 6 bytes a
/// value. A product widens A again for each panel of columns of the result (exec/cpu/gemm_panels.cpp). In tf32 fp32
/// operands are rounded in the same way; in fp8 both are read twice besides, and looked up.
[[nodiscard]] base::Seconds conversion_time(const DeviceRates& rates, const models::Op& op);
/// Share of its rate that a product keeps whose rows are no multiple of 16 bytes long: a load half as wide each time
/// that the narrowest of them divides by two less (`narrow_load_loss`). NVIDIA, Matrix Multiplication Background User's
/// Guide, section 3: tensor cores are fed 16 bytes at a time.
[[nodiscard]] double alignment_share(const DeviceRates& rates, const models::Op& op);

/// What a product costs beside itself. Of an fp8 product, where the stack casts for each product (stack.fp8_casts: as
/// Orrery's own executors do), both operands are read twice, for their largest magnitude and to be rounded, and written
/// in 8 bits. Elsewhere scales are those of steps before, and the activation or gradient that enters is read once and
/// written twice, as it is and transposed for the weight's gradient, which then finds both operands cast (Transformer
/// Engine's cast-transpose); weights are cast once a step, which is left out. A weight's gradient that the product does
/// not add up is added by a kernel of its own (stack.accumulation_bytes).
[[nodiscard]] base::Seconds side_time(const DeviceRates& rates, const models::Op& op);

/// Share of `bytes` of operands that a CPU rank's cache does not hold: none up to the cache's size, all from twice
/// that.
[[nodiscard]] double missing_share(const DeviceRates& rates, double bytes);

/// CPU matrix product: arithmetic at the best rate, plus packing A and B and writing C, plus memory's time for what the
/// cache does not hold. Equivalent to a rate that saturates with m, n and k: packing is amortised over the other two
/// dimensions (Goto & van de Geijn 2008, section 4).
[[nodiscard]] base::Seconds cpu_matmul_time(const DeviceRates& rates, models::DType dtype, double m, double n,
                                            double k);

/// Streaming: bytes over memory bandwidth; on a CPU what the cache holds goes at the cache's, and the vector units'
/// time per byte of the family adds.
[[nodiscard]] base::Seconds streaming_time(const DeviceRates& rates, double bytes, Family family);

/// Whether unfused attention's softmax, with its scaling and mask, is one kernel (stack.softmax_multiple and _longest).
[[nodiscard]] bool softmax_is_fused(const DeviceRates& rates, const models::Op& op);

/// Attention, forward or backward, with row statistics or with the whole matrix (whose reads and writes add).
[[nodiscard]] base::Seconds attention_time(const DeviceRates& rates, const models::Op& op);

/// Kernels that stand beside a product's own and round its operands, each with an operator's overhead.
[[nodiscard]] int cast_kernels(const DeviceRates& rates, const models::Op& op);

/// Any operator, without the stack's overhead.
[[nodiscard]] base::Seconds device_time(const DeviceRates& rates, const models::Op& op);

}  // namespace orrery::cost
