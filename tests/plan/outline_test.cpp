// What happens to a bucket, by hand: the order of its messages, the sizes of what it moves, and who is not asked.
#include "plan/outline/outline.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/outline/layer_pass.h"
#include "plan/outline/reduction.h"
#include "plan/outline/turns.h"
#include "plan/outline/update.h"

namespace orrery::plan {
namespace outline_test {

using models::DType;

struct Sent {
  CollectiveKind kind{};
  Over over{};
  std::int64_t bytes = 0;
  int part = 0;
  bool operator==(const Sent&) const = default;
};

std::vector<Sent> messages(const Outline& outline) {
  std::vector<Sent> out;
  for (const Item& item : outline.items)
    if (item.is_message()) out.push_back({item.kind, item.over, outline.message_bytes(item), item.part});
  return out;
}

BucketShape bucket(std::int64_t elements, std::int64_t shard) {
  BucketShape b;
  b.elements = elements, b.shard = shard;
  return b;
}

PlanSpec split(int data, int zero) {
  PlanSpec spec;
  spec.mesh.data = data;
  spec.states.zero_stage = zero;
  return spec;
}

TEST(Outline, OfSubGroupsScattersWithinAndSumsOverTheCopies) {
  PlanSpec spec = split(4, 1);
  spec.states.zero_group = 2;
  const BucketShape b = bucket(64, 32);
  const std::vector<Sent> all = messages(reduction_of(b, spec, Reduces::at_the_end));
  EXPECT_EQ(all, (std::vector<Sent>{{CollectiveKind::reduce_scatter, Over::data, 4 * 64, 0},
                                    {CollectiveKind::all_reduce, Over::copies, 4 * 32, 0}}));
  spec.states.zero_stage = 2;
  EXPECT_EQ(messages(reduction_of(b, spec, Reduces::in_every_pass)).size(), 1U);
  EXPECT_EQ(messages(reduction_of(b, spec, Reduces::at_the_end)),
            (std::vector<Sent>{{CollectiveKind::all_reduce, Over::copies, 4 * 32, 0}}));
}

TEST(Outline, HasNoMessageOverASingleRank) {
  EXPECT_TRUE(reduction_of(bucket(64, 64), split(1, 0), Reduces::at_the_end).items.empty());
  EXPECT_FALSE(reduction_of(bucket(64, 64), split(2, 0), Reduces::at_the_end).items.empty());
}

TEST(Outline, OfExpertsThatNobodySharesKeepsWhatIsThere) {
  PlanSpec spec = split(2, 1);
  spec.mesh.expert = 2;
  BucketShape b = bucket(64, 64);
  b.experts = true;
  EXPECT_TRUE(reduction_of(b, spec, Reduces::at_the_end).items.empty());
  b.experts = false;
  b.shard = 32;
  EXPECT_EQ(reduction_of(b, spec, Reduces::at_the_end).items.size(), 2U) << "a reduce-scatter, and its copy";
}

// Four replicas, two on a node: 64 values are added up within the node, 32 go to the other in 16 bits, and back.
TEST(Outline, ByNodeGoesOutAndComesBackInFourParts) {
  PlanSpec spec = split(4, 0);
  spec.compression.gradients = GradientCompression::bf16;
  spec.compression.group = 2;
  const Outline outline = reduction_of(bucket(64, 16), spec, Reduces::at_the_end);
  EXPECT_EQ(outline.parts, 4);
  EXPECT_EQ(messages(outline), (std::vector<Sent>{{CollectiveKind::reduce_scatter, Over::near, 4 * 64, 0},
                                                  {CollectiveKind::all_to_all, Over::far, 2 * 32, 1},
                                                  {CollectiveKind::all_gather, Over::far, 2 * 32, 2},
                                                  {CollectiveKind::all_gather, Over::near, 2 * 64, 2}}));
  EXPECT_EQ(outline.items.back().part, 3) << "and is widened";
}

TEST(Outline, OfPowerSgdSendsFactorsAndWhatIsNoMatrix) {
  PlanSpec spec = split(2, 0);
  spec.compression.gradients = GradientCompression::powersgd;
  spec.compression.rank = 2;
  const std::vector<MatrixShape> matrices = {{32, 64}, {64, 1}};
  BucketShape b = bucket(32 * 64 + 64, 32 * 64 + 64);
  b.matrices = &matrices;
  EXPECT_EQ(messages(reduction_of(b, spec, Reduces::at_the_end)),
            (std::vector<Sent>{{CollectiveKind::all_reduce, Over::data, 4 * 32 * 2, 0},
                               {CollectiveKind::all_reduce, Over::data, 4 * 64, 0},
                               {CollectiveKind::all_reduce, Over::data, 4 * 64 * 2, 1}}));
  EXPECT_EQ(messages(reduction_of(b, spec, Reduces::at_the_end, false)),
            (std::vector<Sent>{{CollectiveKind::all_reduce, Over::data, 4 * b.elements, 0}}))
      << "until it starts, gradients travel whole";
}

TEST(Outline, OfMuonHasADirectionStepTheProductsOfTheBusiestShardAndAGatherOfAllPieces) {
  WholeMatrices whole;
  whole.rest = 64;
  whole.matrices = {{64, 256, 16, 32, 2, 1}, {320, 256, 32, 16, 1, 2}};
  BucketShape b = bucket(576, 288);
  b.whole = &whole;
  PlanSpec spec = split(2, 1);
  spec.mesh.tensor = 2;
  spec.states.optimizer = OptimizerKind::muon;
  StageTotals totals;
  add_to(totals, b, spec);
  const Outline outline = update_of(b, totals, spec, 0, true);
  ASSERT_EQ(outline.items.size(), 4U) << "directions, their gather, the update, the parameters' gather";
  EXPECT_EQ(outline.items[0].ops.front().m, 288);
  EXPECT_EQ(messages(outline), (std::vector<Sent>{{CollectiveKind::all_gather, Over::parts, 4 * 2 * 576, 0},
                                                  {CollectiveKind::all_gather, Over::data, 4 * 576, 0}}))
      << "of both tensor ranks, and of both shards";
  const std::vector<models::Op>& ops = outline.items[2].ops;
  ASSERT_EQ(ops.size(), 3U);
  EXPECT_EQ(ops.back().k, 64) << "with a second moment";
  // Elements 64 to 320 and 320 to 576 in shards of 288: the second has something of both.
  EXPECT_EQ(ops[0].expected, 1);
  EXPECT_EQ(ops[1].expected, 1);
  EXPECT_EQ(state_of(Memory::second_moment, b, spec).elements, 64);
}

TEST(Outline, OfWholeTensorsMeetsOverAllThatHavePartsOfThem) {
  PlanSpec spec = split(2, 1);
  spec.mesh.tensor = 2;
  spec.states.optimizer = OptimizerKind::lamb;
  BucketShape b = bucket(64, 32);
  b.parameters = 3;
  StageTotals totals;
  add_to(totals, b, spec, 2);
  EXPECT_EQ(messages(agreement_of(totals, spec, 0)),
            (std::vector<Sent>{{CollectiveKind::all_reduce, Over::parts, 4 * 2 * 6, 0}}));
  EXPECT_TRUE(agreement_of(totals, spec, 1).items.empty());
  EXPECT_EQ(update_of(b, totals, spec, 0, true).items.front().ops.size(), 2U) << "the first bucket clears the norms";
  EXPECT_EQ(update_of(b, totals, spec, 0, false).items.front().ops.size(), 1U);
}

TEST(Turns, LetABucketsNextPartStandBehindTheOneBeforeOfTheNextBucket) {
  std::string order;
  const auto visit = [&](char bucket, int part) { order += bucket, order += static_cast<char>('0' + part); };
  Turns<char, decltype(visit)> turns(visit);
  for (const char one : {'a', 'b', 'c'}) turns.add(one, 3);
  EXPECT_EQ(order, "a0a1b0a2b1c0");
  turns.flush();
  EXPECT_EQ(order, "a0a1b0a2b1c0b2c1c2");
}

TEST(Ring, FreesWhatWasSentWhereWhatCameInExchangeIsFirstRead) {
  Ring<int> ring;
  ring.shift(1, 2);
  ring.shift(2, 3);
  EXPECT_FALSE(ring.first_read(1)) << "no message has brought it";
  const auto arrival = ring.first_read(3);
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->sent, 2);
  EXPECT_EQ(arrival->shift, 2);
  EXPECT_FALSE(ring.first_read(3)) << "it has been read before";
  EXPECT_EQ(ring.first_read(2)->sent, 1);
}

}  // namespace outline_test
}  // namespace orrery::plan
