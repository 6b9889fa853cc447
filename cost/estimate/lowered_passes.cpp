/// Turns lowered blocks into programs, and repeats the steps of equal layers.
#include "cost/estimate/lowered_passes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "base/ensure.h"
#include "cost/estimate/lowered_steps.h"
#include "cost/estimate/offload.h"
#include "cost/parameters/habits.h"
#include "plan/lower/lower.h"

namespace orrery::cost {

namespace {

using plan::Step;
using plan::StepKind;
using Kind = plan::Move::Kind;
using Layers = std::vector<const LayerCosts*>;

Layers one_by_one(const std::vector<LayerRun>& runs) {
  Layers out;
  for (const LayerRun& run : runs) out.insert(out.end(), static_cast<std::size_t>(run.count), run.costs);
  return out;
}

/// The longest stretch in which each layer equals the one `period` layers later.
struct Stretch {
  std::size_t begin = 0, end = 0;
};
Stretch repeating(const Layers& layers, std::size_t period) {
  Stretch longest;
  for (std::size_t begin = 0; begin + period < layers.size(); ++begin) {
    std::size_t end = begin + period;
    while (end < layers.size() && layers[end] == layers[end - period]) ++end;
    if (end - begin > longest.end - longest.begin) longest = {begin, end};
    begin = std::max(begin, end - period);
  }
  return longest;
}

}  // namespace

FewLayers few_of(const Layers& layers, int ahead) {
  // Layers this near to an end of the pass differ from the rest: prefetching, activations that stay, waits.
  const std::size_t reach = static_cast<std::size_t>(ahead) + 3;
  constexpr std::size_t kLongest = 8;
  FewLayers out;
  Stretch stretch;
  std::size_t left_out = 0;
  for (std::size_t period = 1; period <= kLongest; ++period) {
    const Stretch one = repeating(layers, period);
    const std::size_t count = one.end - one.begin, enough = 2 * (reach + period);
    if (count <= enough) continue;
    const std::size_t times = (count - enough) / period;
    if (times * period <= left_out) continue;
    left_out = times * period;
    stretch = one;
    out.period = period;
    out.times = static_cast<std::int64_t>(times);
  }
  out.gap = left_out > 0 ? stretch.begin + reach + 2 * out.period : layers.size();
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (i < out.gap || i >= out.gap + left_out) out.kept.push_back(i);
  return out;
}

namespace {

/// One lowered block as a program, with the steps of equal layers repeated.
class LoweredBlock {
 public:
  struct Read {
    std::size_t step = 0;  ///< of the program
    std::size_t layer = 0;
    plan::BucketId bucket;
  };
  PassProgram program;
  std::vector<Read> reads;  ///< of buckets that are on the device for the whole run, each layer's first

  LoweredBlock(const plan::LoweredPasses& lowered, const Layers& layers, const FewLayers& few, std::int64_t first_layer)
      : lowered_(lowered), class_(lowered.schedule.classes.front()), layers_(layers), few_(few), first_(first_layer) {
    for (const plan::Block& block : class_.blocks)
      for (const Step& step : block.steps)
        if (step.kind == StepKind::recv) inputs_.push_back(step.target.buffer);
  }

  /// `kind`: which pass. Returns false if the kept layers do not repeat their steps.
  [[nodiscard]] bool write(const plan::Block& block, Kind kind, const PassSurroundings& around) {
    LoweredSteps steps(lowered_.schedule, around.pricing, around.groups, messages(kind, around), inputs_);
    std::vector<std::size_t> begins(few_.kept.size(), kNone);  // by kept layer: its first compute step
    std::size_t sent = kNone;
    for (const Step& step : block.steps) {
      if (step.kind == StepKind::send) sent = steps.out().size();
      if (step.kind == StepKind::send || step.kind == StepKind::recv) continue;
      const std::size_t layer = layer_of(step, kind);
      if (layer != kNone && begins[layer] == kNone) begins[layer] = steps.out().size();
      steps.write(step);
      if (layer != kNone && around.begun != nullptr && kind == Kind::forward)
        note_reads(step, layer, steps.out().size() - 1);
    }
    ENSURE(steps.exchanged_all(), "a pass has fewer exchanges than its layers");
    program.reach = steps.out().reach();
    program.input = steps.input();
    if (sent < steps.out().size()) program.sent = sent;
    program.steps = std::move(steps.out().steps());
    return few_.times == 0 || repeat(begins, kind == Kind::forward);
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  [[nodiscard]] const LayerCosts& kept(std::size_t layer) const { return *layers_[few_.kept[layer]]; }
  [[nodiscard]] MessagesOfLayers messages(Kind kind, const PassSurroundings& around) const {
    MessagesOfLayers out;
    out.host = around.pricing.message_host_time(around.spec.mesh.tensor, around.spec.mesh.pipeline > 1).value;
    const auto add = [&](const Pass& pass) {
      for (const Segment& s : pass.segments)
        if (s.kind == Segment::Kind::exchange) out.exchanges.push_back(around.exchange.left * s.seconds);
    };
    for (std::size_t i = 0; i < few_.kept.size(); ++i) {
      const LayerCosts& layer = kept(kind == Kind::forward ? i : few_.kept.size() - 1 - i);
      if (kind == Kind::forward) add(layer.forward);
      if (kind == Kind::backward && layer.recomputation == plan::Recompute::full) add(layer.recompute);
      if (kind == Kind::backward) add(layer.backward);
      if (kind == Kind::weights) add(layer.weights);
    }
    return out;
  }

  /// The kept layer that a compute step belongs to, or kNone.
  std::size_t layer_of(const Step& step, Kind kind) {
    const bool passes = step.phase == plan::Phase::forward || step.phase == plan::Phase::backward ||
                        step.phase == plan::Phase::recompute;
    if (step.kind != StepKind::compute || step.ops.empty() || !passes) return kNone;
    const bool embeds = kept(0).kind == models::LayerKind::embedding;
    if (step.layer) {
      begun_ = true;
      const auto index = static_cast<std::size_t>(step.layer.number() - first_) + (embeds ? 1 : 0);
      return static_cast<std::size_t>(std::ranges::find(few_.kept, index) - few_.kept.begin());
    }
    const std::size_t last = few_.kept.size() - 1;
    const bool heads = kept(last).kind == models::LayerKind::head;
    if (!embeds || !heads) return embeds ? 0 : last;
    return begun_ == (kind == Kind::forward) ? last : 0;
  }

  void note_reads(const Step& step, std::size_t layer, std::size_t at) {
    for (const plan::BucketId b : class_.buckets.keys()) {
      if (std::ranges::find(step.reads, class_.buckets[b].parameters) == step.reads.end()) continue;
      const auto known = [&](const Read& read) { return read.layer == few_.kept[layer] && read.bucket == b; };
      if (std::ranges::none_of(reads, known)) reads.push_back({at, few_.kept[layer], b});
    }
  }

  /// Inserts the steps of the layers that were left out. `begins`: the first step of each kept layer.
  bool repeat(const std::vector<std::size_t>& begins, bool forward) {
    const std::size_t p = few_.period, gap = few_.gap;
    const std::array<std::size_t, 3> at =
        forward ? std::array{begins[gap - 2 * p], begins[gap - p], begins[gap]}
                : std::array{begins[gap - 1], begins[gap - 1 - p], begins[gap - 1 - 2 * p]};
    const auto steps_between = [&](std::size_t from, std::size_t to) {
      return std::span<const PassStep>(program.steps).subspan(from, to - from);
    };
    if (!std::ranges::equal(steps_between(at[0], at[1]), steps_between(at[1], at[2]))) return false;
    const std::vector<PassStep> period(program.steps.begin() + static_cast<std::ptrdiff_t>(at[0]),
                                       program.steps.begin() + static_cast<std::ptrdiff_t>(at[1]));
    std::vector<PassStep> more;
    more.reserve(period.size() * static_cast<std::size_t>(few_.times));
    for (auto left = few_.times; left > 0; --left) more.insert(more.end(), period.begin(), period.end());
    const std::size_t place = at[1];
    program.steps.insert(program.steps.begin() + static_cast<std::ptrdiff_t>(place), more.begin(), more.end());
    const auto moved = [&](std::size_t& step) { step += step != kNone && step >= place ? more.size() : 0; };
    moved(program.input);
    moved(program.sent);
    if (forward) repeat_reads(at[0], place, period.size());
    return true;
  }
  void repeat_reads(std::size_t from, std::size_t place, std::size_t steps) {
    std::vector<Read> of_period, out;
    for (Read& read : reads) {
      if (read.step >= from && read.step < place) of_period.push_back(read);
      if (read.step >= place) read.step += steps * static_cast<std::size_t>(few_.times);
    }
    for (std::size_t i = 1; i <= static_cast<std::size_t>(few_.times); ++i)
      for (const Read& read : of_period)
        reads.push_back({read.step + i * steps, read.layer + i * few_.period, read.bucket});
    std::ranges::stable_sort(reads, {}, &Read::step);
  }

  const plan::LoweredPasses& lowered_;
  const plan::RankClass& class_;
  const Layers& layers_;
  const FewLayers& few_;
  std::int64_t first_;
  std::vector<plan::BufferId> inputs_;
  bool begun_ = false;  ///< the pass has reached a block of the model
};

/// All of a chunk's programs, from its lowered blocks.
class LoweredChunkPasses {
 public:
  LoweredChunkPasses(const LoweredChunk& of, const Layers& layers, const FewLayers& few,
                     const plan::LoweredPasses& lowered, const PassSurroundings& around)
      : of_(of),
        layers_(layers),
        few_(few),
        lowered_(lowered),
        class_(lowered.schedule.classes.front()),
        around_(around) {}

  /// Nothing if the kept layers do not repeat their steps.
  std::optional<ChunkPrograms> write() {
    ChunkPrograms out;
    if (!pass(Kind::forward, out.forward, nullptr, nullptr, around_.begun ? &out.first : nullptr)) return std::nullopt;
    if (!pass(Kind::backward, out.backward, &out.first_backward, &out.last_backward)) return std::nullopt;
    const bool splits = around_.spec.stages.splits_backward();
    if (splits && !pass(Kind::weights, out.weights, &out.first_weights, &out.last_weights)) return std::nullopt;
    const RankClock::Overlaps overlaps = overlaps_of(around_.pricing);
    for (PassProgram* one : {&out.forward, &out.backward, &out.weights, &out.first, &out.first_backward,
                             &out.first_weights, &out.last_backward, &out.last_weights})
      summarise(*one, overlaps);
    return out;
  }

 private:
  /// The blocks that a kind of pass runs, in the order of its micro-batches.
  [[nodiscard]] std::vector<std::int32_t> blocks_of(Kind kind) const {
    const std::int32_t usual = lowered_.blocks.at({kind, of_.chunk});
    std::vector<std::int32_t> out;
    for (const plan::Entry& entry : class_.program)
      if (entry.block == usual || class_.blocks[static_cast<std::size_t>(entry.block)].variant_of == usual)
        out.push_back(entry.block);
    return out;
  }

  bool pass(Kind kind, PassProgram& usual, PassProgram* first, PassProgram* last, PassProgram* begun = nullptr) {
    const std::int32_t base = lowered_.blocks.at({kind, of_.chunk});
    if (!write(base, kind, usual, begun)) return false;
    if (first == nullptr) return true;
    const std::vector<std::int32_t> blocks = blocks_of(kind);
    if (blocks.back() != base && !write(blocks.back(), kind, *last)) return false;
    return blocks.front() == base || blocks.size() == 1 || write(blocks.front(), kind, *first);
  }

  bool write(std::int32_t number, Kind kind, PassProgram& out, PassProgram* begun = nullptr) {
    LoweredBlock block(lowered_, layers_, few_, of_.plan.first_layer(of_.stage, of_.chunk));
    if (!block.write(class_.blocks[static_cast<std::size_t>(number)], kind, around_)) return false;
    block.program.freed = first_freed(block.program.steps, kind, around_.spec.stages);
    if (begun != nullptr) *begun = behind_gathers(block);
    out = std::move(block.program);
    return true;
  }

  /// The same pass at the start of a training step, where it waits for gathers that began with the step.
  [[nodiscard]] PassProgram behind_gathers(const LoweredBlock& block) const {
    PassProgram out = block.program;
    out.steps.clear();
    auto waits = [&, read = block.reads.begin()](std::size_t step) mutable {
      for (; read != block.reads.end() && read->step == step; ++read) {
        const bool experts = class_.buckets[read->bucket].experts;
        const LayerBucket of = read->bucket == lowered_.shared ? LayerBucket::shared
                               : experts                       ? LayerBucket::experts
                                                               : LayerBucket::own;
        const int message = (*around_.begun)[read->layer][static_cast<std::size_t>(of)];
        if (message < 0) continue;
        const auto back = static_cast<std::uint32_t>(around_.gathers - message);
        out.steps.push_back({PassStep::Kind::wait, plan::Stream::data, false, false, back});
        out.reach = std::max(out.reach, back);
      }
    };
    for (std::size_t i = 0; i < block.program.steps.size(); ++i) {
      waits(i);
      if (i == block.program.input) out.input = out.steps.size();
      if (i == block.program.freed) out.freed = out.steps.size();
      if (i == block.program.sent) out.sent = out.steps.size();
      out.steps.push_back(block.program.steps[i]);
    }
    if (block.program.input == block.program.steps.size()) out.input = out.steps.size();
    return out;
  }

  const LoweredChunk& of_;
  const Layers& layers_;
  const FewLayers& few_;
  const plan::LoweredPasses& lowered_;
  const plan::RankClass& class_;
  const PassSurroundings& around_;
};

/// The numbers of a chunk's kept blocks, without its embedding and head.
std::vector<std::int64_t> blocks_of(const FewLayers& few, const Layers& layers) {
  std::vector<std::int64_t> out;
  const std::size_t first = layers.front()->kind == models::LayerKind::embedding ? 1 : 0;
  for (const std::size_t i : few.kept)
    if (layers[i]->kind == models::LayerKind::block) out.push_back(static_cast<std::int64_t>(i - first));
  return out;
}

}  // namespace

ChunkPrograms lowered_passes(const LoweredChunk& chunk, const std::vector<std::vector<LayerRun>>& chunks,
                             const PassSurroundings& around) {
  const plan::PlanSpec& spec = chunk.plan.spec();
  plan::LowerOptions options = lower_options(around.pricing.stack());
  options.shares_programs = true;
  const auto number = static_cast<std::size_t>(chunk.chunk);
  for (const bool all : {false, true}) {
    plan::SomeLayers some;
    some.chunks.assign(chunks.size(), false);
    some.blocks.resize(chunks.size());
    FewLayers few;
    const Layers layers = one_by_one(chunks[number]);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      // In a folded order the stage's chunks exchange no messages with each other, and may share a tied table.
      if (c != number && !spec.stages.folds()) continue;
      const Layers of_chunk = one_by_one(chunks[c]);
      const FewLayers few_of_chunk = few_of(of_chunk, all ? static_cast<int>(of_chunk.size()) : chunk.ahead);
      some.chunks[c] = true;
      some.blocks[c] = blocks_of(few_of_chunk, of_chunk);
      if (c == number) few = few_of_chunk;
    }
    const plan::LoweredPasses lowered = plan::lower_passes(chunk.plan, chunk.stage, chunk.moves, some, options);
    if (auto programs = LoweredChunkPasses(chunk, layers, few, lowered, around).write()) return *std::move(programs);
  }
  ENSURE(false, "passes over all layers of chunk {} of stage {}", chunk.chunk, chunk.stage);
}

std::shared_ptr<const ChunkPrograms> LoweredMemo::of(const plan::Plan& plan, plan::StageId stage, int chunk,
                                                     const std::vector<std::vector<LayerRun>>& chunks,
                                                     const PassSurroundings& around, MovesMemo& moves) {
  const plan::PlanSpec& spec = plan.spec();
  if (plan_ != spec) plan_ = spec, known_.clear();
  const std::vector<LayerRun>& layers = chunks[static_cast<std::size_t>(chunk)];
  const std::shared_ptr<const StageMoves> patterns = patterns_of(spec, plan.micro_batches(), moves);
  const bool head = layers.back().costs->kind == models::LayerKind::head;
  Key key{layers,
          staying_blocks(spec, stage, chunk, head, plan.micro_batches(), moves),
          around.exchange.left,
          plan.rank(stage, 0, 0) % std::max(1, around.pricing.cluster().devices_per_node),
          {spec.receives(stage, chunk, true), spec.sends(stage, chunk, true), spec.receives(stage, chunk, false),
           spec.sends(stage, chunk, false)}};
  // Not remembered: folded orders depend on the stage's other chunks, mirrored ones on the route to their image, and
  // gathers that began with the step have numbers of their own.
  const bool alone = spec.stages.folds() || spec.stages.mirrors() || around.begun != nullptr;
  const auto known = std::ranges::find(known_, key, &Known::key);
  if (!alone && known != known_.end()) return known->programs;
  auto made = std::make_shared<const ChunkPrograms>(
      lowered_passes({plan, stage, chunk, (*patterns)[stage.index()], spec.offload.prefetch}, chunks, around));
  if (!alone) known_.push_back({std::move(key), made});
  return made;
}

}  // namespace orrery::cost
