#pragma once
/// Trains small models in threads of this process, for tests: a model, a plan spec, a job, and what came out.
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "clusters/cluster.h"
#include "exec/run/trainer.h"
#include "exec/state/gather_logical.h"
#include "models/model.h"
#include "plan/spec/plan.h"

namespace orrery::exec::testing {

struct Outcome {
  std::vector<StepResult> steps;
  std::map<std::int64_t, LogicalTensors> gradients;  ///< by step, from 0
  LogicalTensors weights;                            ///< after the last step
  std::vector<double> held_out;                      ///< loss before the first step and after each, where evaluated
  std::vector<ArenaUse> memory;                      ///< by rank
  std::vector<ArenaUse> host_memory, file_memory;    ///< of what is offloaded, by rank
  std::vector<plan::Placement> placements;           ///< by rank
  std::vector<std::vector<RawSpan>> spans;           ///< by rank
  std::vector<Executor::GraphCounts> graphs;         ///< by rank
};

/// What a rank computes and communicates with, in the order of construction.
struct Devices {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Transport> transport;  ///< null: the host's own
};

struct Trial {
  models::Model model;
  plan::PlanSpec spec;
  plan::Training training;
  std::int64_t steps = 20;
  std::set<std::int64_t> gradients_at = {0, 19};
  Arena::Check check = Arena::Check::overlaps_and_poison;
  Communication::Progress progress = Communication::Progress::inlined;
  std::function<Devices(Transport& host)> devices;  ///< empty: the CPU backend
  bool queue_messages = true, graphs = true;        ///< as Executor::Options, as the next
  std::int64_t sample_every = 1;
  std::function<void(Backend&, std::int64_t step)> after_step;  ///< on every rank, of its own thread
};

/// An optimizer at rates at which the small models of these tests learn.
[[nodiscard]] plan::Optimizer optimizer_of(plan::OptimizerKind kind);

/// The model and job of tests/golden/pytorch, run `cosine_clipped` or `constant`.
[[nodiscard]] Trial golden_trial(const std::string& run);
/// The model of tests/golden/pytorch/generate_bert.py, run `cosine_clipped`.
[[nodiscard]] Trial golden_bert();
[[nodiscard]] plan::Plan plan_of(const Trial& trial);
/// The trial as a self-contained plan file.
[[nodiscard]] std::string plan_text(const Trial& trial);
/// Lowers, checks and trains. Fails the test on any diagnostic or Failure.
[[nodiscard]] Outcome train(const Trial& trial);
/// Without the biases of keys: they move no attention (all scores of a row alike), so that their gradient is rounding
/// alone. Adafactor, without an epsilon to speak of, scales it up to whole steps, and Lion takes one for its sign.
[[nodiscard]] LogicalTensors determined(LogicalTensors weights);
/// ||a - b|| / ||b|| over all tensors together.
[[nodiscard]] double relative_distance(const LogicalTensors& a, const LogicalTensors& b);
/// The largest |a - b| / |b| of the losses.
[[nodiscard]] double loss_distance(const Outcome& a, const Outcome& b);

/// Runs `body(rank)` on `ranks` threads; the first exception aborts `abort` and is thrown again here.
void in_threads(int ranks, const std::function<void(int)>& body, const std::function<void(const std::string&)>& abort);

}  // namespace orrery::exec::testing
