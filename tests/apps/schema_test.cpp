// The schemas of files, held against files that the command writes itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace schema_test {

using nlohmann::json;

bool has_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

std::string wrong(const json& schema, const json& value, const std::string& path);

std::string wrong_in_map(const json& schema, const json& value, const std::string& path) {
  const json properties = schema.value("properties", json::object());
  for (const json& key : schema.value("required", json::array()))
    if (!value.contains(key.get<std::string>())) return path + " lacks " + key.get<std::string>();
  for (const auto& [key, one] : value.items()) {
    if (!properties.contains(key)) {
      if (schema.value("additionalProperties", true)) continue;
      return path + " has no key " + key;
    }
    if (std::string what = wrong(properties.at(key), one, path + "." + key); !what.empty()) return what;
  }
  return {};
}

/// The first thing in a value that its schema refuses; empty: none. As much of JSON Schema as Orrery writes.
std::string wrong(const json& schema, const json& value, const std::string& path) {
  if (schema.contains("anyOf")) {
    std::string first;
    for (const json& way : schema.at("anyOf")) {
      const std::string what = wrong(way, value, path);
      if (what.empty()) return {};
      if (first.empty() || what.size() > first.size()) first = what;
    }
    return first;
  }
  if (schema.contains("enum")) {
    const json& words = schema.at("enum");
    return std::find(words.begin(), words.end(), value) == words.end() ? path + " is none of its words" : "";
  }
  if (schema.contains("type")) {
    const json types = schema.at("type").is_array() ? schema.at("type") : json::array({schema.at("type")});
    if (std::none_of(types.begin(), types.end(), [&](const json& t) { return has_type(value, t); }))
      return path + " is no " + schema.at("type").dump();
  }
  if (value.is_number() && schema.contains("minimum") && value < schema.at("minimum")) return path + " is too small";
  if (value.is_string() && schema.contains("pattern") &&
      !std::regex_search(value.get<std::string>(), std::regex(schema.at("pattern").get<std::string>())))
    return path + " is no quantity: " + value.dump();
  if (value.is_object()) return wrong_in_map(schema, value, path);
  if (value.is_array() && schema.contains("items"))
    for (const json& item : value)
      if (std::string what = wrong(schema.at("items"), item, path + "[]"); !what.empty()) return what;
  return {};
}

json schema_of(const std::string& kind) {
  const Ran ran = orrery({"schema", kind});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  return json::parse(ran.out);
}

TEST(Schema, EveryPlanThatTheCommandWritesIsValid) {
  const json schema = schema_of("plan");
  for (const char* job :
       {"examples/gpt3-175b-a100-1024.yaml", "examples/tiny-gpt-localhost-2.yaml", "examples/tiny-moe-localhost-2.yaml",
        "examples/dlrm-criteo-zionex-128.yaml", "examples/tiny-dlrm-localhost-2.yaml"}) {
    json plan = orrery({"plan", job, "--json", "--top", "1"}).result().at("plans").at(0).at("plan");
    EXPECT_EQ(wrong(schema, plan, "plan"), "") << job;
    json broken = plan;
    broken["plan"]["tensr"] = 2;
    EXPECT_EQ(wrong(schema, broken, "file"), "file.plan has no key tensr") << job;
    broken = plan;
    broken["job"]["precision"] = "float16";
    EXPECT_NE(wrong(schema, broken, "file"), "") << job;
    plan.erase("model");
    EXPECT_EQ(wrong(schema, plan, "file"), "file lacks model") << job;
  }
}

TEST(Schema, AJobsBoundsTakeAValueOrAList) {
  const json schema = schema_of("job");
  const auto job = [&](const json& tensor) {
    const json file = {{"model", "m"}, {"cluster", "c"}, {"batch", 8}, {"plan", {{"tensor", tensor}}}};
    return wrong(schema, file, "job");
  };
  EXPECT_EQ(job(2), "");
  EXPECT_EQ(job(json::array({1, 2})), "");
  EXPECT_NE(job("two"), "");
  EXPECT_NE(wrong(schema, {{"model", "m"}, {"cluster", "c"}}, "job"), "") << "the batch is required";
  const json& optimizer = schema.at("properties").at("training").at("properties").at("optimizer");
  EXPECT_TRUE(optimizer.at("properties").contains("learning_rate")) << optimizer.dump();
  EXPECT_TRUE(optimizer.at("properties").contains("momentum")) << "of sgd";
}

TEST(Schema, KnowsClustersModelsAndStacks) {
  EXPECT_TRUE(schema_of("cluster").at("properties").contains("node"));
  EXPECT_TRUE(schema_of("model").dump().find("hidden") != std::string::npos);
  EXPECT_TRUE(schema_of("stack").at("properties").contains("overlap"));
  EXPECT_EQ(orrery({"schema", "poem"}).exit_code, 2);
  EXPECT_EQ(orrery({"schema", "job", "--json"}).result().at("kind"), "job");
  EXPECT_THAT(orrery({"init", "-"}).out, ::testing::HasSubstr("# yaml-language-server: $schema=job.schema.json"));
}

TEST(Schema, AStackTakesWhatAFitToRowsWrites) {
  const json ground = {{"device", "A100-SXM4-80GB"},      {"architecture", "ampere"}, {"peak", "312 TFLOPS"},
                       {"memory_bandwidth", "2039 GB/s"}, {"mixtures", false},        {"adapters", true}};
  json fitted = {{"like", "generic-eager"},
                 {"rows", 16},
                 {"median_error", 0.05},
                 {"p90_error", 0.1},
                 {"time", {{"low", 0.9}, {"high", 1.1}}},
                 {"memory", {{"low", 0.95}, {"high", 1.05}}},
                 {"grounds", json::array({ground})}};
  const json schema = schema_of("stack").at("properties").at("fitted");
  EXPECT_EQ(wrong(schema, fitted, "fitted"), "");
  EXPECT_TRUE(schema.at("properties").at("grounds").dump().find("memory_bandwidth") != std::string::npos);
  fitted.erase("rows");
  EXPECT_EQ(wrong(schema, fitted, "fitted"), "fitted lacks rows");
}

}  // namespace schema_test
}  // namespace orrery::tests
