// timeline.json: there and back, and files that are cut, foreign or hostile.
#include "plan/schedule/timeline.h"

#include <gtest/gtest.h>

#include <limits>

namespace orrery::plan {
namespace timeline_test {

Schedule schedule() {
  Schedule s;
  RankClass c;
  c.count = 2;
  c.buffers.push_back({"grad \"a\"", Purpose::gradients, models::DType::fp32, 64, true, false});
  Step compute;
  compute.part = "attention";
  compute.layer = LayerId(0);
  Step reduce;
  reduce.kind = StepKind::collective;
  reduce.stream = Stream::data;
  reduce.phase = Phase::gradient_reduce;
  reduce.part = "all_reduce";
  reduce.source = reduce.target = {BufferId(0), 0, 64};
  c.blocks = {{"forward", {compute}}, {"finish", {reduce}}};
  c.program = {{0, 0}, {1, -1}};
  s.classes.push_back(c);
  return s;
}

Timeline sample() {
  Timeline t;
  t.origin = Origin::measured;
  t.spec.mesh.data = 2;
  t.spec.states.zero_group = 2;
  t.spec.numerics.loss_chunks = 4;
  t.spec.stages.layers_per_stage = {1};
  t.spec.shape.batch = 4;
  t.spec.shape.sequence = 16;
  t.spec.stages.order = Order::gpipe;
  t.spec.recomputation.what = Recompute::full;
  t.spec.numerics.precision = models::DType::bf16;
  t.step_time = 0.1;
  t.oversubscribed = true;
  for (int rank = 0; rank < 2; ++rank) {
    t.spans.push_back({rank, 0, {0, 0}, 0, -1e-9, 1.0 / 3, 0.5});
    t.spans.push_back({rank, 0, {1, 0}, -1, 0.5, 0.6, 0.7});
  }
  t.operators = {{0, 0, 0, 0, 24, 1.0 / 7}, {0, 0, 0, 1, 24, 3e-7}};
  return t;
}

void expect_same(const Timeline& a, const Timeline& b) {
  EXPECT_EQ(a.origin, b.origin);
  EXPECT_EQ(a.spec, b.spec);
  EXPECT_EQ(a.step_time, b.step_time);
  EXPECT_EQ(a.oversubscribed, b.oversubscribed);
  ASSERT_EQ(a.spans.size(), b.spans.size());
  for (std::size_t i = 0; i < a.spans.size(); ++i) {
    EXPECT_EQ(a.spans[i].rank, b.spans[i].rank);
    EXPECT_EQ(a.spans[i].iteration, b.spans[i].iteration);
    EXPECT_EQ(a.spans[i].at, b.spans[i].at);
    EXPECT_EQ(a.spans[i].micro_batch, b.spans[i].micro_batch);
    EXPECT_EQ(a.spans[i].ready, b.spans[i].ready);
    EXPECT_EQ(a.spans[i].start, b.spans[i].start);
    EXPECT_EQ(a.spans[i].end, b.spans[i].end);
  }
  ASSERT_EQ(a.operators.size(), b.operators.size());
  for (std::size_t i = 0; i < a.operators.size(); ++i) {
    EXPECT_EQ(a.operators[i].step, b.operators[i].step);
    EXPECT_EQ(a.operators[i].op, b.operators[i].op);
    EXPECT_EQ(a.operators[i].count, b.operators[i].count);
    EXPECT_EQ(a.operators[i].seconds, b.operators[i].seconds);
  }
}

TEST(Timeline, RefusesOperatorsThatSayTooLittle) {
  std::string text = write_timeline(sample(), schedule());
  const std::size_t at = text.find("[0,0,0,1,24,");
  ASSERT_NE(at, std::string::npos) << text;
  text.replace(at, 17, "[0,0,0,1,24]");
  const auto t = parse_timeline(text, "timeline.json");
  ASSERT_FALSE(t.has_value());
  EXPECT_NE(base::render(t.error(), false).find("6 are expected"), std::string::npos) << base::render(t.error(), false);
}

std::string refused(const std::string& text) {
  const auto t = parse_timeline(text, "timeline.json");
  return t ? "(accepted)" : base::render(t.error(), false);
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " in\n" << text;
  return text.replace(at, what.size(), with);
}

TEST(Timeline, WritesWhatItReadsToTheLastBit) {
  const auto again = parse_timeline(write_timeline(sample(), schedule()), "timeline.json");
  ASSERT_TRUE(again.has_value()) << base::render(again.error(), false);
  expect_same(*again, sample());
}

TEST(Timeline, WritesTheSameBytesForTheSameInput) {
  EXPECT_EQ(write_timeline(sample(), schedule()), write_timeline(sample(), schedule()));
}

TEST(Timeline, SaysInWordsWhatItsIndicesMean) {
  const std::string text = write_timeline(sample(), schedule());
  EXPECT_NE(text.find(R"("program":[[0,0],[1,-1]])"), std::string::npos) << text;
  EXPECT_NE(
      text.find(
          R"({"kind":"all_reduce","stream":"data","phase":"gradient_reduce","part":"all_reduce","layer":-1,"bytes":256})"),
      std::string::npos)
      << text;
}

TEST(Timeline, ReadsColumnsInAnyOrderWithOthersBetween) {
  const std::string text = R"({"format_version":"1.1","origin":"predicted","plan":{},"step_time_s":1,"new":{"x":[1]},
"columns":["note","end_s","start_s","ready_s","micro_batch","step","entry","iteration","rank"],
"rows":[["a",3,2,1,-1,5,4,7,6]]})";
  const auto t = parse_timeline(text, "timeline.json");
  ASSERT_TRUE(t.has_value()) << base::render(t.error(), false);
  const Span& s = t->spans.at(0);
  EXPECT_EQ(s.rank, 6);
  EXPECT_EQ(s.iteration, 7);
  EXPECT_EQ(s.at, (StepRef{4, 5}));
  EXPECT_EQ(s.ready, 1);
  EXPECT_EQ(s.end, 3);
}

TEST(Timeline, NamesWhatIsWrongAndWhere) {
  const std::string good = write_timeline(sample(), schedule());
  EXPECT_EQ(refused(replaced(good, "\n[1,0,0,0,0,", "\n[1,0,0,0,\"x\",")),
            "error[E0130]: a whole number is expected here\n"
            "  --> timeline.json:14:10\n"
            "   |\n"
            "14 | [1,0,0,0,\"x\",-1e-09,0.3333333333333333,0.5],\n"
            "   |          ^\n");
  EXPECT_NE(refused(replaced(good, "\"rank\",", "\"rang\",")).find("column `rank` is missing"), std::string::npos);
  EXPECT_NE(refused(replaced(good, "\"measured\"", "\"guessed\""))
                .find("must be one of predicted, measured, found `guessed`"),
            std::string::npos);
  EXPECT_NE(refused(replaced(good, "\"1.0\"", "\"2.0\"")).find("does not read format_version `2.0`"),
            std::string::npos);
  EXPECT_NE(refused("{}").find("missing: format_version, origin, plan, step_time_s, columns, rows"), std::string::npos);
}

TEST(Timeline, RefusesValuesOutOfRange) {
  const std::string good = write_timeline(sample(), schedule());
  const std::string row = "\n[1,0,0,0,0,-1e-09,0.3333333333333333,0.5]";
  for (const char* bad :
       {"[-1,0,0,0,0,0,0,0]", "[99999999,0,0,0,0,0,0,0]", "[0,0,-1,0,0,0,0,0]", "[0,0,0,4294967296,0,0,0,0]",
        "[0,0,0,0,-2,0,0,0]", "[0,0,0,0,0,1e999,0,0]", "[0,0,0,0,0,1e10,0,0]", "[0,0,0,0,0,NaN,0,0]", "[0,0,0,0,0,0,0]",
        "[0,0,0,0,0,0,0,0,0]", "[0.5,0,0,0,0,0,0,0]", "[]", "{}", "null", "[null,0,0,0,0,0,0,0]"}) {
    EXPECT_NE(refused(replaced(good, row, bad)), "(accepted)") << bad;
  }
  EXPECT_NE(refused(replaced(good, "\"data\":2", "\"data\":16777216,\"tensor\":16777216")), "(accepted)");
  EXPECT_NE(refused(replaced(good, "\"data\":2", "\"data\":0")), "(accepted)");
  EXPECT_NE(refused(replaced(good, "\"step_time_s\":0.1", "\"step_time_s\":-1")), "(accepted)");
  EXPECT_NE(refused(replaced(good, "\"step_time_s\":0.1", "\"step_time_s\":1,\"step_time_s\":2")), "(accepted)");
}

TEST(Timeline, NeverCrashesOnCutOrChangedFiles) {
  const std::string good = write_timeline(sample(), schedule());
  for (std::size_t n = 0; n + 2 < good.size(); ++n) EXPECT_NE(refused(good.substr(0, n)), "(accepted)") << n;
  for (std::size_t n = 0; n < good.size(); ++n) {
    for (const char c : {'\0', '"', '[', '}', '9', '-', 'e', '\\', '\xff'}) {
      std::string changed = good;
      changed[n] = c;
      (void)parse_timeline(changed, "timeline.json");
    }
  }
}

TEST(TimelineDeath, RefusesToWriteTimesThatAreNoNumbers) {
  Timeline t = sample();
  t.spans[0].end = std::numeric_limits<double>::quiet_NaN();
  EXPECT_DEATH((void)write_timeline(t, schedule()), "isfinite");
}

}  // namespace timeline_test
}  // namespace orrery::plan
