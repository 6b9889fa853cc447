// Cases of recommendation models: every operator on every kind of placement, on ranks that have most and that have
// least, with rows of widths that are and are not multiples of 4, and of more columns than a warp takes at a time.
#include <cmath>
#include <deque>
#include <initializer_list>

#include "plan/spec/plan.h"
#include "plan/spec/table_layout.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

using models::DType;
using models::OpKind;
using models::UpdateRule;
using plan::PooledEnd;
using plan::PooledType;
using plan::TableLayout;

struct Placed {
  const char* name;
  int ranks;
  std::int64_t samples, dim;
  std::vector<models::Table> tables;
  std::vector<const char*> places;
  int per_node = 8;  ///< ranks of a node: with more than one node rows may travel within theirs
};

constexpr auto kSum = models::Pooling::sum, kMean = models::Pooling::mean, kWeighted = models::Pooling::weighted;

const std::vector<Placed>& placements() {
  static const std::vector<Placed> all = {
      {"each_another_way",
       4,
       6,
       8,
       {{50, kSum, 1}, {7, kMean, 3}, {200, kSum, 4}, {13, kSum, 2}},
       {"column 3 1", "replicated", "row 0-2", "whole 2"}},
      {"bags",
       4,
       6,
       8,
       {{50, kSum, 3, 0}, {7, kMean, 3, 1}, {200, kWeighted, 4, 0}, {13, kWeighted, 2}},
       {"column 3 1", "replicated", "row 0-2", "whole 2"}},
      {"uneven", 2, 5, 5, {{9, kMean, 3}, {40, kSum, 2}, {6, kSum, 1}}, {"column 0 1", "replicated", "row 1 0"}},
      {"grid", 4, 4, 8, {{30, kSum, 5}, {11, kMean, 2}}, {"grid 2x2 3 1 0 2", "grid 2x2 0-3"}},
      {"every_way",
       4,
       4,
       8,
       {{30, kSum, 5}, {11, kMean, 2}, {12, kSum, 2}, {9, kMean, 3}, {8, kSum, 1}},
       {"row 3 2", "row 0-3", "row 2 3", "column 3 1", "replicated"},
       2},
      {"nodes_uneven", 8, 3, 6, {{30, kSum, 5}, {40, kMean, 2}}, {"grid 2x2 4 5 2 3", "row 6 7"}, 2},
      {"wide", 1, 3, 300, {{5, kSum, 4}}, {"whole 0"}},
      {"wide_uneven", 1, 3, 131, {{5, kSum, 4}, {4, kMean, 2}}, {"whole 0", "replicated"}},
      {"several_tiles", 1, 300, 4, {{1100, kSum, 8}, {3, kSum, 2}}, {"whole 0", "replicated"}},
      {"all_replicated", 2, 4, 8, {{30, kSum, 5}, {11, kMean, 2}}, {"replicated", "replicated"}}};
  return all;
}

/// Layouts outlive the cases, whose contexts point to them.
const TableLayout& layout_of(const Placed& placed, PooledType forward, PooledType backward) {
  static std::deque<TableLayout> kept;
  models::Recommender model;
  model.embedding_dim = placed.dim;
  model.tables = placed.tables;
  plan::PlanSpec spec;
  spec.mesh.data = placed.ranks;
  spec.shape.batch = placed.samples * placed.ranks;
  spec.embedding.forward = forward;
  spec.embedding.backward = backward;
  std::vector<plan::TablePlacement::Cell> cells;
  for (const char* place : placed.places) cells.push_back({place, {}});
  spec.embedding.placement = *plan::TablePlacement::parse_rows(cells);
  kept.push_back(plan::make_table_layout(model, spec, placed.per_node));
  return kept.back();
}

Slot ints(std::int64_t count, std::int32_t value) {
  Slot slot;
  slot.ids.assign(static_cast<std::size_t>(count), value);
  return slot;
}

class TableMaker : public CaseMaker {
 public:
  TableMaker() : CaseMaker{std::mt19937(29)} { cases.reserve(2048); }

  void all() {
    for (const Placed& placed : placements()) {
      placed_ = &placed;
      layout_ = &layout_of(placed, PooledType::fp32, PooledType::fp32);
      for (int rank = 0; rank < placed.ranks; rank += std::max(1, placed.ranks - 1)) of_rank(rank);
      if (layout_->sharded()) codecs();
    }
    between();
  }

 private:
  [[nodiscard]] std::int64_t at(PooledEnd end) const { return layout_->pooled_elements(end, PooledType::fp32); }
  [[nodiscard]] bool between_nodes() const { return layout_->uses(plan::PooledWay::node); }
  [[nodiscard]] std::int64_t bags() const { return layout_->ranks * layout_->most_shards * layout_->samples; }
  [[nodiscard]] std::int64_t lookups() const { return layout_->ranks * layout_->most_indices * layout_->words; }

  Case& make(const std::string& what, OpKind kind) {
    Case& c = add(what + "_" + placed_->name + "_rank_" + std::to_string(rank_), kind, layout_->samples, 0);
    c.context.tables = layout_;
    c.context.rank = rank_;
    c.context.learning_rate = 0.1;
    c.context.beta1 = 0.9;
    c.context.beta2 = 0.999;
    c.context.epsilon = 1e-8;
    c.context.step = 4;
    return c;
  }

  /// Of one rank's samples, each within its table; frequent ones among them.
  Slot indices() {
    Slot out;
    for (std::int64_t i = 0; i < layout_->samples; ++i)
      for (const TableLayout::Table& table : layout_->tables)
        for (std::int64_t j = 0, length = table.varies ? random() % 4 : table.multi_hot; j < table.multi_hot; ++j) {
          out.ids.push_back(j < length ? static_cast<std::int32_t>(
                                             random() % static_cast<unsigned>(random() % 2 == 0 ? 2 : table.rows))
                                       : -1);
          if (layout_->words == 2) out.ids.push_back(std::bit_cast<std::int32_t>(static_cast<float>(random() % 8) / 4));
        }
    return out;
  }

  /// What the rank receives: lengths and indices of all members' samples.
  std::vector<Slot> received() {
    const auto cpu = make_cpu_backend(1);
    Slot lengths = ints(bags(), 0), values = ints(lookups(), 1 << 20);
    const std::int64_t length = layout_->most_shards * layout_->samples, room = layout_->most_indices * layout_->words;
    for (int member = 0; member < layout_->ranks; ++member) {
      Slot from = indices(), of_lengths = ints(bags(), 0), of_values = ints(lookups(), 1 << 20);
      Slot counts = ints(4 * (layout_->ranks + layout_->nodes()), 0);
      const auto operand = [](Slot& slot, std::int64_t first, std::int64_t count) {
        return Operand{reinterpret_cast<std::byte*>(slot.ids.data() + first), count, DType::int32};
      };
      std::vector<Operand> out = {operand(of_lengths, 0, bags()), operand(of_values, 0, lookups())};
      for (int i = 0; i < 4; ++i) out.push_back(operand(counts, i * layout_->ranks, layout_->ranks));
      if (between_nodes()) out.push_back(operand(counts, 4 * layout_->ranks, 4 * layout_->nodes()));
      const std::vector<Operand> in = {operand(from, 0, from.elements())};
      models::Op op;
      op.kind = OpKind::bucketise_indices;
      StepContext context;
      context.tables = layout_;
      context.rank = member;
      cpu->run(op, in, out, {}, context);
      std::copy_n(of_lengths.ids.begin() + rank_ * length, length, lengths.ids.begin() + member * length);
      std::copy_n(of_values.ids.begin() + rank_ * room, room, values.ids.begin() + member * room);
    }
    return {lengths, values};
  }

  void of_rank(int rank) {
    rank_ = rank;
    if (layout_->sharded()) sharded();
    if (!layout_->replicated.empty()) replicated();
    pooled();
  }

  void sharded() {
    Case& sorted = make("bucketise_indices", OpKind::bucketise_indices);
    sorted.in = {indices()};
    sorted.out = {ints(bags(), 9), ints(lookups(), 9)};
    for (int i = 0; i < 4; ++i) sorted.out.push_back(ints(layout_->ranks, 9));
    if (between_nodes()) sorted.out.push_back(ints(4 * layout_->nodes(), 9));
    std::vector<Slot> got = received();
    Case& bag = make("embedding_bag", OpKind::embedding_bag);
    bag.in = {got[0], got[1], floats(layout_->most_elements)};
    bag.out = {floats(at(PooledEnd::tables))};  // what has no columns stays
    got.push_back(floats(at(PooledEnd::tables)));
    if (layout_->squares > 0) {
      Case& squares = make("embedding_bag_squares", OpKind::embedding_bag_squares);
      squares.in = got;
      squares.out = {unset(layout_->squares)};
    }
    const auto update = [&](const char* name, UpdateRule rule, Slot states, bool with_squares) {
      Case& c = make(name, OpKind::embedding_bag_update);
      c.op.rule = rule;
      c.in = got;
      if (with_squares) c.in.push_back(positive(layout_->squares));
      c.out = {floats(layout_->most_elements), std::move(states), floats(1)};
    };
    update("embedding_bag_update_sgd", UpdateRule::sgd, Slot{}, false);
    update("embedding_bag_update_adagrad", UpdateRule::adagrad, positive(layout_->most_rows), false);
    if (layout_->squares > 0)
      update("embedding_bag_update_adagrad_squares", UpdateRule::adagrad, positive(layout_->most_rows), true);
    update("embedding_bag_update_adam", UpdateRule::adam, positive(2 * layout_->most_elements), false);
  }

  Slot positive(std::int64_t count) {
    Slot slot = floats(count);
    for (float& v : slot.floats) v = 0.1F + std::abs(v);
    return slot;
  }

  void replicated() {
    const std::int64_t values = layout_->replicated_elements, rows = layout_->replicated_rows;
    const std::int64_t columns = layout_->samples * layout_->replicated_columns;
    Case& forward = make("embedding_lookup", OpKind::embedding_lookup);
    forward.in = {indices(), floats(values)};
    forward.out = {unset(columns)};
    for (const bool counts : {false, true}) {
      Case& backward =
          make(counts ? "embedding_lookup_grad_counts" : "embedding_lookup_grad", OpKind::embedding_lookup_grad);
      backward.in = {indices(), floats(columns)};
      backward.out = {unset(values + 7)};  // with the padding of a bucket
      if (counts) backward.out.push_back(unset(rows));
    }
    const auto update = [&](const char* name, UpdateRule rule, Slot states) {
      Case& c = make(name, OpKind::table_update);
      c.op.rule = rule;
      c.op.m = values;
      Slot gradients = floats(values);
      for (std::int64_t i = 0; i < values; ++i)
        if (i / layout_->embedding_dim % 3 == 1) gradients.floats[static_cast<std::size_t>(i)] = 0;  // nobody looked
      c.in = {gradients};
      if (rule == UpdateRule::adam) {
        Slot looked_up = zeros(rows);
        for (std::size_t i = 0; i < looked_up.floats.size(); i += 2) looked_up.floats[i] = 3;
        c.in.push_back(looked_up);
      }
      c.out = {floats(values), std::move(states)};
    };
    update("table_update_sgd", UpdateRule::sgd, Slot{});
    update("table_update_adagrad", UpdateRule::adagrad, positive(rows));
    update("table_update_adam", UpdateRule::adam, positive(2 * values));
  }

  void pooled() {
    const std::int64_t n = layout_->samples, d = layout_->embedding_dim;
    const std::int64_t vectors = n * d * (1 + static_cast<std::int64_t>(layout_->tables.size()));
    const bool local = !layout_->replicated.empty();
    Case& join = make("pooled_join", OpKind::pooled_join);
    join.in = {layout_->sharded() ? floats(at(PooledEnd::samples)) : Slot{}, floats(n * d)};
    join.out = {unset(vectors)};
    if (local) join.in.push_back(floats(n * layout_->replicated_columns));
    Case& split = make("pooled_split", OpKind::pooled_split);
    split.in = {floats(vectors)};
    split.out = {layout_->sharded() ? floats(at(PooledEnd::samples)) : Slot{}, unset(n * d)};
    if (local) split.out.push_back(unset(n * layout_->replicated_columns));
  }

  void codecs() {
    for (const PooledType type : {PooledType::bf16, PooledType::fp16, PooledType::int8})
      for (const bool by_member : {false, true}) {
        const DType coded = plan::dtype_of(type);
        const PooledEnd end = by_member ? PooledEnd::samples : PooledEnd::tables;
        const std::int64_t count = layout_->pooled_elements(end, type);
        const std::string name = std::string(models::name_of(coded)) + (by_member ? "_by_member" : "");
        Case& encode = make("encode_pooled_" + name, OpKind::encode_pooled);
        encode.op.row_shard = by_member;
        encode.in = {floats(at(end))};
        for (std::size_t i = 0; i < std::size_t{9}; ++i)
          if (i < encode.in[0].floats.size()) encode.in[0].floats[i] = 0;  // a vector of zeros has no scale
        encode.out = {of(zeros(count), coded)};
        encode.tolerance = 0;
        Case& decode = make("decode_pooled_" + name, OpKind::decode_pooled);
        decode.op.row_shard = by_member;
        Slot from = of(floats(count), coded);
        // Whole numbers from 0 to 255: as scales, whose exponents they are, no infinities.
        if (type == PooledType::int8)
          for (float& v : from.floats) v = static_cast<float>(static_cast<int>(std::abs(v) * 20) % 64);
        decode.in = {from};
        decode.out = {floats(at(end))};
        decode.tolerance = 0;
      }
  }

  // What does not know of tables; more vectors than shared memory has room for, too.
  void between() {
    struct Size {
      std::int64_t n, vectors, dim;
    };
    for (const Size& size : {Size{5, 4, 8}, Size{3, 5, 7}, Size{2, 27, 16}, Size{1, 60, 256}}) {
      const std::int64_t all = size.n * size.vectors * size.dim;
      const std::int64_t products = size.n * (size.dim + size.vectors * (size.vectors - 1) / 2);
      const std::string name = std::to_string(size.vectors) + "_of_" + std::to_string(size.dim);
      Case& dot = add("interaction_dot_" + name, OpKind::interaction_dot, size.n, size.dim, size.vectors);
      dot.in = {floats(all)};
      dot.out = {unset(products)};
      Case& back = add("interaction_dot_grad_" + name, OpKind::interaction_dot_grad, size.n, size.dim, size.vectors);
      back.in = {floats(products), floats(all)};
      back.out = {unset(all)};
    }
    for (const std::int64_t m : {40, 13}) {
      const std::int64_t count = 5 * m;
      Case& cross = add("cross_" + std::to_string(m), OpKind::cross, 5, m);
      cross.in = {floats(count), floats(count), floats(count)};
      cross.out = {unset(count)};
      Case& back = add("cross_grad_" + std::to_string(m), OpKind::cross_grad, 5, m);
      back.in = {floats(count), floats(count), floats(count)};
      back.out = {unset(count), floats(count)};
    }
    const std::int64_t n = 1100;
    Slot labels = zeros(n);
    for (std::size_t i = 0; i < labels.floats.size(); i += 3) labels.floats[i] = 1;
    Slot logits = floats(n, 3);
    logits.floats[0] = 200, logits.floats[1] = -200;  // e to their power is no float
    Case& loss = add("click_loss", OpKind::click_loss, n, 1);
    loss.op.scale = 1.0 / 64;
    loss.in = {logits, labels};
    loss.out = {floats(1)};
    Case& back = add("click_loss_grad", OpKind::click_loss_grad, n, 1);
    back.op.scale = 1.0 / 64;
    back.in = {logits, labels};
    back.out = {unset(n)};
  }

  const Placed* placed_ = nullptr;
  const TableLayout* layout_ = nullptr;
  int rank_ = 0;
};

}  // namespace

std::vector<Case> table_cases() {
  TableMaker maker;
  maker.all();
  return std::move(maker.cases);
}

}  // namespace orrery::exec::gpu_test
