// Operators over more than 2^31 elements, as the logits of large batches have: on a GPU alone, where there is memory
// for it. All but a few rows at the end are zero; those must be what the CPU backend makes of them alone.
#include <gtest/gtest.h>

#include <random>

#include "exec/engine/half.h"
#include "exec/failure.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace large_test {

using models::DType;
using models::Op;
using models::OpKind;

constexpr std::int64_t kColumns = 65536, kLast = 4;
constexpr std::int64_t kRows = (std::int64_t{1} << 31) / kColumns + kLast;  // the last ones lie behind element 2^31
constexpr std::int64_t kBytes = kRows * kColumns * 2;
constexpr std::int64_t kInner = 64;  // of the product
constexpr std::int64_t kSmall = std::int64_t{64} << 20;

Op op_of(OpKind kind, std::int64_t rows, std::int64_t columns = kColumns) {
  Op op;
  op.kind = kind;
  op.dtype = DType::bf16;
  op.n = rows;
  op.m = columns;
  op.vocab = columns;
  op.epsilon = 1e-5;
  op.scale = 1;
  return op;
}

std::vector<std::byte> stored(const std::vector<float>& values) {
  std::vector<std::byte> out(2 * values.size());
  narrow(DType::bf16, values, out.data());
  return out;
}

std::vector<float> random_values(std::int64_t elements) {
  std::mt19937 random(20240520);
  return random_floats(random, elements).floats;
}

/// One backend's memory: a wide matrix, and a little beside it.
struct Memory {
  Backend& backend;
  std::byte* wide;
  std::byte* small;
  std::int64_t rows, used = 0;

  Memory(Backend& of, std::int64_t all_rows)
      : backend(of),
        wide(of.allocate_arena(all_rows * kColumns * 2 + kSmall)),
        small(wide + all_rows * kColumns * 2),
        rows(all_rows) {}
  [[nodiscard]] Operand matrix() const { return {wide, rows * kColumns, DType::bf16}; }
  Operand take(std::int64_t elements, DType dtype) {
    const Operand out{small + used, elements, dtype};
    used += (elements * models::size_of(dtype) + 255) / 256 * 256;
    EXPECT_LE(used, kSmall);
    return out;
  }
  void run(const Op& op, const std::vector<Operand>& in, const std::vector<Operand>& out) {
    backend.run(op, in, out, {}, {});
  }
  /// Zeros, and `values` in the last rows.
  void begin(const std::vector<float>& values) {
    used = 0;
    run(op_of(OpKind::fill_zero, 0, rows * kColumns), {}, {matrix()});
    backend.copy_to_device(wide + (rows - kLast) * kColumns * 2, stored(values));
  }
  [[nodiscard]] std::vector<float> last_rows() const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(kLast * kColumns * 2));
    backend.synchronise();
    backend.copy_to_host(bytes, wide + (rows - kLast) * kColumns * 2);
    std::vector<float> out(static_cast<std::size_t>(kLast * kColumns));
    widen(DType::bf16, bytes.data(), out);
    return out;
  }
};

/// The loss and its gradient over all rows.
void losses(Memory& m) {
  const Operand max = m.take(m.rows, DType::fp32), sums = m.take(2 * m.rows, DType::fp32);
  const Operand targets = m.take(m.rows, DType::int32);
  m.run(op_of(OpKind::fill_zero, 0, m.rows * 2), {}, {{targets.data, m.rows * 2, DType::bf16}});
  m.run(op_of(OpKind::softmax_max, m.rows), {m.matrix()}, {max});
  m.run(op_of(OpKind::softmax_sum, m.rows), {m.matrix(), max, targets}, {sums});
  Op gradient = op_of(OpKind::cross_entropy_grad, m.rows);
  gradient.scale = 4096;  // else most would round to nothing
  m.run(gradient, {m.matrix(), max, sums, targets, {}}, {m.matrix()});
}

void activations(Memory& m) {
  m.run(op_of(OpKind::gelu, m.rows), {m.matrix()}, {m.matrix()});
}

void norms(Memory& m) {
  const std::int64_t columns = 1024, rows = m.rows * kColumns / columns;
  const Operand weight = m.take(columns, DType::bf16), bias = m.take(columns, DType::bf16);
  m.backend.copy_to_device(weight.data, stored(std::vector<float>(static_cast<std::size_t>(columns), 1.5F)));
  m.backend.copy_to_device(bias.data, stored(std::vector<float>(static_cast<std::size_t>(columns), 0.25F)));
  const Operand mean = m.take(rows, DType::fp32), rstd = m.take(rows, DType::fp32);
  m.run(op_of(OpKind::layer_norm, rows, columns), {m.matrix(), weight, bias}, {m.matrix(), mean, rstd});
}

/// C = A B^T, of which the last rows of A are not zero.
void product(Memory& m) {
  const Operand a = m.take(m.rows * kInner, DType::bf16), b = m.take(kColumns * kInner, DType::bf16);
  m.run(op_of(OpKind::fill_zero, 0, m.rows * kInner), {}, {a});
  m.backend.copy_to_device(a.data + (m.rows - kLast) * kInner * 2, stored(random_values(kLast * kInner)));
  m.backend.copy_to_device(b.data, stored(random_values(kColumns * kInner)));
  Op op = op_of(OpKind::matmul, kColumns, m.rows);
  op.k = kInner;
  op.trans_b = true;
  m.run(op, {a, b}, {m.matrix()});
}

TEST(CudaLarge, RowsBehindElement2To31AreComputedAsOthersAre) {
  std::unique_ptr<Memory> device;
  try {
    device = std::make_unique<Memory>(cuda_backend(), kRows);
  } catch (const Failure& failure) {
    GTEST_SKIP() << "this GPU has no " << (kBytes >> 30) << " GiB free: " << failure.what();
  }
  const auto cpu = make_cpu_backend(1);
  Memory host(*cpu, kLast);
  const std::vector<float> values = random_values(kLast * kColumns);
  for (const auto& [name, work] :
       {std::pair{"losses", &losses}, {"activations", &activations}, {"norms", &norms}, {"a product", &product}}) {
    device->begin(values);
    host.begin(values);
    work(*device);
    work(host);
    EXPECT_LE(relative_difference(device->last_rows(), host.last_rows()), 4e-3) << name;
  }
}

}  // namespace large_test
}  // namespace orrery::exec::gpu_test
