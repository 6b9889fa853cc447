// Locks the directory; draws, reads or resumes the parameters.
#include "exec/run/run_beginning.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "exec/events.h"
#include "exec/failure.h"
#include "exec/run/run_start.h"
#include "exec/state/agreement.h"
#include "exec/state/initialise.h"
#include "exec/state/weight_names.h"

namespace orrery::exec {

base::Result<bool> RunBeginning::lock() {
  const RunOptions& options = run_.options;
  base::Result<bool> mine = true;
  together(run_.transport, [&] {
    if (!run_.first_rank()) return;
    make_folders(options.directory);
    lock_ = lock_file(options.directory / "lock");
    if (lock_.held()) finish_removing(options.directory);
    if (!lock_.held())
      mine = base::fail("E0626", fmt::format("another run is training in {}", options.directory.string()),
                        "wait until it ends, or train into another directory");
    else if (!options.resume && !options.overwrite)
      mine = may_begin_in(options.directory);
    if (mine) sweep_debris(options.directory, options.run_id);
  });
  return mine;
}

base::Result<bool> RunBeginning::load() try { return parameters(); } catch (const InputFailure& failure) {
  return base::fail({failure.diagnostic()});
}

base::Result<bool> RunBeginning::parameters() {
  const plan::Training& training = run_.training;
  const int threads = run_.options.threads;
  Arena& arena = trainer_.executor().arena();
  run_.report({{"event", "preparing"}});  // drawing or reading the weights of a large model takes time
  if (run_.options.resume) {
    const auto resumed = resume();
    if (!resumed || *resumed) return resumed;
    run_.warn("E0627", "there is no checkpoint to resume from: the run begins at step 1",
              "checkpoints are saved at the end, when stopped, and every minute or --checkpoint-every");
  }
  if (training.initial_weights.empty()) {
    initialise(run_.schedule, run_.transport.rank(), arena, run_.backend, seeded_source(training.seed, threads),
               training.loss_scaling.initial, threads);
    return true;
  }
  auto files = open_weights(training.initial_weights);
  if (!files) return base::fail(files.error());
  auto source = file_source(*files, run_.schedule, &run_.plan.model(), seeded_source(training.seed, threads));
  if (!source) return base::fail(source.error());
  initialise(run_.schedule, run_.transport.rank(), arena, run_.backend, *source, training.loss_scaling.initial);
  return true;
}

/// Loads the newest whole checkpoint; false if there is none because none was ever saved.
base::Result<bool> RunBeginning::resume() {
  const RunOptions& options = run_.options;
  base::Result<bool> mine = true;
  bool any = false;
  together(run_.transport, [&] {
    if (!run_.first_rank()) return;
    mine = may_resume_in(options.directory);
    any = mine && *mine;
    if (any) mine = may_go_on(options.directory, run_.plan);
  });
  if (auto all = agreed(run_.transport, mine); !all) return all;
  together(run_.transport, [&] {
    if (run_.first_rank()) (void)data();
  });
  if (run_.transport.maximum(any ? 1 : 0) == 0) return false;
  resumed_ = load_newest(context_, options.directory / kCheckpoints);
  if (!resumed_.from) {
    std::string found;
    for (const DamagedGeneration& one : resumed_.damaged) found += (found.empty() ? "" : "; ") + one.why;
    return base::fail({nothing_whole(options.directory, found)});
  }
  first_step_ = resumed_.manifest.step;
  if (resumed_.manifest.sequences) trainer_.go_on_at(first_step_, *resumed_.manifest.sequences);
  const bool done = run_.first_rank() && recorded_as_completed(options.directory);
  if (run_.transport.maximum(first_step_ > options.steps || (first_step_ == options.steps && done) ? 1 : 0) > 0)
    return base::fail(
        "E0621", fmt::format("the run has already done {} steps, but {} were asked for", first_step_, options.steps),
        "ask for more with --steps, or train into another directory");
  together(run_.transport, [&] {
    if (!run_.first_rank()) return;
    for (const base::Diagnostic& one : said_of(options.directory, resumed_, run_.plan, run_.training, data()))
      run_.report(diagnostic_event(one));
  });
  return true;
}

const DataMark& RunBeginning::data() {
  if (!data_) data_ = mark_of(trainer_.data());
  return *data_;
}

}  // namespace orrery::exec
