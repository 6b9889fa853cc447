/// Published runs of recommendation models: what their rows become, and that they are predicted as `simulate` does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cost/network/messages.h"
#include "sim/simulate.h"
#include "sim/validate/headlines.h"
#include "sim/validate/validate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace recommend_rows_test {

using ::testing::Contains;
using ::testing::HasSubstr;

Library recommenders() {
  Library out;
  for (const char* name : {"dgx-a100-80gb", "pcie-a100-80gb", "pcie-a30", "dgx-1v", "zion", "zionex-128"})
    out.clusters.push_back(*testing::cluster(name));
  for (const char* name : {"hugectr-2021", "hugectr-2023", "dle-dlrm-2020", "hugectr-sok-2022",
                           "hugectr-sok-2022-custom-interact", "generic-recommender", "generic-eager", "zionex-2021"})
    out.stacks.push_back(testing::stack(name));
  for (const char* name : {"zionex-95b"}) out.models.push_back(*testing::model(name));
  return out;
}

constexpr const char* kCriteo =
    "family: dlrm, kind: training, verified: true, embedding_tables: 26, embedding_dim: 128, bottom_mlp: 512-256-128, "
    "top_mlp: 1024-1024-512-256-1, table_rows_total_m: 187.8, multi_hot_lookups_per_sample: 26, dense_features: 13, "
    "gpu_type: A100-SXM4-80GB, gpus_per_node: 8";

std::vector<Row> rows_of(const std::string& rest) {
  auto rows = parse_rows("results:\n- {id: one, source: s, " + std::string(kCriteo) + ", " + rest + "}\n", "r.yaml");
  if (!rows) throw std::runtime_error(base::render(rows.error(), false));
  return std::move(*rows);
}

Subject subject_of(const std::string& rest) {
  auto subject = Translator(recommenders()).translate(rows_of(rest).front().setup);
  if (!subject) throw std::runtime_error(base::render(subject.error(), false));
  return std::move(*subject);
}

constexpr const char* kEight = "gpus: 8, global_batch: 55296, precision_kind: fp16, stack: hugectr-2021";

TEST(RecommendRows, CriteosTablesAreCutOffWhereTheRowSaysHowManyRowsTheyHave) {
  const Subject s = subject_of(kEight);
  const models::Recommender& model = *s.model->recommender;
  ASSERT_EQ(model.tables.size(), 26U);
  EXPECT_NEAR(static_cast<double>(model.rows()), 187.8e6, 1e5);
  EXPECT_EQ(model.tables[5].rows, 3) << "small tables stay as they are";
  EXPECT_EQ(model.indices(), 26);
  EXPECT_EQ(s.plan.spec().numerics.precision, models::DType::fp16);
  EXPECT_EQ(s.plan.spec().embedding.forward, plan::PooledType::fp16);
}

TEST(RecommendRows, TwoHundredAndFourteenLookupsAreMlperfsOwnSpread) {
  const auto rows = parse_rows(
      "results:\n- {id: one, family: dlrm, kind: training, verified: true, embedding_tables: 26, embedding_dim: 128, "
      "bottom_mlp: 512-256-128, top_mlp: 1024-1024-512-256-1, table_rows_total_m: 204, "
      "multi_hot_lookups_per_sample: 214, cross_layers: 3, gpu_type: A100-SXM4-80GB, gpus: 8, global_batch: 55296, "
      "precision_kind: fp16, stack: hugectr-2023}\n",
      "r.yaml");
  const Subject s = *Translator(recommenders()).translate(rows->front().setup);
  EXPECT_EQ(s.model->recommender->indices(), 214);
  EXPECT_EQ(s.model->recommender->tables[20].multi_hot, 100);
  EXPECT_EQ(s.model->recommender->interaction, models::Interaction::cross);
}

TEST(RecommendRows, ArePredictedAsTheReplayHasThem) {
  const std::vector<Row> rows = rows_of(std::string(kEight) + ", iter_time_s: 0.0013");
  const cost::Validation v = validate(rows, recommenders());
  ASSERT_EQ(v.rows.size(), 1U);
  const Subject s = subject_of(kEight);
  EXPECT_DOUBLE_EQ(v.rows[0].predicted_s, simulate(s.plan, *s.pricing, {.spans = false}).prediction.step_time_s);
  EXPECT_GT(v.rows[0].predicted_bytes, 187e6 * 128 * 4 / 8);
}

TEST(RecommendRows, AStackOfNoNameIsTheGenericRecommenderAndSaysSo) {
  const Subject s = subject_of("gpus: 8, global_batch: 65536, precision_kind: fp32, stack: torchrec-2023");
  EXPECT_EQ(s.pricing->stack().name, "generic-recommender");
  EXPECT_THAT(s.notes, Contains(HasSubstr("torchrec-2023")));
}

TEST(RecommendRows, ARowWithoutTablesSaysWhatItLacks) {
  const auto rows = parse_rows(
      "results:\n- {id: one, family: dlrm, kind: training, verified: true, gpus: 8, gpu_type: A100-SXM4-80GB, "
      "global_batch: 64}\n",
      "r.yaml");
  const cost::Validation v = validate(*rows, recommenders());
  ASSERT_EQ(v.left_out.size(), 1U);
  EXPECT_THAT(v.left_out[0].reason, HasSubstr("embedding_tables"));
}

TEST(RecommendRows, SixteenBitsAreFasterThanTf32AndTf32ThanFp32) {
  const auto seconds = [&](const char* precision) {
    const Subject s =
        subject_of("gpus: 8, global_batch: 65536, stack: dle-dlrm-2020, precision_kind: " + std::string(precision));
    return simulate(s.plan, *s.pricing, {.spans = false}).prediction.step_time_s;
  };
  EXPECT_LT(seconds("fp16"), seconds("tf32"));
  EXPECT_LT(seconds("tf32"), seconds("fp32"));
}

TEST(RecommendRows, WholeTablesAreOfStacksThatHaveThem) {
  const auto whole = [&](const char* stack) {
    const Subject s = subject_of("gpus: 8, global_batch: 65536, precision_kind: fp16, stack: " + std::string(stack));
    const auto& places = s.plan.spec().embedding.placement.places();
    return std::all_of(places.begin(), places.end(),
                       [](const plan::TablePlace& p) { return !p.replicated && p.ranks.size() == 1; });
  };
  EXPECT_TRUE(whole("dle-dlrm-2020"));
  EXPECT_FALSE(whole("hugectr-2021"));
}

TEST(RecommendRows, AnAllToAllTakesLongerOverZionsCpusThanOverZionexsPorts) {
  const auto seconds = [](const char* name) {
    const auto on = testing::cluster(name);
    std::vector<int> members(128);
    std::iota(members.begin(), members.end(), 0);
    const cost::Pricing pricing(on, testing::stack("zionex-2021"));
    return pricing.collective_time(plan::CollectiveKind::all_to_all, base::Bytes{64.0 * 1024 * 1024}, members).value;
  };
  EXPECT_GT(seconds("zion"), 1.5 * seconds("zionex-128"));
}

std::string headline(const char* quantity, const char* runs) {
  const std::string row =
      ", family: dlrm, kind: training, verified: true, gpu_type: A100-SXM4-40GB, catalog_cluster: zionex-128, "
      "stack: zionex-2021, precision_kind: tf32, optimizer: rowwise adagrad, pooled_forward: fp32, "
      "pooled_backward: fp32, ";
  return std::string("headlines:\n- {what: w, source: s, said: x, unit: x, quantity: ") + quantity + ", runs: [" +
         runs + "]}\nresults:\n- {id: two" + row +
         "catalog_model: zionex-95b, gpus: 16, global_batch: 8192}\n- {id: sixteen" + row +
         "catalog_model: zionex-95b, gpus: 128, global_batch: 65536}\n";
}

cost::HeadlineResult headline_of(const char* quantity, const char* runs) {
  return predict_headlines(*parse_headlines(headline(quantity, runs), "h.yaml"), recommenders()).at(0);
}

TEST(RecommendHeadlines, MoreNodesAreFasterAndWaitLongerForAllToAlls) {
  const double faster = *headline_of("speedup", "sixteen, two").predicted;
  EXPECT_GT(faster, 4);
  EXPECT_LT(faster, 8);
  EXPECT_GT(*headline_of("exchange_ratio", "sixteen, two").predicted, 1);
}

}  // namespace recommend_rows_test
}  // namespace orrery::sim
