// What a table costs a rank for each way to split it.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/spec/pooled_way.h"
#include "plan/spec/table_layout.h"
#include "plan/spec/table_planner.h"
#include "plan/spec/table_tiers.h"

namespace orrery::plan {
namespace {

constexpr double kValue = 4, kIndex = 4;
constexpr std::int64_t kNarrowest = 4;  // columns of a part at least: 16 bytes

bool leaves_devices(const PlanSpec& spec) {
  const std::vector<TableTier>& tiers = spec.embedding.tiers.tiers();
  return std::any_of(tiers.begin(), tiers.end(), [](const TableTier& one) { return one.space != Space::device; });
}

class Costs {
 public:
  Costs(const models::Recommender& model, const clusters::Cluster& cluster, const PlanSpec& spec)
      : model_(model),
        spec_(spec),
        ranks_(spec.mesh.data),
        per_node_(std::max(1, std::min(cluster.devices_per_node, spec.mesh.data))),
        batch_(static_cast<double>(spec.shape.batch)),
        state_(kValue * traits_of(spec.states.optimizer).table_states.by_row),
        moments_(traits_of(spec.states.optimizer).table_states.by_value),
        stored_(static_cast<double>(models::size_of(dtype_of(spec.embedding.stored)))),
        forward_(static_cast<double>(models::size_of(dtype_of(spec.embedding.forward)))),
        backward_(static_cast<double>(models::size_of(dtype_of(spec.embedding.backward)))),
        index_(kIndex * static_cast<double>(model.lookup_words())) {
    const clusters::LinkClass& link =
        cluster.nodes > 1 && cluster.inter.bandwidth.value > 0 ? cluster.inter : cluster.intra;
    const auto weight = [&](const clusters::LinkClass& of, double otherwise) {
      return of.bandwidth.value > 0 ? cluster.device().memory_bandwidth.value / of.bandwidth.value : otherwise;
    };
    weight_ = weight(link, 1);
    weight_within_ = weight(cluster.intra, weight_);
  }

  // On the first ranks: an option's parts are on all of them, on whole nodes, or anywhere.
  [[nodiscard]] TableOption split(const models::Table& table, const TableTier& tier, TableSharding sharding,
                                  int columns, int rows) const {
    TablePlace place{.columns = columns, .ranks = std::vector<int>(static_cast<std::size_t>(columns * rows))};
    std::iota(place.ranks.begin(), place.ranks.end(), 0);
    return split(table, tier, sharding, place);
  }

  [[nodiscard]] TableOption split(const models::Table& table, const TableTier& tier, TableSharding sharding,
                                  const TablePlace& place) const {
    TableOption option;
    const int columns = place.columns, rows = place.row_parts();
    option.sharding = sharding;
    option.columns = columns;
    option.parts = columns * rows;
    const double width = static_cast<double>(model_.embedding_dim) / columns;
    const double part_rows = std::ceil(static_cast<double>(table.rows) / rows);
    const double lookups = batch_ * table.mean_hot() / rows;
    option.lookups = touched(lookups, width) + batch_ * width * kValue * 2;
    // Indices arrive, sums leave, gradients arrive; what stays on the rank does not travel. Split columns have to sum
    // the squares of rows over ranks.
    const double away = 1 - 1.0 / ranks_, pooled = batch_ * width * (forward_ + backward_);
    const PooledShares shares = shares_of(
        way_of(place, ranks_, per_node_, spec_.embedding.forward, spec_.states.has_server()), ranks_, per_node_);
    option.network = away * (lookups * index_ + kIndex * batch_) + shares.between * pooled;
    option.within = shares.within * pooled;
    if (columns > 1 && state_ > 0) option.network += 2 * away * kValue * lookups;
    option.memory = part_rows * (width * (stored_ + moments_ * kValue) + state_);
    if (tier.space != Space::device) {
      if (tier.space == Space::host) option.far = option.memory;
      option.memory = static_cast<double>(std::max(tier.cache, cache_needed(model_, table, spec_, rows, columns))) *
                      with_books(row_bytes(model_, spec_, columns));
    }
    if (leaves_) option.memory += pooled_bytes(model_, spec_, columns);
    option.load = option.lookups + weight_ * option.network + weight_within_ * option.within;
    return option;
  }

  [[nodiscard]] TableOption replicated(const models::Table& table) const {
    TableOption option;
    option.sharding = TableSharding::replicated;
    option.parts = ranks_;
    const double values = static_cast<double>(table.rows) * static_cast<double>(model_.embedding_dim);
    const double lookups = batch_ / ranks_ * table.mean_hot();
    // The gradient is dense: it is cleared, summed over ranks and applied whole.
    const double passes = 6 + 2 * moments_;
    option.lookups = touched(lookups, static_cast<double>(model_.embedding_dim)) + passes * kValue * values;
    option.network = 2 * (1 - 1.0 / ranks_) * kValue * values;
    option.memory = (2 + moments_) * values * kValue + static_cast<double>(table.rows) * state_;
    option.load = option.lookups + weight_ * option.network;
    return option;
  }

  [[nodiscard]] std::vector<TableOption> options(const models::Table& table, TableSharding sharding,
                                                 const TableTier& tier) const {
    const int whole_rows = static_cast<int>(std::min<std::int64_t>(ranks_, table.rows));
    const int node_rows = static_cast<int>(std::min<std::int64_t>(per_node_, table.rows));
    const int nodes = ranks_ / per_node_;
    switch (sharding) {
      case TableSharding::whole: return {split(table, tier, sharding, 1, 1)};
      case TableSharding::row: return {split(table, tier, sharding, 1, whole_rows)};
      case TableSharding::column: return {split(table, tier, sharding, most_columns(ranks_), 1)};
      case TableSharding::node_row: return {split(table, tier, sharding, 1, node_rows)};
      case TableSharding::grid: return {split(table, tier, sharding, most_columns(nodes), node_rows)};
      case TableSharding::replicated: return {replicated(table)};
      case TableSharding::automatic: break;
    }
    std::vector<TableOption> out = {split(table, tier, TableSharding::whole, 1, 1)};
    if (ranks_ == 1) return out;
    for (int parts = 2; parts <= ranks_; parts *= 2)
      if (model_.embedding_dim % parts == 0 && model_.embedding_dim / parts >= kNarrowest)
        out.push_back(split(table, tier, TableSharding::column, parts, 1));
    if (nodes > 1 && node_rows == per_node_) out.push_back(split(table, tier, TableSharding::node_row, 1, node_rows));
    if (whole_rows == ranks_) out.push_back(split(table, tier, TableSharding::row, 1, ranks_));
    if (tier.space == Space::device) out.push_back(replicated(table));
    return out;
  }

  [[nodiscard]] int ranks_per_node() const { return per_node_; }

 private:
  // Forward reads a row; backward reads its gradient, reads the row and writes it; moments are read and written.
  [[nodiscard]] double touched(double lookups, double width) const {
    constexpr double kForward = 1, kBackward = 3;
    return lookups * (width * kValue * (kForward + kBackward + 2 * moments_) + 2 * state_ + 4 * index_);
  }
  // The largest number of parts, up to `ranks`, that divides the columns.
  [[nodiscard]] int most_columns(int ranks) const {
    for (int parts = ranks; parts > 1; --parts)
      if (model_.embedding_dim % parts == 0) return parts;
    return 1;
  }

  const models::Recommender& model_;
  const PlanSpec& spec_;
  int ranks_, per_node_;
  bool leaves_ = leaves_devices(spec_);
  double batch_, state_, moments_, stored_, forward_, backward_;
  double index_;  ///< bytes of a lookup's index, and of its weight
  double weight_ = 1, weight_within_ = 1;
};

// As written: one for all tables, or one for each; a list that does not fit the model is refused elsewhere.
TableTier tier_of(const PlanSpec& spec, std::size_t table) {
  const std::vector<TableTier>& tiers = spec.embedding.tiers.tiers();
  if (tiers.empty()) return {};
  if (tiers.size() == 1) return {tiers.front().space, 0, {}};
  return table < tiers.size() ? tiers[table] : TableTier{};
}

}  // namespace

TableProblem table_problem(const models::Recommender& model, const clusters::Cluster& cluster, const PlanSpec& spec) {
  const Costs costs(model, cluster, spec);
  TableProblem problem;
  problem.ranks = spec.mesh.data;
  problem.ranks_per_node = costs.ranks_per_node();
  problem.capacity = device_memory_for_tables(model, cluster);
  if (leaves_devices(spec)) problem.capacity -= std::min(problem.capacity, sample_bytes(model, spec));
  problem.far_capacity = kForTablesOnHost * host_memory_of_rank(cluster);
  for (std::size_t t = 0; t < model.tables.size(); ++t)
    problem.options.push_back(costs.options(model.tables[t], spec.embedding.sharding, tier_of(spec, t)));
  return problem;
}

double host_memory_of_rank(const clusters::Cluster& cluster) {
  return cluster.host_memory.capacity.value / std::max(1, cluster.devices_per_node);
}

double device_memory_for_tables(const models::Recommender& model, const clusters::Cluster& cluster) {
  // MLPs with gradients and state, and as much again for activations and messages.
  constexpr double kCopies = 3, kForTables = 0.9;
  return kForTables *
         std::max(0.0, cluster.device().memory.value - kCopies * kValue * static_cast<double>(dense_parameters(model)));
}

std::vector<TableReport> describe_tables(const models::Recommender& model, const clusters::Cluster& cluster,
                                         const PlanSpec& spec) {
  const Costs costs(model, cluster, spec);
  std::vector<TableReport> out;
  const std::vector<TablePlace>& places = spec.embedding.placement.places();
  for (std::size_t t = 0; t < places.size(); ++t) {
    const TablePlace& place = places[t];
    const int rows = place.replicated ? 1 : place.row_parts();
    const TableSharding sharding = place.columns > 1 && rows > 1 ? TableSharding::grid
                                   : place.columns > 1           ? TableSharding::column
                                   : rows == 1                   ? TableSharding::whole
                                   : rows < spec.mesh.data       ? TableSharding::node_row
                                                                 : TableSharding::row;
    TableReport report{static_cast<std::int64_t>(t), model.tables[t].rows, place, {}};
    report.option = place.replicated ? costs.replicated(model.tables[t])
                                     : costs.split(model.tables[t], tier_of(spec, t), sharding, place);
    out.push_back(std::move(report));
  }
  return out;
}

TablePlacement place_tables(const models::Recommender& model, const clusters::Cluster& cluster, const PlanSpec& spec) {
  return plan_tables(table_problem(model, cluster, spec)).placement;
}

}  // namespace orrery::plan
