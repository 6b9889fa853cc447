// Recommendation models: reading, writing, counting.
#include "models/recommender.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "models/layers/counts.h"
#include "models/operators/op.h"
#include "models/read/read.h"

namespace orrery::models {
namespace recommender_test {

constexpr const char* kSmallRecommender =
    "name: small\n"
    "family: dlrm\n"
    "dense_features: 3\n"
    "embedding_dim: 8\n"
    "tables: [{rows: 50}, {rows: 7, pooling: mean, multi_hot: 3, count: 2}]\n"
    "bottom_mlp: [16, 8]\n"
    "top_mlp: [10, 1]\n";

std::string replaced(std::string from, const std::string& to) {
  std::string text = kSmallRecommender;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  const auto model = parse_model(text, "m.yaml");
  return model ? "" : base::render(model.error(), false);
}

TEST(Recommender, IsReadAndWrittenAsItIs) {
  const auto model = parse_model(kSmallRecommender, "m.yaml");
  ASSERT_TRUE(model) << base::render(model.error(), false);
  ASSERT_TRUE(model->recommender);
  const Recommender& r = *model->recommender;
  EXPECT_EQ(model->family, Family::dlrm);
  EXPECT_EQ(r.tables.size(), 3U);
  EXPECT_EQ(r.tables[2].pooling, Pooling::mean);
  EXPECT_EQ(r.indices(), 7);
  EXPECT_EQ(r.interaction, Interaction::dot);
  for (const std::string& text :
       {std::string(kSmallRecommender), replaced("top_mlp", "interaction: cross\ncross_rank: 4\ntop_mlp")}) {
    const auto one = parse_model(text, "m.yaml");
    ASSERT_TRUE(one) << base::render(one.error(), false);
    const auto again = parse_model(write_model(*one), "again.yaml");
    ASSERT_TRUE(again) << base::render(again.error(), false);
    EXPECT_EQ(*again, *one);
  }
}

// Bottom 3-16-8: 48+16 + 128+8 = 200. Vectors: 4, so the top has 8 + 6 inputs: 140+10 + 10+1 = 161. Tables: 64 rows
// of 8.
TEST(Recommender, IsCountedByHand) {
  const auto model = parse_model(kSmallRecommender, "m.yaml");
  EXPECT_EQ(parameters(*model), 200 + 161 + 64 * 8);
  EXPECT_EQ(parameters_active(*model), 200 + 161 + 7 * 8);
  // 2 (48 + 128) + 2 (140 + 10) + 12 half-pairs of 8 values, 2 each, + 7 rows of 8 added.
  EXPECT_DOUBLE_EQ(flops_per_token_forward(*model, 1), 352 + 300 + 96 + 56);
  const auto cross =
      parse_model(replaced("top_mlp", "interaction: cross\ncross_layers: 2\ncross_rank: 4\ntop_mlp"), "m.yaml");
  // 32 values a sample: two layers of 2 x 4 x 32 + 32; the top has 320+10 + 11.
  EXPECT_EQ(parameters(*cross), 200 + 2 * (256 + 32) + 341 + 64 * 8);
  EXPECT_DOUBLE_EQ(flops_per_token_forward(*cross, 1), 352 + 2 * (320 + 10) + 56 + 2 * 32 * (4 * 4 + 3));
}

// Lengths between the shortest and the longest bag are taken to be equally frequent.
TEST(Recommender, BagsMayDifferInLengthAndHaveWeights) {
  const std::string text = replaced("pooling: mean, multi_hot: 3", "pooling: weighted, multi_hot: 5, fewest: 0");
  const auto model = parse_model(text, "m.yaml");
  ASSERT_TRUE(model) << base::render(model.error(), false);
  const Recommender& r = *model->recommender;
  EXPECT_EQ(r.tables[2].fewest, 0);
  EXPECT_EQ(r.indices(), 11);
  EXPECT_EQ(r.mean_indices(), 6);
  EXPECT_EQ(r.lookup_words(), 2);
  EXPECT_EQ(parameters_active(*model), 200 + 161 + 6 * 8);
  // One row added of 8 values, and 2.5 of each of the others, with a product each.
  EXPECT_DOUBLE_EQ(flops_per_token_forward(*model, 1), 352 + 300 + 96 + 8 * (1 + 2 * 2 * 2.5));
  const auto again = parse_model(write_model(*model), "again.yaml");
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, *model);
  EXPECT_EQ(parse_model(replaced("multi_hot: 3", "multi_hot: 3, fewest: 1"), "m.yaml")->recommender->lookup_words(), 2)
      << "a mean over bags of several lengths needs weights, too";
  EXPECT_EQ(
      parse_model(replaced("{rows: 50}", "{rows: 50, multi_hot: 9, fewest: 1}"), "m.yaml")->recommender->lookup_words(),
      1);
  EXPECT_NE(refusal(replaced("multi_hot: 3", "multi_hot: 3, fewest: 4")).find("m.yaml:5:69"), std::string::npos)
      << refusal(replaced("multi_hot: 3", "multi_hot: 3, fewest: 4"));
}

TEST(Recommender, BadNumbersAreRefusedWhereTheyStand) {
  EXPECT_NE(refusal(replaced("{rows: 50}", "{multi_hot: 2}")).find("E0102"), std::string::npos);
  EXPECT_NE(refusal(replaced("{rows: 50}", "{rows: 0}")).find("m.yaml:5:17"), std::string::npos);
  EXPECT_NE(refusal(replaced("[16, 8]", "[16, 9]"))
                .find("error[E0112]: the bottom MLP ends in 9 values, but interacts with vectors of embedding_dim 8\n"
                      " --> m.yaml:6:13"),
            std::string::npos)
      << refusal(replaced("[16, 8]", "[16, 9]"));
  EXPECT_NE(refusal(replaced("[10, 1]", "[10, 2]")).find("the top MLP ends in 2 values"), std::string::npos);
  EXPECT_NE(refusal(replaced("[{rows: 50}, {rows: 7, pooling: mean, multi_hot: 3, count: 2}]", "[]"))
                .find("a recommendation model without tables"),
            std::string::npos);
  EXPECT_NE(refusal(replaced("top_mlp", "cross_rank: 4\ntop_mlp")).find("cross layers belong to another interaction"),
            std::string::npos);
  EXPECT_NE(refusal(replaced("pooling: mean", "pooling: max")).find("E0106"), std::string::npos);
  EXPECT_NE(refusal(replaced("dense_features: 3", "hidden: 3")).find("E0103"), std::string::npos);
}

// "100 tables, 1.6 M parameters, 6.5 lookups on average": as papers and users say.
TEST(Recommender, TablesMayBeGivenByTheirAverages) {
  const auto read = [](const std::string& tables) {
    const std::string text = replaced("[{rows: 50}, {rows: 7, pooling: mean, multi_hot: 3, count: 2}]", tables);
    auto model = parse_model(text, "m.yaml");
    EXPECT_TRUE(model) << base::render(model.error(), false);
    return model ? *model : Model{};
  };
  const Model alike = read("[{count: 3, mean_rows: 20.4, mean_multi_hot: 1.5, pooling: mean}, {rows: 9}]");
  ASSERT_EQ(alike.recommender->tables.size(), 4U);
  EXPECT_EQ(alike.recommender->rows(), 61 + 9);
  EXPECT_EQ(alike.recommender->indices(), 5 + 1);
  EXPECT_EQ(alike.recommender->tables[1].rows, 20);
  EXPECT_EQ(alike.recommender->tables[2].pooling, Pooling::mean);
  ASSERT_EQ(alike.sources.size(), 1U);
  EXPECT_EQ(alike.sources[0],
            "assumed: 3 tables; rows 20.33333333 on average, all alike; lookups 1.666666667 on average, all alike");

  const std::string spread =
      "[{count: 100, parameters: 1.6e6, mean_multi_hot: 6.5, spread: {rows: 1.5, multi_hot: 0.8}}]";
  const Model model = read(spread);
  const Recommender& r = *model.recommender;
  EXPECT_EQ(r.rows() * r.embedding_dim, 1'600'000);
  EXPECT_EQ(r.indices(), 650);
  // Logarithms of rows have the spread; rows rise, and lookups do not follow them.
  double mean = 0, squares = 0, together = 0;
  for (std::size_t i = 0; i < 100; ++i) {
    const double rows = std::log(static_cast<double>(r.tables[i].rows));
    mean += rows / 100;
    squares += rows * rows / 100;
    together += (static_cast<double>(i) - 49.5) * static_cast<double>(r.tables[i].multi_hot);
    if (i > 0) {
      EXPECT_GE(r.tables[i].rows, r.tables[i - 1].rows);
    }
  }
  EXPECT_NEAR(std::sqrt(squares - mean * mean), 1.5, 0.05);
  EXPECT_LT(std::abs(together), 0.3 * 650 * 29) << "of at most about 650 x 29, if the longest bags came last";
  EXPECT_EQ(read(spread), model) << "nothing is drawn anew";
  const auto again = parse_model(write_model(model), "again.yaml");
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(*again, model);
}

TEST(Recommender, BadAveragesAreRefusedWhereTheyStand) {
  const auto refused = [](const std::string& table, const std::string& what, int column) {
    const std::string found = refusal(replaced("{rows: 50}", table));
    EXPECT_NE(found.find(what), std::string::npos) << found;
    EXPECT_NE(found.find("m.yaml:5:" + std::to_string(column)), std::string::npos) << found;
  };
  refused("{mean_rows: 20}", "an average of how many tables?", 10);
  refused("{count: 4, mean_rows: 20, rows: 3}", "the tables' rows are given twice", 42);
  refused("{count: 4, mean_rows: 20, parameters: 3e6}", "the tables' rows are given twice", 48);
  refused("{count: 4, rows: 20, multi_hot: 2, mean_multi_hot: 2}", "the tables' lookups are given twice", 42);
  refused("{count: 4, rows: 20, spread: {rows: 1}}", "nothing says the average that rows spread around", 46);
  refused("{count: 4, parameters: 20}", "less than one row a table", 33);
  refused("{count: 9, mean_rows: 2e9, spread: {rows: 3}}", "the largest table would have", 32);
  refused("{count: 4, mean_rows: 20, mean_multi_hot: 3, fewest: 1}", "not an average", 63);
  refused("{count: 4, mean_rows: 20, spread: {rows: -1}}", "E0105", 51);
  refused("{count: 4, mean_rows: 20, spread: {row: 1}}", "E0103", 45);
}

// Of 100 lookups of 64 values: the gradient is read, the row read and written; and so are Adam's two moments.
TEST(Recommender, AnUpdateOfTablesMovesItsStatesToo) {
  Op op;
  op.kind = OpKind::embedding_bag_update;
  op.n = 100;
  op.m = 64;
  op.out = {0, -1, 2};
  const double row = 4.0 * 64 * 100, sorted = 24 * 100;
  EXPECT_DOUBLE_EQ(bytes_of(op), 3 * row + sorted);
  op.out[1] = 1;
  op.rule = UpdateRule::adagrad;
  EXPECT_DOUBLE_EQ(bytes_of(op), 3 * row + sorted + 8 * 100) << "a state a row, read and written";
  op.rule = UpdateRule::adam;
  EXPECT_DOUBLE_EQ(bytes_of(op), 7 * row + sorted);
  op.kind = OpKind::table_update;
  EXPECT_DOUBLE_EQ(bytes_of(op), 7 * 4.0 * 64);
}

TEST(Recommender, TheCatalogueHasThePublishedSizes) {
  const auto parameters_of = [](const char* name) {
    std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/models/catalog/" + name + ".yaml");
    std::ostringstream text;
    text << in.rdbuf();
    const auto model = parse_model(text.str(), name);
    EXPECT_TRUE(model) << base::render(model.error(), false);
    return model ? *model : Model{};
  };
  const Model criteo = parameters_of("dlrm-criteo"), dcn = parameters_of("dcnv2-criteo");
  EXPECT_EQ(criteo.recommender->rows(), 187'767'399);
  EXPECT_EQ(criteo.recommender->indices(), 26);
  EXPECT_EQ(dcn.recommender->rows(), 204'184'588);
  EXPECT_EQ(dcn.recommender->indices(), 214);
  struct Published {
    const char* name;
    double parameters, mflops, tolerance;
  };
  // FLOPs a sample as stated, forward; what is assumed of the shapes comes within a share of them.
  for (const Published& one : {Published{"zionex-95b", 95e9, 89, 0.15}, Published{"zionex-332b", 332e9, 60, 0.15},
                               Published{"zionex-793b", 793e9, 638, 0.15}, Published{"zionex-845b", 845e9, 784, 0.15},
                               Published{"zionex-12t", 12e12, 5, 0.4}}) {
    const Model model = parameters_of(one.name);
    EXPECT_NEAR(static_cast<double>(parameters(model)), one.parameters, 0.01 * one.parameters) << one.name;
    EXPECT_NEAR(flops_per_token_forward(model, 1) / 1e6, one.mflops, one.tolerance * one.mflops) << one.name;
  }
}

}  // namespace recommender_test
}  // namespace orrery::models
