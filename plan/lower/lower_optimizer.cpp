// States and updates of each optimizer.
#include "plan/lower/lower_optimizer.h"

#include <algorithm>

#include "plan/lower/buckets.h"
#include "plan/lower/lower.h"
#include "plan/lower/whole_matrices.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

void add_states(ClassBuilder& build, const PlanSpec& spec, Bucket& b, std::int64_t optimized) {
  const auto state = [&](const char* name, DType dtype, std::int64_t elements) {
    return build.buffer(b.name + "." + name, Purpose::optimizer_states, dtype, elements, true);
  };
  const bool mixed = expand_options(spec).dtype != DType::fp32;
  // The host updates values of its own, whatever type the device computes in (ZeRO-Offload).
  const bool host = spec.offload.optimizer != Space::device;
  if ((mixed && spec.rounding == Rounding::nearest) || host) b.master = state("master", DType::fp32, optimized);
  const bool bytes = spec.optimizer == OptimizerKind::adamw_8bit && !b.embedding;
  const DType dtype = bytes ? DType::uint8 : DType::fp32;
  if (spec.moments() > 0) b.first_moment = state("first_moment", dtype, optimized);
  const bool whole = traits_of(spec.optimizer).whole_matrices;
  if (const std::int64_t n = whole ? second_moment_elements(whole_matrices(b), optimized) : optimized;
      spec.moments() > 1 && n > 0)
    b.second_moment = state("second_moment", dtype, n);
  if (!bytes) return;
  b.first_scale = state("first_scale", DType::fp32, optimized / models::kQuantisedBlock);
  b.second_scale = state("second_scale", DType::fp32, optimized / models::kQuantisedBlock);
}

View optimized_gradient(const ClassBuilder& build, const Bucket& b, int zero) {
  if (zero >= 2) return build.whole(b.gradient_shard);
  if (zero == 1) return {b.gradients, 0, b.shard_elements(), true, b.experts};
  return build.whole(b.gradients);
}
View optimized_values(const ClassBuilder& build, const Bucket& b, int zero) {
  if (zero == 3) return build.whole(b.shard);
  if (zero >= 1) return {b.parameters, 0, b.shard_elements(), true, b.experts};
  return build.whole(b.parameters);
}

namespace {

class Lowering {
 public:
  explicit Lowering(const Update& update)
      : u_(update), build_(update.build), gradient_dtype_(gradient_dtype(update.spec.precision)) {
    for (std::size_t i = 0; i < build_.result().buckets.size(); ++i)
      if (!build_.result().buckets[i].frozen) buckets_.push_back(static_cast<int>(i));
  }

  void run() {
    if (u_.spec.optimizer == OptimizerKind::lamb) return lamb();
    if (u_.spec.optimizer == OptimizerKind::adafactor) return adafactor();
    if (traits_of(u_.spec.optimizer).whole_matrices) return muon();
    for (const int i : buckets_) {
      std::vector<Op> ops;
      for (turn_ = 0; turn_ < u_.turns; ++turn_) ops.push_back(whole_update(bucket(i)));
      update(i, std::move(ops));
    }
  }

 private:
  [[nodiscard]] Bucket bucket(int i) const { return build_.bucket(i); }
  [[nodiscard]] int whole(int buffer) const { return build_.view(build_.whole(buffer)); }
  [[nodiscard]] View values_of(const Bucket& b) const { return optimized_values(build_, b, u_.zero); }
  [[nodiscard]] int gradient(const Bucket& b) const {
    if (u_.turns == 1) return build_.view(optimized_gradient(build_, b, u_.zero));
    return build_.view({b.received, turn_ * b.shard_elements(), b.shard_elements(), false});
  }
  [[nodiscard]] int coefficient() const {
    return u_.turns == 1 ? whole(u_.coefficient) : build_.view({u_.coefficient, turn_, 1, false});
  }

  // What an update changes: the master, or the parameters themselves.
  [[nodiscard]] int target(const Bucket& b) const {
    return b.master >= 0 ? whole(b.master) : build_.view(values_of(b));
  }
  void add_scaling(std::vector<int>& in) const {
    if (build_.result().scaling >= 0) in.push_back(whole(build_.result().scaling));
  }
  Op update_op(OpKind kind, const Bucket& b, std::vector<int> in, std::vector<int> out) const {
    add_scaling(in);
    if (b.master >= 0) out.push_back(build_.view(values_of(b)));
    Op op = build_.flat(kind, gradient_dtype_, values_of(b).elements, std::move(in), std::move(out));
    op.stochastic = u_.spec.rounding == Rounding::stochastic;
    op.turn = turn_;
    op.turns = u_.turns;
    return op;
  }

  [[nodiscard]] Op whole_update(const Bucket& b) const {
    std::vector<int> out = {target(b), b.first_moment >= 0 ? whole(b.first_moment) : -1};
    const OptimizerTraits& traits = traits_of(u_.spec.optimizer);
    if (traits.update == OpKind::momentum_update) {
      Op op = update_op(traits.update, b, {gradient(b), coefficient()}, std::move(out));
      op.rule = traits.rule;
      return op;
    }
    out.push_back(whole(b.second_moment));
    if (b.first_scale < 0) return update_op(OpKind::adamw, b, {gradient(b), coefficient()}, std::move(out));
    out.insert(out.end(), {whole(b.first_scale), whole(b.second_scale)});
    return update_op(OpKind::adamw_8bit, b, {gradient(b), coefficient()}, std::move(out));
  }

  void update(int i, std::vector<Op> ops) {
    const Bucket b = bucket(i);
    const bool by_rule = ops.back().kind == OpKind::momentum_update;
    const char* name = by_rule ? name_of(u_.spec.optimizer) : models::name_of(ops.back().kind);
    build_.compute(Phase::optimizer, -1, name, std::move(ops)).bucket = i;
    if (u_.zero != 1 && u_.zero != 2) return;
    if (u_.spec.exchanges_by_node()) return gather_by_node(i);
    if (const int group = u_.groups.data_of(b); group >= 0)
      build_.collective(Phase::parameter_gather, Stream::data, CollectiveKind::all_gather, group, values_of(b),
                        build_.whole(b.parameters), -1, i);
  }

  // What a rank's equals on all nodes have is one piece, and the pieces of a node's ranks follow one another. One
  // buffer serves all buckets, whose messages are in a row: none waits for its memory.
  void gather_by_node(int i) {
    const Bucket b = bucket(i);
    const std::int64_t piece = b.elements / u_.spec.compression.group;
    if (pieces_ < 0) {
      std::int64_t most = 0;
      for (const int other : buckets_) most = std::max(most, bucket(other).elements / u_.spec.compression.group);
      const DType dtype = build_.result().buffers[static_cast<std::size_t>(b.parameters)].dtype;
      pieces_ = build_.buffer("gathered_piece", Purpose::communication, dtype, most);
    }
    const View gathered{pieces_, 0, piece, false};
    build_.collective(Phase::parameter_gather, Stream::data, CollectiveKind::all_gather, u_.groups.far, values_of(b),
                      gathered, -1, i);
    build_.collective(Phase::parameter_gather, Stream::data, CollectiveKind::all_gather, u_.groups.near, gathered,
                      build_.whole(b.parameters), -1, i);
  }

  // One step for each bucket; the first clears what they all add to.
  template <class Make>
  void each(int cleared, const Make& make) {
    for (const int i : buckets_) {
      std::vector<Op> ops;
      if (cleared >= 0 && i == buckets_.front()) ops.push_back(build_.zero_of(cleared));
      Op op = make(bucket(i));
      const char* name = models::name_of(op.kind);
      ops.push_back(std::move(op));
      build_.compute(Phase::optimizer, -1, name, std::move(ops)).bucket = i;
    }
  }
  int norms_buffer() { return build_.buffer("norms", Purpose::communication, DType::fp32, 2 * u_.layout.parameters); }
  // Over the ranks that have parts of a parameter.
  void meet(int group, const View& v) {
    if (group >= 0 && v.elements > 0)
      build_.collective(Phase::optimizer, Stream::data, CollectiveKind::all_reduce, group, v, v, -1, -1);
  }
  [[nodiscard]] int parts() const { return u_.zero >= 1 ? u_.groups.parts : u_.groups.tensor; }
  Op of_tensors(OpKind kind, const Bucket& b, std::vector<int> in, std::vector<int> out) const {
    Op op = build_.flat(kind, gradient_dtype_, values_of(b).elements, std::move(in), std::move(out));
    op.n = static_cast<std::int64_t>(b.ranges.size());
    op.k = u_.layout.factors.elements;
    return op;
  }

  void lamb() {
    const int norms = norms_buffer();
    each(norms, [&](const Bucket& b) {
      std::vector<int> in = {gradient(b), coefficient(), target(b)};
      add_scaling(in);
      return of_tensors(OpKind::lamb_moments, b, std::move(in),
                        {whole(b.first_moment), whole(b.second_moment), whole(norms)});
    });
    meet(parts(), build_.whole(norms));
    for (const int i : buckets_) {
      const Bucket b = bucket(i);
      update(i,
             {update_op(OpKind::lamb, b, {whole(b.first_moment), whole(b.second_moment), whole(norms)}, {target(b)})});
    }
  }

  // Factors are no thousandth of the parameters: every replica keeps all of them, and ZeRO's shards, which cut matrices
  // anywhere, add up their sums instead of owning rows and columns.
  void adafactor() {
    const std::int64_t elements = u_.layout.factors.elements;
    const int factors = build_.result().factors;
    const int sums = build_.buffer("factor_sums", Purpose::communication, DType::fp32, elements),
              norms = norms_buffer();
    each(sums, [&](const Bucket& b) {
      return of_tensors(OpKind::factor_sums, b, {gradient(b), coefficient()}, {whole(sums)});
    });
    if (u_.zero >= 1) meet(u_.groups.data, build_.whole(sums));
    meet(u_.groups.tensor, {sums, 0, u_.layout.factors.met, false});
    std::vector<int> in = {whole(sums)};
    add_scaling(in);
    build_.compute(Phase::optimizer, -1, "factor_moments",
                   {build_.flat(OpKind::factor_moments, DType::fp32, elements, std::move(in), {whole(factors)})});
    each(norms, [&](const Bucket& b) {
      return of_tensors(OpKind::factor_norms, b, {gradient(b), coefficient(), target(b), whole(factors)},
                        {whole(norms)});
    });
    meet(parts(), build_.whole(norms));
    for (const int i : buckets_) {
      const Bucket b = bucket(i);
      update(i, {update_op(OpKind::adafactor, b, {gradient(b), coefficient(), whole(factors), whole(norms)},
                           {target(b)})});
    }
  }

  // Buckets of matrices one after the other, so that the directions of all ranks are there of one alone.
  void muon() {
    std::int64_t workspace = 0;
    for (const int i : buckets_) workspace = std::max(workspace, newton_schulz_workspace(whole_matrices(bucket(i))));
    const int scratch = workspace > 0 ? build_.buffer("newton_schulz", Purpose::workspace, DType::fp32, workspace) : -1;
    for (const int i : buckets_) {
      const WholeMatrices whole_ones = whole_matrices(bucket(i));
      if (whole_ones.matrices.empty())
        update(i, {adamw(bucket(i))});
      else
        move_whole(i, whole_ones, scratch);
    }
  }
  [[nodiscard]] Op adamw(const Bucket& b) const {
    return update_op(OpKind::adamw, b, {gradient(b), coefficient()},
                     {target(b), whole(b.first_moment), whole(b.second_moment)});
  }
  void move_whole(int i, const WholeMatrices& matrices, int scratch) {
    const Bucket b = bucket(i);
    const std::int64_t piece = values_of(b).elements;
    const int own = build_.buffer(b.name + ".direction", Purpose::communication, DType::fp32, piece);
    std::vector<int> in = {gradient(b), coefficient()};
    add_scaling(in);
    build_
        .compute(Phase::optimizer, -1, "directions",
                 {build_.flat(OpKind::muon_moments, gradient_dtype_, piece, std::move(in),
                              {whole(b.first_moment), whole(own)})})
        .bucket = i;
    const std::int64_t all = b.elements * u_.spec.tensor;
    int gathered = own;
    if (all > piece) {
      gathered = build_.buffer(b.name + ".directions", Purpose::communication, DType::fp32, all);
      build_.collective(Phase::optimizer, Stream::data, CollectiveKind::all_gather, parts(), build_.whole(own),
                        build_.whole(gathered), -1, i);
    }
    std::vector<Op> ops = newton_schulz(matrices, piece, static_cast<int>(b.elements / piece));
    for (Op& op : ops) {
      op.in = {whole(gathered)};
      op.out = {whole(own), whole(scratch)};
    }
    const int second = b.second_moment >= 0 ? whole(b.second_moment) : -1;
    ops.push_back(update_op(OpKind::muon, b, {gradient(b), coefficient(), whole(own)},
                            {target(b), whole(b.first_moment), second}));
    ops.back().k = second_moment_elements(matrices, piece);
    update(i, std::move(ops));
  }

  const Update& u_;
  ClassBuilder& build_;
  DType gradient_dtype_;
  int turn_ = 0;
  int pieces_ = -1;  ///< buffer: of parameters that are gathered by node
  std::vector<int> buckets_;
};

}  // namespace

void lower_update(const Update& update) {
  Lowering(update).run();
}

}  // namespace orrery::plan
