// The operators that BERT alone has, against double precision and finite differences.
#include "exec/failure.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_masked_test {

double exact_gelu(double x) {
  return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
}

TEST(GeluErf, IsTheErrorFunctionsAndSoIsItsGradient) {
  constexpr std::int64_t kRows = 7, kColumns = 301;
  Numbers x = random_numbers(kRows * kColumns, "gelu_erf.x", 2), dy = random_numbers(kRows * kColumns, "gelu_erf.dy");
  x[0] = 0, x[1] = -30, x[2] = 30, x[3] = -8, x[4] = 8, x[5] = 1e-6F;
  Exact expected, slope;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]), density = std::exp(-0.5 * v * v) / std::sqrt(2 * M_PI);
    expected.push_back(exact_gelu(v));
    slope.push_back(static_cast<double>(dy[i]) * (0.5 * (1 + std::erf(v / std::sqrt(2.0))) + v * density));
  }
  on_every_backend([&](Backend& backend) {
    Numbers y(x.size()), dx(x.size());
    run(backend, rows_op(OpKind::gelu_erf, kRows, kColumns), {of(x)}, {of(y)});
    run(backend, rows_op(OpKind::gelu_erf_grad, kRows, kColumns), {of(dy), of(x)}, {of(dx)});
    EXPECT_LT(error_of(y, expected), 1e-7);
    EXPECT_LT(error_of(dx, slope), 3e-7);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y[i], expected[i], 5e-7 * std::max(1.0, std::abs(expected[i]))) << x[i];
    return std::vector<Numbers>{y, dx};
  });
}

TEST(GeluErf, IsNotTheTanhForm) {
  Numbers x = {-2, -1, 1, 2}, exact(4), tanh(4);
  CpuBackend backend(1, *runnable_kernels().front());
  run(backend, rows_op(OpKind::gelu_erf, 1, 4), {of(x)}, {of(exact)});
  run(backend, rows_op(OpKind::gelu, 1, 4), {of(x)}, {of(tanh)});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_GT(std::abs(exact[i] - tanh[i]), 5e-5);
}

TEST(Tanh, AndItsGradientByFiniteDifferences) {
  Numbers x = random_numbers(60, "tanh.x"), dy = random_numbers(60, "tanh.dy");
  Exact inputs = exact(x);
  const auto forward = [&] {
    Exact y;
    for (const double v : inputs) y.push_back(std::tanh(v));
    return y;
  };
  const Exact expected = forward();
  const Exact slope = finite_differences(inputs, [&] { return weighted_sum(forward(), dy); });
  on_every_backend([&](Backend& backend) {
    Numbers y(x.size()), dx(x.size());
    run(backend, rows_op(OpKind::tanh, 4, 15), {of(x)}, {of(y)});
    run(backend, rows_op(OpKind::tanh_grad, 4, 15), {of(dy), of(y)}, {of(dx)});
    EXPECT_LT(error_of(y, expected), 1e-6);
    EXPECT_LT(error_of(dx, slope), 1e-6);
    return std::vector<Numbers>{y, dx};
  });
}

TEST(TokenTypes, AreAddedRowByRowAndTheirGradientIsSummed) {
  constexpr std::int64_t kBatch = 2, kSequence = 5, kColumns = 70, kTypes = 3, n = kBatch * kSequence;
  Numbers x = random_numbers(n * kColumns, "types.x"), table = random_numbers(kTypes * kColumns, "types.table");
  Ids types = random_ids(n, kTypes, "types.ids");
  Op op = rows_op(OpKind::type_add, n, kColumns);
  op.batch = kBatch, op.sequence = kSequence, op.k = kTypes;
  Exact expected(x.size()), sums = exact(table);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto row = static_cast<std::size_t>(types[i / kColumns]) * kColumns + i % kColumns;
    expected[i] = static_cast<double>(x[i]) + static_cast<double>(table[row]);
    sums[row] += static_cast<double>(x[i]);
  }
  on_every_backend([&](Backend& backend) {
    Numbers y(x.size()), gradient = table;
    run(backend, op, {of(x), of(table), of(types)}, {of(y)});
    Op grad = op;
    grad.kind = OpKind::type_grad;
    run(backend, grad, {of(x), of(types)}, {of(gradient)});
    EXPECT_LT(error_of(y, expected), 1e-6);
    EXPECT_LT(error_of(gradient, sums), 1e-6);
    // A rank's half of the rows, of which the types are the second half of all.
    Op half = op;
    half.n = n / 2, half.row_shard = true;
    StepContext second;
    second.tensor_rank = 1;
    Numbers own(x.begin() + n / 2 * kColumns, x.end()), part(own.size());
    run(backend, half, {of(own), of(table), of(types)}, {of(part)}, second);
    EXPECT_EQ(part, Numbers(y.begin() + n / 2 * kColumns, y.end()));
    Ids bad = types;
    bad[3] = kTypes;
    EXPECT_THROW(run(backend, op, {of(x), of(table), of(bad)}, {of(y)}), Failure);
    return std::vector<Numbers>{y, gradient};
  });
}

TEST(ChosenRows, AreGatheredAndTheirGradientIsPutBack) {
  constexpr std::int64_t kBatch = 2, kSequence = 6, kColumns = 65, n = kBatch * kSequence;
  Numbers x = random_numbers(n * kColumns, "rows.x"), before = random_numbers(n * kColumns, "rows.dx");
  Ids rows = {1, 4, 7, 7};
  Numbers dy = random_numbers(4 * kColumns, "rows.dy");
  Op gather = rows_op(OpKind::gather_rows, 4, kColumns);
  gather.batch = kBatch, gather.sequence = kSequence, gather.k = n;
  Op scatter = gather;
  scatter.kind = OpKind::scatter_rows;
  on_every_backend([&](Backend& backend) {
    Numbers y(4 * kColumns), dx = before;
    run(backend, gather, {of(x), of(rows)}, {of(y)});
    for (std::size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(y[i], x[static_cast<std::size_t>(rows[i / kColumns]) * kColumns + i % kColumns]);
    run(backend, scatter, {of(dy), of(rows)}, {of(dx)});
    for (std::size_t i = 0; i < kColumns; ++i) {
      EXPECT_EQ(dx[i], 0) << "a row that was not chosen";
      EXPECT_EQ(dx[kColumns + i], dy[i]);
      EXPECT_EQ(dx[7 * kColumns + i], dy[2 * kColumns + i] + dy[3 * kColumns + i]) << "chosen twice";
    }
    // Without rows the first of each sequence, added to what is there.
    Op first = gather, back = scatter;
    first.n = back.n = kBatch;
    back.accumulate = true;
    Numbers heads(kBatch * kColumns), sum = before;
    run(backend, first, {of(x), absent()}, {of(heads)});
    EXPECT_TRUE(std::equal(heads.begin() + kColumns, heads.end(), x.begin() + kSequence * kColumns));
    run(backend, back, {of(heads), absent()}, {of(sum)});
    for (std::size_t i = 0; i < kColumns; ++i) {
      EXPECT_EQ(sum[i], before[i] + x[i]);
      EXPECT_EQ(sum[kColumns + i], before[kColumns + i]);
    }
    // Two ranks that have half of the rows each: their parts sum up to the whole.
    Numbers total(y.size());
    for (int rank = 0; rank < 2; ++rank) {
      Op half = gather;
      half.k = n / 2, half.row_shard = true;
      StepContext context;
      context.tensor_rank = rank;
      Numbers own(x.begin() + rank * n / 2 * kColumns, x.begin() + (rank + 1) * n / 2 * kColumns), part(y.size());
      run(backend, half, {of(own), of(rows)}, {of(part)}, context);
      for (std::size_t i = 0; i < part.size(); ++i) total[i] += part[i];
      half.kind = OpKind::scatter_rows;
      Numbers given(own.size(), 5);
      run(backend, half, {of(dy), of(rows)}, {of(given)}, context);
      EXPECT_TRUE(std::equal(given.begin(), given.end(), dx.begin() + rank * n / 2 * kColumns));
    }
    EXPECT_EQ(total, y);
    Ids outside = {0, 1, 2, n};
    EXPECT_THROW(run(backend, gather, {of(x), of(outside)}, {of(y)}), Failure);
    return std::vector<Numbers>{y, dx, heads, sum};
  });
}

TEST(ClassLoss, AndItsGradientByFiniteDifferences) {
  constexpr std::int64_t kRows = 5, kClasses = 2;
  constexpr double kScale = 0.2;
  Numbers logits = random_numbers(kRows * kClasses, "class.logits", 3);
  logits[0] = 300, logits[1] = -300;  // no overflow
  Ids classes = {1, 0, 1, 1, 0};
  Exact l = exact(logits);
  const auto loss = [&] {
    double total = 0;
    for (std::size_t row = 0; row < kRows; ++row) {
      const double most = std::max(l[2 * row], l[2 * row + 1]);
      total += most + std::log(std::exp(l[2 * row] - most) + std::exp(l[2 * row + 1] - most)) -
               l[2 * row + static_cast<std::size_t>(classes[row])];
    }
    return kScale * total;
  };
  const double expected = loss();
  const Exact slope = finite_differences(l, loss);
  Op op = rows_op(OpKind::class_loss, kRows, kClasses);
  op.scale = kScale;
  op.accumulate = true;
  on_every_backend([&](Backend& backend) {
    Numbers sum = {1}, gradient(logits.size()), scaled(logits.size()), scaling = {8};
    run(backend, op, {of(logits), of(classes)}, {of(sum)});
    EXPECT_NEAR(sum[0], 1 + expected, 1e-4);
    Op grad = op;
    grad.kind = OpKind::class_loss_grad;
    run(backend, grad, {of(logits), of(classes)}, {of(gradient)});
    EXPECT_LT(error_of(gradient, slope), 1e-6);
    run(backend, grad, {of(logits), of(classes), of(scaling)}, {of(scaled)});
    for (std::size_t i = 0; i < scaled.size(); ++i) EXPECT_FLOAT_EQ(scaled[i], 8 * gradient[i]);
    Ids bad = {0, 0, 2, 0, 0};
    EXPECT_THROW(run(backend, op, {of(logits), of(bad)}, {of(sum)}), Failure);
    return std::vector<Numbers>{sum, gradient};
  });
}

}  // namespace cpu_masked_test
}  // namespace orrery::exec::testing
