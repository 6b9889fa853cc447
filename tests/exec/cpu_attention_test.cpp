// Attention and rotary positions against a naive reference in double precision.
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_attention_test {

struct Case {
  std::int64_t batch, sequence, heads, kv_heads, dim;
  bool causal, flash;
  [[nodiscard]] std::int64_t width() const { return (heads + 2 * kv_heads) * dim; }
  [[nodiscard]] std::int64_t tokens() const { return batch * sequence; }
  [[nodiscard]] Op op(OpKind kind) const {
    Op op;
    op.kind = kind;
    op.batch = batch;
    op.sequence = sequence;
    op.n = tokens();
    op.heads = heads;
    op.kv_heads = kv_heads;
    op.head_dim = dim;
    op.causal = causal;
    op.flash = flash;
    return op;
  }
};

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct Reference {
  Exact y, lse, probabilities;
};

Reference reference(const Case& c, const Exact& qkv) {
  Reference r{Exact(at(c.tokens() * c.heads * c.dim)), Exact(at(c.batch * c.heads * c.sequence)),
              Exact(at(c.batch * c.heads * c.sequence * c.sequence))};
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < c.sequence; ++i) {
        const std::int64_t g = h / (c.heads / c.kv_heads);
        const std::int64_t seen = c.causal ? i + 1 : c.sequence;
        const std::int64_t row = (b * c.heads + h) * c.sequence + i;
        double total = 0;
        for (std::int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < c.dim; ++d)
            score += qkv[at((b * c.sequence + i) * c.width() + h * c.dim + d)] *
                     qkv[at((b * c.sequence + j) * c.width() + (c.heads + g) * c.dim + d)];
          const double e = std::exp(score / std::sqrt(static_cast<double>(c.dim)));
          r.probabilities[at(row * c.sequence + j)] = e;
          total += e;
        }
        r.lse[at(row)] = std::log(total);
        for (std::int64_t j = 0; j < seen; ++j) {
          double& p = r.probabilities[at(row * c.sequence + j)];
          p /= total;
          for (std::int64_t d = 0; d < c.dim; ++d)
            r.y[at((b * c.sequence + i) * c.heads * c.dim + h * c.dim + d)] +=
                p * qkv[at((b * c.sequence + j) * c.width() + (c.heads + c.kv_heads + g) * c.dim + d)];
        }
      }
  return r;
}

std::vector<Case> cases(bool small) {
  std::vector<Case> all;
  for (const bool causal : {false, true})
    for (const bool flash : {false, true}) {
      all.push_back({1, 1, 1, 1, 4, causal, flash});
      all.push_back({2, 5, 4, 2, 3, causal, flash});
      all.push_back({1, 9, 3, 1, 8, causal, flash});
      if (small) continue;
      all.push_back({1, 65, 2, 2, 16, causal, flash});
      all.push_back({2, 150, 4, 2, 20, causal, flash});
    }
  return all;
}

TEST(Attention, EqualsTheNaiveSoftmaxOfScores) {
  for (const Case& c : cases(false)) {
    Numbers qkv = random_numbers(c.tokens() * c.width(), "qkv");
    const Reference expected = reference(c, exact(qkv));
    on_every_backend([&](Backend& backend) {
      Numbers y(expected.y.size(), NAN), saved(c.flash ? expected.lse.size() : expected.probabilities.size(), NAN);
      run(backend, c.op(OpKind::attention), {of(qkv)}, {of(y), of(saved)});
      EXPECT_LT(error_of(y, expected.y), 2e-6);
      EXPECT_LT(error_of(saved, c.flash ? expected.lse : expected.probabilities), 2e-6);
      return std::vector<Numbers>{y, saved};
    });
  }
}

Numbers gradient(Backend& backend, const Case& c, Numbers& qkv, Numbers& dy) {
  Numbers y(dy.size()), dqkv(qkv.size(), NAN);
  Numbers saved(at(c.batch * c.heads * c.sequence * (c.flash ? 1 : c.sequence)));
  run(backend, c.op(OpKind::attention), {of(qkv)}, {of(y), of(saved)});
  run(backend, c.op(OpKind::attention_grad), {of(dy), of(qkv), of(y), of(saved)}, {of(dqkv)});
  return dqkv;
}

TEST(Attention, GradientMatchesFiniteDifferences) {
  for (const Case& c : cases(true)) {
    Numbers qkv = random_numbers(c.tokens() * c.width(), "qkv");
    Numbers dy = random_numbers(c.tokens() * c.heads * c.dim, "dy");
    Exact x = exact(qkv);
    const Exact expected = finite_differences(x, [&] { return weighted_sum(reference(c, x).y, dy); });
    on_every_backend([&](Backend& backend) {
      const Numbers dqkv = gradient(backend, c, qkv, dy);
      EXPECT_LT(error_of(dqkv, expected), 2e-6);
      return std::vector<Numbers>{dqkv};
    });
  }
}

// A naive backward in double precision for the long cases, where finite differences would take minutes.
Exact naive_gradient(const Case& c, const Exact& x, const Numbers& dy) {
  const Reference r = reference(c, x);
  Exact dx(x.size());
  const double scale = 1 / std::sqrt(static_cast<double>(c.dim));
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < c.sequence; ++i) {
        const std::int64_t g = h / (c.heads / c.kv_heads);
        const auto packed = [&](std::int64_t t, std::int64_t head) {
          return (b * c.sequence + t) * c.width() + head * c.dim;
        };
        const double* p = &r.probabilities[at(((b * c.heads + h) * c.sequence + i) * c.sequence)];
        const float* out = &dy[at((b * c.sequence + i) * c.heads * c.dim + h * c.dim)];
        Exact dp(at(c.sequence));
        double mean = 0;
        for (std::int64_t j = 0; j < c.sequence; ++j) {
          for (std::int64_t d = 0; d < c.dim; ++d) {
            dp[at(j)] += static_cast<double>(out[d]) * x[at(packed(j, c.heads + c.kv_heads + g) + d)];
            dx[at(packed(j, c.heads + c.kv_heads + g) + d)] += p[j] * static_cast<double>(out[d]);
          }
          mean += p[j] * dp[at(j)];
        }
        for (std::int64_t j = 0; j < c.sequence; ++j)
          for (std::int64_t d = 0; d < c.dim; ++d) {
            const double ds = p[j] * (dp[at(j)] - mean) * scale;
            dx[at(packed(i, h) + d)] += ds * x[at(packed(j, c.heads + g) + d)];
            dx[at(packed(j, c.heads + g) + d)] += ds * x[at(packed(i, h) + d)];
          }
      }
  return dx;
}

TEST(Attention, GradientOfLongSequencesMatchesTheNaiveOne) {
  for (const Case& c : cases(false)) {
    Numbers qkv = random_numbers(c.tokens() * c.width(), "qkv");
    Numbers dy = random_numbers(c.tokens() * c.heads * c.dim, "dy");
    const Exact expected = naive_gradient(c, exact(qkv), dy);
    on_every_backend([&](Backend& backend) {
      const Numbers dqkv = gradient(backend, c, qkv, dy);
      EXPECT_LT(error_of(dqkv, expected), 3e-6);
      return std::vector<Numbers>{dqkv};
    });
  }
}

TEST(Attention, SurvivesScoresThatWouldOverflowWithoutSubtractingTheMaximum) {
  const Case c{1, 70, 1, 1, 16, true, true};
  Numbers qkv = random_numbers(c.tokens() * c.width(), "qkv", 30);
  Numbers dy = random_numbers(c.tokens() * c.heads * c.dim, "dy");
  on_every_backend([&](Backend& backend) {
    const Numbers dqkv = gradient(backend, c, qkv, dy);
    for (const float value : dqkv) EXPECT_TRUE(std::isfinite(value));
    return std::vector<Numbers>{dqkv};
  });
}

TEST(Rope, TurnsPairsByPositionAndBack) {
  const Case c{2, 7, 4, 2, 6, true, true};
  Op forward = c.op(OpKind::rope), backward = c.op(OpKind::rope_grad);
  forward.epsilon = backward.epsilon = 10000;
  Numbers qkv = random_numbers(c.tokens() * c.width(), "qkv");
  Exact expected = exact(qkv);
  for (std::int64_t i = 0; i < c.tokens(); ++i)
    for (std::int64_t head = 0; head < c.heads + c.kv_heads; ++head)
      for (std::int64_t j = 0; j < c.dim / 2; ++j) {
        const double angle = static_cast<double>(i % c.sequence) *
                             std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(c.dim));
        const std::size_t a = at(i * c.width() + head * c.dim + j), b = a + at(c.dim / 2);
        const double x = static_cast<double>(qkv[a]), y = static_cast<double>(qkv[b]);
        expected[a] = x * std::cos(angle) - y * std::sin(angle);
        expected[b] = y * std::cos(angle) + x * std::sin(angle);
      }
  on_every_backend([&](Backend& backend) {
    Numbers turned(qkv.size());
    run(backend, forward, {of(qkv)}, {of(turned)});
    EXPECT_LT(error_of(turned, expected), 1e-6);
    Numbers back = turned;
    run(backend, backward, {of(back)}, {of(back)});
    EXPECT_LT(error_of(back, exact(qkv)), 1e-6);
    return std::vector<Numbers>{turned, back};
  });
}

TEST(Rope, ScaledTurnsByItsRatesAndWeighsCosinesAndSines) {
  const Case c{1, 9, 2, 1, 8, true, true};
  Op forward = c.op(OpKind::rope), backward = c.op(OpKind::rope_grad);
  models::RopeScaling scaling{.kind = models::RopeKind::yarn, .factor = 4, .original = 64, .high = 32};
  scaling.attention = 1.25;
  forward.epsilon = backward.epsilon = 100;
  forward.rope_scaling = backward.rope_scaling = scaling;
  const std::vector<double> rates = models::rope_rates(100, scaling, c.dim);
  EXPECT_NE(rates, models::rope_rates(100, {}, c.dim));
  Numbers qkv = random_numbers(c.tokens() * c.width(), "qkv");
  Exact expected = exact(qkv);
  for (std::int64_t i = 0; i < c.tokens(); ++i)
    for (std::int64_t head = 0; head < c.heads + c.kv_heads; ++head)
      for (std::int64_t j = 0; j < c.dim / 2; ++j) {
        const double angle = static_cast<double>(i) * rates[at(j)];
        const std::size_t a = at(i * c.width() + head * c.dim + j), b = a + at(c.dim / 2);
        const double x = static_cast<double>(qkv[a]), y = static_cast<double>(qkv[b]);
        expected[a] = 1.25 * (x * std::cos(angle) - y * std::sin(angle));
        expected[b] = 1.25 * (y * std::cos(angle) + x * std::sin(angle));
      }
  on_every_backend([&](Backend& backend) {
    Numbers turned(qkv.size());
    run(backend, forward, {of(qkv)}, {of(turned)});
    EXPECT_LT(error_of(turned, expected), 1e-6);
    Numbers back = turned;  // its gradient's way back: the transpose, weighed once more
    run(backend, backward, {of(back)}, {of(back)});
    const std::size_t rotated = at((c.heads + c.kv_heads) * c.dim);
    for (std::size_t i = 0; i < back.size(); ++i)
      EXPECT_NEAR(back[i], qkv[i] * (i % at(c.width()) < rotated ? 1.25F * 1.25F : 1.0F), 1e-5);
    return std::vector<Numbers>{turned, back};
  });
}

}  // namespace cpu_attention_test
}  // namespace orrery::exec::testing
