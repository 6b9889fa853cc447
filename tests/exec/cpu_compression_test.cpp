// Kernels of compression: rounding, sums of pieces, orthonormal columns, Gist's formats bit by bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "exec/engine/half.h"
#include "models/encoding.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec {
namespace cpu_compression_test {

using models::DType;
using models::OpKind;
using testing::of;

models::Op flat(OpKind kind, std::int64_t m, std::int64_t n = 0, std::int64_t k = 0) {
  models::Op op;
  op.kind = kind;
  op.m = m, op.n = n, op.k = k;
  return op;
}
void run(const models::Op& op, std::vector<Operand> in, std::vector<Operand> out, int threads = 2) {
  const auto backend = make_cpu_backend(threads);
  backend->run(op, in, out, {}, {});
}
Operand halves(std::vector<std::uint16_t>& x, DType dtype) {
  return {reinterpret_cast<std::byte*>(x.data()), static_cast<std::int64_t>(x.size()), dtype};
}
Operand bytes(std::vector<std::byte>& x) {
  return {x.data(), static_cast<std::int64_t>(x.size()), DType::uint8};
}

TEST(Convert, RoundsToNearestAndBack) {
  constexpr std::int64_t kCount = 70001;  // more than one chunk
  testing::Numbers x = testing::random_numbers(kCount, "convert");
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    std::vector<std::uint16_t> half(x.size());
    testing::Numbers back(x.size());
    models::Op op = flat(OpKind::convert, kCount);
    op.dtype = dtype;
    run(op, {of(x)}, {halves(half, dtype)});
    run(op, {halves(half, dtype)}, {of(back)});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float expected = dtype == DType::bf16 ? from_bf16(to_bf16(x[i])) : from_fp16(to_fp16(x[i]));
      ASSERT_EQ(back[i], expected) << i;
    }
  }
}

TEST(SumPieces, AddsInThirtyTwoBitsInTheOrderOfThePieces) {
  constexpr std::int64_t kCount = 3000, kPieces = 5;
  testing::Numbers x = testing::random_numbers(kCount * kPieces, "pieces");
  std::vector<std::uint16_t> pieces(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) pieces[i] = to_bf16(x[i]);
  models::Op op = flat(OpKind::sum_pieces, kCount, kPieces);
  op.dtype = DType::bf16;
  testing::Numbers sum(kCount, 1.0F);
  run(op, {halves(pieces, DType::bf16)}, {of(sum)});
  testing::Numbers more(kCount, 1.0F);
  op.accumulate = true;
  run(op, {halves(pieces, DType::bf16)}, {of(more)});
  for (std::size_t i = 0; i < sum.size(); ++i) {
    float expected = from_bf16(pieces[i]);
    for (std::size_t p = 1; p < kPieces; ++p) expected += from_bf16(pieces[p * kCount + i]);
    ASSERT_EQ(sum[i], expected);
    ASSERT_EQ(more[i], 1.0F + expected);
  }
  // 256 ones in bf16 added up in bf16 stay at 256: in fp32 they do not.
  std::vector<std::uint16_t> ones(512, to_bf16(1));
  testing::Numbers total(1);
  op = flat(OpKind::sum_pieces, 1, 512);
  op.dtype = DType::bf16;
  run(op, {halves(ones, DType::bf16)}, {of(total)});
  EXPECT_EQ(total[0], 512);
}

void expect_orthonormal(const testing::Numbers& x, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t a = 0; a < columns; ++a)
    for (std::int64_t b = 0; b < columns; ++b) {
      double dot = 0;
      for (std::int64_t r = 0; r < rows; ++r)
        dot += static_cast<double>(x[static_cast<std::size_t>(r * columns + a)]) *
               static_cast<double>(x[static_cast<std::size_t>(r * columns + b)]);
      EXPECT_NEAR(dot, a == b ? 1 : 0, 1e-5) << a << ", " << b;
    }
}

TEST(Orthogonalise, MakesColumnsOrthonormalAndKeepsWhatTheySpan) {
  constexpr std::int64_t kRows = 100, kColumns = 4;
  testing::Numbers x = testing::random_numbers(kRows * kColumns, "columns");
  const testing::Numbers before = x;
  run(flat(OpKind::orthogonalise, kRows, kColumns), {}, {of(x)});
  expect_orthonormal(x, kRows, kColumns);
  for (std::int64_t c = 0; c < kColumns; ++c) {  // P P^T takes each column to itself
    for (std::int64_t r = 0; r < kRows; ++r) {
      double projected = 0;
      for (std::int64_t k = 0; k < kColumns; ++k) {
        double along = 0;
        for (std::int64_t i = 0; i < kRows; ++i)
          along += static_cast<double>(x[static_cast<std::size_t>(i * kColumns + k)]) *
                   static_cast<double>(before[static_cast<std::size_t>(i * kColumns + c)]);
        projected += along * static_cast<double>(x[static_cast<std::size_t>(r * kColumns + k)]);
      }
      EXPECT_NEAR(projected, static_cast<double>(before[static_cast<std::size_t>(r * kColumns + c)]), 1e-4);
    }
  }
}

TEST(Orthogonalise, ColumnsThatOthersSpanBecomeUnitVectorsThatTheyDoNot) {
  constexpr std::int64_t kRows = 6, kColumns = 3;
  testing::Numbers x(kRows * kColumns, 0.0F);
  for (std::int64_t r = 0; r < kRows; ++r)
    x[static_cast<std::size_t>(r * kColumns)] = x[static_cast<std::size_t>(r * kColumns + 1)] = 1;
  run(flat(OpKind::orthogonalise, kRows, kColumns), {}, {of(x)});
  expect_orthonormal(x, kRows, kColumns);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  run(flat(OpKind::orthogonalise, kRows, kColumns), {}, {of(x)});
  EXPECT_TRUE(std::isnan(x[0])) << "an overflow stays visible";
}

/// The nearest value of a format, by arithmetic instead of by bits; ties to even.
double nearest(double x, int exponent, int mantissa) {
  if (x == 0 || std::isnan(x)) return x;
  const int bias = (1 << (exponent - 1)) - 1;
  const double most = std::ldexp(2 - std::ldexp(1.0, -mantissa), bias), least = std::ldexp(1.0, 1 - bias);
  if (std::isinf(x)) return std::copysign(most, x);
  int e = 0;
  (void)std::frexp(x, &e);
  const double unit = std::ldexp(1.0, e - 1 - mantissa);
  const double rounded = std::nearbyint(x / unit) * unit;
  if (std::abs(rounded) < least) return std::copysign(0.0, x);
  return std::copysign(std::min(std::abs(rounded), most), x);
}

TEST(GistFormats, RoundClipAndFlushAsThePaperSays) {
  const auto value = [](float x, std::int64_t bits) {
    return models::decoded(models::encoded(x, models::format_of(bits)), models::format_of(bits));
  };
  // By hand: 8 bits, 1-4-3, bias 7: 240 is the largest, 2^-6 the smallest.
  EXPECT_EQ(value(1000, 8), 240);
  EXPECT_EQ(value(-1e30F, 8), -240);
  EXPECT_EQ(value(std::numeric_limits<float>::infinity(), 8), 240);
  EXPECT_EQ(value(0.015625F, 8), 0.015625F);
  EXPECT_EQ(value(0.01F, 8), 0);
  EXPECT_EQ(value(1.0625F, 8), 1);      // half way, to the even one
  EXPECT_EQ(value(1.1875F, 8), 1.25F);  // half way, to the even one
  EXPECT_EQ(value(3.3F, 8), 3.25F);
  EXPECT_EQ(value(70000, 10), 63488);  // 2^15 (2 - 2^-4)
  EXPECT_EQ(value(70000, 16), 65504);
  EXPECT_EQ(value(1e-5F, 16), 0) << "denormal";
  for (const std::int64_t bits : {8, 10, 16}) {
    EXPECT_TRUE(std::isnan(value(std::numeric_limits<float>::quiet_NaN(), bits)));
    const models::Format f = models::format_of(bits);
    for (const float x : testing::random_numbers(20000, "formats"))
      for (const double scale : {1e-6, 1e-3, 0.1, 1.0, 50.0, 1e5}) {
        const auto scaled = static_cast<float>(static_cast<double>(x) * scale);
        ASSERT_EQ(static_cast<double>(value(scaled, bits)),
                  nearest(static_cast<double>(scaled), f.exponent, f.mantissa))
            << scaled << " in " << bits;
      }
  }
}

TEST(Encode, PacksAndUnpacksAnyNumberOfValuesWithAnyNumberOfThreads) {
  for (const std::int64_t bits : {8, 10, 16})
    for (const std::int64_t count : {1, 2, 3, 1023, 70001})
      for (const int threads : {1, 3}) {
        testing::Numbers x = testing::random_numbers(count, "encode"), back(x.size());
        std::vector<std::byte> stored(static_cast<std::size_t>(models::encoded_bytes(count, bits)));
        run(flat(OpKind::encode, count, 0, bits), {of(x)}, {bytes(stored)}, threads);
        run(flat(OpKind::decode, count, 0, bits), {bytes(stored)}, {of(back)}, threads);
        const models::Format f = models::format_of(bits);
        for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(back[i], models::decoded(models::encoded(x[i], f), f));
      }
  EXPECT_EQ(models::encoded_bytes(7, 10), 12) << "three to a word";
}

TEST(Encode, KeepsTheTypeOfSixteenBitActivations) {
  std::vector<std::uint16_t> x(100), back(100);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = to_bf16(static_cast<float>(i) * 0.37F - 11);
  std::vector<std::byte> stored(100);
  models::Op op = flat(OpKind::encode, 100, 0, 8);
  op.dtype = DType::bf16;
  run(op, {halves(x, DType::bf16)}, {bytes(stored)});
  op.kind = OpKind::decode;
  run(op, {bytes(stored)}, {halves(back, DType::bf16)});
  const models::Format f = models::format_of(8);
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(from_bf16(back[i]), models::decoded(models::encoded(from_bf16(x[i]), f), f));
}

}  // namespace cpu_compression_test
}  // namespace orrery::exec
