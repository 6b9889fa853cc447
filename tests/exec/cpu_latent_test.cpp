// The operators of latent attention against plain loops, and gradients as the transposes that they are: of a linear
// operator f <dy, f(x)> = <f^T(dy), x>.
#include "exec/engine/half.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_latent_test {

struct LatentShape {
  std::int64_t n, heads, nope, rope, value;
  [[nodiscard]] std::int64_t width() const { return nope + rope; }
  [[nodiscard]] Op op(OpKind kind) const {
    Op op = rows_op(kind, n, 0);
    op.heads = op.kv_heads = heads;
    op.head_dim = width();
    op.rotary = rope;
    op.k = value;
    return op;
  }
};
// Values as wide as heads, narrower, and narrower than the columns that stay.
constexpr LatentShape kLatentShapes[] = {{7, 3, 6, 4, 10}, {65, 2, 12, 6, 11}, {5, 4, 9, 2, 3}, {3, 1, 1, 8, 1}};

double inner(const Numbers& a, const Numbers& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return total;
}
float& cell(Numbers& x, std::int64_t i) {
  return x[static_cast<std::size_t>(i)];
}

/// Element by element, by where each column of q, k and v comes from.
Numbers packed(const LatentShape& s, Numbers q, Numbers kv, Numbers key) {
  const std::int64_t d = s.width(), all = s.heads * d, made = s.nope + s.value;
  Numbers out(static_cast<std::size_t>(s.n * 3 * all));
  for (std::int64_t row = 0; row < s.n; ++row)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t j = 0; j < d; ++j) {
        const std::int64_t pair = j < s.rope / 2 ? 2 * j : 2 * (j - s.rope / 2) + 1, at = row * 3 * all + h * d + j;
        const bool turns = j < s.rope;
        cell(out, at) = cell(q, row * all + h * d + (turns ? s.nope + pair : j - s.rope));
        cell(out, at + all) =
            turns ? cell(key, row * s.rope + pair) : cell(kv, (row * s.heads + h) * made + j - s.rope);
        cell(out, at + 2 * all) = j < s.value ? cell(kv, (row * s.heads + h) * made + s.nope + j) : 0;
      }
  return out;
}

TEST(LatentPack, PutsEveryColumnWhereAttentionReadsIt) {
  for (const LatentShape& s : kLatentShapes) {
    Numbers q = random_numbers(s.n * s.heads * s.width(), "q");
    Numbers kv = random_numbers(s.n * s.heads * (s.nope + s.value), "kv"), key = random_numbers(s.n * s.rope, "key");
    const Numbers expected = packed(s, q, kv, key);
    on_every_backend([&](Backend& backend) {
      Numbers qkv(expected.size(), NAN);
      run(backend, s.op(OpKind::latent_pack), {of(q), of(kv), of(key)}, {of(qkv)});
      EXPECT_EQ(qkv, expected);
      return std::vector<Numbers>{qkv};
    });
  }
}

TEST(LatentPack, HasItsTransposeAsGradientWithTheSharedKeySummedOverHeads) {
  for (const LatentShape& s : kLatentShapes) {
    const Numbers q = random_numbers(s.n * s.heads * s.width(), "q");
    const Numbers kv = random_numbers(s.n * s.heads * (s.nope + s.value), "kv"),
                  key = random_numbers(s.n * s.rope, "key");
    Numbers dqkv = random_numbers(s.n * 3 * s.heads * s.width(), "dqkv");
    on_every_backend([&](Backend& backend) {
      Numbers dq(q.size(), NAN), dkv(kv.size(), NAN), dkey(key.size(), NAN);
      run(backend, s.op(OpKind::latent_pack_grad), {of(dqkv)}, {of(dq), of(dkv), of(dkey)});
      const Numbers no_q(q.size()), no_kv(kv.size()), no_key(key.size());
      const double size = std::sqrt(static_cast<double>(dqkv.size()));
      EXPECT_NEAR(inner(dq, q), inner(dqkv, packed(s, q, no_kv, no_key)), 1e-5 * size);
      EXPECT_NEAR(inner(dkv, kv), inner(dqkv, packed(s, no_q, kv, no_key)), 1e-5 * size);
      EXPECT_NEAR(inner(dkey, key), inner(dqkv, packed(s, no_q, no_kv, key)), 1e-5 * size);
      return std::vector<Numbers>{dq, dkv, dkey};
    });
  }
}

TEST(HeadValues, AreTheFirstColumnsOfHeadsAndGoBackAmongZeros) {
  for (const LatentShape& s : kLatentShapes) {
    const std::int64_t d = s.width(), heads = s.n * s.heads;
    Numbers y = random_numbers(heads * d, "y"), dvalues = random_numbers(heads * s.value, "dvalues");
    Numbers expected(dvalues.size()), dy_expected(y.size());
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t j = 0; j < s.value; ++j) {
        cell(expected, h * s.value + j) = cell(y, h * d + j);
        cell(dy_expected, h * d + j) = cell(dvalues, h * s.value + j);
      }
    on_every_backend([&](Backend& backend) {
      Numbers values(expected.size(), NAN), dy(y.size(), NAN);
      run(backend, s.op(OpKind::head_values), {of(y)}, {of(values)});
      run(backend, s.op(OpKind::head_values_grad), {of(dvalues)}, {of(dy)});
      EXPECT_EQ(values, expected);
      EXPECT_EQ(dy, dy_expected);
      return std::vector<Numbers>{values, dy};
    });
  }
}

TEST(Columns, AreSplitAndJoinedAgainAlsoIn16Bits) {
  constexpr std::int64_t n = 9, m = 5, k = 3;
  Numbers x = random_numbers(n * (m + k), "x");
  for (float& value : x) value = from_bf16(to_bf16(value));
  Numbers left(n * m), right(n * k);
  for (std::int64_t i = 0; i < n * (m + k); ++i) {
    const std::int64_t row = i / (m + k), column = i % (m + k);
    (column < m ? cell(left, row * m + column) : cell(right, row * k + column - m)) = cell(x, i);
  }
  Op op = rows_op(OpKind::split_columns, n, m);
  op.k = k;
  on_every_backend([&](Backend& backend) {
    Numbers a(left.size(), NAN), b(right.size(), NAN), joined(x.size(), NAN);
    op.kind = OpKind::split_columns;
    run(backend, op, {of(x)}, {of(a), of(b)});
    EXPECT_EQ(a, left);
    EXPECT_EQ(b, right);
    op.kind = OpKind::join_columns;
    run(backend, op, {of(a), of(b)}, {of(joined)});
    EXPECT_EQ(joined, x);
    std::vector<std::uint16_t> narrow(a.size()), narrow_right(b.size()), narrow_joined(x.size(), 0x7fc0);
    for (std::size_t i = 0; i < a.size(); ++i) narrow[i] = to_bf16(a[i]);
    for (std::size_t i = 0; i < b.size(); ++i) narrow_right[i] = to_bf16(b[i]);
    const auto half = [](std::vector<std::uint16_t>& of) {
      return Operand{reinterpret_cast<std::byte*>(of.data()), static_cast<std::int64_t>(of.size()),
                     models::DType::bf16};
    };
    run(backend, op, {half(narrow), half(narrow_right)}, {half(narrow_joined)});
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(from_bf16(narrow_joined[i]), x[i]);
    return std::vector<Numbers>{a, b, joined};
  });
}

}  // namespace cpu_latent_test
}  // namespace orrery::exec::testing
