// Embeddings with their gradients, and rotary positions.
#include <cstring>

#include "base/ensure.h"
#include "exec/cpu/machine.h"

namespace orrery::exec {
namespace {

/// The first id in this rank's shard of the token table.
std::int64_t first_id(const Call& call) {
  return call.context.tensor_rank * call.op.m;
}

}  // namespace

void run_embedding(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, rows = call.op.m, c = call.op.k, first = first_id(call);
  const std::int32_t* ids = call.ids(0, n);
  const float* table = call.input(1, rows * c);
  float* x = call.output(0, n * c);
  const auto scale = static_cast<float>(call.op.scale);
  machine.pool.each(n, rows_per_chunk(c), [&](std::int64_t begin, std::int64_t end, int) {
    const std::size_t bytes = static_cast<std::size_t>(c) * sizeof(float);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = ids[i] - first;
      if (row >= 0 && row < rows && scale != 1)
        for (std::int64_t j = 0; j < c; ++j) x[i * c + j] = scale * table[row * c + j];
      else if (row >= 0 && row < rows)
        std::memcpy(x + i * c, table + row * c, bytes);
      else
        std::memset(x + i * c, 0, bytes);
    }
  });
}

void run_position_add(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, c = call.op.m, t = call.op.sequence;
  const float* x = call.input(0, n * c);
  const std::int64_t first = call.op.row_shard ? call.context.tensor_rank * n : 0;
  const models::Op& op = call.op;
  const int part = call.context.part;
  const std::int64_t read = op.context > 1 ? t * op.context : std::min(first + n, t);
  const float* table = call.input(1, (op.k + read) * c) + op.k * c;
  float* y = call.output(0, n * c);
  machine.pool.each(n, rows_per_chunk(c), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      machine.kernels.add(x + i * c, table + position_of(op, part, first + i) * c, y + i * c, c);
  });
}

// Tokens repeat, so threads divide columns, not rows: each adds all tokens in order.
void run_embedding_grad(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, rows = call.op.m, c = call.op.k, first = first_id(call);
  const std::int32_t* ids = call.ids(0, n);
  const float* dx = call.input(1, n * c);
  float* dtable = call.output(0, rows * c);
  const auto scale = static_cast<float>(call.op.scale);
  machine.pool.each(c, columns_per_chunk(n), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t row = ids[i] - first;
      if (row < 0 || row >= rows) continue;
      float* target = dtable + row * c + begin;
      if (scale != 1)
        for (std::int64_t j = begin; j < end; ++j) target[j - begin] += scale * dx[i * c + j];
      else
        machine.kernels.add(target, dx + i * c + begin, target, end - begin);
    }
  });
}

void run_position_grad(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, c = call.op.m, t = call.op.sequence;
  const std::int64_t used = std::min(n, t);
  const float* dx = call.input(0, n * c);
  const models::Op& op = call.op;
  const int part = call.context.part;
  float* dtable = call.output(0, (op.k + (op.context > 1 ? t * op.context : used)) * c) + op.k * c;
  machine.pool.each(used, rows_per_chunk(c * (n / std::max<std::int64_t>(t, 1) + 1)),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t place = begin; place < end; ++place) {
                        float* target = dtable + position_of(op, part, place) * c;
                        for (std::int64_t i = place; i < n; i += t) machine.kernels.add(target, dx + i * c, target, c);
                      }
                    });
}

// Su et al., "RoFormer" (arXiv:2104.09864), with the pairing of Hugging Face's Llama weights: element i of a head
// rotates with element i + D/2.
void run_rope(Machine& machine, const Call& call, bool backward) {
  const models::Op& op = call.op;
  const std::int64_t n = op.batch * op.sequence, d = op.head_dim, turned = op.rotary > 0 ? op.rotary : d;
  const std::int64_t half = turned / 2;
  ENSURE(turned % 2 == 0 && turned <= d, "rope turns pairs, but of {} elements of a head {}", d, turned);
  const std::int64_t width = models::packed_columns(op), values = op.kv_heads * models::value_columns(op);
  const float* x = call.input(0, n * width);
  float* y = call.output(0, n * width);
  const RopeTable& table = machine.rope.get(op.sequence * op.context, turned, op.epsilon, op.rope_scaling);
  const float direction = backward ? -1.0F : 1.0F;
  machine.pool.each(n, rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t position = position_of(op, call.context.part, i);
      const float* cosines = table.cosines.data() + position * half;
      const float* sines = table.sines.data() + position * half;
      const float* source = x + i * width;
      float* target = y + i * width;
      for (std::int64_t head = 0; head < op.heads + op.kv_heads; ++head, source += d, target += d) {
        for (std::int64_t j = 0; j < half; ++j) {
          const float a = source[j], b = source[j + half], sine = direction * sines[j];
          target[j] = a * cosines[j] - b * sine;
          target[j + half] = b * cosines[j] + a * sine;
        }
        if (x != y) std::copy(source + turned, source + d, target + turned);
      }
      if (x != y) std::memcpy(target, source, static_cast<std::size_t>(values) * sizeof(float));
    }
  });
}

}  // namespace orrery::exec
