// Stages of a pipeline, their orders, and micro-batches.
#include "plan/spec/plan_rules.h"

#include <fmt/core.h>

#include <numeric>
#include <vector>

#include "base/units.h"

namespace orrery::plan {

void stage_rules(const Proposed& p, BrokenRules& broken) {
  const std::int64_t chunks = p.spec.places();
  const bool ends = p.spec.stages.ends_as_layers || !p.spec.stages.layers_per_stage.empty();
  broken.rule(chunks <= p.model.layers + (ends ? kEnds : 0), "P06",
              text("{} pipeline stages for {} layers leave a stage without layers", chunks, p.model.layers),
              !ends && chunks <= p.model.layers + kEnds
                  ? "use fewer stages, or ends_as_layers: true, which gives embedding and head stages of their own"
                  : "use fewer stages");
  const bool folded = p.spec.stages.folds() && p.spec.stages.virtual_stages == 2;
  const bool custom = p.spec.stages.order == Order::custom;
  broken.rule(custom != p.spec.stages.passes.empty(), "P111",
              text("{}{}", custom ? "" : name_of(p.spec.stages.order),
                   custom ? "a custom order without its passes" : " with a custom order's passes"),
              custom ? "passes: [...], or schedule: 1f1b" : "schedule: custom");
  if (custom && !p.spec.stages.passes.empty())
    broken.rule(
        p.spec.stages.passes.stages() == p.spec.mesh.pipeline &&
            p.spec.stages.passes.chunks() == p.spec.stages.virtual_stages,
        "P112",
        text("the order is for {} with {} each, but the plan has {} with {}",
             base::count_of(p.spec.stages.passes.stages(), "rank"),
             base::count_of(p.spec.stages.passes.chunks(), "virtual stage"), p.spec.mesh.pipeline,
             p.spec.stages.virtual_stages),
        text("pipeline: {} and virtual_stages: {}", p.spec.stages.passes.stages(), p.spec.stages.passes.chunks()));
  broken.rule(p.spec.stages.virtual_stages == 1 || folded || custom ||
                  (p.spec.mesh.pipeline > 1 && p.spec.stages.order == Order::one_f_one_b),
              "P17", "virtual stages are chunks of a pipeline's stages, run interleaved in 1F1B");
  broken.rule(!p.spec.stages.splits_backward() || p.spec.mesh.pipeline > 1, "P23",
              text("{} orders the passes of a pipeline, but there is only one stage", name_of(p.spec.stages.order)),
              "more pipeline stages, or schedule: 1f1b");
  broken.rule(!p.spec.stages.folds() || custom || p.spec.stages.virtual_stages == 2, "P23",
              text("{} leads back up the stages, so each needs two chunks", name_of(p.spec.stages.order)),
              "virtual_stages: 2");
  broken.rule(!p.spec.stages.splits_backward() || p.spec.states.zero_stage <= 1, "P24",
              text("{} adds to a layer's gradients after other micro-batches have passed it, when ZeRO {} has "
                   "already freed their memory",
                   name_of(p.spec.stages.order), p.spec.states.zero_stage));
  const std::vector<std::int64_t>& split = p.spec.stages.layers_per_stage;
  if (split.empty()) return;
  broken.rule(
      static_cast<std::int64_t>(split.size()) == chunks, "P07",
      text("layers_per_stage lists {}, but the plan has {}", base::count_of(std::ssize(split), "stage"), chunks));
  broken.rule(
      std::accumulate(split.begin(), split.end(), std::int64_t{0}) == p.model.layers, "P08",
      text("layers_per_stage adds up to {}, but the model has {}",
           std::accumulate(split.begin(), split.end(), std::int64_t{0}), base::count_of(p.model.layers, "layer")));
  // The end stages may have no block: embedding or head is enough for a stage, and one stage may have both.
  for (std::size_t i = 0; i < split.size(); ++i) {
    const bool end = split.size() > 1 && (i == 0 || i + 1 == split.size());
    broken.rule(split[i] >= (end ? 0 : 1), "P06", "a pipeline stage without layers");
  }
}

void batch_rules(const Proposed& p, BrokenRules& broken) {
  const std::int64_t per_round = static_cast<std::int64_t>(p.spec.mesh.data) * p.spec.shape.micro_batch;
  broken.rule(p.spec.shape.batch % per_round == 0, "P09",
              text("data {} x micro-batch {} does not divide the batch of {}", p.spec.mesh.data,
                   p.spec.shape.micro_batch, p.spec.shape.batch),
              "the batch is data x micro_batch x micro-batches");
  constexpr std::int64_t kMostMicroBatches = 1 << 16;  // a program has steps for each of them
  const std::int64_t passes = p.spec.micro_batches();
  broken.rule(passes <= kMostMicroBatches, "P13",
              text("{} micro-batches per rank, more than {}", passes, kMostMicroBatches));
  const bool custom = p.spec.stages.order == Order::custom;
  broken.rule(!custom || p.spec.stages.passes.empty() || p.spec.stages.passes.micro_batches() == passes, "P113",
              text("the order is for {}, but the plan has {}",
                   base::count_of(p.spec.stages.passes.micro_batches(), "micro-batch"), passes));
  broken.rule(
      p.spec.stages.virtual_stages == 1 || p.spec.stages.folds() || custom || passes % p.spec.mesh.pipeline == 0, "P18",
      text("interleaved stages take as many micro-batches at a time as there are stages, but {} does not divide {}",
           p.spec.mesh.pipeline, passes));
  broken.rule(
      p.model.positions != models::Positions::learned || p.spec.shape.sequence <= p.model.max_sequence, "P10",
      text("a sequence of {} exceeds the model's position table of {}", p.spec.shape.sequence, p.model.max_sequence));
}

void mirrored_rules(const Proposed& p, BrokenRules& broken) {
  if (!p.spec.stages.mirrors()) return;
  const std::int64_t passes = p.spec.micro_batches();
  broken.rule(p.spec.mesh.pipeline % 2 == 0, "P42",
              text("dualpipe pairs stage s with stage p - 1 - s, but {} stages leave one alone", p.spec.mesh.pipeline));
  broken.rule(passes % 2 == 0, "P43",
              text("dualpipe feeds half of the micro-batches into either end of the pipeline, but {} is odd", passes));
}

void asynchronous_rules(const Proposed& p, BrokenRules& broken) {
  if (!p.spec.stages.asynchronous()) return;
  const std::int64_t passes = p.spec.micro_batches();
  const char* name = name_of(p.spec.stages.order);
  broken.rule(p.spec.mesh.pipeline > 1, "P30", text("{} keeps a pipeline full, but there is only one stage", name));
  const bool pairs = p.spec.stages.order == Order::pipedream_2bw;
  broken.rule(pairs || passes == 1, "P31", text("{} updates after every micro-batch, but a step has {}", name, passes),
              "micro_batch: batch / data, or schedule: pipedream-2bw");
  broken.rule(!pairs || passes >= p.spec.mesh.pipeline, "P31",
              text("{} keeps two versions of the weights, which takes at least as many micro-batches per step as "
                   "stages: {} for {}",
                   name, passes, p.spec.mesh.pipeline),
              "use a smaller micro_batch, or fewer stages");
  broken.rule(p.spec.numerics.precision != models::DType::fp16, "P35",
              text("in fp16 all stages must agree on the loss scale in every step, which would drain {}", name));
  broken.rule(p.spec.states.zero_stage <= 1, "P32",
              text("{} keeps whole versions of the weights and their gradients, but ZeRO {} partitions them", name,
                   p.spec.states.zero_stage));
}

}  // namespace orrery::plan
