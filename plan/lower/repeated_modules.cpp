// Selective recomputation: what a module made in forward is made again in backward, just before it is first read, from
// what forward has kept. The operators follow from the set of tensors that do not wait for backward.
#include "plan/lower/repeated_modules.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "models/operators/operators.h"

namespace orrery::plan {

namespace {

using models::LayerProgram;
using models::Op;
using models::OpKind;
using models::Part;
using models::TensorId;
using models::TensorRole;

/// An operator of the forward pass, or a message.
struct Item {
  const Part* part = nullptr;
  const Op* op = nullptr;  ///< nullptr: the part is a message
};

std::vector<TensorId> existing(const std::vector<int>& operands) {
  std::vector<TensorId> out;
  for (const int operand : operands)
    if (operand >= 0) out.push_back(models::tensor_of(operand));
  return out;
}
std::vector<TensorId> read_by(const Part& message) {
  std::vector<TensorId> out;
  for (const TensorId t : {message.source ? message.source : message.tensor, message.sent, message.received})
    if (t) out.push_back(t);
  return out;
}
std::vector<TensorId> read_by(const Item& item) {
  return item.op != nullptr ? existing(item.op->in) : read_by(*item.part);
}
std::vector<TensorId> written_by(const Item& item) {
  return item.op != nullptr ? existing(item.op->out) : std::vector<TensorId>{item.part->tensor};
}

constexpr auto kEnd = static_cast<std::size_t>(-1);

class Repeating {
 public:
  Repeating(const LayerProgram& program, Modules modules, bool whole)
      : program_(program),
        whole_(whole),
        dropped_(program.tensors.size(), false),
        fresh_(program.tensors.size(), false) {
    for (const Part& part : program.forward) {
      if (part.is_communication()) items_.push_back({&part, nullptr});
      for (const Op& op : part.ops) items_.push_back({&part, &op});
    }
    wanted_.assign(items_.size(), false);
    placed_ = wanted_;
    drop(modules);
    want();
  }

  [[nodiscard]] std::vector<TensorId> fresh() const {
    std::vector<TensorId> out;
    for (const TensorId t : program_.tensors.keys())
      if (fresh_[models::owner_of(program_, t)]) out.push_back(t);
    return out;
  }

  [[nodiscard]] std::vector<Part> backward() {
    for (const Part& part : program_.backward) {
      if (part.is_communication()) {
        for (const TensorId t : read_by(part)) make(t, kEnd);
        out_.push_back(part);
        continue;
      }
      const std::size_t before = out_.size();
      Part run;
      for (const Op& op : part.ops) {
        const std::vector<TensorId> reads = existing(op.in);
        if (std::any_of(reads.begin(), reads.end(), [&](TensorId t) { return missing(t); })) {
          if (!run.ops.empty()) out_.push_back(std::exchange(run, {}));
          for (const TensorId t : reads) make(t, kEnd);
        }
        run.ops.push_back(op);
      }
      if (!run.ops.empty() || out_.size() == before) out_.push_back(std::move(run));
    }
    return std::move(out_);
  }

 private:
  [[nodiscard]] TensorId owner(TensorId t) const { return models::owner_of(program_, t); }

  // -- which tensors do not wait for backward -----------------------------------------------------------------------
  void drop(TensorId t) {
    if (program_.tensors[owner(t)].role == TensorRole::activation) dropped_[owner(t)] = true;
  }
  // What the products write from which an operator's operand came; not messages.
  void drop_product_of(TensorId t) {
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (items_[i].op != nullptr && items_[i].op->kind == OpKind::matmul && writes(i, t)) return drop(t);
  }

  void drop(Modules modules) {
    bool in_experts = false;
    for (std::size_t i = 0; i < items_.size(); ++i) mixes_ = mixes_ || begins_mixture(i);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (modules.has(Module::experts) && begins_mixture(i)) in_experts = true;
      if (in_experts) {
        first_expert_ = std::min(first_expert_, i);
        for (const TensorId t : written_by(items_[i])) drop(t);
        continue;
      }
      if (items_[i].op != nullptr) drop(*items_[i].op, modules);
    }
  }
  void drop(const Op& op, Modules modules) {
    const bool normalises =
        op.kind == OpKind::layer_norm || op.kind == OpKind::rms_norm || op.kind == OpKind::head_norm;
    if (modules.has(Module::norms) && normalises) drop(models::tensor_of(op.out[0]));
    if (modules.has(Module::core) && op.kind == OpKind::attention) drop(models::tensor_of(op.out[1]));
    if (modules.has(Module::up_projections) && op.kind == OpKind::latent_pack) {
      drop(models::tensor_of(op.out[0]));
      for (const std::size_t made : {0, 1}) drop_product_of(models::tensor_of(op.in[made]));
    }
    if (!models::traits_of(op).activation || owner(models::tensor_of(op.in[0])) == owner(models::tensor_of(op.out[0])))
      return;  // in place, so that backward reads what the product wrote
    const bool dense = modules.has(Module::mlp) && !mixes_;
    if (dense) drop_product_of(models::tensor_of(op.in[0]));
    if (dense || modules.has(Module::activations)) drop(models::tensor_of(op.out[0]));
  }
  // A mixture begins with its router's product, just before the choice of experts.
  [[nodiscard]] bool begins_mixture(std::size_t i) const {
    return i + 1 < items_.size() && items_[i + 1].op != nullptr && items_[i + 1].op->kind == OpKind::route;
  }

  // -- which operators run again ------------------------------------------------------------------------------------
  // Those that make dropped tensors that something reads. Rows that the tensor group gathered for them were not kept:
  // these are gathered again.
  void want() {
    base::ById<TensorId, bool> needed(program_.tensors.size(), false);
    for (const Part& part : program_.backward) {
      if (part.is_communication())
        for (const TensorId t : read_by(part)) needed[owner(t)] = true;
      for (const Op& op : part.ops)
        for (const TensorId t : existing(op.in)) needed[owner(t)] = true;
    }
    for (std::size_t i = items_.size(); i-- > 0;) {
      const std::vector<TensorId> written = written_by(items_[i]);
      const bool all = whole_ && i >= first_expert_;
      wanted_[i] = std::any_of(written.begin(), written.end(),
                               [&](TensorId t) { return dropped_[owner(t)] && (all || needed[owner(t)]); });
      if (!wanted_[i]) continue;
      for (const TensorId t : read_by(items_[i])) {
        needed[owner(t)] = true;
        if (gathered(t)) dropped_[owner(t)] = true;
      }
      const bool core = items_[i].op != nullptr && items_[i].op->kind == OpKind::attention;  // its output was kept
      for (const TensorId t : written)
        if (dropped_[owner(t)] || (!core && program_.tensors[owner(t)].role == TensorRole::activation))
          fresh_[owner(t)] = true;
    }
  }
  [[nodiscard]] bool gathered(TensorId t) const {
    return std::any_of(items_.begin(), items_.end(), [&](const Item& item) {
      return item.op == nullptr && item.part->collective == models::GroupCollective::all_gather &&
             item.part->tensor == t;
    });
  }

  // -- where they run -----------------------------------------------------------------------------------------------
  [[nodiscard]] bool writes(std::size_t i, TensorId t) const {
    const std::vector<TensorId> written = written_by(items_[i]);
    return std::any_of(written.begin(), written.end(), [&](TensorId w) { return owner(w) == owner(t); });
  }
  [[nodiscard]] bool missing(TensorId t) const {
    if (!fresh_[owner(t)]) return false;
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (wanted_[i] && !placed_[i] && writes(i, t)) return true;
    return false;
  }
  // As it was before item `before` of the forward pass, which may change it in place.
  void make(TensorId t, std::size_t before) {
    if (!fresh_[owner(t)]) return;
    for (std::size_t i = 0; i < std::min(before, items_.size()); ++i) {
      if (!wanted_[i] || placed_[i] || !writes(i, t)) continue;
      // A mixture is repeated at once: its messages do not mix with those of backward.
      const bool mixture = i >= first_expert_;
      for (std::size_t e = mixture ? first_expert_ : i; e <= (mixture ? items_.size() - 1 : i); ++e)
        if (wanted_[e]) place(e);
    }
  }
  void place(std::size_t i) {
    if (placed_[i]) return;
    placed_[i] = true;
    const Item& item = items_[i];
    for (const TensorId t : read_by(item)) make(t, i);
    if (item.op == nullptr) {
      out_.push_back(*item.part);
      out_.back().recomputed = true;
      return;
    }
    if (out_.empty() || !out_.back().recomputed || out_.back().is_communication())
      out_.push_back({.ops = {}, .recomputed = true});
    out_.back().ops.push_back(*item.op);
  }

  const LayerProgram& program_;
  bool whole_;  ///< a mixture is repeated whole
  std::vector<Item> items_;
  bool mixes_ = false;  ///< whether the layer has experts
  std::size_t first_expert_ = kEnd;
  base::ById<TensorId, bool> dropped_;  ///< made again where something reads them
  base::ById<TensorId, bool> fresh_;    ///< what the repeated operators write, apart from forward's
  std::vector<bool> wanted_, placed_;   ///< by item
  std::vector<Part> out_;
};

/// The columns that recomputation by operator keeps of each product of a block's forward pass, in order.
std::vector<std::int64_t> columns_kept(const LayerProgram& program) {
  std::vector<std::int64_t> out;
  bool keeps = true;
  for (const Part& part : program.forward)
    for (const Op& op : part.ops) {
      if (op.kind != OpKind::matmul) continue;
      const std::vector<models::Tensor>& pieces = program.tensors[models::tensor_of(op.in.at(1))].pieces;
      std::int64_t rows = 0, kept = 0;
      for (const models::Tensor& piece : pieces) {
        rows += piece.shape.at(0);
        if (keeps) kept += piece.shape.at(0);
        keeps = !keeps;
      }
      if (pieces.empty()) {
        rows = 1;
        kept = keeps ? 1 : 0;
        keeps = !keeps;
      }
      out.push_back(op.n * kept / std::max<std::int64_t>(1, rows));
    }
  return out;
}

/// Recomputation by operator (torchtitan, distributed/activation_checkpoint.py, SelectiveAC).
std::vector<Part> parts_of_operators(const LayerProgram& program) {
  std::vector<Part> out;
  if (program.kind != models::LayerKind::block) return out;
  const std::vector<std::int64_t> kept = columns_kept(program);
  std::size_t product = 0;
  for (const Part& part : program.forward) {
    if (part.is_communication()) {
      if (part.collective != models::GroupCollective::all_gather) continue;
      out.push_back(part);
      out.back().recomputed = true;
      continue;
    }
    Part again{.ops = {}, .recomputed = true};
    for (Op op : part.ops) {
      if (models::attends(op) || op.kind == OpKind::grouped_matmul || op.kind == OpKind::count_choices) continue;
      if (op.kind == OpKind::matmul) {
        op.n -= kept.at(product++);
        if (op.n == 0) continue;
        if (op.out.size() > kKeptWritten) {
          op.in.resize(kKeptRead + 1, -1);
          op.in[kKeptRead] = op.out[kKeptWritten];
          op.out.resize(kKeptWritten);
        }
      }
      again.ops.push_back(std::move(op));
    }
    if (!again.ops.empty()) out.push_back(std::move(again));
  }
  return out;
}

std::vector<TensorId> made_by(const LayerProgram& program, const std::vector<Part>& parts) {
  base::ById<TensorId, bool> made(program.tensors.size(), false);
  for (const Part& part : parts) {
    if (part.is_communication()) made[models::owner_of(program, part.tensor)] = true;
    for (const Op& op : part.ops)
      for (const TensorId t : existing(op.out)) made[models::owner_of(program, t)] = true;
  }
  if (program.x) made[program.x] = false;
  std::vector<TensorId> all;
  for (const TensorId t : program.tensors.keys())
    if (made[models::owner_of(program, t)]) all.push_back(t);
  return all;
}

}  // namespace

void keep_columns(LayerProgram& program) {
  if (program.kind != models::LayerKind::block) return;
  const std::vector<std::int64_t> columns = columns_kept(program);
  const std::vector<Part> again = parts_of_operators(program);
  base::ById<TensorId, bool> waits(program.tensors.size(), false);  // by itself
  for (const std::vector<Part>* parts : std::initializer_list<const std::vector<Part>*>{&again, &program.backward})
    for (const Part& part : *parts) {
      if (part.is_communication())
        for (const TensorId t : read_by(part)) waits[models::owner_of(program, t)] = true;
      for (const Op& op : part.ops)
        for (const TensorId t : existing(op.in)) waits[models::owner_of(program, t)] = true;
    }
  for (const TensorId t : made_by(program, again)) waits[models::owner_of(program, t)] = false;
  std::vector<Op*> products;
  models::Tensor kept{.name = "kept", .role = TensorRole::activation};
  std::int64_t elements = 0;
  std::size_t product = 0;
  for (Part& part : program.forward)
    for (Op& op : part.ops) {
      if (op.kind != OpKind::matmul) continue;
      const std::int64_t here = columns.at(product++);
      const TensorId made = models::owner_of(program, models::tensor_of(op.out.at(0)));
      if (here == 0 || made == program.x || (here == op.n && waits[made])) continue;
      kept.dtype = program.tensors[made].dtype;
      elements += program.tensors[made].elements() * here / op.n;
      products.push_back(&op);
    }
  if (products.empty()) return;
  kept.shape = {elements};
  const TensorId tensor = program.tensors.append(std::move(kept));
  for (Op* op : products) {
    op->out.resize(kKeptWritten + 1, -1);
    op->out[kKeptWritten] = models::operand_of(tensor);
  }
}

std::vector<Part> backward_parts(const LayerProgram& program, const Repeats& repeats, bool whole) {
  if (!repeats.modules.empty()) return Repeating(program, repeats.modules, whole).backward();
  std::vector<Part> out;
  if (repeats.operators) out = parts_of_operators(program);
  out.insert(out.end(), program.backward.begin(), program.backward.end());
  return out;
}

std::vector<TensorId> made_again(const LayerProgram& program, const Repeats& repeats, bool whole) {
  if (!repeats.modules.empty()) return Repeating(program, repeats.modules, whole).fresh();
  return repeats.operators ? made_by(program, parts_of_operators(program)) : std::vector<TensorId>{};
}

}  // namespace orrery::plan
