// Dropout's operators against its definition (models/operators/dropout.h): masks, the arithmetic under them, and
// gradients.
#include "models/operators/dropout.h"

#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_dropout_test {

constexpr double kRate = 0.3;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct Rows {
  std::int64_t batch = 3, sequence = 14, context = 1, columns = 53;
  std::int32_t site = 7;
  bool row_shard = false;
  double rate = kRate;
  [[nodiscard]] Op op(OpKind kind) const {
    Op op = rows_op(kind, batch * sequence, columns);
    op.batch = batch;
    op.sequence = sequence;
    op.context = context;
    op.row_shard = row_shard;
    op.dropout = rate;
    op.site = site;
    return op;
  }
};

StepContext context_at(std::int64_t step, std::int64_t first_sequence) {
  StepContext context;
  context.seed = 11;
  context.sample_step = step;
  context.first_sequence = first_sequence;
  return context;
}

bool dropped(const models::DropoutMask& mask, std::uint64_t element, double rate) {
  return models::dropout_bits(mask, element) < models::dropout_threshold(rate);
}

/// Factors as the definition has them.
Numbers expected_factors(const Op& op, const StepContext& context) {
  Numbers out;
  const models::DropoutMask base{models::dropout_key(context.seed, context.sample_step),
                                 static_cast<std::uint32_t>(op.site), 0};
  for (std::int64_t i = 0; i < op.n; ++i) {
    const std::int64_t row = i + (op.row_shard ? context.tensor_rank * op.n : 0);
    models::DropoutMask mask = base;
    mask.sequence = static_cast<std::uint32_t>(context.first_sequence + row / op.sequence);
    for (std::int64_t c = 0; c < op.m; ++c) {
      const auto element = static_cast<std::uint64_t>(position_of(op, context.part, row) * op.m + c);
      out.push_back(dropped(mask, element, op.dropout) ? 0.0F : static_cast<float>(models::dropout_scale(op.dropout)));
    }
  }
  return out;
}

Numbers factors(Backend& backend, const Op& op, const StepContext& context) {
  Numbers ones(at(op.n * op.m), 1), out(ones.size(), NAN);
  run(backend, op, {of(ones)}, {of(out)}, context);
  return out;
}

TEST(Dropout, DrawsTheMaskThatItsDefinitionSays) {
  on_every_backend([](Backend& backend) {
    std::vector<Numbers> all;
    for (const std::int64_t columns : {1, 8, 53, 300}) {
      Rows rows;
      rows.columns = columns;
      const Op op = rows.op(OpKind::dropout);
      all.push_back(factors(backend, op, context_at(4, 9)));
      EXPECT_EQ(all.back(), expected_factors(op, context_at(4, 9))) << columns << " columns";
    }
    return all;
  });
}

TEST(Dropout, ZeroesItsRateOfTheValuesAndKeepsTheMean) {
  CpuBackend backend(1, best_kernels());
  for (const double rate : {0.01, 0.1, 0.5, 0.9}) {
    Rows rows;
    rows.rate = rate;
    rows.sequence = 400, rows.columns = 257;
    const Numbers found = factors(backend, rows.op(OpKind::dropout), context_at(0, 0));
    double zeros = 0, sum = 0;
    for (const float f : found) zeros += f == 0 ? 1 : 0, sum += static_cast<double>(f);
    const auto n = static_cast<double>(found.size());
    const double deviation = std::sqrt(rate * (1 - rate) / n);
    EXPECT_NEAR(zeros / n, rate, 5 * deviation) << rate;
    EXPECT_NEAR(sum / n, 1, 5 * deviation / (1 - rate)) << rate;
  }
}

TEST(Dropout, DrawsAnotherMaskForEachStepSequenceSiteAndSeed) {
  CpuBackend backend(1, best_kernels());
  Rows rows;
  rows.batch = 1, rows.sequence = 200, rows.rate = 0.5;
  const Op op = rows.op(OpKind::dropout);
  const Numbers here = factors(backend, op, context_at(3, 5));
  EXPECT_EQ(here, factors(backend, op, context_at(3, 5)));
  Op elsewhere = op;
  elsewhere.site += 1;
  StepContext seeded = context_at(3, 5);
  seeded.seed += 1;
  for (const Numbers& other : {factors(backend, op, context_at(4, 5)), factors(backend, op, context_at(3, 6)),
                               factors(backend, elsewhere, context_at(3, 5)), factors(backend, op, seeded)}) {
    double same = 0;
    for (std::size_t i = 0; i < here.size(); ++i) same += here[i] == other[i] ? 1 : 0;
    EXPECT_NEAR(same / static_cast<double>(here.size()), 0.5, 0.025);
  }
}

// The rows of tensor ranks (sequence parallelism), of the parts of a ring and of other micro-batches are rows of one
// mask.
TEST(Dropout, OfAPartIsAPartOfTheWholesMask) {
  CpuBackend backend(1, best_kernels());
  Rows whole;
  whole.batch = 2, whole.sequence = 24;
  const Numbers all = factors(backend, whole.op(OpKind::dropout), context_at(2, 6));
  const auto row = [&](std::int64_t of_batch, std::int64_t position) {
    const auto first = all.begin() + (of_batch * whole.sequence + position) * whole.columns;
    return Numbers(first, first + whole.columns);
  };
  const auto row_of = [&](const Numbers& part, std::int64_t i) {
    return Numbers(part.begin() + i * whole.columns, part.begin() + (i + 1) * whole.columns);
  };
  Rows second = whole;
  second.batch = 1;
  const Numbers later = factors(backend, second.op(OpKind::dropout), context_at(2, 7));
  for (std::int64_t t = 0; t < 24; ++t) EXPECT_EQ(row_of(later, t), row(1, t)) << "another micro-batch";
  for (int rank = 0; rank < 3; ++rank) {
    Rows sharded = whole;
    sharded.row_shard = true;
    Op op = sharded.op(OpKind::dropout);
    op.n /= 3;
    StepContext context = context_at(2, 6);
    context.tensor_rank = rank;
    const Numbers part = factors(backend, op, context);
    for (std::int64_t i = 0; i < op.n; ++i) {
      const std::int64_t r = rank * op.n + i;
      EXPECT_EQ(row_of(part, i), row(r / 24, r % 24)) << "sequence parallelism";
    }
  }
  for (int part = 0; part < 2; ++part) {
    Rows ring = whole;
    ring.sequence = 12, ring.context = 2;
    const Op op = ring.op(OpKind::dropout);
    StepContext context = context_at(2, 6);
    context.part = part;
    const Numbers found = factors(backend, op, context);
    for (std::int64_t i = 0; i < op.n; ++i)
      EXPECT_EQ(row_of(found, i), row(i / 12, position_of(op, part, i))) << "context parallelism";
  }
}

TEST(Dropout, WithinTheResidualsAdditionDropsTheBranchAlone) {
  const Op op = Rows{}.op(OpKind::add_bias);
  Numbers residual = random_numbers(op.n * op.m, "residual"), x = random_numbers(op.n * op.m, "x");
  Numbers bias = random_numbers(op.m, "bias");
  const Numbers mask = expected_factors(op, context_at(1, 2));
  for (const bool biased : {false, true}) {
    Exact expected = exact(residual);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] += static_cast<double>(mask[i]) *
                     (static_cast<double>(x[i]) + (biased ? static_cast<double>(bias[i % at(op.m)]) : 0.0));
    on_every_backend([&](Backend& backend) {
      Numbers y(x.size(), NAN);
      run(backend, op, {of(residual), of(x), biased ? of(bias) : absent()}, {of(y)}, context_at(1, 2));
      EXPECT_LT(error_of(y, expected), 1e-6);
      return std::vector<Numbers>{y};
    });
  }
}

// -- attention
struct Heads {
  std::int64_t batch = 2, sequence = 10, heads = 4, kv_heads = 2, dim = 5, context = 1;
  bool causal = true, flash = true;
  [[nodiscard]] std::int64_t width() const { return (heads + 2 * kv_heads) * dim; }
  [[nodiscard]] Op op(OpKind kind, std::int64_t step = 0) const {
    Op op;
    op.kind = kind;
    op.batch = batch, op.sequence = sequence, op.context = context;
    op.n = batch * sequence;
    op.heads = heads, op.kv_heads = kv_heads, op.head_dim = dim;
    op.causal = causal, op.flash = flash;
    op.ring_step = step;
    op.accumulate = step > 0;
    op.dropout = kRate;
    op.site = 5;
    return op;
  }
};

/// y = (mask * softmax(QK^T)) V in double precision.
Exact masked_attention(const Heads& c, const Exact& qkv, const StepContext& context) {
  Exact y(at(c.batch * c.sequence * c.heads * c.dim));
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < c.sequence; ++i) {
        const std::int64_t g = h / (c.heads / c.kv_heads), seen = c.causal ? i + 1 : c.sequence;
        const auto packed = [&](std::int64_t t, std::int64_t head) {
          return (b * c.sequence + t) * c.width() + head * c.dim;
        };
        Exact p(at(seen));
        double total = 0;
        for (std::int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < c.dim; ++d)
            score += qkv[at(packed(i, h) + d)] * qkv[at(packed(j, c.heads + g) + d)];
          total += p[at(j)] = std::exp(score / std::sqrt(static_cast<double>(c.dim)));
        }
        const models::DropoutMask mask{models::dropout_key(context.seed, context.sample_step), 5,
                                       static_cast<std::uint32_t>(context.first_sequence + b)};
        const std::int64_t head = context.tensor_rank * c.heads + h;
        for (std::int64_t j = 0; j < seen; ++j) {
          if (dropped(mask, static_cast<std::uint64_t>((head * c.sequence + i) * c.sequence + j), kRate)) continue;
          for (std::int64_t d = 0; d < c.dim; ++d)
            y[at((b * c.sequence + i) * c.heads * c.dim + h * c.dim + d)] +=
                models::dropout_scale(kRate) * p[at(j)] / total * qkv[at(packed(j, c.heads + c.kv_heads + g) + d)];
        }
      }
  return y;
}

TEST(Dropout, OfProbabilitiesAndItsGradientUnderAFixedMask) {
  StepContext context = context_at(6, 3);
  context.tensor_rank = 1;  // heads count on from the ranks before
  for (const bool causal : {false, true})
    for (const bool flash : {false, true}) {
      SCOPED_TRACE(std::string(causal ? "causal" : "both ways") + (flash ? ", flash" : ", unfused"));
      Heads c;
      c.causal = causal, c.flash = flash;
      Numbers qkv = random_numbers(c.batch * c.sequence * c.width(), "qkv");
      Numbers dy = random_numbers(c.batch * c.sequence * c.heads * c.dim, "dy");
      Exact x = exact(qkv);
      const Exact expected = masked_attention(c, x, context);
      const Exact gradient = finite_differences(x, [&] { return weighted_sum(masked_attention(c, x, context), dy); });
      on_every_backend([&](Backend& backend) {
        Numbers y(dy.size(), NAN), dqkv(qkv.size(), NAN);
        Numbers saved(at(c.batch * c.heads * c.sequence * (flash ? 1 : c.sequence)), NAN);
        run(backend, c.op(OpKind::attention), {of(qkv)}, {of(y), of(saved)}, context);
        EXPECT_LT(error_of(y, expected), 2e-6);
        const Numbers before = saved;
        run(backend, c.op(OpKind::attention_grad), {of(dy), of(qkv), of(y), of(saved)}, {of(dqkv)}, context);
        EXPECT_LT(error_of(dqkv, gradient), 4e-6);
        EXPECT_EQ(saved, before) << "backward writes what forward has saved";
        return std::vector<Numbers>{y, dqkv};
      });
    }
}

TEST(Dropout, OfARingIsThatOfTheWholeSequence) {
  for (const bool causal : {true, false})
    for (const std::int64_t ways : {2, 3}) {
      SCOPED_TRACE(ways);
      Heads part;
      part.context = ways, part.causal = causal;
      Heads whole = part;
      whole.context = 1, whole.sequence *= ways;
      CpuBackend backend(2, best_kernels());
      const std::int64_t tokens = whole.batch * whole.sequence, out = whole.heads * whole.dim,
                         kv = 2 * whole.kv_heads * whole.dim;
      Numbers qkv = random_numbers(tokens * whole.width(), "qkv"), dy = random_numbers(tokens * out, "dy");
      Numbers y(at(tokens * out)), lse(at(tokens * whole.heads)), dqkv(qkv.size());
      const StepContext context = context_at(8, 2);
      run(backend, whole.op(OpKind::attention), {of(qkv)}, {of(y), of(lse)}, context);
      run(backend, whole.op(OpKind::attention_grad), {of(dy), of(qkv), of(y), of(lse)}, {of(dqkv)}, context);
      const Op op = part.op(OpKind::ring_attention);
      const auto rows = [&](const Numbers& all, std::int64_t width, int rank) {
        Numbers own;
        for (std::int64_t row = 0; row < op.n; ++row) {
          const std::int64_t from = row / op.sequence * whole.sequence + position_of(op, rank, row);
          own.insert(own.end(), all.begin() + from * width, all.begin() + (from + 1) * width);
        }
        return own;
      };
      const auto ranks = static_cast<int>(ways);
      std::vector<Numbers> own(at(ranks)), keys(at(ranks)), ys(at(ranks)), d(at(ranks)), dkeys(at(ranks));
      for (int r = 0; r < ranks; ++r) {
        own[at(r)] = rows(qkv, whole.width(), r);
        keys[at(r)].resize(at(op.n * kv));
        dkeys[at(r)].resize(at(op.n * kv));
        run(backend, part.op(OpKind::split_kv), {of(own[at(r)])}, {of(keys[at(r)])});
      }
      for (int r = 0; r < ranks; ++r) {
        StepContext here = context;
        here.part = r;
        ys[at(r)].resize(at(op.n * out));
        d[at(r)].resize(own[at(r)].size());
        Numbers sums(at(op.n * whole.heads)), dblock(at(op.n * kv)), douts = rows(dy, out, r);
        for (int step = 0; step < ranks; ++step)
          run(backend, part.op(OpKind::ring_attention, step),
              {of(own[at(r)]), of(keys[at((r + ranks - step) % ranks)])}, {of(ys[at(r)]), of(sums)}, here);
        EXPECT_LT(error_of(ys[at(r)], exact(rows(y, out, r))), 2e-6);
        for (int step = 0; step < ranks; ++step) {
          const int owner = (r + ranks - step) % ranks;
          run(backend, part.op(OpKind::ring_attention_grad, step),
              {of(douts), of(own[at(r)]), of(ys[at(r)]), of(sums), of(keys[at(owner)])}, {of(d[at(r)]), of(dblock)},
              here);
          for (std::size_t i = 0; i < dblock.size(); ++i) dkeys[at(owner)][i] += dblock[i];
        }
      }
      for (int r = 0; r < ranks; ++r) {
        run(backend, part.op(OpKind::merge_kv), {of(dkeys[at(r)])}, {of(d[at(r)])});
        EXPECT_LT(error_of(d[at(r)], exact(rows(dqkv, whole.width(), r))), 4e-6) << "rank " << r;
      }
    }
}

TEST(Relu, ZeroesWhatIsBelowAndItsGradientReadsWhatItLeft) {
  on_every_backend([](Backend& backend) {
    const Op forward = rows_op(OpKind::relu, 37, 67), backward = rows_op(OpKind::relu_grad, 37, 67);
    Numbers x = random_numbers(forward.n * forward.m, "x"), dy = random_numbers(forward.n * forward.m, "dy");
    x[3] = -0.0F, x[4] = 0;
    Numbers y = x, dx = dy;
    run(backend, forward, {of(y)}, {of(y)});  // in place
    run(backend, backward, {of(dx), of(y)}, {of(dx)});
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(y[i], x[i] > 0 ? x[i] : 0.0F);
      EXPECT_FALSE(std::signbit(y[i]));
      EXPECT_EQ(dx[i], x[i] > 0 ? dy[i] : 0.0F);
    }
    return std::vector<Numbers>{y, dx};
  });
}

}  // namespace cpu_dropout_test
}  // namespace orrery::exec::testing
