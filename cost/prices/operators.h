#pragma once
/// Seconds of one operator on one device: one function per formula. Formulas and their sources are in docs/formulas.md.
#include <array>

#include "base/units.h"
#include "clusters/cluster.h"
#include "cost/parameters/calibration.h"
#include "models/operators/op.h"

namespace orrery::cost {

/// The device.* coefficients multiplied with the datasheet's peaks.
constexpr std::size_t kRates = 6;  ///< dtypes that products compute in
struct DeviceRates {
  bool gpu = true;
  int multiprocessors = 1;
  std::array<double, kRates> matmul{};  ///< FLOP/s at best shapes: fp32, bf16, fp16, fp8, tf32, fp4
  std::array<double, kRates> peak{};    ///< the datasheet's FLOP/s, for the same dtypes
  double k_half = 0, tile_rows = 1, tile_columns = 1, halving_loss = 0, narrow_load_loss = 0;
  double operand_bandwidth = 0;                                        ///< bytes/s; CPU only
  double conversion = 0;                                               ///< bytes/s; CPU only: see conversion_time
  double memory = 0;                                                   ///< bytes/s
  double cache = 0, cache_size = 0;                                    ///< bytes/s, bytes; CPU only
  double elementwise_passes = 1, score_passes = 1;                     ///< of the stack; GPUs only
  double lookup_passes = 1, interaction_passes = 1, index_passes = 1;  ///< the same
  double flash = 0, flash_grad = 0, unfused = 0, misaligned = 0, head_overhead = 0;
  double exponentials = 0;                       ///< a second; 0: heads of all widths reach the same rate
  double accumulation_bytes = 0;                 ///< of the stack, per weight's gradient and micro-batch
  double permute_passes = 1, grouped_share = 1;  ///< of the stack, for the rows and products of experts
  double dispatch_einsum = 0;                    ///< of the stack: places over choices; 0: rows are permuted
  double gate_passes = 1, rotary_passes = 1, norm_passes = 1,
         loss_passes = 1;                              ///< of the stack, beyond elementwise_passes
  bool orthogonal_half = false;                        ///< Muon's Newton-Schulz is in bf16
  double adapter_bytes = 0;                            ///< of the stack, per value of a low-rank adapter's result
  bool tf32_attention = true;                          ///< of the stack: attention in a tf32 plan rounds its operands
                                                       ///< too
  bool casts_each = false;                             ///< of the stack: see side_time
  double softmax_multiple = 1, softmax_longest = 1e9;  ///< of the stack: limits within which its softmax is one kernel
  double softmax_kernels = 0;                          ///< beyond them; 0: casts, scales, masks and its own
  std::array<double, kFamilies> vector{};              ///< bytes/s by PriceFamily; 0: limited by memory only
};
[[nodiscard]] DeviceRates device_rates(const clusters::Cluster& cluster, const Calibration& calibration);

/// GPU matrix product (m,k)x(k,n): whole waves of output tiles over the multiprocessors, where each tile pays a
/// prologue (`k_half` extra of k), with the best of the tile shapes obtained by halving the largest; at least the
/// memory's time. Wave and tile quantisation: NVIDIA, "Matrix Multiplication Background User's Guide". Operands are
/// `dtype` in memory and `arithmetic` in the product.
[[nodiscard]] base::Seconds gpu_matmul_time(const DeviceRates& rates, models::DType dtype, models::DType arithmetic,
                                            double m, double n, double k);

/// A CPU computes in fp32 what is stored in 16 bits: the time to widen operands and to round results, 6 bytes per
/// value. A product widens A again for each panel of columns of the result (exec/cpu/gemm_panels.cpp). tf32 rounds fp32
/// operands in the same way; fp8 in addition reads both operands twice and looks them up.
[[nodiscard]] base::Seconds conversion_time(const DeviceRates& rates, const models::Op& op);
/// Share of its rate that a product keeps if its rows are not a multiple of 16 bytes long: loads are half as wide for
/// each factor of two that the least aligned row lacks (`narrow_load_loss`). NVIDIA, Matrix Multiplication Background
/// User's Guide, section 3: tensor cores are fed 16 bytes at a time.
[[nodiscard]] double alignment_share(const DeviceRates& rates, const models::Op& op);

/// The cost of a product's auxiliary kernels. For an fp8 product in a stack that casts for each product
/// (stack.fp8_casts, as Orrery's own executors do), both operands are read twice, for their maximum and to be rounded,
/// and written in 8 bits. Otherwise scales come from previous steps: the incoming activation or gradient is read once
/// and written twice, as is and transposed for the weight's gradient, which then finds both operands cast (Transformer
/// Engine's cast-transpose); weights are cast once per step, which is neglected. If the product does not accumulate a
/// weight's gradient, a separate kernel adds it (stack.accumulation_bytes). A low-rank adapter's dropout, scaling and
/// sum may be kernels of their own (stack.adapter_bytes).
[[nodiscard]] base::Seconds side_time(const DeviceRates& rates, const models::Op& op);

/// Share of `bytes` of operands that a CPU rank's cache does not hold: none up to the cache's size, all from twice that
/// size.
[[nodiscard]] double missing_share(const DeviceRates& rates, double bytes);

/// CPU matrix product: arithmetic at the best rate, plus packing A and B and writing C, plus the memory's time for what
/// exceeds the cache. Equivalent to a rate that saturates with m, n and k: packing is amortised over the other two
/// dimensions (Goto & van de Geijn 2008, section 4).
[[nodiscard]] base::Seconds cpu_matmul_time(const DeviceRates& rates, models::DType dtype, double m, double n,
                                            double k);

/// Streaming: bytes over memory bandwidth. On a CPU, what fits the cache moves at the cache's bandwidth, and the
/// family's time per byte in the vector units is added.
[[nodiscard]] base::Seconds streaming_time(const DeviceRates& rates, double bytes, PriceFamily family);

/// Whether unfused attention's scaling, mask and softmax are one kernel (stack.softmax_multiple and _longest). A stack
/// with such limits has that kernel only in 16 bits (Megatron-LM, fused_softmax.py: input_in_float16).
[[nodiscard]] bool softmax_is_fused(const DeviceRates& rates, const models::Op& op);

/// Attention, forward or backward, with row statistics or with the full matrix (whose reads and writes are added).
[[nodiscard]] base::Seconds attention_time(const DeviceRates& rates, const models::Op& op);

/// Whether a product is the last of a low-rank adapter: it adds to rows that are much wider than its inner dimension.
[[nodiscard]] bool ends_adapter(const models::Op& op);

/// The number of separate kernels that round a product's operands, each with an operator's overhead.
[[nodiscard]] int cast_kernels(const DeviceRates& rates, const models::Op& op);

/// Any operator, without the stack's overhead.
[[nodiscard]] base::Seconds device_time(const DeviceRates& rates, const models::Op& op);

}  // namespace orrery::cost
