// Job files: every key and default, what is refused with which words, and the learning rate.
#include "plan/spec/job.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "plan/spec/plan.h"

namespace orrery::plan {
namespace job_test {

Job read(const std::string& text) {
  const auto job = parse_job(text, "job.yaml");
  EXPECT_TRUE(job.has_value()) << base::render(job.error(), false);
  return job.value_or(Job{});
}

std::string refused(const std::string& text) {
  const auto job = parse_job(text, "job.yaml");
  return job ? "(accepted)" : base::render(job.error(), false);
}

constexpr const char* kLeast = "model: gpt2-124m\ncluster: localhost-2\nbatch: 8\n";

constexpr const char* kFull = R"(model: gpt2-124m
cluster: localhost-2
batch: 8
sequence: 32
precision: bf16
objective: cost
stack: orrery-cpu
plan: {data: 2, tensor: [1, 2], zero_stage: 1, micro_batch: 4, schedule: [1f1b, gpipe], recompute: full, flash: false, layers_per_stage: [5, 7]}
training:
  steps: 30
  data: tokens.bin
  order: shuffled
  initial_weights: model.safetensors
  optimizer: {name: adamw, learning_rate: 6e-4, beta1: 0.8, beta2: 0.99, epsilon: 1e-6, weight_decay: 0}
  learning_rate_schedule: {warmup_steps: 3, decay: cosine, minimum: 6e-5}
  clip_norm: 1.0
  seed: 42
  tokenizer: vocab.json
  evaluation: {data: held-out.txt, every: 50, batches: 7}
)";

TEST(Job, HasDefaultsForEverythingButModelClusterAndBatch) {
  Job expected;
  expected.model = "gpt2-124m";
  expected.cluster = "localhost-2";
  expected.batch = 8;
  EXPECT_EQ(read(kLeast), expected);
  EXPECT_EQ(expected.training.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(expected.training.steps, 20);
  EXPECT_FALSE(expected.training.clip_norm.has_value());
}

// What opens files replaces the name by what the file holds; until then it is not lost.
TEST(Job, KeepsTheNameOfAnOrdersFile) {
  const Job job = read("model: a\ncluster: b\nbatch: 8\nplan: {schedule: [1f1b, orders/mine.csv]}\n");
  EXPECT_EQ(job.bounds.stages.order, (std::vector<Order>{Order::one_f_one_b, Order::custom}));
  EXPECT_EQ(job.bounds.stages.order_file, "orders/mine.csv");
  EXPECT_EQ(read(write_job(job)), job);
}

TEST(Job, ReadsEveryKey) {
  const Job job = read(kFull);
  EXPECT_EQ(job.sequence, 32);
  EXPECT_EQ(job.precision, models::DType::bf16);
  EXPECT_EQ(job.objective, Objective::cost);
  EXPECT_EQ(job.stack, "orrery-cpu");
  EXPECT_EQ(job.bounds.mesh.data, std::vector<int>{2});
  EXPECT_EQ(job.bounds.mesh.tensor, (std::vector<int>{1, 2}));
  EXPECT_TRUE(job.bounds.mesh.pipeline.empty());
  EXPECT_EQ(job.bounds.states.zero_stage, std::vector<int>{1});
  EXPECT_EQ(job.bounds.shape.micro_batch, std::vector<int>{4});
  EXPECT_EQ(job.bounds.stages.order, (std::vector<Order>{Order::one_f_one_b, Order::gpipe}));
  EXPECT_EQ(job.bounds.recomputation.what, std::vector<Recompute>{Recompute::full});
  EXPECT_EQ(job.bounds.numerics.flash, std::optional<bool>(false));
  EXPECT_EQ(job.bounds.stages.layers_per_stage, (std::vector<std::int64_t>{5, 7}));
  EXPECT_EQ(job.training.steps, 30);
  EXPECT_EQ(job.training.data, "tokens.bin");
  EXPECT_EQ(job.training.order, DataOrder::shuffled);
  EXPECT_EQ(job.training.initial_weights, "model.safetensors");
  EXPECT_EQ(job.training.optimizer, (Optimizer{OptimizerKind::adamw, 6e-4, 0.8, 0.99, 1e-6, 0}));
  EXPECT_EQ(job.training.schedule, (LearningRateSchedule{3, Decay::cosine, 6e-5}));
  EXPECT_EQ(job.training.clip_norm, std::optional<double>(1.0));
  EXPECT_EQ(job.training.seed, 42U);
  EXPECT_EQ(job.training.tokenizer, "vocab.json");
  EXPECT_EQ(job.training.evaluation, (Evaluation{"held-out.txt", 50, 7}));
}

TEST(Job, WritesWhatItReads) {
  for (const char* text : {kLeast, kFull}) {
    const Job job = read(text);
    EXPECT_EQ(read(write_job(job)), job) << write_job(job);
  }
  Job odd = read(kLeast);
  odd.model = "my models/a: b #1.yaml";
  odd.training.optimizer.learning_rate = 1.0 / 3;
  odd.fits_probability = 0.5;
  odd.vocab_multiple = 1024;
  odd.devices = 2048;
  EXPECT_EQ(read(write_job(odd)), odd) << write_job(odd);
}

TEST(Job, GivesEachOptimizerItsOwnKeysAndDefaults) {
  const auto optimizer = [](const std::string& text) {
    const Job job = read(kLeast + ("training: {optimizer: " + text + "}\n"));
    EXPECT_EQ(read(write_job(job)), job) << write_job(job);
    return job.training.optimizer;
  };
  EXPECT_EQ(optimizer("{name: lamb}").beta2, 0.999);
  EXPECT_EQ(optimizer("{name: lamb}").epsilon, 1e-6);
  EXPECT_EQ(optimizer("{name: lion}").learning_rate, 1e-4);
  EXPECT_EQ(optimizer("{name: lion}").beta2, 0.99);
  EXPECT_EQ(optimizer("{name: adamw-8bit}").beta2, 0.95);
  EXPECT_EQ(optimizer("{name: adam}"), (Optimizer{OptimizerKind::adam, 1e-3, 0.9, 0.999, 1e-8, 0}));
  const Optimizer alone = optimizer("{name: muon, learning_rate: 0.02, weight_decay: 0.05}");
  EXPECT_EQ(alone.momentum, 0.95);
  EXPECT_EQ(alone.adamw_learning_rate, 0.02) << "as outside";
  EXPECT_EQ(alone.adamw_weight_decay, 0.05);
  EXPECT_EQ(alone.beta2, 0.95);
  const Optimizer muon = optimizer(
      "{name: muon, momentum: 0.9, adamw: {learning_rate: 3e-4, beta1: 0.8, beta2: 0.9, epsilon: 1e-10, "
      "weight_decay: 0}}");
  EXPECT_EQ(muon.learning_rate, 1e-3);
  EXPECT_EQ(muon.weight_decay, 0.1);
  EXPECT_EQ(muon.momentum, 0.9);
  EXPECT_EQ(muon.adamw_learning_rate, 3e-4);
  EXPECT_EQ(muon.beta1, 0.8);
  EXPECT_EQ(muon.beta2, 0.9);
  EXPECT_EQ(muon.epsilon, 1e-10);
  EXPECT_EQ(muon.adamw_weight_decay, 0);
  const Optimizer sgd = optimizer("{name: sgd, momentum: 0.5, nesterov: true, weight_decay: 1e-4}");
  EXPECT_EQ(sgd.momentum, 0.5);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_EQ(sgd.weight_decay, 1e-4);
  const Optimizer adafactor = optimizer("{name: adafactor, adaptive: false, clip_update: 2, decay_power: 0.5}");
  EXPECT_FALSE(adafactor.adaptive);
  EXPECT_EQ(adafactor.clip_update, 2);
  EXPECT_EQ(adafactor.decay_power, 0.5);
  PlanSpec spec;
  Training training;
  training.optimizer = optimizer("{name: sgd, momentum: 0}");
  take_optimizer(spec, training);
  EXPECT_EQ(spec.states.optimizer, OptimizerKind::sgd);
  EXPECT_FALSE(spec.states.momentum) << "a state that nobody needs";
}

TEST(Job, TakesWhatBecomesOfBadSamplesAndHowFarAheadTheyAreRead) {
  EXPECT_EQ(read(kLeast).training.bad_lines, BadLines::refuse);
  const Job job = read(std::string(kLeast) + "training: {bad_lines: skip, read_ahead: 0}\n");
  EXPECT_EQ(job.training.bad_lines, BadLines::skip);
  EXPECT_EQ(job.training.read_ahead, 0);
  EXPECT_EQ(read(write_job(job)), job) << write_job(job);
}

TEST(Job, TakesWhatCategoriesAreOrLeavesItToTheFormOfTheFile) {
  EXPECT_FALSE(read(kLeast).training.categories);
  const Job job = read(std::string(kLeast) + "training: {categories: rows}\n");
  EXPECT_EQ(job.training.categories, Categories::rows);
  EXPECT_EQ(read(write_job(job)), job) << write_job(job);
}

TEST(Job, TakesSamplesThatAreDrawnInsteadOfRead) {
  EXPECT_FALSE(read(kLeast).training.generated);
  const Job job = read(std::string(kLeast) +
                       "training: {data: {generate: {samples: 1000, seed: 7}}, evaluation: {every: 5, batches: 3}}\n");
  EXPECT_EQ(job.training.generated, (GeneratedSamples{1000, 7}));
  EXPECT_EQ(job.training.data, "");
  EXPECT_EQ(job.training.evaluation, (Evaluation{"", 5, 3}));
  EXPECT_EQ(read(write_job(job)), job) << write_job(job);
  EXPECT_EQ(read(std::string(kLeast) + "training: {data: {generate: {samples: 1}}}\n").training.generated,
            (GeneratedSamples{1, 1}));
}

TEST(Job, RefusesToDrawSamplesThatCannotBe) {
  const auto bad = [](const std::string& training) { return refused(std::string(kLeast) + "training:\n" + training); };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(bad("  data: {generate: {samples: 0}}\n"), "error[E0105]: `training.data.generate.samples` must be from 1 to");
  has(bad("  data: {generate: {samples: 0}}\n"), "job.yaml:5:30");
  has(bad("  data: {generate: {seed: 1}}\n"), "error[E0102]");
  has(bad("  data: {generate: {samples: 9, seed: -1}}\n"), "job.yaml:5:39");
  has(bad("  data: {generate: {samples: 9, sed: 1}}\n"), "error[E0103]: unknown key `sed`");
  has(bad("  data: {path: clicks.tsv}\n"), "error[E0102]");
  has(bad("  data: {generate: 9}\n"), "job.yaml:5:20");
  has(bad("  data: {generate: {samples: 9}}\n  evaluation: {data: held-out.tsv}\n"), "error[E0121]");
  has(bad("  data: {generate: {samples: 9}}\n  evaluation: {data: held-out.tsv}\n"), "job.yaml:6:22");
  has(bad("  data: clicks.tsv\n  evaluation: {every: 1}\n"), "error[E0102]");
}

TEST(Job, TakesRoundingAndLossScaling) {
  const Job job = read(
      std::string(kLeast) +
      "precision: bf16\nrounding: stochastic\ntraining: {loss_scaling: {initial: 1024, interval: 9, factor: 4}}\n");
  EXPECT_EQ(job.rounding, Rounding::stochastic);
  EXPECT_EQ(job.training.loss_scaling, (LossScaling{1024, 9, 4}));
  EXPECT_EQ(read(write_job(job)), job) << write_job(job);
}

TEST(Job, ReportsAllErrorsAtOnceWithCaretsAndHints) {
  EXPECT_EQ(refused("modle: gpt2-124m\n"
                    "cluster: localhost-2\n"
                    "batch: 0\n"
                    "sequence: 1e3\n"
                    "precision: fp23\n"
                    "plan: {data: [1, two], zero_stage: 4, schedule: 1fb1, pipelines: 2}\n"
                    "training:\n"
                    "  optimiser: {learning_rate: 1e-3}\n"
                    "  clip_norm: -1\n"
                    "batch: 8\n"),
            R"(error[E0102]: key `model` is missing
 --> job.yaml:1:1
  |
1 | modle: gpt2-124m
  | ^^^^^
  |
  = help: `modle` looks like it; write `model`

error[E0105]: `batch` must be from 1 to 16777216, found `0`
 --> job.yaml:3:8
  |
3 | batch: 0
  |        ^

error[E0105]: `sequence` must be a whole number, found `1e3`
 --> job.yaml:4:11
  |
4 | sequence: 1e3
  |           ^^^
  |
  = help: write a whole number without point or exponent

error[E0106]: `precision` must be one of fp32, bf16, fp16, fp8, tf32, fp4, found `fp23`
 --> job.yaml:5:12
  |
5 | precision: fp23
  |            ^^^^
  |
  = help: did you mean `fp32`?

error[E0105]: `plan.data[1]` must be a whole number, found `two`
 --> job.yaml:6:18
  |
6 | plan: {data: [1, two], zero_stage: 4, schedule: 1fb1, pipelines: 2}
  |                  ^^^

error[E0105]: `plan.zero_stage` must be from 0 to 3, found `4`
 --> job.yaml:6:36
  |
6 | plan: {data: [1, two], zero_stage: 4, schedule: 1fb1, pipelines: 2}
  |                                    ^

error[E0106]: `plan.schedule` must be one of gpipe, 1f1b, zb-h1, zb-h2, zb-v, dualpipe-v, pipedream, pipedream-vertical, pipedream-2bw, dualpipe, custom, found `1fb1`
 --> job.yaml:6:49
  |
6 | plan: {data: [1, two], zero_stage: 4, schedule: 1fb1, pipelines: 2}
  |                                                 ^^^^
  |
  = help: did you mean `1f1b`?

error[E0103]: unknown key `pipelines` in `plan`
 --> job.yaml:6:55
  |
6 | plan: {data: [1, two], zero_stage: 4, schedule: 1fb1, pipelines: 2}
  |                                                       ^^^^^^^^^
  |
  = help: did you mean `pipeline`? known keys: data, tensor, pipeline, context, expert, virtual_stages, layers_per_stage, ends_as_layers, overlap_gradients, micro_batch, schedule, passes, zero_stage, zero_group, recompute, recompute_modules, recompute_layers, partition_checkpoints, sequence_parallel, flash, staleness, offload, compression, loss_chunks, embedding, expert_tensor, expert_bound, expert_imbalance, tokens

error[E0103]: unknown key `optimiser` in `training`
 --> job.yaml:8:3
  |
8 |   optimiser: {learning_rate: 1e-3}
  |   ^^^^^^^^^
  |
  = help: did you mean `optimizer`? known keys: steps, data, tokenizer, order, initial_weights, optimizer, learning_rate_schedule, clip_norm, loss_scaling, seed, dropout, lora, evaluation, bad_lines, categories, read_ahead

error[E0105]: `training.clip_norm` must be from 1e-30 to 1e+30, found `-1`
 --> job.yaml:9:14
  |
9 |   clip_norm: -1
  |              ^^

error[E0107]: key `batch` is given twice
  --> job.yaml:10:1
   |
10 | batch: 8
   | ^^^^^
   |
   = help: it was first given on line 3; keep one of them
)");
}

TEST(Job, RefusesValuesThatNoRunCanHave) {
  const auto bad = [](const std::string& more) { return refused(kLeast + more); };
  for (const char* more : {
           "plan: {data: []}\n",
           "plan: {data: [2, 2]}\n",
           "plan: {data: 0}\n",
           "plan: {tensor: 2.0}\n",
           "plan: 5\n",
           "plan: {flash: 1}\n",
           "sequence: 0\n",
           "devices: 0\n",
           "devices: all\n",
           "sequence: 99999999999\n",
           "objective: speed\n",
           "fits_probability: 1\n",
           "fits_probability: -0.1\n",
           "precision: int32\n",
           "stack: ''\n",
           "training: {steps: 0}\n",
           "training: {seed: -1}\n",
           "training: {optimizer: {name: rmsprop}}\n",
           "training: {optimizer: {name: sgd, beta1: 0.9}}\n",
           "training: {optimizer: {name: sgd, momentum: 1}}\n",
           "training: {optimizer: {name: sgd, momentum: 0, nesterov: true}}\n",
           "training: {optimizer: {name: adafactor, beta2: 0.99}}\n",
           "training: {optimizer: {name: adafactor, clip_update: 0}}\n",
           "training: {loss_scaling: {factor: 1}}\n",
           "training: {loss_scaling: {initial: 0}}\n",
           "rounding: up\n",
           "rounding: stochastic\n",
           "precision: fp16\nrounding: stochastic\n",
           "training: {optimizer: {beta1: 1}}\n",
           "training: {optimizer: {epsilon: 0}}\n",
           "training: {optimizer: {learning_rate: .inf}}\n",
           "training: {clip_norm: 0}\n",
           "training: {learning_rate_schedule: linear}\n",
           "training: {learning_rate_schedule: {decay: quadratic}}\n",
           "training: {learning_rate_schedule: {decay: wsd, decay_steps: 0}}\n",
           "training: {evaluation: {every: 10}}\n",
           "training: {evaluation: {data: a.txt, every: 0}}\n",
           "training: {evaluation: {data: a.txt, batches: 0}}\n",
           "training: {learning_rate_schedule: {decay: cosine, minimum: 1}}\n",
           "training: {order: random}\n",
           "training: {learning_rate_schedule: [cosine]}\n",
       }) {
    EXPECT_NE(bad(more), "(accepted)") << more;
  }
  EXPECT_NE(refused("model: a\ncluster: b\nbatch: 16777216\nsequence: 16777216\n").find("E0121"), std::string::npos);
}

TEST(Job, WarnsOfWhatHasNoEffect) {
  base::Diagnostics warnings;
  const auto job = parse_job(
      std::string(kLeast) + "training: {steps: 5, learning_rate_schedule: {warmup_steps: 6, minimum: 1e-5}}\n",
      "job.yaml", &warnings);
  ASSERT_TRUE(job.has_value());
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_EQ(warnings[0].severity, base::Severity::warning);
  EXPECT_EQ(warnings[0].message, "6 warm-up steps are more than the run's 5 steps");
  EXPECT_EQ(warnings[1].message, "minimum has no effect without decay");
  for (const auto& [schedule, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{decay: cosine, decay_steps: 3}", "decay_steps has no effect without `decay: wsd`"},
           {"{decay: wsd, warmup_steps: 3, decay_steps: 3}",
            "3 steps of warm-up and 3 of decay are more than the run's 5 steps"}}) {
    warnings.clear();
    ASSERT_TRUE(parse_job(std::string(kLeast) + "training: {steps: 5, learning_rate_schedule: " + schedule + "}\n",
                          "job.yaml", &warnings));
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_EQ(warnings[0].message, expected);
  }
}

TEST(Job, EveryExampleReadsWithoutAWarningAndWritesTheSame) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    std::ifstream in(entry.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    base::Diagnostics warnings;
    const auto job = parse_job(text, entry.path().string(), &warnings);
    ASSERT_TRUE(job.has_value()) << base::render(job.error(), false);
    EXPECT_TRUE(warnings.empty()) << base::render(warnings, false);
    EXPECT_EQ(read(write_job(*job)), *job);
    ++files;
  }
  EXPECT_GE(files, 5);
}

Training training(std::int64_t steps, LearningRateSchedule schedule) {
  Training t;
  t.steps = steps;
  t.optimizer.learning_rate = 1.0;
  t.schedule = schedule;
  return t;
}

TEST(LearningRate, IsConstantByDefault) {
  for (const std::int64_t step : {0, 7, 19, 1000}) EXPECT_EQ(learning_rate_at(training(20, {}), step), 1.0);
}

TEST(LearningRate, WarmsUpLinearlyThenFollowsACosineToItsMinimum) {
  const Training t = training(14, {4, Decay::cosine, 0.1});
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 3), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 4), 1.0);   // progress 0
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 9), 0.55);  // half way: the mean of peak and minimum
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 4 + 10 / 2 - 2), 0.1 + 0.9 * 0.5 * (1 + std::cos(std::acos(-1.0) * 0.3)));
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 14), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 100), 0.1);  // stays there
}

TEST(LearningRate, FallsInAStraightLineToItsMinimum) {
  const Training t = training(14, {4, Decay::linear, 0.1});
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 1), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 4), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 9), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 14), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 20), 0.1);
}

TEST(LearningRate, FallsWithTheInverseSquareRootFromTheEndOfTheWarmUpOn) {
  const Training t = training(1000, {4, Decay::inverse_square_root, 0.1});
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 3), 1.0);   // the fourth step: both branches meet
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 15), 0.5);  // the sixteenth: sqrt(4/16)
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 399), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 999), 0.1);  // sqrt(4/1000) is below the minimum
  EXPECT_DOUBLE_EQ(learning_rate_at(training(9, {0, Decay::inverse_square_root, 0}), 3), 0.5);
}

TEST(LearningRate, StaysAndDecaysOverTheLastStepsAlone) {
  const Training t = training(100, {4, Decay::wsd, 0.2, 40});
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 1), 0.5);
  for (const std::int64_t step : {4, 30, 60}) EXPECT_DOUBLE_EQ(learning_rate_at(t, step), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 80), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(t, 100), 0.2);
  const Training tenth = training(100, {4, Decay::wsd, 0});
  EXPECT_DOUBLE_EQ(learning_rate_at(tenth, 90), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(tenth, 95), 0.5);
}

TEST(LearningRate, OfWhatMuonLeavesToAdamWFollowsTheScheduleInProportion) {
  Training t = training(20, {4, Decay::cosine, 0.1});
  t.optimizer.kind = OptimizerKind::muon;
  t.optimizer.adamw_learning_rate = 0.25;
  for (const std::int64_t step : {0, 3, 9, 14, 100})
    EXPECT_DOUBLE_EQ(adamw_rate_at(t, step), 0.25 * learning_rate_at(t, step)) << step;
  t.optimizer.learning_rate = t.schedule.minimum = 0;  // matrices stay, all else goes its way
  EXPECT_EQ(learning_rate_at(t, 3), 0);
  EXPECT_DOUBLE_EQ(adamw_rate_at(t, 3), 0.25);
}

TEST(LearningRate, NeverDividesByNothing) {
  EXPECT_EQ(learning_rate_at(training(4, {4, Decay::wsd, 0}), 3), 1.0);

  EXPECT_EQ(learning_rate_at(training(4, {4, Decay::cosine, 0}), 3), 1.0);
  EXPECT_EQ(learning_rate_at(training(4, {4, Decay::cosine, 0}), 4), 1.0);
  EXPECT_EQ(learning_rate_at(training(4, {9, Decay::cosine, 0}), 3), 4.0 / 9);
}

}  // namespace job_test
}  // namespace orrery::plan
