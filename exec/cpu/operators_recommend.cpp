// A recommendation model's interaction, its loss, and pooled vectors in fewer bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "exec/cpu/machine.h"
#include "exec/cpu/sample_blocks.h"
#include "exec/engine/half.h"
#include "plan/spec/table_layout.h"

namespace orrery::exec {
namespace {

using plan::PooledEnd;
using plan::PooledPart;
using plan::PooledWay;
using plan::TableLayout;
using plan::TableShard;

float weight_of(const TableLayout::Table& table) {
  return table.mean ? 1.0F / static_cast<float>(table.multi_hot) : 1.0F;
}

/// The number of pooled values at the owner of their samples.
std::int64_t values_of_samples(const TableLayout& layout) {
  return layout.pooled_elements(plan::PooledEnd::samples, plan::PooledType::fp32);
}

/// Parts of the same columns of a table, whose sums are parts of one.
std::vector<std::span<const PooledPart>> sums_of_parts(const std::vector<PooledPart>& parts) {
  std::vector<std::span<const PooledPart>> out;
  for (std::size_t first = 0, i = 1; i <= parts.size(); ++i) {
    if (i < parts.size() && parts[i].table == parts[first].table && parts[i].column_begin == parts[first].column_begin)
      continue;
    out.emplace_back(parts.data() + std::exchange(first, i), parts.data() + i);
  }
  return out;
}

/// The sum of a sample's parts, as a tree (exec/data/row_blocks.h) if they are 1, 2, 4 …, else in their order.
void add_parts(Machine& machine, int thread, std::span<const PooledPart> parts, const float* pooled,
               std::int64_t sample, float* to) {
  const std::int64_t columns = parts.front().columns;
  const auto copy = [&](std::int64_t i, float* at) {
    const PooledPart& part = parts[static_cast<std::size_t>(i)];
    std::copy_n(pooled + part.at + sample * part.stride, columns, at);
  };
  const auto count = static_cast<std::int64_t>(parts.size());
  if (std::has_single_bit(parts.size())) return sum_blocks(machine, thread, {count, 1}, columns, false, to, copy);
  std::fill_n(to, columns, 0.0F);
  for (const PooledPart& part : parts) machine.kernels.add(to, pooled + part.at + sample * part.stride, to, columns);
}

}  // namespace

void run_pooled_join(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const std::int64_t n = layout.samples, d = layout.embedding_dim;
  const auto f = static_cast<std::int64_t>(layout.tables.size()) + 1;
  const float* pooled = layout.sharded() ? call.input(0, values_of_samples(layout)) : nullptr;
  const float* bottom = call.input(1, n * d);
  const float* local = layout.replicated.empty() ? nullptr : call.input(2, n * layout.replicated_columns);
  float* out = call.output(0, n * f * d);
  const std::vector<std::span<const PooledPart>> sums = sums_of_parts(layout.parts);
  machine.pool.each(n, rows_per_chunk(f * d), [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* vectors = out + i * f * d;
      std::memcpy(vectors, bottom + i * d, static_cast<std::size_t>(d) * sizeof(float));
      const auto weigh = [&](int table, std::int64_t columns, const float* from, float* to) {
        const float weight = weight_of(layout.tables[static_cast<std::size_t>(table)]);
        for (std::int64_t j = 0; j < columns; ++j) to[j] = weight * from[j];
      };
      for (const std::span<const PooledPart> parts : sums) {
        const PooledPart& part = parts.front();
        float* const to = vectors + (part.table + 1) * d + part.column_begin;
        add_parts(machine, thread, parts, pooled, i, to);
        weigh(part.table, part.columns, to, to);
      }
      for (const TableShard& shard : layout.replicated)
        weigh(shard.table, d, local + i * layout.replicated_columns + shard.column, vectors + (shard.table + 1) * d);
    }
  });
}

void run_pooled_split(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const std::int64_t n = layout.samples, d = layout.embedding_dim;
  const auto f = static_cast<std::int64_t>(layout.tables.size()) + 1;
  const float* dy = call.input(0, n * f * d);
  float* pooled = layout.sharded() ? call.output(0, values_of_samples(layout)) : nullptr;
  float* bottom = call.output(1, n * d);
  float* local = layout.replicated.empty() ? nullptr : call.output(2, n * layout.replicated_columns);
  machine.pool.each(n, rows_per_chunk(f * d), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* vectors = dy + i * f * d;
      std::memcpy(bottom + i * d, vectors, static_cast<std::size_t>(d) * sizeof(float));
      const auto give = [&](int table, std::int64_t column, std::int64_t columns, float* to) {
        const float weight = weight_of(layout.tables[static_cast<std::size_t>(table)]);
        const float* from = vectors + (table + 1) * d + column;
        for (std::int64_t j = 0; j < columns; ++j) to[j] = weight * from[j];
      };
      for (const PooledPart& part : layout.parts)
        give(part.table, part.column_begin, part.columns, pooled + part.at + i * part.stride);
      for (const TableShard& shard : layout.replicated)
        give(shard.table, 0, d, local + i * layout.replicated_columns + shard.column);
    }
  });
}

// Pairs (i, j) with j < i, row by row: the order of the public DLRM's interact_features.
void run_interaction_dot(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, d = call.op.m, f = call.op.k, width = d + f * (f - 1) / 2;
  const float* x = call.input(0, n * f * d);
  float* y = call.output(0, n * width);
  machine.pool.each(n, rows_per_chunk(f * f * d / 2), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t s = begin; s < end; ++s) {
      const float* vectors = x + s * f * d;
      float* out = y + s * width;
      std::memcpy(out, vectors, static_cast<std::size_t>(d) * sizeof(float));
      out += d;
      for (std::int64_t i = 1; i < f; ++i)
        for (std::int64_t j = 0; j < i; ++j) *out++ = machine.kernels.dot(vectors + i * d, vectors + j * d, d);
    }
  });
}

void run_interaction_dot_grad(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, d = call.op.m, f = call.op.k, width = d + f * (f - 1) / 2;
  const float* dy = call.input(0, n * width);
  const float* x = call.input(1, n * f * d);
  float* dx = call.output(0, n * f * d);
  machine.pool.each(n, rows_per_chunk(f * f * d), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t s = begin; s < end; ++s) {
      const float* vectors = x + s * f * d;
      const float* given = dy + s * width;
      float* out = dx + s * f * d;
      std::memcpy(out, given, static_cast<std::size_t>(d) * sizeof(float));
      std::memset(out + d, 0, static_cast<std::size_t>((f - 1) * d) * sizeof(float));
      given += d;
      for (std::int64_t i = 1; i < f; ++i)
        for (std::int64_t j = 0; j < i; ++j) {
          const float g = *given++;
          const float *a = vectors + i * d, *b = vectors + j * d;
          float *da = out + i * d, *db = out + j * d;
          for (std::int64_t c = 0; c < d; ++c) da[c] += g * b[c], db[c] += g * a[c];
        }
    }
  });
}

void run_cross(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float *x0 = call.input(0, count), *u = call.input(1, count), *x = call.input(2, count);
  float* y = call.output(0, count);
  machine.pool.each(count, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = x0[i] * u[i] + x[i];
  });
}

void run_cross_grad(Machine& machine, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float *dy = call.input(0, count), *x0 = call.input(1, count), *u = call.input(2, count);
  float *du = call.output(0, count), *dx0 = call.output(1, count);
  machine.pool.each(count, stream_chunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      du[i] = dy[i] * x0[i];
      dx0[i] += dy[i] * u[i];
    }
  });
}

// log(1 + e^l) - y l, without overflow.
void run_click_loss(Machine& machine, const Call& call) {
  static_cast<void>(machine);
  const std::int64_t n = call.op.n;
  const float *logits = call.input(0, n), *labels = call.input(1, n);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto l = static_cast<double>(logits[i]);
    sum += std::max(l, 0.0) + std::log1p(std::exp(-std::abs(l))) - static_cast<double>(labels[i]) * l;
  }
  float* loss = call.output(0, 1);
  loss[0] += static_cast<float>(call.op.scale * sum);
}

void run_click_loss_grad(Machine& machine, const Call& call) {
  static_cast<void>(machine);
  const std::int64_t n = call.op.n;
  const float *logits = call.input(0, n), *labels = call.input(1, n);
  float* dlogits = call.output(0, n);
  for (std::int64_t i = 0; i < n; ++i) {
    const double click = 1 / (1 + std::exp(-static_cast<double>(logits[i])));
    dlogits[i] = static_cast<float>(call.op.scale * (click - static_cast<double>(labels[i])));
  }
}

namespace {

constexpr std::int64_t kScaleBytes = 4;
constexpr float kMostCode = 127;

/// A slot of pooled vectors: whose shards lay it out, where it begins in fp32 and as it travels.
struct PooledSlot {
  int owner = 0;
  PooledWay way{};
  std::int64_t values = 0, coded = 0;  ///< elements
};

PooledEnd end_of(const Call& call) {
  return call.op.row_shard ? PooledEnd::samples : PooledEnd::tables;
}

std::vector<PooledSlot> slots_of(const Call& call, const TableLayout& layout, plan::PooledType type) {
  std::vector<PooledSlot> out;
  const PooledEnd end = end_of(call);
  for (const PooledWay way : plan::kEveryWay) {
    if (!layout.uses(way)) continue;
    const plan::PooledSlots values = layout.slots(end, way, plan::PooledType::fp32);
    const plan::PooledSlots coded = layout.slots(end, way, type);
    for (std::int64_t i = 0; i < values.count; ++i)
      out.push_back({layout.owner_of(end, way, i, call.context.rank), way, values.offset + i * values.slot,
                     coded.offset + i * coded.slot});
  }
  return out;
}

void encode_bytes(const TableLayout& layout, const PooledSlot& slot, const float* x, std::byte* out) {
  for (std::int64_t i = 0; i < layout.samples; ++i)
    for (std::size_t s = layout.begin(slot.owner); s < layout.end(slot.owner); ++s) {
      if (layout.shards[s].way != slot.way) continue;
      const std::int64_t width = layout.shards[s].columns();
      float most = 0;
      for (std::int64_t j = 0; j < width; ++j) most = std::max(most, std::abs(x[j]));
      const float scale = most / kMostCode;
      std::memcpy(out, &scale, sizeof scale);
      out += kScaleBytes;
      for (std::int64_t j = 0; j < width; ++j)
        out[j] = static_cast<std::byte>(scale > 0 ? static_cast<std::int8_t>(std::lround(x[j] / scale)) : 0);
      out += width;
      x += width;
    }
}

void decode_bytes(const TableLayout& layout, const PooledSlot& slot, const std::byte* x, float* out) {
  for (std::int64_t i = 0; i < layout.samples; ++i)
    for (std::size_t s = layout.begin(slot.owner); s < layout.end(slot.owner); ++s) {
      if (layout.shards[s].way != slot.way) continue;
      const std::int64_t width = layout.shards[s].columns();
      float scale = 0;
      std::memcpy(&scale, x, sizeof scale);
      x += kScaleBytes;
      for (std::int64_t j = 0; j < width; ++j) out[j] = scale * static_cast<float>(static_cast<std::int8_t>(x[j]));
      x += width;
      out += width;
    }
}

plan::PooledType type_of(models::DType dtype) {
  return dtype == models::DType::bf16   ? plan::PooledType::bf16
         : dtype == models::DType::fp16 ? plan::PooledType::fp16
                                        : plan::PooledType::int8;
}

}  // namespace

void run_encode_pooled(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const models::DType dtype = call.out[0].dtype;
  const plan::PooledType type = type_of(dtype);
  const float* x = call.input(0, layout.pooled_elements(end_of(call), plan::PooledType::fp32));
  std::byte* out = call.out[0].data;
  for (const PooledSlot& slot : slots_of(call, layout, type)) {
    if (type == plan::PooledType::int8) {
      encode_bytes(layout, slot, x + slot.values, out + slot.coded);
      continue;
    }
    auto* to = reinterpret_cast<std::uint16_t*>(out) + slot.coded;
    const std::int64_t count = layout.pooled_values(slot.owner, slot.way, type);
    (type == plan::PooledType::bf16 ? machine.kernels.to_bf16 : machine.kernels.to_fp16)(x + slot.values, to, count);
  }
}

void run_decode_pooled(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const models::DType dtype = call.in[0].dtype;
  const plan::PooledType type = type_of(dtype);
  const std::byte* x = call.in[0].data;
  float* out = call.output(0, layout.pooled_elements(end_of(call), plan::PooledType::fp32));
  for (const PooledSlot& slot : slots_of(call, layout, type)) {
    if (type == plan::PooledType::int8) {
      decode_bytes(layout, slot, x + slot.coded, out + slot.values);
      continue;
    }
    const auto* from = reinterpret_cast<const std::uint16_t*>(x) + slot.coded;
    const std::int64_t count = layout.pooled_values(slot.owner, slot.way, type);
    (type == plan::PooledType::bf16 ? machine.kernels.from_bf16 : machine.kernels.from_fp16)(from, out + slot.values,
                                                                                             count);
  }
}

}  // namespace orrery::exec
