// What export writes, import reads back as the same plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "models/read/read.h"
#include "plan/frameworks/import.h"
#include "reports/exports/frameworks.h"
#include "tests/plan/samples.h"

namespace orrery::reports {
namespace round_trip_test {

/// Leaves out what has no meaning where it stands, so that equal plans are equal values.
plan::PlanSpec meaning(plan::PlanSpec s) {
  if (s.mesh.replicas() == 1) s.states.zero_stage = 0;
  if (s.states.zero_group == s.mesh.replicas()) s.states.zero_group = 0;
  s.states.overlap_gradients = s.reduces_early();
  s.mesh.sequence_parallel = s.mesh.shards_rows();
  if (s.recomputation.what == plan::Recompute::selective && s.recompute_of(0).modules.empty()) s.recomputation = {};
  if (s.recomputation.what != plan::Recompute::full) s.recomputation.partition_checkpoints = false;
  s.stages.ends_as_layers = false;  // the layers of each stage say it
  return s;
}

struct Trip {
  int exported = 0, other = 0;
  std::string first;  ///< what differs
};

models::Model llama3_8b() {
  std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/models/catalog/llama3-8b.yaml");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  return models::parse_model(text, "llama3-8b.yaml").value();
}

Trip round_trip(Framework framework, plan::RunFormat format, const char* name) {
  Trip out;
  const bool titan = framework == Framework::torchtitan;
  const models::Model trained = titan ? llama3_8b() : samples::tiny_gpt();  // torchtitan has models of its own alone
  for (const auto& [title, split] : samples::splits()) {
    plan::PlanSpec spec = split;
    spec.numerics.precision = models::DType::bf16;
    if (titan) {
      spec.mesh.sequence_parallel = spec.mesh.tensor > 1, spec.numerics.vocab_multiple = 1;
      spec.states.overlap_gradients = spec.mesh.replicas() > 1 && spec.states.zero_stage < 2;  // its DDP always does
    }
    plan::PlanFile file;
    file.model = trained;
    file.cluster = samples::cpu_cluster(spec.mesh.ranks());
    const auto plan = samples::try_make(spec, file.model);
    if (!plan) continue;
    file.spec = plan->spec();
    file.job.training.optimizer = plan::usual(plan::OptimizerKind::adamw);
    const auto text = settings_for(framework, file, *plan, "plan.yaml");
    if (!text) continue;
    ++out.exported;
    std::vector<plan::RunFile> files = {{text->text, name, format}};
    plan::RunQuestion question;
    question.name = file.model.name;
    if (framework == Framework::deepspeed) {
      question.model = "tiny";
      question.set["sequence_length"] = std::to_string(spec.shape.sequence);
    }
    if (framework != Framework::megatron) {
      question.find_model = [&](const std::string&) { return base::Result<models::Model>(file.model); };
    }
    const auto run = plan::import_run(files, question);
    const auto again = run ? samples::try_make(run->spec, file.model) : tl::unexpected(run.error());
    std::string differs;
    if (!again)
      differs = base::render(again.error(), false);
    else if (meaning(again->spec()) != meaning(plan->spec()))
      differs = plan::describe(again->spec()) + ", not " + plan::describe(plan->spec());
    else if (run->training.optimizer != file.job.training.optimizer)
      differs = "the optimizer";
    else if (framework == Framework::megatron) {
      models::Model model = run->model;
      model.sources = file.model.sources;
      differs = models::first_difference(model, file.model);
    }
    if (differs.empty()) continue;
    ++out.other;
    if (out.first.empty()) out.first = title + ": " + differs;
  }
  return out;
}

TEST(RoundTrip, MegatronsFlagsAreReadBackAsTheSamePlan) {
  const Trip trip = round_trip(Framework::megatron, plan::RunFormat::megatron, "train.sh");
  EXPECT_GT(trip.exported, 50);
  EXPECT_EQ(trip.other, 0) << trip.first;
}

TEST(RoundTrip, DeepSpeedsConfigurationIsReadBackAsTheSamePlan) {
  const Trip trip = round_trip(Framework::deepspeed, plan::RunFormat::deepspeed, "ds.json");
  EXPECT_GT(trip.exported, 3);
  EXPECT_EQ(trip.other, 0) << trip.first;
}

TEST(RoundTrip, TorchtitansConfigurationIsReadBackAsTheSamePlan) {
  const Trip trip = round_trip(Framework::torchtitan, plan::RunFormat::torchtitan, "titan.toml");
  EXPECT_GT(trip.exported, 10);
  EXPECT_EQ(trip.other, 0) << trip.first;
}

TEST(RoundTrip, AFlagThatIsTakenOutIsMissed) {
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.mesh.tensor = 2;
  plan::PlanFile file;
  file.model = samples::tiny_gpt();
  file.cluster = samples::cpu_cluster(4);
  const plan::Plan plan = samples::make(spec, file.model);
  file.spec = plan.spec();
  std::string text = settings_for(Framework::megatron, file, plan, "plan.yaml")->text;
  const std::string flag = "  --tensor-model-parallel-size 2\n";
  text.erase(text.find(flag), flag.size());
  const auto run = plan::import_run({{text, "train.sh", plan::RunFormat::megatron}}, {});
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_NE(meaning(run->spec), meaning(plan.spec()));
}

}  // namespace round_trip_test
}  // namespace orrery::reports
