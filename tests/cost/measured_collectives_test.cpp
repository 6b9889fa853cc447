/// Collectives that others measured: the file is read strictly, and the errors over its rows stay where they are.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>

#include "cost/network/collective_measurements.h"
#include "tests/clusters/support.h"

namespace orrery::cost {
namespace measured_collectives_test {

const std::string kFolder = std::string(ORRERY_SOURCE_DIR) + "/tests/validation/collectives/";

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

clusters::Cluster cluster_of(const CollectiveSeries& series) {
  clusters::Cluster one;
  if (series.cluster.ends_with(".yaml")) {
    const std::string path = kFolder + series.cluster;
    const auto parsed = clusters::parse_cluster(text_of(path), path, clusters::testing::from_catalog);
    if (!parsed) throw std::runtime_error(base::render(parsed.error(), false));
    one = *parsed;
  } else {
    one = clusters::testing::catalog(series.cluster);
  }
  return series.nodes == one.nodes ? one : *clusters::resized(one, series.nodes * one.devices_per_node);
}

/// A series and its machine, built once.
struct System {
  CollectiveSeries series;
  clusters::Cluster cluster;
};

std::vector<System> systems_of(const std::string& text) {
  const auto series = parse_measured_collectives(text, "published.yaml");
  if (!series) throw std::runtime_error(base::render(series.error(), false));
  std::vector<System> all;
  for (const CollectiveSeries& one : *series) all.push_back({one, cluster_of(one)});
  return all;
}

std::vector<System> published() {
  return systems_of(text_of(kFolder + "published.yaml"));
}

/// All rows, with the size at which transfers take twice as long multiplied by `scale`.
std::vector<PredictedCollective> rows_of(const std::vector<System>& all, double scale = 1) {
  std::vector<PredictedCollective> rows;
  for (const auto& [series, cluster] : all) {
    CollectiveSeries one = series;
    if (scale != 1) {
      Parameter half = defaults(cluster).parameters.at("network.size_half");
      half.value *= scale;
      one.parameters[half.name] = half;
    }
    for (PredictedCollective& row : predict_series(one, cluster)) rows.push_back(std::move(row));
  }
  return rows;
}

std::string table_of(const std::vector<PredictedCollective>& rows) {
  std::string out;
  for (const PredictedCollective& r : rows)
    out += fmt::format("{:22} {:12.0f} {:8.2f} {:8.2f} {:+6.1f} %  {} {}, {}\n", r.series, r.bytes, r.measured / 1e9,
                       r.predicted / 1e9, 100 * r.error, r.algorithm, r.protocol, name_of(r.standing));
  return out;
}

TEST(PublishedCollectives, ArePredictedAsWellAsBefore) {
  const std::vector<PredictedCollective> rows = rows_of(published());
  const CollectiveErrors errors = errors_of(rows);
  EXPECT_GE(errors.judged, 99);
  // What is promised is 10 % and 30 %; what is reached is written in docs/measurements.md.
  EXPECT_LE(errors.median, 0.045) << table_of(rows);
  EXPECT_LE(errors.p90, 0.16) << table_of(rows);
  EXPECT_LE(errors.worst, 0.27) << table_of(rows);
}

TEST(PublishedCollectives, OfEverySystemAreWithinTheBound) {
  for (const System& one : published()) {
    const std::vector<PredictedCollective> rows = rows_of({one});
    EXPECT_LE(errors_of(rows).worst, 0.30) << table_of(rows);
  }
}

// The one coefficient of the law of size, set to the other systems' rows alone, still holds for the system left out.
TEST(TheLawOfSize, CarriesOverToTheSystemLeftOut) {
  const std::vector<System> all = published();
  for (const char* left_out : {"a100-8-nvswitch", "h200-8-nvls", "b200-8", "b200-4x8-efa", "h100-2x8-a3-mega"}) {
    std::vector<System> others, held;
    for (const System& one : all) (one.series.id == left_out ? held : others).push_back(one);
    double best = 1, least = 1e9;
    for (double scale = 0.25; scale <= 4; scale *= std::pow(2, 0.25)) {
      const double mean = errors_of(rows_of(others, scale)).mean;
      if (mean < least) {
        least = mean;
        best = scale;
      }
    }
    EXPECT_GT(best, 0.5) << left_out;
    EXPECT_LT(best, 2) << left_out;
    const std::vector<PredictedCollective> rows = rows_of(held, best);
    EXPECT_LE(errors_of(rows).median, 0.10) << best << "\n" << table_of(rows);
    EXPECT_LE(errors_of(rows).worst, 0.30) << best << "\n" << table_of(rows);
  }
}

// What the published message-size curves of two level switches and one node say of speed: pricing is microseconds.
TEST(Collectives, Of1024DevicesArePricedInMuchLessThanTenMilliseconds) {
  const clusters::Cluster selene = *clusters::resized(clusters::testing::catalog("selene"), 1024);
  const Calibration c = defaults(selene);
  const std::vector<int> members = members_of(selene, 128, 0);
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kTimes = 20;
  double sum = 0;
  for (int i = 0; i < kTimes; ++i) {
    const clusters::GroupSpan span = clusters::span_of(selene, members);
    sum +=
        collective_time(collective_network(selene, c), Operation::all_reduce, span, 1024, base::Bytes{100e6 + i}).value;
  }
  const double each = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kTimes;
  RecordProperty("microseconds", std::to_string(each * 1e6));
  EXPECT_GT(sum, 0);
  EXPECT_LT(each, 5e-3);
}

std::string errors_in(const std::string& text) {
  const auto parsed = parse_measured_collectives(text, "rows.yaml");
  return parsed ? "" : base::render(parsed.error(), false);
}

TEST(MeasuredCollectives, AreReadStrictly) {
  const std::string head = "series:\n  - {id: a, source: s, cluster: dgx-a100, operation: all_reduce, ";
  EXPECT_EQ(errors_in(head + "rows: [[1 MiB, 2 GB/s]]}\n"), "");
  EXPECT_NE(errors_in(head + "rows: [[1 MiB, 2]]}\n"), "");                        // no unit
  EXPECT_NE(errors_in(head + "rows: [[1 MiB, -2 GB/s]]}\n"), "");                  // negative
  EXPECT_NE(errors_in(head + "rows: [[1 MiB]]}\n"), "");                           // no bandwidth
  EXPECT_NE(errors_in(head + "rows: [[1 MiB, 2 GB/s], [1 MiB, 3 GB/s]]}\n"), "");  // twice
  EXPECT_NE(errors_in(head + "rows: [[1 MiB, 2 GB/s]], fitted: [2 MiB]}\n"), "");  // no such row
  EXPECT_NE(errors_in(head + "rows: [[1 MiB, 2 GB/s]], colour: red}\n"), "");      // unknown key
  EXPECT_NE(errors_in("series:\n  - {id: a, source: s, cluster: c, operation: all_redcue, rows: []}\n"), "");
  EXPECT_NE(errors_in(head + "launch: {each: 3 us}, rows: [[1 MiB, 2 GB/s]]}\n"), "");  // no source
  EXPECT_NE(errors_in(head + "parameters: {network.inter.efficency: {value: 1, source: s}}, rows: []}\n"), "");
  const std::string row = "{id: a, source: s, cluster: c, operation: send, rows: [[1 MiB, 2 GB/s]]}";
  EXPECT_NE(errors_in("series: [" + row + ", " + row + "]\n"), "");  // one name twice
}

TEST(MeasuredCollectives, AreJudgedFromAMegabyteUnlessFittedOrLeftOut) {
  const std::vector<System> systems = systems_of(
      "series:\n"
      "  - {id: a, source: s, cluster: dgx-a100, operation: all_gather, launch: {floor: 1 ms, each: 1 us, source: s},\n"
      "     fitted: [2 MiB], rows: [[64 KiB, 1 GB/s], [2 MiB, 1 GB/s], [1 GB, 100 GB/s]]}\n"
      "  - {id: b, source: s, cluster: dgx-a100, operation: all_gather, left_out: loaded, rows: [[1 GB, 1 GB/s]]}\n");
  const std::vector<PredictedCollective> rows = rows_of(systems);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].standing, Standing::small);
  EXPECT_EQ(rows[1].standing, Standing::fitted);
  EXPECT_EQ(rows[2].standing, Standing::judged);
  EXPECT_EQ(rows[3].standing, Standing::left_out);
  EXPECT_NEAR(rows[0].predicted, 65536 * 0.875 / 1e-3, 1e-6);  // the floor
  const double seconds = 1e-6 + (8.4 + 7 * 3.4) * 1e-6 + 1e9 / (240e9 * 8 / 7);
  EXPECT_NEAR(rows[2].seconds, seconds, 1e-12);
  EXPECT_NEAR(rows[2].error, 0.875e9 / seconds / 100e9 - 1, 1e-9);
  const CollectiveErrors errors = errors_of(rows);
  EXPECT_EQ(errors.judged, 1);
  EXPECT_DOUBLE_EQ(errors.median, std::abs(rows[2].error));
}

}  // namespace measured_collectives_test
}  // namespace orrery::cost
