// Gradients that the first micro-batch writes. Schedules are walked with marks in place of numbers: of each element of
// gradients, how many sums are in it. What is read must be the same as where a step begins with zeros.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/index.h"
#include "plan/lower/lower.h"
#include "plan/lower/serial.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/check.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace write_first_test {

using base::at;
using models::Op;
using models::OpKind;

/// Somebody reads gradients: who, which, and how many elements hold how many sums.
struct Seen {
  std::string by, buffer;
  std::map<int, int> sums;
  bool operator==(const Seen&) const = default;
};
void PrintTo(const Seen& seen, std::ostream* out) {
  *out << seen.by << " reads of " << seen.buffer << ":";
  for (const auto& [sums, elements] : seen.sums) *out << " " << elements << " elements with " << sums;
}

/// What a class's gradients hold through some training steps.
class Marks {
 public:
  explicit Marks(const RankClass& c) : class_(c) {
    for (std::size_t i = 0; i < c.buffers.size(); ++i) {
      const Buffer& b = c.buffers[i];
      if (b.purpose != Purpose::gradients) continue;
      for (std::int32_t v = 0; v < b.versions; ++v)
        held_[{BufferId(i), v}].assign(static_cast<std::size_t>(b.elements), 0);
    }
    for (const Bucket& bucket : c.buckets) {
      if (!bucket.gradients) continue;
      std::vector<bool>& gaps = gaps_[bucket.gradients];
      gaps.assign(static_cast<std::size_t>(bucket.elements), true);
      for (const ParameterRange& r : bucket.ranges) std::fill_n(gaps.begin() + r.offset, r.elements, false);
    }
    const std::int32_t training_steps = 2 + steps_in_flight(c);
    const Walk walk = unrolled(c, training_steps, true);
    for (std::size_t e = 0; e < walk.program.size(); ++e) {
      const StepOfRun& origin = walk.origins[e];
      const std::int32_t step = origin.step + c.program[static_cast<std::size_t>(origin.entry)].ahead;
      for (const Step& one : c.blocks[at(walk.program[e].block)].steps) run(one, step);
    }
  }

  std::vector<Seen> seen;

 private:
  static constexpr int kUnborn = -1000;  // of what is in a buffer when it is born

  template <class Body>
  void each(const View& view, std::int32_t step, const Body& body) {
    const auto found = held_.find({view.buffer, step % class_.buffers[view.buffer].versions});
    if (found == held_.end()) return;
    for (std::int64_t i = view.offset; i < view.offset + view.elements; ++i)
      body(found->second[static_cast<std::size_t>(i)]);
  }
  void reads(const View& view, std::int32_t step, const std::string& who) {
    Seen one{who, class_.buffers[view.buffer].name, {}};
    each(view, step, [&](int mark) { ++one.sums[mark]; });
    if (!one.sums.empty()) seen.push_back(std::move(one));
  }

  void run(const Step& step, std::int32_t training_step) {
    if (!step.runs_in(training_step)) return;
    for (const BufferId b : step.births)
      each({b, 0, class_.buffers[b].elements}, training_step, [](int& mark) { mark = kUnborn; });
    if (step.kind != StepKind::compute) {
      if (step.kind != StepKind::recv) reads(step.source, training_step, step.part);
      if (step.kind != StepKind::send && !(step.target == step.source))
        moves(step.target, training_step, step.accumulate);
    }
    for (const Op& op : step.ops) {
      for (const int v : op.in)
        if (v >= 0) reads(class_.views[at(v)], training_step, name_of(op.kind));
      for (const int v : op.out)
        if (v >= 0) writes(op, class_.views[at(v)], training_step);
    }
  }

  void writes(const Op& op, const View& view, std::int32_t step) {
    using K = OpKind;
    constexpr K kMoves[] = {K::copy, K::convert, K::accumulate_into, K::sum_pieces, K::add_scaled};
    constexpr K kTold[] = {K::matmul, K::bias_grad, K::layer_norm_grad, K::rms_norm_grad, K::sum_pieces};
    const auto among = [&](const auto& kinds) {
      return std::find(std::begin(kinds), std::end(kinds), op.kind) != std::end(kinds);
    };
    const bool anew = op.kind == K::copy || op.kind == K::convert || (among(kTold) && !op.accumulate);
    if (op.kind == K::fill_zero) return each(view, step, [](int& mark) { mark = 0; });
    if (among(kMoves)) return moves(view, step, !anew);
    each(view, step, [&](int& mark) { mark = anew ? 1 : mark + 1; });
  }
  // Of what lies between parameters everybody has zeros.
  void moves(const View& view, std::int32_t step, bool adds) {
    const auto gaps = gaps_.find(view.buffer);
    std::size_t i = static_cast<std::size_t>(view.offset);
    each(view, step, [&](int& mark) {
      if (gaps == gaps_.end() || !gaps->second[i]) mark = adds ? mark + 1 : 1;
      ++i;
    });
  }

  const RankClass& class_;
  std::map<std::pair<BufferId, std::int32_t>, std::vector<int>> held_;
  std::map<BufferId, std::vector<bool>> gaps_;  ///< of buckets: elements of no parameter
};

void expect_same(const Schedule& zeroing, const Schedule& writing) {
  EXPECT_EQ(base::render(check(writing), false), "");
  ASSERT_EQ(zeroing.classes.size(), writing.classes.size());
  for (std::size_t c = 0; c < zeroing.classes.size(); ++c)
    EXPECT_EQ(Marks(writing.classes[c]).seen, Marks(zeroing.classes[c]).seen) << "class " << c;
}

void expect_same(const PlanSpec& spec, const models::Model& model = samples::tiny_gpt()) {
  const Plan plan = samples::make(spec, model);
  expect_same(lower(plan, {.zero_gradients = true}), lower(plan));
}

/// Buffers of gradients that operators of a block zero, and those that they write.
struct Begun {
  std::set<std::string> zeroed, written, added;
};
Begun begun(const RankClass& c, const Block& block) {
  Begun out;
  for (const Step& step : block.steps)
    for (const Op& op : step.ops)
      for (const int v : op.out) {
        if (v < 0) continue;
        const Buffer& b = c.buffers[c.views[at(v)].buffer];
        if (b.purpose != Purpose::gradients) continue;
        (op.kind == OpKind::fill_zero ? out.zeroed : op.accumulate ? out.added : out.written).insert(b.name);
      }
  return out;
}
const Block* named(const RankClass& c, const std::string& name) {
  const auto found = std::find_if(c.blocks.begin(), c.blocks.end(), [&](const Block& b) { return b.name == name; });
  return found == c.blocks.end() ? nullptr : &*found;
}

using Names = std::set<std::string>;

TEST(FirstWrites, TheFirstMicroBatchWritesAllButWhatIsScattered) {
  PlanSpec spec;
  spec.shape.micro_batch = 2;
  const RankClass c = lower(samples::make(spec)).classes.front();
  EXPECT_EQ(begun(c, c.blocks.front()).zeroed, (Names{"embedding.gradients"}));  // positions
  const Block* backward = named(c, "backward");
  const Block* first = named(c, "backward.first");
  ASSERT_TRUE(backward && first);
  EXPECT_EQ(&c.blocks[at(first->variant_of)], backward);
  EXPECT_EQ(begun(c, *backward).written, Names{});
  EXPECT_EQ(begun(c, *first).written, (Names{"wte.gradients", "h.0.gradients", "h.1.gradients", "h.2.gradients",
                                             "h.3.gradients", "head.gradients"}));
  EXPECT_EQ(begun(c, *first).added, (Names{"wte.gradients", "embedding.gradients"})) << "the tied table as input";
  std::vector<std::int32_t> runs;
  for (const Entry& entry : c.program)
    if (&c.blocks[at(entry.block)] == first) runs.push_back(entry.micro_batch);
  EXPECT_EQ(runs, std::vector<std::int32_t>{0});
}

TEST(FirstWrites, OneMicroBatchNeedsNoVariant) {
  PlanSpec spec;
  spec.shape.micro_batch = 8;
  const RankClass c = lower(samples::make(spec)).classes.front();
  EXPECT_EQ(named(c, "backward.first"), nullptr);
  EXPECT_EQ(begun(c, *named(c, "backward")).written.size(), 6U);
}

TEST(FirstWrites, AStackThatZeroesDoesSo) {
  const RankClass c = lower(samples::make({}), {.zero_gradients = true}).classes.front();
  EXPECT_EQ(begun(c, c.blocks.front()).zeroed.size(), 7U);
  EXPECT_EQ(begun(c, *named(c, "backward")).written, Names{});
  EXPECT_EQ(named(c, "backward.first"), nullptr);
}

TEST(FirstWrites, AnEndOfThePipelineWithoutTheHeadZeroesItsTable) {
  PlanSpec spec;
  spec.mesh.pipeline = 2;
  const Schedule schedule = lower(samples::make(spec));
  EXPECT_EQ(begun(schedule.classes[0], schedule.classes[0].blocks.front()).zeroed,
            (Names{"embedding.gradients", "wte.gradients"}));
  EXPECT_EQ(begun(schedule.classes[1], schedule.classes[1].blocks.front()).zeroed, Names{});
}

// Those of a micro-batch are in memory that others have used: every pass writes them. The shard adds up.
TEST(FirstWrites, PartitionedGradientsAreWrittenByEveryPassAndTheirShardsAreZeroed) {
  for (const int zero : {2, 3}) {
    PlanSpec spec;
    spec.mesh.data = 2;
    spec.states.zero_stage = zero;
    const RankClass c = lower(samples::make(spec)).classes.front();
    EXPECT_EQ(begun(c, c.blocks.front()).zeroed.size(), 7U);
    const Begun backward = begun(c, *named(c, "backward"));
    EXPECT_EQ(named(c, "backward.first"), nullptr);
    EXPECT_TRUE(backward.written.contains("h.2.h.2.gradients") && backward.written.contains("head.wte.gradients"));
    EXPECT_FALSE(backward.zeroed.contains("head.wte.gradients"));
    EXPECT_TRUE(backward.zeroed.contains("embedding.wte.gradients"));
    std::map<std::string, std::int64_t> zeroed;
    for (const Step& step : named(c, "backward")->steps)
      for (const Op& op : step.ops)
        if (op.kind == OpKind::fill_zero) zeroed[c.buffers[c.views[at(op.out.front())].buffer].name] = op.m;
    EXPECT_EQ(zeroed.at("h.2.h.2.gradients"), 32) << "what pads it to two shards";
  }
}

// Between parameters of 36 columns lie elements that nobody writes.
TEST(FirstWrites, WhatIsBornWithGapsBetweenParametersIsZeroed) {
  PlanSpec spec;
  spec.mesh.data = 2;
  spec.states.zero_stage = 2;
  models::Model model = samples::tiny_gpt(2, 36);
  const RankClass partitioned = lower(samples::make(spec, model)).classes.front();
  EXPECT_TRUE(begun(partitioned, *named(partitioned, "backward")).zeroed.contains("h.1.h.1.gradients"));
  expect_same(spec, model);
  spec.states.zero_stage = 1;
  const RankClass whole = lower(samples::make(spec, model)).classes.front();
  EXPECT_FALSE(begun(whole, whole.blocks.front()).zeroed.contains("h.1.gradients")) << "zero from the start";
  expect_same(spec, model);
}

TEST(FirstWrites, LeaveEverySplitTheGradientsOfOneThatZeroes) {
  for (const auto& [name, spec] : samples::splits()) {
    SCOPED_TRACE(name);
    expect_same(spec);
    if (spec.mesh.context == 1 && spec.stages.virtual_stages == 1 && !spec.stages.splits_backward())
      expect_same(spec, samples::tiny_bert());
  }
}

std::vector<std::pair<std::string, PlanSpec>> techniques() {
  std::vector<std::pair<std::string, PlanSpec>> out;
  const auto add = [&](const char* name, auto change) {
    PlanSpec spec;
    spec.mesh.data = 2;
    spec.shape.micro_batch = 2;
    change(spec);
    out.emplace_back(name, spec);
  };
  add("loss in chunks", [](PlanSpec& s) { s.numerics.loss_chunks = 2; });
  add("8-bit states", [](PlanSpec& s) { s.states.optimizer = OptimizerKind::adamw_8bit; });
  add("fp16", [](PlanSpec& s) { s.numerics.precision = models::DType::fp16; });
  add("fp8", [](PlanSpec& s) { s.numerics.precision = models::DType::fp8; });
  add("optimizer on the host", [](PlanSpec& s) { s.offload.optimizer = Space::host; });
  add("optimizer on the host, ZeRO 2", [](PlanSpec& s) { s.offload.optimizer = Space::host, s.states.zero_stage = 2; });
  add("activations on the host", [](PlanSpec& s) { s.offload.activations = Space::host; });
  for (const int zero : {0, 1, 2}) {
    add("gradients in bf16", [&](PlanSpec& s) {
      s.compression.gradients = GradientCompression::bf16, s.states.zero_stage = zero, s.shape.batch = 8;
    });
    if (zero < 2)
      add("PowerSGD that starts late", [&](PlanSpec& s) {
        s.compression.gradients = GradientCompression::powersgd, s.states.zero_stage = zero;
        s.compression.rank = 2, s.compression.start = 1;
      });
  }
  add("DualPipe", [](PlanSpec& s) {
    s.stages.order = Order::dualpipe, s.mesh.pipeline = 2, s.stages.virtual_stages = 2, s.shape.micro_batch = 1,
    s.shape.batch = 8, s.mesh.data = 1;
  });
  for (const Order order : {Order::pipedream, Order::pipedream_vertical, Order::pipedream_2bw})
    add("asynchronous", [&](PlanSpec& s) {
      s.stages.order = order, s.mesh.pipeline = 4, s.mesh.data = 1;
      s.shape.micro_batch = order == Order::pipedream_2bw ? 2 : 8;
    });
  for (const int staleness : {0, 1, 2})
    add("parameter server",
        [&](PlanSpec& s) { s.states.staleness = staleness, s.states.zero_stage = 1, s.shape.batch = 8; });
  return out;
}

TEST(FirstWrites, LeaveEveryTechniqueTheGradientsOfOneThatZeroes) {
  for (const auto& [name, spec] : techniques()) {
    SCOPED_TRACE(name);
    if (const auto made = samples::try_make(spec, samples::tiny_gpt(8)); !made) {
      ADD_FAILURE() << base::render(made.error(), false);
      continue;
    }
    expect_same(spec, samples::tiny_gpt(8));
  }
}

TEST(FirstWrites, LeaveSerialProgramsTheirGradients) {
  for (const auto& [name, spec] : techniques()) {
    SCOPED_TRACE(name);
    const auto of = [&, &one = spec](bool zeroes) {
      return serial_program(samples::make(one, samples::tiny_gpt(8)), samples::cpu_cluster(1),
                            {.zero_gradients = zeroes});
    };
    const auto zeroing = of(true), writing = of(false);
    ASSERT_TRUE(zeroing && writing);
    expect_same(zeroing->schedule, writing->schedule);
  }
}

}  // namespace write_first_test
}  // namespace orrery::plan
