// Flat ranges: AdamW, the gradient's norm and clipping, clearing, copying and adding.
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_optimizer_test {

Op flat_op(OpKind kind, std::int64_t elements) {
  Op op;
  op.kind = kind;
  op.m = elements;
  return op;
}

StepContext context_of(std::int64_t step) {
  StepContext context;
  context.step = step;
  context.learning_rate = 0.01;
  context.weight_decay = 0.1;
  return context;
}

struct State {
  Exact parameter, first, second;
};

/// Algorithm 2 of "Decoupled Weight Decay Regularization", word by word.
void reference_adamw(State& s, const Exact& gradient, double coefficient, const StepContext& c,
                     const std::vector<ElementRange>& ranges) {
  for (const ElementRange& range : ranges)
    for (std::size_t i = static_cast<std::size_t>(range.begin); i < static_cast<std::size_t>(range.end); ++i) {
      const double g = gradient[i] * coefficient, t = static_cast<double>(c.step + 1);
      if (range.decay) s.parameter[i] -= c.learning_rate * c.weight_decay * s.parameter[i];
      s.first[i] = c.beta1 * s.first[i] + (1 - c.beta1) * g;
      s.second[i] = c.beta2 * s.second[i] + (1 - c.beta2) * g * g;
      const double m = s.first[i] / (1 - std::pow(c.beta1, t)), v = s.second[i] / (1 - std::pow(c.beta2, t));
      s.parameter[i] -= c.learning_rate * m / (std::sqrt(v) + c.epsilon);
    }
}

TEST(AdamW, FollowsThePaperOverSeveralStepsWithDecayOnItsRangesOnly) {
  const std::int64_t size = 140'003;
  const std::vector<ElementRange> ranges = {{0, 1001, true, 1}, {1001, 1017, false, 1}, {1017, 140'000, true, 1}};
  Numbers start = random_numbers(size, "parameter"), coefficient = {0.7F};
  State expected{exact(start), Exact(start.size()), Exact(start.size())};
  std::vector<Numbers> gradients;
  for (int step = 0; step < 4; ++step) {
    gradients.push_back(random_numbers(size, "gradient" + std::to_string(step), 0.01));
    reference_adamw(expected, exact(gradients.back()), static_cast<double>(coefficient[0]), context_of(step), ranges);
  }
  on_every_backend([&](Backend& backend) {
    Numbers parameter = start, first(start.size()), second(start.size());
    for (int step = 0; step < 4; ++step)
      run(backend, flat_op(OpKind::adamw, size), {of(gradients[static_cast<std::size_t>(step)]), of(coefficient)},
          {of(parameter), of(first), of(second)}, context_of(step), ranges);
    EXPECT_LT(error_of(parameter, expected.parameter), 2e-7);
    EXPECT_LT(error_of(first, expected.first), 1e-6);
    EXPECT_LT(error_of(second, expected.second), 1e-6);
    EXPECT_EQ(parameter.back(), start.back()) << "outside all ranges";
    return std::vector<Numbers>{parameter, first, second};
  });
}

// The correction is by the number of updates: of all steps so far, however many, without those that were skipped.
TEST(AdamW, CorrectsItsMomentsByTheUpdatesThatWereMade) {
  const std::vector<ElementRange> ranges = {{0, 1000, true, 1}};
  Numbers start = random_numbers(1000, "parameter"), gradient = random_numbers(1000, "gradient", 0.01), one = {1};
  for (const std::int64_t step : {0, 1, 38, 39, 40, 41, 99, 499, 2999})
    for (const int skipped : {-1, 0, 1, 30}) {  // -1: without loss scaling
      if (skipped > step) continue;
      StepContext context = context_of(step - std::max(0, skipped));
      State expected{exact(start), Exact(start.size(), 0.01), Exact(start.size(), 1e-4)};
      reference_adamw(expected, exact(gradient), 1, context, ranges);
      context.step = step;
      Numbers parameter = start, first(start.size(), 0.01F), second(start.size(), 1e-4F);
      Numbers scaling = {1024, 0, static_cast<float>(skipped), 0};
      CpuBackend backend(1, best_kernels());
      run(backend, flat_op(OpKind::adamw, 1000), {of(gradient), of(one), skipped < 0 ? absent() : of(scaling)},
          {of(parameter), of(first), of(second)}, context, ranges);
      Exact moved, wanted;
      for (std::size_t i = 0; i < start.size(); ++i) wanted.push_back(expected.parameter[i] - start[i]);
      for (std::size_t i = 0; i < start.size(); ++i) moved.push_back(static_cast<double>(parameter[i]) - start[i]);
      for (std::size_t i = 0; i < start.size(); i += 7)
        EXPECT_NEAR(moved[i], wanted[i], 1e-6 + 1e-4 * std::abs(wanted[i])) << "step " << step << ", " << skipped;
    }
}

TEST(AdamW, ChangesNothingInAStepThatIsSkipped) {
  Numbers start = random_numbers(100, "parameter"), parameter = start, gradient = random_numbers(100, "gradient");
  Numbers first(100, 0.5F), second(100, 0.25F), scaling = {1024, 0, 1, 1}, one = {1};
  CpuBackend backend(1, best_kernels());
  run(backend, flat_op(OpKind::adamw, 100), {of(gradient), of(one), of(scaling)},
      {of(parameter), of(first), of(second)}, context_of(5));
  EXPECT_EQ(parameter, start);
  EXPECT_EQ(first, Numbers(100, 0.5F));
  EXPECT_EQ(second, Numbers(100, 0.25F));
}

TEST(NormSquared, WeighsRangesAndAddsInDoublePrecision) {
  const std::int64_t size = 300'001;
  Numbers gradient = random_numbers(size, "gradient", 3);
  const std::vector<ElementRange> ranges = {{0, 100, true, 0}, {100, 200'000, true, 0.5}, {200'000, size, false, 1}};
  double expected = 0.5;
  for (const ElementRange& range : ranges)
    for (std::size_t i = static_cast<std::size_t>(range.begin); i < static_cast<std::size_t>(range.end); ++i)
      expected += range.norm_weight * std::pow(static_cast<double>(gradient[i]), 2);
  on_every_backend([&](Backend& backend) {
    Numbers total = {0.5F};
    run(backend, flat_op(OpKind::norm_squared, size), {of(gradient)}, {of(total)}, {}, ranges);
    EXPECT_NEAR(total[0], expected, 1e-7 * expected);
    return std::vector<Numbers>{total};
  });
}

float coefficient_of(float norm_squared, double clip, float* norm) {
  CpuBackend backend(1, best_kernels());
  Numbers in = {norm_squared}, norm_out(1), coefficient(1);
  StepContext context;
  context.clip_norm = clip;
  run(backend, flat_op(OpKind::clip_coefficient, 1), {of(in)}, {of(norm_out), of(coefficient)}, context);
  *norm = norm_out[0];
  return coefficient[0];
}

TEST(ClipCoefficient, ShrinksOnlyWhatIsTooLong) {
  float norm = 0;
  EXPECT_FLOAT_EQ(0.25F, coefficient_of(16, 1, &norm));
  EXPECT_FLOAT_EQ(4, norm);
  EXPECT_EQ(1, coefficient_of(0.25F, 1, &norm));
  EXPECT_EQ(1, coefficient_of(16, 0, &norm));
  EXPECT_TRUE(std::isnan(coefficient_of(NAN, 1, &norm)));
}

TEST(FlatRanges, AreClearedCopiedAndAdded) {
  const std::int64_t size = 200'001;
  Numbers x = random_numbers(size, "x"), y = random_numbers(size, "y");
  on_every_backend([&](Backend& backend) -> std::vector<Numbers> {
    Numbers sum = y, copied(y.size()), cleared = y;
    cleared.push_back(5);
    run(backend, flat_op(OpKind::accumulate_into, size), {of(x)}, {of(sum)});
    run(backend, flat_op(OpKind::copy, size), {of(x)}, {of(copied)});
    run(backend, flat_op(OpKind::fill_zero, size), {}, {of(cleared)});
    for (std::size_t i = 0; i < x.size(); i += 997) EXPECT_EQ(sum[i], y[i] + x[i]);
    EXPECT_EQ(copied, x);
    EXPECT_EQ(cleared.back(), 5) << "beyond the range";
    cleared.pop_back();
    EXPECT_EQ(cleared, Numbers(x.size(), 0));
    return std::vector<Numbers>{sum};
  });
}

}  // namespace cpu_optimizer_test
}  // namespace orrery::exec::testing
