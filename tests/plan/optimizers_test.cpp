// The table of optimizers: a row for each kind, keys that jobs take and no others, all of it on the page of formats.
#include "plan/spec/optimizers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "plan/spec/job.h"
#include "plan/spec/plan.h"

namespace orrery::plan {
namespace optimizers_test {

// Does not compile until it names every kind.
bool is_kind(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::adamw:
    case OptimizerKind::sgd:
    case OptimizerKind::lamb:
    case OptimizerKind::adafactor:
    case OptimizerKind::adamw_8bit:
    case OptimizerKind::lion:
    case OptimizerKind::rowwise_adagrad:
    case OptimizerKind::adam:
    case OptimizerKind::muon:
    case OptimizerKind::adamw_bf16: return true;
  }
  return false;
}

struct Key {
  const char* name;
  const char* value;
  bool OptimizerKeys::*taken;
};
constexpr Key kKeys[] = {
    {"beta1", "0.5", &OptimizerKeys::betas},         {"beta2", "0.5", &OptimizerKeys::betas},
    {"epsilon", "1e-3", &OptimizerKeys::epsilon},    {"momentum", "0.5", &OptimizerKeys::momentum},
    {"nesterov", "true", &OptimizerKeys::nesterov},  {"adaptive", "false", &OptimizerKeys::factors},
    {"clip_update", "2", &OptimizerKeys::factors},   {"decay_power", "0.5", &OptimizerKeys::factors},
    {"adamw", "{beta1: 0.5}", &OptimizerKeys::adamw}};

base::Result<Job> job_with(const std::string& optimizer) {
  return parse_job(
      fmt::format("model: gpt2-124m\ncluster: localhost-2\nbatch: 8\ntraining: {{optimizer: {{{}}}}}\n", optimizer),
      "job.yaml");
}

TEST(Optimizers, HaveARowForEachKindWithANameOfItsOwn) {
  std::size_t kinds = 0;
  while (is_kind(static_cast<OptimizerKind>(kinds))) ++kinds;
  EXPECT_EQ(kinds, kOptimizers.size());
  std::set<std::string> names;
  for (const OptimizerTraits& one : kOptimizers) {
    EXPECT_STREQ(name_of(one.kind), one.name);
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
  }
}

TEST(Optimizers, TakeTheDefaultsOfTheirRow) {
  for (const OptimizerTraits& one : kOptimizers) {
    const auto job = job_with(fmt::format("name: {}", one.name));
    ASSERT_TRUE(job) << base::render(job.error(), false);
    const Optimizer& o = job->training.optimizer;
    EXPECT_EQ(o.kind, one.kind);
    EXPECT_EQ(o.learning_rate, one.learning_rate) << one.name;
    EXPECT_EQ(o.beta1, one.beta1) << one.name;
    EXPECT_EQ(o.beta2, one.beta2) << one.name;
    EXPECT_EQ(o.epsilon, one.epsilon) << one.name;
    EXPECT_EQ(o.weight_decay, one.weight_decay) << one.name;
    EXPECT_EQ(o.momentum, one.momentum) << one.name;
  }
}

TEST(Optimizers, TakeTheKeysOfTheirRowAndNoOthers) {
  for (const OptimizerTraits& one : kOptimizers) {
    std::string all = fmt::format("name: {}", one.name);
    for (const Key& key : kKeys) {
      const std::string given = fmt::format(", {}: {}", key.name, key.value);
      if (one.keys.*key.taken) {
        all += given;
        continue;
      }
      const auto job = job_with(fmt::format("name: {}{}", one.name, given));
      ASSERT_FALSE(job) << one.name << given;
      EXPECT_EQ(job.error().front().code, "E0103") << one.name << given;
    }
    const auto job = job_with(all);
    ASSERT_TRUE(job) << all << '\n' << base::render(job.error(), false);
    const auto again = parse_job(write_job(*job), "job.yaml");
    ASSERT_TRUE(again) << base::render(again.error(), false);
    EXPECT_EQ(*again, *job) << all;
    EXPECT_EQ(job_with(all + ", weight_decay: 0.25").has_value(), one.decays) << all;
  }
}

TEST(Optimizers, StandOnThePageOfFormatsWithTheirKeys) {
  std::stringstream page;
  page << std::ifstream(ORRERY_SOURCE_DIR "/docs/formats.md").rdbuf();
  for (const OptimizerTraits& one : kOptimizers) {
    const std::size_t begin = page.str().find(fmt::format("\n| `{}` | ", one.name));
    ASSERT_NE(begin, std::string::npos) << one.name;
    const std::string row = page.str().substr(begin + 1, page.str().find('\n', begin + 1) - begin - 1);
    if (row.find("| as `adamw` |") != std::string::npos) continue;
    const std::size_t first = row.find(" | ") + 3;
    std::string given = row.substr(first, row.find(" | ", first) - first);  // what a job writes
    if (const auto inner = given.find("adamw: {"); inner != std::string::npos && one.keys.adamw)
      given.erase(inner + std::string_view("adamw: ").size(), given.find('}', inner) - inner);
    for (const Key& key : kKeys) {
      const bool found = given.find(fmt::format("{}: ", key.name)) != std::string::npos;
      EXPECT_EQ(found, one.keys.*key.taken) << one.name << ": " << key.name << " in " << given;
    }
  }
}

}  // namespace optimizers_test
}  // namespace orrery::plan
