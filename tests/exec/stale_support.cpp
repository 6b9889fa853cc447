// The serial program with a memory. Weights and gradients are moved as logical tensors, so that nothing of how the
// pipeline keeps its versions is used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "exec/engine/thread_transport.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/exec/stale.h"

namespace orrery::exec::testing {
namespace {

constexpr const char* kTable = "wte.weight";
constexpr const char* kHead = "lm_head.weight";

struct Ages {
  std::map<std::string, int> delay;  ///< by parameter
  std::map<std::string, int> stage;  ///< which clips by its own norm
  bool two_tables = false;
};

/// From the split plan: who holds what, by name; the delays are the papers', written out once more.
Ages ages_of(const Trial& trial) {
  const plan::Plan plan = plan_of(trial);
  const int stages = trial.spec.mesh.pipeline;
  const auto delay = [&](int s) {
    return trial.spec.stages.order == plan::Order::pipedream            ? stages - 1 - s
           : trial.spec.stages.order == plan::Order::pipedream_vertical ? stages - 1
                                                                        : 1;
  };
  Ages ages;
  ages.two_tables = trial.model.tied_embeddings && delay(0) != delay(stages - 1);
  for (const plan::RankClass& c : plan::lower(plan).classes)
    for (const plan::Bucket& bucket : c.buckets)
      for (const plan::ParameterRange& range : bucket.ranges) {
        const bool second = ages.two_tables && range.name == kTable && c.stage.number() == stages - 1;
        const std::string name = second ? kHead : range.name;
        ages.delay[name] = delay(c.stage.number());
        // Ends that share a table clip together.
        ages.stage[name] = trial.model.tied_embeddings && c.stage.number() == stages - 1 ? 0 : c.stage.number();
      }
  return ages;
}

class StaleTrainer {
 public:
  explicit StaleTrainer(const Trial& split) : split_(split), ages_(ages_of(split)), serial_(split) {
    plan::PlanSpec& spec = serial_.spec;
    spec.mesh.data = spec.mesh.tensor = spec.mesh.pipeline = spec.mesh.context = 1;
    spec.stages.order = plan::Order::one_f_one_b;
    spec.states.zero_stage = 0;
    spec.mesh.sequence_parallel = false;
    spec.recomputation.what = plan::Recompute::none;
    spec.stages.layers_per_stage.clear();
    serial_.training.clip_norm.reset();
    serial_.model.tied_embeddings &= !ages_.two_tables;
  }

  Outcome run() {
    const plan::Plan plan = plan_of(serial_);
    schedule_ = plan::lower(plan);
    ThreadWorld world(1);
    const auto transport = world.transport(0);
    const Waiter waiter(wait_policy(1, available_cores(), std::chrono::seconds(60)));
    const auto backend = make_cpu_backend(1);
    auto stream = TokenStream::open(serial_.training.data);
    if (!stream) throw std::runtime_error(base::render(stream.error(), false));
    Batches batches(std::move(*stream), serial_.training.order, serial_.training.seed, plan.spec().shape.batch,
                    plan.spec().shape.sequence, serial_.model.vocab);
    Trainer trainer(plan, serial_.training, schedule_, *backend, *transport, waiter, std::move(batches), {});
    arena_ = &trainer.executor().arena();
    backend_ = backend.get();
    initialise(schedule_, 0, *arena_, *backend, seeded_source(serial_.training.seed));
    const auto gathered = [&](Gathered what) { return gather_logical(schedule_, what, *arena_, *backend, *transport); };
    std::vector<LogicalTensors> history{gathered(Gathered::weights)};
    if (ages_.two_tables) history.front()[kHead] = history.front().at(kTable);
    Outcome out;
    for (std::int64_t step = 0; step < serial_.steps; ++step) {
      LogicalTensors old;
      for (const auto& [name, delay] : ages_.delay)
        old[name] = history[static_cast<std::size_t>(std::max<std::int64_t>(0, step - delay))].at(name);
      write(old, false);
      out.steps.push_back(trainer.step(step, [&] {
        LogicalTensors gradients = gathered(Gathered::gradients);
        if (ages_.two_tables) add_tables(gradients);
        if (split_.gradients_at.count(step)) {
          out.gradients[step] = gradients;
          if (ages_.two_tables) out.gradients[step].erase(kHead);
        }
        clip(gradients);
        write(gradients, true);
        write(history.back(), false);
      }));
      history.push_back(gathered(Gathered::weights));
    }
    out.weights = history.back();
    if (ages_.two_tables) out.weights.erase(kHead);
    return out;
  }

 private:
  void write(const LogicalTensors& tensors, bool gradients) {
    const plan::RankClass& c = schedule_.classes.front();
    for (const plan::Bucket& bucket : c.buckets) {
      plan::BufferId buffer = bucket.parameters;
      const std::vector<Holding> mine =
          gradients ? gradient_holdings(c, bucket, 0, buffer) : holdings(c, bucket, buffer, 0);
      transfer(arena_->data(buffer, -1), models::DType::fp32, mine, 0, *backend_, StateTransfer::to_device,
               [&](const Holding& holding, const Run& run, std::span<float> values) {
                 const std::vector<float>& from = tensors.at(holding.range->name).values;
                 std::copy_n(from.begin() + run.logical, values.size(), values.begin());
               });
    }
  }

  static void add_tables(LogicalTensors& gradients) {
    std::vector<float>& table = gradients.at(kTable).values;
    std::vector<float>& head = gradients.at(kHead).values;
    for (std::size_t i = 0; i < table.size(); ++i) head[i] = table[i] += head[i];
  }

  void clip(LogicalTensors& gradients) const {
    if (!split_.training.clip_norm) return;
    std::map<int, double> squares;
    for (const auto& [name, tensor] : gradients)
      if (!ages_.two_tables || name != kHead)
        for (const float g : tensor.values) squares[ages_.stage.at(name)] += static_cast<double>(g) * g;
    for (auto& [name, tensor] : gradients) {
      const double factor =
          std::min(1.0, *split_.training.clip_norm / (std::sqrt(squares.at(ages_.stage.at(name))) + 1e-6));
      for (float& g : tensor.values) g = static_cast<float>(g * factor);
    }
  }

  const Trial& split_;
  Ages ages_;
  Trial serial_;
  plan::Schedule schedule_;
  Arena* arena_ = nullptr;
  Backend* backend_ = nullptr;
};

}  // namespace

Outcome train_stale(const Trial& trial) {
  return StaleTrainer(trial).run();
}

Trial asynchronous_trial(plan::Order order, int stages) {
  Trial trial = golden_trial("constant");
  trial.training.initial_weights.clear();
  trial.training.order = plan::DataOrder::shuffled;
  trial.training.optimizer.learning_rate = 1e-3;
  trial.model.layers = 4;
  trial.spec.stages.order = order;
  trial.spec.mesh.pipeline = stages;
  trial.spec.shape.batch = 8;
  trial.spec.shape.micro_batch = order == plan::Order::pipedream_2bw ? 2 : 8;
  return trial;
}

}  // namespace orrery::exec::testing
