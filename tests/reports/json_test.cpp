/// JSON of the verbs: the promised keys, golden files, and that docs/json.md names every key.
#include "reports/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "plan/spec/fields.h"
#include "reports/saved.h"
#include "tests/reports/sample.h"

namespace orrery::reports {
namespace json_test {

using nlohmann::json;

std::string pretty(const json& value) {
  return value.dump(2) + "\n";
}

TrainSummary trained() {
  return {"runs/1", 20, 5.5451, 3.2101, 0.118, 4338.98, 166429491, true, 0, "cpu"};
}

void expect_keys(const json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) EXPECT_TRUE(object.contains(key)) << key << " is missing";
}

TEST(Envelope, HoldsVersionCommandResultAndDiagnostics) {
  const base::Diagnostic found{base::Severity::warning, "E0103", {"job.yaml", 3, 5, 4}, "unknown key 'modle'",
                               "did you mean 'model'?", {}};
  const json out = envelope("plan", {{"plans", json::array()}}, {found});
  EXPECT_EQ(out.dump(),
            R"({"command":"plan","diagnostics":[{"code":"E0103","column":5,"file":"job.yaml","help":"did you mean )"
            R"('model'?","level":"warning","line":3,"message":"unknown key 'modle'"}],"format_version":"1.0",)"
            R"("result":{"plans":[]}})");
}

TEST(PlanJson, HoldsThePromisedKeys) {
  const json out = plan_json(sample::search());
  expect_keys(out["plans"][0],
              {"plan", "data", "tensor", "pipeline", "context", "expert", "virtual_stages", "zero_stage", "micro_batch",
               "schedule", "recompute", "step_time_s", "memory_peak_bytes", "memory_capacity_bytes", "mfu",
               "bubble_fraction", "exposed_communication_s", "cost_per_step_usd"});
  expect_keys(out["search"], {"candidates", "feasible", "evaluated", "seconds", "optimality_gap", "rejected"});
  EXPECT_EQ(out["plans"][0]["schedule"], "1f1b");
  EXPECT_EQ(out["plans"][1]["recompute"], "full");
  EXPECT_TRUE(out["plans"][0]["memory_peak_bytes"].is_number_integer());
}

TEST(PlanJson, AGapThatNobodyComputedIsNull) {
  cost::SearchResult result = sample::search();
  result.optimality_gap = 0.01;
  EXPECT_EQ(plan_json(result)["search"]["optimality_gap"], 0.01);
  result.optimality_gap.reset();
  EXPECT_TRUE(plan_json(result)["search"]["optimality_gap"].is_null());
}

TEST(PlanJson, CarriesTheWholePlanWhenGivenOne) {
  const json out = plan_json(sample::search(), [](const plan::PlanSpec& s) { return json{{"ranks", s.mesh.ranks()}}; });
  EXPECT_EQ(out["plans"][0]["plan"], (json{{"ranks", 128}}));
}

TEST(PlanJson, HasEveryFieldOfAPlan) {
  const json split = simulate_json(sample::prediction()).at("plan");
  plan::for_each_field(plan::kFields, [&](const auto& field) {
    const json& group = *field.group == '\0' ? split : split.at(field.group);
    EXPECT_TRUE(group.contains(field.key)) << field.group << "." << field.key;
  });
}

TEST(SimulateJson, HoldsThePromisedKeys) {
  const json out = simulate_json(sample::prediction());
  expect_keys(
      out, {"step_time_s", "memory_peak_bytes", "memory_by_stage_bytes", "bubble_fraction", "exposed_communication_s",
            "tokens_per_s", "mfu", "simulation_seconds", "breakdown_s", "communication", "links"});
  expect_keys(out["communication"][0],
              {"dimension", "operation", "count", "bytes", "time_s", "exposed_s", "bus_bandwidth_bytes_per_s"});
  expect_keys(out["links"][0], {"class", "bytes", "mean_utilisation", "peak_utilisation"});
  EXPECT_EQ(out["memory_by_stage_bytes"].size(), 4U);
}

TEST(SimulateJson, SaysWhereATorussDevicesRunTheRanks) {
  cost::Prediction p = sample::prediction();
  EXPECT_FALSE(simulate_json(p).contains("on_torus"));
  p.on_torus = "tensor 4 on 4 x 1, of a torus of 4 x 4";
  EXPECT_EQ(simulate_json(p).at("on_torus"), p.on_torus);
}

TEST(SavedPrediction, IsReadBackAsItWasWritten) {
  const cost::Prediction p = sample::prediction();
  const json written = simulate_json(p);
  const base::Document document = base::Document::parse(written.dump(), "p.json");
  SavedPrediction saved = read_prediction(document.root());
  EXPECT_FALSE(document.findings().failed());
  saved.prediction.spec = p.spec;
  EXPECT_EQ(simulate_json(saved.prediction), written);
}

TEST(SavedPrediction, WithoutAStepOrWithAWordForANumberIsRefusedWithItsPlace) {
  json written = simulate_json(sample::prediction());
  written.erase("step_time_s");
  written["mfu"] = "much";
  const base::Document document = base::Document::parse(written.dump(1), "p.json");
  (void)read_prediction(document.root());
  ASSERT_EQ(document.findings().all().size(), 2U);
  EXPECT_EQ(document.findings().all()[0].code, "E0102");
  EXPECT_EQ(document.findings().all()[1].code, "E0105");
  EXPECT_GT(document.findings().all()[1].where.line, 1);
}

TEST(TrainJson, HoldsThePromisedKeys) {
  expect_keys(train_json(trained()), {"steps", "first_loss", "final_loss", "step_time_s", "tokens_per_s",
                                      "memory_peak_bytes", "completed", "backend"});
}

TEST(CalibrateJson, HoldsThePromisedKeys) {
  const json out = calibrate_json(sample::fit());
  expect_keys(out, {"parameters", "error_before", "error_after", "held_out_error_after"});
  expect_keys(out["parameters"][0], {"name", "before", "after", "unit", "source"});
}

// Each key has the figure that it names: all of them differ here.
TEST(ModelJson, HasEachFigureUnderItsOwnKey) {
  models::Model model;
  model.name = "small", model.family = models::Family::llama;
  model.layers = 2, model.hidden = 32, model.heads = 8, model.kv_heads = 4, model.head_dim = 4;
  model.ffn_hidden = 96, model.vocab = 50, model.max_sequence = 64, model.tied_embeddings = false, model.bias = false;
  model.positions = models::Positions::rope, model.activation = models::Activation::swiglu;
  model.normalisation = models::Normalisation::rms_norm;
  const json out = model_json(model, 16);
  EXPECT_EQ(out["name"], "small");
  EXPECT_EQ(out["family"], "llama");
  EXPECT_EQ(out["layers"], 2);
  EXPECT_EQ(out["hidden"], 32);
  EXPECT_EQ(out["heads"], 8);
  EXPECT_EQ(out["kv_heads"], 4);
  EXPECT_EQ(out["ffn_hidden"], 96);
  EXPECT_EQ(out["vocab"], 50);
  EXPECT_EQ(out["max_sequence"], 64);
  EXPECT_EQ(out["sequence"], 16);
  // A block: q, k, v and the projection, three of the MLP, two norms; both tables and the last norm.
  const std::int64_t block = 32 * (32 + 2 * 16) + 32 * 32 + 3 * 32 * 96 + 2 * 32;
  EXPECT_EQ(out["parameters"], 2 * block + 2 * 50 * 32 + 32);
  EXPECT_EQ(out["parameters_active"], out["parameters"]);
  // Two for each weight of a product, and 4 T C of the full attention matrix.
  EXPECT_DOUBLE_EQ(out["flops_per_token_forward"].get<double>(),
                   2 * (2.0 * (block - 2 * 32) + 4 * 16 * 32) + 2 * 32 * 50);
}

TEST(Json, WritesNullForWhatIsNotANumber) {
  cost::Prediction p = sample::prediction();
  p.mfu = std::numeric_limits<double>::quiet_NaN();
  p.memory_peak_bytes = std::numeric_limits<double>::infinity();
  const json out = json::parse(simulate_json(p).dump());
  EXPECT_TRUE(out["mfu"].is_null());
  EXPECT_TRUE(out["memory_peak_bytes"].is_null());
}

TEST(Json, MatchesItsGoldenFiles) {
  const cost::ScalingStudy study = sample::scaling();
  sample::expect_golden("plan.json", pretty(envelope("plan", plan_json(sample::search()), {})));
  sample::expect_golden("simulate.json", pretty(envelope("simulate", simulate_json(sample::prediction()), {})));
  sample::expect_golden("train.json", pretty(envelope("train", train_json(trained()), {})));
  sample::expect_golden("calibrate.json", pretty(envelope("calibrate", calibrate_json(sample::fit()), {})));
  sample::expect_golden("report.json",
                        pretty(envelope("report", report_json("report.html", sample::runs(), &study), {})));
}

/// Every key of `value`, at any depth, except below those whose keys are data.
void collect(const json& value, std::set<std::string>& keys) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      keys.insert(key);
      if (key != "rejected" && key != "memory_by_purpose_bytes") collect(inner, keys);
    }
  } else if (value.is_array()) {
    for (const json& inner : value) collect(inner, keys);
  }
}

TEST(JsonDocumentation, NamesEveryKey) {
  std::ostringstream text;
  for (const char* page : {"json.md", "plan-fields.md"}) {  // which names those of groups as `group.key`
    std::ifstream file(std::string(ORRERY_SOURCE_DIR) + "/docs/" + page);
    ASSERT_TRUE(file) << page << " is missing";
    text << file.rdbuf();
  }
  const auto named = [&](const std::string& key) {
    return text.str().find("`" + key + "`") != std::string::npos ||
           text.str().find("." + key + "`") != std::string::npos;
  };
  models::Model model;
  model.layers = model.hidden = model.heads = model.kv_heads = model.head_dim = model.ffn_hidden = model.vocab = 4;
  model.max_sequence = 4;
  const cost::ScalingStudy study = sample::scaling();
  std::set<std::string> keys;
  for (const json& result : {plan_json(sample::search()), simulate_json(sample::prediction()), train_json(trained()),
                             calibrate_json(sample::fit()), model_json(model, 4),
                             report_json("", sample::runs(), &study), envelope("x", nullptr, {})})
    collect(result, keys);
  EXPECT_GT(keys.size(), 60U);
  for (const std::string& key : keys) EXPECT_TRUE(named(key)) << "docs/json.md does not name `" << key << "`";
}

}  // namespace json_test
}  // namespace orrery::reports
