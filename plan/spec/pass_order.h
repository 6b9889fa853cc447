#pragma once
/// A pipeline order that a user writes: the sequence of passes of each rank. As a file it is a table of
/// comma-separated values with one row per rank, in the form that PyTorch's pipelining reads and writes
/// (torch.distributed.pipelining.schedules, `_load_csv` and `_dump_csv`): a cell is a virtual stage, a kind and a
/// micro-batch, such as 0F3; in an empty cell the rank waits for a turn. docs/formats.md says how to write one.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace orrery::plan {

struct Pass {
  enum class Kind : std::uint8_t {
    forward,         ///< F
    backward,        ///< B: gradients of inputs and of weights, at once
    input_gradient,  ///< I; also B, where the order has W but no I
    weight_gradient  ///< W
  };
  Kind kind = Kind::forward;
  std::int32_t stage = 0;  ///< virtual stage, in the order of the model
  std::int32_t micro_batch = 0;
  bool operator==(const Pass&) const = default;
};

/// A value; empty where the plan's order has a name. One that is not empty is sound: every virtual stage is on one rank
/// and runs each micro-batch's passes once, forward before backward, and ranks that wait for each other do not
/// deadlock.
class PassOrder {
 public:
  /// A piece of text and its location.
  struct Cell {
    std::string text;
    base::Location where;
  };
  /// Parses text with one row per rank. Diagnostics (E0124) name file, line and column.
  [[nodiscard]] static base::Result<PassOrder> parse_csv(std::string_view text, const std::string& file);
  /// Parses rows as rows() writes them, with spaces between cells; a diagnostic has the location of its row.
  [[nodiscard]] static base::Result<PassOrder> parse_rows(const std::vector<Cell>& rows);

  [[nodiscard]] bool empty() const { return table_ == nullptr; }
  [[nodiscard]] int stages() const { return table_ ? static_cast<int>(table_->ranks.size()) : 0; }  ///< ranks
  [[nodiscard]] int chunks() const { return table_ ? table_->chunks : 0; }                          ///< of each rank
  [[nodiscard]] std::int64_t micro_batches() const { return table_ ? table_->micro_batches : 0; }
  /// Whether the second of two chunks runs back up the ranks, so that the first rank has both ends of the model.
  [[nodiscard]] bool folds() const { return table_ && table_->folds; }
  [[nodiscard]] const std::vector<Pass>& passes(int rank) const {
    return table_->ranks[static_cast<std::size_t>(rank)];
  }
  /// "0F0 0F1 0B0 0B1", one per rank.
  [[nodiscard]] std::vector<std::string> rows() const;
  bool operator==(const PassOrder& other) const;

 private:
  struct Table {
    std::vector<std::vector<Pass>> ranks;
    int chunks = 1;
    std::int64_t micro_batches = 0;
    bool folds = false;
    bool operator==(const Table&) const = default;
  };
  friend class PassOrderReader;
  std::shared_ptr<const Table> table_;  ///< shared by all plans of a search
};

}  // namespace orrery::plan
