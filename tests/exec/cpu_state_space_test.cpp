// The operators of state spaces against the recurrence written down in double precision, on every number of threads;
// gradients against slopes. Trainings beside a reference are in family_models_test.cpp.
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_state_space_test {

// 2 sequences of 11 tokens in chunks of 4; 4 heads of 3 columns in 2 groups,
// state 5.
constexpr std::int64_t kBatch = 2, kTokens = 11, kHeads = 4, kGroups = 2, kWidth = 3, kState = 5, kTaps = 3;
constexpr std::int64_t kRows = kBatch * kTokens, kInner = kHeads * kWidth, kMixed = kInner + 2 * kGroups * kState,
                       kProjected = kInner + kMixed + kHeads;

Op scan_op(OpKind kind) {
  Op op = rows_op(kind, kRows, kInner);
  op.batch = kBatch, op.sequence = kTokens;
  op.heads = kHeads, op.kv_heads = kGroups, op.head_dim = kWidth;
  op.ssm = {.state = kState, .taps = kTaps, .chunk = 4, .norm_groups = 2};
  op.epsilon = 1e-5;
  return op;
}

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct Scanned {
  Numbers mixed = random_numbers(kRows * kMixed, "mixed"), projected = random_numbers(kRows * kProjected, "projected");
  Numbers bias = random_numbers(kHeads, "bias"), a_log = random_numbers(kHeads, "a_log", 0.5),
          d = random_numbers(kHeads, "d");
};

Exact recurrence(const Scanned& s) {
  Exact y(at(kRows * kInner));
  for (std::int64_t b = 0; b < kBatch; ++b)
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t p = 0; p < kWidth; ++p) {
        Exact state(at(kState));
        for (std::int64_t t = 0; t < kTokens; ++t) {
          const std::int64_t row = b * kTokens + t, keys = row * kMixed + kInner + h / 2 * kState;
          const double raw = static_cast<double>(s.projected[at(row * kProjected + kInner + kMixed + h)]) +
                             static_cast<double>(s.bias[at(h)]);
          const double dt = std::log1p(std::exp(raw)), a = std::exp(-std::exp(s.a_log[at(h)]) * dt);
          const double x = s.mixed[at(row * kMixed + h * kWidth + p)];
          double sum = static_cast<double>(s.d[at(h)]) * x;
          for (std::int64_t n = 0; n < kState; ++n) {
            state[at(n)] = a * state[at(n)] + dt * x * static_cast<double>(s.mixed[at(keys + n)]);
            sum += state[at(n)] * static_cast<double>(s.mixed[at(keys + kGroups * kState + n)]);
          }
          y[at(row * kInner + h * kWidth + p)] = sum;
        }
      }
  return y;
}

TEST(StateScan, IsTheRecurrenceOfEachHead) {
  Scanned s;
  const Exact expected = recurrence(s);
  on_every_backend([&](Backend& backend) {
    Numbers y(expected.size(), NAN);
    run(backend, scan_op(OpKind::state_scan), {of(s.mixed), of(s.projected), of(s.bias), of(s.a_log), of(s.d)},
        {of(y)});
    EXPECT_LE(error_of(y, expected), 2e-6);
    return std::vector<Numbers>{y};
  });
}

TEST(StateScan, HasTheSlopesOfTheRecurrenceAsGradients) {
  Scanned s;
  Numbers dy = random_numbers(kRows * kInner, "dy");
  const auto value = [&] {
    const Exact y = recurrence(s);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * static_cast<double>(dy[i]);
    return sum;
  };
  on_every_backend([&](Backend& backend) {
    Numbers dmixed(s.mixed.size(), NAN), dprojected(s.projected.size(), 7), dbias(kHeads, 1), da_log(kHeads, 1),
        dd(kHeads, 1), states(at(kBatch * 3 * kHeads * kWidth * kState), NAN);
    run(backend, scan_op(OpKind::state_scan_grad),
        {of(dy), of(s.mixed), of(s.projected), of(s.bias), of(s.a_log), of(s.d)},
        {of(dmixed), of(dprojected), of(dbias), of(da_log), of(dd), of(states)});
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
    for (std::size_t i = 0; i < s.mixed.size(); i += 7) expect_slope(s.mixed, i, dmixed[i]);
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
      expect_slope(s.d, h, dd[h] - 1);
    }
    return std::vector<Numbers>{dmixed, dprojected, dbias, da_log, dd, states};
  });
}

TEST(CausalConv, SeesEarlierTokensOfItsOwnSequence) {
  Numbers projected = random_numbers(kRows * kProjected, "projected"), weight = random_numbers(kMixed * kTaps, "w"),
          bias = random_numbers(kMixed, "b");
  Exact expected(at(kRows * kMixed));
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t c = 0; c < kMixed; ++c) {
      double u = bias[at(c)];
      for (std::int64_t back = 0; back < kTaps && back <= row % kTokens; ++back)
        u += static_cast<double>(weight[at(c * kTaps + kTaps - 1 - back)]) *
             static_cast<double>(projected[at((row - back) * kProjected + kInner + c)]);
      expected[at(row * kMixed + c)] = u / (1 + std::exp(-u));
    }
  on_every_backend([&](Backend& backend) {
    Numbers y(expected.size(), NAN);
    run(backend, scan_op(OpKind::causal_conv), {of(projected), of(weight), of(bias)}, {of(y)});
    EXPECT_LE(error_of(y, expected), 1e-6);
    Numbers dy = random_numbers(kRows * kMixed, "dy"), dprojected(projected.size(), 7), dweight(weight.size(), 0),
            dbias(bias.size(), 0);
    run(backend, scan_op(OpKind::causal_conv_grad), {of(dy), of(projected), of(weight), of(bias)},
        {of(dprojected), of(dweight), of(dbias)});
    for (std::int64_t row = 0; row < kRows; ++row)
      for (std::int64_t c = 0; c < kProjected; ++c)
        if (c < kInner || c >= kInner + kMixed) {
          EXPECT_EQ(dprojected[at(row * kProjected + c)], 7);
        }
    return std::vector<Numbers>{y, dprojected, dweight, dbias};
  });
}

TEST(GatedNorm, HasUnitSquaresInEachRun) {
  Numbers y = random_numbers(kRows * kInner, "y"), projected = random_numbers(kRows * kProjected, "projected");
  Numbers weight(at(kInner), 1);
  on_every_backend([&](Backend& backend) {
    Numbers out(y.size(), NAN), rstd(at(kRows * 2), NAN);
    Op op = scan_op(OpKind::gated_norm);
    op.epsilon = 0;
    run(backend, op, {of(y), of(projected), of(weight)}, {of(out), of(rstd)});
    for (std::int64_t first = 0; first < kRows * kInner; first += kInner / 2) {
      double squares = 0;
      for (std::int64_t i = 0; i < kInner / 2; ++i) squares += std::pow(static_cast<double>(out[at(first + i)]), 2);
      EXPECT_NEAR(squares, static_cast<double>(kInner / 2), 1e-5);
    }
    return std::vector<Numbers>{out, rstd};
  });
}

}  // namespace cpu_state_space_test
}  // namespace orrery::exec::testing
