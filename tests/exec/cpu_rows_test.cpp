// Normalisation, activations, additions and column sums against references in double precision.
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_rows_test {

struct Size {
  std::int64_t rows, columns;
};
// Below, at and above the width of vectors and of accumulators, and enough to be divided over threads.
const std::vector<Size> sizes = {{1, 1}, {3, 7}, {5, 16}, {2, 67}, {70, 33}, {129, 300}, {40, 1027}};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct NormCase {
  bool layer_norm;
  std::int64_t rows, columns;
  double epsilon = 1e-5;

  [[nodiscard]] Exact forward(const Exact& x, const Exact& weight, const Exact& bias) const {
    Exact y(x.size());
    for (std::int64_t row = 0; row < rows; ++row) {
      double mean = 0, variance = 0;
      for (std::int64_t c = 0; c < columns; ++c) mean += x[at(row * columns + c)] / static_cast<double>(columns);
      if (!layer_norm) mean = 0;
      for (std::int64_t c = 0; c < columns; ++c)
        variance += std::pow(x[at(row * columns + c)] - mean, 2) / static_cast<double>(columns);
      for (std::int64_t c = 0; c < columns; ++c)
        y[at(row * columns + c)] = (x[at(row * columns + c)] - mean) / std::sqrt(variance + epsilon) * weight[at(c)] +
                                   (layer_norm ? bias[at(c)] : 0);
    }
    return y;
  }
  [[nodiscard]] Op op(OpKind layer, OpKind rms) const {
    Op op = rows_op(layer_norm ? layer : rms, rows, columns);
    op.epsilon = epsilon;
    return op;
  }
};

struct NormOperands {
  Numbers x, weight, bias, dy, addend;
  explicit NormOperands(const NormCase& c)
      : x(random_numbers(c.rows * c.columns, "x", 2, 0.5)),
        weight(random_numbers(c.columns, "weight", 0.3, 1)),
        bias(random_numbers(c.columns, "bias")),
        dy(random_numbers(c.rows * c.columns, "dy")),
        addend(random_numbers(c.rows * c.columns, "addend")) {}
};

struct NormResults {
  Numbers y, mean, rstd, dx, dweight, dbias;
};

/// Forward and backward; the gradients of the parameters are added to ones, or written over what is no number.
NormResults run_norm(Backend& backend, const NormCase& c, NormOperands& o, bool with_addend, bool in_place,
                     bool adds = true) {
  const float before = adds ? 1 : std::numeric_limits<float>::quiet_NaN();
  NormResults r{Numbers(o.x.size()),
                Numbers(at(c.rows)),
                Numbers(at(c.rows)),
                Numbers(o.x.size()),
                Numbers(o.weight.size(), before),
                Numbers(o.weight.size(), before)};
  const Op forward = c.op(OpKind::layer_norm, OpKind::rms_norm);
  Op backward = c.op(OpKind::layer_norm_grad, OpKind::rms_norm_grad);
  backward.accumulate = adds;
  if (in_place) r.dx = o.dy;
  const Operand dy = in_place ? of(r.dx) : of(o.dy);
  const Operand addend = with_addend ? of(o.addend) : absent();
  if (c.layer_norm) {
    run(backend, forward, {of(o.x), of(o.weight), of(o.bias)}, {of(r.y), of(r.mean), of(r.rstd)});
    run(backend, backward, {dy, of(o.x), of(o.weight), of(r.mean), of(r.rstd), addend},
        {of(r.dx), of(r.dweight), of(r.dbias)});
  } else {
    run(backend, forward, {of(o.x), of(o.weight)}, {of(r.y), of(r.rstd)});
    run(backend, backward, {dy, of(o.x), of(o.weight), of(r.rstd), addend}, {of(r.dx), of(r.dweight)});
  }
  return r;
}

TEST(Normalisation, EqualsItsDefinition) {
  for (const bool layer_norm : {true, false})
    for (const Size& size : sizes) {
      const NormCase c{layer_norm, size.rows, size.columns};
      NormOperands o(c);
      const Exact expected = c.forward(exact(o.x), exact(o.weight), exact(o.bias));
      on_every_backend([&](Backend& backend) {
        const NormResults r = run_norm(backend, c, o, true, false);
        EXPECT_LT(error_of(r.y, expected), 2e-6);
        return std::vector<Numbers>{r.y, r.mean, r.rstd, r.dx, r.dweight, r.dbias};
      });
    }
}

TEST(Normalisation, GradientMatchesFiniteDifferences) {
  for (const bool layer_norm : {true, false})
    for (const Size& size : {Size{1, 7}, Size{3, 16}, Size{4, 67}, Size{70, 5}}) {
      const NormCase c{layer_norm, size.rows, size.columns};
      NormOperands o(c);
      Exact x = exact(o.x), weight = exact(o.weight), bias = exact(o.bias);
      const auto loss = [&] { return weighted_sum(c.forward(x, weight, bias), o.dy); };
      Exact dx = finite_differences(x, loss);
      Exact dweight = finite_differences(weight, loss), dbias = finite_differences(bias, loss);
      for (double& g : dweight) g += 1;
      for (double& g : dbias) g += 1;
      on_every_backend([&](Backend& backend) {
        const NormResults plain = run_norm(backend, c, o, false, false);
        EXPECT_LT(error_of(plain.dx, dx), 3e-6);
        EXPECT_LT(error_of(plain.dweight, dweight), 3e-6);
        if (layer_norm) {
          EXPECT_LT(error_of(plain.dbias, dbias), 3e-6);
        }
        return std::vector<Numbers>{plain.dx, plain.dweight, plain.dbias};
      });
    }
}

// What the first micro-batch of a step finds there is of another step.
TEST(Normalisation, GradientOverwritesSumsWhereItIsToldTo) {
  for (const bool layer_norm : {true, false}) {
    const NormCase c{layer_norm, 37, 100};
    NormOperands o(c);
    on_every_backend([&](Backend& backend) {
      const NormResults added = run_norm(backend, c, o, true, false);
      const NormResults written = run_norm(backend, c, o, true, false, false);
      EXPECT_EQ(written.dx, added.dx);
      for (std::size_t i = 0; i < added.dweight.size(); ++i) {
        EXPECT_NEAR(written.dweight[i], added.dweight[i] - 1, 1e-5);
        if (layer_norm) {
          EXPECT_NEAR(written.dbias[i], added.dbias[i] - 1, 1e-5);
        }
      }
      return std::vector<Numbers>{written.dweight};
    });
  }
}

TEST(Normalisation, GradientAddsTheResidualsAndMayOverwriteItsInput) {
  for (const bool layer_norm : {true, false}) {
    const NormCase c{layer_norm, 37, 100};
    NormOperands o(c);
    on_every_backend([&](Backend& backend) {
      const NormResults plain = run_norm(backend, c, o, false, false);
      const NormResults both = run_norm(backend, c, o, true, true);
      for (std::size_t i = 0; i < plain.dx.size(); ++i) EXPECT_NEAR(both.dx[i], plain.dx[i] + o.addend[i], 1e-6);
      EXPECT_EQ(both.dweight, plain.dweight);
      EXPECT_EQ(both.dbias, plain.dbias);
      return std::vector<Numbers>{both.dx};
    });
  }
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double silu(double x) {
  return x / (1 + std::exp(-x));
}

TEST(Gelu, EqualsTheTanhFormAndSurvivesLargeInputs) {
  for (const Size& size : sizes) {
    Numbers x = random_numbers(size.rows * size.columns, "x", 3);
    x[0] = 100;
    if (x.size() > 2) x[1] = -100;
    Exact expected(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = gelu(static_cast<double>(x[i]));
    on_every_backend([&](Backend& backend) {
      Numbers y(x.size());
      run(backend, rows_op(OpKind::gelu, size.rows, size.columns), {of(x)}, {of(y)});
      for (std::size_t i = 0; i < x.size(); ++i)
        EXPECT_NEAR(y[i], expected[i], 4e-7 * std::max(1.0, std::abs(expected[i])));
      return std::vector<Numbers>{y};
    });
  }
}

TEST(Gelu, GradientMatchesFiniteDifferencesInPlaceToo) {
  const Size size{3, 1001};
  Numbers x = random_numbers(size.rows * size.columns, "x", 2), dy = random_numbers(size.rows * size.columns, "dy");
  x[0] = 60;
  x[1] = -60;
  Exact expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]);
    expected[i] = static_cast<double>(dy[i]) * (gelu(v + 1e-6) - gelu(v - 1e-6)) / 2e-6;
  }
  on_every_backend([&](Backend& backend) {
    Numbers dx(x.size()), in_place = dy;
    run(backend, rows_op(OpKind::gelu_grad, size.rows, size.columns), {of(dy), of(x)}, {of(dx)});
    run(backend, rows_op(OpKind::gelu_grad, size.rows, size.columns), {of(in_place), of(x)}, {of(in_place)});
    EXPECT_LT(error_of(dx, expected), 1e-6);
    EXPECT_EQ(dx, in_place);
    return std::vector<Numbers>{dx};
  });
}

TEST(Swiglu, EqualsItsDefinitionAndItsGradientMatchesFiniteDifferences) {
  const std::int64_t rows = 9, f = 35;
  Numbers x = random_numbers(rows * 2 * f, "x", 2), dy = random_numbers(rows * f, "dy");
  Exact exact_x = exact(x);
  const auto forward = [&] {
    Exact y(at(rows * f));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < f; ++c)
        y[at(r * f + c)] = silu(exact_x[at(r * 2 * f + c)]) * exact_x[at(r * 2 * f + f + c)];
    return y;
  };
  const Exact expected = forward();
  const Exact gradient = finite_differences(exact_x, [&] { return weighted_sum(forward(), dy); });
  on_every_backend([&](Backend& backend) {
    Numbers y(expected.size()), dx(x.size());
    run(backend, rows_op(OpKind::swiglu, rows, f), {of(x)}, {of(y)});
    run(backend, rows_op(OpKind::swiglu_grad, rows, f), {of(dy), of(x)}, {of(dx)});
    EXPECT_LT(error_of(y, expected), 1e-6);
    EXPECT_LT(error_of(dx, gradient), 1e-6);
    return std::vector<Numbers>{y, dx};
  });
}

TEST(Addition, TakesBiasOrNoneAndMayOverwriteEitherInput) {
  for (const Size& size : sizes) {
    const std::int64_t count = size.rows * size.columns;
    Numbers a = random_numbers(count, "a"), b = random_numbers(count, "b"), bias = random_numbers(size.columns, "bias");
    Exact sum(at(count)), biased(at(count));
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = static_cast<double>(a[i]) + static_cast<double>(b[i]);
      biased[i] = sum[i] + static_cast<double>(bias[i % bias.size()]);
    }
    const Op add_bias = rows_op(OpKind::add_bias, size.rows, size.columns);
    on_every_backend([&](Backend& backend) {
      Numbers over_a = a, over_b = b, plain(a.size()), added = a;
      run(backend, add_bias, {of(over_a), of(b), of(bias)}, {of(over_a)});
      run(backend, add_bias, {of(a), of(over_b), of(bias)}, {of(over_b)});
      run(backend, add_bias, {of(a), of(b), absent()}, {of(plain)});
      run(backend, rows_op(OpKind::add, size.rows, size.columns), {of(added), of(b)}, {of(added)});
      EXPECT_LT(error_of(over_a, biased), 2e-7);
      EXPECT_EQ(over_a, over_b);
      EXPECT_LT(error_of(plain, sum), 1e-7);
      EXPECT_EQ(plain, added);
      return std::vector<Numbers>{over_a, plain};
    });
  }
}

TEST(BiasGradient, AddsTheSumOfEachColumnOrWritesIt) {
  for (const Size& size : sizes)
    for (const bool adds : {true, false}) {
      Numbers dy = random_numbers(size.rows * size.columns, "dy", 1, 0.3);
      Exact expected(at(size.columns), adds ? 2 : 0);
      for (std::size_t i = 0; i < dy.size(); ++i) expected[i % expected.size()] += static_cast<double>(dy[i]);
      on_every_backend([&](Backend& backend) {
        Numbers dbias(expected.size(), adds ? 2 : std::numeric_limits<float>::quiet_NaN());
        Op op = rows_op(OpKind::bias_grad, size.rows, size.columns);
        op.accumulate = adds;
        run(backend, op, {of(dy)}, {of(dbias)});
        EXPECT_LT(error_of(dbias, expected), 1e-6);
        return std::vector<Numbers>{dbias};
      });
    }
}

// Its slopes' sums have a piece of scratch memory for every 16,384 elements.
TEST(Xielu, SumsTheSlopesOfItsShapesOverAllPiecesWhateverScratchMemoryHeld) {
  constexpr std::int64_t kRows = 25, kColumns = 2048, kCount = kRows * kColumns;
  Numbers x = random_numbers(kCount, "x"), dy = random_numbers(kCount, "dy"), p = {0.3F}, n = {-0.2F};
  double of_p = 0, of_n = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i], g = dy[i];
    (v > 0 ? of_p : of_n) += g * (v > 0 ? v * v : std::expm1(v) - v);
  }
  of_p /= 1 + std::exp(-0.3), of_n /= 1 + std::exp(0.2);
  on_every_backend([&](Backend& backend) {
    Numbers y(x.size()), rstd(kRows), dx(x.size()), dp = {1}, dn = {1};
    run(backend, rows_op(OpKind::rms_norm, kRows, kColumns), {of(x), absent()},
        {of(y), of(rstd)});  // leaves ones there
    run(backend, rows_op(OpKind::xielu_grad, kRows, kColumns), {of(dy), of(x), of(p), of(n)}, {of(dx), of(dp), of(dn)});
    EXPECT_NEAR(dp[0], 1 + of_p, 1e-4 * std::abs(of_p) + 1e-3);
    EXPECT_NEAR(dn[0], 1 + of_n, 1e-4 * std::abs(of_n) + 1e-3);
    return std::vector<Numbers>{dx, dp, dn};
  });
}

}  // namespace cpu_rows_test
}  // namespace orrery::exec::testing
