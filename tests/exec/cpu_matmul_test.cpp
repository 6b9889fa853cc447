// Matrix products: every orientation, bias and accumulation, sizes that threads divide and sizes that they do not.
#include "exec/failure.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_matmul_test {

struct Case {
  std::int64_t m, n, k;
  bool trans_a, trans_b, bias, accumulate;
};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

Exact reference(const Case& c, const Numbers& a, const Numbers& b, const Numbers& bias, const Numbers& before) {
  Exact result(at(c.m * c.n));
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t j = 0; j < c.n; ++j) {
      double sum = (c.accumulate ? static_cast<double>(before[at(i * c.n + j)]) : 0) +
                   (c.bias ? static_cast<double>(bias[at(j)]) : 0);
      for (std::int64_t l = 0; l < c.k; ++l)
        sum += static_cast<double>(a[at(c.trans_a ? l * c.m + i : i * c.k + l)]) *
               static_cast<double>(b[at(c.trans_b ? j * c.k + l : l * c.n + j)]);
      result[at(i * c.n + j)] = sum;
    }
  return result;
}

void check(const Case& c) {
  SCOPED_TRACE(std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) + (c.trans_a ? " A^T" : "") +
               (c.trans_b ? " B^T" : "") + (c.bias ? " bias" : "") + (c.accumulate ? " accumulate" : ""));
  Numbers a = random_numbers(c.m * c.k, "a"), b = random_numbers(c.k * c.n, "b"), bias = random_numbers(c.n, "bias");
  const Numbers before = random_numbers(c.m * c.n, "before");
  const Exact expected = reference(c, a, b, bias, before);
  Op op;
  op.kind = OpKind::matmul;
  op.m = c.m;
  op.n = c.n;
  op.k = c.k;
  op.trans_a = c.trans_a;
  op.trans_b = c.trans_b;
  op.accumulate = c.accumulate;
  for (int threads = 1; threads <= 3; ++threads) {
    CpuBackend backend(threads, best_kernels());
    Numbers out = c.accumulate ? before : Numbers(before.size(), NAN);
    run(backend, op, {of(a), of(b), c.bias ? of(bias) : absent()}, {of(out)});
    EXPECT_LT(error_of(out, expected), 1e-6) << threads << " threads";
  }
}

TEST(Matmul, EqualsTheDefinitionInEveryOrientation) {
  for (int flags = 0; flags < 16; ++flags)
    for (const auto& [m, n, k] :
         {std::tuple<int, int, int>{1, 1, 1}, {3, 5, 7}, {17, 33, 9}, {150, 90, 110}, {70, 210, 130}})
      check({m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0});
}

TEST(Matmul, RefusesOperandsThatAreTooSmall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Numbers a(6), b(6), c(3);
  Op op;
  op.kind = OpKind::matmul;
  op.m = op.n = 2;
  op.k = 3;
  CpuBackend backend(1, best_kernels());
  EXPECT_DEATH(run(backend, op, {of(a), of(b), absent()}, {of(c)}), "matmul: output operand 0 has 3 elements, needs 4");
  EXPECT_DEATH(run(backend, op, {of(a), absent(), absent()}, {of(c)}), "matmul: input operand 1 is absent");
}

TEST(CpuBackend, NamesTheOperatorAndTypeThatItDoesNotCompute) {
  Numbers x(4);
  Op op = rows_op(OpKind::gelu, 2, 2);
  op.dtype = models::DType::fp8;
  const auto backend = make_cpu_backend(1);
  try {
    run(*backend, op, {of(x)}, {of(x)});
    FAIL() << "fp8 was accepted";
  } catch (const Failure& failure) {
    EXPECT_STREQ("the CPU backend computes in fp32, bf16 and fp16, not gelu in fp8", failure.what());
  }
}

TEST(CpuBackend, GivesAnArenaAndCopiesAndMeasures) {
  const auto backend = make_cpu_backend(2);
  const Backend::Mark begin = backend->mark();
  std::byte* arena = backend->allocate_arena(1 << 20);
  Numbers there = random_numbers(100, "there"), back(100);
  backend->copy_to_device(arena, std::as_bytes(std::span<const float>(there)));
  backend->copy_to_host(std::as_writable_bytes(std::span<float>(back)), arena);
  backend->synchronise();
  EXPECT_EQ(there, back);
  EXPECT_GE(backend->seconds_between(begin, backend->mark()), 0);
  EXPECT_EQ("cpu", backend->name());
  EXPECT_NE(std::string::npos, backend->device_name().find("2 threads"));
  EXPECT_THROW(static_cast<void>(backend->allocate_arena(std::int64_t{1} << 60)), Failure);
}

TEST(CpuBackend, CountsTheWorkspaceOfItsKernels) {
  const auto backend = make_cpu_backend(1);
  EXPECT_EQ(0, backend->scratch_bytes());
  Op op;
  op.kind = OpKind::attention;
  op.batch = op.heads = op.kv_heads = 1;
  op.sequence = 40;
  op.head_dim = 4;
  op.causal = op.flash = true;
  Numbers qkv(40 * 12), y(40 * 4), lse(40);
  run(*backend, op, {of(qkv)}, {of(y), of(lse)});
  EXPECT_EQ(40 * 40 * 4, backend->scratch_bytes());  // one block of scores
}

}  // namespace cpu_matmul_test
}  // namespace orrery::exec::testing
