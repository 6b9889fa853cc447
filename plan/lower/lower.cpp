// Lowers one plan. Reading order: lower() and StageLowering::build(), then forward_pass and backward_pass
// (plan/lower/lower_finish.cpp: the end of the step), then the small helpers that make buffers, views and steps.
//
// Blocks of a stage: "begin" zeroes the gradients that the first micro-batch does not write (plan/lower/write_first.h);
// "forward" and "backward" run once per micro-batch in the pipeline's order, and once per chunk if stages are
// interleaved; "finish" reduces gradients, clips, updates and gathers. Births and deaths follow from who uses what.
#include "plan/lower/lower.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/ensure.h"
#include "models/operators/operators.h"
#include "plan/lower/buckets.h"
#include "plan/lower/class_builder.h"
#include "plan/lower/compress.h"
#include "plan/lower/groups.h"
#include "plan/lower/lower_finish.h"
#include "plan/lower/lower_optimizer.h"
#include "plan/lower/lower_recommender.h"
#include "plan/lower/parameter_server.h"
#include "plan/lower/passes.h"
#include "plan/lower/recomputed.h"
#include "plan/lower/repeated_modules.h"
#include "plan/lower/shard_sums.h"
#include "plan/lower/stage_layers.h"
#include "plan/lower/write_outline.h"
#include "plan/outline/chunk_pass.h"
#include "plan/outline/reduction.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/orders.h"
#include "plan/spec/expert_rules.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;
using models::Tensor;
using models::TensorId;
using models::TensorRole;

namespace {

constexpr int kForwardTag = 0, kBackwardTag = 1;

class StageLowering {
 public:
  /// `moves`: the stage's passes, if the order fixes those of all stages together.
  StageLowering(const Plan& plan, const LowerOptions& options, const Schedule& schedule, const Groups& groups,
                int stage, std::vector<Move> moves)
      : plan_(plan),
        schedule_(schedule),
        spec_(plan.spec()),
        options_(options),
        groups_(groups),
        stage_(stage),
        moves_(std::move(moves)),
        zero_(spec_.mesh.replicas() > 1 ? spec_.states.zero_stage : 0),
        parameters_(stage_parameters(plan, stage, !options.forward_only, options.recompute_operators)) {}

  RankClass build() {
    begin();
    in_moves() ? chunk_blocks() : whole_blocks();
    if (balances()) balance_block();
    finish();
    asynchronous() ? make_asynchronous(plan_, stage_, block_of_, class_) : order();
    run_passes(passes_of(plan_, options_, groups_, build_), schedule_, class_, options_.check_passes);
    return std::move(build_.result());
  }

  RankClass build_ends() {  // without the passes over layers
    begin();
    finish();
    for (std::int32_t block = 0; block < 2; ++block) class_.program.push_back({block, -1});
    std::vector<LoweringPass> passes = passes_of(plan_, options_, groups_, build_);
    std::erase_if(passes, [](const LoweringPass& pass) { return !pass.of_ends; });
    run_passes(passes, schedule_, class_, false);  // what the passes write is missing
    return std::move(build_.result());
  }

 private:
  void begin() {
    class_.stage = stage_;
    class_.count = spec_.mesh.ranks_per_stage();
    class_.representative = plan_.rank(stage_, 0, 0);
    class_.buckets = parameters_.buckets;
    forward_tensors_.resize(parameters_.layers.size());
    backward_tensors_.resize(parameters_.layers.size());
    persistent_buffers();
    add_expert_buffers(build_, plan_.model(), parameters_.layers, options_.forward_only);
    begin_block();
  }

  void finish() {
    const StepEnd end{build_,        groups_,     spec_, plan_.model(), zero_, stage_, parameters_.shared,
                      norm_squared_, coefficient_};
    options_.forward_only ? lower_report(end) : lower_finish(end);
    build_.settle_lives();
  }

  // -- one chunk of layers, or several in turn --------------------------------------------------------------------
  bool in_moves() const { return spec_.stages.virtual_stages > 1 || spec_.stages.splits_backward() || asynchronous(); }
  // An evaluation drains the pipeline: it is not a training step.
  bool asynchronous() const { return spec_.stages.asynchronous() && !options_.forward_only; }

  // Messages are inside the passes: a receive at the start, a send at the end.
  void whole_blocks() {
    const Chunk all{0, parameters_.layers.size()};
    build_.open("forward");
    BufferId x;
    // Comes first: compute waits for the gradient that is still on its way back, and its receiver may wait for this.
    if (stage_ > 0) receive(x = boundary("received"), Phase::forward, 0);
    load_inputs(all);
    const BufferId y = forward_pass(all, x);
    if (stage_ + 1 < spec_.mesh.pipeline) send(y, Phase::forward, 0);
    if (options_.forward_only) return;
    build_.open("backward");
    BufferId dy;
    if (stage_ + 1 < spec_.mesh.pipeline) receive(dy = boundary("received_gradient"), Phase::backward, 0);
    const BufferId dx = backward_pass(all, dy);
    if (stage_ > 0) send(dx, Phase::backward, 0);
  }

  // Messages are between the passes, in blocks of their own, which wait for their turn (plan/schedule/orders.h). Blocks
  // are in the order in which a micro-batch runs through them. The next chunk of this stage needs no message.
  void chunk_blocks() {
    std::vector<Chunk> chunks;
    std::vector<BufferId> made;  // by chunk
    for (int c = 0; c < spec_.stages.virtual_stages; ++c) {
      Chunk chunk{chunks.empty() ? 0 : chunks.back().last, 0};
      chunk.last = chunk.first;
      while (chunk.last < parameters_.layers.size() && parameters_.layers[chunk.last].chunk == c) ++chunk.last;
      chunks.push_back(chunk);
    }
    BufferId x, dy;
    for (int c = 0; c < spec_.stages.virtual_stages; ++c) {
      const std::string suffix = "." + std::to_string(c);
      if (spec_.receives(stage_, c, true)) {
        open(Move::Kind::receive_activation, c, "receive_forward" + suffix);
        receive(x = boundary("received" + suffix), Phase::forward, c);
      }
      open(Move::Kind::forward, c, "forward" + suffix);
      load_inputs(chunks[static_cast<std::size_t>(c)]);
      made.push_back(x = forward_pass(chunks[static_cast<std::size_t>(c)], x));
      if (!spec_.sends(stage_, c, true)) continue;
      open(Move::Kind::send_activation, c, "send_forward" + suffix);
      send(x, Phase::forward, c);
    }
    if (options_.forward_only) return;
    for (int c = spec_.stages.virtual_stages; c-- > 0;)
      dy = backward_blocks(c, chunks[static_cast<std::size_t>(c)], made[static_cast<std::size_t>(c)], dy);
  }

  // A stage whose passes are split computes while its output is under way, and frees it once it has long arrived.
  BufferId backward_blocks(int c, const Chunk& chunk, BufferId y, BufferId dy) {
    const std::string suffix = "." + std::to_string(c);
    if (spec_.receives(stage_, c, false)) {
      open(Move::Kind::receive_gradient, c, "receive_backward" + suffix);
      receive(dy = boundary("received_gradient" + suffix), Phase::backward, c);
    }
    open(Move::Kind::backward, c, "backward" + suffix);
    const BufferId dx = backward_pass(chunk, dy);
    const bool splits = spec_.stages.splits_backward();
    if (splits && spec_.sends(stage_, c, true)) build_.keep(y);
    if (spec_.sends(stage_, c, false)) {
      open(Move::Kind::send_gradient, c, "send_backward" + suffix);
      send(dx, Phase::backward, c);
    }
    if (!splits) return dx;
    open(Move::Kind::weights, c, "weights" + suffix);
    weights_pass(chunk);
    if (spec_.sends(stage_, c, false)) build_.keep(dx);
    return dx;
  }

  void open(Move::Kind kind, int chunk, const std::string& name) {
    block_of_[{kind, chunk}] = static_cast<std::int32_t>(class_.blocks.size());
    build_.open(name);
  }

  BufferId boundary(const std::string& name) {
    return build_.buffer(name, Purpose::activations, compute_dtype(), boundary_elements());
  }

  // With interleaved chunks, the stage after the last one is the first, one chunk further. With folded chunks, the
  // second chunk goes back up the stages. A message carries its sender's chunk in its tag.
  void send(BufferId buffer, Phase phase, int chunk) {
    const bool forward = phase == Phase::forward;
    build_.send(phase, to_neighbour(forward, chunk), 2 * chunk + (forward ? kForwardTag : kBackwardTag), buffer);
  }
  void receive(BufferId buffer, Phase phase, int chunk) {
    const bool forward = phase == Phase::forward;
    const int sender = spec_.place_of(stage_, chunk) + (forward ? -1 : 1);
    build_.receive(phase, to_neighbour(!forward, chunk),
                   2 * (sender / spec_.mesh.pipeline) + (forward ? kForwardTag : kBackwardTag), buffer);
  }
  int to_neighbour(bool ahead, int chunk) const {
    return spec_.stage_at(spec_.place_of(stage_, chunk) + (ahead ? 1 : -1)) - stage_;
  }

  // -- buffers that live for the whole run --------------------------------------------------------------------------
  bool partitions_parameters() const { return zero_ == 3; }
  bool partitions_gradients() const { return zero_ >= 2; }
  DType compute_dtype() const { return expand_options(spec_).dtype; }

  void persistent_buffers() {
    const DType gradient = gradient_dtype(spec_.numerics.precision);
    for (Bucket& b : class_.buckets) {
      if (partitions_parameters())
        b.shard = build_.buffer(b.name + ".shard", Purpose::parameters, compute_dtype(), b.shard_elements(), true);
      else
        b.parameters = build_.buffer(b.name + ".parameters", Purpose::parameters, compute_dtype(), b.elements, true);
      if (options_.forward_only || b.frozen) continue;
      if (partitions_gradients())
        b.gradient_shard =
            build_.buffer(b.name + ".gradient_shard", Purpose::gradients, gradient, b.shard_elements(), true);
      else
        b.gradients = build_.buffer(b.name + ".gradients", Purpose::gradients, gradient, b.elements, true);
      b.partitioned = zero_ >= 1;
      add_states(build_, spec_, b, zero_ >= 1 ? b.shard_elements() : b.elements);
    }
    if (traits_of(spec_.states.optimizer).factored() && !options_.forward_only)
      class_.factors =
          build_.buffer("factors", Purpose::optimizer_states, DType::fp32, parameters_.factors.factors.elements, true);
    class_.loss = build_.buffer("loss", Purpose::scalars, DType::fp32, 1, true);
    if (options_.forward_only) return;
    class_.gradient_norm = build_.buffer("gradient_norm", Purpose::scalars, DType::fp32, 1, true);
    norm_squared_ = build_.buffer("norm_squared", Purpose::scalars, DType::fp32, 1, true);
    coefficient_ = build_.buffer("clip_coefficient", Purpose::scalars, DType::fp32, 1, true);
    if (spec_.numerics.precision == DType::fp16)
      class_.scaling = build_.buffer("loss_scaling", Purpose::scalars, DType::fp32, 4, true);
  }

  // Whether gradients need the whole step's loads, which are known after its last forward pass.
  bool balances() const { return class_.tally.exists() && balances_by_step(plan_.model(), spec_); }
  void balance_block() {
    balance_ = static_cast<std::int32_t>(class_.blocks.size());
    build_.open("balance");
    pool_tallies(build_, groups_, class_, plan_.model().experts.count);
  }

  // -- layers ---------------------------------------------------------------------------------------------------
  // Views of a layer's tensors in one context: forward, or recomputation with backward.
  struct Context {
    base::ById<TensorId, int> views;   ///< -1: not made yet
    std::vector<BufferId> parameters;  ///< by the layer's buckets: the buffer with the full values
    std::vector<BufferId> gradients;   ///< by the layer's buckets: the buffer for gradients
    const char* suffix = "";
  };

  int view_of(const StageLayer& layer, Context& context, TensorId tensor) {
    if (!tensor) return -1;
    int& known = context.views[tensor];
    if (known >= 0) return known;
    const Tensor& t = layer.program.tensors[tensor];
    if (t.part_of) {
      const View whole = build_.view_at(view_of(layer, context, t.part_of));
      known = build_.view({whole.buffer, whole.offset + t.first, t.elements()});
    } else if (t.role == TensorRole::parameter || t.role == TensorRole::gradient) {
      const std::size_t at = place_of(layer, layer.bucket[tensor]);
      const BufferId holder = t.role == TensorRole::parameter ? context.parameters[at] : context.gradients[at];
      known = build_.view({holder, layer.offset[tensor], t.elements()});
    } else if (t.role == TensorRole::loss) {
      known = build_.view(build_.whole(class_.loss));
    } else if (t.role == TensorRole::load) {
      known = build_.view({class_.pooled, 0, t.elements()});
    } else if (t.role == TensorRole::tally || t.role == TensorRole::balance) {
      const auto place = std::find(class_.expert_layers.begin(), class_.expert_layers.end(),
                                   mixture_of(plan_.model(), layer.kind, layer.layer));
      const BufferId buffer = t.role == TensorRole::tally ? class_.tally : class_.expert_biases;
      known = build_.view({buffer, (place - class_.expert_layers.begin()) * t.elements(), t.elements()});
    } else if (const auto read = inputs_.find(t.role); read != inputs_.end()) {
      known = build_.view(build_.whole(read->second));
    } else {
      const bool kept = options_.keep_logits && layer.kind == models::LayerKind::head && t.name == "logits";
      known = build_.view(build_.whole(build_.buffer(label(layer) + "." + t.name + context.suffix, Purpose::activations,
                                                     t.dtype, t.elements(), kept)));
    }
    return known;
  }

  void run_parts(const StageLayer& layer, Context& context, const std::vector<models::Part>& parts, Phase phase,
                 std::vector<Op> first_ops = {}) {
    const auto index = static_cast<std::int32_t>(layer.layer);
    bool attention = false;
    for (const models::Part& part : parts) {
      const Phase of_part = part.recomputed ? Phase::recompute : phase;
      if (part.is_communication()) {
        const View target = build_.view_at(view_of(layer, context, part.tensor));
        const View source = part.source ? build_.view_at(view_of(layer, context, part.source)) : target;
        const bool ring = part.collective == models::GroupCollective::ring_shift;
        if (part.collective == models::GroupCollective::all_to_all) {
          CountedRows counted;
          if (part.sent)
            counted = {view_of(layer, context, part.sent), view_of(layer, context, part.received),
                       layer.program.tensors[part.tensor].shape[1], part.expected};
          build_.exchange(of_part, Stream::exchange, groups_.expert, source, target, index, counted);
          continue;
        }
        build_
            .collective(of_part, ring ? Stream::context : Stream::tensor, kind_of(part.collective),
                        ring ? groups_.context : groups_.of(part.experts).tensor, source, target, index, {},
                        part.reduce == models::GroupOperation::sum ? Reduce::sum : Reduce::maximum)
            .for_fp8 = part.for_fp8;
        continue;
      }
      if (part.ops.empty() && first_ops.empty()) continue;
      std::vector<Op> ops = std::move(first_ops);
      first_ops = {};
      for (Op op : part.ops) {
        if (op.kind == OpKind::count_choices && !class_.tally) continue;  // tokens count only in training
        for (int& t : op.in) t = view_of(layer, context, models::tensor_of(t));
        for (int& t : op.out) t = view_of(layer, context, models::tensor_of(t));
        if (const auto at = models::loss_scale_operand(op); at && class_.scaling.exists()) {
          op.in.resize(*at, -1);
          op.in.push_back(build_.view({class_.scaling, 0, 1}));
        }
        ops.push_back(std::move(op));
      }
      std::string name = layer.kind == models::LayerKind::block ? "block" : label(layer);
      if (layer.kind == models::LayerKind::block && spec_.mesh.tensor > 1) name = name_of_part(ops, phase, attention);
      build_.compute(of_part, index, std::move(name), std::move(ops));
    }
  }

  // The buffers that hold a layer's full parameters: persistent ones, or under ZeRO-3 those gathered for this use.
  std::vector<BufferId> gather(const StageLayer& layer, const char* suffix) {
    std::vector<BufferId> holders;
    for (const BucketId b : layer.buckets) {
      const Bucket& bucket = build_.bucket(b);
      Outline gather = gathered_in_pass(*ShapeOf(bucket, spec_), spec_);
      if (gather.items.empty()) {  // what no other rank has a part of is whole
        holders.push_back(partitions_parameters() ? bucket.shard : bucket.parameters);
        continue;
      }
      const BufferId full = build_.buffer(label(layer) + "." + bucket.name + ".gathered" + suffix, Purpose::parameters,
                                          compute_dtype(), bucket.elements);
      OutlinedBucket bound = outlined(build_, b, static_cast<std::int32_t>(layer.layer));
      buffer_of(bound, Memory::parameters) = full;
      write_outline(build_, groups_, std::move(gather), bound);
      holders.push_back(full);
    }
    return holders;
  }

  // -- blocks ---------------------------------------------------------------------------------------------------
  void begin_block() {
    build_.open("begin");
    if (options_.forward_only) {
      build_.compute(Phase::reporting, -1, "zero_loss", {build_.zero_of(class_.loss)});
      return;
    }
    std::vector<Op> ops = {build_.zero_of(class_.loss), build_.zero_of(norm_squared_)};
    if (class_.tally.exists()) ops.push_back(build_.zero_of(class_.tally));
    for (const BucketId b : class_.buckets.keys()) {
      if (class_.buckets[b].frozen) continue;
      Outline zero = zeroed_at_start(*ShapeOf(class_.buckets[b], spec_), spec_);
      OutlineWriter writer(build_, groups_, std::move(zero), outlined(build_, b));
      for (Op& op : writer.operators(0)) ops.push_back(std::move(op));
    }
    build_.compute(Phase::optimizer, -1, "zero_gradients", std::move(ops));
  }

  struct ForwardPass {
    StageLowering& to;
    BufferId x;  ///< what the next layer reads; none at the ends of the model

    std::vector<BufferId> gather(std::size_t i) const { return to.gather(to.layer_at(i), ".forward"); }
    void run(std::size_t i, std::vector<BufferId> holders) {
      const StageLayer& layer = to.layer_at(i);
      Context& context = to.forward_tensors_[i];
      context = to.new_context(layer, "");
      context.parameters = std::move(holders);
      if (layer.program.x) to.set_view(context, layer.program.x, x);
      const bool evaluates = to.options_.forward_only && !layer.program.evaluation.empty();
      to.run_parts(layer, context, evaluates ? layer.program.evaluation : layer.program.forward, Phase::forward);
      if (layer.program.y) x = to.buffer_at(layer, context, layer.program.y);
    }
  };
  // From x to the returned y.
  BufferId forward_pass(const Chunk& chunk, BufferId x) {
    ForwardPass pass{*this, x};
    forward_order(chunk, pass);
    return pass.x;
  }

  [[nodiscard]] const StageLayer& layer_at(std::size_t i) const { return parameters_.layers[i]; }
  void set_view(Context& context, TensorId tensor, BufferId buffer) {
    context.views[tensor] = build_.view(build_.whole(buffer));
  }
  BufferId buffer_at(const StageLayer& layer, Context& context, TensorId tensor) {
    return build_.view_at(view_of(layer, context, tensor)).buffer;
  }

  Context new_context(const StageLayer& layer, const char* suffix) const {
    Context context;
    context.views.assign(layer.program.tensors.size(), -1);
    context.suffix = suffix;
    return context;
  }

  std::int64_t boundary_elements() const {
    const std::int64_t rows = spec_.shape.micro_batch * spec_.tokens_per_rank();
    return (spec_.mesh.shards_rows() ? rows / spec_.mesh.tensor : rows) * plan_.model().hidden;
  }

  void load_inputs(const Chunk& chunk) {
    const bool embeds = layer_at(chunk.first).kind == models::LayerKind::embedding;
    const bool heads = layer_at(chunk.last - 1).kind == models::LayerKind::head;
    if (embeds || heads) inputs_ = plan::load_inputs(build_, plan_, embeds, heads);
  }

  struct BackwardPass {
    StageLowering& to;
    BufferId dy;  ///< what the next layer reads
    Context context = {};
    std::vector<Op> zero = {};

    std::vector<BufferId> gather(std::size_t i) const { return to.gather_for_backward(to.layer_at(i)); }
    void begin(std::size_t i, std::vector<BufferId> holders) {
      const StageLayer& layer = to.layer_at(i);
      context = to.backward_context(i);
      context.parameters = std::move(holders);
      // Forward's views of parameters name its gathered copy, so backward makes its own.
      for (const TensorId t : layer.program.tensors.keys())
        if (layer.bucket[t]) context.views[t] = -1;
      zero = to.transient_gradients(layer, context);
      if (layer.program.dy) to.set_view(context, layer.program.dy, dy);
    }
    void recompute(std::size_t i) {
      const StageLayer& layer = to.layer_at(i);
      if (!recomputes(layer)) return;
      to.run_parts(layer, context, recomputed_parts(layer.program, to.options_.recompute_whole_layer),
                   Phase::recompute);
    }
    void run(std::size_t i) {
      const StageLayer& layer = to.layer_at(i);
      std::vector<models::Part> parts = backward_parts(layer.program, layer.repeats, to.options_.recompute_whole_layer);
      if (to.spec_.stages.splits_backward()) parts = split_backward(layer.program, parts).inputs;
      to.run_parts(layer, context, parts, Phase::backward, std::move(zero));
      to.backward_tensors_[i] = context;
      if (layer.program.dx) dy = to.buffer_at(layer, context, layer.program.dx);
    }
    void reduce(std::size_t i) { to.reduce_transient(to.layer_at(i), context); }
    void add_up() const { to.sums_.flush(); }
    void end() const { to.compressed_.flush(); }
  };
  // From dy to the returned dx.
  BufferId backward_pass(const Chunk& chunk, BufferId dy) {
    BackwardPass pass{*this, dy};
    backward_order(chunk, spec_, pass);
    return pass.dy;
  }

  struct WeightsPass {
    StageLowering& to;
    void run(std::size_t i, bool last_alone) const {
      const StageLayer& layer = to.layer_at(i);
      const std::vector<models::Part> parts =
          backward_parts(layer.program, layer.repeats, to.options_.recompute_whole_layer);
      const std::vector<models::Part> weights = split_backward(layer.program, parts).weights;
      to.run_parts(layer, to.backward_tensors_[i], last_alone ? with_last_alone(weights) : weights, Phase::backward);
    }
  };
  void weights_pass(const Chunk& chunk) {
    WeightsPass pass{*this};
    weights_order(chunk, pass);
  }

  static bool recomputes(const StageLayer& layer) { return layer.repeats.all; }

  std::vector<BufferId> gather_for_backward(const StageLayer& layer) {
    if (backward_reads_parameters(layer)) return gather(layer, ".backward");
    return std::vector<BufferId>(layer.buckets.size());
  }

  // Backward reads what forward saved, or with recomputation its own tensors, made from x.
  Context backward_context(std::size_t k) {
    const StageLayer& layer = parameters_.layers[k];
    if (!recomputes(layer)) {
      Context context = forward_tensors_[k];
      context.suffix = "";
      for (const TensorId again : made_again(layer.program, layer.repeats, options_.recompute_whole_layer)) {
        const Tensor& t = layer.program.tensors[again];
        context.views[again] =
            t.part_of ? -1
                      : build_.view(build_.whole(build_.buffer(label(layer) + "." + t.name + ".recomputed",
                                                               Purpose::activations, t.dtype, t.elements())));
      }
      return context;
    }
    Context context = new_context(layer, ".recomputed");
    const TensorId x = layer.program.x;
    context.views[x] = forward_tensors_[k].views[x];
    return context;
  }

  // ZeRO-2 and 3: a layer's gradients have a buffer of their own until they are reduced. Returns the operators that
  // zero them.
  std::vector<Op> transient_gradients(const StageLayer& layer, Context& context) {
    std::vector<Op> zero;
    context.gradients.clear();
    for (const BucketId b : layer.buckets) {
      const Bucket& bucket = build_.bucket(b);
      if (!partitions_gradients() || bucket.frozen) {
        context.gradients.push_back(bucket.gradients);
        continue;
      }
      const BufferId full = build_.buffer(label(layer) + "." + bucket.name + ".gradients", Purpose::gradients,
                                          gradient_dtype(spec_.numerics.precision), bucket.elements);
      context.gradients.push_back(full);
      OutlinedBucket bound = outlined(build_, b);
      buffer_of(bound, Memory::gradients) = full;
      for (Op& op : OutlineWriter(build_, groups_, zeroed_in_pass(*ShapeOf(bucket, spec_), spec_), bound).operators(0))
        zero.push_back(std::move(op));
    }
    return zero;
  }

  // ZeRO-2 and 3: reduce-scatters a layer's gradients.
  void reduce_transient(const StageLayer& layer, const Context& context) {
    if (spec_.compresses()) {
      for (std::size_t i = 0; i < layer.buckets.size(); ++i)
        compressed_.add(layer.buckets[i], context.gradients[i], static_cast<std::int32_t>(layer.layer));
      return;
    }
    for (std::size_t i = 0; i < layer.buckets.size(); ++i) {
      const BucketId b = layer.buckets[i];
      if (build_.bucket(b).frozen) continue;
      const Reducing reducing{build_, groups_, spec_, Reduces::in_every_pass};
      OutlineWriter writer =
          reducing.of(b, context.gradients[i], static_cast<std::int32_t>(layer.layer), label(layer) + ".");
      writer.write(0);
      sums_.add(std::move(writer), context.gradients[i]);
    }
  }

  void order() {
    class_.program.push_back({0, -1});
    bool balanced = false;
    if (in_moves()) {
      for (const Move& move : moves_)
        if (const auto block = block_of_.find({move.kind, move.chunk}); block != block_of_.end())
          class_.program.push_back({block->second, move.micro_batch});
    } else {
      for (const Turn& turn : turns(spec_.stages.order, stage_, spec_.mesh.pipeline, plan_.micro_batches()))
        if (turn.forward || !options_.forward_only) {
          if (!turn.forward && balance_ >= 0 && !balanced) class_.program.push_back({balance_, -1}), balanced = true;
          class_.program.push_back({turn.forward ? 1 : 2, turn.micro_batch});
        }
    }
    class_.program.push_back({static_cast<std::int32_t>(class_.blocks.size()) - 1, -1});
  }

  const Plan& plan_;
  const Schedule& schedule_;  ///< without classes
  const PlanSpec& spec_;
  const LowerOptions& options_;
  const Groups& groups_;
  int stage_;
  std::vector<Move> moves_;
  int zero_;
  StageParameters parameters_;
  ClassBuilder build_;
  RankClass& class_ = build_.result();
  CompressedReduction compressed_{build_, groups_, spec_,
                                  Reduces::in_every_pass};  ///< ZeRO-2 and 3: of the layers of a pass
  ShardSums sums_{build_, options_.reduce_beside};
  std::vector<Context> forward_tensors_, backward_tensors_;
  BlocksOfMoves block_of_;                 ///< if messages are between the passes
  std::map<TensorRole, BufferId> inputs_;  ///< that load_tokens fills
  BufferId norm_squared_, coefficient_;
  std::int32_t balance_ = -1;  ///< the block after the last forward pass
};

}  // namespace

Schedule lower(const Plan& plan, const LowerOptions& options) {
  if (plan.model().recommender) return lower_recommender(plan, options);
  Schedule schedule;
  schedule.spec = plan.spec();
  const Groups groups = make_groups(plan.spec(), plan.model().shares_table(), schedule.groups);
  std::vector<std::vector<Move>> moves(static_cast<std::size_t>(plan.spec().mesh.pipeline));
  if (plan.spec().stages.splits_backward() || plan.spec().stages.virtual_stages > 1)
    moves = moves_of(plan.spec(), plan.micro_batches());
  for (int stage = 0; stage < plan.spec().mesh.pipeline; ++stage)
    schedule.classes.push_back(
        StageLowering(plan, options, schedule, groups, stage, std::move(moves[static_cast<std::size_t>(stage)]))
            .build());
  return schedule;
}

Schedule lower_ends(const Plan& plan, int stage, const LowerOptions& options) {
  Schedule schedule;
  schedule.spec = plan.spec();
  const Groups groups = make_groups(plan.spec(), plan.model().shares_table(), schedule.groups);
  schedule.classes.push_back(StageLowering(plan, options, schedule, groups, stage, {}).build_ends());
  return schedule;
}

Schedule lower(const Plan& plan, const LowerOptions& options, const RecommenderHabits& habits) {
  return plan.model().recommender ? lower_recommender(plan, options, habits) : lower(plan, options);
}

}  // namespace orrery::plan
