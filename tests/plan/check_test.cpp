// The checker against sound schedules that are broken in one place: what it finds, by its code.
#include "plan/schedule/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plan/lower/lower.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace check_test {

using Codes = std::set<std::string>;

Codes codes(const Schedule& schedule) {
  Codes out;
  for (const base::Diagnostic& d : check(schedule)) out.insert(d.code);
  return out;
}

Schedule two_stages(Order order = Order::one_f_one_b) {
  PlanSpec spec;
  spec.mesh.pipeline = 2;
  spec.stages.order = order;
  return lower(samples::make(spec));
}

std::vector<Step>& steps_of(Schedule& schedule, std::size_t stage, const std::string& block) {
  for (Block& b : schedule.classes[stage].blocks)
    if (b.name == block) return b.steps;
  throw std::runtime_error("no block " + block);
}

bool has(const std::vector<BufferId>& list, BufferId buffer) {
  return std::find(list.begin(), list.end(), buffer) != list.end();
}

TEST(Checker, FindsNothingInWhatIsLowered) {
  EXPECT_EQ(codes(two_stages()), Codes{});
}

// One stage runs all forward passes first, the other wants to hand a gradient back after each.
TEST(Checker, NamesTheStepsThatWaitForEver) {
  Schedule schedule = two_stages(Order::gpipe);
  schedule.classes[1] = two_stages(Order::one_f_one_b).classes[1];
  std::set<int> stages;
  for (const base::Diagnostic& d : check(schedule)) {
    if (d.code != "S12") continue;
    for (const int stage : {0, 1})
      if (d.message.find("stage " + std::to_string(stage) + ", ") != std::string::npos) stages.insert(stage);
    EXPECT_NE(d.message.find("of micro-batch"), std::string::npos) << d.message;
  }
  EXPECT_EQ(stages, (std::set<int>{0, 1}));
}

TEST(Checker, FindsAnOperatorWithoutAnOperandOfItsRowAndOneWithTooMany) {
  const auto found = [](const auto& change) {
    Schedule schedule = two_stages();
    for (Step& step : steps_of(schedule, 0, "forward"))
      for (models::Op& op : step.ops)
        if (op.kind == models::OpKind::layer_norm) {
          change(op);
          return base::render(check(schedule), false);
        }
    throw std::runtime_error("no layer_norm");
  };
  EXPECT_EQ(found([](models::Op&) {}), "");
  EXPECT_NE(found([](models::Op& op) { op.in.clear(); }).find("S24"), std::string::npos);
  EXPECT_NE(found([](models::Op& op) { op.out[1] = -1; }).find("layer_norm has no output mean"), std::string::npos);
  EXPECT_NE(found([](models::Op& op) { op.in.push_back(op.in[0]); }).find("has 4 inputs where its row has 3"),
            std::string::npos);
  EXPECT_NE(found([](models::Op& op) { op.slots = 2; }).find("layer_norm stands in 2 slots"), std::string::npos);
}

// Nobody waits for it: the schedule would end, and the message be lost.
TEST(Checker, FindsASendThatNobodyReceives) {
  Schedule schedule = two_stages();
  RankClass& first = schedule.classes[0];
  Step lost;
  lost.kind = StepKind::send, lost.stream = Stream::pipeline_send, lost.part = "lost", lost.peer = 1, lost.tag = 77;
  lost.source = {first.loss, 0, 1};
  lost.reads = {first.loss};
  steps_of(schedule, 0, "finish").push_back(lost);
  EXPECT_EQ(codes(schedule), Codes{"S10"});
}

TEST(Checker, FindsEndsOfAMessageThatDisagreeOnItsBytes) {
  Schedule schedule = two_stages();
  for (Step& step : steps_of(schedule, 0, "forward"))
    if (step.kind == StepKind::send) --step.source.elements;
  EXPECT_EQ(codes(schedule), Codes{"S11"});
}

// A buffer dies where it was made, and later steps only read it.
TEST(Checker, FindsAReadOfWhatHasDied) {
  Schedule schedule = two_stages();
  std::vector<Step>& steps = steps_of(schedule, 0, "backward");
  const auto broken = [&] {
    for (std::size_t end = 1; end < steps.size(); ++end)
      for (const BufferId b : steps[end].deaths)
        for (std::size_t born = 0; born < end; ++born) {
          if (!has(steps[born].births, b) || !has(steps[end].reads, b)) continue;
          if (std::any_of(steps.begin() + static_cast<std::ptrdiff_t>(born) + 1,
                          steps.begin() + static_cast<std::ptrdiff_t>(end) + 1,
                          [&](const Step& s) { return has(s.writes, b); }))
            continue;
          std::erase(steps[end].deaths, b);
          steps[born].deaths.push_back(b);
          return true;
        }
    return false;
  };
  ASSERT_TRUE(broken());
  EXPECT_EQ(codes(schedule), Codes{"S06"});
}

TEST(Checker, FindsWhatIsNeverFreed) {
  for (const bool crosses : {false, true}) {
    Schedule schedule = two_stages();
    RankClass& first = schedule.classes[0];
    const auto leaks = [&] {
      for (Block& block : first.blocks)
        for (Step& step : block.steps)
          for (const BufferId b : step.deaths)
            if (first.buffers[b].per_micro_batch == crosses && step.kind == StepKind::compute) {
              std::erase(step.deaths, b);
              return true;
            }
      return false;
    };
    ASSERT_TRUE(leaks());
    EXPECT_TRUE(codes(schedule).count("S08")) << (crosses ? "between blocks" : "within a block");
  }
}

TEST(Checker, FindsABufferThatIsBornOrDiesTwice) {
  Schedule schedule = two_stages();
  for (Step& step : steps_of(schedule, 0, "forward"))
    if (!step.births.empty()) {
      steps_of(schedule, 0, "forward").back().births.push_back(step.births.front());
      break;
    }
  EXPECT_FALSE(codes(schedule).empty());
  schedule = two_stages();
  std::vector<Step>& steps = steps_of(schedule, 0, "backward");
  for (std::size_t s = 0; s + 1 < steps.size(); ++s)
    if (!steps[s].deaths.empty()) {
      steps.back().deaths.push_back(steps[s].deaths.front());
      break;
    }
  EXPECT_TRUE(codes(schedule).count("S07"));
}

}  // namespace check_test
}  // namespace orrery::plan
