// Kernels of optimizers beside AdamW against double precision, with ranges that cut parameters as shards do.
#include "exec/engine/half.h"
#include "exec/engine/quantised.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_updates_test {

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

Operand bytes_of(std::vector<std::uint8_t>& x) {
  return {reinterpret_cast<std::byte*>(x.data()), static_cast<std::int64_t>(x.size()), models::DType::uint8};
}
Operand halves(std::vector<std::uint16_t>& x, models::DType dtype) {
  return {reinterpret_cast<std::byte*>(x.data()), static_cast<std::int64_t>(x.size()), dtype};
}

TEST(Sgd, AddsDecayToTheGradientOnItsRangesOnly) {
  const std::int64_t size = 70'001;
  const std::vector<ElementRange> ranges = {{0, 50'001, true, 1}, {50'001, 70'000, false, 1}};
  Numbers start = random_numbers(size, "parameter"), coefficient = {0.5F};
  for (const bool nesterov : {false, true}) {
    Exact parameter = exact(start), momentum(start.size());
    std::vector<Numbers> gradients;
    for (int step = 0; step < 3; ++step) {
      gradients.push_back(random_numbers(size, "gradient" + std::to_string(step)));
      for (const ElementRange& range : ranges)
        for (auto i = static_cast<std::size_t>(range.begin); i < static_cast<std::size_t>(range.end); ++i) {
          const double g = 0.5 * static_cast<double>(gradients.back()[i]) + (range.decay ? 0.1 * parameter[i] : 0);
          momentum[i] = 0.9 * momentum[i] + g;
          parameter[i] -= 0.01 * (nesterov ? g + 0.9 * momentum[i] : momentum[i]);
        }
    }
    on_every_backend([&](Backend& backend) {
      Numbers found = start, velocity(start.size()), copy(start.size());
      for (int step = 0; step < 3; ++step) {
        StepContext context = context_of(step);
        context.nesterov = nesterov;
        run(backend, flat_op(OpKind::momentum_update, size),
            {of(gradients[static_cast<std::size_t>(step)]), of(coefficient)}, {of(found), of(velocity), of(copy)},
            context, ranges);
      }
      EXPECT_LT(error_of(found, parameter), 1e-6);
      EXPECT_EQ(found, copy) << "what compute reads";
      EXPECT_EQ(found.back(), start.back()) << "outside all ranges";
      return std::vector<Numbers>{found, velocity};
    });
  }
}

TEST(Lion, MovesEachElementByTheRateAlone) {
  const std::int64_t size = 70'001;
  const std::vector<ElementRange> ranges = {{0, 50'001, true, 1}, {50'001, 70'000, false, 1}};
  Numbers start = random_numbers(size, "parameter"), coefficient = {0.5F};
  Exact parameter = exact(start), momentum(start.size());
  std::vector<Numbers> gradients;
  for (int step = 0; step < 3; ++step) {
    gradients.push_back(random_numbers(size, "gradient" + std::to_string(step)));
    if (step == 0) gradients[0][7] = 0;  // nothing to go by: the element stays, but for decay
    for (const ElementRange& range : ranges)
      for (auto i = static_cast<std::size_t>(range.begin); i < static_cast<std::size_t>(range.end); ++i) {
        const double g = 0.5 * static_cast<double>(gradients.back()[i]);
        const double c = 0.9 * momentum[i] + 0.1 * g;
        parameter[i] -= 0.01 * ((c > 0 ? 1 : c < 0 ? -1 : 0) + (range.decay ? 0.1 * parameter[i] : 0));
        momentum[i] = 0.99 * momentum[i] + 0.01 * g;
      }
  }
  on_every_backend([&](Backend& backend) {
    Numbers found = start, states(start.size()), copy(start.size());
    for (int step = 0; step < 3; ++step) {
      StepContext context = context_of(step);
      context.beta1 = 0.9, context.beta2 = 0.99;
      Op op = flat_op(OpKind::momentum_update, size);
      op.rule = models::UpdateRule::lion;
      run(backend, op, {of(gradients[static_cast<std::size_t>(step)]), of(coefficient)},
          {of(found), of(states), of(copy)}, context, ranges);
    }
    EXPECT_LT(error_of(found, parameter), 1e-6);
    EXPECT_LT(error_of(states, momentum), 1e-6);
    EXPECT_EQ(found, copy) << "what compute reads";
    EXPECT_EQ(found.back(), start.back()) << "outside all ranges";
    return std::vector<Numbers>{found, states};
  });
}

ElementRange parameter_range(std::int64_t begin, std::int64_t end, std::int64_t norms, bool decay = true) {
  ElementRange range{begin, end, decay, 1};
  range.norms = norms;
  return range;
}

TEST(Lamb, ScalesEachParameterByItsTrustRatio) {
  const std::int64_t size = 150'000;
  std::vector<ElementRange> ranges = {parameter_range(0, 100'003, 1), parameter_range(100'003, 149'000, 0, false)};
  ranges[1].share = 0.5;  // the other tensor rank has as much to say
  Numbers start = random_numbers(size, "parameter"), gradient = random_numbers(size, "gradient", 0.01);
  Exact direction(start.size()), expected = exact(start), norms(4);
  for (const ElementRange& range : ranges)
    for (auto i = static_cast<std::size_t>(range.begin); i < static_cast<std::size_t>(range.end); ++i) {
      const double g = static_cast<double>(gradient[i]), w = expected[i];
      direction[i] = g / (std::abs(g) + 1e-8) + (range.decay ? 0.1 * w : 0);
      norms[static_cast<std::size_t>(2 * range.norms)] += range.share * w * w;
      norms[static_cast<std::size_t>(2 * range.norms + 1)] += range.share * direction[i] * direction[i];
    }
  for (const ElementRange& range : ranges) {
    const double ratio = range.decay ? std::sqrt(norms[2] / norms[3]) : 1;
    for (auto i = static_cast<std::size_t>(range.begin); i < static_cast<std::size_t>(range.end); ++i)
      expected[i] -= 0.01 * ratio * direction[i];
  }
  on_every_backend([&](Backend& backend) {
    Numbers parameter = start, first(start.size()), second(start.size()), sums(4), one = {1};
    run(backend, flat_op(OpKind::lamb_moments, size), {of(gradient), of(one), of(parameter)},
        {of(first), of(second), of(sums)}, context_of(0), ranges);
    EXPECT_LT(error_of(sums, norms), 1e-5);
    EXPECT_EQ(parameter, start) << "the first half changes no parameter";
    run(backend, flat_op(OpKind::lamb, size), {of(first), of(second), of(sums)}, {of(parameter)}, context_of(0),
        ranges);
    EXPECT_LT(error_of(parameter, expected), 1e-6);
    return std::vector<Numbers>{parameter, sums};
  });
}

TEST(Adafactor, SumsRowsAndColumnsOfTheShardThatItHas) {
  // 40 rows of 300 columns, of which a shard has elements 100 to 11,000.
  constexpr std::int64_t rows = 40, columns = 300, first = 100, last = 11'000;
  ElementRange range = parameter_range(32, 32 + last - first, 0);
  range.first = first;
  range.columns = columns;
  range.all_rows = rows;
  range.all_columns = columns;
  range.factor_sum = 5;
  range.factor_rows = 6;
  range.factor_columns = 6 + rows;
  const std::int64_t size = range.end + 8, factors = 6 + rows + columns;
  Numbers gradient = random_numbers(size, "gradient"), coefficient = {0.5F};
  Exact expected(static_cast<std::size_t>(factors));
  for (std::int64_t i = first; i < last; ++i) {
    const double g = 0.5 * static_cast<double>(gradient[static_cast<std::size_t>(range.begin + i - first)]);
    expected[5] += g * g;
    expected[static_cast<std::size_t>(6 + i / columns)] += g * g;
    expected[static_cast<std::size_t>(6 + rows + i % columns)] += g * g;
  }
  Op op = flat_op(OpKind::factor_sums, size);
  op.k = factors;
  on_every_backend([&](Backend& backend) {
    Numbers sums(static_cast<std::size_t>(factors));
    run(backend, op, {of(gradient), of(coefficient)}, {of(sums)}, context_of(0), {range});
    EXPECT_LT(error_of(sums, expected), 1e-6);
    return std::vector<Numbers>{sums};
  });
}

TEST(AdamW8Bit, IsAdamWWhoseMomentsAreRoundedToTheirCodes) {
  const std::int64_t size = 256 * 40;
  const std::vector<ElementRange> ranges = {{0, 5000, true, 1}, {5120, size, false, 1}};
  Numbers start = random_numbers(size, "parameter"), one = {1};
  Exact parameter = exact(start);
  Numbers first(start.size()), second(start.size());
  std::vector<Numbers> gradients;

  for (int step = 0; step < 4; ++step) {
    gradients.push_back(random_numbers(size, "gradient" + std::to_string(step), 0.01));
    const double t = step + 1;
    for (const ElementRange& range : ranges)
      for (std::int64_t at = range.begin; at < range.end; at += 256) {
        const auto count = static_cast<std::size_t>(std::min<std::int64_t>(256, range.end - at));
        for (std::size_t k = 0; k < count; ++k) {
          const std::size_t i = static_cast<std::size_t>(at) + k;
          const double g = static_cast<double>(gradients.back()[i]);
          const double m = 0.9 * static_cast<double>(first[i]) + 0.1 * g;
          const double v = 0.95 * static_cast<double>(second[i]) + 0.05 * g * g;
          if (range.decay) parameter[i] -= 0.01 * 0.1 * parameter[i];
          parameter[i] -= 0.01 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.95, t))) + 1e-8);
          first[i] = static_cast<float>(m);
          second[i] = static_cast<float>(v);
        }
        std::vector<std::uint8_t> codes(count);
        for (auto [book, moment] : {std::pair(&signed_codes(), &first), std::pair(&unsigned_codes(), &second)}) {
          const std::span<float> block(moment->data() + at, count);
          const float scale = quantise(*book, block, codes.data());
          dequantise(*book, codes, scale, block.data());
        }
      }
  }
  on_every_backend([&](Backend& backend) {
    Numbers found = start, scale1(40), scale2(40);
    std::vector<std::uint8_t> codes1(start.size()), codes2(start.size());
    for (int step = 0; step < 4; ++step)
      run(backend, flat_op(OpKind::adamw_8bit, size), {of(gradients[static_cast<std::size_t>(step)]), of(one)},
          {of(found), bytes_of(codes1), bytes_of(codes2), of(scale1), of(scale2)}, context_of(step), ranges);
    double difference = 0, whole = 0;  // a code beside a bound may fall to its other side
    for (std::size_t i = 0; i < found.size(); ++i) {
      difference += std::pow(static_cast<double>(found[i]) - parameter[i], 2);
      whole += std::pow(parameter[i] - static_cast<double>(start[i]), 2);
    }
    EXPECT_LT(std::sqrt(difference / whole), 1e-3);
    return std::vector<Numbers>{found, scale1, scale2};
  });
}

TEST(LossScale, SkipsAndShrinksOnOverflowAndGrowsAfterAnInterval) {
  on_every_backend([&](Backend& backend) {
    StepContext context = context_of(0);
    context.scale_interval = 3;
    Numbers scaling = {1024, 0, 0, 0}, norm = {4}, reported = {0}, coefficient = {0};
    const auto step = [&](float value) {
      norm[0] = value;
      Operand flag{reinterpret_cast<std::byte*>(scaling.data() + 3), 1};
      run(backend, flat_op(OpKind::overflow, 1), {of(norm)}, {flag}, context);
      run(backend, flat_op(OpKind::clip_coefficient, 1), {of(norm), of(scaling)}, {of(reported), of(coefficient)},
          context);
      run(backend, flat_op(OpKind::loss_scale, 4), {}, {of(scaling)}, context);
    };
    step(1024.0F * 1024 * 9);
    EXPECT_EQ(reported[0], 3);
    EXPECT_EQ(coefficient[0], 1.0F / 1024);
    step(INFINITY);
    EXPECT_EQ(scaling, (Numbers{512, 0, 1, 1}));
    Numbers parameter = {5}, gradient = {NAN}, first = {0}, second = {0};
    run(backend, flat_op(OpKind::adamw, 1), {of(gradient), of(coefficient), of(scaling)},
        {of(parameter), of(first), of(second)}, context);
    EXPECT_EQ(parameter[0], 5) << "a step that overflowed is skipped";
    step(4), step(4);
    EXPECT_EQ(scaling, (Numbers{512, 2, 1, 0}));
    step(4);
    EXPECT_EQ(scaling, (Numbers{1024, 0, 1, 0}));
    step(NAN);
    EXPECT_EQ(scaling[3], 1) << "no number is an overflow too";
    return std::vector<Numbers>{scaling};
  });
}

TEST(Halves, OfTheKernelsAreThoseOfTheHost) {
  Numbers values;
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) values.push_back(from_fp16(static_cast<std::uint16_t>(bits)));
  const std::size_t exact_values = values.size();
  for (int i = 0; i < 40'000; ++i)
    values.push_back(static_cast<float>(std::ldexp(1 + i % 997 / 997.0, i % 60 - 35)) * (i % 2 == 0 ? 1.0F : -1.0F));
  for (const float edge : {65504.0F, 65519.9F, 65520.0F, 1e30F, 0x1p-24F, 0x1p-25F, 0x1.8p-25F, 0.0F, -0.0F})
    values.push_back(edge);
  for (const Kernels* kernels : runnable_kernels()) {
    SCOPED_TRACE(kernels->name);
    std::vector<std::uint16_t> halves16(values.size()), brains(values.size());
    Numbers back(values.size());
    const auto count = static_cast<std::int64_t>(values.size());
    kernels->to_fp16(values.data(), halves16.data(), count);
    kernels->to_bf16(values.data(), brains.data(), count);
    kernels->from_fp16(halves16.data(), back.data(), count);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        EXPECT_TRUE(std::isnan(back[i]) && std::isnan(from_bf16(brains[i])));
        continue;
      }
      ASSERT_EQ(halves16[i], to_fp16(values[i])) << values[i];
      ASSERT_EQ(brains[i], to_bf16(values[i])) << values[i];
      ASSERT_EQ(back[i], from_fp16(halves16[i])) << values[i];
      if (i < exact_values) {
        ASSERT_EQ(back[i], values[i]) << "what has 16 bits stays";
      }
    }
    kernels->from_bf16(brains.data(), back.data(), count);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!std::isnan(values[i])) {
        ASSERT_EQ(back[i], from_bf16(brains[i]));
      }
  }
}

TEST(Matmul, OfHalvesIsTheProductOfTheirValuesRoundedOnce) {
  for (const models::DType dtype : {models::DType::bf16, models::DType::fp16})
    for (int variant = 0; variant < 8; ++variant) {
      Op op;
      op.kind = OpKind::matmul;
      op.dtype = dtype;
      op.m = 300, op.n = 270, op.k = 65;
      op.trans_a = (variant & 1) != 0;
      op.trans_b = (variant & 2) != 0;
      op.accumulate = (variant & 4) != 0;
      const auto rounded = [&](std::int64_t count, const char* name) {
        std::vector<std::uint16_t> out;
        for (const float v : random_numbers(count, name))
          out.push_back(dtype == models::DType::bf16 ? to_bf16(v) : to_fp16(v));
        return out;
      };
      const auto value = [&](std::uint16_t bits) {
        return static_cast<double>(dtype == models::DType::bf16 ? from_bf16(bits) : from_fp16(bits));
      };
      auto a = rounded(op.m * op.k, "a"), b = rounded(op.k * op.n, "b"), bias = rounded(op.n, "bias");
      const auto before = rounded(op.m * op.n, "c");
      Exact expected;
      for (std::int64_t i = 0; i < op.m; ++i)
        for (std::int64_t j = 0; j < op.n; ++j) {
          double sum = value(bias[static_cast<std::size_t>(j)]);
          if (op.accumulate) sum += value(before[static_cast<std::size_t>(i * op.n + j)]);
          for (std::int64_t l = 0; l < op.k; ++l)
            sum += value(a[static_cast<std::size_t>(op.trans_a ? l * op.m + i : i * op.k + l)]) *
                   value(b[static_cast<std::size_t>(op.trans_b ? j * op.k + l : l * op.n + j)]);
          expected.push_back(sum);
        }
      on_every_backend([&](Backend& backend) {
        auto c = before;
        run(backend, op, {halves(a, dtype), halves(b, dtype), halves(bias, dtype)}, {halves(c, dtype)});
        Numbers found;
        for (const std::uint16_t bits : c) found.push_back(static_cast<float>(value(bits)));
        EXPECT_LT(error_of(found, expected), dtype == models::DType::bf16 ? 0x1p-8 : 0x1p-10);
        return std::vector<Numbers>{found};
      });
    }
}

TEST(StochasticRounding, KeepsTheMeanAndDrawsTheSameForAnyShard) {
  const float value = 1.0F + 0.3F * 0x1p-7F;  // three tenths of the way to the next bf16
  const RandomBits random(7, 11, 3);
  std::vector<std::uint16_t> bits(200'000), part(1000);
  random.draw(0, bits);
  double up = 0;
  for (const std::uint16_t one : bits) up += from_bf16(to_bf16_randomly(value, one)) > 1.0F ? 1 : 0;
  EXPECT_NEAR(up / static_cast<double>(bits.size()), 0.3, 0.005);
  random.draw(777, part);
  for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], bits[777 + i]);
  std::vector<std::uint16_t> other(1000);
  RandomBits(7, 11, 4).draw(777, other);
  EXPECT_NE(part, other) << "another step draws anew";
  EXPECT_EQ(to_bf16_randomly(INFINITY, 0xffff), to_bf16(INFINITY));
}

}  // namespace cpu_updates_test
}  // namespace orrery::exec::testing
