// The gated delta rule against products of matrices in double precision, on every number of threads; gradients against
// slopes; its norm and attention's gate by their definitions. Trainings beside a reference are in
// family_models_test.cpp.
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_delta_rule_test {

// 2 sequences of 11 tokens in chunks of 4; 4 heads of 3 columns in 2 groups, keys of 5.
constexpr std::int64_t kBatch = 2, kTokens = 11, kHeads = 4, kGroups = 2, kWidth = 3, kState = 5;
constexpr std::int64_t kRows = kBatch * kTokens, kInner = kHeads * kWidth, kMixed = kInner + 2 * kGroups * kState,
                       kProjected = kInner + kMixed + 2 * kHeads;

Op delta_op(OpKind kind) {
  Op op = rows_op(kind, kRows, kInner);
  op.batch = kBatch, op.sequence = kTokens;
  op.heads = kHeads, op.kv_heads = kGroups, op.head_dim = kWidth;
  op.ssm = {.state = kState, .taps = 3, .chunk = 4, .norm_groups = kHeads, .delta = true};
  op.epsilon = 1e-5;
  return op;
}

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct Taken {
  Numbers mixed = random_numbers(kRows * kMixed, "mixed"), projected = random_numbers(kRows * kProjected, "projected");
  Numbers bias = random_numbers(kHeads, "bias"), a_log = random_numbers(kHeads, "a_log", 0.5);
};

Exact unit(const Numbers& of, std::int64_t first) {
  double squares = 1e-6;
  Exact out(at(kState));
  for (std::int64_t i = 0; i < kState; ++i) out[at(i)] = of[at(first + i)], squares += out[at(i)] * out[at(i)];
  for (double& x : out) x /= std::sqrt(squares);
  return out;
}

// S (keys by values) = a (I - b k k^T) S + b k v^T, with the matrix in front of S written out; y = S^T q / sqrt(keys).
Exact recurrence(const Taken& s) {
  Exact y(at(kRows * kInner));
  for (std::int64_t batch = 0; batch < kBatch; ++batch)
    for (std::int64_t h = 0; h < kHeads; ++h) {
      std::vector<Exact> state(at(kState), Exact(at(kWidth)));
      for (std::int64_t row = batch * kTokens; row < (batch + 1) * kTokens; ++row) {
        const std::int64_t keys = row * kMixed + kInner + h / 2 * kState, own = row * kProjected + kInner + kMixed + h;
        const Exact k = unit(s.mixed, keys), q = unit(s.mixed, keys + kGroups * kState);
        const double raw = static_cast<double>(s.projected[at(own)]) + static_cast<double>(s.bias[at(h)]);
        const double a = std::exp(-std::exp(static_cast<double>(s.a_log[at(h)])) * std::log1p(std::exp(raw)));
        const double b = 1 / (1 + std::exp(-static_cast<double>(s.projected[at(own + kHeads)])));
        std::vector<Exact> next(at(kState), Exact(at(kWidth)));
        for (std::size_t i = 0; i < at(kState); ++i)
          for (std::size_t p = 0; p < at(kWidth); ++p) {
            next[i][p] = b * k[i] * static_cast<double>(s.mixed[at(row * kMixed + h * kWidth) + p]);
            for (std::size_t j = 0; j < at(kState); ++j)
              next[i][p] += a * ((i == j ? 1 : 0) - b * k[i] * k[j]) * state[j][p];
          }
        state = next;
        for (std::size_t p = 0; p < at(kWidth); ++p)
          for (std::size_t i = 0; i < at(kState); ++i)
            y[at(row * kInner + h * kWidth) + p] += state[i][p] * q[i] / std::sqrt(static_cast<double>(kState));
      }
    }
  return y;
}

TEST(DeltaRule, IsTheRecurrenceOfEachHead) {
  Taken s;
  const Exact expected = recurrence(s);
  on_every_backend([&](Backend& backend) {
    Numbers y(expected.size(), NAN);
    run(backend, delta_op(OpKind::delta_rule), {of(s.mixed), of(s.projected), of(s.bias), of(s.a_log)}, {of(y)});
    EXPECT_LE(error_of(y, expected), 2e-6);
    return std::vector<Numbers>{y};
  });
}

TEST(DeltaRule, HasTheSlopesOfTheRecurrenceAsGradients) {
  Taken s;
  Numbers dy = random_numbers(kRows * kInner, "dy");
  const auto value = [&] {
    const Exact y = recurrence(s);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * static_cast<double>(dy[i]);
    return sum;
  };
  on_every_backend([&](Backend& backend) {
    Numbers dmixed(s.mixed.size(), NAN), dprojected(s.projected.size(), 7), dbias(kHeads, 1), da_log(kHeads, 1),
        states(at(kBatch * 3 * kHeads * kWidth * kState), NAN);
    run(backend, delta_op(OpKind::delta_rule_grad), {of(dy), of(s.mixed), of(s.projected), of(s.bias), of(s.a_log)},
        {of(dmixed), of(dprojected), of(dbias), of(da_log), of(states)});
    const auto expect_slope = [&](Numbers& x, std::size_t i, double told) {
      constexpr float kStep = 1.0F / 512;
      const float before = x[i];
      x[i] = before + kStep;
      const double more = value();
      x[i] = before - kStep;
      const double less = value();
      x[i] = before;
      EXPECT_NEAR(told, (more - less) / (2 * static_cast<double>(kStep)), 2e-3 * (1 + std::abs(told))) << i;
    };
    for (std::size_t i = 0; i < s.mixed.size(); i += 3) expect_slope(s.mixed, i, dmixed[i]);
    for (std::int64_t row = 0; row < kRows; ++row)
      for (std::int64_t c = 0; c < kProjected; ++c) {
        const std::size_t i = at(row * kProjected + c);
        if (c < kInner + kMixed) {
          EXPECT_EQ(dprojected[i], 7) << "a column that is another operator's";
        } else {
          expect_slope(s.projected, i, dprojected[i]);
        }
      }
    for (std::size_t h = 0; h < at(kHeads); ++h) {
      expect_slope(s.bias, h, dbias[h] - 1);
      expect_slope(s.a_log, h, da_log[h] - 1);
    }
    return std::vector<Numbers>{dmixed, dprojected, dbias, da_log, states};
  });
}

TEST(DeltaRule, WritesOverWhatAKeyHeldBefore) {
  Taken s;
  for (float& x : s.mixed) x = 1;       // each token has one key, one query and the value 1
  for (float& x : s.projected) x = 30;  // all of the value is written
  for (float& x : s.bias) x = -60;      // and nothing decays
  Numbers y(at(kRows * kInner), NAN);
  on_every_backend([&](Backend& backend) {
    run(backend, delta_op(OpKind::delta_rule), {of(s.mixed), of(s.projected), of(s.bias), of(s.a_log)}, {of(y)});
    for (const float one : y) EXPECT_NEAR(one, 1 / std::sqrt(5.0), 1e-5) << "the value, not a sum of values";
    return std::vector<Numbers>{y};
  });
}

TEST(GatedNorm, OfADeltaNetworkIsGatedBehindTheNorm) {
  Numbers y = random_numbers(kRows * kInner, "y"), projected = random_numbers(kRows * kProjected, "projected"),
          weight = random_numbers(kWidth, "weight"), dout = random_numbers(kRows * kInner, "dout");
  const auto reference = [&] {
    Exact out(y.size());
    for (std::int64_t row = 0; row < kRows; ++row)
      for (std::int64_t h = 0; h < kHeads; ++h) {
        const std::int64_t first = row * kInner + h * kWidth;
        double squares = 0;
        for (std::int64_t i = 0; i < kWidth; ++i) squares += std::pow(static_cast<double>(y[at(first + i)]), 2);
        for (std::int64_t i = 0; i < kWidth; ++i) {
          const double z = projected[at(row * kProjected + h * kWidth + i)];
          out[at(first + i)] = static_cast<double>(y[at(first + i)]) / std::sqrt(squares / kWidth + 1e-5) *
                               static_cast<double>(weight[at(i)]) * z / (1 + std::exp(-z));
        }
      }
    return out;
  };
  const auto value = [&] {
    const Exact out = reference();
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * static_cast<double>(dout[i]);
    return sum;
  };
  on_every_backend([&](Backend& backend) {
    Numbers out(y.size(), NAN), rstd(at(kRows * kHeads), NAN);
    run(backend, delta_op(OpKind::gated_norm), {of(y), of(projected), of(weight)}, {of(out), of(rstd)});
    EXPECT_LE(error_of(out, reference()), 1e-6);
    Numbers dy(y.size(), NAN), dprojected(projected.size(), 7), dweight(at(kWidth), 1);
    run(backend, delta_op(OpKind::gated_norm_grad), {of(dout), of(y), of(projected), of(weight), of(rstd)},
        {of(dy), of(dprojected), of(dweight)});
    const auto expect_slope = [&](Numbers& x, std::size_t i, double told) {
      constexpr float kStep = 1.0F / 512;
      const float before = x[i];
      x[i] = before + kStep;
      const double more = value();
      x[i] = before - kStep;
      const double less = value();
      x[i] = before;
      EXPECT_NEAR(told, (more - less) / (2 * static_cast<double>(kStep)), 3e-3 * (1 + std::abs(told))) << i;
    };
    for (std::size_t i = 0; i < y.size(); i += 5) expect_slope(y, i, dy[i]);
    for (std::int64_t row = 0; row < kRows; row += 4)
      for (std::int64_t c = 0; c < kProjected; ++c) {
        const std::size_t i = at(row * kProjected + c);
        if (c < kInner) {
          expect_slope(projected, i, dprojected[i]);
        } else {
          EXPECT_EQ(dprojected[i], 7) << "a column that is another operator's";
        }
      }
    for (std::size_t i = 0; i < at(kWidth); ++i) expect_slope(weight, i, dweight[i] - 1);
    return std::vector<Numbers>{out, rstd, dy, dprojected, dweight};
  });
}

TEST(OutputGate, IsASigmoidOfEachColumn) {
  Numbers x = random_numbers(kRows * kInner, "x"), g = random_numbers(kRows * kInner, "g"),
          dy = random_numbers(kRows * kInner, "dy");
  Exact expected(x.size()), of_x(x.size()), of_g(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double sigma = 1 / (1 + std::exp(-static_cast<double>(g[i])));
    expected[i] = static_cast<double>(x[i]) * sigma;
    of_x[i] = static_cast<double>(dy[i]) * sigma;
    of_g[i] = static_cast<double>(dy[i]) * static_cast<double>(x[i]) * sigma * (1 - sigma);
  }
  on_every_backend([&](Backend& backend) {
    Numbers y(x.size(), NAN), dx(x.size(), NAN), dg(x.size(), NAN);
    run(backend, rows_op(OpKind::output_gate, kRows, kInner), {of(x), of(g)}, {of(y)});
    run(backend, rows_op(OpKind::output_gate_grad, kRows, kInner), {of(dy), of(x), of(g)}, {of(dx), of(dg)});
    EXPECT_LE(error_of(y, expected), 1e-6);
    EXPECT_LE(error_of(dx, of_x), 1e-6);
    EXPECT_LE(error_of(dg, of_g), 1e-6);
    return std::vector<Numbers>{y, dx, dg};
  });
}

}  // namespace cpu_delta_rule_test
}  // namespace orrery::exec::testing
