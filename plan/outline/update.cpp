// Updates, optimizer by optimizer.
#include "plan/outline/update.h"

#include <algorithm>
#include <utility>

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

namespace {

constexpr Phase kUpdate = Phase::optimizer;

const char* name_of_buffer(Memory memory) {
  return memory == Memory::factor_sums      ? "factor_sums"
         : memory == Memory::norms          ? "norms"
         : memory == Memory::newton_schulz  ? "newton_schulz"
         : memory == Memory::gathered_piece ? "gathered_piece"
                                            : "";
}

class Update {
 public:
  Update(const BucketShape& bucket, const StageTotals& totals, const PlanSpec& spec)
      : s_(bucket, spec), b_(bucket), totals_(totals), spec_(spec), traits_(traits_of(spec.states.optimizer)) {}

  Outline of_bucket(int round, bool first) {
    switch (traits_.update_of) {
      case UpdateOf::factors:
        round == 0 ? factor_sums(first) : round == 1 ? factor_norms(first) : update(adafactor());
        break;
      case UpdateOf::norms: round == 0 ? lamb_moments(first) : update(lamb()); break;
      case UpdateOf::matrices: b_.whole == nullptr ? update(adamw()) : whole_matrices(); break;
      case UpdateOf::values: {
        std::vector<Op> ops;
        for (turn_ = 0; turn_ < turns(); ++turn_) ops.push_back(by_element());
        update(std::move(ops));
      }
    }
    return s_.take();
  }

  Outline agreement(int round) {
    if (!traits_.takes_norms() || totals_.all.parameters == 0) return s_.take();  // of adapters, a stage may have none
    if (traits_.factored() && round == 0) {
      const int sums = of_stage(Memory::factor_sums);
      meet_sums();
      std::vector<int> in = {sums};
      add_scaling(in);
      s_.compute(kUpdate, "factor_moments",
                 {Sketch::flat(OpKind::factor_moments, DType::fp32, totals_.all.factors.elements, std::move(in),
                               {of_stage(Memory::factors)})});
    } else if (round + 1 < update_rounds(spec_)) {
      static_cast<void>(of_stage(Memory::norms));
      const std::int64_t experts = 2 * totals_.apart.parameters, others = 2 * totals_.all.parameters - experts;
      meet(Over::parts, false, {Memory::norms, 0, others});
      meet(Over::parts, true, {Memory::norms, others, experts});
    }
    return s_.take();
  }

 private:
  // A parameter server makes one update for the gradient and the coefficient of each worker.
  [[nodiscard]] int turns() const { return spec_.states.has_server() ? spec_.mesh.data : 1; }
  [[nodiscard]] int gradient() {
    if (!spec_.states.has_server()) return s_.optimized_gradient();
    return s_.run(s_.slot(Memory::received), turn_ * b_.shard, b_.shard);
  }
  [[nodiscard]] int coefficient() { return s_.run(s_.slot(Memory::coefficient), turn_, 1); }
  // The values that an update changes: the master, or the parameters themselves.
  [[nodiscard]] int target() { return has_master(spec_) ? s_.whole(Memory::master) : s_.optimized_values(); }
  void add_scaling(std::vector<int>& in) {
    if (spec_.numerics.precision == DType::fp16) in.push_back(s_.whole(Memory::scaling));
  }
  [[nodiscard]] int of_stage(Memory memory) {
    const std::int64_t elements = memory == Memory::norms           ? 2 * totals_.all.parameters
                                  : memory == Memory::newton_schulz ? totals_.workspace
                                                                    : totals_.all.factors.elements;
    const Purpose purpose = memory == Memory::newton_schulz ? Purpose::workspace : Purpose::communication;
    return s_.whole(s_.of_stage(memory, name_of_buffer(memory), elements, purpose));
  }
  // A run of what all buckets add to, over the ranks that have parts of the parameters of one kind.
  struct MetRun {
    Memory memory{};
    std::int64_t offset = 0, elements = 0;
  };
  void meet(Over over, bool experts, const MetRun& run) {
    if (run.elements == 0) return;
    const int operand = s_.run(s_.slot(run.memory), run.offset, run.elements);
    s_.message(kUpdate, CollectiveKind::all_reduce, over, experts, operand, operand);
  }
  // Experts' sums come first, and those that tensor ranks contribute to stand together (place_factors): one run, if
  // the same ranks split experts and the rest.
  void meet_sums() {
    const FactorCount &all = totals_.all.factors, &experts = totals_.apart.factors;
    if (zero_of(spec_) >= 1) {
      meet(Over::data, false, {Memory::factor_sums, experts.elements, all.elements - experts.elements});
      meet(Over::data, true, {Memory::factor_sums, 0, experts.elements});
    }
    const bool together = !spec_.mesh.routes_own_rows();
    const std::int64_t of_experts = together ? 0 : experts.met;
    meet(Over::tensor, false, {Memory::factor_sums, experts.elements - experts.met + of_experts, all.met - of_experts});
    meet(Over::tensor, true, {Memory::factor_sums, experts.elements - experts.met, of_experts});
  }

  [[nodiscard]] Op flat(OpKind kind, std::vector<int> in, std::vector<int> out) const {
    return Sketch::flat(kind, gradient_dtype(spec_.numerics.precision), optimized_of(b_, spec_), std::move(in),
                        std::move(out));
  }
  [[nodiscard]] Op update_op(OpKind kind, std::vector<int> in, std::vector<int> out) {
    add_scaling(in);
    if (has_master(spec_)) out.push_back(s_.optimized_values());
    Op op = flat(kind, std::move(in), std::move(out));
    op.stochastic = spec_.numerics.rounding == Rounding::stochastic;
    op.turn = turn_;
    op.turns = turns();
    return op;
  }
  [[nodiscard]] Op adamw() {
    Op op = update_op(OpKind::adamw, {gradient(), coefficient()},
                      {target(), s_.whole(Memory::first_moment), s_.whole(Memory::second_moment)});
    op.half_moments = traits_.moments_in == models::DType::bf16;
    return op;
  }
  [[nodiscard]] Op by_element() {
    if (traits_.update == OpKind::momentum_update) {
      Op op = update_op(traits_.update, {gradient(), coefficient()},
                        {target(), spec_.states.moments() > 0 ? s_.whole(Memory::first_moment) : -1});
      op.rule = traits_.rule;
      return op;
    }
    if (!traits_.quantised() || b_.embedding) return adamw();
    return update_op(OpKind::adamw_8bit, {gradient(), coefficient()},
                     {target(), s_.whole(Memory::first_moment), s_.whole(Memory::second_moment),
                      s_.whole(Memory::first_scale), s_.whole(Memory::second_scale)});
  }

  // What each bucket adds to; the first clears it.
  [[nodiscard]] Op of_tensors(OpKind kind, std::vector<int> in, std::vector<int> out) const {
    Op op = flat(kind, std::move(in), std::move(out));
    op.n = b_.parameters;
    op.k = totals_.all.factors.elements;
    return op;
  }
  void sum_up(bool first, int sums, Op op) {
    const char* name = models::name_of(op.kind);
    std::vector<Op> ops;
    if (first) ops.push_back(s_.zero(sums));
    ops.push_back(std::move(op));
    s_.compute(kUpdate, name, std::move(ops));
  }
  void lamb_moments(bool first) {
    std::vector<int> in = {gradient(), coefficient(), target()};
    add_scaling(in);
    const int norms = of_stage(Memory::norms);
    sum_up(first, norms,
           of_tensors(OpKind::lamb_moments, std::move(in),
                      {s_.whole(Memory::first_moment), s_.whole(Memory::second_moment), norms}));
  }
  [[nodiscard]] Op lamb() {
    return update_op(OpKind::lamb,
                     {s_.whole(Memory::first_moment), s_.whole(Memory::second_moment), of_stage(Memory::norms)},
                     {target()});
  }
  // Factors take less than a thousandth of the parameters: every replica keeps all of them. ZeRO's shards, which cut
  // matrices anywhere, add up their sums; they do not own rows and columns.
  void factor_sums(bool first) {
    const int sums = of_stage(Memory::factor_sums);
    sum_up(first, sums, of_tensors(OpKind::factor_sums, {gradient(), coefficient()}, {sums}));
  }
  void factor_norms(bool first) {
    const int norms = of_stage(Memory::norms);
    sum_up(first, norms,
           of_tensors(OpKind::factor_norms, {gradient(), coefficient(), target(), of_stage(Memory::factors)}, {norms}));
  }
  [[nodiscard]] Op adafactor() {
    return update_op(OpKind::adafactor, {gradient(), coefficient(), of_stage(Memory::factors), of_stage(Memory::norms)},
                     {target()});
  }

  void whole_matrices() {
    const std::int64_t piece = optimized_of(b_, spec_), all = b_.elements * spec_.holders(b_.experts).ways;
    const int own = s_.whole(s_.temporary("direction", DType::fp32, piece));
    std::vector<int> in = {gradient(), coefficient()};
    add_scaling(in);
    s_.compute(kUpdate, "directions",
               {flat(OpKind::muon_moments, std::move(in), {s_.whole(Memory::first_moment), own})});
    int gathered = own;
    if (all > piece) {
      gathered = s_.whole(s_.temporary("directions", DType::fp32, all));
      s_.message(kUpdate, CollectiveKind::all_gather, Over::parts, own, gathered);
    }
    std::vector<Op> ops = newton_schulz(*b_.whole, piece, static_cast<int>(b_.elements / piece));
    const int workspace = of_stage(Memory::newton_schulz);
    for (Op& op : ops) op.in = {gathered}, op.out = {own, workspace};
    const std::int64_t second = second_moment_elements(*b_.whole, piece);
    ops.push_back(
        update_op(OpKind::muon, {gradient(), coefficient(), own},
                  {target(), s_.whole(Memory::first_moment), second > 0 ? s_.whole(Memory::second_moment) : -1}));
    ops.back().k = second;
    update(std::move(ops));
  }

  void update(Op op) {
    std::vector<Op> ops;
    ops.push_back(std::move(op));
    update(std::move(ops));
  }
  void update(std::vector<Op> ops) {
    const bool by_rule = ops.back().kind == OpKind::momentum_update;
    const char* name = by_rule ? traits_.name : models::name_of(ops.back().kind);
    s_.compute(kUpdate, name, std::move(ops));
    const int zero = zero_of(spec_);
    if (zero != 1 && zero != 2) return;
    const int values = s_.optimized_values(), all = s_.whole(Memory::parameters);
    const int near = spec_.holders(b_.experts).near;
    if (near == 1) {
      s_.message(Phase::parameter_gather, CollectiveKind::all_gather, Over::data, values, all);
      return;
    }
    // The values of the ranks with the same place on all nodes are one piece, and the pieces of a node's ranks follow
    // one another. One buffer serves all buckets: their messages stand in a row, so none waits for its memory.
    const int pieces = s_.of_stage(Memory::gathered_piece, name_of_buffer(Memory::gathered_piece), totals_.piece,
                                   Purpose::communication, compute_dtype(spec_.numerics.precision));
    const int piece = s_.run(pieces, 0, b_.elements / near);
    s_.message(Phase::parameter_gather, CollectiveKind::all_gather, Over::far, values, piece);
    s_.message(Phase::parameter_gather, CollectiveKind::all_gather, Over::near, piece, all);
  }

  Sketch s_;
  const BucketShape& b_;
  const StageTotals& totals_;
  const PlanSpec& spec_;
  const OptimizerTraits& traits_;
  int turn_ = 0;
};

}  // namespace

void add_to(StageTotals& totals, const BucketShape& bucket, const PlanSpec& spec, std::int64_t count) {
  const auto count_in = [&](TensorTotals& sum) {
    sum.parameters += count * bucket.parameters;
    if (!traits_of(spec.states.optimizer).factored()) return;
    sum.factors.elements += count * bucket.factors.elements;
    sum.factors.met += count * bucket.factors.met;
  };
  count_in(totals.all);
  if (bucket.experts && spec.mesh.folds_experts()) count_in(totals.apart);
  if (bucket.whole != nullptr) totals.workspace = std::max(totals.workspace, newton_schulz_workspace(*bucket.whole));
  const int zero = zero_of(spec), near = spec.holders(bucket.experts).near;
  if (near > 1 && (zero == 1 || zero == 2)) totals.piece = std::max(totals.piece, bucket.elements / near);
}

int update_rounds(const PlanSpec& spec) {
  switch (traits_of(spec.states.optimizer).update_of) {
    case UpdateOf::factors: return 3;  // sums, norms, values
    case UpdateOf::norms: return 2;    // norms, values
    case UpdateOf::values:
    case UpdateOf::matrices: break;
  }
  return 1;
}

bool updates_need_memory(const PlanSpec& spec) {
  return traits_of(spec.states.optimizer).whole_parameters() || spec.exchanges_by_node();
}

Outline update_of(const BucketShape& bucket, const StageTotals& totals, const PlanSpec& spec, int round, bool first) {
  return Update(bucket, totals, spec).of_bucket(round, first);
}

Outline agreement_of(const StageTotals& totals, const PlanSpec& spec, int round) {
  const BucketShape none;
  return Update(none, totals, spec).agreement(round);
}

}  // namespace orrery::plan
