// What families ask of operators beyond GPT-2's and Llama's: activations by formula, norms of heads, caps, windows,
// slopes, partial rotation, scaled embeddings. Against definitions in double precision and their finite differences.
#include <functional>

#include "models/alibi.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_features_test {

using models::Function;

std::size_t place(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

double relu_squared(double x) {
  return x > 0 ? x * x : 0;
}
double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double as_it_is(double x) {
  return x;
}
double clamped_silu(double x) {
  return std::min(x, 7.0) / (1 + std::exp(-1.702 * std::min(x, 7.0)));
}
double clamped_and_one(double x) {
  return 1 + std::clamp(x, -7.0, 7.0);
}

struct Activated {
  Function function;
  double (*definition)(double);
  double (*up)(double) = as_it_is;
  double spread = 2;
};
const Activated kActivated[] = {{Function::squared_relu, relu_squared},
                                {Function::gelu, gelu_tanh},
                                {Function::clamped, clamped_silu, clamped_and_one, 6}};

TEST(Activations, AreTheirDefinitionsWithTheirSlopes) {
  constexpr std::int64_t kRows = 7, kColumns = 53;
  for (const Activated& one : kActivated) {
    Numbers x = random_numbers(kRows * kColumns, "x", 3), dy = random_numbers(kRows * kColumns, "dy");
    Exact in = exact(x), expected(in.size());
    const auto values = [&] {
      Exact y(in.size());
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = one.definition(in[i]);
      return y;
    };
    expected = values();
    const Exact slopes = finite_differences(in, [&] { return weighted_sum(values(), dy); });
    on_every_backend([&](Backend& backend) {
      Op forward = rows_op(OpKind::activate, kRows, kColumns),
         backward = rows_op(OpKind::activate_grad, kRows, kColumns);
      forward.function = backward.function = one.function;
      Numbers y(x.size(), NAN), dx = dy;
      run(backend, forward, {of(x)}, {of(y)});
      run(backend, backward, {of(dx), of(x)}, {of(dx)});
      EXPECT_LT(error_of(y, expected), 1e-6);
      EXPECT_LT(error_of(dx, slopes), 1e-6);
      return std::vector<Numbers>{y, dx};
    });
  }
}

TEST(Activations, GateWithTheirDefinitions) {
  constexpr std::int64_t kRows = 5, kColumns = 37;
  for (const Activated& one : kActivated) {
    Numbers x = random_numbers(2 * kRows * kColumns, "x", one.spread), dy = random_numbers(kRows * kColumns, "dy");
    Exact in = exact(x);
    const auto values = [&] {
      Exact y(place(kRows * kColumns));
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t c = 0; c < kColumns; ++c)
          y[place(r * kColumns + c)] =
              one.definition(in[place(2 * r * kColumns + c)]) * one.up(in[place(2 * r * kColumns + kColumns + c)]);
      return y;
    };
    const Exact expected = values();
    const Exact slopes = finite_differences(in, [&] { return weighted_sum(values(), dy); });
    on_every_backend([&](Backend& backend) {
      Op forward = rows_op(OpKind::gate, kRows, kColumns), backward = rows_op(OpKind::gate_grad, kRows, kColumns);
      forward.function = backward.function = one.function;
      Numbers y(expected.size(), NAN), dx(x.size(), NAN);
      run(backend, forward, {of(x)}, {of(y)});
      run(backend, backward, {of(dy), of(x)}, {of(dx)});
      EXPECT_LT(error_of(y, expected), 1e-6);
      EXPECT_LT(error_of(dx, slopes), 1e-6);
      return std::vector<Numbers>{y, dx};
    });
  }
}

TEST(Activations, LetNothingThatIsNoNumberPass) {
  on_every_backend([&](Backend& backend) {
    for (const Activated& one : kActivated) {
      Op op = rows_op(OpKind::activate, 1, 2);
      op.function = one.function;
      Numbers x = {NAN, 1}, y(2);
      run(backend, op, {of(x)}, {of(y)});
      EXPECT_TRUE(std::isnan(y[0]));
    }
    return std::vector<Numbers>{};
  });
}

// -- norms of heads ---------------------------------------------------------------------------------------------------

void expect_norms_of_heads(bool joint) {
  constexpr std::int64_t kBatch = 2, kSequence = 5, kHeads = 4, kKeyHeads = 2, kDim = 12;
  constexpr std::int64_t kTokens = kBatch * kSequence, kWidth = (kHeads + 2 * kKeyHeads) * kDim;
  Numbers x = random_numbers(kTokens * kWidth, "x", 2), dy = random_numbers(kTokens * kWidth, "dy");
  const std::int64_t of_one = joint ? kHeads : 1, of_other = joint ? kKeyHeads : 1;  // heads that are normed as one
  Numbers weight_q = random_numbers(of_one * kDim, "q", 0.3, 1);
  Numbers weight_k = random_numbers(of_other * kDim, "k", 0.3, 1);
  Exact in = exact(x), wq = exact(weight_q), wk = exact(weight_k);
  const double epsilon = 1e-6;
  const auto values = [&] {
    Exact y = in;
    for (std::int64_t row = 0; row < kTokens; ++row)
      for (std::int64_t head = 0, count = 0; head < kHeads + kKeyHeads; head += count) {
        count = head < kHeads ? of_one : of_other;
        const std::size_t at = place(row * kWidth + head * kDim);
        double sum = 0;
        for (std::int64_t d = 0; d < count * kDim; ++d) sum += in[at + place(d)] * in[at + place(d)];
        const double r = 1 / std::sqrt(sum / static_cast<double>(count * kDim) + epsilon);
        for (std::int64_t d = 0; d < count * kDim; ++d)
          y[at + place(d)] = in[at + place(d)] * r * (head < kHeads ? wq : wk)[place(d)];
      }
    return y;
  };
  const auto loss = [&] { return weighted_sum(values(), dy); };
  const Exact expected = values(), dx = finite_differences(in, loss), dq = finite_differences(wq, loss),
              dk = finite_differences(wk, loss);
  on_every_backend([&](Backend& backend) {
    Op op;
    op.kind = OpKind::head_norm;
    op.batch = kBatch, op.sequence = kSequence, op.n = kTokens;
    op.heads = kHeads, op.kv_heads = kKeyHeads, op.head_dim = kDim;
    op.epsilon = epsilon, op.joint = joint;
    Numbers y(x.size(), NAN), rstd(place(kTokens * models::normed_runs(op).count()), NAN), back = dy;
    Numbers of_q(weight_q.size(), 1.0F), of_k(weight_k.size(), 0.0F);  // gradients are added
    run(backend, op, {of(x), of(weight_q), of(weight_k)}, {of(y), of(rstd)});
    op.kind = OpKind::head_norm_grad;
    run(backend, op, {of(back), of(x), of(weight_q), of(weight_k), of(rstd)}, {of(back), of(of_q), of(of_k)});
    EXPECT_LT(error_of(y, expected), 1e-6);
    EXPECT_LT(error_of(back, dx), 2e-6);
    for (float& value : of_q) value -= 1;
    EXPECT_LT(error_of(of_q, dq), 2e-6);
    EXPECT_LT(error_of(of_k, dk), 2e-6);
    return std::vector<Numbers>{y, back, of_k};
  });
}

TEST(HeadNorm, IsAnRmsNormOfEachHeadOfQAndOfK) {
  expect_norms_of_heads(false);
}

TEST(HeadNorm, IsOneRmsNormOfAllHeadsOfQAndOneOfKsWhereTheyAreJoint) {
  expect_norms_of_heads(true);
}

// -- attention --------------------------------------------------------------------------------------------------------

struct Attention {
  std::int64_t sequence, heads, kv_heads, dim;
  bool flash = true;
  std::int64_t window = 0;
  double cap = 0, score_scale = 0;
  std::int64_t alibi_heads = 0;
  int tensor_rank = 0;
  bool sinks = false;
  [[nodiscard]] std::int64_t width() const { return (heads + 2 * kv_heads) * dim; }
  [[nodiscard]] Op op(OpKind kind) const {
    Op op;
    op.kind = kind;
    op.batch = 2, op.sequence = sequence, op.n = 2 * sequence;
    op.heads = heads, op.kv_heads = kv_heads, op.head_dim = dim;
    op.causal = true, op.flash = flash;
    op.window = window, op.cap = cap, op.score_scale = score_scale, op.alibi_heads = alibi_heads;
    return op;
  }
};

/// By the definition in models/operators/op.h.
Exact attended(const Attention& c, const Exact& qkv, const Exact& sinks) {
  Exact y(place(2 * c.sequence * c.heads * c.dim));
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < c.sequence; ++i) {
        const std::int64_t g = h / (c.heads / c.kv_heads);
        Exact p(place(i + 1));
        double total = c.sinks ? std::exp(sinks[place(h)]) : 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          if (c.window > 0 && i - j >= c.window) continue;
          double s = 0;
          for (std::int64_t d = 0; d < c.dim; ++d)
            s += qkv[place((b * c.sequence + i) * c.width() + h * c.dim + d)] *
                 qkv[place((b * c.sequence + j) * c.width() + (c.heads + g) * c.dim + d)];
          s *= c.score_scale > 0 ? c.score_scale : 1 / std::sqrt(static_cast<double>(c.dim));
          if (c.cap > 0) s = c.cap * std::tanh(s / c.cap);
          if (c.alibi_heads > 0)
            s += models::alibi_slope(c.tensor_rank * c.heads + h, c.alibi_heads) * static_cast<double>(j - i);
          p[place(j)] = std::exp(s);
          total += p[place(j)];
        }
        for (std::int64_t j = 0; j <= i; ++j)
          for (std::int64_t d = 0; d < c.dim; ++d)
            y[place((b * c.sequence + i) * c.heads * c.dim + h * c.dim + d)] +=
                p[place(j)] / total *
                qkv[place((b * c.sequence + j) * c.width() + (c.heads + c.kv_heads + g) * c.dim + d)];
      }
  return y;
}

void expect_attention(const Attention& c, bool differences) {
  Numbers qkv = random_numbers(2 * c.sequence * c.width(), "qkv", 1.5);
  Numbers dy = random_numbers(2 * c.sequence * c.heads * c.dim, "dy");
  Numbers logits = random_numbers(c.heads, "sinks", 2);
  Exact x = exact(qkv), z = exact(logits);
  const Exact expected = attended(c, x, z);
  const auto loss = [&] { return weighted_sum(attended(c, x, z), dy); };
  const Exact slopes = differences ? finite_differences(x, loss) : Exact();
  const Exact of_sinks = c.sinks ? finite_differences(z, loss) : Exact();
  StepContext context;
  context.tensor_rank = c.tensor_rank;
  on_every_backend([&](Backend& backend) {
    Numbers y(expected.size(), NAN), dqkv(qkv.size(), NAN);
    Numbers saved(place(2 * c.heads * c.sequence * (c.flash ? 1 : c.sequence)), NAN);
    Numbers dsinks(logits.size(), 1.0F);  // gradients are added
    std::vector<Operand> in = {of(qkv)}, back = {of(dy), of(qkv), of(y), of(saved)}, out = {of(dqkv)};
    if (c.sinks) in.push_back(of(logits)), back.push_back(of(logits)), out.push_back(of(dsinks));
    run(backend, c.op(OpKind::attention), in, {of(y), of(saved)}, context);
    run(backend, c.op(OpKind::attention_grad), back, out, context);
    EXPECT_LT(error_of(y, expected), 3e-6);
    if (c.sinks) {
      for (float& value : dsinks) value -= 1;
      EXPECT_LT(error_of(dsinks, of_sinks), 5e-6);
    }
    if (differences) {
      EXPECT_LT(error_of(dqkv, slopes), 5e-6);
    }
    for (const float value : dqkv) EXPECT_TRUE(std::isfinite(value));
    return std::vector<Numbers>{y, dqkv, dsinks};
  });
}

TEST(AttentionFeatures, AreTheirDefinitionsWithTheirGradients) {
  for (const bool flash : {true, false}) {
    expect_attention({.sequence = 9, .heads = 4, .kv_heads = 2, .dim = 4, .flash = flash, .sinks = true}, true);
    expect_attention({.sequence = 9, .heads = 4, .kv_heads = 2, .dim = 4, .flash = flash, .window = 3, .sinks = true},
                     true);
    expect_attention({.sequence = 9, .heads = 4, .kv_heads = 2, .dim = 4, .flash = flash, .window = 3}, true);
    expect_attention({.sequence = 7, .heads = 2, .kv_heads = 1, .dim = 4, .flash = flash, .cap = 1.5}, true);
    expect_attention({.sequence = 7, .heads = 2, .kv_heads = 2, .dim = 4, .flash = flash, .score_scale = 0.2}, true);
    expect_attention(
        {.sequence = 7, .heads = 3, .kv_heads = 3, .dim = 4, .flash = flash, .alibi_heads = 6, .tensor_rank = 1}, true);
    expect_attention({.sequence = 8,
                      .heads = 2,
                      .kv_heads = 1,
                      .dim = 4,
                      .flash = flash,
                      .window = 2,
                      .cap = 0.7,
                      .score_scale = 0.9,
                      .alibi_heads = 2},
                     true);
    // Over several blocks of queries, where a window begins within a block and between two.
    for (const std::int64_t window : {1, 63, 64, 65, 130})
      expect_attention(
          {.sequence = 150, .heads = 2, .kv_heads = 1, .dim = 8, .flash = flash, .window = window, .cap = 2}, false);
  }
}

TEST(AttentionFeatures, AWindowsGradientsOverSeveralBlocks) {
  expect_attention({.sequence = 70, .heads = 1, .kv_heads = 1, .dim = 2, .flash = true, .window = 5, .cap = 3}, true);
  expect_attention({.sequence = 70, .heads = 1, .kv_heads = 1, .dim = 2, .flash = false, .window = 66}, true);
  for (const bool flash : {true, false})
    expect_attention({.sequence = 70, .heads = 2, .kv_heads = 1, .dim = 2, .flash = flash, .window = 9, .sinks = true},
                     true);
}

TEST(AttentionFeatures, SlopesAreThoseOfThePaper) {
  // Press et al.: of 8 heads 1/2, 1/4 … 1/256.
  for (int head = 0; head < 8; ++head) EXPECT_DOUBLE_EQ(models::alibi_slope(head, 8), std::exp2(-(head + 1)));
  // Of 12: those of 8, then every second one of 16.
  EXPECT_DOUBLE_EQ(models::alibi_slope(7, 12), std::exp2(-8));
  for (int head = 8; head < 12; ++head)
    EXPECT_DOUBLE_EQ(models::alibi_slope(head, 12), std::exp2(-0.5 * (2 * (head - 8) + 1)));
}

// One block of keys of a ring, which is all there is: the same as attention over them.
TEST(AttentionFeatures, ARingCapsAndSinksAsAttentionDoes) {
  Attention c{.sequence = 6, .heads = 2, .kv_heads = 1, .dim = 4, .cap = 1.2, .score_scale = 0.6};
  Numbers qkv = random_numbers(2 * c.sequence * c.width(), "qkv", 1.5), dy = random_numbers(2 * c.sequence * 8, "dy");
  Numbers sinks = random_numbers(c.heads, "sinks", 2);
  on_every_backend([&](Backend& backend) {
    Numbers dsinks(sinks.size()), d_sinks_ring(sinks.size());
    Numbers y(dy.size()), lse(place(2 * 2 * c.sequence)), dqkv(qkv.size());
    run(backend, c.op(OpKind::attention), {of(qkv), of(sinks)}, {of(y), of(lse)});
    run(backend, c.op(OpKind::attention_grad), {of(dy), of(qkv), of(y), of(lse), of(sinks)}, {of(dqkv), of(dsinks)});
    const auto of_ring = [&](OpKind kind) {
      Op op = c.op(kind);
      op.context = 2;
      return op;
    };
    Numbers kv(place(2 * c.sequence * 2 * c.dim)), y_ring(y.size()), lse_ring(lse.size()), d_ring(qkv.size()),
        dkv(kv.size());
    run(backend, of_ring(OpKind::split_kv), {of(qkv)}, {of(kv)});
    run(backend, of_ring(OpKind::ring_attention), {of(qkv), of(kv), of(sinks)}, {of(y_ring), of(lse_ring)});
    run(backend, of_ring(OpKind::ring_attention_grad), {of(dy), of(qkv), of(y_ring), of(lse_ring), of(kv), of(sinks)},
        {of(d_ring), of(dkv), of(d_sinks_ring)});
    run(backend, of_ring(OpKind::merge_kv), {of(dkv)}, {of(d_ring)});
    EXPECT_LT(error_of(y_ring, exact(y)), 1e-6);
    EXPECT_LT(error_of(d_ring, exact(dqkv)), 2e-6);
    EXPECT_LT(error_of(d_sinks_ring, exact(dsinks)), 2e-6);
    return std::vector<Numbers>{y_ring, d_ring};
  });
}

// -- rotation, embeddings, logits -------------------------------------------------------------------------------------

TEST(PartialRotation, TurnsTheFirstColumnsAndLeavesTheRest) {
  constexpr std::int64_t kTokens = 5, kDim = 10, kTurned = 4, kWidth = 4 * kDim;  // 2 heads, 1 of k and of v
  Op op;
  op.kind = OpKind::rope;
  op.batch = 1, op.sequence = op.n = kTokens, op.heads = 2, op.kv_heads = 1, op.head_dim = kDim;
  op.rotary = kTurned;
  op.epsilon = 10000;
  Numbers x = random_numbers(kTokens * kWidth, "x");
  Exact expected = exact(x);
  for (std::int64_t t = 0; t < kTokens; ++t)
    for (std::int64_t head = 0; head < 3; ++head)
      for (std::int64_t j = 0; j < kTurned / 2; ++j) {
        const double angle = static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(j) / kTurned);
        double &a = expected[place(t * kWidth + head * kDim + j)], &b = (&a)[kTurned / 2];
        const double left = a, right = b;
        a = left * std::cos(angle) - right * std::sin(angle);
        b = right * std::cos(angle) + left * std::sin(angle);
      }
  on_every_backend([&](Backend& backend) {
    Numbers y(x.size(), NAN), in_place = x;
    run(backend, op, {of(x)}, {of(y)});
    run(backend, op, {of(in_place)}, {of(in_place)});
    EXPECT_LT(error_of(y, expected), 1e-6);
    EXPECT_LT(error_of(in_place, expected), 1e-6);
    return std::vector<Numbers>{y};
  });
}

TEST(Embeddings, AreScaledAndBeginBehindAnOffset) {
  constexpr std::int64_t kRows = 6, kColumns = 5, kVocab = 7;
  Ids ids = random_ids(kRows, kVocab, "ids");
  Numbers table = random_numbers(kVocab * kColumns, "table"), dx = random_numbers(kRows * kColumns, "dx");
  Op look = rows_op(OpKind::embedding, kRows, kVocab);
  look.k = kColumns, look.vocab = kVocab, look.scale = 2.5;
  Op places = rows_op(OpKind::position_add, kRows, kColumns);
  places.batch = 2, places.sequence = kRows / 2, places.k = 2;
  Numbers positions = random_numbers((kRows / 2 + 2) * kColumns, "positions");
  on_every_backend([&](Backend& backend) {
    Numbers x(dx.size()), y(dx.size()), dtable(table.size()), dpositions(positions.size());
    run(backend, look, {of(ids), of(table)}, {of(x)});
    Op grad = look;
    grad.kind = OpKind::embedding_grad;
    run(backend, grad, {of(ids), of(dx)}, {of(dtable)});
    run(backend, places, {of(x), of(positions)}, {of(y)});
    Op back = places;
    back.kind = OpKind::position_grad;
    run(backend, back, {of(dx)}, {of(dpositions)});
    Exact sums(dtable.size()), moved(positions.size()), expected(y.size());
    for (std::int64_t i = 0; i < kRows; ++i)
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const std::size_t at = place(i * kColumns + c), word = place(ids[place(i)] * kColumns + c),
                          row = place((2 + i % 3) * kColumns + c);
        sums[word] += 2.5 * static_cast<double>(dx[at]);
        moved[row] += static_cast<double>(dx[at]);
        expected[at] = 2.5 * static_cast<double>(table[word]) + static_cast<double>(positions[row]);
      }
    EXPECT_LT(error_of(y, expected), 1e-6);
    EXPECT_LT(error_of(dtable, sums), 1e-6);
    EXPECT_LT(error_of(dpositions, moved), 1e-6);
    return std::vector<Numbers>{y, dtable, dpositions};
  });
}

// Capped, then the loss over them: the gradient is by the logits before the cap.
TEST(SoftCap, HasItsGradientInTheLosses) {
  constexpr std::int64_t kRows = 4, kColumns = 11, kVocab = 9;  // two of the columns are padding
  constexpr double kCap = 1.5;
  Numbers logits = random_numbers(kRows * kColumns, "logits", 2);
  Ids targets = random_ids(kRows, kVocab, "targets");
  Exact x = exact(logits);
  const auto loss = [&] {
    double total = 0;
    for (std::int64_t row = 0; row < kRows; ++row) {
      double sum = 0;
      const auto capped = [&](std::int64_t c) { return kCap * std::tanh(x[place(row * kColumns + c)] / kCap); };
      for (std::int64_t c = 0; c < kVocab; ++c) sum += std::exp(capped(c));
      total += 0.5 * (std::log(sum) - capped(targets[place(row)]));
    }
    return total;
  };
  const double expected = loss();
  const Exact slopes = finite_differences(x, loss);
  on_every_backend([&](Backend& backend) {
    Numbers values = logits, max(kRows), sums(2 * kRows), total(1);
    const auto op = [&](OpKind kind) {
      Op one = rows_op(kind, kRows, kColumns);
      one.vocab = kVocab, one.scale = 0.5, one.cap = kCap;
      return one;
    };
    run(backend, op(OpKind::soft_cap), {of(values)}, {of(values)});
    run(backend, op(OpKind::softmax_max), {of(values)}, {of(max)});
    run(backend, op(OpKind::softmax_sum), {of(values), of(max), of(targets)}, {of(sums)});
    run(backend, op(OpKind::cross_entropy), {of(max), of(sums)}, {of(total)});
    run(backend, op(OpKind::cross_entropy_grad), {of(values), of(max), of(sums), of(targets)}, {of(values)});
    EXPECT_NEAR(static_cast<double>(total[0]), expected, 1e-5);
    EXPECT_LT(error_of(values, slopes), 3e-6);
    return std::vector<Numbers>{values, total};
  });
}

// Near zero, where a quotient of exponentials would cancel, as far out.
TEST(SoftCap, IsExactNearZero) {
  Numbers x = {0, 1e-6F, -1e-3F, 0.2F, -14.9F, 15.1F, 200, -1e4F, NAN};
  Op op = rows_op(OpKind::soft_cap, 1, static_cast<std::int64_t>(x.size()));
  op.cap = 50;
  on_every_backend([&](Backend& backend) {
    Numbers y(x.size());
    run(backend, op, {of(x)}, {of(y)});
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
      const double exactly = 50 * std::tanh(static_cast<double>(x[i]) / 50);
      EXPECT_NEAR(static_cast<double>(y[i]), exactly, 3e-7 * std::abs(exactly)) << x[i];
    }
    EXPECT_TRUE(std::isnan(y.back()));
    return std::vector<Numbers>{Numbers(y.begin(), y.end() - 1)};
  });
}

}  // namespace cpu_features_test
}  // namespace orrery::exec::testing
