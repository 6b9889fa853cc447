/// cost/intervals.yaml: what is read, what is refused, whose spread a stack gets.
#include "cost/parameters/intervals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::cost {
namespace intervals_test {

Intervals sample() {
  Intervals out;
  out.spreads = {{"", true, {0.5, 2}, {0.8, 1.5}, 0}, {"megatron-2021", true, {0.9, 1.125}, {0.8, 1.5}, 16}};
  return out;
}

TEST(Intervals, ReadBackAsTheyWereWritten) {
  const auto read = parse_intervals(write_intervals(sample()), "intervals.yaml");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->spreads, sample().spreads);
}

TEST(Intervals, UnknownSoftwareHasTheSpreadOfAll) {
  EXPECT_EQ(spread_of(sample(), "megatron-2021", true)->time, (Interval{0.9, 1.125}));
  EXPECT_EQ(spread_of(sample(), "something-new", true)->time, (Interval{0.5, 2}));
  EXPECT_FALSE(spread_of(sample(), "megatron-2021", false).has_value()) << "nothing is known of a single node";
  EXPECT_FALSE(spread_of({}, "megatron-2021", true).has_value());
}

TEST(Intervals, AreAsWideAsElsewhereWhereTheStackHasNoGround) {
  clusters::Device a100;
  a100.architecture = clusters::Architecture::ampere;
  a100.peak["bf16"] = clusters::FlopsPerSecond{312e12};
  a100.memory_bandwidth = clusters::BytesPerSecond{2039e9};
  clusters::Device slower_memory = a100, halved = a100, smaller = a100;
  slower_memory.memory_bandwidth = clusters::BytesPerSecond{864e9};
  halved.peak["bf16"] = clusters::FlopsPerSecond{165e12};
  smaller.memory_bandwidth =
      clusters::BytesPerSecond{1555e9};  // an A100 of 40 GB is one of 80 GB as far as numbers carry
  Intervals known = sample();
  known.grounds = {{"megatron-2021", "A100-SXM4-80GB", clusters::Architecture::ampere, 312e12, 2039e9, false}};
  known.elsewhere = Spread{{}, false, {0.95, 1.4}, {0.9, 1.25}, 0};
  Stack stack;
  stack.name = "megatron-2021";
  const auto time = [&](const clusters::Device& device, bool mixture) {
    return spread_of(known, stack, true, {&device, mixture})->time;
  };
  EXPECT_EQ(time(a100, false), (Interval{0.9, 1.125}));
  EXPECT_EQ(time(smaller, false), (Interval{0.9, 1.125}));
  EXPECT_EQ(time(slower_memory, false), (Interval{0.9, 1.4}));
  EXPECT_EQ(time(halved, false), (Interval{0.9, 1.4}));
  EXPECT_EQ(time(a100, true), (Interval{0.9, 1.4})) << "a mixture of experts";
  known.elsewhere->memory = {0.7, 1.7};
  EXPECT_EQ(spread_of(known, stack, true, {&a100, true})->memory, (Interval{0.7, 1.7}));
  EXPECT_EQ(spread_of(known, stack, true, {&halved, false})->memory, (Interval{0.8, 1.5})) << "memory is no device's";
  EXPECT_THAT(basis_text(known, stack, true, false, {&a100, true}),
              ::testing::HasSubstr("none of them of a mixture of experts"));
  EXPECT_THAT(basis_text(known, stack, true, false, {&halved, false}),
              ::testing::HasSubstr("none of them like this one (they were of A100-SXM4-80GB)"));
  EXPECT_THAT(basis_text(known, stack, true, false, {&a100, false, true}), ::testing::HasSubstr("none of adapters"));
  EXPECT_THAT(basis_text(known, stack, true, false, {&a100, true, false, true}),
              ::testing::HasSubstr("none of them of mixers that read tokens in order"));
  EXPECT_THAT(basis_text(known, stack, true, false, {&a100, true, false, false, true}),
              ::testing::HasSubstr("none of them of attention to chosen tokens"));
  EXPECT_THAT(basis_text(known, stack, true, false, {&a100, false}), ::testing::Not(::testing::HasSubstr("none")));
  known.spreads.push_back({"described-only", true, {0.95, 1.05}, {0.9, 1.1}, 0});
  stack.name = "described-only";
  EXPECT_EQ(time(a100, false), (Interval{0.5, 2})) << "without any run it is as uncertain as unknown software";
  const auto again = parse_intervals(write_intervals(known), "intervals.yaml");
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->grounds, known.grounds);
  EXPECT_EQ(again->elsewhere, known.elsewhere);
}

// Sixteen runs on A100s say little of a mixture on H100s: there a fit is as unsure as what it began with.
TEST(Intervals, OfAStackFittedToRunsAreWiderWhereTheseRunsWereNot) {
  clusters::Device a100;
  a100.name = "A100-SXM4-80GB";
  a100.architecture = clusters::Architecture::ampere;
  a100.peak["bf16"] = clusters::FlopsPerSecond{312e12};
  a100.memory_bandwidth = clusters::BytesPerSecond{2039e9};
  clusters::Device h100 = a100;
  h100.architecture = clusters::Architecture::hopper;
  Intervals known = sample();
  known.spreads.push_back({"generic-eager", true, {0.6, 1.9}, {0.7, 1.4}, 0});
  known.elsewhere = Spread{{}, false, {0.9, 1.3}, {0.9, 1.25}, 0};
  Stack stack;
  stack.name = "ours";
  stack.fitted = Stack::Fitted{"generic-eager", 16, 0.05, 0.1, {0.9, 1.1}, {0.95, 1.05}, {}};
  const auto spread = [&](const Setting& setting) { return *spread_of(known, stack, true, setting); };
  EXPECT_EQ(spread({&h100}).time, (Interval{0.9, 1.1})) << "a file that does not say what its runs were of";
  stack.fitted->grounds = {ground_of({}, {&a100})};
  EXPECT_EQ(spread({&a100}).time, (Interval{0.9, 1.1}));
  EXPECT_EQ(spread({&h100}).time, (Interval{0.6, 1.9}));
  EXPECT_EQ(spread({&h100}).memory, (Interval{0.95, 1.05})) << "memory is no device's";
  EXPECT_EQ(spread({&a100, true}).memory, (Interval{0.7, 1.4})) << "but a mixture's";
  EXPECT_THAT(basis_text(known, stack, true, false, {&h100}),
              ::testing::HasSubstr("16 runs, none of them like this one (they were of A100-SXM4-80GB)"));
  EXPECT_THAT(basis_text(known, stack, true, false, {&a100}), ::testing::HasSubstr("16 runs (left-one-out"));
  EXPECT_THAT(basis_text(known, stack, true, false, {&a100, false, true}), ::testing::HasSubstr("none of adapters"));
  stack.fitted->grounds = {ground_of({}, {&a100, false, true})};
  EXPECT_THAT(basis_text(known, stack, true, false, {&a100}), ::testing::HasSubstr("none of full training"));
  stack.parameters = {{"stack.matmul_share", 0.8, Unit::number, "here"}};
  const auto again = parse_stack(write_stack(stack, {}), "ours.yaml");
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->fitted->grounds.size(), 1U);
  EXPECT_TRUE(again->fitted->grounds.front().adapters);
  EXPECT_EQ(again->fitted->grounds.front().device, "A100-SXM4-80GB");
}

clusters::Device device_of(clusters::Architecture architecture, const char* name) {
  clusters::Device out;
  out.name = name;
  out.architecture = architecture;
  out.peak["bf16"] = clusters::FlopsPerSecond{312e12};
  out.memory_bandwidth = clusters::BytesPerSecond{2039e9};
  return out;
}

// What stands for unknown software by its kind, and what has no run of its own, is as unsure as unknown software.
TEST(Intervals, OfAFitAreElsewhereThoseOfWhatItBeganWith) {
  const clusters::Device a100 = device_of(clusters::Architecture::ampere, "A100");
  const clusters::Device h100 = device_of(clusters::Architecture::hopper, "H100");
  Intervals known = sample();
  known.spreads.push_back({kGenericEager, true, {0.6, 1.4}, {0.7, 1.4}, 0});
  known.spreads.push_back({kStrangers, true, {0.8, 1.9}, kNothingSeen, 0});
  known.spreads.push_back({"huggingface", true, {0.95, 1.05}, {0.9, 1.1}, 0});
  Stack stack;
  stack.name = "ours";
  stack.generic = true;
  stack.fitted = Stack::Fitted{"huggingface", 16, 0.05, 0.1, {0.9, 1.1}, {0.95, 1.05}, {ground_of({}, {&a100})}};
  const auto time = [&](const clusters::Device& device) { return spread_of(known, stack, true, {&device})->time; };
  EXPECT_EQ(time(a100), (Interval{0.9, 1.1}));
  EXPECT_EQ(time(h100), (Interval{0.6, 1.9})) << "of its kind, and strangers'";
  stack.generic = false;
  EXPECT_EQ(time(h100), (Interval{0.6, 1.9})) << "described alone";
  stack.fitted->like = "megatron-2021";
  EXPECT_EQ(time(h100), (Interval{0.9, 1.125})) << "it has runs of its own";
}

TEST(Intervals, OfAFitsMemoryAreWiderForKindsOfModelsThatItsRunsWereNot) {
  const clusters::Device a100 = device_of(clusters::Architecture::ampere, "A100");
  const clusters::Device h100 = device_of(clusters::Architecture::hopper, "H100");
  Intervals known = sample();
  known.spreads.push_back({kGenericEager, true, {0.6, 1.4}, {0.7, 1.4}, 0});
  Stack stack;
  stack.name = "ours";
  stack.fitted = Stack::Fitted{kGenericEager, 16, 0.05, 0.1, {0.9, 1.1}, {0.95, 1.05}, {ground_of({}, {&a100})}};
  const auto memory = [&](const Setting& setting) { return spread_of(known, stack, true, setting)->memory; };
  const Interval own{0.95, 1.05}, wide{0.7, 1.4};
  EXPECT_EQ(memory({&h100}), own) << "another device alone";
  EXPECT_EQ(memory({&a100, true}), wide) << "a mixture";
  EXPECT_EQ(memory({&a100, false, true}), wide) << "adapters";
  EXPECT_EQ(memory({&a100, false, false, true}), wide) << "mixers that read in order";
  stack.fitted->grounds = {ground_of({}, {&a100, true})};
  EXPECT_EQ(memory({&h100, true}), own) << "a mixture, as the runs were";
  EXPECT_EQ(memory({&a100}), wide) << "a dense model, which none of them was";
}

TEST(Intervals, MemoryOfSoftwareWithoutARunIsAsUncertainAsUnknownSoftwares) {
  Intervals known = sample();
  known.spreads.push_back({"generic-eager", true, {0.7, 1.4}, {0.6, 1.2}, 0});
  const auto memory = [&](const char* name, bool own = false, bool generic = false) {
    Stack stack;
    stack.name = name, stack.own = own, stack.generic = generic;
    return spread_of(known, stack, true, {})->memory;
  };
  EXPECT_EQ(memory("described-only"), (Interval{0.6, 1.5}));
  EXPECT_EQ(memory("megatron-2021"), (Interval{0.8, 1.5})) << "16 runs";
  EXPECT_EQ(memory("generic-eager", false, true), (Interval{0.6, 1.2}));
  EXPECT_EQ(memory("generic-of-fsdp", false, true), (Interval{0.6, 1.2})) << "generic, and younger than the intervals";
  EXPECT_EQ(memory("an-executor-of-orrerys", true), (Interval{0.8, 1.5})) << "its arena is what is predicted";
}

TEST(Intervals, OfUnknownSoftwareHoldWhatStrangersShow) {
  Intervals known = sample();
  known.spreads.push_back({kGenericEager, true, {0.7, 1.4}, {0.6, 1.2}, 0});
  known.spreads.push_back({kStrangers, true, {0.8, 2}, kNothingSeen, 0});
  known.spreads.push_back({kStrangers, false, {0.1, 9}, kNothingSeen, 0});
  EXPECT_EQ(spread_of(known, kGenericEager, true)->time, (Interval{0.7, 2}));
  EXPECT_EQ(spread_of(known, kGenericEager, true)->memory, (Interval{0.6, 1.2})) << "or runs that died would fit";
  Stack stack;
  stack.generic = true, stack.name = "generic-of-fsdp";
  EXPECT_EQ(spread_of(known, stack, true, {})->time, (Interval{0.7, 2})) << "generic, and not listed";
  known.spreads.push_back({stack.name, true, {0.9, 1.1}, {0.9, 1.1}, 0});
  EXPECT_EQ(spread_of(known, stack, true, {})->time, (Interval{0.7, 2})) << "nor if it is";
  EXPECT_EQ(spread_of(known, stack, true, {})->memory, (Interval{0.6, 1.2}));
  const std::string text = write_intervals(known);
  EXPECT_THAT(text,
              ::testing::HasSubstr("{stack: strangers, several_nodes: true, time: {low: 0.8, high: 2}, rows: 0}"));
  const auto again = parse_intervals(text, "intervals.yaml");
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->spreads, known.spreads);
  EXPECT_EQ(spread_of(known, "megatron-2021", true)->time, spread_of(sample(), "megatron-2021", true)->time)
      << "it has runs of its own";
}

TEST(Intervals, LieAroundThePrediction) {
  EXPECT_EQ(around(8, {0.5, 1.25}), (Interval{4, 10}));
}

TEST(Intervals, RefuseAnUpperEndBelowTheLower) {
  const auto read = parse_intervals(
      "spreads:\n  - {several_nodes: true, time: {low: 1.2, high: 0.9}, memory: {low: 1, high: 1}, rows: 3}\n",
      "i.yaml");
  ASSERT_FALSE(read.has_value());
  EXPECT_THAT(read.error().front().message, ::testing::HasSubstr("below"));
  EXPECT_FALSE(parse_intervals("spreads: []\nmore: 1\n", "i.yaml").has_value());
  EXPECT_FALSE(parse_intervals("spreads:\n  - # nothing\n", "i.yaml").has_value()) << "an empty item is no spread";
}

}  // namespace intervals_test
}  // namespace orrery::cost
