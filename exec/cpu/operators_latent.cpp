// Latent attention: packs heads for attention, and unpacks gradients.
#include <algorithm>

#include "base/ensure.h"
#include "exec/cpu/machine.h"

namespace orrery::exec {

namespace {

/// Columns of heads and of rows.
struct LatentSizes {
  explicit LatentSizes(const models::Op& op)
      : n(op.n),
        heads(op.heads),
        width(op.head_dim),
        turned(op.rotary),
        stays(op.head_dim - op.rotary),
        value(op.k),
        made(stays + value) {
    ENSURE(heads > 0 && turned % 2 == 0 && turned <= width && value <= width,
           "{} heads of {} columns, of which {} turn, and values of {}", heads, width, turned, value);
  }
  std::int64_t n, heads, width, turned, stays, value;
  std::int64_t made;  ///< of a head's key and value before packing
};

/// From neighbouring pairs to pairs of halves.
void to_halves(const float* pairs, std::int64_t turned, float* halves) {
  for (std::int64_t i = 0; i < turned / 2; ++i) halves[i] = pairs[2 * i], halves[i + turned / 2] = pairs[2 * i + 1];
}
template <class Put>
void from_halves(const float* halves, std::int64_t turned, Put&& put) {
  for (std::int64_t i = 0; i < turned / 2; ++i) put(2 * i, halves[i]), put(2 * i + 1, halves[i + turned / 2]);
}

template <class OfRow>
void each_latent_row(Machine& machine, std::int64_t n, std::int64_t columns, OfRow&& of_row) {
  machine.pool.each(n, rows_per_chunk(columns), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) of_row(row);
  });
}

}  // namespace

void run_split_columns(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m, k = call.op.k;
  const float* x = call.input(0, n * (m + k));
  float* a = call.output(0, n * m);
  float* b = call.output(1, n * k);
  each_latent_row(machine, n, m + k, [&](std::int64_t row) {
    const float* source = x + row * (m + k);
    std::copy_n(source, m, a + row * m);
    std::copy_n(source + m, k, b + row * k);
  });
}

void run_join_columns(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m, k = call.op.k;
  const float* a = call.input(0, n * m);
  const float* b = call.input(1, n * k);
  float* x = call.output(0, n * (m + k));
  each_latent_row(machine, n, m + k, [&](std::int64_t row) {
    std::copy_n(a + row * m, m, x + row * (m + k));
    std::copy_n(b + row * k, k, x + row * (m + k) + m);
  });
}

void run_latent_pack(Machine& machine, const Call& call) {
  const LatentSizes s(call.op);
  const std::int64_t all = s.heads * s.width;
  const float* q = call.input(0, s.n * all);
  const float* kv = call.input(1, s.n * s.heads * s.made);
  const float* key = call.input(2, s.n * s.turned);
  float* qkv = call.output(0, s.n * 3 * all);
  each_latent_row(machine, s.n, 3 * all, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const float* query = q + row * all + head * s.width;
      const float* made = kv + (row * s.heads + head) * s.made;
      float* to_q = qkv + row * 3 * all + head * s.width;
      float* to_k = to_q + all;
      float* to_v = to_k + all;
      to_halves(query + s.stays, s.turned, to_q);
      std::copy_n(query, s.stays, to_q + s.turned);
      to_halves(key + row * s.turned, s.turned, to_k);
      std::copy_n(made, s.stays, to_k + s.turned);
      std::copy_n(made + s.stays, s.value, to_v);
      std::fill_n(to_v + s.value, s.width - s.value, 0.0F);
    }
  });
}

void run_latent_pack_grad(Machine& machine, const Call& call) {
  const LatentSizes s(call.op);
  const std::int64_t all = s.heads * s.width;
  const float* dqkv = call.input(0, s.n * 3 * all);
  float* dq = call.output(0, s.n * all);
  float* dkv = call.output(1, s.n * s.heads * s.made);
  float* dkey = call.output(2, s.n * s.turned);
  each_latent_row(machine, s.n, 3 * all, [&](std::int64_t row) {
    float* shared = dkey + row * s.turned;
    std::fill_n(shared, s.turned, 0.0F);
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const float* of_q = dqkv + row * 3 * all + head * s.width;
      const float* of_k = of_q + all;
      float* query = dq + row * all + head * s.width;
      float* made = dkv + (row * s.heads + head) * s.made;
      from_halves(of_q, s.turned, [&](std::int64_t column, float value) { query[s.stays + column] = value; });
      std::copy_n(of_q + s.turned, s.stays, query);
      from_halves(of_k, s.turned, [&](std::int64_t column, float value) { shared[column] += value; });
      std::copy_n(of_k + s.turned, s.stays, made);
      std::copy_n(of_k + all, s.value, made + s.stays);
    }
  });
}

void run_head_values(Machine& machine, const Call& call) {
  const LatentSizes s(call.op);
  const float* y = call.input(0, s.n * s.heads * s.width);
  float* values = call.output(0, s.n * s.heads * s.value);
  each_latent_row(machine, s.n, s.heads * s.width, [&](std::int64_t row) {
    for (std::int64_t head = row * s.heads; head < (row + 1) * s.heads; ++head)
      std::copy_n(y + head * s.width, s.value, values + head * s.value);
  });
}

void run_head_values_grad(Machine& machine, const Call& call) {
  const LatentSizes s(call.op);
  const float* dvalues = call.input(0, s.n * s.heads * s.value);
  float* dy = call.output(0, s.n * s.heads * s.width);
  each_latent_row(machine, s.n, s.heads * s.width, [&](std::int64_t row) {
    for (std::int64_t head = row * s.heads; head < (row + 1) * s.heads; ++head) {
      std::copy_n(dvalues + head * s.value, s.value, dy + head * s.width);
      std::fill_n(dy + head * s.width + s.value, s.width - s.value, 0.0F);
    }
  });
}

}  // namespace orrery::exec
