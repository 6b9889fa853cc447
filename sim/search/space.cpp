/// Enumerates the search space.
#include "sim/search/space.h"

#include <algorithm>

#include "plan/spec/expert_loads.h"
#include "plan/spec/expert_rules.h"

namespace orrery::sim {

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d * d != n) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

namespace {

/// As the job says; else every divisor, or 1 if the software does not split in this way.
std::vector<int> degrees(const std::vector<int>& bound, std::int64_t ranks, bool can = true) {
  if (!bound.empty()) return bound;
  if (!can) return {1};
  std::vector<int> out;
  for (const std::int64_t d : divisors(ranks)) out.push_back(static_cast<int>(d));
  return out;
}

std::vector<int> or_one(const std::vector<int>& bound) {
  return bound.empty() ? std::vector<int>{1} : bound;
}

/// How a stage's layers are divided.
struct Chunks {
  int virtual_stages = 1;
  bool ends_as_layers = false;
};

/// Chunks of a stage's layers: counts that make all chunks of a pipeline equal. If the stages do not divide the layers,
/// but would with embedding and head counted as one layer each, that too: Llama 3 405B was trained so, with 126 layers
/// on 16 stages (Grattafiori et al. 2024, section 3.3.2). NVIDIA's recipes go down to chunks of a single layer, 20 per
/// stage (NeMo 24.12, Llama 2 70B).
std::vector<Chunks> chunks(const plan::Bounds& bounds, const models::Model& model, int pipeline, bool interleaves) {
  constexpr std::int64_t kMostChunks = 20;
  constexpr std::int64_t kEnds = 2;
  const bool ends = bounds.stages.ends_as_layers.value_or(false);
  std::vector<Chunks> out;
  for (const int v : bounds.stages.virtual_stages) out.push_back({v, ends});
  if (!out.empty()) return out;
  out.push_back({1, ends});
  // A job that fixes its stages or their order means them exactly.
  if (bounds.mesh.pipeline.size() == 1 || !bounds.stages.order.empty() || !bounds.stages.layers_per_stage.empty())
    return out;
  if (pipeline == 1) return out;
  const bool counted = bounds.stages.ends_as_layers.value_or(model.layers % pipeline != 0);
  const std::int64_t layers = model.layers + (counted ? kEnds : 0);
  if (layers % pipeline != 0) return out;
  if (counted != ends) out.push_back({1, counted});
  for (const std::int64_t v : divisors(layers / pipeline))
    if (interleaves && v > 1 && v <= kMostChunks) out.push_back({static_cast<int>(v), counted});
  return out;
}

/// The numbers of parts that a sequence is divided into: as the job says; else 1, and more as long as each rank keeps
/// enough tokens for attention over one block to hide the transfer of the next. NVIDIA's recipes divide Llama 3.1's
/// 8,192 tokens in two. Only 1 if the job fixes the rest of the mesh. `rings`: the software passes blocks around, with
/// a fused attention kernel.
std::vector<int> contexts(const plan::Job& job, const models::Model& model, bool fixed, bool rings, int ranks) {
  constexpr std::int64_t kLeastTokens = 4096;
  const plan::Bounds& b = job.bounds;
  if (!b.mesh.context.empty()) return b.mesh.context;
  std::vector<int> out = {1};
  if (fixed || !rings || !model.causal || b.states.staleness) return out;
  const std::int64_t sequence = job.sequence > 0 ? job.sequence : model.max_sequence;
  // Ring attention supports neither windows nor slopes (P104), a ring no mixers that read in order (P171).
  if (model.reads_in_order() || model.positions == models::Positions::alibi ||
      (model.window > 0 && model.window < sequence))
    return out;
  for (const std::int64_t c : divisors(ranks))
    if (c > 1 && sequence / c >= kLeastTokens && sequence % (2 * c) == 0) out.push_back(static_cast<int>(c));
  return out;
}

std::vector<std::int64_t> micro_batches(const plan::Job& job, int data) {
  const std::vector<int>& bound = job.bounds.shape.micro_batch;
  if (!bound.empty()) return {bound.begin(), bound.end()};
  if (data < 1 || job.batch % data != 0) return {1};
  return divisors(job.batch / data);
}

/// What may be kept outside device memory: nothing, unless the job says so.
std::vector<plan::Offload> offloads(const plan::Bounds& b) {
  const auto or_device = [](const std::vector<plan::Space>& bound) {
    return bound.empty() ? std::vector<plan::Space>{plan::Space::device} : bound;
  };
  std::vector<plan::Offload> out;
  for (const plan::Space parameters : or_device(b.offload.parameters))
    for (const plan::Space optimizer : or_device(b.offload.optimizer))
      for (const plan::Space activations : or_device(b.offload.activations))
        out.push_back({activations, optimizer, parameters, b.offload.prefetch.value_or(1)});
  return out;
}

/// The types in which rows of tokens may travel: as they are, unless the job says otherwise.
std::vector<plan::Tokens> travels(const plan::Bounds& b) {
  const auto or_none = [](const std::vector<models::TokenCodec>& bound) {
    return bound.empty() ? std::vector{models::TokenCodec::none} : bound;
  };
  std::vector<plan::Tokens> out;
  for (const models::TokenCodec dispatch : or_none(b.tokens.dispatch))
    for (const models::TokenCodec combine : or_none(b.tokens.combine)) out.push_back({dispatch, combine});
  return out;
}

/// What may be sent or stored in fewer bits: nothing, unless the job says so, because it changes the mathematics.
std::vector<plan::Compression> compressions(const plan::Bounds& b) {
  const plan::Compression defaults;
  std::vector<plan::Compression> out;
  for (const plan::GradientCompression gradients :
       b.compression.gradients.empty() ? std::vector{defaults.gradients} : b.compression.gradients)
    for (const plan::ActivationEncoding activations :
         b.compression.activations.empty() ? std::vector{defaults.activations} : b.compression.activations)
      out.push_back({gradients, activations, b.compression.rank.value_or(defaults.rank),
                     b.compression.minimum_rate.value_or(defaults.minimum_rate),
                     activations == plan::ActivationEncoding::lossless
                         ? b.compression.capacity.value_or(defaults.capacity)
                         : defaults.capacity});
  return out;
}

/// The number of ranks among which ZeRO shards: as the job says; else all replicas and, for ZeRO 3, which gathers in
/// every pass, also those of one node if the replicas span several.
std::vector<int> zero_groups(const plan::Bounds& b, const plan::Mesh& mesh, int zero, int per_node) {
  if (zero == 0 && b.states.zero_stage.empty()) return {0};
  if (!b.states.zero_group.empty()) return b.states.zero_group;
  const int within = per_node / mesh.tensor;
  const bool spans = zero == 3 && within > 1 && mesh.replicas() > within && mesh.replicas() % within == 0;
  return spans ? std::vector<int>{0, within} : std::vector<int>{0};
}

/// How 16-bit gradients are exchanged: as the job says; else all at once, and also by node if each of several nodes has
/// replicas.
std::vector<plan::Compression> exchanges(const plan::Bounds& b, const plan::PlanSpec& spec, plan::Compression how,
                                         int zero, int per_node) {
  const bool halves =
      how.gradients == plan::GradientCompression::bf16 || how.gradients == plan::GradientCompression::fp16;
  std::vector<int> groups = b.compression.group;
  if (groups.empty()) {
    groups = {0};
    const int within = per_node / spec.mesh.tensor;
    const bool spans = within > 1 && spec.mesh.replicas() > within && spec.mesh.replicas() % within == 0;
    if (halves && zero <= 2 && spans && spec.numerics.precision != models::DType::fp16) groups.push_back(within);
  }
  std::vector<plan::Compression> out;
  for (const int group : groups) {
    how.group = halves ? group : 0;
    if (how.gradients == plan::GradientCompression::powersgd) how.start = b.compression.start.value_or(0);
    if (std::find(out.begin(), out.end(), how) == out.end()) out.push_back(how);
  }
  return out;
}

/// For a mixture of experts: degrees that divide the experts and the ranks that may share them.
std::vector<int> expert_degrees(const plan::Bounds& b, const models::Model& model, int replicas, bool can) {
  if (!b.mesh.expert.empty() || !model.experts.any() || !can) return or_one(b.mesh.expert);
  std::vector<int> out = {1};
  for (int degree = 2; degree <= replicas; degree *= 2)
    if (replicas % degree == 0 && model.experts.count % degree == 0) out.push_back(degree);
  return out;
}

/// How many ranks split an expert: the tensor group, or fewer of its ranks if these have different rows of tokens.
std::vector<int> expert_splits(const plan::Bounds& b, const models::Model& model, const plan::Mesh& mesh) {
  if (!b.mesh.expert_tensor.empty()) return b.mesh.expert_tensor;
  std::vector<int> out = {0};
  if (!model.experts.any() || !mesh.shards_rows()) return out;
  for (int ways = 1; ways < mesh.tensor; ways *= 2)
    if (mesh.tensor % ways == 0) out.push_back(ways);
  return out;
}

/// Meshes that fill the cluster. If a job fixes every degree, its mesh is kept even if it does not fill it: make_plan
/// reports that.
std::vector<plan::PlanSpec> meshes(const clusters::Cluster& cluster, const models::Model& model, const plan::Job& job,
                                   const cost::Stack& stack) {
  const plan::Bounds& b = job.bounds;
  const cost::Capabilities& can = stack.can;
  const bool rings = can.context && b.numerics.flash.value_or(stack.attends_fused(cluster.device()));
  const bool fixed = !b.mesh.data.empty() && !b.mesh.tensor.empty() && !b.mesh.pipeline.empty();
  std::vector<plan::PlanSpec> out;
  for (const int pipeline : degrees(b.mesh.pipeline, cluster.size(), can.pipeline))
    for (const int tensor : degrees(b.mesh.tensor, cluster.size(), can.tensor))
      for (const int context : contexts(job, model, fixed, rings, cluster.size()))
        for (const int data : degrees(b.mesh.data, cluster.size())) {
          plan::PlanSpec spec;
          spec.mesh.data = data, spec.mesh.tensor = tensor, spec.mesh.pipeline = pipeline, spec.mesh.context = context;
          if (!fixed && spec.mesh.ranks() != cluster.size()) continue;
          for (const int expert : expert_degrees(b, model, spec.mesh.ranks() / pipeline, can.expert))
            for (const Chunks& layers : chunks(b, model, pipeline, can.virtual_stages)) {
              spec.mesh.expert = expert;
              spec.stages.virtual_stages = layers.virtual_stages;
              spec.stages.ends_as_layers = layers.ends_as_layers;
              out.push_back(spec);
            }
        }
  return out;
}

/// ZeRO's stages: as the job says, else those that the software supports, with or without a pipeline.
std::vector<int> zero_stages(const plan::Bounds& b, const cost::Capabilities& can, const plan::Mesh& mesh) {
  // Megatron's users leave the distributed optimizer switched on: one replica shards nothing, which is stage 0.
  if (!b.states.zero_stage.empty() && mesh.replicas() == 1 && b.states.zero_group.empty()) return {0};
  if (!b.states.zero_stage.empty()) return b.states.zero_stage;
  std::vector<int> out = mesh.pipeline == 1 ? can.zero_stages : can.pipelined_zero_stages;
  // With one replica there is nothing to shard.
  if (mesh.replicas() == 1) std::erase_if(out, [](int stage) { return stage > 0; });
  if (!can.replicas_beside && cost::has_replicas_beside(mesh)) std::erase(out, 0);
  return out;
}

/// Modules that selective recomputation repeats: the job's, or those that the software's users repeat of a mixture.
plan::Modules modules_of(const plan::Bounds& b, const models::Model& model, const cost::Stack& stack) {
  using plan::Module;
  if (!b.recomputation.modules.empty() || !model.experts.any()) return b.recomputation.modules;
  const plan::Modules usual = stack.can.recompute_modules;
  return model.latent.any() ? usual : usual.without(Module::up_projections);
}

std::vector<plan::Recompute> recomputations(const plan::Bounds& b, bool flash, const plan::Modules& modules) {
  using plan::Recompute;
  if (!b.recomputation.what.empty()) return b.recomputation.what;
  if (flash && modules.empty()) return {Recompute::none, Recompute::full};
  return {Recompute::none, Recompute::selective, Recompute::full};
}

/// One stage has no choice of order, unless the software refuses one that balances by micro-batch: then all forward
/// passes come first.
std::vector<plan::Order> orders_of(const plan::Bounds& b, const models::Model& model, const cost::Stack& stack,
                                   const plan::Mesh& mesh) {
  using plan::Order;
  if (!b.stages.order.empty()) return b.stages.order;
  const bool balances = stack.own && plan::has_balancing_loss(model);
  if (mesh.pipeline == 1) return {balances ? Order::gpipe : Order::one_f_one_b};
  if (stack.can.gpipe || balances) return {Order::one_f_one_b, Order::gpipe};
  return {Order::one_f_one_b};
}

/// Tries sequence parallelism where it is possible: with a tensor group whose size divides the sequence.
std::vector<bool> shardings_of(const plan::Bounds& b, const cost::Capabilities& can, const plan::PlanSpec& spec) {
  if (!b.mesh.sequence_parallel.empty()) return b.mesh.sequence_parallel;
  if (!can.whole_rows && spec.mesh.tensor > 1) return {true};
  if (can.sequence_parallel && spec.mesh.tensor > 1 && spec.shape.sequence % spec.mesh.tensor == 0)
    return {false, true};
  return {false};
}

/// Tries to partition checkpoints where the software cannot divide rows: that needs as little memory, and does not
/// gather them a second time.
std::vector<bool> partitions_of(const plan::Bounds& b, const cost::Capabilities& can, const plan::PlanSpec& spec) {
  const bool possible = spec.mesh.tensor > 1 && spec.recomputation.what == plan::Recompute::full &&
                        !spec.mesh.sequence_parallel && spec.compression.activations == plan::ActivationEncoding::none;
  if (!b.recomputation.partition_checkpoints.empty()) return b.recomputation.partition_checkpoints;
  if (possible && can.partition_checkpoints && !can.sequence_parallel) return {false, true};
  return {false};
}

}  // namespace

std::vector<plan::PlanSpec> space_of(const clusters::Cluster& cluster, const models::Model& model, const plan::Job& job,
                                     const cost::Stacks& stacks) {
  using plan::Order;
  using plan::Recompute;
  const plan::Bounds& b = job.bounds;
  const cost::Capabilities& can = stacks.named().can;
  const std::vector<plan::Offload> elsewhere = offloads(b);
  const std::vector<plan::Compression> fewer_bits = compressions(b);
  const std::vector<plan::Tokens> travelling = travels(b);
  // Of other software a prediction keeps to the factor: nothing ends its runs when a rank gets more. What stands in for
  // a stack describes the same software.
  const bool own = stacks.named().own;
  std::vector<plan::PlanSpec> out;
  for (plan::PlanSpec spec : meshes(cluster, model, job, stacks.named())) {
    spec.stages.layers_per_stage = b.stages.layers_per_stage;
    spec.shape.batch = job.batch;
    spec.shape.sequence = job.sequence > 0 ? job.sequence : model.max_sequence;
    spec.numerics.precision = job.precision;
    spec.numerics.rounding = job.rounding;
    spec.numerics.vocab_multiple = job.vocab_multiple;
    plan::take_optimizer(spec, job.training);
    spec.states.staleness = b.states.staleness;
    plan::take_loads(spec, job, model.experts);
    const std::vector<int> zeros = zero_stages(b, can, spec.mesh);
    const std::vector<Order> orders = orders_of(b, model, stacks.named(), spec.mesh);
    const std::vector<bool> shardings = shardings_of(b, can, spec);
    const plan::Modules modules = modules_of(b, model, stacks.named());
    const int mesh_chunks = spec.stages.virtual_stages;
    for (const std::int64_t micro_batch : micro_batches(job, spec.mesh.data))
      for (const Order order : orders) {
        const bool free_chunks = b.stages.virtual_stages.empty() && mesh_chunks > 1;
        spec.shape.micro_batch = micro_batch;
        if (free_chunks && (order != Order::one_f_one_b || spec.micro_batches() % spec.mesh.pipeline != 0)) continue;
        const bool custom = order == Order::custom;
        if (custom && b.mesh.pipeline.empty() && spec.mesh.pipeline != b.stages.passes.stages()) continue;
        const bool folds = plan::traits_of(order).folds;
        const int chunks = !b.stages.virtual_stages.empty() ? mesh_chunks
                           : custom                         ? b.stages.passes.chunks()
                           : folds                          ? 2
                                                            : mesh_chunks;
        for (const int zero : zeros) {
          const cost::Stack& stack = stacks.of(zero, cluster);
          spec.numerics.flash = b.numerics.flash.value_or(stack.attends_fused(cluster.device()));
          spec.states.overlap_gradients =
              b.states.overlap_gradients.value_or(stack.reduces_early(zero) && spec.mesh.replicas() > 1);
          for (const bool sharded : shardings)
            for (const Recompute recompute : recomputations(b, spec.numerics.flash, modules)) {
              spec.stages.order = order;
              spec.stages.passes = custom ? b.stages.passes : plan::PassOrder();
              spec.stages.virtual_stages = chunks;
              spec.states.zero_stage = zero;
              spec.mesh.sequence_parallel = sharded;
              spec.recomputation.what = recompute;
              spec.recomputation.modules = recompute == Recompute::selective ? modules : plan::Modules();
              spec.recomputation.layers = recompute == Recompute::none ? std::nullopt : b.recomputation.layers;
              for (const int group : zero_groups(b, spec.mesh, zero, cluster.devices_per_node)) {
                spec.states.zero_group = group;
                for (const plan::Offload& offload : elsewhere)
                  for (const plan::Compression& bits : fewer_bits)
                    for (const plan::Compression& compression :
                         exchanges(b, spec, bits, zero, cluster.devices_per_node)) {
                      spec.offload = offload;
                      spec.compression = compression;
                      for (const bool partitioned : partitions_of(b, can, spec)) {
                        spec.recomputation.partition_checkpoints = partitioned;
                        for (const int chunks_of_loss : or_one(b.numerics.loss_chunks)) {
                          spec.numerics.loss_chunks = chunks_of_loss;
                          for (const int split : expert_splits(b, model, spec.mesh))
                            for (const plan::Tokens& tokens : travelling) {
                              spec.mesh.expert_tensor = split;
                              spec.tokens.dispatch = tokens.dispatch, spec.tokens.combine = tokens.combine;
                              out.push_back(spec);
                              if (own) plan::take_room(out.back(), job, model, cluster.device());
                            }
                        }
                      }
                    }
              }
            }
        }
      }
  }
  return out;
}

}  // namespace orrery::sim
