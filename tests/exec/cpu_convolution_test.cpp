// The gated short convolution against its formula in double precision, on every number of threads; its gradients
// against slopes. Trainings beside a reference are in family_models_test.cpp.
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_convolution_test {

// 2 sequences of 5 tokens, so that the 3 taps of some reach before the first; 37 columns are no whole chunks.
constexpr std::int64_t kBatch = 2, kTokens = 5, kRows = kBatch * kTokens, kColumns = 37, kTaps = 3;

Op conv_op(OpKind kind) {
  Op op = rows_op(kind, kRows, kColumns);
  op.batch = kBatch, op.sequence = kTokens;
  op.ssm.taps = kTaps;
  return op;
}

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct Gated {
  Numbers projected = random_numbers(kRows * 3 * kColumns, "projected"),
          weight = random_numbers(kColumns * kTaps, "taps");
  [[nodiscard]] double part(std::int64_t row, std::int64_t which, std::int64_t column) const {
    return projected[at((row * 3 + which) * kColumns + column)];
  }
};

Exact formula(const Gated& g) {
  Exact y(at(kRows * kColumns));
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t i = 0; i < kColumns; ++i) {
      double sum = 0;
      for (std::int64_t back = 0; back < kTaps && back <= row % kTokens; ++back)
        sum += static_cast<double>(g.weight[at(i * kTaps + kTaps - 1 - back)]) * g.part(row - back, 0, i) *
               g.part(row - back, 2, i);
      y[at(row * kColumns + i)] = g.part(row, 1, i) * sum;
    }
  return y;
}

TEST(GatedConvolution, IsTheCausalConvolutionOfEachColumnBetweenItsGates) {
  Gated g;
  const Exact expected = formula(g);
  on_every_backend([&](Backend& backend) {
    Numbers y(expected.size(), NAN);
    run(backend, conv_op(OpKind::gated_conv), {of(g.projected), of(g.weight)}, {of(y)});
    EXPECT_LE(error_of(y, expected), 2e-6);
    return std::vector<Numbers>{y};
  });
}

TEST(GatedConvolution, HasTheSlopesOfItsFormulaAsGradients) {
  Gated g;
  Numbers dy = random_numbers(kRows * kColumns, "dy");
  // The formula is linear in each value by itself, so that half a difference is a slope to rounding.
  const auto slopes = [&](Numbers& of_what) {
    Exact out(of_what.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float value = of_what[i];
      double difference = 0;
      for (const float step : {1.0F, -1.0F}) {
        of_what[i] = value + step;
        const double moved = static_cast<double>(of_what[i]) - static_cast<double>(value);
        const Exact y = formula(g);
        double sum = 0;
        for (std::size_t j = 0; j < y.size(); ++j) sum += y[j] * static_cast<double>(dy[j]);
        difference += (step > 0 ? sum : -sum) / std::abs(moved);
        of_what[i] = value;
      }
      out[i] = difference / 2;
    }
    return out;
  };
  const Exact of_projected = slopes(g.projected), of_weight = slopes(g.weight);
  on_every_backend([&](Backend& backend) {
    Numbers dprojected(g.projected.size(), NAN), dweight(g.weight.size(), 1);
    run(backend, conv_op(OpKind::gated_conv_grad), {of(dy), of(g.projected), of(g.weight)},
        {of(dprojected), of(dweight)});
    EXPECT_LE(error_of(dprojected, of_projected), 1e-5);
    Numbers added = dweight;
    for (float& one : added) one -= 1;
    EXPECT_LE(error_of(added, of_weight), 1e-5) << "added to what was there";
    return std::vector<Numbers>{dprojected, dweight};
  });
}

}  // namespace cpu_convolution_test
}  // namespace orrery::exec::testing
