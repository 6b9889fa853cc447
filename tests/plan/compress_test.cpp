// Gradients that travel in fewer bits: how many bytes, in which order, in which buffers; saved activations that wait in
// fewer bits; and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "models/encoding.h"
#include "plan/lower/lower.h"
#include "plan/outline/low_rank.h"
#include "plan/schedule/check.h"
#include "plan/schedule/place.h"
#include "plan/spec/plan_file.h"
#include "tests/clusters/support.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace compress_test {

using models::DType;
using models::OpKind;
using ::testing::HasSubstr;

/// What a rank sends over its replicas for its gradients in a step, in units of (n - 1)/n bytes.
std::int64_t sent(const RankClass& c, GroupId data_group) {
  std::int64_t bytes = 0;
  for (const Entry& entry : c.program)
    for (const Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps)
      if (step.phase == Phase::gradient_reduce && step.kind == StepKind::collective && step.group == data_group)
        bytes += step.message_bytes(c.buffers) * (step.collective == CollectiveKind::all_reduce ? 2 : 1);
  return bytes;
}

GroupId group_named(const Schedule& schedule, const std::string& name) {
  for (const GroupId g : schedule.groups.keys())
    if (schedule.groups[g].name == name) return g;
  return {};
}

bool is_sound(const Schedule& schedule) {
  const base::Diagnostics faults = check(schedule);
  EXPECT_TRUE(faults.empty()) << base::render(faults, false);
  return faults.empty();
}

TEST(SixteenBitGradients, SendHalfTheBytesOnEverySplit) {
  int seen = 0;
  for (auto [name, spec] : samples::splits()) {
    if (spec.mesh.replicas() == 1) continue;
    SCOPED_TRACE(name);
    const Schedule whole = lower(samples::make(spec));
    spec.compression.gradients = GradientCompression::bf16;
    const Schedule half = lower(samples::make(spec));
    ASSERT_TRUE(is_sound(half));
    const GroupId data = group_named(half, "data");
    for (std::size_t k = 0; k < half.classes.size(); ++k) {
      EXPECT_EQ(2 * sent(half.classes[k], data), sent(whole.classes[k], data));
      for (const Block& block : half.classes[k].blocks)
        for (const Step& step : block.steps)
          if (step.phase == Phase::gradient_reduce && step.kind == StepKind::collective && step.group == data) {
            EXPECT_NE(step.collective, CollectiveKind::all_reduce) << "a sum hop by hop would be one in 16 bits";
            EXPECT_NE(step.collective, CollectiveKind::reduce_scatter);
          }
    }
    ++seen;
  }
  EXPECT_GT(seen, 30);
}

TEST(SixteenBitGradients, AreAddedUpInThirtyTwoBitsOnEverySplit) {
  for (auto [name, spec] : samples::splits()) {
    if (spec.mesh.replicas() == 1) continue;
    spec.compression.gradients = GradientCompression::fp16;
    const Schedule schedule = lower(samples::make(spec));
    for (const RankClass& c : schedule.classes)
      for (const Bucket& b : c.buckets) {
        const BufferId buffer = b.gradients.exists() ? b.gradients : b.gradient_shard;
        EXPECT_EQ(c.buffers[buffer].dtype, DType::fp32) << name << ": over micro-batches";
        std::int64_t added = 0;
        for (const Entry& entry : c.program)
          for (const Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps)
            for (const models::Op& op : step.ops)
              if (op.kind == OpKind::sum_pieces && step.bucket.exists() && &c.buckets[step.bucket] == &b) {
                EXPECT_EQ(op.n, spec.mesh.replicas()) << name;
                EXPECT_EQ(op.m, b.shard_elements()) << name;
                ++added;
              }
        EXPECT_GT(added, 0) << name << " " << b.name;
      }
  }
}

// With g replicas on a node: 4 bytes a value within it one way and 2 the other, and between nodes 2 bytes of a g-th
// both ways, where an exchange of all with all sends 2 of everything to other nodes.
TEST(SixteenBitGradients, ByNodeSendBetweenNodesOnlyWhatTheNodeHasAddedUp) {
  PlanSpec spec;
  spec.mesh.data = 4;
  spec.compression.gradients = GradientCompression::bf16;
  spec.compression.group = 2;
  const Schedule schedule = lower(samples::make(spec));
  ASSERT_TRUE(is_sound(schedule));
  const RankClass& c = schedule.classes.front();
  std::int64_t elements = 0;
  for (const Bucket& b : c.buckets) elements += b.elements;
  const GroupId near = group_named(schedule, "near"), far = group_named(schedule, "far");
  EXPECT_EQ(schedule.groups[near].members(3), (std::vector<int>{2, 3}));
  EXPECT_EQ(schedule.groups[far].members(3), (std::vector<int>{1, 3}));
  EXPECT_EQ(sent(c, near), (4 + 2) * elements);
  EXPECT_EQ(sent(c, far), (2 + 2) * elements / 2);
  for (const Block& block : c.blocks)
    for (const Step& step : block.steps)
      if (step.phase == Phase::gradient_reduce && step.kind == StepKind::collective) {
        EXPECT_TRUE(step.group == near || step.group == far);
      }
  spec.states.overlap_gradients = true;
  EXPECT_TRUE(is_sound(lower(samples::make(spec))));
}

TEST(PowerSgd, SendsPAndQOfEachMatrixAndTheRestWhole) {
  PlanSpec spec;
  spec.mesh.data = 2;
  spec.compression = {GradientCompression::powersgd, ActivationEncoding::none, 2, 1.5};
  const Schedule schedule = lower(samples::make(spec));
  ASSERT_TRUE(is_sound(schedule));
  const RankClass& c = schedule.classes.front();
  std::int64_t bytes = 0;
  for (const Bucket& bucket : c.buckets) {
    if (!bucket.error) {
      bytes += 2 * 4 * bucket.elements;
      continue;
    }
    LowRankSizes sizes;
    for (const ParameterRange& range : bucket.ranges) {
      const MatrixShape matrix = matrix_of(range.tensor);
      const std::int64_t elements = matrix.rows * matrix.columns;
      const bool worth = matrix.columns > 1 &&
                         static_cast<double>((matrix.rows + matrix.columns) * 2) * 1.5 < static_cast<double>(elements);
      EXPECT_EQ(range.error >= 0, worth) << range.name;
      EXPECT_EQ(rank_of(matrix, spec.compression), worth ? 2 : 0) << range.name;
      (void)place_matrix(sizes, matrix, spec.compression);
    }
    bytes += 2 * 4 * (sizes.p + sizes.q + sizes.rest);
    EXPECT_EQ(c.buffers[bucket.error].elements, sizes.error);
    EXPECT_TRUE(c.buffers[bucket.error].persistent);
  }
  EXPECT_EQ(sent(c, group_named(schedule, "data")), bytes);
  spec.compression = {};
  EXPECT_LT(2 * bytes, sent(lower(samples::make(spec)).classes.front(), group_named(schedule, "data")));
}

TEST(PowerSgd, OfAMatrixByHand) {
  const Compression two{GradientCompression::powersgd, ActivationEncoding::none, 2, 2};
  EXPECT_EQ(rank_of({128, 32}, two), 2);  // 160 values x 2 columns x 2 < 4096
  EXPECT_EQ(rank_of({8, 8}, two), 0);     // 16 x 2 x 2 = 64, which is no less
  EXPECT_EQ(rank_of({8, 9}, two), 2);     // 68 < 72
  EXPECT_EQ(rank_of({1000, 1}, two), 0);  // a vector
  EXPECT_EQ(rank_of({1000, 2}, two), 0);  // 1002 x 2 x 2 > 2000
  Compression wide = two;
  wide.rank = 64;
  wide.minimum_rate = 1e-3;
  EXPECT_EQ(rank_of({128, 32}, wide), 32);  // no more columns than it has
}

TEST(PowerSgd, IsSoundOnEverySplitThatItAllows) {
  int seen = 0;
  for (auto [name, spec] : samples::splits()) {
    if (spec.mesh.replicas() == 1 || spec.states.zero_stage > 1) continue;
    SCOPED_TRACE(name);
    spec.compression = {GradientCompression::powersgd, ActivationEncoding::none, 2, 1.5};
    const Schedule schedule = lower(samples::make(spec));
    ASSERT_TRUE(is_sound(schedule));
    // Each replica's error begins with its own gradients and ends without what was sent.
    for (const RankClass& c : schedule.classes)
      for (const Bucket& b : c.buckets) {
        if (!b.error) continue;
        int added = 0, taken = 0;
        for (const Entry& entry : c.program)
          for (const Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps)
            for (const models::Op& op : step.ops) {
              if (op.out.empty() || op.out[0] < 0) continue;
              if (c.views[static_cast<std::size_t>(op.out[0])].buffer != b.error) continue;
              added += op.kind == OpKind::accumulate_into ? 1 : 0;
              taken += op.kind == OpKind::add_scaled ? 1 : 0;
              if (op.kind == OpKind::add_scaled) {
                EXPECT_DOUBLE_EQ(op.scale, -1.0 / spec.mesh.replicas());
              }
            }
        EXPECT_GT(added, 0);
        EXPECT_EQ(added, taken);
      }
    ++seen;
  }
  EXPECT_GT(seen, 10);
}

TEST(Compression, OverlappedReductionsComeOneBucketLater) {
  PlanSpec spec;
  spec.mesh.data = 2;
  spec.states.overlap_gradients = true;
  spec.compression.gradients = GradientCompression::bf16;
  const Schedule schedule = lower(samples::make(spec));
  ASSERT_TRUE(is_sound(schedule));
  std::string order;
  const RankClass& c = schedule.classes.front();
  for (const Entry& entry : c.program)
    for (const Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps) {
      if (step.phase == Phase::gradient_reduce) order += step.part + " " + c.buckets[step.bucket].name + ", ";
      if (step.phase == Phase::backward && entry.block >= 3 && step.layer) order += fmt::format("({}) ", step.layer);
    }
  // A block's gradients are made while the messages of the one above travel.
  EXPECT_THAT(order, HasSubstr("(2) decompress head, sum h.3, all_gather h.3, compress h.2, all_to_all h.2, "));
  EXPECT_THAT(order, HasSubstr("(1) decompress h.3, sum h.2, all_gather h.2, compress h.1, all_to_all h.1, "));
}

std::string refusal(const PlanSpec& spec) {
  const auto made = samples::try_make(spec);
  if (made) return "";
  std::string codes;
  for (const base::Diagnostic& d : made.error()) codes += d.code + " ";
  return codes;
}

TEST(Compression, RefusesWhatItCannotDoByCode) {
  PlanSpec spec;
  spec.compression.gradients = GradientCompression::bf16;
  EXPECT_EQ(refusal(spec), "P70 ");
  spec.mesh.data = 2;
  EXPECT_EQ(refusal(spec), "");
  spec.numerics.precision = DType::fp16;
  EXPECT_EQ(refusal(spec), "P71 ");
  spec.compression.gradients = GradientCompression::powersgd;
  EXPECT_EQ(refusal(spec), "P73 ");
  spec.numerics.precision = DType::bf16;
  EXPECT_EQ(refusal(spec), "");
  for (const int zero : {2, 3}) {
    spec.states.zero_stage = zero;
    EXPECT_EQ(refusal(spec), "P72 ");
  }
  spec.states.zero_stage = 1;
  spec.offload.optimizer = Space::host;
  EXPECT_EQ(refusal(spec), "P74 ");

  PlanSpec encoded;
  encoded.compression.activations = ActivationEncoding::fp16;
  EXPECT_EQ(refusal(encoded), "");
  encoded.numerics.precision = DType::bf16;
  EXPECT_EQ(refusal(encoded), "P75 ");
  encoded.compression.activations = ActivationEncoding::fp8;
  EXPECT_EQ(refusal(encoded), "");
  encoded.offload.activations = Space::host;
  EXPECT_EQ(refusal(encoded), "P76 ");
  encoded.offload = {};
  encoded.mesh.pipeline = 2;
  encoded.stages.order = Order::zb_h1;
  EXPECT_EQ(refusal(encoded), "P77 ");
  encoded.stages.order = Order::pipedream;
  EXPECT_THAT(refusal(encoded), HasSubstr("P77 "));
}

TEST(SixteenBitGradients, ByNodeNeedGroupsThatDivideTheReplicas) {
  PlanSpec spec;
  spec.mesh.data = 4;
  spec.compression.gradients = GradientCompression::bf16;
  const auto refused = [&](int group, int zero, GradientCompression how) {
    PlanSpec one = spec;
    one.compression.group = group, one.states.zero_stage = zero, one.compression.gradients = how;
    return refusal(one).find("P97") != std::string::npos;
  };
  EXPECT_FALSE(refused(0, 1, GradientCompression::bf16));
  EXPECT_FALSE(refused(2, 0, GradientCompression::fp16));
  EXPECT_FALSE(refused(2, 1, GradientCompression::bf16));
  EXPECT_FALSE(refused(2, 2, GradientCompression::bf16));
  EXPECT_TRUE(refused(2, 0, GradientCompression::powersgd));
  EXPECT_TRUE(refused(1, 0, GradientCompression::bf16)) << "everybody for himself";
  EXPECT_TRUE(refused(3, 0, GradientCompression::bf16));
  EXPECT_TRUE(refused(4, 0, GradientCompression::bf16)) << "nobody to exchange with";
  spec.compression.group = 2, spec.states.zero_stage = 3;
  EXPECT_EQ(refusal(spec), "P101 ");
}

// With ZeRO 1 and 2 the sum of what came from the nodes is a rank's own shard, and parameters take the way back.
TEST(SixteenBitGradients, ByNodeLeaveEachRankItsShard) {
  for (const int zero : {1, 2})
    for (const bool early : {false, true}) {
      PlanSpec spec;
      spec.mesh.data = 6, spec.shape.batch = 12;
      spec.states.zero_stage = zero, spec.states.overlap_gradients = early;
      spec.compression.gradients = GradientCompression::bf16;
      spec.compression.group = 2;
      SCOPED_TRACE(describe(spec));
      const Schedule schedule = lower(samples::make(spec));
      ASSERT_TRUE(is_sound(schedule));
      const RankClass& c = schedule.classes.front();
      const GroupId near = group_named(schedule, "near"), far = group_named(schedule, "far");
      std::int64_t elements = 0, parameters = 0, passes = zero == 2 ? 2 : 1;
      for (const Bucket& b : c.buckets) elements += b.elements;
      for (const Entry& entry : c.program)
        for (const Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps)
          if (step.phase == Phase::parameter_gather) {
            EXPECT_TRUE(step.group == near || step.group == far);
            parameters += step.group == far ? 2 * step.message_bytes(c.buffers) : step.message_bytes(c.buffers);
          }
      // The tied table's gradients are reduced twice under ZeRO 2, as input and as head.
      const std::int64_t tied = zero == 2 ? c.buckets.front().elements : 0;
      EXPECT_EQ(sent(c, near), 4 * passes * (elements + tied));
      EXPECT_EQ(sent(c, far), 2 * passes * (elements + tied) / 2);
      EXPECT_EQ(parameters, 2 * 4 * elements);
      // Shards are all different, and those of equals on the nodes lie beside each other.
      std::set<int> shards;
      for (int rank = 0; rank < 6; ++rank) shards.insert(schedule.spec.shard_index(rank));
      EXPECT_EQ(shards.size(), 6U);
      EXPECT_EQ(schedule.spec.shard_index(0), 0);
      EXPECT_EQ(schedule.spec.shard_index(2), 1);
      EXPECT_EQ(schedule.spec.shard_index(4), 2);
      EXPECT_EQ(schedule.spec.shard_index(1), 3);
    }
}

TEST(Compression, AnAllToAllWhosePiecesDoNotFitIsRefused) {
  PlanSpec spec;
  spec.mesh.data = 2;
  spec.compression.gradients = GradientCompression::bf16;
  Schedule schedule = lower(samples::make(spec));
  for (Block& block : schedule.classes.front().blocks)
    for (Step& step : block.steps)
      if (step.kind == StepKind::collective && step.collective == CollectiveKind::all_to_all) {
        --step.source.elements;
        --step.target.elements;
      }
  const base::Diagnostics faults = check(schedule);
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults.front().code, "S04");
}

TEST(Compression, IsReadAndWrittenInJobs) {
  const std::string text =
      "model: m\ncluster: c\nbatch: 8\nplan: {compression: {gradients: [none, powersgd], activations: fp10, rank: 2, "
      "minimum_rate: 1.5, capacity: 0.25, group: [0, 4], start: 100}}\n";
  const auto job = parse_job(text, "job.yaml");
  ASSERT_TRUE(job) << base::render(job.error(), false);
  using Kinds = std::vector<GradientCompression>;
  EXPECT_EQ(job->bounds.compression.gradients, (Kinds{GradientCompression::none, GradientCompression::powersgd}));
  EXPECT_EQ(job->bounds.compression.activations, std::vector{ActivationEncoding::fp10});
  EXPECT_EQ(job->bounds.compression.rank, 2);
  EXPECT_EQ(job->bounds.compression.minimum_rate, 1.5);
  EXPECT_EQ(job->bounds.compression.capacity, 0.25);
  EXPECT_EQ(job->bounds.compression.group, (std::vector<int>{0, 4}));
  EXPECT_EQ(job->bounds.compression.start, 100);
  const auto again = parse_job(write_job(*job), "job.yaml");
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(*again, *job);
  for (const char* wrong : {"gradients: bf8", "activations: fp9", "rank: 0", "minimum_rate: 0.5", "ranks: 2",
                            "capacity: 0", "capacity: 1.5", "group: -1", "start: -1", "start: soon"}) {
    const auto bad =
        parse_job("model: m\ncluster: c\nbatch: 8\nplan: {compression: {" + std::string(wrong) + "}}\n", "job.yaml");
    EXPECT_FALSE(bad) << wrong;
  }
}

TEST(Compression, IsReadAndWrittenInPlans) {
  PlanFile file;
  file.model = samples::tiny_gpt();
  file.cluster = clusters::testing::catalog("localhost-2");
  file.job.model = file.model.name;
  file.job.cluster = file.cluster.name;
  file.job.batch = file.spec.shape.batch = 8;
  file.job.sequence = file.spec.shape.sequence = 16;
  file.spec.mesh.data = 2;
  file.spec.compression = {GradientCompression::powersgd, ActivationEncoding::fp8, 3, 1.25};
  const std::string text = write_plan_file(file);
  const auto again = parse_plan_file(text, "plan.yaml");
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(again->spec, file.spec);
  EXPECT_THAT(describe(file.spec), HasSubstr("PowerSGD of rank 3, activations in fp8"));
  file.spec.compression.start = 10;
  const auto late = parse_plan_file(write_plan_file(file), "plan.yaml");
  ASSERT_TRUE(late) << base::render(late.error(), false);
  EXPECT_EQ(late->spec, file.spec);
  EXPECT_THAT(describe(file.spec), HasSubstr("PowerSGD of rank 3 from step 11 on"));
  file.model.activation = models::Activation::relu;
  file.cluster = clusters::testing::catalog("localhost-8");
  file.spec.mesh.data = 8;
  file.spec.compression = {GradientCompression::bf16, ActivationEncoding::lossless, 4, 2, 0.3, 4};
  const auto lossless = parse_plan_file(write_plan_file(file), "plan.yaml");
  ASSERT_TRUE(lossless) << base::render(lossless.error(), false);
  EXPECT_EQ(lossless->spec, file.spec);
  EXPECT_EQ(lossless->model.activation, models::Activation::relu);
  EXPECT_THAT(describe(file.spec), HasSubstr("gradients in bf16 by groups of 4, activations without zeros"));
}

// -- saved activations ----------------------------------------------------------------------------------------------

std::int64_t slab_bytes(const RankClass& c) {
  std::int64_t bytes = 0;
  for (const Buffer& b : c.buffers)
    if (b.per_micro_batch && b.purpose == Purpose::activations) bytes += b.bytes();
  return bytes;
}

TEST(EncodedActivations, WaitInTheBitsThatAreAskedForAndNoStatisticIsTouched) {
  PlanSpec spec;
  const Schedule plain = lower(samples::make(spec));
  for (const auto& [how, bits] : {std::pair(ActivationEncoding::fp16, 16), std::pair(ActivationEncoding::fp10, 10),
                                  std::pair(ActivationEncoding::fp8, 8)}) {
    spec.compression.activations = how;
    const Schedule schedule = lower(samples::make(spec));
    ASSERT_TRUE(is_sound(schedule));
    const RankClass& c = schedule.classes.front();
    std::int64_t encoded = 0, full = 0;
    for (const Block& block : c.blocks)
      for (const Step& step : block.steps)
        for (const models::Op& op : step.ops) {
          if (op.kind != OpKind::encode) continue;
          EXPECT_EQ(op.k, bits);
          const Buffer& from = c.buffers[c.views[static_cast<std::size_t>(op.in[0])].buffer];
          const Buffer& to = c.buffers[c.views[static_cast<std::size_t>(op.out[0])].buffer];
          EXPECT_FALSE(from.per_micro_batch) << from.name;
          EXPECT_EQ(from.name.find("mean"), std::string::npos);
          EXPECT_EQ(from.name.find("rstd"), std::string::npos);
          EXPECT_EQ(from.name.find("lse"), std::string::npos);
          EXPECT_EQ(to.bytes(), models::encoded_bytes(from.elements, bits));
          encoded += to.bytes();
          full += from.bytes();
        }
    EXPECT_GT(encoded, 0);
    EXPECT_EQ(slab_bytes(c), slab_bytes(plain.classes.front()) - full + encoded);
    EXPECT_LT(place(c).arena_bytes, place(plain.classes.front()).arena_bytes);
  }
}

TEST(EncodedActivations, AreSoundOnEverySplitThatAllowsThem) {
  int seen = 0;
  for (auto [name, spec] : samples::splits()) {
    if (spec.stages.splits_backward()) continue;
    SCOPED_TRACE(name);
    spec.compression.activations = ActivationEncoding::fp10;
    const Schedule schedule = lower(samples::make(spec));
    ASSERT_TRUE(is_sound(schedule));
    int encoded = 0, decoded = 0;
    for (const RankClass& c : schedule.classes)
      for (const Block& block : c.blocks) {
        if (block.variant_of >= 0) continue;
        for (const Step& step : block.steps)
          for (const models::Op& op : step.ops)
            encoded += op.kind == OpKind::encode ? 1 : 0, decoded += op.kind == OpKind::decode ? 1 : 0;
      }
    EXPECT_GT(encoded, 0);
    EXPECT_EQ(encoded, decoded);
    ++seen;
  }
  EXPECT_GT(seen, 40);
}

// -- what a ReLU leaves ---------------------------------------------------------------------------------------------

models::Model rectified() {
  models::Model m = samples::tiny_gpt();
  m.activation = models::Activation::relu;
  return m;
}

TEST(LosslessActivations, WaitAsABitEachAndTheirShareOfValuesAndNothingElseChanges) {
  PlanSpec spec;
  const Schedule plain = lower(samples::make(spec, rectified()));
  spec.compression.activations = ActivationEncoding::lossless;
  spec.compression.capacity = 0.25;
  const Schedule sparse = lower(samples::make(spec, rectified()));
  ASSERT_TRUE(is_sound(sparse));
  const RankClass &a = plain.classes.front(), &b = sparse.classes.front();
  int waiting = 0;
  for (const Buffer& buffer : b.buffers) {
    if (buffer.name.ends_with(".mlp.after.encoded")) {
      // One sequence of 16 tokens, 128 wide: 64 bytes of header, 2,048 bits, and a quarter of the values.
      EXPECT_EQ(buffer.bytes(), 64 + 256 + 512 * 4);
      ++waiting;
    }
    EXPECT_FALSE(buffer.name.ends_with(".encoded") && !buffer.name.ends_with(".mlp.after.encoded")) << buffer.name;
  }
  EXPECT_EQ(waiting, 4);
  EXPECT_EQ(slab_bytes(a) - slab_bytes(b), 4 * (2048 * 4 - (64 + 256 + 512 * 4)));
  for (const Block& block : b.blocks)
    for (const Step& step : block.steps)
      for (const models::Op& op : step.ops)
        if (op.kind == OpKind::sparse_decode) {
          EXPECT_EQ(step.phase, Phase::backward);
          EXPECT_EQ(op.in.size(), 4U) << "and what it was made of";
        }
}

TEST(LosslessActivations, AreRefusedWhereThereAreNoZerosOrWhatTheyWereMadeOfIsGone) {
  PlanSpec spec;
  spec.compression.activations = ActivationEncoding::lossless;
  const auto refused = [](const PlanSpec& one, const models::Model& model) {
    const auto made = samples::try_make(one, model);
    std::string codes;
    if (!made)
      for (const base::Diagnostic& d : made.error()) codes += d.code + " ";
    return codes;
  };
  EXPECT_EQ(refused(spec, rectified()), "");
  EXPECT_EQ(refused(spec, samples::tiny_gpt()), "P95 ");
  PlanSpec one = spec;
  one.mesh.data = 2, one.states.zero_stage = 3;
  EXPECT_EQ(refused(one, rectified()), "P96 ");
  one = spec;
  one.mesh.tensor = 2;
  EXPECT_EQ(refused(one, rectified()), "");
  one.mesh.sequence_parallel = true;
  EXPECT_EQ(refused(one, rectified()), "P96 ");
  one = spec;
  one.numerics.precision = models::DType::tf32;
  EXPECT_EQ(refused(one, rectified()), "");
  one.numerics.precision = models::DType::fp8;
  EXPECT_EQ(refused(one, rectified()), "P99 ") << "the rounded operands of the product are gone";
}

}  // namespace compress_test
}  // namespace orrery::plan
