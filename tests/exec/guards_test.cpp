// The guards of a run: each with a fault that it must find, and with what it must let pass.
#include "exec/run/guards.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

#include "exec/engine/thread_transport.h"
#include "exec/files/files.h"
#include "exec/files/safetensors.h"
#include "exec/run/faults.h"
#include "exec/run/spikes.h"
#include "exec/state/checkpoint.h"
#include "exec/state/initialise.h"
#include "exec/state/state_hash.h"
#include "plan/lower/lower.h"
#include "tests/exec/guarded.h"

namespace orrery::exec {
namespace guards_test {

namespace fs = std::filesystem;
using testing::Guarded;
using testing::Outcome;
using testing::run_guarded;
using testing::small_trial;
using testing::Trial;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Guarding : public ::testing::Test {
 protected:
  Guarding() : folder_(fs::temp_directory_path() / ("orrery-guards-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Guarding() override { fs::remove_all(folder_); }

  [[nodiscard]] Guarded go(const Trial& trial, const std::string& faults, std::int64_t hash_every,
                           const std::function<void(RunOptions&)>& more = {}) const {
    return run_guarded(trial, run(), [&](RunOptions& o) {
      o.faults = faults;
      o.guards.hash_every = hash_every;
      if (more) more(o);
    });
  }
  [[nodiscard]] fs::path run() const { return folder_ / "run"; }
  [[nodiscard]] bool saved(const char* step) const { return fs::exists(run() / "checkpoints" / step); }
  [[nodiscard]] bool recorded() const { return fs::exists(run() / "completed.json"); }
  /// All ranks were told, and the run has no record of an end and no unfinished checkpoint.
  void expect_ended(const Guarded& ended, const std::string& code, const std::string& words) const {
    EXPECT_EQ(ended.failure, "");
    for (const base::Diagnostics& one : ended.found) EXPECT_FALSE(one.empty());
    EXPECT_NE(ended.text().find("error[" + code + "]"), std::string::npos) << ended.text();
    EXPECT_NE(ended.text().find(words), std::string::npos) << ended.text();
    EXPECT_FALSE(recorded());
    if (!fs::exists(run() / "checkpoints")) return;
    for (const auto& entry : fs::directory_iterator(run() / "checkpoints"))
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  }
  fs::path folder_;
};

// -- replicas

TEST_F(Guarding, AFlippedWeightOfOneReplicaIsFoundAtTheNextLookAndNeverSaved) {
  const Guarded ended = go(small_trial(4, 12), "flip:rank=2,step=6,part=3,element=7,bit=22", 0,
                           [](RunOptions& o) { o.checkpoint_every = 4; });
  expect_ended(ended, "R0025", "after step 8");
  EXPECT_NE(ended.text().find("(weight) on rank 2, unlike the 3 others that hold it"), std::string::npos)
      << ended.text();
  EXPECT_TRUE(saved("step-000004"));
  EXPECT_FALSE(saved("step-000008")) << "what differs between replicas is no checkpoint";
}

TEST_F(Guarding, OfTwoReplicasThatDifferBothAreNamed) {
  const Guarded ended = go(small_trial(2, 12), "flip:rank=1,step=6,part=3,element=7,bit=22", 4);
  expect_ended(ended, "R0025", "after step 8");
  EXPECT_NE(ended.text().find("(weight) on ranks 0, 1"), std::string::npos) << ended.text();
}

TEST_F(Guarding, AFlippedMomentAndAFlippedMasterAreFound) {
  Trial trial = small_trial(2, 8);
  EXPECT_NE(go(trial, "flip:rank=0,step=3,state=second_moment,part=5,bit=29", 4).text().find("R0025"),
            std::string::npos);
  trial.spec.numerics.precision = models::DType::bf16;
  const Guarded ended = go(trial, "flip:rank=0,step=3,state=master,part=5,bit=22", 4);
  EXPECT_NE(ended.text().find("(master)"), std::string::npos) << ended.text();
}

TEST_F(Guarding, ANormThatTensorRanksShareAndATiedTableOfTwoStagesAreCompared) {
  Trial tensor = small_trial(1, 8);
  tensor.spec.mesh.tensor = 2;
  // The parts of a layer in their order: its norm is the first, and whole on both ranks.
  const Guarded norm = go(tensor, "flip:rank=1,step=3,part=2,bit=22", 4);
  EXPECT_NE(norm.text().find("error[R0025]"), std::string::npos) << norm.text();
  Trial tied = small_trial(1, 8);
  tied.spec.mesh.pipeline = 2;
  const Guarded table = go(tied, "flip:rank=0,step=3,part=0,element=5,bit=22", 4);
  EXPECT_NE(table.text().find("wte.weight (weight) on ranks 0, 1 (stages 0, 1)"), std::string::npos) << table.text();
}

TEST_F(Guarding, EqualReplicasOfAllKindsOfStatesPass) {
  const auto passes = [&](const char* what, const std::function<void(Trial&)>& set) {
    Trial trial = small_trial(2, 4);
    set(trial);
    const Guarded ended = go(trial, "", 1);
    EXPECT_TRUE(ended.completed()) << what << ": " << ended.text() << ended.failure;
    EXPECT_TRUE(recorded()) << what;
  };
  passes("plain", [](Trial&) {});
  passes("tensor 2 with rows", [](Trial& t) { t.spec.mesh.tensor = 2, t.spec.mesh.sequence_parallel = true; });
  for (int stage = 1; stage <= 3; ++stage) passes("ZeRO", [&](Trial& t) { t.spec.states.zero_stage = stage; });
  passes("ZeRO in groups",
         [](Trial& t) { t.spec.mesh.data = 4, t.spec.states.zero_stage = 2, t.spec.states.zero_group = 2; });
  passes("8-bit moments", [](Trial& t) { t.training.optimizer.kind = plan::OptimizerKind::adamw_8bit; });
  passes("factors", [](Trial& t) { t.training.optimizer.kind = plan::OptimizerKind::adafactor; });
  passes("factors of experts", [](Trial& t) {
    t.training.optimizer.kind = plan::OptimizerKind::adafactor;
    t.model.experts = {.count = 4, .chosen = 2, .hidden = 16};
    t.spec.mesh.expert = 2;
  });
  passes("factors of experts on pairs of ranks", [](Trial& t) {
    t.training.optimizer.kind = plan::OptimizerKind::adafactor;
    t.model.experts = {.count = 4, .chosen = 2, .hidden = 16};
    t.spec.mesh.data = 4, t.spec.mesh.expert = 2;
  });
  passes("Muon", [](Trial& t) { t.training.optimizer.kind = plan::OptimizerKind::muon, t.spec.mesh.tensor = 2; });
  passes("LAMB", [](Trial& t) { t.training.optimizer.kind = plan::OptimizerKind::lamb; });
  passes("fp16", [](Trial& t) { t.spec.numerics.precision = models::DType::fp16; });
  passes("PowerSGD", [](Trial& t) {
    t.spec.compression.gradients = plan::GradientCompression::powersgd;
    t.spec.compression.minimum_rate = 1.1;
  });
  passes("stages", [](Trial& t) { t.spec.mesh.pipeline = 2; });
  passes("a pipeline that does not drain", [](Trial& t) {
    t.spec.mesh.pipeline = 2, t.spec.stages.order = plan::Order::pipedream, t.spec.shape.micro_batch = 4;
  });
  passes("two versions of weights",
         [](Trial& t) { t.spec.mesh.pipeline = 2, t.spec.stages.order = plan::Order::pipedream_2bw; });
  passes("a parameter server", [](Trial& t) { t.spec.states.staleness = 1; });
  passes("a model that stands twice", [](Trial& t) {
    t.spec.mesh.pipeline = t.spec.stages.virtual_stages = 2, t.spec.stages.order = plan::Order::dualpipe;
  });
}

// An evaluation's activations lie beside all versions that a worker keeps, and cost the training no bit.
TEST_F(Guarding, AnEvaluationLeavesTheVersionsOfAParameterServersWorkersAlone) {
  for (const int staleness : {2, 3}) {
    Trial trial = small_trial(2, 6);
    trial.steps = trial.training.steps;
    trial.spec.states.staleness = staleness;
    const auto trained = [&](bool evaluates) {
      trial.training.evaluation.reset();
      if (evaluates) trial.training.evaluation = plan::Evaluation{trial.training.data, 2, 2};
      fs::remove_all(run());
      const Guarded ended = go(trial, "", 1);
      EXPECT_TRUE(ended.completed()) << "staleness " << staleness << ": " << ended.text() << ended.failure;
      const Outcome outcome = testing::train(trial);
      EXPECT_EQ(outcome.held_out.empty(), !evaluates);
      return outcome;
    };
    const Outcome with = trained(true), without = trained(false);
    ASSERT_EQ(with.steps.size(), without.steps.size());
    for (std::size_t i = 0; i < with.steps.size(); ++i) EXPECT_EQ(with.steps[i].loss, without.steps[i].loss);
    for (const auto& [name, tensor] : without.weights) EXPECT_EQ(with.weights.at(name).values, tensor.values) << name;
  }
}

// -- memory at rest

TEST_F(Guarding, AShardThatNobodyElseHasIsFoundWhenItChangesInMemory) {
  Trial trial = small_trial(2, 6);
  trial.spec.states.zero_stage = 3;
  const Guarded ended = go(trial, "flip:rank=1,step=3,state=first_moment,part=2,bit=0", 1);
  expect_ended(ended, "R0026", "what rank 1 holds of");
  EXPECT_NE(ended.text().find("between the end of step 2 and its update in step 3"), std::string::npos) << ended.text();
}

// What a look cannot see: the shard has one holder, and its look comes behind the update.
TEST_F(Guarding, AFlippedShardIsNotFoundBetweenLooks) {
  Trial trial = small_trial(2, 6);
  trial.spec.states.zero_stage = 3;
  EXPECT_TRUE(go(trial, "flip:rank=1,step=4,state=first_moment,part=2,bit=0", 2).completed());
}

// -- finite numbers

TEST_F(Guarding, ALossThatIsNoNumberEndsAllRanksAtThatStepAndTheLastCheckpointStands) {
  const Guarded ended =
      go(small_trial(2, 12), "nan:rank=1,step=7,state=weight,part=4", 0, [](RunOptions& o) { o.checkpoint_every = 5; });
  expect_ended(ended, "R0020", "the loss of step 7 is ");
  EXPECT_TRUE(saved("step-000005"));
  EXPECT_EQ(latest_checkpoint(run() / "checkpoints"), run() / "checkpoints" / "step-000005");
  EXPECT_EQ(ended.of("step").size(), 7U) << "the step has its line";
}

TEST_F(Guarding, StagesAndWorkersThatEachHaveTheirOwnNormsAreLookedAt) {
  Trial stages = small_trial(1, 40);
  stages.spec.mesh.pipeline = 2;
  stages.spec.stages.order = plan::Order::pipedream;
  stages.spec.shape.micro_batch = stages.spec.shape.batch;
  expect_ended(go(stages, "nan:rank=1,step=3", 0), "R0020", " (stage 1)");
  Trial workers = small_trial(2, 12);
  workers.spec.states.staleness = 1;
  expect_ended(go(workers, "nan:rank=1,step=3", 0), "R0020", "the loss of step ");
}

// A second moment without end: its parameter stands still, and all losses stay finite.
TEST_F(Guarding, AStateThatIsNotFiniteNeverBecomesACheckpoint) {
  const Guarded ended = go(small_trial(1, 8), "inf:rank=0,step=6,state=second_moment,part=1,element=3", 0,
                           [](RunOptions& o) { o.checkpoint_every = 4; });
  expect_ended(ended, "R0022", "after step 8 element 3 of what rank 0 holds of");
  EXPECT_NE(ended.text().find("(second_moment)"), std::string::npos) << ended.text();
  EXPECT_EQ(ended.of("step").size(), 8U);
  EXPECT_TRUE(saved("step-000004"));
  EXPECT_FALSE(saved("step-000008"));
}

// A checkpoint of step 4 is still being written when step 5 goes wrong: it is good, and is finished.
TEST_F(Guarding, ACheckpointOfBeforeTheFaultIsFinished) {
  const Guarded ended = go(small_trial(2, 8), "nan:rank=0,step=5", 0, [](RunOptions& o) { o.checkpoint_every = 4; });
  expect_ended(ended, "R0020", "the loss of step 5 is ");
  EXPECT_TRUE(saved("step-000004"));
}

/// Guards of one rank of an fp16 plan, without a run.
class Skips : public ::testing::Test {
 protected:
  Skips() : trial_(small_trial(1, 4)), world_(1), transport_(world_.transport(0)), backend_(make_cpu_backend(1)) {
    trial_.spec.numerics.precision = models::DType::fp16;
    schedule_ = plan::lower(testing::plan_of(trial_));
    placement_ = plan::place(schedule_.class_of(0));
    arena_.emplace(*backend_, schedule_.class_of(0), placement_, Arena::Check::none);
    context_.emplace(CheckpointContext{schedule_, *arena_, *backend_, *transport_});
    guards_.emplace(*context_, GuardOptions{}, 1);
  }
  void step(double scale, bool skipped, double norm = std::numeric_limits<double>::infinity()) {
    StepResult result;
    result.loss = 4;
    result.gradient_norm = norm;
    result.loss_scale = scale;
    result.skipped = skipped;
    guards_->see(++done_, result);
  }
  Trial trial_;
  plan::Schedule schedule_;
  plan::Placement placement_;
  ThreadWorld world_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Backend> backend_;
  std::optional<Arena> arena_;
  std::optional<CheckpointContext> context_;
  std::optional<Guards> guards_;
  std::int64_t done_ = 0;
};

TEST_F(Skips, ThatFindASmallerScaleAreNoFault) {
  for (double scale = 65536; scale > 1; scale /= 2) step(scale, true);
  for (int i = 0; i < Guards::kMostSkips - 1; ++i) step(1, true);
  step(1, false, 2.0);
  for (int i = 0; i < Guards::kMostSkips - 1; ++i) step(1, true);
  EXPECT_FALSE(guards_->faulty());
  EXPECT_EQ(guards_->counts().skipped, 16 + 2 * (Guards::kMostSkips - 1));
}

TEST_F(Skips, InARowAtTheSmallestScaleAreAFault) {
  for (int i = 0; i < Guards::kMostSkips; ++i) step(1, true);
  ASSERT_TRUE(guards_->faulty());
  const std::string said = base::render(guards_->faults(), false);
  EXPECT_NE(said.find("error[R0023]"), std::string::npos) << said;
  EXPECT_NE(said.find("in 20 steps in a row up to step 20"), std::string::npos) << said;
}

TEST_F(Skips, AGradientNormThatIsNotFiniteWithoutASkipIsAFault) {
  step(8, false);
  EXPECT_NE(base::render(guards_->faults(), false).find("error[R0021]: the gradient norm of step 1 is inf on rank 0"),
            std::string::npos);
}

// -- what a run begins with

TEST_F(Guarding, AnInitialWeightThatIsNotFiniteIsRefusedWithFileTensorAndElement) {
  Trial trial = testing::golden_trial("constant");
  trial.training.steps = 2;
  trial.spec.mesh.pipeline = 2;  // one of two ranks reads it
  const SafetensorsFile good = *SafetensorsFile::open(trial.training.initial_weights);
  for (const char* name : {"transformer.h.0.attn.c_attn.weight", "transformer.ln_f.bias"}) {
    const TensorEntry* entry = good.header().find(name);
    ASSERT_NE(entry, nullptr) << name;
    std::string bytes = read_file(trial.training.initial_weights, 1 << 26);
    const float wild = name == std::string("transformer.ln_f.bias") ? std::numeric_limits<float>::infinity() : kNan;
    std::memcpy(&bytes[static_cast<std::size_t>(good.header().data_start + entry->begin + 4 * 5)], &wild, 4);
    Trial bad = trial;
    bad.training.initial_weights = (folder_ / "bad.safetensors").string();
    std::ofstream(bad.training.initial_weights, std::ios::binary) << bytes;
    const Guarded ended = go(bad, "", 0);
    expect_ended(ended, "E0650", "element 5 of tensor `" + std::string(name) + "` is not a finite number");
    EXPECT_EQ(ended.found.front().front().where.file, bad.training.initial_weights);
    EXPECT_TRUE(ended.of("started").empty());
  }
  EXPECT_TRUE(go(trial, "", 0).completed()) << "the same file as it was";
}

TEST_F(Guarding, ACheckpointThatIsNotFiniteIsNotGoneOnFrom) {
  const Trial trial = small_trial(1, 4);
  const plan::Plan plan = testing::plan_of(trial);
  const plan::Schedule schedule = plan::lower(plan);
  const plan::Placement placement = plan::place(schedule.class_of(0));
  ThreadWorld world(1);
  const auto transport = world.transport(0);
  const auto backend = make_cpu_backend(1);
  Arena arena(*backend, schedule.class_of(0), placement, Arena::Check::none);
  initialise(schedule, 0, arena, *backend, seeded_source(1));
  const CheckpointContext context{schedule, arena, *backend, *transport};
  FaultInjector(*parse_faults("nan:rank=0,step=1,state=first_moment,part=1,element=9"), context).before_step(1);
  save_checkpoint(context, run() / "checkpoints", 2);
  const Guarded ended = go(trial, "", 0, [](RunOptions& o) { o.resume = true; });
  expect_ended(ended, "E0650", "element 9 of tensor `first_moment/");
  EXPECT_NE(ended.text().find("step-000002/rank-00000.safetensors"), std::string::npos) << ended.text();
}

// -- spikes

TEST(Spikes, AreValuesFarAboveTheMedianOfTheLastOnes) {
  SpikeDetector detector;
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(detector.see(4 - 0.01 * i + 0.02 * (i % 3), 1 + 0.3 * (i % 4)).empty());
  EXPECT_TRUE(detector.see(3.9, 3).empty()) << "within what they vary by";
  EXPECT_TRUE(detector.see(0.1, 0.001).empty()) << "below is no spike";
  const std::vector<Spike> both = detector.see(9, 80);
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].quantity, "loss");
  EXPECT_NEAR(both[0].median, 3.8, 0.1);
  EXPECT_GE(both[0].score, SpikeDetector::kFar);
  EXPECT_EQ(both[1].quantity, "gradient_norm");
}

TEST(Spikes, AreNotSeenInARunsFirstStepsAndNotForEver) {
  SpikeDetector detector;
  for (std::size_t i = 0; i + 1 < SpikeDetector::kLeast; ++i) EXPECT_TRUE(detector.see(4, 1).empty());
  EXPECT_TRUE(detector.see(50, 100).empty()) << "nothing to compare with yet";
  EXPECT_FALSE(detector.see(50, 100).empty());
  std::size_t found = 0;
  for (std::size_t i = 0; i < 2 * SpikeDetector::kWindow; ++i) found += detector.see(50, 100).size();
  EXPECT_LT(found, 2 * SpikeDetector::kWindow) << "a loss that stays there is the new level";
  EXPECT_TRUE(detector.see(50, 100).empty());
}

/// Forty steps of one word, which is learnt at once, and then others.
Trial surprising(const fs::path& folder) {
  Trial trial = small_trial(2, 44);
  trial.training.optimizer.learning_rate = 1e-2;
  std::string text(40 * 8 * 16 + 1, '\x05');
  for (int i = 0; i < 4 * 8 * 16; ++i) text += static_cast<char>(6 + i * 37 % 50);
  trial.training.data = (folder / "text").string();
  std::ofstream(trial.training.data, std::ios::binary) << text;
  return trial;
}

TEST_F(Guarding, ASpikeIsWarnedOfAndCounted) {
  const Guarded ended = go(surprising(folder_), "", 0);
  EXPECT_TRUE(ended.completed()) << ended.text();
  const auto spikes = ended.of("spike");
  ASSERT_FALSE(spikes.empty());
  EXPECT_EQ(spikes.front().at("step"), 41);
  EXPECT_EQ(spikes.front().at("quantity"), "loss");
  EXPECT_LT(spikes.front().at("median"), 0.5);
  EXPECT_GT(spikes.front().at("value"), 2.0);
  std::size_t warned = 0;
  for (const auto& one : ended.of("diagnostic")) warned += one.at("code") == "R0024" ? 1 : 0;
  EXPECT_EQ(warned, std::min(spikes.size(), static_cast<std::size_t>(Guards::kMostWarnings)));
  const auto record = nlohmann::json::parse(read_file(run() / "completed.json", 1 << 20));
  EXPECT_EQ(record.at("spikes"), spikes.size());
  EXPECT_EQ(record.at("looks").at("count"), 2) << "at the start and at the end";
  std::ifstream lines(run() / "metrics.jsonl");
  std::int64_t marked = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto step = nlohmann::json::parse(line);
    if (!step.contains("spikes")) continue;
    if (marked == 0) {
      EXPECT_EQ(step.at("step"), 41);
    }
    ++marked;
  }
  EXPECT_GT(marked, 0);
}

TEST_F(Guarding, ASpikeStopsARunThatShouldBeforeItsWeightsAreSaved) {
  const Guarded ended = go(surprising(folder_), "", 0, [](RunOptions& o) {
    o.guards.stop_on_spike = true;
    o.checkpoint_every = 40;
  });
  expect_ended(ended, "R0024", "the loss of step 41 is ");
  EXPECT_TRUE(saved("step-000040"));
  EXPECT_EQ(latest_checkpoint(run() / "checkpoints"), run() / "checkpoints" / "step-000040");
}

// -- planted faults themselves

TEST(PlantedFaults, AreReadAsTheyAreWritten) {
  const auto two = parse_faults("flip:rank=3,step=7,state=master,part=2,element=9,bit=30;slow:rank=1,step=2,ms=5");
  ASSERT_TRUE(two.has_value() && two->size() == 2);
  EXPECT_EQ(two->front().kind, FaultKind::flip);
  EXPECT_EQ(two->front().rank, 3);
  EXPECT_EQ(two->front().state, "master");
  EXPECT_EQ(two->front().bit, 30);
  EXPECT_EQ(two->back().milliseconds, 5);
  EXPECT_TRUE(parse_faults("")->empty());
  for (const char* wrong : {"flop:rank=1", "flip:rank=-1", "flip:rank", "flip:step=0", "kill:rank=1,color=3", ";",
                            "exit:at=never", "flip:rank=1,"})
    EXPECT_FALSE(parse_faults(wrong).has_value()) << wrong;
}

TEST_F(Guarding, AFaultThatIsNotReadEndsTheRunBeforeItBegins) {
  expect_ended(go(small_trial(2, 2), "flop:rank=1", 0), "E0651", "`flop:rank=1`");
}

TEST_F(Guarding, AThrownFaultActsOnceBetweenOrWithinSteps) {
  const Trial trial = small_trial(2, 4);
  const std::string once = ",once=" + (folder_ / "once").string();
  for (const char* at : {"begin", "within"}) {
    fs::remove(folder_ / "once");
    const std::string fault = "throw:rank=1,step=3,at=" + std::string(at) + once;
    EXPECT_EQ(go(trial, fault, 0).failure, "a planted failure in step 3");
    EXPECT_TRUE(go(trial, fault, 0).completed()) << at;
  }
}

}  // namespace guards_test
}  // namespace orrery::exec
