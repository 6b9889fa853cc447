// Lowers a step for one rank, and puts a split plan's mathematics into it.
#include "plan/lower/serial.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/ensure.h"
#include "base/index.h"
#include "models/operators/operators.h"
#include "plan/lower/buckets.h"
#include "plan/lower/class_builder.h"
#include "plan/lower/compress.h"
#include "plan/lower/lower_finish.h"
#include "plan/lower/write_first.h"
#include "plan/outline/low_rank.h"
#include "plan/schedule/asynchronous.h"
#include "plan/spec/expert_rules.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

namespace {

using base::at;

// What remains of a plan on one rank.
PlanSpec alone(const PlanSpec& split, const models::Model& model) {
  PlanSpec spec;
  if (model.experts.aux_coefficient > 0) spec.stages.order = Order::gpipe;
  spec.shape.micro_batch = model.recommender ? split.shape.batch : split.shape.micro_batch;
  spec.numerics.vocab_multiple = split.numerics.vocab_multiple;
  spec.shape.batch = split.shape.batch;
  spec.shape.sequence = split.shape.sequence;
  spec.numerics.precision = split.numerics.precision;
  spec.numerics.flash = split.numerics.flash;
  spec.states.optimizer = split.states.optimizer;
  spec.states.momentum = split.states.momentum;
  spec.numerics.rounding = split.numerics.rounding;
  spec.compression.activations = split.compression.activations;
  spec.tokens.dispatch = split.tokens.dispatch;
  spec.tokens.combine = split.tokens.combine;
  if (model.recommender) spec.embedding.tiers = TableTiers({TableTier{}});  // where tables live changes no result
  return spec;
}

class SerialRewrite {
 public:
  SerialRewrite(const Plan& split, RankClass lowered, BucketId shared)
      : split_(split), spec_(split.spec()), workers_(spec_.mesh.data), shared_(shared) {
    class_ = std::move(lowered);
    for (std::size_t b = 0; b < class_.blocks.size(); ++b)
      places_[class_.blocks[b].name] = static_cast<std::int32_t>(b);
    for (const Entry& entry : class_.program)
      if (entry.micro_batch >= 0) passes_[entry.micro_batch].push_back(entry);
  }

  RankClass build() {
    if (spec_.stages.asynchronous() || spec_.states.has_server()) age_weights();
    if (spec_.stages.asynchronous()) clip_by_stages();
    if (spec_.states.has_server())
      serve();
    else if (spec_.compresses())
      compress();
    return std::move(class_);
  }

 private:
  /// A bucket's gradients as one replica makes them, apart from their sum: one set, or two for a tied table.
  struct Own {
    BucketId bucket = {};
    BufferId gradients;
    bool of_head = false;
    BufferId pieces, sent;                                   ///< 16 bits: rounded ones of all replicas, and their sum
    BufferId p, q;                                           ///< PowerSGD
    std::vector<BufferId> errors = std::vector<BufferId>();  ///< by sender
    int together = 1;                                        ///< replicas whose gradients are one sender's
  };
  /// Blocks for gradients of as many replicas together: before the first of these, and by sender after the last.
  struct Turn {
    std::string of;
    int together = 1;
    std::int32_t zero = -1;
    std::vector<std::int32_t> take = {};
  };

  // -- notes ------------------------------------------------------------------------------------------------------
  Block& block(const char* name) { return class_.blocks[at(places_.at(name))]; }
  [[nodiscard]] const Buffer& buffer_at(BufferId index) const { return class_.buffers[index]; }
  BufferId persistent(const std::string& name, Purpose purpose, DType dtype, std::int64_t elements) {
    return build_.buffer(name, purpose, dtype, elements, true);
  }
  [[nodiscard]] int whole(BufferId buffer) { return build_.view(build_.whole(buffer)); }
  [[nodiscard]] int part(BufferId buffer, std::int64_t offset, std::int64_t elements) {
    return build_.view({buffer, offset, elements});
  }
  Step step_of(Phase phase, const char* name, std::vector<Op> ops) {
    build_.open("");
    Step step = build_.compute(phase, -1, name, std::move(ops));
    class_.blocks.pop_back();
    return step;
  }
  std::int32_t block_of(const std::string& name, Phase phase, std::vector<Op> ops) {
    build_.open(name);
    build_.compute(phase, -1, name, std::move(ops));
    return static_cast<std::int32_t>(class_.blocks.size()) - 1;
  }
  // Operators say what a step reads and writes.
  static void note(const RankClass& c, Step& step) {
    const auto listed = [&](bool in) {
      std::vector<BufferId> out;
      for (const Op& op : step.ops)
        for (const int v : in ? op.in : op.out)
          if (v >= 0 && std::find(out.begin(), out.end(), c.views[at(v)].buffer) == out.end())
            out.push_back(c.views[at(v)].buffer);
      return out;
    };
    step.reads = listed(true);
    step.writes = listed(false);
  }
  static std::size_t place_of(const Block& block, const char* part) {
    const auto found =
        std::find_if(block.steps.begin(), block.steps.end(), [&](const Step& s) { return s.part == part; });
    ENSURE(found != block.steps.end(), "a training step without its {}", part);
    return static_cast<std::size_t>(found - block.steps.begin());
  }
  void enter(std::int32_t block, std::int32_t ahead = 0, bool opening = false) {
    class_.program.push_back({block, -1, ahead, opening});
  }
  void pass(std::int64_t micro_batch) {
    for (const Entry& entry : passes_.at(static_cast<std::int32_t>(micro_batch))) class_.program.push_back(entry);
  }

  // -- stages of an asynchronous pipeline ---------------------------------------------------------------------------
  [[nodiscard]] int stage_of(const Step& step) const {
    if (step.layer < 0) return step.part == "embedding" ? 0 : spec_.mesh.pipeline - 1;
    int stage = 0;
    while (stage + 1 < spec_.mesh.pipeline && split_.first_layer(stage + 1) <= step.layer) ++stage;
    return stage;
  }
  [[nodiscard]] int delay_of(const Step& step) const { return weight_delay(spec_, stage_of(step)); }

  void age_weights() {
    std::vector<int> delays(class_.buckets.size(), 0);
    for (const char* name : {"forward", "backward"})
      for (const Step& step : block(name).steps)
        for (std::size_t b = 0; b < class_.buckets.size(); ++b)
          if (std::find(step.reads.begin(), step.reads.end(), class_.buckets[b].parameters) != step.reads.end())
            delays[b] = std::max(delays[b], delay_of(step));
    make_versions(class_, delays);
    Block& finish = block("finish");
    copy_versions(class_, finish, first_update(class_, finish));
    for (const char* name : {"forward", "backward"})
      read_versions(class_, block(name), [&](const Step& step) { return delay_of(step) > 0; });
  }

  // The two ends of a model with a tied table clip together.
  void clip_by_stages() {
    const bool tied = shared_.exists();
    base::ById<BucketId, int> stage(class_.buckets.size(), -1);
    for (const Step& step : block("forward").steps)
      for (std::size_t b = 0; b < class_.buckets.size(); ++b)
        for (const BufferId buffer : {class_.buckets[b].parameters, class_.buckets[b].stashed})
          if (stage[b] < 0 && buffer && std::find(step.reads.begin(), step.reads.end(), buffer) != step.reads.end())
            stage[b] = stage_of(step) == spec_.mesh.pipeline - 1 && tied ? 0 : stage_of(step);
    const std::size_t clip = place_of(block("finish"), "clip"), norm = place_of(block("finish"), "norm");
    const BufferId coefficient = class_.views[at(block("finish").steps[clip].ops.front().out.at(1))].buffer;
    const std::vector<Op> squares = block("finish").steps[norm].ops;  // one per bucket, in order
    const std::int64_t stages = spec_.mesh.pipeline;
    const BufferId totals = persistent("stage_norms_squared", Purpose::scalars, DType::fp32, stages),
                   norms = persistent("stage_norms", Purpose::scalars, DType::fp32, stages),
                   coefficients = persistent("stage_clip_coefficients", Purpose::scalars, DType::fp32, stages);
    std::vector<Op> ops = {build_.zero_of(totals)};
    for (std::size_t b = 0; b < class_.buckets.size(); ++b) {
      ops.push_back(squares.at(b));
      ops.back().out = {part(totals, stage[b], 1)};
    }
    for (std::int64_t s = 0; s < stages; ++s)
      ops.push_back(build_.flat(OpKind::clip_coefficient, DType::fp32, 1, {part(totals, s, 1)},
                                {part(norms, s, 1), part(coefficients, s, 1)}));
    Step by_stage = step_of(Phase::optimizer, "clip_stages", std::move(ops));
    Block& finish = block("finish");  // not earlier: noting a step opens a block
    finish.steps.insert(finish.steps.begin() + static_cast<std::ptrdiff_t>(clip) + 1, std::move(by_stage));
    for (std::size_t i = clip + 2; i < finish.steps.size(); ++i) {
      Step& step = finish.steps[i];
      if (!step.bucket) continue;
      for (Op& op : step.ops)
        for (int& operand : op.in)
          if (operand >= 0 && class_.views[at(operand)].buffer == coefficient)
            operand = part(coefficients, stage[step.bucket], 1);
      note(class_, step);
    }
  }

  // -- replicas in turn ---------------------------------------------------------------------------------------------
  // Passes write gradients of their own. `apart`: the tied table's gradients as input and as head are separate.
  void own_gradients(bool apart) {
    for (const BucketId b : class_.buckets.keys()) {
      const Bucket& bucket = class_.buckets[b];
      const DType dtype = buffer_at(bucket.gradients).dtype;
      const int together = replicas_together(bucket);
      if (spec_.compresses() && together == workers_) continue;  // experts that no other rank has
      for (const bool of_head : {false, true}) {
        if (of_head && !(apart && b == shared_)) continue;
        Own one;
        one.together = together;
        one.bucket = b;
        one.of_head = of_head;
        one.gradients = persistent(bucket.name + (of_head ? ".own_of_head" : ".own"), Purpose::gradients, dtype,
                                   class_.buckets[b].elements);
        own_.push_back(std::move(one));
      }
    }
    for (Step& step : block("backward").steps) {
      const bool of_head = apart && step.part != "embedding";  // which may look up too, to predict further
      for (Op& op : step.ops)
        for (int& operand : op.out) {
          if (operand < 0) continue;
          View v = class_.views[at(operand)];
          for (const Own& one : own_)
            if (v.buffer == class_.buckets[one.bucket].gradients && one.of_head == (of_head && one.bucket == shared_))
              v.buffer = one.gradients;
          if (!(v == class_.views[at(operand)])) operand = build_.view(v);
        }
      note(class_, step);
    }
    for (const Own& one : own_) {
      if (std::any_of(turns_.begin(), turns_.end(), [&](const Turn& t) { return t.together == one.together; }))
        continue;
      std::vector<Op> zeros;
      each_own(one.together, [&](const Own& same) { zeros.push_back(build_.zero_of(same.gradients)); });
      const std::string of = turns_.empty() ? "" : ".experts";
      turns_.push_back({of, one.together, block_of("turn" + of, Phase::optimizer, std::move(zeros))});
    }
  }
  template <class Body>
  void each_own(int together, const Body& body) const {
    for (const Own& one : own_)
      if (one.together == together) body(one);
  }
  [[nodiscard]] int senders(const Own& one) const { return workers_ / one.together; }

  // Runs micro-batches [first, last) of every replica in turn. After each replica, or as many as are one sender, the
  // gradients are taken.
  void turns(std::int64_t first, std::int64_t last) {
    for (int w = 0; w < workers_; ++w) {
      for (const Turn& turn : turns_)
        if (w % turn.together == 0) enter(turn.zero);
      for (std::int64_t i = first; i < last; ++i) pass(w * split_.micro_batches() + i);
      for (const Turn& turn : turns_)
        if (w % turn.together == turn.together - 1) enter(turn.take[at(w / turn.together)]);
    }
  }

  void compress() {
    const int zero = spec_.states.zero_stage;
    const bool ends_apart = zero >= 2 || (spec_.mesh.pipeline > 1 && spec_.head_stage() != 0);
    own_gradients(shared_.exists() && ends_apart);
    const bool low_rank = spec_.low_rank();
    for (Own& one : own_) low_rank ? add_low_rank(one) : add_halves(one);
    for (Turn& turn : turns_)
      for (int w = 0; w < workers_ / turn.together; ++w) {
        std::vector<Op> ops;
        each_own(turn.together,
                 [&](const Own& one) { low_rank ? take_low_rank(one, w, ops) : take_half(one, w, ops); });
        const std::string name = fmt::format("take{}.{}", turn.of, w);
        turn.take.push_back(block_of(name, Phase::gradient_reduce, std::move(ops)));
        if (spec_.plain_steps() > 0) take_whole(turn);
      }
    std::vector<Op> ops;
    for (const Own& one : own_) low_rank ? sum_low_rank(one, ops) : sum_halves(one, ops);
    const std::int32_t sum = block_of("sum", Phase::gradient_reduce, std::move(ops));
    run_from(spec_.plain_steps(), class_.blocks[at(sum)].steps);
    class_.program.clear();
    if (low_rank && ends_apart && shared_.exists()) enter(begin_factors(), 0, true);
    enter(places_.at("begin"));
    const std::int64_t m = split_.micro_batches(), at_once = zero >= 2 ? 1 : m;
    for (std::int64_t i = 0; i < m; i += at_once) {
      turns(i, i + at_once);
      enter(sum);
    }
    enter(places_.at("finish"));
  }

  // In 16 bits.
  [[nodiscard]] DType wire() const {
    return spec_.compression.gradients == GradientCompression::fp16 ? DType::fp16 : DType::bf16;
  }
  // A node's replicas may sum first; a rank's experts work for all ranks among which a layer's experts are divided.
  [[nodiscard]] int replicas_together(const Bucket& bucket) const {
    if (!spec_.compresses()) return 1;
    const Holders holders = spec_.holders(bucket.experts);
    return holders.stride * holders.near / spec_.mesh.tensor;
  }
  [[nodiscard]] DType gradient() const { return gradient_dtype(spec_.numerics.precision); }
  [[nodiscard]] std::string name_of(const Own& one, const char* what) const {
    return fmt::format("{}{}.{}", class_.buckets[one.bucket].name, one.of_head ? ".of_head" : "", what);
  }
  void add_halves(Own& one) {
    const std::int64_t n = class_.buckets[one.bucket].elements;
    one.pieces = persistent(name_of(one, "pieces"), Purpose::communication, wire(), n * senders(one));
    if (gradient() == DType::fp32) one.sent = persistent(name_of(one, "sent"), Purpose::communication, wire(), n);
  }
  void take_half(const Own& one, int w, std::vector<Op>& ops) {
    const std::int64_t n = class_.buckets[one.bucket].elements;
    ops.push_back(build_.flat(one.sent ? OpKind::convert : OpKind::copy, wire(), n, {whole(one.gradients)},
                              {part(one.pieces, w * n, n)}));
  }
  // Sums in fp32. Without ZeRO, the result that all ranks get is rounded once more.
  void sum_halves(const Own& one, std::vector<Op>& ops) {
    const Bucket& bucket = class_.buckets[one.bucket];
    const bool again = spec_.states.zero_stage == 0;
    const BufferId target = !again ? bucket.gradients : one.sent ? one.sent : one.gradients;
    Op sum = build_.flat(OpKind::sum_pieces, wire(), bucket.elements, {whole(one.pieces)}, {whole(target)});
    sum.n = senders(one);
    sum.accumulate = !again;
    ops.push_back(std::move(sum));
    if (!again) return;
    if (one.sent)
      ops.push_back(build_.flat(OpKind::convert, wire(), bucket.elements, {whole(one.sent)}, {whole(one.gradients)}));
    ops.push_back(build_.flat(OpKind::accumulate_into, gradient(), bucket.elements, {whole(one.gradients)},
                              {whole(bucket.gradients)}));
  }

  // PowerSGD, with the names of plan/lower/compress.h.
  void add_low_rank(Own& one) {
    Bucket& bucket = class_.buckets[one.bucket];
    const LowRankSizes sizes = place_low_rank(bucket, spec_.compression);
    if (sizes.error == 0) return;
    one.p = persistent(name_of(one, "low_rank_p"), Purpose::communication, DType::fp32, sizes.p);
    one.q = persistent(name_of(one, "low_rank_q"), Purpose::optimizer_states, DType::fp32, sizes.q);
    if (!one.of_head) bucket.low_rank_q = one.q;
    for (int w = 0; w < senders(one); ++w)
      one.errors.push_back(persistent(name_of(one, "error") + fmt::format(".{}", w), Purpose::optimizer_states,
                                      DType::fp32, sizes.error));
    if (!one.of_head) bucket.error = one.errors.front();
  }
  // Both gradients of a table begin with the same factor.
  std::int32_t begin_factors() {
    std::vector<Op> ops;
    for (const Own& one : own_)
      if (one.of_head && one.q)
        ops.push_back(build_.flat(OpKind::copy, DType::fp32, buffer_at(one.q).elements,
                                  {whole(class_.buckets[one.bucket].low_rank_q)}, {whole(one.q)}));
    return block_of("begin_factors", Phase::optimizer, std::move(ops));
  }
  struct Matrix {
    MatrixShape shape;
    std::int64_t rank = 0;
  };
  [[nodiscard]] Matrix matrix(const ParameterRange& range) const {
    const MatrixShape shape = matrix_of(range.tensor);
    return {shape, rank_of(shape, spec_.compression)};
  }
  // (rows, rank) = M Q; (columns, rank) = M^T P; (rows, columns) = P Q^T
  Op product_p(const Own& one, const ParameterRange& range, int w) {
    const auto [shape, r] = matrix(range);
    Op op;
    op.kind = OpKind::matmul;
    op.m = shape.rows, op.n = r, op.k = shape.columns;
    op.accumulate = w > 0;
    op.in = {part(one.errors[at(w)], range.error, range.elements), part(one.q, range.low_rank_q, shape.columns * r)};
    op.out = {part(one.p, range.low_rank_p, shape.rows * r)};
    return op;
  }
  Op product_q(const Own& one, const ParameterRange& range, int w) {
    const auto [shape, r] = matrix(range);
    Op op;
    op.kind = OpKind::matmul;
    op.m = shape.columns, op.n = r, op.k = shape.rows;
    op.trans_a = true;
    op.accumulate = w > 0;
    op.in = {part(one.errors[at(w)], range.error, range.elements), part(one.p, range.low_rank_p, shape.rows * r)};
    op.out = {part(one.q, range.low_rank_q, shape.columns * r)};
    return op;
  }
  Op product_gradient(const Own& one, const ParameterRange& range) {
    const auto [shape, r] = matrix(range);
    Op op;
    op.kind = OpKind::matmul;
    op.m = shape.rows, op.n = shape.columns, op.k = r;
    op.trans_b = true;
    op.in = {part(one.p, range.low_rank_p, shape.rows * r), part(one.q, range.low_rank_q, shape.columns * r)};
    op.out = {part(one.gradients, range.offset, range.elements)};
    return op;
  }
  // What travels whole goes into the sum at once.
  void take_low_rank(const Own& one, int w, std::vector<Op>& ops) {
    const Bucket bucket = class_.buckets[one.bucket];
    for (const ParameterRange& range : bucket.ranges) {
      const int own = part(one.gradients, range.offset, range.elements);
      const int into = range.error < 0 ? part(bucket.gradients, range.offset, range.elements)
                                       : part(one.errors[at(w)], range.error, range.elements);
      ops.push_back(build_.flat(OpKind::accumulate_into, DType::fp32, range.elements, {own}, {into}));
      if (range.error >= 0) ops.push_back(product_p(one, range, w));
    }
  }
  // Until PowerSGD begins, everything goes into the sum at once.
  void take_whole(const Turn& turn) {
    std::vector<Op> ops;
    each_own(turn.together, [&](const Own& one) {
      ops.push_back(build_.flat(OpKind::accumulate_into, DType::fp32, class_.buckets[one.bucket].elements,
                                {whole(one.gradients)}, {whole(class_.buckets[one.bucket].gradients)}));
    });
    Step plain = step_of(Phase::gradient_reduce, "take_whole", std::move(ops));
    std::vector<Step>& steps = class_.blocks[at(turn.take.back())].steps;
    run_from(spec_.plain_steps(), steps);
    steps.push_back(std::move(plain));
    run_before(spec_.plain_steps(), std::span(steps).last(1));
  }
  void sum_low_rank(const Own& one, std::vector<Op>& ops) {
    const Bucket bucket = class_.buckets[one.bucket];
    for (const ParameterRange& range : bucket.ranges) {
      if (range.error < 0) continue;
      const auto [shape, r] = matrix(range);
      Op orthogonal = build_.flat(OpKind::orthogonalise, DType::fp32, shape.rows, {},
                                  {part(one.p, range.low_rank_p, shape.rows * r)});
      orthogonal.n = r;
      ops.push_back(std::move(orthogonal));
      for (int w = 0; w < senders(one); ++w) ops.push_back(product_q(one, range, w));
      ops.push_back(product_gradient(one, range));
      const int own = part(one.gradients, range.offset, range.elements);
      ops.push_back(build_.flat(OpKind::accumulate_into, DType::fp32, range.elements, {own},
                                {part(bucket.gradients, range.offset, range.elements)}));
      for (int w = 0; w < senders(one); ++w) {
        ops.push_back(build_.flat(OpKind::add_scaled, DType::fp32, range.elements, {own},
                                  {part(one.errors[at(w)], range.error, range.elements)}));
        ops.back().scale = -1.0 / senders(one);
      }
    }
  }

  // -- workers of a parameter server --------------------------------------------------------------------------------
  void serve() {
    for (const char* pass : {"forward", "backward"})
      for (Step& step : block(pass).steps)
        for (Op& op : step.ops)
          if (models::traits_of(op).loss_gradient) op.scale *= workers_;
    own_gradients(false);
    const BufferId squared = persistent("worker_norm_squared", Purpose::scalars, DType::fp32, 1),
                   norms = persistent("worker_norms", Purpose::scalars, DType::fp32, workers_),
                   coefficients = persistent("clip_coefficients", Purpose::scalars, DType::fp32, workers_);
    for (const Own& one : own_) {
      Bucket& bucket = class_.buckets[one.bucket];
      bucket.received =
          persistent(bucket.name + ".received", Purpose::communication, gradient(), bucket.elements * workers_);
    }
    for (int w = 0; w < workers_; ++w) {
      std::vector<Op> ops = {build_.zero_of(squared)};
      for (const Own& one : own_) {
        ops.push_back(build_.flat(OpKind::copy, gradient(), class_.buckets[one.bucket].elements, {whole(one.gradients)},
                                  {received(one.bucket, w)}));
        ops.push_back(build_.flat(OpKind::norm_squared, gradient(), class_.buckets[one.bucket].elements,
                                  {received(one.bucket, w)}, {whole(squared)}));
        ops.back().accumulate = true;
      }
      ops.push_back(build_.flat(OpKind::clip_coefficient, DType::fp32, 1, {whole(squared)},
                                {part(norms, w, 1), part(coefficients, w, 1)}));
      turns_.front().take.push_back(block_of(fmt::format("take.{}", w), Phase::optimizer, std::move(ops)));
    }
    update_in_turns(norms, coefficients);
    class_.program.clear();
    enter(places_.at("begin"));
    turns(0, split_.micro_batches());
    enter(places_.at("finish"));
  }
  int received(BucketId bucket, int w) {
    const std::int64_t n = class_.buckets[bucket].elements;
    return part(class_.buckets[bucket].received, w * n, n);
  }
  void update_in_turns(BufferId norms, BufferId coefficients) {
    Op largest = build_.flat(OpKind::softmax_max, DType::fp32, workers_, {whole(norms)}, {whole(class_.gradient_norm)});
    largest.n = 1;
    largest.vocab = workers_;
    Step worst = step_of(Phase::reporting, "norm", {std::move(largest)});
    Block& finish = block("finish");
    std::erase_if(finish.steps, [](const Step& step) { return step.part == "norm" || step.part == "clip"; });
    finish.steps.insert(finish.steps.begin(), std::move(worst));
    for (Step& step : finish.steps) {
      if (!step.bucket) continue;
      std::vector<Op> all;
      for (const Op& op : step.ops)
        for (int w = 0; w < workers_; ++w) {
          all.push_back(op);
          all.back().turn = w;
          all.back().turns = workers_;
          all.back().in.at(0) = received(step.bucket, w);
          all.back().in.at(1) = part(coefficients, w, 1);
        }
      step.ops = std::move(all);
      note(class_, step);
    }
  }

  const Plan& split_;
  const PlanSpec& spec_;
  int workers_;
  BucketId shared_;
  ClassBuilder build_;
  RankClass& class_ = build_.result();
  std::map<std::string, std::int32_t> places_;         ///< by block name
  std::map<std::int32_t, std::vector<Entry>> passes_;  ///< by micro-batch
  std::vector<Own> own_;
  std::vector<Turn> turns_;
};

// P94 has no row in plan/spec/rules.h: nothing is wrong with these plans, only no serial program equals them.
base::Diagnostics refused(const PlanSpec& spec, const models::Model& model) {
  base::Diagnostics found;
  const auto rule = [&](bool holds, const char* message, const char* help) {
    if (!holds) found.push_back({base::Severity::error, "P94", {}, message, help, {}});
  };
  const bool split = spec.mesh.tensor > 1 || (model.experts.any() && spec.mesh.expert_ways() > 1);
  rule(!spec.low_rank() || !split,
       "PowerSGD on ranks' parts of a matrix approximates differently than on the whole matrix, so no serial program "
       "can match it",
       "verify it with tensor: 1 and experts that are not split, or such splits with compression: {gradients: none}");
  rule(!spec.compresses() || spec.mesh.context == 1,
       "ranks with parts of a sequence compress the gradients of their parts, so no serial program can match them",
       "verify it with context: 1, or verify context parallelism with compression: {gradients: none}");
  rule(!spec.compresses() || spec.holders(true).stride % spec.mesh.tensor == 0,
       "ranks of a tensor group that have the same parts of the same experts compress the gradients of their own rows, "
       "so no serial program can match them",
       "verify it with expert x expert_tensor a multiple of tensor, or compression: {gradients: none}");
  rule(
      !spec.compresses() || !has_balancing_loss(model),
      "replicas take turns whose gradients are compressed, but a balancing loss needs the tokens of all of them before "
      "the first backward pass",
      "verify it with aux_coefficient: 0, or compression: {gradients: none}");
  rule(spec.numerics.precision != DType::fp8 || (!split && spec.mesh.context == 1),
       "ranks that have parts of matrices round them to 8 bits by themselves: no serial program has their scales, nor "
       "their order of sums, which decides where a value between two codes goes",
       "prove it with precision: bf16, or fp8 with tensor: 1, context: 1 and experts that are not split");
  rule(
      !model.recommender || !spec.states.has_server(),
      "a parameter server's workers look rows up before those of other workers move: no serial program has their turns "
      "yet",
      "prove the same placement without staleness");
  return found;
}

}  // namespace

base::Result<SerialProgram> serial_program(const Plan& split, clusters::Cluster device, const LowerOptions& options) {
  const PlanSpec& spec = split.spec();
  if (base::Diagnostics found = refused(spec, split.model()); !found.empty()) return base::fail(std::move(found));
  auto one = make_plan(std::make_shared<const models::Model>(split.model()),
                       std::make_shared<const clusters::Cluster>(std::move(device)), alone(spec, split.model()));
  if (!one) return base::fail(one.error());
  const bool own = spec.stages.asynchronous() || spec.states.has_server() || spec.compresses();
  LowerOptions plain = options;
  plain.zero_gradients = options.zero_gradients || own;
  Schedule schedule = lower(*one, plain);
  if (own && !options.forward_only) {
    RankClass& only = schedule.classes.front();
    only = SerialRewrite(split, std::move(only), stage_parameters(*one, 0).shared).build();
    schedule.spec.compression = spec.compression;  // gives the rank of the factors
    if (!options.zero_gradients) write_first(only);
  }
  return SerialProgram{std::move(*one), std::move(schedule), own};
}

}  // namespace orrery::plan
