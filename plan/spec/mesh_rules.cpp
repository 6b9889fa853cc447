// Ranks, and how tensor, context and recomputation divide a layer.
#include "plan/spec/plan_rules.h"

#include <fmt/core.h>

#include "base/units.h"
#include "models/layers/inputs.h"
#include "models/layers/mixers.h"

namespace orrery::plan {

namespace {

void mixer_rules(const Proposed& p, BrokenRules& broken) {
  if (p.model.pattern.empty()) return;
  const std::int64_t ways = p.spec.mesh.tensor;
  for (const models::MixerTraits* one : models::mixers_of(p.model)) {
    broken.rule(!one->in_order || p.spec.mesh.context == 1, "P171",
                text("a {} reads the tokens of a sequence one after another, and context {} divides them", one->title,
                     p.spec.mesh.context),
                "context: 1, with tensor and sequence parallelism, ZeRO or pipeline stages");
    const std::string undivided = one->undivided != nullptr ? one->undivided(p.model, ways) : std::string();
    broken.rule(undivided.empty(), "P170", text("tensor {} does not divide {}", ways, undivided), one->divisors);
  }
}

void module_rules(const Proposed& p, BrokenRules& broken) {
  const Recomputation& r = p.spec.recomputation;
  broken.rule(r.modules.empty() || r.what == Recompute::selective, "P168",
              text("recompute_modules names modules, but recompute is {}", name_of(r.what)));
  broken.rule(!r.modules.has(Module::up_projections) || p.model.latent.any(), "P168",
              "recompute_modules names up_projections, but the model has no latent attention");
  broken.rule(!r.modules.has(Module::experts) || p.model.experts.any(), "P168",
              "recompute_modules names experts, but the model has none");
}

void partitioned_checkpoint_rules(const Proposed& p, BrokenRules& broken) {
  const char* why = p.spec.recomputation.what != Recompute::full
                        ? "only a block that is recomputed in full has a checkpoint"
                    : p.spec.mesh.tensor == 1       ? "with tensor 1 no other rank has the same checkpoints"
                    : p.spec.mesh.sequence_parallel ? "sequence parallelism has divided the rows of checkpoints already"
                                                    : nullptr;
  broken.rule(why == nullptr, "P166", text("partition_checkpoints: {}", why ? why : ""));
  const std::int64_t input = p.spec.shape.micro_batch * p.spec.tokens_per_rank() * p.model.hidden;
  broken.rule(input % p.spec.mesh.tensor == 0, "P166",
              text("tensor {} does not divide the {} values of a block's input", p.spec.mesh.tensor, input));
  broken.rule(p.spec.compression.activations == ActivationEncoding::none, "P167",
              text("partitioned checkpoints would be stored as {}", name_of(p.spec.compression.activations)));
  broken.rule(!p.spec.stages.asynchronous(), "P167",
              text("{} keeps its checkpoints whole", name_of(p.spec.stages.order)));
}

}  // namespace

void mesh_rules(const Proposed& p, BrokenRules& broken) {
  const Mesh& mesh = p.spec.mesh;
  const auto product = [&] {
    const std::string context = mesh.context > 1 ? fmt::format("context {} x ", mesh.context) : "";
    return fmt::format("data {} x {}tensor {} x pipeline {} is {}, but the cluster has {}", mesh.data, context,
                       mesh.tensor, mesh.pipeline, base::count_of(mesh.ranks(), "rank"),
                       base::count_of(p.cluster.size(), "device"));
  };
  broken.rule(mesh.ranks() == p.cluster.size(), "P02", product, "change a degree, or the number of devices");
}

void tensor_rules(const Proposed& p, BrokenRules& broken) {
  const auto divides = [&](std::int64_t value, const char* what, RuleCode code) {
    broken.rule(value % p.spec.mesh.tensor == 0, code,
                text("tensor {} does not divide {} {}", p.spec.mesh.tensor, value, what),
                "choose a tensor degree that divides heads, key/value heads and the MLP's width");
  };
  divides(p.model.heads, "attention heads", "P03");
  divides(p.model.window_heads, "attention heads of layers with a window", "P03");
  divides(p.model.kv_heads, "key/value heads", "P04");
  divides(p.model.window_kv_heads, "key/value heads of layers with a window", "P04");
  divides(p.model.ffn_hidden, "columns of the MLP", "P05");
  broken.rule(!p.model.joint_qk_norm || p.spec.mesh.tensor == 1, "P169",
              text("{} norms all heads of q, and of k, together, and tensor {} would divide them", p.model.name,
                   p.spec.mesh.tensor),
              "tensor: 1, with ZeRO, pipeline or context parallelism");
  mixer_rules(p, broken);
  broken.rule(!p.spec.mesh.sequence_parallel || p.spec.mesh.tensor > 1, "P14",
              "sequence parallelism has nothing to split with tensor 1");
  broken.rule(
      !p.spec.mesh.sequence_parallel || p.spec.tokens_per_rank() % p.spec.mesh.tensor == 0, "P15",
      text("tensor {} does not divide the sequence of {}, which sequence parallelism splits over the tensor group",
           p.spec.mesh.tensor, p.spec.tokens_per_rank()));
  broken.rule(!p.spec.recomputation.layers || p.spec.recomputation.what != Recompute::none, "P16",
              "recompute_layers gives a number of blocks, but recompute is none");
  module_rules(p, broken);
  if (p.spec.recomputation.partition_checkpoints) partitioned_checkpoint_rules(p, broken);
}

void context_rules(const Proposed& p, BrokenRules& broken) {
  const std::int64_t chunks = 2 * static_cast<std::int64_t>(p.spec.mesh.context);
  broken.rule(p.spec.mesh.context == 1 || p.spec.shape.sequence % chunks == 0, "P20",
              text("context {} gives each rank two of {} chunks of a sequence, but these do not divide {} tokens",
                   p.spec.mesh.context, chunks, p.spec.shape.sequence));
  broken.rule(p.spec.mesh.context == 1 || p.spec.numerics.flash, "P22",
              "context parallelism merges attention by row statistics, which only flash attention keeps");
}

void masked_rules(const Proposed& p, BrokenRules& broken) {
  if (p.model.masked_fraction <= 0) return;
  broken.rule(
      p.spec.mesh.context == 1, "P60",
      text("{} predicts a fixed number of tokens per sequence, which parts of a sequence do not have", p.model.name));
  broken.rule(p.spec.shape.sequence >= models::kShortestMasked, "P61",
              text("a sequence of {} has no room for [CLS], two segments and their [SEP]: {} tokens have",
                   p.spec.shape.sequence, models::kShortestMasked));
}

void distance_rules(const Proposed& p, BrokenRules& broken) {
  const bool windowed = p.model.window > 0 && p.model.window < p.spec.shape.sequence;
  const bool slopes = p.model.positions == models::Positions::alibi;
  const bool chosen = p.model.indexer.any();
  broken.rule(p.spec.mesh.context == 1 || !(windowed || slopes || chosen), "P104", [&] {
    const std::string why = chosen     ? std::string("reads chosen tokens alone")
                            : windowed ? fmt::format("sees {} tokens of {}", p.model.window, p.spec.shape.sequence)
                                       : std::string("adds slopes on distances");
    return fmt::format("ring attention masks blocks of keys, but {} {}", p.model.name, why);
  });
}

}  // namespace orrery::plan
