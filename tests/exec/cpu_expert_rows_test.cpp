// What is done to each row of an expert by itself: its bias, and how it travels in fewer bits. Some slots are not full,
// and some experts have no rows.
#include <algorithm>

#include "exec/engine/half.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_expert_rows_test {

using models::DType;
using Bits16 = std::vector<std::uint16_t>;

std::size_t place_of(std::int64_t i) {
  return static_cast<std::size_t>(i);
}
Operand bits_of(Bits16& x) {
  return {reinterpret_cast<std::byte*>(x.data()), static_cast<std::int64_t>(x.size()), DType::bf16};
}
Bits16 narrowed(const Numbers& x) {
  Bits16 result(x.size());
  std::transform(x.begin(), x.end(), result.begin(), to_bf16);
  return result;
}
Numbers widened_again(const Bits16& x) {
  Numbers result(x.size());
  std::transform(x.begin(), x.end(), result.begin(), from_bf16);
  return result;
}

/// Where rows stand: slots of so much room, of each expert so many rows, one behind the other.
struct Slotted {
  std::int64_t slots = 2, experts = 3, capacity = 7;
  Ids counts = {2, 0, 3, 1, 4, 0};
  [[nodiscard]] std::int64_t rows() const { return slots * capacity; }
  /// Of each row its expert; -1: it is not there.
  [[nodiscard]] Ids owners() const {
    Ids out(place_of(rows()), -1);
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      std::int64_t row = slot * capacity;
      for (std::int64_t e = 0; e < experts; ++e)
        for (std::int32_t i = 0; i < counts[place_of(slot * experts + e)]; ++i)
          out[place_of(row++)] = static_cast<int>(e);
    }
    return out;
  }
  [[nodiscard]] Op op(OpKind kind, std::int64_t columns) const {
    Op op = rows_op(kind, rows(), columns);
    op.slots = slots, op.experts = experts, op.capacity = capacity;
    return op;
  }
};

TEST(BiasesOfExperts, AreAddedToTheirRowsAndGatherTheirGradients) {
  constexpr std::int64_t kColumns = 11;
  Slotted rows;
  const Ids owners = rows.owners();
  for (const std::int64_t sides : {1, 2})
    for (const bool narrow : {false, true}) {
      Numbers x = random_numbers(rows.rows() * sides * kColumns, "x");
      Numbers first = random_numbers(rows.experts * kColumns, "first"), second = first;
      for (float& value : second) value *= -3;
      Bits16 x16 = narrowed(x), first16 = narrowed(first), second16 = narrowed(second);
      const auto value_of = [&](const Numbers& wide, const Bits16& half, std::int64_t i) {
        return narrow ? from_bf16(half[place_of(i)]) : wide[place_of(i)];
      };
      on_every_backend([&](Backend& backend) {
        Numbers y = x, sums[] = {Numbers(first.size(), 1.0F), Numbers(first.size(), 1.0F)};  // they are added to
        Bits16 y16 = x16;
        Op op = rows.op(OpKind::expert_bias, kColumns);
        op.dtype = narrow ? DType::bf16 : DType::fp32;
        op.scale = 0.5;
        const auto side = [&](Numbers& wide, Bits16& half) { return narrow ? bits_of(half) : of(wide); };
        std::vector<Operand> in = {side(y, y16), side(first, first16), of(rows.counts)};
        if (sides == 2) in.push_back(side(second, second16));
        run(backend, op, in, {side(y, y16)});
        Op back = rows.op(OpKind::expert_bias_grad, kColumns);
        back.dtype = op.dtype;
        back.accumulate = true;
        std::vector<Operand> out = {of(sums[0])};
        if (sides == 2) out.push_back(of(sums[1]));
        run(backend, back, {side(x, x16), of(rows.counts)}, out);
        Exact expected[] = {Exact(first.size(), 1), Exact(first.size(), 1)};
        for (std::int64_t row = 0; row < rows.rows(); ++row)
          for (std::int64_t i = 0; i < sides * kColumns; ++i) {
            const std::int64_t at = row * sides * kColumns + i, e = owners[place_of(row)];
            const float was = value_of(x, x16, at), is = value_of(y, y16, at);
            if (e < 0) {
              EXPECT_EQ(is, was) << "row " << row << " is not there";
              continue;
            }
            const std::int64_t of_bias = e * kColumns + i % kColumns;
            const double bias = i < kColumns ? value_of(first, first16, of_bias) : value_of(second, second16, of_bias);
            EXPECT_NEAR(is, was + 0.5 * bias, (narrow ? 1.0 / 256 : 1e-6) * (std::abs(was) + std::abs(bias)));
            expected[i / kColumns][place_of(of_bias)] += was;
          }
        for (std::int64_t i = 0; i < sides; ++i) EXPECT_LT(error_of(sums[i], expected[i]), 1e-6);
        return std::vector<Numbers>{narrow ? widened_again(y16) : y, sums[0], sums[1]};
      });
    }
}

// -- rows in fewer bits -----------------------------------------------------------------------------------------------

/// What comes of rows that travel: of those that are not there what was there before.
Numbers there_and_back(Backend& backend, const Slotted& rows, models::TokenCodec codec, Numbers x,
                       std::int64_t columns) {
  Slotted slotted = rows;
  const std::int64_t width = models::elements_of_row(codec, columns);
  std::vector<std::byte> travel(place_of(rows.rows() * width * models::size_of(models::dtype_of(codec))),
                                std::byte{0xEE});
  const Operand between{travel.data(), rows.rows() * width, models::dtype_of(codec)};
  Numbers y(x.size(), 77.0F);
  Op op = rows.op(OpKind::encode_rows, columns);
  op.k = width;
  op.codec = codec;
  run(backend, op, {of(x), of(slotted.counts)}, {between});
  const Ids owners = rows.owners();
  const std::size_t bytes = travel.size() / owners.size();
  for (std::size_t row = 0; row < owners.size(); ++row) {
    if (owners[row] >= 0) continue;
    for (std::size_t i = 0; i < bytes; ++i) EXPECT_EQ(travel[row * bytes + i], std::byte{0xEE}) << "row " << row;
  }
  op.kind = OpKind::decode_rows;
  run(backend, op, {between, of(slotted.counts)}, {of(y)});
  return y;
}

TEST(RowsInFewerBits, ComeBackAsNearAsTheirFormatSays) {
  constexpr std::int64_t kColumns = 300;  // two blocks of 128, and one of 44
  const Slotted rows;
  const Ids owners = rows.owners();
  Numbers x = random_numbers(rows.rows() * kColumns, "x");
  for (std::size_t i = 0; i < x.size(); ++i)  // blocks of quite other sizes, and one of nothing but zeros
    x[i] *= i % kColumns < 128 ? 1e-6F : i % kColumns < 256 ? 1e4F : 1.0F;
  std::fill_n(x.begin(), 128, 0.0F);
  on_every_backend([&](Backend& backend) {
    std::vector<Numbers> all;
    for (const models::TokenCodec codec :
         {models::TokenCodec::bf16, models::TokenCodec::fp8, models::TokenCodec::int8}) {
      const Numbers y = there_and_back(backend, rows, codec, x, kColumns);
      all.push_back(y);
      double differs = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t row = i / kColumns, column = i % kColumns;
        if (owners[row] < 0) {
          EXPECT_EQ(y[i], 77.0F);
          continue;
        }
        const auto largest = [&](std::size_t begin, std::size_t end) {
          float most = 0;
          for (std::size_t c = begin; c < end; ++c) most = std::max(most, std::abs(x[row * kColumns + c]));
          return static_cast<double>(most);
        };
        const std::size_t block = column / 128 * 128;
        // Half a unit of the last of 8 or 4 bits; of e4m3's denormals half of 2^-9 of what 448 stands for at most.
        double bound = std::abs(x[i]) / 256;
        if (codec == models::TokenCodec::fp8)
          bound = std::max<double>(std::abs(x[i]) / 16,
                                   largest(block, std::min<std::size_t>(block + 128, kColumns)) / 224 / 1024);
        if (codec == models::TokenCodec::int8) bound = largest(0, kColumns) / 127 * 0.5001;
        EXPECT_LE(std::abs(static_cast<double>(y[i]) - static_cast<double>(x[i])), bound) << row << ", " << column;
        differs += y[i] != x[i] ? 1 : 0;
      }
      EXPECT_GT(differs, 1000);
    }
    return all;
  });
}

TEST(RowsInFewerBits, AreAsWideAsTheirCodesAndScales) {
  using models::TokenCodec;
  EXPECT_EQ(models::elements_of_row(TokenCodec::bf16, 7168), 7168);
  EXPECT_EQ(models::elements_of_row(TokenCodec::fp8, 7168), 7168 + 56 * 4);  // DeepSeek-V3: 56 tiles of 128
  EXPECT_EQ(models::elements_of_row(TokenCodec::fp8, 130), 130 + 2 * 4);
  EXPECT_EQ(models::elements_of_row(TokenCodec::int8, 7168), 7168 + 4);
  EXPECT_EQ(models::dtype_of(TokenCodec::bf16), DType::bf16);
  EXPECT_EQ(models::dtype_of(TokenCodec::fp8), DType::uint8);
}

// An overflow is not clipped out of sight of the gradients' norm.
TEST(RowsInFewerBits, WhatIsNotFiniteIsNoNumberBehindThem) {
  constexpr std::int64_t kColumns = 200;
  const Slotted rows;
  for (const float wrong : {static_cast<float>(INFINITY), -static_cast<float>(INFINITY), static_cast<float>(NAN)}) {
    Numbers x = random_numbers(rows.rows() * kColumns, "x");
    x[kColumns + 150] = wrong;  // of the second row's second block
    on_every_backend([&](Backend& backend) {
      const Numbers fp8 = there_and_back(backend, rows, models::TokenCodec::fp8, x, kColumns);
      const Numbers int8 = there_and_back(backend, rows, models::TokenCodec::int8, x, kColumns);
      for (std::size_t i = 0; i < 2 * kColumns; ++i) {
        EXPECT_EQ(std::isnan(fp8[i]), i >= kColumns + 128) << i;
        EXPECT_EQ(std::isnan(int8[i]), i >= kColumns) << i;
      }
      return std::vector<Numbers>{};
    });
  }
}

}  // namespace cpu_expert_rows_test
}  // namespace orrery::exec::testing
