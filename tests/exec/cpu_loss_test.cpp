// Embedding and loss over vocabulary shards: 1, 2 and 4 ranks' parts together equal the whole.
#include "exec/failure.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace cpu_loss_test {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct Vocabulary {
  std::int64_t size, ways, columns;  ///< real entries; ranks; padded entries of each
};
const std::vector<Vocabulary> vocabularies = {{61, 1, 61}, {61, 1, 64}, {61, 2, 32}, {61, 4, 16}, {5, 4, 4}};

StepContext rank_context(int rank, std::int64_t ways) {
  StepContext context;
  context.tensor_rank = rank;
  context.tensor_ways = static_cast<int>(ways);
  return context;
}

TEST(Embedding, ShardsAddUpToTheTablesRows) {
  const std::int64_t n = 300, c = 67;
  for (const Vocabulary& v : vocabularies) {
    Ids tokens = random_ids(n, v.size, "tokens");
    const Numbers table = random_numbers(v.ways * v.columns * c, "table");
    Numbers dx = random_numbers(n * c, "dx");
    Exact rows(at(n * c)), gradient(table.size(), 0.5);
    for (std::int64_t i = 0; i < n * c; ++i) {
      const std::size_t source = at(tokens[at(i / c)] * c + i % c);
      rows[at(i)] = static_cast<double>(table[source]);
      gradient[source] += static_cast<double>(dx[at(i)]);
    }
    on_every_backend([&](Backend& backend) {
      Numbers sum(at(n * c)), all_gradients;
      for (int rank = 0; rank < v.ways; ++rank) {
        const auto first = table.begin() + rank * v.columns * c;
        Numbers shard(first, first + v.columns * c), x(at(n * c), NAN), dtable(shard.size(), 0.5F);
        Op op;
        op.kind = OpKind::embedding;
        op.n = n;
        op.m = v.columns;
        op.k = c;
        op.vocab = v.size;
        run(backend, op, {of(tokens), of(shard)}, {of(x)}, rank_context(rank, v.ways));
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
        op.kind = OpKind::embedding_grad;
        run(backend, op, {of(tokens), of(dx)}, {of(dtable)}, rank_context(rank, v.ways));
        all_gradients.insert(all_gradients.end(), dtable.begin(), dtable.end());
      }
      EXPECT_EQ(0, error_of(sum, rows));
      EXPECT_LT(error_of(all_gradients, gradient), 1e-6);
      return std::vector<Numbers>{sum, all_gradients};
    });
  }
}

TEST(Positions, AreAddedByPlaceInTheSequenceAndTheirGradientsSummedOverSequences) {
  const std::int64_t batch = 3, t = 5, c = 70, n = batch * t;
  Numbers x = random_numbers(n * c, "x"), table = random_numbers((t + 2) * c, "table");
  Exact y(at(n * c)), gradient(table.size(), 1);
  for (std::int64_t i = 0; i < n * c; ++i) {
    const std::size_t source = at(i / c % t * c + i % c);
    y[at(i)] = static_cast<double>(x[at(i)]) + static_cast<double>(table[source]);
    gradient[source] += static_cast<double>(x[at(i)]);
  }
  Op op = rows_op(OpKind::position_add, n, c);
  op.batch = batch;
  op.sequence = t;
  Op grad = op;
  grad.kind = OpKind::position_grad;
  on_every_backend([&](Backend& backend) {
    Numbers in_place = x, dtable(table.size(), 1);
    run(backend, op, {of(in_place), of(table)}, {of(in_place)});
    run(backend, grad, {of(x)}, {of(dtable)});
    EXPECT_LT(error_of(in_place, y), 1e-7);
    EXPECT_LT(error_of(dtable, gradient), 1e-6);
    return std::vector<Numbers>{in_place, dtable};
  });
}

/// The logits of all ranks, one after the other; the loss as its definition says, over the real columns alone.
double loss_of(const Vocabulary& v, const Exact& logits, const Ids& targets, double scale) {
  const std::int64_t n = static_cast<std::int64_t>(targets.size());
  const auto logit = [&](std::int64_t row, std::int64_t id) {
    return logits[at((id / v.columns * n + row) * v.columns + id % v.columns)];
  };
  double total = 0;
  for (std::int64_t row = 0; row < n; ++row) {
    double sum = 0;
    for (std::int64_t id = 0; id < v.size; ++id) sum += std::exp(logit(row, id));
    total += std::log(sum) - logit(row, targets[at(row)]);
  }
  return scale * total;
}

struct LossResults {
  float loss = 0;
  Numbers gradient;  ///< of all ranks
};

/// What the ranks do between them: maxima and sums are reduced as the tensor group would.
LossResults sharded_loss(Backend& backend, const Vocabulary& v, const Numbers& logits, Ids& targets, double scale) {
  const std::int64_t n = static_cast<std::int64_t>(targets.size());
  Op op = rows_op(OpKind::softmax_max, n, v.columns);
  op.vocab = v.size;
  op.scale = scale;
  std::vector<Numbers> shards;
  Numbers max(at(n), -INFINITY), sums(at(2 * n));
  for (int rank = 0; rank < v.ways; ++rank) {
    const auto first = logits.begin() + rank * n * v.columns;
    shards.emplace_back(first, first + n * v.columns);
    Numbers own(at(n));
    run(backend, op, {of(shards.back())}, {of(own)}, rank_context(rank, v.ways));
    for (std::size_t i = 0; i < own.size(); ++i) max[i] = std::max(max[i], own[i]);
  }
  op.kind = OpKind::softmax_sum;
  for (int rank = 0; rank < v.ways; ++rank) {
    Numbers own(at(2 * n), NAN);
    run(backend, op, {of(shards[at(rank)]), of(max), of(targets)}, {of(own)}, rank_context(rank, v.ways));
    for (std::size_t i = 0; i < own.size(); ++i) sums[i] += own[i];
  }
  LossResults results;
  Numbers loss(1, 0.25F);
  op.kind = OpKind::cross_entropy;
  run(backend, op, {of(max), of(sums)}, {of(loss)});
  results.loss = loss[0] - 0.25F;
  op.kind = OpKind::cross_entropy_grad;
  for (int rank = 0; rank < v.ways; ++rank) {
    Numbers& shard = shards[at(rank)];
    run(backend, op, {of(shard), of(max), of(sums), of(targets)}, {of(shard)}, rank_context(rank, v.ways));
    results.gradient.insert(results.gradient.end(), shard.begin(), shard.end());
  }
  return results;
}

TEST(CrossEntropy, OverShardsEqualsItsDefinitionAndItsGradientMatchesFiniteDifferences) {
  for (const Vocabulary& v : vocabularies) {
    const std::int64_t n = 19;
    Ids targets = random_ids(n, v.size, "targets");
    Numbers logits = random_numbers(v.ways * n * v.columns, "logits", 4);
    Exact exact_logits = exact(logits);
    const double scale = 1.0 / static_cast<double>(n);
    const double expected = loss_of(v, exact_logits, targets, scale);
    const Exact gradient = finite_differences(exact_logits, [&] { return loss_of(v, exact_logits, targets, scale); });
    on_every_backend([&](Backend& backend) {
      const LossResults r = sharded_loss(backend, v, logits, targets, scale);
      EXPECT_NEAR(r.loss, expected, 2e-6 * expected);
      EXPECT_LT(error_of(r.gradient, gradient), 2e-6);
      return std::vector<Numbers>{{r.loss}, r.gradient};
    });
  }
}

TEST(CrossEntropy, PaddedColumnsCountForNothingWhateverTheyHold) {
  const Vocabulary v{61, 2, 32};
  const std::int64_t n = 7;
  Ids targets = random_ids(n, v.size, "targets");
  Numbers logits = random_numbers(v.ways * n * v.columns, "logits", 4);
  CpuBackend backend(1, best_kernels());
  const LossResults before = sharded_loss(backend, v, logits, targets, 1);
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t id = v.size; id < v.ways * v.columns; ++id)
      logits[at((id / v.columns * n + row) * v.columns + id % v.columns)] = 1e30F;
  const LossResults after = sharded_loss(backend, v, logits, targets, 1);
  EXPECT_EQ(before.loss, after.loss);
  EXPECT_EQ(before.gradient, after.gradient);
}

TEST(CrossEntropy, SurvivesLargeLogitsAndShowsThoseThatAreNoNumber) {
  const Vocabulary v{40, 1, 40};
  Ids targets = {3, 4};
  Numbers logits = random_numbers(2 * 40, "logits", 1000);
  CpuBackend backend(1, best_kernels());
  EXPECT_TRUE(std::isfinite(sharded_loss(backend, v, logits, targets, 1).loss));
  logits[17] = NAN;
  EXPECT_TRUE(std::isnan(sharded_loss(backend, v, logits, targets, 1).loss));
}

// The last token of a sequence, for a module that predicts the token after the next one.
TEST(CrossEntropy, LeavesOutARowThatHasNoTarget) {
  for (const Vocabulary& v : vocabularies) {
    Ids targets = {3, -1, 4}, others = {3, 2, 4};
    const Numbers logits = random_numbers(v.ways * 3 * v.columns, "logits", 4);
    on_every_backend([&](Backend& backend) {
      const LossResults without = sharded_loss(backend, v, logits, targets, 1);
      const LossResults with = sharded_loss(backend, v, logits, others, 1);
      Numbers expected = with.gradient;
      for (int rank = 0; rank < v.ways; ++rank)
        for (std::int64_t i = 0; i < v.columns; ++i) expected[at((rank * 3 + 1) * v.columns + i)] = 0;
      EXPECT_EQ(without.gradient, expected);
      const double of_row = loss_of(v, exact(logits), others, 1) - static_cast<double>(without.loss);
      EXPECT_GT(of_row, 1e-3);
      EXPECT_NEAR(static_cast<double>(with.loss - without.loss), of_row, 1e-4);
      return std::vector<Numbers>{{without.loss}, without.gradient};
    });
  }
}

}  // namespace cpu_loss_test
}  // namespace orrery::exec::testing
