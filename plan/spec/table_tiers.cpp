// Sizes of caches.
#include "plan/spec/table_tiers.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/units.h"
#include "plan/spec/rules.h"
#include "plan/spec/table_layout.h"
#include "plan/spec/table_planner.h"

namespace orrery::plan {
namespace {

constexpr std::int64_t kStateBytes = 4;  // bytes
constexpr double kOnDevice = 0.75;       // of the devices' memory for tables; the rest: caches, and what is pooled
constexpr std::int64_t kUneven = 2;      // over the even share of lookups of a part of the rows

std::int64_t divided(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::string text_of(double bytes) {
  return base::human(base::Bytes{bytes});
}

class Settling {
 public:
  Settling(const models::Recommender& model, const clusters::Cluster& cluster, const PlanSpec& spec)
      : model_(model), cluster_(cluster), spec_(spec), places_(spec.embedding.placement.places()) {}

  base::Result<TableTiers> run() {
    const std::vector<TableTier>& given = spec_.embedding.tiers.tiers();
    if (given.empty()) return TableTiers();
    const std::size_t tables = model_.tables.size();
    together_ = given.size() == 1;
    rule(together_ || given.size() == tables, "P138", given.front(),
         fmt::format("memories for {} tables, but the model has {}", given.size(), tables),
         "give one for all tables, or one for each");
    if (!found_.empty()) return base::fail(std::move(found_));
    for (std::size_t t = 0; t < tables; ++t) {
      tiers_.push_back(given[together_ ? 0 : t]);
      if (together_ && places_[t].replicated) tiers_.back() = {};
      check(t);
    }
    if (std::all_of(tiers_.begin(), tiers_.end(), [](const TableTier& one) { return one.space == Space::device; }))
      return found_.empty() ? base::Result<TableTiers>(TableTiers()) : base::fail(std::move(found_));
    if (found_.empty()) share_out();
    if (!found_.empty()) return base::fail(std::move(found_));
    return TableTiers(std::move(tiers_));
  }

 private:
  void rule(bool holds, RuleCode code, const TableTier& of, const std::string& message, const std::string& help = {}) {
    if (!holds) found_.push_back(code.broken(message, help, of.where));
  }
  [[nodiscard]] int row_parts(std::size_t t) const { return places_[t].replicated ? 1 : places_[t].row_parts(); }
  [[nodiscard]] std::int64_t part_bytes(std::size_t t) const {
    return divided(model_.tables[t].rows, row_parts(t)) * row_bytes(model_, spec_, places_[t].columns);
  }
  [[nodiscard]] std::int64_t needed(std::size_t t) const {
    return cache_needed(model_, model_.tables[t], spec_, row_parts(t), places_[t].columns);
  }

  void check(std::size_t t) {
    const TableTier& tier = tiers_[t];
    if (tier.space == Space::device) return;
    rule(!places_[t].replicated, "P138", tier,
         fmt::format("table {} is on every rank, and its whole gradient is summed", t), "use device, or another place");
    const bool gpu = cluster_.device().kind != clusters::DeviceKind::cpu;
    rule(tier.space != Space::nvme || !gpu || cluster_.nvme.read.value > 0, "P139", tier,
         fmt::format("table {} on NVMe, but the cluster has none", t));
    if (together_ || tier.cache == 0) return;
    const auto bytes = [&](std::int64_t n) { return text_of(static_cast<double>(n)); };
    rule(tier.cache >= needed(t), "P138", tier,
         fmt::format("table {}: a cache of {} has no room for a step's rows, up to {}", t, bytes(tier.cache),
                     bytes(needed(t))),
         fmt::format("use {} {} or more, or a smaller batch", name_of(tier.space),
                     base::quantity_text(static_cast<double>(needed(t)), base::UnitKind::bytes)));
    rule(tier.cache <= part_bytes(t), "P138", tier,
         fmt::format("table {}: a cache of {} is larger than a rank's part of the table, {}", t, bytes(tier.cache),
                     bytes(part_bytes(t))),
         "use device, which needs no cache");
  }

  // For each rank: divides the cache that its tables share, or the room that is left for tables without a size of their
  // own.
  void share_out() {
    std::vector<std::int64_t> cache(tiers_.size(), std::numeric_limits<std::int64_t>::max());
    std::vector<std::vector<std::size_t>> of_rank(static_cast<std::size_t>(spec_.mesh.data));
    for (std::size_t t = 0; t < tiers_.size(); ++t)
      for (const int rank : places_[t].ranks) of_rank[static_cast<std::size_t>(rank)].push_back(t);
    const std::int64_t shared = together_ ? spec_.embedding.tiers.tiers().front().cache : 0;
    if (shared > 0 && !suits_ranks(of_rank)) return;
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      const std::vector<std::size_t>& tables = of_rank[rank];
      std::vector<std::size_t> open;
      auto budget = static_cast<double>(shared);
      const bool free = budget == 0;
      if (free) budget = device_memory_for_tables(model_, cluster_) - sample_bytes(model_, spec_);
      double all = 0;
      for (const std::size_t t : tables) {
        const bool own = !together_ && tiers_[t].cache > 0;
        budget -= free ? pooled_bytes(model_, spec_, places_[t].columns) : 0;
        if (tiers_[t].space == Space::device)
          budget -= free ? static_cast<double>(part_bytes(t)) : 0;
        else if (own)
          budget -= static_cast<double>(tiers_[t].cache);
        else
          open.push_back(t), all += taken(t, free) * static_cast<double>(part_bytes(t));
      }
      // One size is for all ranks: a rank whose tables are smaller has all of them in its cache.
      if (!free) budget = std::min(budget, all);
      if (!open.empty() && !fill(open, budget, free, all, rank, cache)) return;
    }
    for (std::size_t t = 0; t < tiers_.size(); ++t)
      if (tiers_[t].space != Space::device && (together_ || tiers_[t].cache == 0)) tiers_[t].cache = cache[t];
  }

  // Whether one size has room for what each rank needs, and is of use to some rank.
  bool suits_ranks(const std::vector<std::vector<std::size_t>>& of_rank) {
    std::int64_t most_needed = 0, largest = 0;
    std::size_t needs_most = 0, has_most = 0;
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      std::int64_t need = 0, all = 0;
      for (const std::size_t t : of_rank[rank])
        if (tiers_[t].space != Space::device) need += needed(t), all += part_bytes(t);
      if (need > most_needed) most_needed = need, needs_most = rank;
      if (all > largest) largest = all, has_most = rank;
    }
    const TableTier& tier = spec_.embedding.tiers.tiers().front();
    const auto bytes = [](std::int64_t n) { return text_of(static_cast<double>(n)); };
    const auto count = [&](std::size_t rank) {
      return base::count_of(static_cast<std::int64_t>(of_rank[rank].size()), "table");
    };
    rule(tier.cache >= most_needed, "P138", tier,
         fmt::format("a cache of {} has no room for a step's rows in the {} of rank {}, up to {}", bytes(tier.cache),
                     count(needs_most), needs_most, bytes(most_needed)),
         fmt::format("use {} {} or more, or a smaller batch", name_of(tier.space),
                     base::quantity_text(static_cast<double>(most_needed), base::UnitKind::bytes)));
    rule(tier.cache <= largest, "P138", tier,
         fmt::format("a cache of {} is larger than the {} of rank {}, {}, and no rank has more", bytes(tier.cache),
                     count(has_most), has_most, bytes(largest)),
         "use device, which needs no cache");
    return found_.empty();
  }

  // How much of a budget a byte of a cache takes: in a free budget, the books of its rows count too.
  [[nodiscard]] double taken(std::size_t t, bool free) const {
    return free ? with_books(row_bytes(model_, spec_, places_[t].columns)) : 1;
  }

  // Each table gets the same multiple of what it needs, but no more than its part.
  bool fill(const std::vector<std::size_t>& tables, double budget, bool free, double all, std::size_t rank,
            std::vector<std::int64_t>& cache) {
    double least = 0;
    for (const std::size_t t : tables) least += taken(t, free) * static_cast<double>(needed(t));
    const TableTier& tier = tiers_[tables.front()];
    rule(!free || budget >= least, "P138", tier,
         fmt::format("caches for the rows of a step take {} of rank {}'s memory for {}, but only {} is left",
                     text_of(least), rank, base::count_of(static_cast<std::int64_t>(tables.size()), "table"),
                     text_of(std::max(0.0, budget))),
         "use more devices, or a smaller batch");
    if (!found_.empty()) return false;
    double low = 1, high = budget / least + 1;  // times what is needed
    const auto given = [&](std::size_t t, double times) {
      return std::min(static_cast<double>(part_bytes(t)), times * static_cast<double>(needed(t)));
    };
    const auto sum = [&](double times) {
      double bytes = 0;
      for (const std::size_t t : tables) bytes += taken(t, free) * given(t, times);
      return bytes;
    };
    while (sum(high) < std::min(budget, all) * (1 - 1e-9)) high *= 2;
    constexpr int kHalvings = 60;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      (sum(middle) <= budget ? low : high) = middle;
    }
    for (const std::size_t t : tables) cache[t] = std::min(cache[t], static_cast<std::int64_t>(given(t, low)));
    return true;
  }

  const models::Recommender& model_;
  const clusters::Cluster& cluster_;
  const PlanSpec& spec_;
  const std::vector<TablePlace>& places_;
  bool together_ = false;
  std::vector<TableTier> tiers_;
  base::Diagnostics found_;
};

}  // namespace

std::int64_t row_bytes(const models::Recommender& model, const PlanSpec& spec, int columns) {
  const std::int64_t width = model.embedding_dim / columns;
  const std::int64_t values = width * models::size_of(dtype_of(spec.embedding.stored));
  return values + kStateBytes * traits_of(spec.states.optimizer).table_states.of(1, width);
}

std::int64_t rows_needed(const models::Table& table, const PlanSpec& spec, int row_parts) {
  const std::int64_t lookups = spec.shape.batch * table.multi_hot;
  const std::int64_t mine = row_parts > 1 ? std::min(lookups, divided(kUneven * lookups, row_parts)) : lookups;
  return std::min(divided(table.rows, row_parts), mine);
}

std::int64_t cache_needed(const models::Recommender& model, const models::Table& table, const PlanSpec& spec,
                          int row_parts, int columns) {
  return rows_needed(table, spec, row_parts) * row_bytes(model, spec, columns);
}

std::int64_t slots_of(const models::Recommender& model, const PlanSpec& spec, const TableTier& tier, std::int64_t rows,
                      int columns) {
  return std::min(rows, tier.cache / row_bytes(model, spec, columns));
}

double with_books(std::int64_t row) {
  constexpr double kWords = 4 * static_cast<double>(kBookColumns + 4);  // an index by powers of two has at most four
  return 1 + kWords / static_cast<double>(row);
}

double pooled_bytes(const models::Recommender& model, const PlanSpec& spec, int columns) {
  constexpr double kBuffers = 4, kValue = 4;
  return kBuffers * kValue * static_cast<double>(spec.shape.batch) * static_cast<double>(model.embedding_dim) / columns;
}

double sample_bytes(const models::Recommender& model, const PlanSpec& spec) {
  constexpr double kValue = 4;
  std::int64_t widths = 0;
  for (const auto& mlp : {model.bottom_widths(), model.top_widths()})
    widths += std::accumulate(mlp.begin(), mlp.end(), std::int64_t{0});
  // Vectors are joined and interact, and have gradients of both; a cross layer has two more and their gradient.
  const std::int64_t vectors = (4 + 3 * model.cross_layers) * model.vectors() * model.embedding_dim;
  return kValue * static_cast<double>(spec.shape.batch / spec.mesh.data) *
         static_cast<double>(2 * widths + vectors + 2 * model.indices() * model.lookup_words());
}

namespace {

// Whether tables and their states would fit the devices if nothing else were there.
bool may_fit_devices(const models::Recommender& model, const clusters::Cluster& cluster, const PlanSpec& spec) {
  double all = 0;
  for (const models::Table& table : model.tables) all += static_cast<double>(table.rows * row_bytes(model, spec, 1));
  return all <= static_cast<double>(spec.mesh.data) * cluster.device().memory.value;
}

}  // namespace

TableTiers choose_tiers(const models::Recommender& model, const clusters::Cluster& cluster, const PlanSpec& spec) {
  const double ranks = spec.mesh.data,
               capacity = ranks * (device_memory_for_tables(model, cluster) - sample_bytes(model, spec));
  const std::size_t count = model.tables.size();
  const auto bytes = [&](std::size_t t) {
    return static_cast<double>(model.tables[t].rows * row_bytes(model, spec, 1));
  };
  const auto cache = [&](std::size_t t) {
    const auto lookups = static_cast<double>(spec.shape.batch * model.tables[t].multi_hot);
    return std::min(static_cast<double>(model.tables[t].rows), kUneven * lookups) *
           static_cast<double>(row_bytes(model, spec, 1));
  };
  double all = 0, caches = 0;
  for (std::size_t t = 0; t < count; ++t) all += bytes(t), caches += cache(t);
  if (all <= kOnDevice * capacity) return {};
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto density = [&](std::size_t t) { return model.tables[t].mean_hot() / bytes(t); };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return density(a) > density(b); });
  double device = caches, host = 0;
  const double on_host = kForTablesOnHost * ranks * host_memory_of_rank(cluster);
  std::vector<TableTier> tiers(count, TableTier{Space::host, 0, {}});
  for (const std::size_t t : order) {
    const double more = bytes(t) - cache(t);
    if (device + more <= kOnDevice * capacity)
      device += more, tiers[t].space = Space::device;
    else if (cluster.nvme.capacity.value > 0 && host + bytes(t) > on_host)
      tiers[t].space = Space::nvme;
    else
      host += bytes(t);
  }
  return TableTiers(std::move(tiers));
}

base::Diagnostics place_and_settle(const models::Recommender& model, const clusters::Cluster& cluster, PlanSpec& spec) {
  Embedding& e = spec.embedding;
  if (e.tiers.empty() && e.placement.empty() && !spec.states.has_server() && !may_fit_devices(model, cluster, spec))
    e.tiers = choose_tiers(model, cluster, spec);
  if (e.placement.empty()) e.placement = place_tables(model, cluster, spec);
  auto settled = settle_tiers(model, cluster, spec);
  if (!settled) return settled.error();
  e.tiers = std::move(*settled);
  return {};
}

base::Result<TableTiers> settle_tiers(const models::Recommender& model, const clusters::Cluster& cluster,
                                      const PlanSpec& spec) {
  return Settling(model, cluster, spec).run();
}

}  // namespace orrery::plan
