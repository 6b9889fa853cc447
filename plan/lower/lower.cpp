// Lowers one plan. Reading order: lower() and StageLowering::build(), then the passes over layers
// (plan/lower/layer_passes.h), the steps of a layer (plan/lower/layer_steps.h) and the end of the step
// (plan/lower/lower_finish.cpp).
//
// Blocks of a stage: "begin" zeroes the gradients that the first micro-batch does not write (plan/lower/write_first.h);
// "forward" and "backward" run once per micro-batch in the pipeline's order, and once per chunk if stages are
// interleaved; "finish" reduces gradients, clips, updates and gathers. Births and deaths follow from who uses what.
#include "plan/lower/lower.h"

#include <map>
#include <utility>

#include "plan/lower/buckets.h"
#include "plan/lower/groups.h"
#include "plan/lower/layer_passes.h"
#include "plan/lower/lower_finish.h"
#include "plan/lower/lower_optimizer.h"
#include "plan/lower/lower_recommender.h"
#include "plan/lower/parameter_server.h"
#include "plan/lower/passes.h"
#include "plan/lower/stage_messages.h"
#include "plan/lower/write_outline.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/orders.h"
#include "plan/spec/expert_rules.h"

namespace orrery::plan {

using models::DType;
using models::Op;

namespace {

class StageLowering {
 public:
  /// `moves`: the stage's passes; none: those of whole passes, which need no other stage's. `some`: only these layers;
  /// null: all.
  StageLowering(const Plan& plan, const LowerOptions& options, const Schedule& schedule, const Groups& groups,
                StageId stage, std::vector<Move> moves, const SomeLayers* some = nullptr)
      : plan_(plan),
        schedule_(schedule),
        spec_(plan.spec()),
        options_(options),
        groups_(groups),
        stage_(stage),
        moves_(std::move(moves)),
        zero_(zero_of(spec_)),
        parameters_(stage_parameters(plan, stage, options, some)) {}

  RankClass build() {
    begin();
    passes();
    finish();
    if (asynchronous()) {
      make_asynchronous(plan_, stage_, block_of_, class_);
    } else {
      order();
      class_.program.push_back({static_cast<std::int32_t>(class_.blocks.size()) - 1, -1});
    }
    run_passes(passes_of(plan_, options_, groups_, build_, pairs_), schedule_, class_, options_.check_passes);
    return std::move(build_.result());
  }

  RankClass build_ends() {  // without the passes over layers
    begin();
    finish();
    for (std::int32_t block = 0; block < 2; ++block) class_.program.push_back({block, -1});
    std::vector<LoweringPass> passes = passes_of(plan_, options_, groups_, build_, pairs_);
    std::erase_if(passes, [](const LoweringPass& pass) { return !pass.of_ends; });
    run_passes(passes, schedule_, class_, false);  // what the passes write is missing
    return std::move(build_.result());
  }

  /// Without the end of the step. Passes over other chunks are entries of a block that stands for them, because it
  /// matters what comes between two passes.
  void build_passes(LoweredPasses& out) {
    begin();
    passes();
    elsewhere_ = static_cast<std::int32_t>(class_.blocks.size());
    build_.open("elsewhere");
    build_.compute(Phase::forward, "elsewhere", {build_.zero_of(class_.loss)});
    build_.settle_lives();
    order();
    std::vector<LoweringPass> all = passes_of(plan_, options_, groups_, build_, pairs_);
    std::erase_if(all, [](const LoweringPass& pass) { return pass.needs_end; });
    run_passes(all, schedule_, class_, false);  // what the end reads is missing
    out.schedule.classes.push_back(std::move(build_.result()));
    out.blocks = std::move(block_of_);
    out.shared = parameters_.shared;
  }

 private:
  void passes() {
    in_moves() ? chunk_blocks() : whole_blocks();
    if (balances()) balance_block();
  }

  void begin() {
    class_.stage = stage_;
    class_.count = spec_.mesh.ranks_per_stage();
    class_.representative = plan_.rank(stage_, 0, 0);
    class_.buckets = std::move(parameters_.buckets);
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
    const bool first = stage_ == kFirstStage, last = stage_ == spec_.mesh.last_stage();
    open(Move::Kind::forward, 0, "forward");
    BufferId x;
    // Comes first: compute waits for the gradient that is still on its way back, and its receiver may wait for this.
    if (!first) messages_.receive(x = messages_.buffer("received"), Phase::forward, 0);
    const BufferId y = passes_.forward(all, x);
    if (!last) messages_.send(y, Phase::forward, 0);
    if (options_.forward_only) return;
    open(Move::Kind::backward, 0, "backward");
    BufferId dy;
    if (!last) messages_.receive(dy = messages_.buffer("received_gradient"), Phase::backward, 0);
    const BufferId dx = passes_.backward(all, dy);
    if (!first) messages_.send(dx, Phase::backward, 0);
  }

  // Messages are between the passes, in blocks of their own, which wait for their turn (plan/schedule/orders.h). Blocks
  // are in the order in which a micro-batch runs through them. The next chunk of this stage needs no message.
  void chunk_blocks() {
    std::map<int, Chunk> chunks;  // those that are there
    std::size_t last = 0;
    for (int c = 0; c < spec_.stages.virtual_stages; ++c) {
      Chunk chunk{last, last};
      while (chunk.last < parameters_.layers.size() && parameters_.layers[chunk.last].chunk == c) ++chunk.last;
      last = chunk.last;
      if (chunk.first < chunk.last) chunks.emplace(c, chunk);
    }
    std::map<int, BufferId> made;
    BufferId x, dy;
    for (const auto& [c, chunk] : chunks) {
      const std::string suffix = "." + std::to_string(c);
      if (spec_.receives(stage_, c, true)) {
        open(Move::Kind::receive_activation, c, "receive_forward" + suffix);
        messages_.receive(x = messages_.buffer("received" + suffix), Phase::forward, c);
      }
      open(Move::Kind::forward, c, "forward" + suffix);
      made[c] = x = passes_.forward(chunk, x);
      if (!spec_.sends(stage_, c, true)) continue;
      open(Move::Kind::send_activation, c, "send_forward" + suffix);
      messages_.send(x, Phase::forward, c);
    }
    if (options_.forward_only) return;
    for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk)
      dy = backward_blocks(chunk->first, chunk->second, made.at(chunk->first), dy);
  }

  // A stage whose passes are split computes while its output is under way, and frees it once it has long arrived.
  BufferId backward_blocks(int c, const Chunk& chunk, BufferId y, BufferId dy) {
    const std::string suffix = "." + std::to_string(c);
    if (spec_.receives(stage_, c, false)) {
      open(Move::Kind::receive_gradient, c, "receive_backward" + suffix);
      messages_.receive(dy = messages_.buffer("received_gradient" + suffix), Phase::backward, c);
    }
    open(Move::Kind::backward, c, "backward" + suffix);
    const BufferId dx = passes_.backward(chunk, dy);
    const bool splits = spec_.stages.splits_backward();
    if (splits && spec_.sends(stage_, c, true)) build_.keep(y);
    if (spec_.sends(stage_, c, false)) {
      open(Move::Kind::send_gradient, c, "send_backward" + suffix);
      messages_.send(dx, Phase::backward, c);
    }
    if (!splits) return dx;
    open(Move::Kind::weights, c, "weights" + suffix);
    passes_.weights(chunk);
    if (spec_.sends(stage_, c, false)) build_.keep(dx);
    return dx;
  }

  void open(Move::Kind kind, int chunk, const std::string& name) {
    block_of_[{kind, chunk}] = static_cast<std::int32_t>(class_.blocks.size());
    build_.open(name);
  }

  // -- buffers that live for the whole run --------------------------------------------------------------------------
  DType compute_dtype() const { return expand_options(spec_).dtype; }

  void persistent_buffers() {
    const DType gradient = gradient_dtype(spec_.numerics.precision);
    for (Bucket& b : class_.buckets) {
      if (zero_ == 3)
        b.shard = build_.buffer(b.name + ".shard", Purpose::parameters, compute_dtype(), b.shard_elements(), true);
      else
        b.parameters = build_.buffer(b.name + ".parameters", Purpose::parameters, compute_dtype(), b.elements, true);
      if (options_.forward_only || b.frozen) continue;
      if (zero_ >= 2)
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

  // -- blocks ---------------------------------------------------------------------------------------------------
  void begin_block() {
    build_.open("begin");
    if (options_.forward_only) {
      build_.compute(Phase::reporting, "zero_loss", {build_.zero_of(class_.loss)});
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
    build_.compute(Phase::optimizer, "zero_gradients", std::move(ops));
  }

  void order() {
    class_.program.push_back({0, -1});
    bool balanced = false;
    const auto add = [&](const Move& move) {
      if (move.kind == Move::Kind::backward && balance_ >= 0 && !std::exchange(balanced, true))
        class_.program.push_back({balance_, -1});
      if (const auto block = block_of_.find({move.kind, move.chunk}); block != block_of_.end())
        class_.program.push_back({block->second, move.micro_batch});
      else if (elsewhere_ >= 0 && is_pass(move))
        class_.program.push_back({elsewhere_, move.micro_batch});
    };
    for (std::size_t i = 0; i < moves_.size(); ++i) {
      const bool beside = moves_[i].beside && has_block(moves_[i]) && has_block(moves_[i + 1]);
      if (beside) pairs_.push_back(static_cast<std::size_t>(class_.program.size()));
      add(moves_[i]);
    }
    if (!moves_.empty()) return;
    for (const Turn& turn : turns(spec_.stages.order, stage_.number(), spec_.mesh.pipeline, plan_.micro_batches()))
      add({turn.forward ? Move::Kind::forward : Move::Kind::backward, turn.micro_batch, 0});
  }
  bool has_block(const Move& move) const { return block_of_.contains({move.kind, move.chunk}); }
  static bool is_pass(const Move& move) {
    return move.kind == Move::Kind::forward || move.kind == Move::Kind::backward || move.kind == Move::Kind::weights;
  }

  const Plan& plan_;
  const Schedule& schedule_;  ///< without classes
  const PlanSpec& spec_;
  const LowerOptions& options_;
  const Groups& groups_;
  StageId stage_;
  std::vector<Move> moves_;
  int zero_;
  StageParameters parameters_;
  ClassBuilder build_;
  RankClass& class_ = build_.result();
  BlocksOfMoves block_of_;          ///< if messages are between the passes
  std::vector<std::size_t> pairs_;  ///< entries of forward passes, each beside the next entry
  LayerPasses passes_{plan_, options_, groups_, parameters_.layers, build_};
  StageMessages messages_{plan_, stage_, build_};
  BufferId norm_squared_, coefficient_;
  std::int32_t balance_ = -1;    ///< the block after the last forward pass
  std::int32_t elsewhere_ = -1;  ///< the block that stands for passes over other chunks (build_passes)
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
  for (const StageId stage : plan.spec().mesh.stages())
    schedule.classes.push_back(
        StageLowering(plan, options, schedule, groups, stage, std::move(moves[stage.index()])).build());
  return schedule;
}

Schedule lower_ends(const Plan& plan, StageId stage, const LowerOptions& options) {
  Schedule schedule;
  schedule.spec = plan.spec();
  const Groups groups = make_groups(plan.spec(), plan.model().shares_table(), schedule.groups);
  schedule.classes.push_back(StageLowering(plan, options, schedule, groups, stage, {}).build_ends());
  return schedule;
}

LoweredPasses lower_passes(const Plan& plan, StageId stage, std::vector<Move> moves, const SomeLayers& some,
                           const LowerOptions& options) {
  LoweredPasses out;
  out.schedule.spec = plan.spec();
  const Groups groups = make_groups(plan.spec(), plan.model().shares_table(), out.schedule.groups);
  StageLowering(plan, options, out.schedule, groups, stage, std::move(moves), &some).build_passes(out);
  return out;
}

Schedule lower(const Plan& plan, const LowerOptions& options, const RecommenderHabits& habits) {
  return plan.model().recommender ? lower_recommender(plan, options, habits) : lower(plan, options);
}

}  // namespace orrery::plan
