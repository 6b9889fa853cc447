// Products in fp8 and tf32 on the CPU: those of their rounded operands, summed in fp32; operands that overflow, and
// operands of nothing but zeros.
#include "exec/engine/half.h"
#include "models/operators/fp8.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_fp8_test {

using models::DType;
using models::Fp8;

std::size_t element(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

using Halves = std::vector<std::uint16_t>;

Halves narrow_to_bf16(const Numbers& x) {
  Halves out;
  for (const float v : x) out.push_back(to_bf16(v));
  return out;
}
Operand halves_of(Halves& x) {
  return {reinterpret_cast<std::byte*>(x.data()), static_cast<std::int64_t>(x.size()), DType::bf16};
}
Operand bytes_of(std::vector<std::uint8_t>& x) {
  return {reinterpret_cast<std::byte*>(x.data()), static_cast<std::int64_t>(x.size()), DType::uint8};
}
/// As the operator says: scaled by the power of two of their largest, rounded, and scaled back.
Exact rounded(const Halves& x, Fp8 kind) {
  float largest = 0;
  for (const std::uint16_t bits : x) largest = std::max(largest, std::abs(from_bf16(bits)));
  int exponent = 0;
  const float most = kind == Fp8::e4m3 ? 448.0F : 57344.0F;
  while (std::ldexp(largest, exponent) > most) --exponent;
  while (largest > 0 && std::ldexp(largest, exponent + 1) <= most) ++exponent;
  Exact out;
  for (const std::uint16_t bits : x) {
    const float scaled = std::ldexp(from_bf16(bits), exponent);
    out.push_back(std::ldexp(static_cast<double>(models::fp8_value(models::fp8_code(scaled, kind), kind)), -exponent));
  }
  return out;
}

/// What layers have: forward, the input's gradient, the weight's.
enum class Which { forward, input, weight };

Op product_of(Which which, std::int64_t m, std::int64_t n, std::int64_t k) {
  Op op;
  op.kind = OpKind::matmul;
  op.dtype = DType::bf16;
  op.rounded = true;
  op.m = m, op.n = n, op.k = k;
  op.trans_b = which == Which::forward;
  op.trans_a = op.accumulate = which == Which::weight;
  return op;
}

TEST(Fp8Products, AreThoseOfTheirRoundedOperandsSummedInFp32) {
  for (const auto& [m, n, k] : {std::tuple<int, int, int>{16, 16, 16}, {304, 272, 64}, {48, 640, 1552}})
    for (const Which which : {Which::forward, Which::input, Which::weight}) {
      const Op op = product_of(which, m, n, k);
      SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
      Halves a = narrow_to_bf16(random_numbers(m * k, "a", which == Which::forward ? 1 : 1e-6)),
             b = narrow_to_bf16(random_numbers(k * n, "b", 0.02)), bias = narrow_to_bf16(random_numbers(n, "bias"));
      const Numbers before = random_numbers(m * n, "before", 1e-6);
      const Exact of_a = rounded(a, which == Which::forward ? Fp8::e4m3 : Fp8::e5m2), of_b = rounded(b, Fp8::e4m3);
      const bool biased = which == Which::forward;
      Exact expected;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = biased ? static_cast<double>(from_bf16(bias[element(j)])) : 0;
          if (op.accumulate) sum += static_cast<double>(before[element(i * n + j)]);
          for (std::int64_t l = 0; l < k; ++l)
            sum +=
                of_a[element(op.trans_a ? l * m + i : i * k + l)] * of_b[element(op.trans_b ? j * k + l : l * n + j)];
          expected.push_back(sum);
        }
      std::vector<std::uint8_t> first_room;
      for (int threads = 1; threads <= 2; ++threads) {
        CpuBackend backend(threads, best_kernels());
        std::vector<std::uint8_t> room(element(models::Fp8Casts(m, n, k).bytes), 0xEE);
        Numbers found;
        if (which == Which::weight) {
          found = before;
          run(backend, op, {halves_of(a), halves_of(b), absent()}, {of(found), bytes_of(room)});
          EXPECT_LT(error_of(found, expected), 1e-6);
        } else {
          Halves out(before.size());
          run(backend, op, {halves_of(a), halves_of(b), biased ? halves_of(bias) : absent()},
              {halves_of(out), bytes_of(room)});
          for (const std::uint16_t bits : out) found.push_back(from_bf16(bits));
          EXPECT_LT(error_of(found, expected), 0x1p-8);
        }
        if (threads == 1) first_room = room;
        EXPECT_EQ(room, first_room) << "rounded operands, their scales and all";
      }
    }
}

TEST(Fp8Products, OfWhatIsNotFiniteAreNot) {
  for (const float bad : {HUGE_VALF, -HUGE_VALF, NAN}) {
    const Op op = product_of(Which::input, 16, 16, 16);
    Halves a = narrow_to_bf16(random_numbers(256, "a")), b = narrow_to_bf16(random_numbers(256, "b")), out(256);
    a[37] = to_bf16(bad);
    std::vector<std::uint8_t> room(element(models::Fp8Casts(16, 16, 16).bytes));
    CpuBackend backend(1, best_kernels());
    run(backend, op, {halves_of(a), halves_of(b), absent()}, {halves_of(out), bytes_of(room)});
    for (const std::uint16_t bits : out) EXPECT_TRUE(std::isnan(from_bf16(bits))) << "it would vanish in the norm";
  }
}

TEST(Fp8Products, OfZerosAreZeroAndOfTheSmallestValuesNot) {
  const Op op = product_of(Which::input, 16, 16, 16);
  Halves a(256, 0), b = narrow_to_bf16(random_numbers(256, "b")), out(256, 0x7FFF);
  std::vector<std::uint8_t> room(element(models::Fp8Casts(16, 16, 16).bytes));
  CpuBackend backend(1, best_kernels());
  run(backend, op, {halves_of(a), halves_of(b), absent()}, {halves_of(out), bytes_of(room)});
  for (const std::uint16_t bits : out) EXPECT_EQ(bits & 0x7FFFU, 0U);
  a = narrow_to_bf16(Numbers(256, 1e-30F));
  b = narrow_to_bf16(Numbers(256, 2.0F));
  run(backend, op, {halves_of(a), halves_of(b), absent()}, {halves_of(out), bytes_of(room)});
  for (const std::uint16_t bits : out) EXPECT_NEAR(from_bf16(bits), 32e-30F, 0.2 * 32e-30F);
}

TEST(Tf32Products, AreThoseOfOperandsWithTenBitsOfMantissa) {
  for (int flags = 0; flags < 16; ++flags) {
    Op op;
    op.kind = OpKind::matmul;
    op.rounded = true;
    op.m = 70, op.n = 270, op.k = 33;
    op.trans_a = (flags & 1) != 0, op.trans_b = (flags & 2) != 0, op.accumulate = (flags & 4) != 0;
    const bool biased = (flags & 8) != 0;
    Numbers a = random_numbers(op.m * op.k, "a"), b = random_numbers(op.k * op.n, "b"),
            bias = random_numbers(op.n, "c");
    const Numbers before = random_numbers(op.m * op.n, "before");
    Exact expected, full;
    for (std::int64_t i = 0; i < op.m; ++i)
      for (std::int64_t j = 0; j < op.n; ++j) {
        const double rest = (biased ? static_cast<double>(bias[element(j)]) : 0) +
                            (op.accumulate ? static_cast<double>(before[element(i * op.n + j)]) : 0);
        double sum = rest, exactly = rest;
        for (std::int64_t l = 0; l < op.k; ++l) {
          const float x = a[element(op.trans_a ? l * op.m + i : i * op.k + l)];
          const float y = b[element(op.trans_b ? j * op.k + l : l * op.n + j)];
          sum += static_cast<double>(models::tf32_value(x)) * static_cast<double>(models::tf32_value(y));
          exactly += static_cast<double>(x) * static_cast<double>(y);
        }
        expected.push_back(sum);
        full.push_back(exactly);
      }
    CpuBackend backend(2, best_kernels());
    Numbers found = before;
    run(backend, op, {of(a), of(b), biased ? of(bias) : absent()}, {of(found)});
    EXPECT_LT(error_of(found, expected), 1e-6) << flags;
    EXPECT_GT(error_of(found, full), 1e-5) << "not rounded";
  }
}

}  // namespace cpu_fp8_test
}  // namespace orrery::exec::testing
