#pragma once
/// Runs in threads of this process, into folders of their own: what a run directory holds before, between and after.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "exec/engine/thread_transport.h"
#include "exec/run/run.h"
#include "plan/lower/lower.h"
#include "tests/exec/training.h"

namespace orrery::exec::testing {

class RunFolder : public ::testing::Test {
 protected:
  RunFolder() : folder_(std::filesystem::temp_directory_path() / ("orrery-runs-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(folder_);
  }
  ~RunFolder() override { std::filesystem::remove_all(folder_); }

  static Trial trial() {
    Trial trial = golden_trial("cosine_clipped");
    trial.model.layers = 4;
    trial.training.initial_weights.clear();
    trial.training.order = plan::DataOrder::shuffled;
    trial.training.steps = 6;
    trial.spec.mesh.data = trial.spec.mesh.pipeline = 2;
    trial.spec.shape.micro_batch = 1;
    trial.spec.states.zero_stage = 1;
    return trial;
  }
  /// All ranks as threads, into folder `name`. Returns rank 0's events.
  std::vector<nlohmann::json> go(const Trial& trial, const std::string& name, std::int64_t steps,
                                 const std::function<void(RunOptions&)>& more = {}) {
    const plan::Plan plan = plan_of(trial);
    const plan::Schedule schedule = plan::lower(plan);
    const Waiter waiter(wait_policy(plan.spec().mesh.ranks(), 1, std::chrono::seconds(60)));
    ThreadWorld world(plan.spec().mesh.ranks());
    std::vector<nlohmann::json> events;
    in_threads(
        plan.spec().mesh.ranks(),
        [&](int rank) {
          const auto transport = world.transport(rank);
          const auto backend = make_cpu_backend(1);
          RunOptions options;
          options.directory = folder_ / name;
          options.plan_text = plan_text(trial);
          options.steps = steps;
          options.report = [&](const std::string& line) { events.push_back(nlohmann::json::parse(line)); };
          if (more) more(options);
          const auto done = run(plan, trial.training, schedule, *backend, *transport, waiter, options);
          if (!done && rank == 0) throw std::runtime_error(base::render(done.error(), false));
        },
        [&](const std::string& why) { world.abort(why); });
    return events;
  }
  std::vector<nlohmann::json> lines(const std::string& name) const {
    std::vector<nlohmann::json> out;
    std::ifstream in(folder_ / name / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
    return out;
  }
  std::filesystem::path checkpoint(const std::string& name, const char* step) const {
    return folder_ / name / "checkpoints" / step;
  }
  std::filesystem::path folder_;
};

}  // namespace orrery::exec::testing
