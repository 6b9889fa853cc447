#pragma once
/// Which ranks hold which parts of a recommendation model's embedding tables (models/recommender.h).
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/spec/space.h"

namespace orrery::plan {

/// How tables are split where no placement is given; the names are torchrec's.
enum class TableSharding : std::uint8_t {
  automatic,  ///< each table as the planner finds best (plan/spec/table_planner.h)
  whole,      ///< one rank has all of a table
  row,        ///< every rank has a part of each table's rows
  column,     ///< every rank has a part of each table's columns
  node_row,   ///< the ranks of one node each have a part of a table's rows
  grid,       ///< each node has a part of the columns, and each of its ranks a part of their rows
  replicated  ///< every rank has all of each table, and gradients are summed over ranks
};

/// The type in which pooled vectors, or their gradients, travel between ranks.
enum class PooledType : std::uint8_t { fp32, bf16, fp16, int8 };

/// One table, in `columns` x R parts: ranks[c * R + r] has rows [rows r / R, rows (r + 1) / R) of columns
/// [D c / columns, D (c + 1) / columns).
struct TablePlace {
  bool replicated = false;
  int columns = 1;
  std::vector<int> ranks = {};  ///< empty where replicated
  [[nodiscard]] int row_parts() const { return static_cast<int>(ranks.size()) / columns; }
  bool operator==(const TablePlace&) const = default;
};

/// A value: the places of all tables, in their order; empty where none are given.
class TablePlacement {
 public:
  /// A piece of text and its location.
  struct Cell {
    std::string text;
    base::Location where;
  };
  TablePlacement() = default;
  explicit TablePlacement(std::vector<TablePlace> places);
  /// A text per table: "replicated", "whole 3", "row 0-7", "column 0 2 4", "grid 2x4 0-7" (2 parts of columns, each of
  /// 4 of rows). Diagnostics have code E0126.
  [[nodiscard]] static base::Result<TablePlacement> parse_rows(const std::vector<Cell>& rows);
  [[nodiscard]] bool empty() const { return places_ == nullptr; }
  [[nodiscard]] const std::vector<TablePlace>& places() const;
  [[nodiscard]] std::vector<std::string> rows() const;
  bool operator==(const TablePlacement& other) const;

 private:
  std::shared_ptr<const std::vector<TablePlace>> places_;  ///< shared by all plans of a search
};

/// "whole 3", "row 0-7" … as in files.
[[nodiscard]] std::string text_of(const TablePlace& place);

/// In which memory a table's rows and their states lie, and how many bytes of the device's memory each of its parts has
/// as a cache of the rows that were looked up last (plan/spec/table_tiers.h).
struct TableTier {
  Space space = Space::device;
  std::int64_t cache = 0;     ///< bytes; 0: make_plan chooses
  base::Location where = {};  ///< place in the file that says so; not part of the value
  bool operator==(const TableTier& other) const { return space == other.space && cache == other.cache; }
};

/// A value: the tiers of all tables, in their order; or a single tier for all of them, whose cache all of a rank's
/// parts share. Empty: all tables are on the device.
class TableTiers {
 public:
  using Cell = TablePlacement::Cell;
  TableTiers() = default;
  explicit TableTiers(std::vector<TableTier> tiers);
  /// "device", "host", "host 64 MiB", "nvme 1 GiB". Diagnostics of code E0127.
  [[nodiscard]] static base::Result<TableTiers> parse_rows(const std::vector<Cell>& rows);
  [[nodiscard]] bool empty() const { return tiers_ == nullptr; }
  [[nodiscard]] const std::vector<TableTier>& tiers() const;
  /// The tier of a table, once there is one for each.
  [[nodiscard]] TableTier of(std::size_t table) const { return empty() ? TableTier{} : tiers().at(table); }
  [[nodiscard]] std::vector<std::string> rows() const;
  bool operator==(const TableTiers& other) const;

 private:
  std::shared_ptr<const std::vector<TableTier>> tiers_;  ///< shared by all plans of a search
};

/// The part of a plan that concerns embedding tables.
struct Embedding {
  TableSharding sharding = TableSharding::automatic;
  TablePlacement placement;  ///< empty: `sharding` decides, and make_plan fills it in
  PooledType forward = PooledType::fp32, backward = PooledType::fp32;
  TableTiers tiers;                      ///< empty: all on the device
  PooledType stored = PooledType::fp32;  ///< the type of tables' values in all memories; never int8
  /// For predictions: the i-th most frequent row of a table is looked up in proportion to 1 / i^skew (Zipf's law).
  double skew = 0;
  bool operator==(const Embedding&) const = default;
};

}  // namespace orrery::plan
