/// The formulas of cost/prices/operators.h.
#include "cost/prices/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/ensure.h"
#include "models/operators/fp8.h"
#include "models/operators/operators.h"

namespace orrery::cost {

using base::Seconds;

namespace {

std::size_t index_of(models::DType dtype) {
  switch (dtype) {
    case models::DType::bf16: return 1;
    case models::DType::fp16: return 2;
    case models::DType::fp8: return 3;
    case models::DType::tf32: return 4;
    case models::DType::fp4: return 5;
    case models::DType::fp32:
    case models::DType::int32:
    case models::DType::uint8:
    case models::DType::int64: return 0;
  }
  return 0;
}

constexpr std::array<const char*, kRates> kDTypes = {"fp32", "bf16", "fp16", "fp8", "tf32", "fp4"};
constexpr std::array<double, kRates> kOperandBytes = {4, 2, 2, 1, 4, 0.5};

/// The dtype that a product computes in.
models::DType arithmetic(const models::Op& op) {
  if (!op.rounded) return op.dtype;
  if (op.four_bits) return models::DType::fp4;
  return op.dtype == models::DType::fp32 ? models::DType::tf32 : models::DType::fp8;
}

/// A stack's share is of products in 16 bits. What it loses is moving operands: where arithmetic is slower for each of
/// their bytes, as of fp32 beside tensor cores, the same loss is a smaller share of the time.
void take_stack_share(std::array<double, kRates>& rates, double share) {
  const std::size_t half = index_of(models::DType::fp16);
  const double fastest = rates[half] * kOperandBytes[half];
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const double slower = fastest > 0 ? std::min(1.0, rates[i] * kOperandBytes[i] / fastest) : 1;
    rates[i] /= 1 + (1 / share - 1) * slower;
  }
}

}  // namespace

DeviceRates device_rates(const clusters::Cluster& cluster, const Calibration& c) {
  const clusters::Device& device = cluster.device();
  DeviceRates r;
  r.gpu = device.kind != clusters::DeviceKind::cpu;
  r.multiprocessors = std::max(1, device.multiprocessors);
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    r.peak[i] = cluster.peak(kDTypes[i]).value;
    // A CPU has no tf32: fp32 is used instead.
    r.matmul[i] = r.peak[i] *
                  c.get(fmt::format("device.matmul.{}.efficiency", kDTypes[i]), c.at("device.matmul.fp32.efficiency"));
  }
  r.memory = device.memory_bandwidth.value * c.at("device.memory.efficiency");
  r.flash = c.at("device.attention.efficiency");
  r.flash_grad = c.at("device.attention.grad_efficiency");
  r.unfused = c.at("device.attention.unfused_efficiency");
  r.misaligned = c.get("device.attention.misaligned_efficiency", r.unfused);
  r.head_overhead = c.get("device.attention.head_overhead", 0);
  r.exponentials = device.vector_peak.value * c.get("device.attention.exponentials", 0);
  if (r.gpu) {
    r.elementwise_passes = c.get("stack.mlp_passes", c.get("stack.elementwise_passes", 1));
    r.score_passes = c.get("stack.score_passes", 1);
    r.lookup_passes = c.get("stack.lookup_passes", 1);
    r.interaction_passes = c.get("stack.interaction_passes", r.elementwise_passes);
    r.index_passes = c.get("stack.index_passes", 1);
    r.softmax_multiple = c.get("stack.softmax_multiple", r.softmax_multiple);
    r.softmax_longest = c.get("stack.softmax_longest", r.softmax_longest);
    r.softmax_kernels = c.get("stack.softmax_kernels", r.softmax_kernels);
    const double chosen = c.get("stack.untuned", 1) != 0 ? c.get("device.matmul.untuned_share", 1) : 1;
    for (double& rate : r.matmul) rate *= chosen;
    take_stack_share(r.matmul, c.get("stack.matmul_share", 1));
    constexpr double kBest = 3;
    const double generation = c.get("stack.attention_generation", kBest);
    const double kernel = generation < 2   ? c.get("device.attention.generation_1", 1)
                          : generation < 3 ? c.get("device.attention.generation_2", 1)
                                           : 1;
    r.flash *= kernel * c.get("stack.attention_share", 1);
    r.flash_grad *= kernel * c.get("stack.attention_share", 1);
    r.accumulation_bytes = c.get("stack.accumulation_bytes", 0);
    r.casts_each = c.get("stack.fp8_casts", 0) != 0;
    r.permute_passes = c.get("stack.permute_passes", 1);
    r.dispatch_einsum = c.get("stack.dispatch_einsum", 0);
    r.gate_passes = c.get("stack.gate_passes", 1);
    r.rotary_passes = c.get("stack.rotary_passes", 1);
    r.norm_passes = c.get("stack.norm_passes", 1);
    r.loss_passes = c.get("stack.loss_passes", 1);
    r.orthogonal_half = c.get("stack.orthogonal_half", 1) != 0;
    r.adapter_bytes = c.get("stack.adapter_bytes", 0);
    r.grouped_share = c.get("stack.grouped_share", 1);
    r.tf32_attention = c.get("stack.tf32_attention", 1) != 0;
    r.k_half = c.at("device.matmul.k_half");
    r.tile_rows = c.at("device.matmul.tile_rows");
    r.tile_columns = c.at("device.matmul.tile_columns");
    r.halving_loss = c.at("device.matmul.halving_loss");
    const bool pads = c.get("stack.pads", 0) != 0;
    r.narrow_load_loss = pads ? 0 : c.get("device.matmul.narrow_load_loss", 0);
  } else {
    r.operand_bandwidth = c.at("device.matmul.operand_bandwidth");
    r.conversion = c.get("device.conversion.bandwidth", r.operand_bandwidth);
    r.cache = c.at("device.cache.bandwidth");
    r.cache_size = c.at("device.cache.size");
  }
  for (std::size_t i = 0; i < r.vector.size(); ++i)
    r.vector[i] = c.get(std::string("device.vector.") + name_of(static_cast<PriceFamily>(i)) + ".rate", 0);
  return r;
}

Seconds conversion_time(const DeviceRates& r, const models::Op& op) {
  constexpr double kPanel = 256, kMoved = 6;
  models::Op wide = op;
  wide.dtype = models::DType::fp32;
  double values = (models::bytes_of(wide) - models::bytes_of(op)) / 2;
  if (op.kind == models::OpKind::matmul && op.rounded)
    values += (models::is_fp8_product(op) ? 2 : 1) * static_cast<double>((op.m + op.n) * op.k);
  if (op.kind == models::OpKind::matmul)
    values +=
        static_cast<double>(op.m) * static_cast<double>(op.k) * (std::ceil(static_cast<double>(op.n) / kPanel) - 1);
  return Seconds{kMoved * values / r.conversion};
}

bool ends_adapter(const models::Op& op) {
  constexpr std::int64_t kWider = 4;
  return op.kind == models::OpKind::matmul && op.accumulate && !op.trans_a && op.n >= kWider * op.k;
}

Seconds side_time(const DeviceRates& r, const models::Op& op) {
  double bytes = 0;
  const bool weight = op.trans_a && op.accumulate;
  if (weight) bytes += static_cast<double>(op.m * op.n) * r.accumulation_bytes;
  if (ends_adapter(op)) bytes += static_cast<double>(op.m * op.n) * r.adapter_bytes;
  const auto read = static_cast<double>(models::size_of(op.dtype));
  constexpr double kWritten = 2;  // in fp8, once as is and once transposed for the weight's gradient
  // For fp4, operands are read twice, once for the tensor's scale and once for rounding, and written as half the bytes.
  constexpr double kWrittenFp4 = 1;
  if (models::is_fp8_product(op) && r.casts_each)
    bytes += static_cast<double>((op.m + op.n) * op.k) * (2 * read + 1);
  else if (models::is_fp8_product(op) && !op.trans_a)
    bytes += static_cast<double>(op.m * op.k) * (op.four_bits ? 2 * read + kWrittenFp4 : read + kWritten);
  return Seconds{bytes / r.memory};
}

int cast_kernels(const DeviceRates& r, const models::Op& op) {
  constexpr int kBeside = 4;  // maxima cleared and found, both operands rounded: exec/cuda/kernels/fp8.cu
  return r.gpu && r.casts_each && models::is_fp8_product(op) ? kBeside : 0;
}

// If a product's tiles leave multiprocessors idle, its inner dimension is split, and the parts are summed in fp32
// (cuBLAS's split-K; NVIDIA, CUTLASS, efficient_gemm.md, "Parallelized reductions"). `area`: seconds of a
// multiprocessor for half a product of depth 1. Infinite if no part would be deep enough to pay.
double split_k_time(const DeviceRates& r, double tiles, double area, double results, double k, double k_half) {
  constexpr double kMostParts = 16, kPartial = 8;  // bytes of a partial result: written, then read
  double best = std::numeric_limits<double>::infinity();
  for (double parts = 2; parts <= kMostParts && parts * tiles <= 2 * r.multiprocessors; parts *= 2) {
    if (tiles >= r.multiprocessors || k / parts < 4 * k_half) break;
    const double waves = std::ceil(parts * tiles / r.multiprocessors);
    best = std::min(best, waves * 2 * area * (k / parts + k_half) + parts * results * kPartial / r.memory);
  }
  return best;
}

Seconds gpu_matmul_time(const DeviceRates& r, models::DType dtype, models::DType arithmetic, double m, double n,
                        double k) {
  const double rate = r.matmul[index_of(arithmetic)] / r.multiprocessors;  // of one multiprocessor
  // Prologue and epilogue wait for memory, not arithmetic: the faster the arithmetic, the more depth they equal.
  const double k_half = r.k_half * r.matmul[index_of(arithmetic)] / r.matmul[index_of(models::DType::fp16)];
  double best = std::numeric_limits<double>::infinity();
  double rows = r.tile_rows, columns = r.tile_columns, loss = 1;
  constexpr double kSmallestTile = 32;
  while (rows >= kSmallestTile && columns >= kSmallestTile) {
    for (const bool turned : {false, true}) {
      const double tile_m = turned ? columns : rows, tile_n = turned ? rows : columns;
      const double tiles = std::ceil(m / tile_m) * std::ceil(n / tile_n);
      const double waves = std::ceil(tiles / r.multiprocessors);
      best = std::min(best, waves * 2 * tile_m * tile_n * (k + k_half) / (rate * loss));
      best = std::min(best, split_k_time(r, tiles, tile_m * tile_n / (rate * loss), m * n, k, k_half));
    }
    (rows >= columns ? rows : columns) /= 2;
    loss *= 1 - r.halving_loss;
  }
  const auto read = static_cast<double>(models::size_of(arithmetic)),
             written = static_cast<double>(models::size_of(dtype));
  return Seconds{std::max(best, ((m * k + k * n) * read + m * n * written) / r.memory)};
}

double alignment_share(const DeviceRates& r, const models::Op& op) {
  constexpr std::int64_t kWidest = 16;
  const std::int64_t rows[] = {op.trans_a ? op.m : op.k, op.trans_b ? op.k : op.n, op.n};
  double share = 1;
  for (std::int64_t width = kWidest, size = models::size_of(op.dtype); width > size; width /= 2)
    if (std::any_of(std::begin(rows), std::end(rows), [&](std::int64_t row) { return row * size % width != 0; }))
      share *= 1 - r.narrow_load_loss;
  return share;
}

double missing_share(const DeviceRates& r, double bytes) {
  return std::clamp(bytes / r.cache_size - 1, 0.0, 1.0);
}

Seconds cpu_matmul_time(const DeviceRates& r, models::DType dtype, double m, double n, double k) {
  const double arithmetic = 2 * m * n * k / r.matmul[index_of(dtype)];
  const double operands = (m * k + k * n + m * n) * static_cast<double>(models::size_of(dtype));
  return Seconds{arithmetic + operands / r.operand_bandwidth + missing_share(r, operands) * operands / r.memory};
}

Seconds streaming_time(const DeviceRates& r, double bytes, PriceFamily family) {
  if (r.gpu) return Seconds{bytes * (models::traits_of(family).one_kernel ? 1 : r.elementwise_passes) / r.memory};
  const double rate = r.vector[static_cast<std::size_t>(family)];
  const double vector = rate > 0 ? bytes / rate : 0;
  const double missing = models::traits_of(family).sweeps ? 1 : missing_share(r, bytes);
  return Seconds{vector + bytes * ((1 - missing) / r.cache + missing / r.memory)};
}

bool softmax_is_fused(const DeviceRates& r, const models::Op& op) {
  const bool limited = r.softmax_multiple > 1;
  return (!limited || op.dtype != models::DType::fp32) &&
         std::fmod(static_cast<double>(op.batch * op.heads), r.softmax_multiple) == 0 &&
         static_cast<double>(op.sequence) <= r.softmax_longest;
}

/// Bytes that unfused attention moves for its scores: `score_passes` times the minimum and, if the softmax is not one
/// kernel, what its parts move. Megatron-LM's forward_torch_softmax casts to fp32, scales, masks, takes the softmax and
/// casts back: 2+4, 4+4, 4+4, 4+4, 4+2 bytes per score where one kernel moves 2+2; backward likewise. In fp32 it
/// scales, masks and takes the softmax: 3 (4+4) for 4+4. A compiler's n kernels read n times and write once.
double score_bytes(const DeviceRates& r, const models::Op& op, double scores) {
  if (r.softmax_kernels > 0 && !softmax_is_fused(r, op))
    return models::bytes_of(op) * r.score_passes +
           scores * (r.softmax_kernels - 1) * static_cast<double>(models::size_of(op.dtype));
  constexpr double kParts = 36, kOneKernel = 4, kPartsOfFp32 = 24, kOneKernelOfFp32 = 8;
  const bool wide = op.dtype == models::DType::fp32;
  const double more = softmax_is_fused(r, op) ? 0 : wide ? kPartsOfFp32 - kOneKernelOfFp32 : kParts - kOneKernel;
  return models::bytes_of(op) * r.score_passes + scores * more;
}

/// Extra cost on CPUs of drawing masks for `elements` values: an activation's arithmetic, without its memory. A GPU
/// draws while it waits for memory.
Seconds drawing_time(const DeviceRates& r, const models::Op& op, double elements) {
  const double rate = r.vector[static_cast<std::size_t>(PriceFamily::activation)];
  if (r.gpu || op.dropout == 0 || rate == 0) return Seconds{0};
  return Seconds{elements * 2 * static_cast<double>(models::size_of(op.dtype)) / rate};
}

/// What fused attention takes more where heads are narrower than those its efficiency is of: a score's products shrink
/// with the head, its exponential does not, and few units do exponentials (Shah et al. 2024, FlashAttention-3, section
/// 3.1). Measurements beside it: docs/formulas.md.
double narrow_time(const DeviceRates& r, const models::Op& op, double flops, double products) {
  constexpr double kMeasured = 128;
  const auto columns = static_cast<double>(op.head_dim);
  if (r.exponentials <= 0 || columns <= 0 || columns >= kMeasured) return 0;
  return flops / (2 * products * columns) * (1 - columns / kMeasured) / r.exponentials;
}

Seconds attention_time(const DeviceRates& r, const models::Op& op) {
  const bool grad = models::traits_of(op).issued == models::Issued::autograd;
  const double peak = r.peak[index_of(r.tf32_attention ? arithmetic(op) : op.dtype)];
  const double scores = static_cast<double>(op.batch * op.heads) * static_cast<double>(op.sequence * op.sequence);
  // A kernel that keeps row statistics skips what the mask hides; one that keeps the matrix computes all of it.
  const double flops = models::flops_of(op, !op.flash);
  // Tensor cores are fed 16 bytes at a time (NVIDIA, Matrix Multiplication Background User's Guide, section 3).
  constexpr std::int64_t kAligned = 16;
  const bool aligned = op.head_dim * models::size_of(op.dtype) % kAligned == 0;
  const double efficiency = op.flash ? (grad ? r.flash_grad : r.flash) : aligned ? r.unfused : r.misaligned;
  const double arithmetic = flops / (peak * efficiency) + (op.flash ? narrow_time(r, op, flops, grad ? 5 : 2) : 0);
  if (!r.gpu) {
    // Each unmasked score passes the vector units' exponential once: read and written.
    const double share = op.window > 0 || op.chosen > 0 ? models::seen_share(op) : op.flash && op.causal ? 0.5 : 1.0;
    const double exponentials = share * scores * 2 * static_cast<double>(models::size_of(op.dtype));
    const double heads = static_cast<double>(op.batch * op.heads) * r.head_overhead;
    // Forward and backward each draw once per exponential.
    return Seconds{arithmetic + heads + streaming_time(r, exponentials, PriceFamily::scores).value +
                   drawing_time(r, op, share * scores).value};
  }
  const double moved = (op.flash ? models::bytes_of(op) : score_bytes(r, op, scores)) / r.memory;
  return Seconds{op.flash ? std::max(arithmetic, moved) : arithmetic + moved};
}

/// Products of each expert with its own rows: one after another on a CPU; on a GPU one kernel over all their tiles
/// (CUTLASS's grouped GEMM). Rows are divided evenly: imbalance is contained in the expected number of rows.
Seconds grouped_time(const DeviceRates& r, const models::Op& op) {
  const bool gradient = op.kind == models::OpKind::grouped_weight_grad;
  const double products = (gradient ? op.out.size() > 1 : op.in.size() > 3) ? 2 : 1;
  const auto experts = static_cast<double>(op.experts);
  const double rows = op.expected * static_cast<double>(op.slots * op.capacity) / experts;
  double m = rows, n = static_cast<double>(op.n), k = static_cast<double>(op.k);
  if (gradient) m = static_cast<double>(op.m), k = rows;
  (gradient ? m : op.trans_b ? n : k) *= products;
  if (!r.gpu) return Seconds{experts * cpu_matmul_time(r, op.dtype, m, n, k).value};
  const double padded = gradient ? m : std::ceil(m / r.tile_rows) * r.tile_rows;
  const Seconds together = gpu_matmul_time(r, op.dtype, arithmetic(op), experts * padded, n, k);
  // The tiles of a single product would read its weights once; these read the weights of each expert.
  const double weights = (experts - 1) * n * (gradient ? m : k) * static_cast<double>(models::size_of(op.dtype));
  const Seconds product{std::max(together.value / r.grouped_share, weights / r.memory)};
  if (gradient || !op.rounded || op.dtype == models::DType::fp32) return product;
  // The input is cast as for other products: read once, written as is and transposed (side_time).
  return product + Seconds{experts * rows * k * static_cast<double>(models::size_of(op.dtype) + 2) / r.memory};
}

/// Bytes of rows that a lookup finds in the cache because an earlier one fetched them (op.capacity: distinct rows
/// touched), less the cache's own time: A100's L2 moves 5,120 bytes per clock, 3.5 times its memory, and V100's 2,048,
/// the same ratio (NVIDIA, A100 architecture white paper, table 4).
double cached_bytes(const models::Op& op) {
  constexpr double kCache = 3.5;
  const bool updates = op.kind == models::OpKind::embedding_bag_update;
  if (op.capacity <= 0 || op.capacity >= op.n) return 0;
  const auto again = static_cast<double>(op.n - op.capacity);
  return (updates ? 2 : 1) * again * static_cast<double>(op.m * models::size_of(op.dtype)) * (1 - 1 / kCache);
}

/// Rows are scattered in memory: whole sectors of 32 bytes are read on a GPU, lines of 64 on a CPU (NVIDIA, CUDA C++
/// Best Practices Guide, section 10.2.1; Intel 64 Optimization Manual, section 2).
Seconds lookup_time(const DeviceRates& r, const models::Op& op) {
  const double grain = r.gpu ? 32 : 64, row = static_cast<double>(op.m * models::size_of(op.dtype));
  const double more = row > 0 ? std::ceil(row / grain) * grain / row : 1;
  if (r.gpu) return Seconds{(models::bytes_of(op) - cached_bytes(op)) * more * r.lookup_passes / r.memory};
  const double bytes = models::bytes_of(op) * more;
  const double rate = r.vector[static_cast<std::size_t>(PriceFamily::embedding)];
  return Seconds{(rate > 0 ? bytes / rate : 0) + bytes / r.memory};
}

/// A small product of a sample's vectors with themselves: computes all pairs, of which half are kept.
Seconds interaction_time(const DeviceRates& r, const models::Op& op) {
  const double arithmetic = 2 * models::flops_of(op) / r.matmul[index_of(op.dtype)];
  if (r.gpu) return Seconds{std::max(arithmetic, models::bytes_of(op) * r.interaction_passes / r.memory)};
  return Seconds{arithmetic + streaming_time(r, models::bytes_of(op), models::traits_of(op).family).value};
}

/// A state space's chunks: small products on tensor cores with exponentials between them, as in fused attention, whose
/// efficiency stands for theirs.
Seconds scan_time(const DeviceRates& r, const models::Op& op) {
  const bool grad = models::traits_of(op).issued == models::Issued::autograd;
  const double peak = r.peak[index_of(r.tf32_attention ? arithmetic(op) : op.dtype)];
  const double products = models::flops_of(op) / (peak * (grad ? r.flash_grad : r.flash));
  if (r.gpu) return Seconds{std::max(products, models::bytes_of(op) / r.memory)};
  return Seconds{products + streaming_time(r, models::bytes_of(op), models::traits_of(op).family).value};
}

/// Newton-Schulz: its products and, between them, the passes over the matrix and the squares, in one type.
Seconds newton_schulz_time(const DeviceRates& r, const models::Op& op) {
  const bool half = r.gpu && r.orthogonal_half && r.matmul[index_of(models::DType::bf16)] > 0;
  const models::DType type = half ? models::DType::bf16 : models::DType::fp32;
  const auto shorter = static_cast<double>(std::min(op.m, op.n)), longer = static_cast<double>(std::max(op.m, op.n));
  const auto product = [&](double m, double n, double k) {
    return r.gpu ? gpu_matmul_time(r, type, type, m, n, k) : cpu_matmul_time(r, type, m, n, k);
  };
  const Seconds products =
      product(shorter, shorter, longer) + product(shorter, shorter, shorter) + product(shorter, longer, shorter);
  const double size = static_cast<double>(models::size_of(type));
  const double sums = size * (3 * shorter * shorter + 2 * shorter * longer), ends = 6 * size * shorter * longer;
  return Seconds{models::kNewtonSchulzSteps * (products.value + streaming_time(r, sums, PriceFamily::optimizer).value) +
                 streaming_time(r, ends, PriceFamily::optimizer).value};
}

/// Rows of tokens in experts' places by a product with a mask of tokens x places (GShard, Lepikhin et al. 2020,
/// algorithm 2; DeepSpeed, deepspeed/moe/sharded_moe.py, einsum "sec,sm->ecm" and "sec,ecm->sm"). The mask exists in
/// fp32, which the router makes (4 bytes written), as booleans (4 read, 1 written) and in the rows' type (1 or 4 read,
/// 2 written); the product reads that.
Seconds einsum_time(const DeviceRates& r, const models::Op& op) {
  constexpr double kMaskBytes = 14;
  const auto tokens = static_cast<double>(op.n), columns = static_cast<double>(op.m);
  const double places = r.dispatch_einsum * tokens * static_cast<double>(op.chosen);
  const Seconds product = gpu_matmul_time(r, op.dtype, op.dtype, places, columns, tokens);
  return product + Seconds{kMaskBytes * tokens * places / r.memory};
}

Seconds whole_time(const DeviceRates& r, const models::Op& op);

Seconds device_time(const DeviceRates& r, const models::Op& op) {
  // A grouped product reads the weights whole, however few rows there are.
  const bool grouped = models::traits_of(op).form == models::PriceForm::grouped;
  const Seconds time = whole_time(r, op);
  return grouped || op.expected >= 1 ? time : Seconds{op.expected * time.value};
}

/// How often the stack moves an operator's bytes if it composes it of several kernels: at least once, as for
/// elementwise ones.
double composed_passes(const DeviceRates& r, const models::Op& op) {
  using K = models::OpKind;
  const bool gated = op.kind == K::swiglu || op.kind == K::swiglu_grad || op.kind == K::gate || op.kind == K::gate_grad;
  const bool rotates = op.kind == K::rope || op.kind == K::rope_grad;
  const bool normalises = op.kind == K::rms_norm || op.kind == K::rms_norm_grad;
  const bool loses = op.kind == K::softmax_max || op.kind == K::softmax_sum || op.kind == K::cross_entropy_grad;
  return gated ? r.gate_passes : rotates ? r.rotary_passes : normalises ? r.norm_passes : loses ? r.loss_passes : 1;
}

Seconds product_time(const DeviceRates& r, const models::Op& op) {
  const auto m = static_cast<double>(op.m), n = static_cast<double>(op.n), k = static_cast<double>(op.k);
  if (!r.gpu) return cpu_matmul_time(r, op.dtype, m, n, k) + (op.rounded ? conversion_time(r, op) : Seconds{0});
  return Seconds{gpu_matmul_time(r, op.dtype, arithmetic(op), m, n, k).value / alignment_share(r, op) +
                 side_time(r, op).value};
}

Seconds whole_time(const DeviceRates& r, const models::Op& op) {
  const models::OperatorTraits& traits = models::traits_of(op);
  const bool narrow = op.dtype == models::DType::bf16 || op.dtype == models::DType::fp16;
  if (!r.gpu && narrow && traits.types != models::Types::moves) {
    models::Op wide = op;
    wide.dtype = models::DType::fp32;
    wide.rounded = false;
    return whole_time(r, wide) + conversion_time(r, op);
  }
  const auto streamed = [&] {
    const double own = composed_passes(r, op);
    const double more = own > 1 ? std::max(1.0, own / r.elementwise_passes) : 1;
    return streaming_time(r, models::bytes_of(op) * more, traits.family);
  };
  switch (traits.form) {
    case models::PriceForm::streamed: return streamed();
    case models::PriceForm::drawn: return streamed() + drawing_time(r, op, static_cast<double>(op.n * op.m));
    case models::PriceForm::product: return product_time(r, op);
    case models::PriceForm::grouped: return grouped_time(r, op);
    case models::PriceForm::attention: return attention_time(r, op);
    case models::PriceForm::permuted:
      if (r.dispatch_einsum > 0) return einsum_time(r, op);
      return Seconds{streamed().value * (r.gpu ? r.permute_passes : 1)};
    case models::PriceForm::lookup: return lookup_time(r, op);
    case models::PriceForm::indexed: return (r.gpu ? r.index_passes : 1) * streamed();
    case models::PriceForm::interaction: return interaction_time(r, op);
    case models::PriceForm::scanned: return scan_time(r, op);
    case models::PriceForm::orthogonal: return newton_schulz_time(r, op);
  }
  ENSURE(false, "{} has no price", models::name_of(op.kind));
}

}  // namespace orrery::cost
