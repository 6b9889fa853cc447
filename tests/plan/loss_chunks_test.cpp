// The loss in chunks of rows: what is computed, kept and sent, what is refused, and how it is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/place.h"
#include "plan/spec/plan_file.h"
#include "tests/clusters/support.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace loss_chunks_test {

using models::OpKind;
using ::testing::HasSubstr;

struct Sums {
  double flops = 0;
  std::int64_t tensor_bytes = 0;
  int products = 0, losses = 0, gradients = 0;
};

/// Of one rank of each class in a step.
Sums sums_of(const Schedule& schedule) {
  Sums s;
  for (const RankClass& c : schedule.classes)
    for (const Entry& entry : c.program)
      for (const Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps) {
        if (step.stream == Stream::tensor) s.tensor_bytes += step.message_bytes(c.buffers);
        for (const models::Op& op : step.ops) {
          s.flops += models::flops_of(op);
          s.products += op.kind == OpKind::matmul ? 1 : 0;
          s.losses += op.kind == OpKind::cross_entropy ? 1 : 0;
          s.gradients += op.kind == OpKind::cross_entropy_grad ? 1 : 0;
        }
      }
  return s;
}

const Buffer* logits_of(const RankClass& c) {
  for (const Buffer& b : c.buffers)
    if (b.name == "head.logits") return &b;
  return nullptr;
}

TEST(LossInChunks, IsTheSameArithmeticAndNoMoreBytesOnEverySplitThatAllowsIt) {
  int seen = 0;
  for (auto [name, spec] : samples::splits()) {
    SCOPED_TRACE(name);
    if (spec.stages.splits_backward()) continue;
    const Schedule whole = lower(samples::make(spec));
    spec.numerics.loss_chunks = 4;
    const Schedule chunks = lower(samples::make(spec));
    const base::Diagnostics faults = check(chunks);
    ASSERT_TRUE(faults.empty()) << base::render(faults, false);
    const Sums a = sums_of(whole), b = sums_of(chunks);
    EXPECT_NEAR(b.flops, a.flops, 1e-9 * a.flops) << "nothing is computed twice";
    if (spec.mesh.shards_rows()) {
      EXPECT_LT(b.tensor_bytes, a.tensor_bytes) << "the head's input is gathered for backward alone";
    } else {
      EXPECT_EQ(b.tensor_bytes, a.tensor_bytes);
    }
    EXPECT_EQ(b.losses, 4 * a.losses);
    EXPECT_EQ(b.gradients, 4 * a.gradients);
    EXPECT_EQ(b.products - a.products, 9 * a.losses) << "three products of the head, four times";
    const Buffer *all = logits_of(whole.classes.back()), *some = logits_of(chunks.classes.back());
    if (!all || !some) continue;  // folded: the first stage has the head
    EXPECT_EQ(4 * some->elements, all->elements);
    EXPECT_FALSE(some->per_micro_batch) << "logits live within the backward pass";
    ++seen;
  }
  EXPECT_GT(seen, 30);
}

/// By phase, the operators of the loss in the order in which one micro-batch runs them.
std::vector<std::pair<Phase, OpKind>> loss_of(const Schedule& schedule) {
  std::vector<std::pair<Phase, OpKind>> out;
  for (const Block& block : schedule.classes.back().blocks) {
    if (block.variant_of >= 0) continue;  // the same operators
    for (const Step& step : block.steps)
      for (const models::Op& op : step.ops)
        if (op.kind == OpKind::softmax_max || op.kind == OpKind::softmax_sum || op.kind == OpKind::cross_entropy ||
            op.kind == OpKind::cross_entropy_grad)
          out.emplace_back(step.phase, op.kind);
  }
  return out;
}

// Then a device may make one kernel of it. In a pipeline other micro-batches come between the passes, and of a split
// vocabulary messages stand between the operators.
TEST(LossAtOnce, HasItsGradientBehindItWhereNothingComesBetween) {
  PlanSpec spec;
  using Whole = std::vector<std::pair<Phase, OpKind>>;
  const auto all_of = [](Phase gradient) {
    return Whole{{Phase::forward, OpKind::softmax_max},
                 {Phase::forward, OpKind::softmax_sum},
                 {Phase::forward, OpKind::cross_entropy},
                 {gradient, OpKind::cross_entropy_grad}};
  };
  EXPECT_EQ(loss_of(lower(samples::make(spec))), all_of(Phase::forward));
  Whole evaluation = all_of(Phase::forward);
  evaluation.pop_back();
  EXPECT_EQ(loss_of(lower(samples::make(spec), {.forward_only = true})), evaluation);
  spec.mesh.tensor = 2;
  EXPECT_EQ(loss_of(lower(samples::make(spec))), all_of(Phase::backward));
  spec.mesh.tensor = 1, spec.mesh.pipeline = 2;
  EXPECT_EQ(loss_of(lower(samples::make(spec))), all_of(Phase::backward));
}

TEST(LossInChunks, NeedsLessMemoryByTheLogitsThatAreNotThere) {
  PlanSpec spec;
  spec.shape.micro_batch = 8;
  const models::Model model = samples::tiny_gpt(1, 32, 8192);
  const auto peak = [&](std::int64_t chunks) {
    spec.numerics.loss_chunks = chunks;
    return place(lower(samples::make(spec, model)).classes.front()).peak_live_bytes;
  };
  const std::int64_t logits = 8 * 16 * 8192 * 4;
  EXPECT_GE(peak(1) - peak(8), logits * 7 / 8 - (1 << 18));
  // A pipeline that runs all forward passes first keeps them of every micro-batch.
  spec.shape.micro_batch = 1;
  spec.mesh.pipeline = 2;
  spec.stages.order = Order::gpipe;
  const models::Model two = samples::tiny_gpt(2, 32, 8192);
  const auto last = [&](std::int64_t chunks) {
    spec.numerics.loss_chunks = chunks;
    return place(lower(samples::make(spec, two)).classes.back()).peak_live_bytes;
  };
  EXPECT_GE(last(1) - last(2), 7 * logits / 8);
}

TEST(LossInChunks, AnEvaluationMakesNoGradients) {
  PlanSpec spec;
  spec.mesh.tensor = 2;
  spec.numerics.loss_chunks = 4;
  const Schedule schedule = lower(samples::make(spec), {.forward_only = true});
  const base::Diagnostics faults = check(schedule);
  ASSERT_TRUE(faults.empty()) << base::render(faults, false);
  const Sums s = sums_of(schedule);
  EXPECT_EQ(s.losses, 4 * 8) << "each of eight micro-batches";
  EXPECT_EQ(s.gradients, 0);
}

std::string refusal(const PlanSpec& spec) {
  const auto made = samples::try_make(spec);
  if (made) return "";
  std::string codes;
  for (const base::Diagnostic& d : made.error()) codes += d.code + " ";
  return codes;
}

TEST(LossInChunks, RefusesWhatItCannotDoByCode) {
  PlanSpec spec;
  for (const std::int64_t chunks : {2, 4, 16}) {
    spec.numerics.loss_chunks = chunks;
    EXPECT_EQ(refusal(spec), "") << chunks;
  }
  for (const std::int64_t chunks : {0, 3, 32}) {  // 16 rows
    spec.numerics.loss_chunks = chunks;
    EXPECT_EQ(refusal(spec), "P85 ") << chunks;
  }
  spec.numerics.loss_chunks = 2;
  spec.mesh.pipeline = 2;
  spec.stages.order = Order::zb_h1;
  EXPECT_EQ(refusal(spec), "P86 ");
}

TEST(LossInChunks, IsReadAndWrittenInJobsAndPlans) {
  const auto job = parse_job("model: m\ncluster: c\nbatch: 8\nplan: {loss_chunks: [1, 8]}\n", "job.yaml");
  ASSERT_TRUE(job) << base::render(job.error(), false);
  EXPECT_EQ(job->bounds.numerics.loss_chunks, (std::vector<int>{1, 8}));
  const auto again = parse_job(write_job(*job), "job.yaml");
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(*again, *job);
  EXPECT_FALSE(parse_job("model: m\ncluster: c\nbatch: 8\nplan: {loss_chunks: 0}\n", "job.yaml"));

  PlanFile file;
  file.model = samples::tiny_gpt();
  file.cluster = clusters::testing::catalog("localhost-2");
  file.job.model = file.model.name;
  file.job.cluster = file.cluster.name;
  file.job.batch = file.spec.shape.batch = 8;
  file.job.sequence = file.spec.shape.sequence = 16;
  file.spec.mesh.data = 2;
  file.spec.numerics.loss_chunks = 4;
  const auto read = parse_plan_file(write_plan_file(file), "plan.yaml");
  ASSERT_TRUE(read) << base::render(read.error(), false);
  EXPECT_EQ(read->spec, file.spec);
  EXPECT_THAT(describe(file.spec), HasSubstr("loss in 4 chunks"));
}

}  // namespace loss_chunks_test
}  // namespace orrery::plan
