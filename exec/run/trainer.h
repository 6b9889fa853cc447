#pragma once
/// Trainer: one rank of a training run: executor, data and optimizer settings put together. It has no files of its own:
/// exec/run/run.h adds the run directory.
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "exec/data/click_reader.h"
#include "exec/data/data.h"
#include "exec/engine/execute.h"
#include "plan/schedule/place.h"
#include "plan/spec/job.h"
#include "plan/spec/plan.h"

namespace orrery::exec {

struct StepResult {
  double loss = 0;  ///< mean over the step's tokens, before the update
  double gradient_norm =
      0;  ///< before clipping; for an asynchronous pipeline over all stages, each of which clips by its own
  double learning_rate = 0;
  double loss_scale = 0;                     ///< fp16; 0: none
  bool skipped = false;                      ///< its gradients overflowed
  Executor::Lossless lossless;               ///< of this rank
  Executor::ExpertUse experts;               ///< of this rank's stage
  std::map<int, Executor::CacheUse> caches;  ///< of tables, on this rank
  double seconds = 0;                        ///< of the slowest rank
};

class Trainer {
 public:
  /// Collective. `schedule` must be lower(plan), checked, and outlive the trainer; so must all else except `batches`.
  /// `held_out` is given if the job evaluates: the same plan's forward passes are lowered for it, and run in the arena
  /// of the training step, which is large enough for both.
  Trainer(const plan::Plan& plan, const plan::Training& training, const plan::Schedule& schedule, Backend& backend,
          Transport& transport, const Waiter& waiter, Batches batches, const Executor::Options& options,
          std::optional<Batches> held_out = std::nullopt);

  /// The run's last step is `steps` - 1: a pipeline that does not drain between steps starts no passes of later steps.
  void ends_after(std::int64_t steps) { end_ = steps; }

  /// A resumed run continues after this many sequences (Batches::go_on_at).
  void go_on_at(std::int64_t step, std::int64_t sequences) {
    reader_.reset();
    batches_.go_on_at(step, sequences);
  }
  [[nodiscard]] std::int64_t sequences_before(std::int64_t step) const { return batches_.sequences_before(step); }
  [[nodiscard]] const Batches& data() const { return batches_; }

  /// One training step, counted from 0, as this rank saw it: loss and norm are NaN if its stage has none.
  StepResult step_here(std::int64_t index, const std::function<void()>& before_optimizer = {},
                       const std::function<void(const plan::StepRef&)>& before_each = {});
  /// The same, agreed on by all ranks. Collective.
  StepResult step(std::int64_t index, const std::function<void()>& before_optimizer = {});
  /// Mean loss over the job's evaluation batches, in order, with the current parameters. Collective.
  [[nodiscard]] double evaluate();
  /// Area under the ROC curve of all samples of a recommendation model's last evaluation, on rank 0.
  [[nodiscard]] std::optional<double> area_under_curve() const { return auc_; }
  /// If the evaluation's samples are generated, the area that their true probabilities reach, on rank 0 after the first
  /// evaluation: no model does better except by chance.
  [[nodiscard]] std::optional<double> best_area() const { return best_auc_; }

  [[nodiscard]] Executor& executor() { return executor_; }
  [[nodiscard]] const Executor& executor() const { return executor_; }
  [[nodiscard]] const plan::Placement& placement() const { return placement_; }
  /// The highest end of anything handed out in the arena, bytes.
  [[nodiscard]] std::int64_t arena_peak() const;

 private:
  /// The evaluation's own program and data.
  struct HeldOut {
    HeldOut(const plan::Plan& plan, const plan::Placement& step, const plan::RankClass& step_class, int rank,
            Batches data);
    Batches batches;
    plan::Schedule schedule;
    plan::Placement placement;
    std::optional<Executor> executor;
  };
  [[nodiscard]] std::optional<double> area_of(const std::vector<float>& scores, const std::vector<float>& labels);
  void judge_click_model();
  [[nodiscard]] StepInput input_of(const Batches& batches, std::int64_t index) const;
  void read_ahead(StepInput& input);
  const plan::Plan& plan_;
  const plan::Training& training_;
  Transport& transport_;
  plan::Placement placement_;
  std::unique_ptr<HeldOut> held_out_;
  Batches batches_;
  std::unique_ptr<ClickReader> reader_;  ///< of a recommendation model; made when the first step reads
  Executor executor_;
  std::optional<double> auc_, best_auc_;
  bool click_model_judged_ = false;
  std::int64_t end_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace orrery::exec
