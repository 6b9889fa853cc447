/// What proves the simulator is what a user gets: a published row, given to the search as a job whose split is fixed,
/// has the figure that `validate` judges it by, to the last digit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <type_traits>

#include "plan/spec/fields.h"
#include "sim/search/search.h"
#include "sim/search/space.h"
#include "sim/validate/validate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace one_path_test {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const char* folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(ORRERY_SOURCE_DIR) / folder))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

const Library& whole_library() {
  static const Library library = [] {
    Library out;
    for (const std::string& name : names_in("cost/stacks")) out.stacks.push_back(testing::stack(name));
    for (const std::string& name : names_in("clusters/catalog")) out.clusters.push_back(*testing::cluster(name));
    return out;
  }();
  return library;
}

std::vector<Row> carried(const char* source) {
  const fs::path path = fs::path(ORRERY_SOURCE_DIR) / "tests/validation/published" / (std::string(source) + ".yaml");
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  const auto parsed = parse_rows(text.str(), path.string());
  EXPECT_TRUE(parsed.has_value()) << path;
  return parsed ? *parsed : std::vector<Row>();
}

/// A job that leaves the search nothing but this plan.
plan::Job job_of(const plan::PlanSpec& spec) {
  static const plan::PlanSpec kUsual;
  plan::Job job;
  job.batch = spec.shape.batch, job.sequence = spec.shape.sequence, job.precision = spec.numerics.precision;
  plan::for_each_field(plan::kChosenFields, [&](const auto& field) {
    auto& bound = field.of(job.bounds);
    const auto& value = field.of(spec);
    using Bound = std::remove_cvref_t<decltype(bound)>;
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Bound, Value>)
      bound = value;
    else if constexpr (std::is_same_v<Bound, std::optional<Value>>) {
      if (value != field.of(kUsual)) bound = value;
    } else {
      bound = {static_cast<typename Bound::value_type>(value)};
    }
  });
  return job;
}

/// What only a row can say, and a job says by a stack of its own or by the tokens that it computes.
bool says_more_than_a_job(const Setup& row, const Case& one) {
  const bool zero_of_one = row.data == 1 && row.zero_stage.value_or(0) > 0;
  return zero_of_one || row.scatter_gather.has_value() || row.optimizer.find("8-bit") != std::string::npos ||
         one.subject.plan.spec().shape.sequence != *row.sequence ||
         one.subject.plan.spec().numerics.vocab_multiple == 1;
}

class OnePath : public ::testing::TestWithParam<const char*> {};

TEST_P(OnePath, TheSearchTellsOfARowsPlanWhatValidateTells) {
  const std::vector<Row> rows = carried(GetParam());
  const Cases cases = make_cases(rows, whole_library());
  const cost::Validation told = validate(rows, cases);
  ASSERT_EQ(told.rows.size(), cases.ready.size());
  int compared = 0;
  const std::size_t stride = std::max<std::size_t>(1, cases.ready.size() / 6);
  for (std::size_t i = 0; i < cases.ready.size(); i += stride) {
    const Case& one = cases.ready[i];
    const sim::Setup& row = rows[one.row].setup;
    if (says_more_than_a_job(row, one)) continue;
    SCOPED_TRACE(row.id);
    // The name that a user writes into a job, and what the catalogue has beside it.
    const cost::Stack named = testing::stack(
        std::ranges::count(names_in("cost/stacks"), row.stack) > 0 ? row.stack : one.subject.pricing->stack().name);
    const cost::Stacks stacks(named, [](const std::string& name) -> const cost::Stack* {
      for (const cost::Stack& known : whole_library().stacks)
        if (known.name == name) return &known;
      return nullptr;
    });
    const auto& cluster = one.subject.pricing->shared_cluster();
    // Runs that ran are not to be lost where the prediction of their memory is a little high.
    const cost::SearchResult found = search(one.subject.model, cluster, job_of(one.subject.plan.spec()),
                                            cost::Prices(cluster, stacks), {.top = 1, .memory_fraction = 100});
    ASSERT_EQ(found.plans.size(), 1U);
    EXPECT_EQ(found.plans.front().spec, one.subject.plan.spec());
    EXPECT_EQ(found.plans.front().step_time_s, told.rows[i].predicted_s);
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

// PTD-P's has runs of ZeRO 3, which are DeepSpeed's; the others cross versions, devices and orders.
INSTANTIATE_TEST_SUITE_P(Rows, OnePath,
                         ::testing::Values("ptd_p_narayanan_sc21", "zero_rajbhandari_2020_arxiv_1910_02054",
                                           "bigscience_bloom_176b_tune_up_a100", "mlperf_training_v3_0_gpt3",
                                           "zero_bubble_pp_qi_2023", "torchtitan_docs_performance_md_2024_04"));

TEST(OnePath, ZeroThreeOfSoftwareWithoutItIsAnothers) {
  const cost::Stacks stacks(testing::stack("megatron-2021"), [](const std::string& name) -> const cost::Stack* {
    for (const cost::Stack& known : whole_library().stacks)
      if (known.name == name) return &known;
    return nullptr;
  });
  const auto cluster = testing::cluster("dgx-a100-80gb", 32);
  EXPECT_EQ(stacks.of(3, *cluster).name, "deepspeed-2021");
  EXPECT_EQ(stacks.of(1, *cluster).name, "megatron-2021");
  plan::PlanSpec spec;
  spec.mesh.data = 32, spec.states.zero_stage = 3;
  EXPECT_TRUE(cost::beyond(stacks, spec).empty()) << "another stands for it";
  spec.states.zero_stage = 2;
  EXPECT_EQ(cost::beyond(stacks, spec), std::vector<std::string>{"ZeRO 2"});
}

TEST(OnePath, APipelineMayHaveZeroStagesOfItsOwn) {
  const cost::Stacks stacks(testing::stack("torchtitan-2024"));
  plan::PlanSpec spec;
  spec.mesh.data = 4, spec.states.zero_stage = 1;
  EXPECT_EQ(cost::beyond(stacks, spec), std::vector<std::string>{"ZeRO 1"});
  spec.mesh.pipeline = 2;
  EXPECT_TRUE(cost::beyond(stacks, spec).empty()) << "FSDP2 in a pipeline keeps what it has gathered";
  spec.states.zero_stage = 3;
  EXPECT_EQ(cost::beyond(stacks, spec), std::vector<std::string>{"ZeRO 3 in a pipeline"});
}

TEST(OnePath, TheSearchKeepsWithinWhatTheSoftwareCanDo) {
  plan::Job job;
  job.batch = 64, job.sequence = 1024, job.precision = models::DType::bf16;
  const auto cluster = testing::cluster("dgx-a100-80gb", 16);
  const auto model = testing::model("gpt2-1558m");
  const auto space = [&](const char* name) { return space_of(*cluster, *model, job, testing::stack(name)); };
  const auto any = [](const std::vector<plan::PlanSpec>& specs, auto&& is) { return std::ranges::any_of(specs, is); };
  const auto zero_3 = [](const plan::PlanSpec& s) { return s.states.zero_stage == 3; };
  const auto rows = [](const plan::PlanSpec& s) { return s.mesh.sequence_parallel; };
  const auto split = [](const plan::PlanSpec& s) {
    return s.mesh.tensor > 1 || s.mesh.pipeline > 1 || s.mesh.context > 1;
  };
  const auto both = [](const plan::PlanSpec& s) { return s.mesh.pipeline > 1 && s.states.zero_stage > 1; };
  EXPECT_FALSE(any(space("megatron-2021"), zero_3));
  EXPECT_FALSE(any(space("megatron-2021"), rows));
  EXPECT_TRUE(any(space("megatron-fsdp"), zero_3));
  EXPECT_TRUE(any(space("megatron-core"), rows));
  EXPECT_FALSE(any(space("deepspeed"), split)) << "what its export has no word for";
  EXPECT_TRUE(any(space("deepspeed"), zero_3));
  EXPECT_FALSE(any(space("deepspeed-2021"), both)) << "DeepSpeed's pipeline engine has neither ZeRO 2 nor 3";
  job.bounds.states.zero_stage = {3};
  EXPECT_TRUE(any(space("megatron-2021"), zero_3)) << "what a job names is taken at its word";
}

TEST(OnePath, FusedAttentionIsOfDevicesThatItHasKernelsFor) {
  EXPECT_FALSE(testing::stack("megatron-core").attends_fused(testing::cluster("dgx-1v")->device()));
  EXPECT_TRUE(testing::stack("megatron-core").attends_fused(testing::cluster("dgx-a100")->device()));
  EXPECT_TRUE(testing::stack("orrery-cuda").attends_fused(testing::cluster("dgx-1v")->device()));
}

TEST(UsualStack, FollowsTheDeviceTheRackAndTheModel) {
  const auto usual = [](const char* cluster, const char* model) {
    return cost::usual_stack(*testing::cluster(cluster), *testing::model(model));
  };
  EXPECT_EQ(usual("gb200-nvl64", "qwen3-30b-a3b"), "megatron-bridge");
  EXPECT_EQ(usual("gb200-nvl64", "llama2-7b"), "megatron-core") << "a dense model needs none of its dispatchers";
  EXPECT_EQ(usual("hgx-b200", "qwen3-30b-a3b"), "megatron-core") << "no rack";
  EXPECT_EQ(usual("dgx-1v", "llama2-7b"), "megatron-2021");
  EXPECT_EQ(usual("mi300x", "llama2-7b"), "generic-eager");
  EXPECT_EQ(usual("localhost-2", "tiny-gpt"), "orrery-cpu");
}

TEST(UsualStack, IsDeepSeeksWhereAJobNamesItsOrdersAloneForAMixture) {
  using plan::Order;
  const auto usual = [](const char* cluster, const char* model, const std::vector<Order>& orders) {
    return cost::usual_stack(*testing::cluster(cluster), *testing::model(model), orders);
  };
  EXPECT_EQ(usual("hgx-h800", "deepseek-v3", {Order::dualpipe}), "deepseek-2024");
  EXPECT_EQ(usual("hgx-h800", "deepseek-v3", {Order::dualpipe_v, Order::dualpipe}), "deepseek-2024");
  EXPECT_EQ(usual("hgx-h800", "deepseek-v3", {Order::dualpipe, Order::one_f_one_b}), "megatron-core") << "a choice";
  EXPECT_EQ(usual("hgx-h800", "deepseek-v3", {}), "megatron-core");
  EXPECT_EQ(usual("hgx-h800", "llama2-7b", {Order::dualpipe}), "megatron-core") << "it is known for mixtures";
  EXPECT_EQ(usual("localhost-2", "tiny-moe", {Order::dualpipe}), "orrery-cpu");
}

}  // namespace one_path_test
}  // namespace orrery::sim
