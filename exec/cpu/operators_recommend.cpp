// What interacts in a recommendation model, its loss, and pooled vectors in fewer bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/cpu/machine.h"
#include "exec/engine/half.h"
#include "plan/spec/table_layout.h"

namespace orrery::exec {
namespace {

using plan::TableLayout;
using plan::TableShard;

float weight_of(const TableLayout::Table& table) {
  return table.mean ? 1.0F / static_cast<float>(table.multi_hot) : 1.0F;
}

/// Sample i's pooled columns in the slot of `rank`, laid out as that rank's shards.
std::int64_t place_in_slots(const TableLayout& layout, int rank, std::int64_t sample) {
  return rank * layout.samples * layout.most_columns + sample * layout.columns_of(rank);
}

}  // namespace

void run_pooled_join(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const std::int64_t n = layout.samples, d = layout.embedding_dim;
  const auto f = static_cast<std::int64_t>(layout.tables.size()) + 1;
  const float* pooled = layout.sharded() ? call.input(0, layout.ranks * n * layout.most_columns) : nullptr;
  const float* bottom = call.input(1, n * d);
  const float* local = layout.replicated.empty() ? nullptr : call.input(2, n * layout.replicated_columns);
  float* out = call.output(0, n * f * d);
  machine.pool.each(n, rows_per_chunk(f * d), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* vectors = out + i * f * d;
      std::memcpy(vectors, bottom + i * d, static_cast<std::size_t>(d) * sizeof(float));
      std::memset(vectors + d, 0, static_cast<std::size_t>((f - 1) * d) * sizeof(float));
      const auto add = [&](const TableShard& shard, const float* from) {
        const float weight = weight_of(layout.tables[static_cast<std::size_t>(shard.table)]);
        float* to = vectors + (shard.table + 1) * d + shard.column_begin;
        for (std::int64_t j = 0; j < shard.columns(); ++j) to[j] += weight * from[j];
      };
      for (const TableShard& shard : layout.shards)
        add(shard, pooled + place_in_slots(layout, shard.rank, i) + shard.column);
      for (const TableShard& shard : layout.replicated)
        add(shard, local + i * layout.replicated_columns + shard.column);
    }
  });
}

void run_pooled_split(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const std::int64_t n = layout.samples, d = layout.embedding_dim;
  const auto f = static_cast<std::int64_t>(layout.tables.size()) + 1;
  const float* dy = call.input(0, n * f * d);
  float* pooled = layout.sharded() ? call.output(0, layout.ranks * n * layout.most_columns) : nullptr;
  float* bottom = call.output(1, n * d);
  float* local = layout.replicated.empty() ? nullptr : call.output(2, n * layout.replicated_columns);
  machine.pool.each(n, rows_per_chunk(f * d), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* vectors = dy + i * f * d;
      std::memcpy(bottom + i * d, vectors, static_cast<std::size_t>(d) * sizeof(float));
      const auto give = [&](const TableShard& shard, float* to) {
        const float weight = weight_of(layout.tables[static_cast<std::size_t>(shard.table)]);
        const float* from = vectors + (shard.table + 1) * d + shard.column_begin;
        for (std::int64_t j = 0; j < shard.columns(); ++j) to[j] = weight * from[j];
      };
      for (const TableShard& shard : layout.shards)
        give(shard, pooled + place_in_slots(layout, shard.rank, i) + shard.column);
      for (const TableShard& shard : layout.replicated)
        give(shard, local + i * layout.replicated_columns + shard.column);
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

/// A slot of pooled vectors: where it begins in fp32 and as it travels, and whose shards lay it out.
struct PooledSlot {
  int owner = 0;
  std::int64_t values = 0, coded = 0;  ///< elements
};

std::vector<PooledSlot> slots_of(const Call& call, const TableLayout& layout, plan::PooledType type) {
  std::vector<PooledSlot> out;
  const std::int64_t values = layout.samples * layout.most_columns, coded = layout.most_pooled_values(type);
  for (int rank = 0; rank < layout.ranks; ++rank)
    out.push_back({call.op.row_shard ? rank : call.context.rank, rank * values, rank * coded});
  return out;
}

void encode_bytes(const TableLayout& layout, int owner, const float* x, std::byte* out) {
  for (std::int64_t i = 0; i < layout.samples; ++i)
    for (std::size_t s = layout.begin(owner); s < layout.end(owner); ++s) {
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

void decode_bytes(const TableLayout& layout, int owner, const std::byte* x, float* out) {
  for (std::int64_t i = 0; i < layout.samples; ++i)
    for (std::size_t s = layout.begin(owner); s < layout.end(owner); ++s) {
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
  const float* x = call.input(0, layout.ranks * layout.samples * layout.most_columns);
  std::byte* out = call.out[0].data;
  for (const PooledSlot& slot : slots_of(call, layout, type)) {
    if (type == plan::PooledType::int8) {
      encode_bytes(layout, slot.owner, x + slot.values, out + slot.coded);
      continue;
    }
    auto* to = reinterpret_cast<std::uint16_t*>(out) + slot.coded;
    const std::int64_t count = layout.pooled_values(slot.owner, type);
    (type == plan::PooledType::bf16 ? machine.kernels.to_bf16 : machine.kernels.to_fp16)(x + slot.values, to, count);
  }
}

void run_decode_pooled(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const models::DType dtype = call.in[0].dtype;
  const plan::PooledType type = type_of(dtype);
  const std::byte* x = call.in[0].data;
  float* out = call.output(0, layout.ranks * layout.samples * layout.most_columns);
  for (const PooledSlot& slot : slots_of(call, layout, type)) {
    if (type == plan::PooledType::int8) {
      decode_bytes(layout, slot.owner, x + slot.coded, out + slot.values);
      continue;
    }
    const auto* from = reinterpret_cast<const std::uint16_t*>(x) + slot.coded;
    const std::int64_t count = layout.pooled_values(slot.owner, type);
    (type == plan::PooledType::bf16 ? machine.kernels.from_bf16 : machine.kernels.from_fp16)(from, out + slot.values,
                                                                                             count);
  }
}

}  // namespace orrery::exec
