// Products and sums over a step's samples: the same bits however many ranks and threads share the samples.
#include "exec/cpu/sample_blocks.h"

#include <algorithm>
#include <functional>

#include "exec/engine/reduce.h"
#include "tests/exec/cpu_testing.h"

namespace orrery::exec::testing {
namespace sample_blocks_test {

TEST(SampleBlocks, DivideAStepAlikeForEveryNumberOfRanksThatSharesIt) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    const SampleBlocks blocks = sample_blocks(256, 256 / ranks);
    EXPECT_EQ(blocks.count, 4 / ranks);
    EXPECT_EQ(blocks.samples, 64);
  }
  EXPECT_EQ(sample_blocks(18, 9).samples, 9) << "2 blocks, where 4 would not be equal";
  EXPECT_EQ(sample_blocks(48, 16).count, 1) << "a third of a step is no whole number of blocks";
  EXPECT_EQ(sample_blocks(0, 7).count, 1);
  EXPECT_EQ(sample_blocks(512, 64).samples, 64) << "8 ranks: a block each";
}

/// What is summed over samples, of `ranks` ranks: a product's or a bias's gradient. Ranks' sums are added as an
/// all-reduce adds them.
template <class OfRank>
Numbers over_ranks(int ranks, const OfRank& of_rank) {
  std::vector<Numbers> open;
  for (int rank = 0; rank < ranks; ++rank) {
    open.push_back(of_rank(rank));
    for (int joins = joins_after(static_cast<std::size_t>(rank)); joins > 0; --joins) {
      Numbers& into = open[open.size() - 2];
      std::transform(into.begin(), into.end(), open.back().begin(), into.begin(), std::plus<>());
      open.pop_back();
    }
  }
  return open.front();
}

/// Of a layer.
struct Sizes {
  std::int64_t outputs, inputs;
};

Numbers rows_of(const Numbers& all, int ranks, int rank) {
  const auto count = static_cast<std::ptrdiff_t>(all.size()) / ranks;
  return {all.begin() + rank * count, all.begin() + (rank + 1) * count};
}

// Small layers, for which libraries choose their kernel by the number of rows, and one of several pieces.
TEST(SampleBlocks, WeightAndBiasGradientsAreTheSameBitsOnAnyNumberOfRanks) {
  constexpr std::int64_t kSamples = 128;
  for (const Sizes& layer : {Sizes{16, 32}, Sizes{1, 64}, Sizes{520, 200}}) {
    const std::int64_t outputs = layer.outputs, inputs = layer.inputs;
    const Numbers dz = random_numbers(kSamples * outputs, "dz"), x = random_numbers(kSamples * inputs, "x");
    on_every_backend([&](Backend& backend) {
      const auto sums = [&](OpKind kind, int ranks, bool accumulate) {
        return over_ranks(ranks, [&](int rank) {
          Numbers dy = rows_of(dz, ranks, rank), in = rows_of(x, ranks, rank);
          Op op;
          op.kind = kind;
          op.batch = kSamples;
          op.accumulate = accumulate;
          op.trans_a = true;
          const bool bias = kind == OpKind::bias_grad;
          op.m = outputs, op.n = bias ? kSamples / ranks : inputs, op.k = kSamples / ranks;
          Numbers out(static_cast<std::size_t>(bias ? outputs : outputs * inputs), accumulate ? 0.0F : NAN);
          run(backend, op, bias ? std::vector<Operand>{of(dy)} : std::vector<Operand>{of(dy), of(in)}, {of(out)});
          return out;
        });
      };
      std::vector<Numbers> found;
      for (const OpKind kind : {OpKind::matmul, OpKind::bias_grad}) {
        const Numbers one = sums(kind, 1, false);
        for (const int ranks : {2, 4}) EXPECT_EQ(sums(kind, ranks, false), one) << ranks << " ranks";
        EXPECT_EQ(sums(kind, 4, true), one) << "added to zeros";
        found.push_back(one);
      }
      Exact expected(static_cast<std::size_t>(outputs * inputs));
      for (std::int64_t s = 0; s < kSamples; ++s)
        for (std::int64_t i = 0; i < outputs * inputs; ++i)
          expected[static_cast<std::size_t>(i)] +=
              static_cast<double>(dz[static_cast<std::size_t>(s * outputs + i / inputs)]) *
              static_cast<double>(x[static_cast<std::size_t>(s * inputs + i % inputs)]);
      EXPECT_LT(error_of(found[0], expected), 1e-6);
      return found;
    });
  }
}

TEST(SampleBlocks, ASamplesOutputsDoNotDependOnItsRanksOtherSamples) {
  constexpr std::int64_t kSamples = 128;
  for (const Sizes& layer : {Sizes{16, 32}, Sizes{32, 64}, Sizes{1, 64}, Sizes{520, 200}}) {
    const std::int64_t outputs = layer.outputs, inputs = layer.inputs;
    const Numbers x = random_numbers(kSamples * inputs, "x");
    Numbers weight = random_numbers(outputs * inputs, "w"), bias = random_numbers(outputs, "b");
    on_every_backend([&](Backend& backend) {
      const auto outputs_of = [&](int ranks, bool transposed) {
        Numbers all;
        for (int rank = 0; rank < ranks; ++rank) {
          Numbers in = rows_of(x, ranks, rank);
          Op op;
          op.kind = OpKind::matmul;
          op.batch = kSamples;
          op.trans_b = transposed;
          op.m = kSamples / ranks, op.n = outputs, op.k = inputs;
          Numbers out(static_cast<std::size_t>(op.m * outputs), NAN);
          run(backend, op, {of(in), of(weight), of(bias)}, {of(out)});
          all.insert(all.end(), out.begin(), out.end());
        }
        return all;
      };
      std::vector<Numbers> found;
      for (const bool transposed : {false, true}) {
        found.push_back(outputs_of(1, transposed));
        for (const int ranks : {2, 4}) EXPECT_EQ(outputs_of(ranks, transposed), found.back()) << ranks << " ranks";
      }
      return found;
    });
  }
}

}  // namespace sample_blocks_test
}  // namespace orrery::exec::testing
