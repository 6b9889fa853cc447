// make_plan: the only way to a Plan. Every rule that a split breaks is one diagnostic with a stable code.
#include "plan/spec/plan.h"

#include <fmt/core.h>

#include <numeric>

#include "base/ensure.h"
#include "base/units.h"
#include "models/layers/inputs.h"
#include "plan/spec/expert_rules.h"
#include "plan/spec/message.h"
#include "plan/spec/recommender_rules.h"
#include "plan/spec/rules.h"
#include "plan/spec/server_rules.h"
#include "plan/spec/table_tiers.h"

namespace orrery::plan {

std::int64_t Plan::first_layer(int stage, int chunk) const {
  return std::accumulate(spec_.stages.layers_per_stage.begin(),
                         spec_.stages.layers_per_stage.begin() + spec_.place_of(stage, chunk) % spec_.places(),
                         std::int64_t{0});
}

std::int64_t Plan::layers(int stage) const {
  std::int64_t sum = 0;
  for (int chunk = 0; chunk < spec_.stages.virtual_stages; ++chunk) sum += chunk_layers(stage, chunk);
  return sum;
}

namespace {

constexpr std::int64_t kEnds = 2;  // embedding and head

class PlanRules {
 public:
  PlanRules(const models::Model& model, const clusters::Cluster& cluster, const PlanSpec& spec)
      : model_(model), cluster_(cluster), spec_(spec) {}

  base::Diagnostics broken() {
    if (!positive()) return std::move(found_);
    mesh();
    tensor();
    stages();
    batch();
    zero();
    mirrored();
    asynchronous();
    context();
    offload();
    rounding();
    whole_matrices();
    adapters();
    masked();
    distances();
    compressed_gradients();
    encoded_activations();
    loss_chunks();
    for (base::Diagnostic& one : refused_experts(model_, spec_)) found_.push_back(std::move(one));
    for (base::Diagnostic& one : refused_by_server(spec_)) found_.push_back(std::move(one));
    for (base::Diagnostic& one : refused_without_tables(spec_)) found_.push_back(std::move(one));
    return std::move(found_);
  }

 private:
  /// Message and help: texts, or what writes them.
  template <class Message, class Help = std::string_view>
  void rule(bool holds, RuleCode code, const Message& message, const Help& help = {}) {
    if (!holds) found_.push_back(code.broken(written(message), written(help)));
  }

  bool positive() {
    const bool all = spec_.mesh.data > 0 && spec_.mesh.tensor > 0 && spec_.mesh.pipeline > 0 &&
                     spec_.mesh.context > 0 && spec_.mesh.expert > 0 && spec_.stages.virtual_stages > 0 &&
                     spec_.shape.micro_batch > 0 && spec_.shape.batch > 0 && spec_.shape.sequence > 0;
    rule(all, "P01", "every degree, the micro-batch, the batch and the sequence must be at least 1");
    return all;
  }

  void mesh() {
    rule(
        spec_.mesh.ranks() == cluster_.size(), "P02",
        [&] {
          return fmt::format("data {} x {}tensor {} x pipeline {} is {}, but the cluster has {}", spec_.mesh.data,
                             spec_.mesh.context > 1 ? fmt::format("context {} x ", spec_.mesh.context) : "",
                             spec_.mesh.tensor, spec_.mesh.pipeline, base::count_of(spec_.mesh.ranks(), "rank"),
                             base::count_of(cluster_.size(), "device"));
        },
        "change a degree, or the number of devices");
  }

  void tensor() {
    const auto divides = [&](std::int64_t value, const char* what, RuleCode code) {
      rule(
          value % spec_.mesh.tensor == 0, code,
          [&] { return fmt::format("tensor {} does not divide {} {}", spec_.mesh.tensor, value, what); },
          "choose a tensor degree that divides heads, key/value heads and the MLP's width");
    };
    divides(model_.heads, "attention heads", "P03");
    divides(model_.kv_heads, "key/value heads", "P04");
    divides(model_.ffn_hidden, "columns of the MLP", "P05");
    rule(
        !model_.joint_qk_norm || spec_.mesh.tensor == 1, "P169",
        [&] {
          return fmt::format("{} norms all heads of q, and of k, together, and tensor {} would divide them",
                             model_.name, spec_.mesh.tensor);
        },
        "tensor: 1, with ZeRO, pipeline or context parallelism");
    state_space();
    rule(!spec_.mesh.sequence_parallel || spec_.mesh.tensor > 1, "P14",
         "sequence parallelism has nothing to split with tensor 1");
    rule(!spec_.mesh.sequence_parallel || spec_.tokens_per_rank() % spec_.mesh.tensor == 0, "P15", [&] {
      return fmt::format(
          "tensor {} does not divide the sequence of {}, which sequence parallelism splits over the tensor group",
          spec_.mesh.tensor, spec_.tokens_per_rank());
    });
    rule(!spec_.recomputation.layers || spec_.recomputation.what != Recompute::none, "P16",
         "recompute_layers gives a number of blocks, but recompute is none");
    modules();
    if (spec_.recomputation.partition_checkpoints) partitioned_checkpoints();
  }

  // Heads are divided with their groups of B and C, and with the runs of columns that the gated norm takes.
  void state_space() {
    const models::StateSpace& s = model_.ssm;
    if (!s.any()) return;
    const std::int64_t ways = spec_.mesh.tensor;
    rule(
        s.heads % ways == 0 && s.groups % ways == 0 && s.normed_runs() % ways == 0, "P170",
        [&] {
          return fmt::format("tensor {} does not divide the state spaces' {} in {}, normed in {}", ways,
                             base::count_of(s.heads, "head"), base::count_of(s.groups, "group"),
                             base::count_of(s.normed_runs(), "run"));
        },
        "a tensor degree that divides heads, groups and normed runs; or ZeRO and pipeline stages");
    rule(
        spec_.mesh.context == 1, "P171",
        [&] {
          return fmt::format(
              "a state space reads the tokens of a sequence one after another, and context {} divides them",
              spec_.mesh.context);
        },
        "context: 1, with tensor and sequence parallelism, ZeRO or pipeline stages");
  }

  void modules() {
    const Recomputation& r = spec_.recomputation;
    rule(r.modules.empty() || r.what == Recompute::selective, "P168",
         [&] { return fmt::format("recompute_modules names modules, but recompute is {}", name_of(r.what)); });
    rule(!r.modules.has(Module::up_projections) || model_.latent.any(), "P168",
         "recompute_modules names up_projections, but the model has no latent attention");
    rule(!r.modules.has(Module::experts) || model_.experts.any(), "P168",
         "recompute_modules names experts, but the model has none");
  }

  void partitioned_checkpoints() {
    const char* why =
        spec_.recomputation.what != Recompute::full ? "only a block that is recomputed in full has a checkpoint"
        : spec_.mesh.tensor == 1                    ? "with tensor 1 no other rank has the same checkpoints"
        : spec_.mesh.sequence_parallel              ? "sequence parallelism has divided the rows of checkpoints already"
                                                    : nullptr;
    rule(why == nullptr, "P166", [&] { return fmt::format("partition_checkpoints: {}", why ? why : ""); });
    const std::int64_t input = spec_.shape.micro_batch * spec_.tokens_per_rank() * model_.hidden;
    rule(input % spec_.mesh.tensor == 0, "P166", [&] {
      return fmt::format("tensor {} does not divide the {} values of a block's input", spec_.mesh.tensor, input);
    });
    rule(spec_.compression.activations == ActivationEncoding::none, "P167", [&] {
      return fmt::format("partitioned checkpoints would be stored as {}", name_of(spec_.compression.activations));
    });
    rule(!spec_.stages.asynchronous(), "P167",
         [&] { return fmt::format("{} keeps its checkpoints whole", name_of(spec_.stages.order)); });
  }

  void stages() {
    const std::int64_t chunks = spec_.places();
    const bool ends = spec_.stages.ends_as_layers || !spec_.stages.layers_per_stage.empty();
    rule(
        chunks <= model_.layers + (ends ? kEnds : 0), "P06",
        [&] {
          return fmt::format("{} pipeline stages for {} layers leave a stage without layers", chunks, model_.layers);
        },
        !ends && chunks <= model_.layers + kEnds
            ? "use fewer stages, or ends_as_layers: true, which gives embedding and head stages of their own"
            : "use fewer stages");
    const bool folded = spec_.stages.folds() && spec_.stages.virtual_stages == 2;
    const bool custom = spec_.stages.order == Order::custom;
    rule(
        custom != spec_.stages.passes.empty(), "P111",
        [&]() -> std::string {
          return custom ? "a custom order without its passes"
                        : fmt::format("{} with a custom order's passes", name_of(spec_.stages.order));
        },
        custom ? "passes: [...], or schedule: 1f1b" : "schedule: custom");
    if (custom && !spec_.stages.passes.empty())
      rule(
          spec_.stages.passes.stages() == spec_.mesh.pipeline &&
              spec_.stages.passes.chunks() == spec_.stages.virtual_stages,
          "P112",
          [&] {
            return fmt::format("the order is for {} with {} each, but the plan has {} with {}",
                               base::count_of(spec_.stages.passes.stages(), "rank"),
                               base::count_of(spec_.stages.passes.chunks(), "virtual stage"), spec_.mesh.pipeline,
                               spec_.stages.virtual_stages);
          },
          [&] {
            return fmt::format("pipeline: {} and virtual_stages: {}", spec_.stages.passes.stages(),
                               spec_.stages.passes.chunks());
          });
    rule(spec_.stages.virtual_stages == 1 || folded || custom ||
             (spec_.mesh.pipeline > 1 && spec_.stages.order == Order::one_f_one_b),
         "P17", "virtual stages are chunks of a pipeline's stages, run interleaved in 1F1B");
    rule(
        !spec_.stages.splits_backward() || spec_.mesh.pipeline > 1, "P23",
        [&] {
          return fmt::format("{} orders the passes of a pipeline, but there is only one stage",
                             name_of(spec_.stages.order));
        },
        "more pipeline stages, or schedule: 1f1b");
    rule(
        !spec_.stages.folds() || custom || spec_.stages.virtual_stages == 2, "P23",
        [&] {
          return fmt::format("{} leads back up the stages, so each needs two chunks", name_of(spec_.stages.order));
        },
        "virtual_stages: 2");
    rule(!spec_.stages.splits_backward() || spec_.states.zero_stage <= 1, "P24", [&] {
      return fmt::format(
          "{} adds to a layer's gradients after other micro-batches have passed it, when ZeRO {} has "
          "already freed their memory",
          name_of(spec_.stages.order), spec_.states.zero_stage);
    });
    const std::vector<std::int64_t>& split = spec_.stages.layers_per_stage;
    if (split.empty()) return;
    rule(static_cast<std::int64_t>(split.size()) == chunks, "P07", [&] {
      return fmt::format("layers_per_stage lists {}, but the plan has {}", base::count_of(std::ssize(split), "stage"),
                         chunks);
    });
    rule(std::accumulate(split.begin(), split.end(), std::int64_t{0}) == model_.layers, "P08", [&] {
      return fmt::format("layers_per_stage adds up to {}, but the model has {}",
                         std::accumulate(split.begin(), split.end(), std::int64_t{0}),
                         base::count_of(model_.layers, "layer"));
    });
    // The end stages may have no block: embedding or head is enough for a stage, and one stage may have both.
    for (std::size_t i = 0; i < split.size(); ++i) {
      const bool end = split.size() > 1 && (i == 0 || i + 1 == split.size());
      rule(split[i] >= (end ? 0 : 1), "P06", "a pipeline stage without layers");
    }
  }

  void batch() {
    const std::int64_t per_round = static_cast<std::int64_t>(spec_.mesh.data) * spec_.shape.micro_batch;
    rule(
        spec_.shape.batch % per_round == 0, "P09",
        [&] {
          return fmt::format("data {} x micro-batch {} does not divide the batch of {}", spec_.mesh.data,
                             spec_.shape.micro_batch, spec_.shape.batch);
        },
        "the batch is data x micro_batch x micro-batches");
    constexpr std::int64_t kMostMicroBatches = 1 << 16;  // a program has steps for each of them
    const std::int64_t passes = spec_.micro_batches();
    rule(passes <= kMostMicroBatches, "P13",
         [&] { return fmt::format("{} micro-batches per rank, more than {}", passes, kMostMicroBatches); });
    const bool custom = spec_.stages.order == Order::custom;
    rule(!custom || spec_.stages.passes.empty() || spec_.stages.passes.micro_batches() == passes, "P113", [&] {
      return fmt::format("the order is for {}, but the plan has {}",
                         base::count_of(spec_.stages.passes.micro_batches(), "micro-batch"), passes);
    });
    rule(spec_.stages.virtual_stages == 1 || spec_.stages.folds() || custom || passes % spec_.mesh.pipeline == 0, "P18",
         [&] {
           return fmt::format(
               "interleaved stages take as many micro-batches at a time as there are stages, but {} does not divide {}",
               spec_.mesh.pipeline, passes);
         });
    rule(model_.positions != models::Positions::learned || spec_.shape.sequence <= model_.max_sequence, "P10", [&] {
      return fmt::format("a sequence of {} exceeds the model's position table of {}", spec_.shape.sequence,
                         model_.max_sequence);
    });
  }

  void zero() {
    rule(spec_.states.zero_stage >= 0 && spec_.states.zero_stage <= 3, "P11",
         [&] { return fmt::format("ZeRO stage {}", spec_.states.zero_stage); });
    rule(spec_.states.zero_stage == 0 || spec_.mesh.replicas() > 1, "P12",
         [&] { return fmt::format("ZeRO stage {} has nothing to partition with data 1", spec_.states.zero_stage); });
    const int group = spec_.states.zero_group;
    rule(group == 0 || (group > 0 && spec_.mesh.replicas() % group == 0), "P40", [&] {
      return fmt::format("zero_group {} does not divide the {} replicas into sub-groups of equal size", group,
                         spec_.mesh.replicas());
    });
    rule(
        group == 0 || (group > 1 && spec_.states.zero_stage > 0), "P41",
        [&]() -> std::string {
          return group == 1 ? "zero_group 1 leaves every rank with all the states"
                            : fmt::format(
                                  "zero_group {} gives the number of ranks that states are partitioned among, but ZeRO "
                                  "0 partitions none",
                                  group);
        },
        group == 1 ? "zero_stage: 0" : "use zero_stage: 1, 2 or 3, or leave zero_group out");
  }

  void mirrored() {
    if (!spec_.stages.mirrors()) return;
    const std::int64_t passes = spec_.micro_batches();
    rule(
        spec_.mesh.pipeline % 2 == 0, "P42",
        fmt::format("dualpipe pairs stage s with stage p - 1 - s, but {} stages leave one alone", spec_.mesh.pipeline));
    rule(
        passes % 2 == 0, "P43",
        fmt::format("dualpipe feeds half of the micro-batches into either end of the pipeline, but {} is odd", passes));
  }

  void asynchronous() {
    if (!spec_.stages.asynchronous()) return;
    const std::int64_t passes = spec_.micro_batches();
    const char* name = name_of(spec_.stages.order);
    rule(spec_.mesh.pipeline > 1, "P30", fmt::format("{} keeps a pipeline full, but there is only one stage", name));
    const bool pairs = spec_.stages.order == Order::pipedream_2bw;
    rule(pairs || passes == 1, "P31",
         fmt::format("{} updates after every micro-batch, but a step has {}", name, passes),
         "micro_batch: batch / data, or schedule: pipedream-2bw");
    rule(!pairs || passes >= spec_.mesh.pipeline, "P31",
         fmt::format("{} keeps two versions of the weights, which takes at least as many micro-batches per step as "
                     "stages: {} for {}",
                     name, passes, spec_.mesh.pipeline),
         "use a smaller micro_batch, or fewer stages");
    rule(spec_.numerics.precision != models::DType::fp16, "P35",
         fmt::format("in fp16 all stages must agree on the loss scale in every step, which would drain {}", name));
    rule(spec_.states.zero_stage <= 1, "P32",
         fmt::format("{} keeps whole versions of the weights and their gradients, but ZeRO {} partitions them", name,
                     spec_.states.zero_stage));
  }

  void context() {
    const std::int64_t chunks = 2 * static_cast<std::int64_t>(spec_.mesh.context);
    rule(spec_.mesh.context == 1 || spec_.shape.sequence % chunks == 0, "P20", [&] {
      return fmt::format("context {} gives each rank two of {} chunks of a sequence, but these do not divide {} tokens",
                         spec_.mesh.context, chunks, spec_.shape.sequence);
    });
    rule(spec_.mesh.context == 1 || spec_.numerics.flash, "P22",
         "context parallelism merges attention by row statistics, which only flash attention keeps");
  }

  void offload() {
    const Offload& o = spec_.offload;
    rule(o.activations != Space::nvme, "P51", "activations can be offloaded to the host's memory only");
    rule(
        o.optimizer == Space::device || !spec_.stages.splits_backward(), "P52",
        [&] {
          return fmt::format(
              "{} adds to a layer's gradients after other micro-batches have passed it, when an offloaded "
              "optimizer has already sent them to the host",
              name_of(spec_.stages.order));
        },
        "schedule: 1f1b, or offload: {optimizer: none}");
    const bool partitions_some =
        spec_.mesh.replicas() > 1 && (spec_.states.zero_stage == 1 || spec_.states.zero_stage == 2);
    rule(o.parameters == Space::device || !partitions_some, "P53", [&] {
      return fmt::format("ZeRO {} keeps whole parameters on every device; offloaded parameters need ZeRO 0 or 3",
                         spec_.states.zero_stage);
    });
    rule(
        o.parameters == Space::device || !spec_.stages.splits_backward(), "P52",
        [&] {
          return fmt::format("{} reads a layer's parameters in two passes, so they would have to be fetched twice",
                             name_of(spec_.stages.order));
        },
        "schedule: 1f1b, or offload: {parameters: none}");
    rule(
        !o.any() || !spec_.stages.asynchronous(), "P52",
        [&] {
          return fmt::format(
              "{} keeps versions of the weights on the device, and offloading these is not supported yet",
              name_of(spec_.stages.order));
        },
        "use schedule: 1f1b, or no offload");
    rule(
        o.optimizer == Space::device || traits_of(spec_.states.optimizer).offloads, "P55",
        [&] { return fmt::format("the host's cores cannot do the update of {}", name_of(spec_.states.optimizer)); },
        "adamw or adam");
    rule(o.optimizer == Space::device || spec_.numerics.rounding == Rounding::nearest, "P56",
         "an offloaded optimizer keeps fp32 masters, but stochastic rounding is for parameters without masters");
    const bool files = o.optimizer == Space::nvme || o.parameters == Space::nvme;
    const bool gpu = cluster_.device().kind == clusters::DeviceKind::gpu;
    rule(!files || !gpu || cluster_.nvme.read.value > 0, "P54",
         [&] { return fmt::format("the nodes of {} have no NVMe drives to offload to", cluster_.name); });
    rule(o.prefetch >= 1, "P01", "offload.prefetch must be at least 1");
  }

  void rounding() {
    rule(spec_.numerics.rounding == Rounding::nearest || spec_.numerics.precision == models::DType::bf16, "P50", [&] {
      return fmt::format("stochastic rounding is for bf16 parameters, but the plan has them in {}",
                         models::name_of(spec_.numerics.precision));
    });
  }

  void whole_matrices() {
    if (!traits_of(spec_.states.optimizer).whole_matrices()) return;
    const char* name = name_of(spec_.states.optimizer);
    rule(!spec_.stages.asynchronous(), "P160", [&] {
      return fmt::format("{} gathers whole matrices between two steps, but the stages of {} never stop", name,
                         name_of(spec_.stages.order));
    });
    rule(!spec_.exchanges_by_node(), "P161", [&] {
      return fmt::format(
          "{} gathers whole matrices from consecutive shards, but the shards of gradients exchanged by node "
          "are not consecutive",
          name);
    });
  }

  void adapters() {
    const models::Lora& lora = model_.lora;
    if (!lora.any()) return;
    const auto refuse = [&](bool holds, const char* what, const char* help) {
      rule(
          !holds, "P165", [&] { return fmt::format("adapters leave weights frozen, but {}", what); }, help);
    };
    const auto has = [&](auto&& holds) { return model_.blocks_with(model_.layers, holds) > 0; };
    const bool mlps =
        (lora.up || lora.down) && has([](const models::BlockParts& one) { return one.feed == models::Feed::mlp; });
    const bool attends = has([](const models::BlockParts& one) { return one.mixer == models::Mixer::attention; });
    rule((lora.projection && attends) || mlps || (lora.qkv && attends && !model_.latent.any()), "P165",
         [&] { return fmt::format("{} has none of the products that the adapters name", model_.name); },
         "targets: [proj]; experts, state spaces and latent attention's narrow products have no adapters");
    refuse(spec_.stages.asynchronous() || spec_.states.has_server() || spec_.stages.mirrors(),
           "asynchronous training and DualPipe keep several copies of them", "schedule: 1f1b or dualpipe-v");
    refuse(spec_.compresses() || spec_.compression.activations != ActivationEncoding::none,
           "compression treats a layer's gradients and activations as if all of it trained",
           "leave compression out; adapters hardly need it");
    refuse(spec_.offload.optimizer != Space::device || spec_.offload.parameters != Space::device,
           "offload moves weights and states together", "offload: {activations} alone; the adapters' states are small");
  }

  // A ring knows which chunk a block of keys is, but not how far away each key is.
  void distances() {
    const bool windowed = model_.window > 0 && model_.window < spec_.shape.sequence;
    const bool slopes = model_.positions == models::Positions::alibi;
    rule(spec_.mesh.context == 1 || !(windowed || slopes), "P104", [&] {
      return fmt::format("ring attention masks blocks of keys, but {} {}", model_.name,
                         windowed ? fmt::format("sees {} tokens of {}", model_.window, spec_.shape.sequence)
                                  : std::string("adds slopes on distances"));
    });
  }

  // The heads of a masked-language model choose rows of whole sequences.
  void masked() {
    if (model_.masked_fraction <= 0) return;
    rule(spec_.mesh.context == 1, "P60", [&] {
      return fmt::format("{} predicts a fixed number of tokens per sequence, which parts of a sequence do not have",
                         model_.name);
    });
    rule(spec_.shape.sequence >= models::kShortestMasked, "P61", [&] {
      return fmt::format("a sequence of {} has no room for [CLS], two segments and their [SEP]: {} tokens have",
                         spec_.shape.sequence, models::kShortestMasked);
    });
  }

  void compressed_gradients() {
    const GradientCompression how = spec_.compression.gradients;
    rule(spec_.compression.start == 0 || how == GradientCompression::powersgd, "P102", [&] {
      return fmt::format("compression.start says after how many steps PowerSGD begins, but this plan has gradients: {}",
                         name_of(how));
    });
    if (how == GradientCompression::none) return;
    const bool low_rank = how == GradientCompression::powersgd, fp16 = spec_.numerics.precision == models::DType::fp16;
    rule(spec_.mesh.replicas() > 1, "P70", "without other replicas no gradients travel");
    rule(!fp16 || how != GradientCompression::bf16, "P71",
         "fp16 training has gradients in fp16, and bf16 would round their small values away");
    rule(!low_rank || spec_.states.zero_stage <= 1, "P72", [&] {
      return fmt::format(
          "PowerSGD needs whole gradients at the end of the step for its error, but ZeRO {} keeps only a part",
          spec_.states.zero_stage);
    });
    rule(!low_rank || !fp16, "P73",
         "PowerSGD keeps its error from step to step, but the scale of fp16 gradients changes between steps");
    rule(spec_.shards() == spec_.mesh.replicas() && spec_.stages.order != Order::dualpipe, "P79",
         "compressed gradients are summed over all replicas at once: neither within ZeRO's sub-groups first, nor over "
         "the two ends of a bidirectional pipeline");
    const int group = spec_.compression.group;
    rule(group == 0 ||
             (!low_rank && !fp16 && group > 1 && group < spec_.mesh.replicas() && spec_.mesh.replicas() % group == 0),
         "P97", [&] {
           return fmt::format(
               "groups of {} of {} replicas cannot sum in full before they exchange in 16 bits: that takes fp32 "
               "gradients, and groups that divide the replicas",
               group, spec_.mesh.replicas());
         });
    rule(group == 0 || spec_.states.zero_stage < 3, "P101",
         "ZeRO 3 gathers parameters in every pass; if gradients are exchanged by node, parameters would have to be "
         "gathered by node too, which is not supported");
    rule(spec_.offload.optimizer == Space::device, "P74",
         "gradients are compressed on the device, but an offloaded optimizer sums them on the host");
  }

  void encoded_activations() {
    const ActivationEncoding how = spec_.compression.activations;
    if (how == ActivationEncoding::none) return;
    const bool narrow =
        spec_.numerics.precision != models::DType::fp32 && spec_.numerics.precision != models::DType::tf32;
    rule(!narrow || how != ActivationEncoding::fp16, "P75", [&] {
      return fmt::format("activations in {} training have 16 bits anyway", models::name_of(spec_.numerics.precision));
    });
    rule(spec_.offload.activations == Space::device, "P76",
         "saved activations can be kept in full on the host, or in fewer bits on the device, not both");
    rule(!spec_.stages.splits_backward() && !spec_.stages.asynchronous(), "P77", [&] {
      return fmt::format(
          "{} reads what a layer saved in two passes, or steps later, so it would have to be decoded and "
          "kept in full",
          name_of(spec_.stages.order));
    });
    if (how == ActivationEncoding::lossless) lossless();
  }

  void lossless() {
    rule(model_.activation == models::Activation::relu, "P95",
         "lossless storage leaves out the zeros of a ReLU, but this model has another activation");
    const bool rounds =
        spec_.numerics.precision == models::DType::fp8 || spec_.numerics.precision == models::DType::fp4;
    rule(!rounds, "P99",
         "a product whose operands were rounded cannot be recomputed where more than `capacity` is nonzero");
    rule(spec_.states.zero_stage < 3 && spec_.offload.parameters == Space::device && !spec_.mesh.shards_rows(), "P96",
         "if more than `capacity` of the values are nonzero, the ReLU is recomputed from the MLP's input and weight, "
         "which ZeRO 3, offloaded parameters and sequence parallelism have freed by then");
  }

  // Parts of the head's rows are equal, so that they share memory and kernels.
  void loss_chunks() {
    if (spec_.numerics.loss_chunks == 1) return;
    const std::int64_t each = models::predictions_per_sequence(model_, spec_.shape.sequence);
    const std::int64_t rows = spec_.shape.micro_batch * (each > 0 ? each : spec_.tokens_per_rank());
    rule(spec_.numerics.loss_chunks > 0 && rows % spec_.numerics.loss_chunks == 0, "P85", [&] {
      return fmt::format(
          "loss_chunks {} does not divide the {} rows of a micro-batch for which the head computes logits",
          spec_.numerics.loss_chunks, rows);
    });
    rule(!spec_.stages.splits_backward(), "P86", [&] {
      return fmt::format("{} computes weight gradients in a later pass, for which all logits would have to be kept",
                         name_of(spec_.stages.order));
    });
  }

  const models::Model& model_;
  const clusters::Cluster& cluster_;
  const PlanSpec& spec_;
  base::Diagnostics found_;
};

// As even as possible. The first and last stages also hold embedding and head, so remaining blocks go to the middle
// from the front, and the ends never have more than the others. Where the ends count as layers, the first stage has
// one block less for the embedding and the last one less for the head (BLOOM: 70 layers on 12 stages as 5, 6 ... 6, 5);
// with layers + 2 stages the ends have no block.
std::vector<std::int64_t> even_split(std::int64_t layers, int stages, bool ends_as_layers) {
  if (ends_as_layers && stages > 1) {
    std::vector<std::int64_t> split = even_split(layers + kEnds, stages, false);
    --split.front();
    --split.back();
    return split;
  }
  std::vector<std::int64_t> split(static_cast<std::size_t>(stages), layers / stages);
  std::int64_t rest = layers % stages;
  const int first = stages > 2 && rest <= stages - 2 ? 1 : 0;
  for (int s = first; rest > 0; ++s, --rest) ++split[static_cast<std::size_t>(s)];
  return split;
}

}  // namespace

base::Result<Plan> make_plan(std::shared_ptr<const models::Model> model,
                             std::shared_ptr<const clusters::Cluster> cluster, PlanSpec spec) {
  ENSURE(model && cluster, "a plan needs a model and a cluster");
  if (spec.states.has_server()) {
    if (spec.states.zero_stage == 0 && spec.mesh.data > 1)
      spec.states.zero_stage = 1;           // the server is sharded as ZeRO 1
    spec.states.overlap_gradients = false;  // workers push them after the passes of another step
  }
  const auto& tables = model->recommender;
  base::Diagnostics broken =
      tables ? refused_tables(*tables, *cluster, spec) : PlanRules(*model, *cluster, spec).broken();
  if (!broken.empty()) return base::fail(std::move(broken));
  if (tables) broken = place_and_settle(*tables, *cluster, spec);
  if (!broken.empty()) return base::fail(std::move(broken));
  if (spec.stages.layers_per_stage.empty())
    spec.stages.layers_per_stage = even_split(model->layers, spec.places(), spec.stages.ends_as_layers);
  Plan plan;
  plan.model_ = std::move(model);
  plan.cluster_ = std::move(cluster);
  plan.spec_ = std::move(spec);
  return plan;
}

}  // namespace orrery::plan
