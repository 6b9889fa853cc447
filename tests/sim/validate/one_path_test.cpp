/// What proves the simulator is what a user gets: a published row, given to the search as a job whose split is fixed,
/// has the figure that `validate` judges it by, to the last digit.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <type_traits>

#include "cost/estimate/estimate.h"
#include "cost/parameters/as_run.h"
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
    for (const std::string& name : names_in("models/catalog")) out.models.push_back(*testing::model(name));
    return out;
  }();
  return library;
}

std::vector<Row> rows_of(const std::string& file) {
  const fs::path path = fs::path(ORRERY_SOURCE_DIR) / "tests/validation" / (file + ".yaml");
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  const auto parsed = parse_rows(text.str(), path.string());
  EXPECT_TRUE(parsed.has_value()) << path;
  return parsed ? *parsed : std::vector<Row>();
}

/// A job that leaves the search nothing but this plan, as its file is written and read again.
plan::Job job_of(const plan::PlanSpec& spec, const plan::Software& software) {
  static const plan::PlanSpec kUsual;
  plan::Job job;
  job.model = job.cluster = "as-told";
  job.batch = spec.shape.batch, job.sequence = spec.shape.sequence, job.precision = spec.numerics.precision;
  job.vocab_multiple = spec.numerics.vocab_multiple;
  job.training.optimizer = plan::usual(spec.states.optimizer);
  if (!spec.states.momentum) job.training.optimizer.momentum = 0;
  job.software = software;
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
  const auto read = plan::parse_job(plan::write_job(job), "job.yaml");
  EXPECT_TRUE(read.has_value()) << (read ? "" : base::render(read.error(), false)) << plan::write_job(job);
  return read.value_or(job);
}

const cost::Stack* stack_of(const std::string& name) {
  for (const cost::Stack& known : whole_library().stacks)
    if (known.name == name) return &known;
  return nullptr;
}

/// The stack that a job names, as the verbs load it: the row's own name, or else that of the stack that prices the row.
std::optional<cost::Stacks> stacks_for(const Setup& row, const Case& one, const plan::Software& software) {
  const plan::PlanSpec& spec = one.subject.plan.spec();
  const cost::Pricing& pricing = *one.subject.pricing;
  for (const std::string& name : {row.stack, pricing.stack().name}) {
    const cost::Stack* const named = stack_of(name);
    if (named == nullptr || !cost::refused_words(*named, software, stack_of).empty()) continue;
    cost::Stacks stacks(*named, stack_of, software);
    if (stacks.of(spec.states.zero_stage, pricing.cluster()).name == pricing.stack().name) return stacks;
  }
  return std::nullopt;
}

constexpr const char* kNoStack = "no name of a stack leads to its prices";
constexpr const char* kTablesOtherwise = "the search completes a recommender's plan otherwise";

/// Why the job form of a row is told otherwise than the row; empty: the same, to the last digit.
std::string told_otherwise(const Setup& row, const Case& one, const cost::ValidatedRow& told) {
  const auto stacks = stacks_for(row, one, one.subject.software);
  if (!stacks) return kNoStack;
  const auto& cluster = one.subject.pricing->shared_cluster();
  const plan::Job job = job_of(one.subject.plan.spec(), one.subject.software);
  const cost::Prices prices(cluster, *stacks);
  // Runs that ran are not to be lost where the prediction of their memory is a little high.
  const cost::SearchResult found = search(one.subject.model, cluster, job, prices, {.top = 1, .memory_fraction = 100});
  if (found.plans.size() != 1) return "the search refuses its plan";
  const cost::Prediction& plan = found.plans.front();
  if (plan.spec != one.subject.plan.spec())
    return one.subject.model->recommender ? kTablesOtherwise : "the search completes its plan otherwise";
  if (!told.out_of_memory && plan.step_time_s != told.predicted_s) return "another time";
  if (one.subject.model->recommender) return "";  // no closed form: the replay's memory is the plan's
  cost::Estimator estimator(one.subject.model, prices.of(plan.spec));
  return estimator.memory_peak(one.subject.plan, one.subject.memory) == told.predicted_bytes ? "" : "other memory";
}

/// What became of rows that were given to the search.
struct Told {
  int same = 0;
  std::map<std::string, std::vector<std::string>> otherwise;  ///< by reason, the rows' names
};

/// About `most` rows of a file, evenly.
Told told_of(const std::string& file, std::size_t most) {
  Told out;
  const std::vector<Row> rows = rows_of(file);
  const Cases all = make_cases(rows, whole_library());
  Cases cases;
  const std::size_t stride = std::max<std::size_t>(1, all.ready.size() / most);
  for (std::size_t i = 0; i < all.ready.size(); i += stride) cases.ready.push_back(all.ready[i]);
  const cost::Validation told = validate(rows, cases);
  EXPECT_EQ(told.rows.size(), cases.ready.size()) << file;
  for (std::size_t i = 0; i < told.rows.size() && told.rows.size() == cases.ready.size(); ++i) {
    const Setup& row = rows[cases.ready[i].row].setup;
    const std::string why = told_otherwise(row, cases.ready[i], told.rows[i]);
    if (why.empty())
      ++out.same;
    else
      out.otherwise[why].push_back(row.id);
  }
  return out;
}

std::string listed(const Told& told) {
  std::string out;
  for (const auto& [why, rows] : told.otherwise)
    for (const std::string& row : rows) out += "  " + row + ": " + why + "\n";
  return out;
}

class OnePath : public ::testing::TestWithParam<const char*> {};

TEST_P(OnePath, TheSearchTellsOfARowsPlanWhatValidateTells) {
  constexpr std::size_t kMost = 6;
  const Told told = told_of(GetParam(), kMost);
  EXPECT_TRUE(told.otherwise.empty()) << listed(told);
  EXPECT_GE(told.same, 2);
}

// PTD-P's has runs of ZeRO 3, which are DeepSpeed's; the others cross versions, devices, orders and words of software.
INSTANTIATE_TEST_SUITE_P(Rows, OnePath,
                         ::testing::Values("published/ptd_p_narayanan_sc21",
                                           "published/zero_rajbhandari_2020_arxiv_1910_02054",
                                           "published/bigscience_bloom_176b_tune_up_a100",
                                           "published/mlperf_training_v3_0_gpt3", "published/zero_bubble_pp_qi_2023",
                                           "published/torchtitan_docs_performance_md_2024_04"));

/// What no job says yet; each reason with the rows that it may keep from being told alike.
constexpr const char* kUnsaid[] = {kNoStack, kTablesOtherwise};

/// All rows of every file, with ORRERY_ROWS=all; else one of each file.
TEST(OnePathOfEveryFile, ToldAsJobsRowsAreToldAlike) {
  const char* const asked = std::getenv("ORRERY_ROWS");  // NOLINT(concurrency-mt-unsafe): before any thread
  const std::size_t most = asked != nullptr && std::string(asked) == "all" ? 1'000'000 : 1;
  int same = 0, otherwise = 0;
  for (const char* folder : {"published", "strangers", "held_out"})
    for (const std::string& name : names_in((std::string("tests/validation/") + folder).c_str())) {
      Told told = told_of(std::string(folder) + "/" + name, most);
      same += told.same;
      for (const auto& [why, rows] : told.otherwise) {
        otherwise += static_cast<int>(rows.size());
        std::cout << folder << "/" << name << ": " << why << ": " << fmt::format("{}\n", fmt::join(rows, ", "));
      }
      for (const char* known : kUnsaid) told.otherwise.erase(known);
      EXPECT_TRUE(told.otherwise.empty()) << name << "\n" << listed(told);
    }
  std::cout << same << " of " << same + otherwise << " rows are told alike as jobs\n";
  EXPECT_GT(same, 20 * otherwise);
}

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
  EXPECT_EQ(cost::beyond(stacks, spec), (std::vector<cost::Lacking>{{"ZeRO 2", "zero_stage"}}));
}

TEST(OnePath, APipelineMayHaveZeroStagesOfItsOwn) {
  const cost::Stacks stacks(testing::stack("torchtitan-2024"));
  plan::PlanSpec spec;
  spec.mesh.data = 4, spec.states.zero_stage = 1;
  EXPECT_EQ(cost::beyond(stacks, spec), (std::vector<cost::Lacking>{{"ZeRO 1", "zero_stage"}}));
  spec.mesh.pipeline = 2;
  EXPECT_TRUE(cost::beyond(stacks, spec).empty()) << "FSDP2 in a pipeline keeps what it has gathered";
  spec.states.zero_stage = 3;
  EXPECT_EQ(cost::beyond(stacks, spec), (std::vector<cost::Lacking>{{"ZeRO 3 in a pipeline", "zero_stage"}}));
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
