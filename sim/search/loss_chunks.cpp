/// The number of chunks that a loss needs.
#include "sim/search/loss_chunks.h"

#include "models/layers/inputs.h"
#include "plan/lower/buckets.h"
#include "plan/schedule/orders.h"

namespace orrery::sim {

namespace {

/// Products with fewer rows leave much of a device idle.
constexpr std::int64_t kLeastRows = 256;
constexpr std::int64_t kMostLossChunks = 64;

/// Rows for which the head computes logits.
std::int64_t rows_of(const models::Model& model, const plan::PlanSpec& spec) {
  const std::int64_t predicted = models::predictions_per_sequence(model, spec.shape.sequence);
  return spec.shape.micro_batch * (predicted > 0 ? predicted : spec.tokens_per_rank());
}

/// A lower bound on the memory of logits and their statistics, on the stage that has them.
double most_saved(const models::Model& model, const plan::Plan& plan) {
  const plan::PlanSpec& spec = plan.spec();
  const models::ExpandOptions options = plan::expand_options(spec);
  const std::int64_t columns = models::padded_vocab(model, options.tensor, options.vocab_multiple) / options.tensor;
  constexpr std::int64_t kStatistics = 12;  // maximum, sum and target logit
  const bool plain = spec.stages.virtual_stages == 1 && !spec.stages.asynchronous();
  const std::int64_t flying =
      plain ? plan::in_flight(spec.stages.order, spec.head_stage().number(), spec.mesh.pipeline, plan.micro_batches())
            : plan.micro_batches();
  return static_cast<double>(flying * rows_of(model, spec) * (columns * models::size_of(options.dtype) + kStatistics));
}

}  // namespace

bool may_chunk(const plan::Job& job, const cost::Stack& stack) {
  return job.bounds.numerics.loss_chunks.empty() && !stack.memory.stated;
}

std::int64_t loss_chunks_that_fit(cost::Estimator& estimator, const plan::Plan& plan,
                                  std::shared_ptr<const models::Model> model,
                                  std::shared_ptr<const clusters::Cluster> cluster, double memory, double capacity) {
  if (plan.spec().numerics.loss_chunks > 1 || memory - most_saved(*model, plan) > capacity) return 1;
  const std::int64_t rows = rows_of(*model, plan.spec());
  for (std::int64_t chunks = 2; chunks <= kMostLossChunks && rows / chunks >= kLeastRows; chunks *= 2) {
    plan::PlanSpec spec = plan.spec();
    spec.numerics.loss_chunks = chunks;
    const auto made = plan::make_plan(model, cluster, std::move(spec));
    if (!made) return 1;
    if (estimator.memory_peak(*made) <= capacity) return chunks;
  }
  return 1;
}

}  // namespace orrery::sim
