/// The formulas of cost/operators.h.
#include "cost/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/ensure.h"

namespace orrery::cost {

using base::Seconds;

namespace {

std::size_t index_of(models::DType dtype) {
  switch (dtype) {
    case models::DType::bf16: return 1;
    case models::DType::fp16: return 2;
    case models::DType::fp8: return 3;
    case models::DType::fp32:
    case models::DType::int32:
    case models::DType::int64: return 0;
  }
  return 0;
}

constexpr std::array<const char*, 4> kDTypes = {"fp32", "bf16", "fp16", "fp8"};

}  // namespace

DeviceRates device_rates(const clusters::Cluster& cluster, const Calibration& c) {
  const clusters::Device& device = cluster.device();
  DeviceRates r;
  r.gpu = device.kind == clusters::DeviceKind::gpu;
  r.multiprocessors = std::max(1, device.multiprocessors);
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    r.peak[i] = cluster.peak(kDTypes[i]).value;
    r.matmul[i] = r.peak[i] * c.at(std::string("device.matmul.") + kDTypes[i] + ".efficiency");
  }
  r.memory = device.memory_bandwidth.value * c.at("device.memory.efficiency");
  r.flash = c.at("device.attention.efficiency");
  r.flash_grad = c.at("device.attention.grad_efficiency");
  r.unfused = c.at("device.attention.unfused_efficiency");
  r.head_overhead = c.get("device.attention.head_overhead", 0);
  if (r.gpu) {
    r.elementwise_passes = c.get("stack.elementwise_passes", 1);
    r.score_passes = c.get("stack.score_passes", 1);
    r.flash *= c.get("stack.attention_share", 1);
    r.flash_grad *= c.get("stack.attention_share", 1);
    r.k_half = c.at("device.matmul.k_half");
    r.tile_rows = c.at("device.matmul.tile_rows");
    r.tile_columns = c.at("device.matmul.tile_columns");
    r.halving_loss = c.at("device.matmul.halving_loss");
  } else {
    r.operand_bandwidth = c.at("device.matmul.operand_bandwidth");
    r.cache = c.at("device.cache.bandwidth");
    r.cache_size = c.at("device.cache.size");
  }
  for (std::size_t i = 0; i < r.vector.size(); ++i)
    r.vector[i] = c.get(std::string("device.vector.") + name_of(static_cast<Family>(i)) + ".rate", 0);
  return r;
}

Seconds gpu_matmul_time(const DeviceRates& r, models::DType dtype, double m, double n, double k) {
  const double rate = r.matmul[index_of(dtype)] / r.multiprocessors;  // of one multiprocessor
  double best = std::numeric_limits<double>::infinity();
  double rows = r.tile_rows, columns = r.tile_columns, loss = 1;
  constexpr double kSmallestTile = 32;
  while (rows >= kSmallestTile && columns >= kSmallestTile) {
    for (const bool turned : {false, true}) {
      const double tile_m = turned ? columns : rows, tile_n = turned ? rows : columns;
      const double waves = std::ceil(std::ceil(m / tile_m) * std::ceil(n / tile_n) / r.multiprocessors);
      best = std::min(best, waves * 2 * tile_m * tile_n * (k + r.k_half) / (rate * loss));
    }
    (rows >= columns ? rows : columns) /= 2;
    loss *= 1 - r.halving_loss;
  }
  const double bytes = (m * k + k * n + m * n) * static_cast<double>(models::size_of(dtype));
  return Seconds{std::max(best, bytes / r.memory)};
}

double missing_share(const DeviceRates& r, double bytes) {
  return std::clamp(bytes / r.cache_size - 1, 0.0, 1.0);
}

Seconds cpu_matmul_time(const DeviceRates& r, models::DType dtype, double m, double n, double k) {
  const double arithmetic = 2 * m * n * k / r.matmul[index_of(dtype)];
  const double operands = (m * k + k * n + m * n) * static_cast<double>(models::size_of(dtype));
  return Seconds{arithmetic + operands / r.operand_bandwidth + missing_share(r, operands) * operands / r.memory};
}

/// Families that every framework runs as one kernel a tensor.
bool moves_once(Family family) {
  switch (family) {
    case Family::optimizer:
    case Family::norm_squared:
    case Family::embedding:
    case Family::scores: return true;
    case Family::copy:
    case Family::reduction:
    case Family::activation:
    case Family::activation_grad:
    case Family::normalisation:
    case Family::normalisation_grad:
    case Family::softmax: return false;
  }
  return false;
}

Seconds streaming_time(const DeviceRates& r, double bytes, Family family) {
  if (r.gpu) return Seconds{bytes * (moves_once(family) ? 1 : r.elementwise_passes) / r.memory};
  const double rate = r.vector[static_cast<std::size_t>(family)];
  const double vector = rate > 0 ? bytes / rate : 0;
  // The optimizer walks over more than any cache holds, one bucket after the other.
  const double missing = family == Family::optimizer ? 1 : missing_share(r, bytes);
  return Seconds{vector + bytes * ((1 - missing) / r.cache + missing / r.memory)};
}

Seconds attention_time(const DeviceRates& r, const models::Op& op) {
  const bool grad = op.kind == models::OpKind::attention_grad || op.kind == models::OpKind::ring_attention_grad;
  const double peak = r.peak[index_of(op.dtype)];
  const double scores = static_cast<double>(op.batch * op.heads) * static_cast<double>(op.sequence * op.sequence);
  // A kernel that keeps row statistics skips what the mask hides; one that keeps the matrix computes all of it.
  const double flops = models::flops_of(op, !op.flash);
  const double efficiency = op.flash ? (grad ? r.flash_grad : r.flash) : r.unfused;
  const double arithmetic = flops / (peak * efficiency);
  if (!r.gpu) {
    // Each score that is not masked away passes the vector units' exponential once: read and written.
    const double share = op.flash && op.causal ? 0.5 : 1.0;
    const double exponentials = share * scores * 2 * static_cast<double>(models::size_of(op.dtype));
    const double heads = static_cast<double>(op.batch * op.heads) * r.head_overhead;
    return Seconds{arithmetic + heads + streaming_time(r, exponentials, Family::scores).value};
  }
  const double moved = models::bytes_of(op) * (op.flash ? 1 : r.score_passes) / r.memory;
  return Seconds{op.flash ? std::max(arithmetic, moved) : arithmetic + moved};
}

Seconds device_time(const DeviceRates& r, const models::Op& op) {
  using K = models::OpKind;
  switch (op.kind) {
    case K::matmul: {
      const auto m = static_cast<double>(op.m), n = static_cast<double>(op.n), k = static_cast<double>(op.k);
      return r.gpu ? gpu_matmul_time(r, op.dtype, m, n, k) : cpu_matmul_time(r, op.dtype, m, n, k);
    }
    case K::attention:
    case K::attention_grad:
    case K::ring_attention:
    case K::ring_attention_grad: return attention_time(r, op);
    case K::load_tokens:
    case K::embedding:
    case K::position_add:
    case K::embedding_grad:
    case K::position_grad:
    case K::layer_norm:
    case K::layer_norm_grad:
    case K::rms_norm:
    case K::rms_norm_grad:
    case K::bias_grad:
    case K::rope:
    case K::rope_grad:
    case K::split_kv:
    case K::merge_kv:
    case K::gelu:
    case K::gelu_grad:
    case K::swiglu:
    case K::swiglu_grad:
    case K::add_bias:
    case K::add:
    case K::softmax_max:
    case K::softmax_sum:
    case K::cross_entropy:
    case K::cross_entropy_grad:
    case K::fill_zero:
    case K::copy:
    case K::accumulate_into:
    case K::norm_squared:
    case K::clip_coefficient:
    case K::adamw: return streaming_time(r, models::bytes_of(op), family_of(op.kind));
  }
  ENSURE(false, "operator {} has no price", static_cast<int>(op.kind));
}

}  // namespace orrery::cost
