// What only BERT has: token types, rows chosen by data, tanh, and a loss over few classes.
#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "exec/cpu/machine.h"
#include "exec/failure.h"

namespace orrery::exec {
namespace {

/// The token types of a call's rows, checked.
const std::int32_t* types_of(const Call& call, std::size_t operand, std::int64_t first) {
  const std::int64_t all = call.op.batch * call.op.sequence;
  const std::int32_t* types = call.ids(operand, all);
  for (std::int64_t i = 0; i < all; ++i)
    if (types[i] < 0 || types[i] >= call.op.k)
      throw Failure(fmt::format("token type {} at position {} of the batch, but there are {}", types[i], i, call.op.k));
  return types + first;
}

/// The chosen rows of x in this rank's numbering; those outside [0, k) belong to another rank.
class Chosen {
 public:
  explicit Chosen(const Call& call)
      : rows_(call.in[1].data == nullptr ? nullptr : call.ids(1, call.op.n)),
        stride_(call.op.sequence),
        first_(call.op.row_shard ? call.context.tensor_rank * call.op.k : 0),
        held_(call.op.k) {
    const std::int64_t all = call.op.batch * call.op.sequence;
    for (std::int64_t i = 0; i < call.op.n; ++i)
      if (const std::int64_t row = whole(i); row < 0 || row >= all)
        throw Failure(fmt::format("row {} of a micro-batch of {} is to be predicted", row, all));
  }
  /// -1 if another rank of the group has it.
  [[nodiscard]] std::int64_t operator[](std::int64_t i) const {
    const std::int64_t row = whole(i) - first_;
    return row >= 0 && row < held_ ? row : -1;
  }

 private:
  [[nodiscard]] std::int64_t whole(std::int64_t i) const { return rows_ == nullptr ? i * stride_ : rows_[i]; }
  const std::int32_t* rows_;
  std::int64_t stride_, first_, held_;
};

}  // namespace

void run_type_add(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, c = call.op.m;
  const float* x = call.input(0, n * c);
  const float* table = call.input(1, call.op.k * c);
  const std::int32_t* types = types_of(call, 2, call.op.row_shard ? call.context.tensor_rank * n : 0);
  float* y = call.output(0, n * c);
  machine.pool.each(n, rows_per_chunk(c), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) machine.kernels.add(x + i * c, table + types[i] * c, y + i * c, c);
  });
}

void run_type_grad(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, c = call.op.m;
  const float* dx = call.input(0, n * c);
  const std::int32_t* types = types_of(call, 1, 0);
  float* dtable = call.output(0, call.op.k * c);
  machine.pool.each(c, columns_per_chunk(n), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = 0; i < n; ++i) {
      float* target = dtable + types[i] * c + begin;
      machine.kernels.add(target, dx + i * c + begin, target, end - begin);
    }
  });
}

void run_gather_rows(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m;
  const float* x = call.input(0, call.op.k * m);
  const Chosen rows(call);
  float* y = call.output(0, n * m);
  machine.pool.each(n, rows_per_chunk(m), [&](std::int64_t begin, std::int64_t end, int) {
    const std::size_t bytes = static_cast<std::size_t>(m) * sizeof(float);
    for (std::int64_t i = begin; i < end; ++i)
      if (const std::int64_t row = rows[i]; row >= 0)
        std::memcpy(y + i * m, x + row * m, bytes);
      else
        std::memset(y + i * m, 0, bytes);
  });
}

// A row may have been chosen more than once, so threads divide columns.
void run_scatter_rows(Machine& machine, const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m, held = call.op.k;
  const float* dy = call.input(0, n * m);
  const Chosen rows(call);
  float* dx = call.output(0, held * m);
  if (!call.op.accumulate) std::memset(dx, 0, static_cast<std::size_t>(held * m) * sizeof(float));
  machine.pool.each(m, columns_per_chunk(n), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t row = rows[i];
      if (row < 0) continue;
      float* target = dx + row * m + begin;
      machine.kernels.add(target, dy + i * m + begin, target, end - begin);
    }
  });
}

// One row per sequence: too few to be worth a kernel.
void run_tanh(Machine&, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* x = call.input(0, count);
  float* y = call.output(0, count);
  for (std::int64_t i = 0; i < count; ++i) y[i] = std::tanh(x[i]);
}

void run_tanh_grad(Machine&, const Call& call) {
  const std::int64_t count = call.op.n * call.op.m;
  const float* dy = call.input(0, count);
  const float* y = call.input(1, count);
  float* dx = call.output(0, count);
  for (std::int64_t i = 0; i < count; ++i) dx[i] = dy[i] * (1.0F - y[i] * y[i]);
}

namespace {

struct Classes {
  std::int64_t rows, columns;
  const float* logits;
  const std::int32_t* classes;
  explicit Classes(const Call& call)
      : rows(call.op.n), columns(call.op.m), logits(call.input(0, rows * columns)), classes(call.ids(1, rows)) {
    for (std::int64_t row = 0; row < rows; ++row)
      if (classes[row] < 0 || classes[row] >= columns)
        throw Failure(fmt::format("class {} of sequence {}, but there are {}", classes[row], row, columns));
  }
  [[nodiscard]] double log_sum(std::int64_t row) const {
    const float* l = logits + row * columns;
    const double most = static_cast<double>(*std::max_element(l, l + columns));
    double sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(static_cast<double>(l[c]) - most);
    return most + std::log(sum);
  }
};

}  // namespace

void run_class_loss(Machine&, const Call& call) {
  const Classes s(call);
  float* loss = call.output(0, 1);
  double total = 0;
  for (std::int64_t row = 0; row < s.rows; ++row)
    total += s.log_sum(row) - static_cast<double>(s.logits[row * s.columns + s.classes[row]]);
  loss[0] = static_cast<float>(static_cast<double>(loss[0]) + call.op.scale * total);
}

void run_class_loss_grad(Machine&, const Call& call) {
  const Classes s(call);
  const float* scaling = call.optional_input(2, 1);
  const double scale = call.op.scale * (scaling == nullptr ? 1.0 : static_cast<double>(scaling[0]));
  float* dlogits = call.output(0, s.rows * s.columns);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const double log_sum = s.log_sum(row);
    for (std::int64_t c = 0; c < s.columns; ++c) {
      const std::int64_t at = row * s.columns + c;
      const double share = std::exp(static_cast<double>(s.logits[at]) - log_sum);
      dlogits[at] = static_cast<float>(scale * (share - (s.classes[row] == c ? 1.0 : 0.0)));
    }
  }
}

}  // namespace orrery::exec
