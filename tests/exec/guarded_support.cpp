// Runs in threads whose guards are looked at.
#include "tests/exec/guarded.h"

#include <algorithm>
#include <mutex>

#include "exec/engine/thread_transport.h"
#include "plan/lower/experts.h"
#include "plan/lower/lower.h"

namespace orrery::exec::testing {

std::string Guarded::text() const {
  return found.empty() ? "" : base::render(found.front(), false);
}

bool Guarded::completed() const {
  return failure.empty() &&
         std::all_of(found.begin(), found.end(), [](const base::Diagnostics& one) { return one.empty(); });
}

std::vector<nlohmann::json> Guarded::of(const std::string& name) const {
  std::vector<nlohmann::json> out;
  for (const nlohmann::json& event : events)
    if (event.at("event") == name) out.push_back(event);
  return out;
}

Guarded run_guarded(const Trial& trial, const std::filesystem::path& folder,
                    const std::function<void(RunOptions&)>& more) {
  const plan::Plan plan = plan_of(trial);
  const plan::Schedule of_all = plan::lower(plan);
  const int ranks = plan.spec().mesh.ranks();
  const Waiter waiter(wait_policy(ranks, 1, std::chrono::seconds(60)));
  ThreadWorld world(ranks);
  Guarded out;
  out.found.resize(static_cast<std::size_t>(ranks));
  try {
    in_threads(
        ranks,
        [&](int rank) {
          plan::Schedule schedule = of_all;
          plan::name_experts(schedule, rank);
          const auto transport = world.transport(rank);
          const auto backend = make_cpu_backend(1);
          RunOptions options;
          options.directory = folder;
          options.plan_text = plan_text(trial);
          options.steps = trial.training.steps;
          options.checkpoint_interval = std::chrono::hours(1);
          options.timeline = false;
          options.report = [&](const std::string& line) { out.events.push_back(nlohmann::json::parse(line)); };
          if (more) more(options);
          options.overwrite = !options.resume;  // runs of a test follow each other in one folder
          const auto done = run(plan, trial.training, schedule, *backend, *transport, waiter, options);
          if (!done) out.found[static_cast<std::size_t>(rank)] = done.error();
        },
        [&](const std::string& why) { world.abort(why); });
  } catch (const std::exception& error) {
    out.failure = error.what();
  }
  return out;
}

Trial small_trial(int data, std::int64_t steps) {
  Trial trial = golden_trial("constant");
  trial.training.initial_weights.clear();
  trial.training.steps = steps;
  trial.spec.mesh.data = data;
  trial.spec.shape.micro_batch = 1;
  return trial;
}

}  // namespace orrery::exec::testing
