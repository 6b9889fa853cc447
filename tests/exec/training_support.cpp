// Small training runs in threads.
#include "tests/exec/serial.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <exception>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "clusters/read.h"
#include "exec/engine/thread_transport.h"
#include "exec/files/safetensors.h"
#include "exec/state/initialise.h"
#include "models/layers/inputs.h"
#include "plan/lower/experts.h"
#include "plan/lower/lower.h"
#include "plan/lower/serial.h"
#include "plan/schedule/check.h"
#include "plan/schedule/rehearse.h"
#include "plan/spec/plan_file.h"

namespace orrery::exec::testing {
namespace {

const std::string kGolden = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/";

std::optional<std::string> text_of(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::shared_ptr<const clusters::Cluster> localhost(int ranks) {
  const std::string folder = std::string(ORRERY_SOURCE_DIR) + "/clusters/catalog/";
  const auto find = [&](const std::string& name) { return text_of(folder + name + ".yaml"); };
  auto cluster = clusters::parse_cluster(*find("localhost-8"), "localhost-8.yaml", find);
  if (!cluster) throw std::runtime_error(base::render(cluster.error(), false));
  auto fitting = clusters::resized(*cluster, ranks);
  if (!fitting) throw std::runtime_error(base::render(fitting.error(), false));
  return std::make_shared<const clusters::Cluster>(std::move(*fitting));
}

template <class T>
T value_of(base::Result<T> result) {
  if (!result) throw std::runtime_error(base::render(result.error(), false));
  return std::move(*result);
}

}  // namespace

plan::Optimizer optimizer_of(plan::OptimizerKind kind) {
  plan::Optimizer o;
  o.kind = kind;
  o.learning_rate = 3e-3;
  o.weight_decay = 0.1;
  if (kind == plan::OptimizerKind::lamb) o.beta2 = 0.999, o.epsilon = 1e-6, o.learning_rate = 2e-2;
  if (kind == plan::OptimizerKind::sgd) o.learning_rate = 0.05, o.weight_decay = 0.01;
  if (kind == plan::OptimizerKind::adafactor) o.learning_rate = 2e-2;
  if (kind == plan::OptimizerKind::lion) o.beta2 = 0.99, o.learning_rate = 3e-4;
  if (kind == plan::OptimizerKind::muon) o.momentum = 0.95, o.learning_rate = 2e-2, o.adamw_learning_rate = 3e-3;
  return o;
}

Trial golden_trial(const std::string& run) {
  Trial trial;
  models::Model& m = trial.model;
  m.name = "golden";
  m.layers = 2;
  m.hidden = 32;
  m.heads = m.kv_heads = 4;
  m.head_dim = 8;
  m.ffn_hidden = 128;
  m.vocab = 64;
  m.max_sequence = 32;
  trial.spec.shape.batch = 8;
  trial.spec.shape.sequence = 16;
  trial.spec.shape.micro_batch = 2;
  trial.spec.numerics.vocab_multiple = 32;
  plan::Training& t = trial.training;
  t.steps = 20;
  t.data = kGolden + "tokens.bin";
  t.initial_weights = kGolden + "initial.safetensors";
  t.optimizer = {plan::OptimizerKind::adamw, run == "constant" ? 1e-3 : 3e-3, 0.9, 0.95, 1e-8, 0.1};
  if (run != "constant") {
    t.schedule = {5, plan::Decay::cosine, 3e-4};
    t.clip_norm = 1.0;
  }
  return trial;
}

Trial golden_bert() {
  Trial trial = golden_trial("cosine_clipped");
  models::Model& m = trial.model;
  m.name = "golden-bert";
  m.family = models::Family::bert;
  m.vocab = 67;  // 64 words, [CLS], [SEP], [MASK]
  m.token_types = 2;
  m.causal = m.pre_norm = false;
  m.norm_epsilon = 1e-12;
  m.gelu = models::Gelu::erf;
  m.masked_fraction = 0.15;
  m.next_sentence = true;
  trial.training.initial_weights = kGolden + "bert_initial.safetensors";
  return trial;
}

plan::Plan plan_of(const Trial& trial) {
  plan::PlanSpec spec = trial.spec;
  plan::take_optimizer(spec, trial.training);
  return value_of(
      plan::make_plan(std::make_shared<const models::Model>(trial.model), localhost(spec.mesh.ranks()), spec));
}

std::string plan_text(const Trial& trial) {
  const plan::Plan plan = plan_of(trial);
  plan::PlanFile file;
  file.model = trial.model;
  file.cluster = plan.cluster();
  file.spec = plan.spec();
  file.job.model = trial.model.name;
  file.job.cluster = plan.cluster().name;
  file.job.batch = plan.spec().shape.batch;
  file.job.sequence = plan.spec().shape.sequence;
  file.job.precision = plan.spec().numerics.precision;
  file.job.rounding = plan.spec().numerics.rounding;
  file.job.training = trial.training;
  return plan::write_plan_file(file);
}

void in_threads(int ranks, const std::function<void(int)>& body, const std::function<void(const std::string&)>& abort) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

Outcome train(const Trial& trial) {
  const plan::Plan plan = plan_of(trial);
  return train(trial, plan, plan::lower(plan));
}

Outcome train_serially(const Trial& trial) {
  const plan::SerialProgram program = value_of(plan::serial_program(plan_of(trial), *localhost(1)));
  return train(trial, program.plan, program.schedule);
}

Outcome train(const Trial& trial, const plan::Plan& plan, const plan::Schedule& of_all) {
  base::Diagnostics faults = plan::check(of_all);
  if (faults.empty()) faults = plan::rehearse(of_all);
  EXPECT_TRUE(faults.empty()) << base::render(faults, false);
  if (!faults.empty()) return {};
  const int ranks = plan.spec().mesh.ranks();
  const Waiter waiter(wait_policy(ranks, 1, std::chrono::seconds(60)));
  ThreadWorld world(ranks);
  Outcome out;
  out.memory.resize(static_cast<std::size_t>(ranks));
  out.host_memory = out.file_memory = out.memory;
  out.placements.resize(out.memory.size());
  out.spans.resize(out.memory.size());
  out.graphs.resize(out.memory.size());
  const auto body = [&](int rank) {
    plan::Schedule schedule = of_all;
    plan::name_experts(schedule, rank);
    const auto host = world.transport(rank);
    const Devices devices = trial.devices ? trial.devices(*host) : Devices{make_cpu_backend(1), nullptr};
    Backend* const backend = devices.backend.get();
    Transport* const transport = devices.transport ? devices.transport.get() : host.get();
    const auto read = [&](const std::string& path, plan::DataOrder order) {
      if (const auto& recommender = trial.model.recommender)
        return Batches(value_of(ClickFile::open(path, *recommender)), order, trial.training.seed,
                       plan.spec().shape.batch);
      Batches batches(value_of(TokenStream::open(path)), order, trial.training.seed, plan.spec().shape.batch,
                      plan.spec().shape.sequence, trial.model.vocab);
      const std::int64_t masked = models::predictions_per_sequence(trial.model, plan.spec().shape.sequence);
      const auto words = static_cast<std::int32_t>(trial.model.vocab - 3);  // the others are [CLS], [SEP], [MASK]
      if (masked > 0) batches.mask({{words, words + 1, words + 2}, words, masked, trial.model.next_sentence});
      return batches;
    };
    Batches batches = read(trial.training.data, trial.training.order);
    std::optional<Batches> held_out;
    if (trial.training.evaluation) held_out.emplace(read(trial.training.evaluation->data, plan::DataOrder::sequential));
    Executor::Options options;
    options.check = trial.check;
    options.state_file = ::testing::TempDir() + "state-" + std::to_string(::getpid()) + "-" + std::to_string(rank);
    options.progress = trial.progress;
    options.queue_messages = trial.queue_messages;
    options.graphs = trial.graphs;
    options.sample_every = trial.sample_every;
    Trainer trainer(plan, trial.training, schedule, *backend, *transport, waiter, std::move(batches), options,
                    std::move(held_out));
    if (trial.training.initial_weights.empty()) {
      initialise(schedule, rank, trainer.executor().arena(), *backend, seeded_source(trial.training.seed),
                 trial.training.loss_scaling.initial);
    } else {
      const SafetensorsFile file = value_of(SafetensorsFile::open(trial.training.initial_weights));
      initialise(schedule, rank, trainer.executor().arena(), *backend,
                 value_of(file_source(file, schedule, &trial.model, seeded_source(trial.training.seed))),
                 trial.training.loss_scaling.initial);
    }
    const auto evaluate = [&] {
      if (!trial.training.evaluation) return;
      const double loss = trainer.evaluate();
      if (rank == 0) out.held_out.push_back(loss);
    };
    evaluate();
    trainer.ends_after(trial.steps);
    for (std::int64_t step = 0; step < trial.steps; ++step) {
      std::function<void()> capture;
      if (trial.gradients_at.count(step))
        capture = [&] {
          LogicalTensors all =
              gather_logical(schedule, Gathered::gradients, trainer.executor().arena(), *backend, *transport);
          if (rank == 0) out.gradients[step] = std::move(all);
        };
      const StepResult result = trainer.step(step, capture);
      if (trial.after_step) trial.after_step(*backend, step);
      if (rank == 0) out.steps.push_back(result);
      evaluate();
    }
    LogicalTensors weights =
        gather_logical(schedule, Gathered::weights, trainer.executor().arena(), *backend, *transport);
    if (rank == 0) out.weights = std::move(weights);
    const auto i = static_cast<std::size_t>(rank);
    out.graphs[i] = trainer.executor().graphs();
    out.memory[i] = trainer.executor().arena().use();
    out.host_memory[i] = trainer.executor().arena().use(plan::Space::host);
    out.file_memory[i] = trainer.executor().arena().use(plan::Space::nvme);
    out.placements[i] = trainer.placement();
    out.spans[i] = trainer.executor().spans();
  };
  in_threads(ranks, body, [&](const std::string& why) { world.abort(why); });
  return out;
}

LogicalTensors determined(LogicalTensors weights) {
  std::erase_if(weights, [](const auto& one) { return one.first.find(".k.bias") != std::string::npos; });
  return weights;
}

double relative_distance(const LogicalTensors& a, const LogicalTensors& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0;
  double norm = 0;
  for (const auto& [name, reference] : b) {
    const auto found = a.find(name);
    EXPECT_TRUE(found != a.end() && found->second.shape == reference.shape) << name;
    if (found == a.end() || found->second.values.size() != reference.values.size()) return INFINITY;
    for (std::size_t i = 0; i < reference.values.size(); ++i) {
      const double r = static_cast<double>(reference.values[i]);
      const double d = static_cast<double>(found->second.values[i]) - r;
      difference += d * d;
      norm += r * r;
    }
  }
  return std::sqrt(difference / norm);
}

double loss_distance(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.steps.size(), b.steps.size());
  double worst = 0;
  for (std::size_t i = 0; i < std::min(a.steps.size(), b.steps.size()); ++i)
    worst = std::max(worst, std::abs(a.steps[i].loss - b.steps[i].loss) / std::abs(b.steps[i].loss));
  return a.steps.empty() ? INFINITY : worst;
}

}  // namespace orrery::exec::testing
