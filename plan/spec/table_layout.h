#pragma once
/// Where each rank keeps its parts of embedding tables and their messages. This data differs by rank, while the program
/// is the same on all: lowering sizes buffers for the rank that needs most, and operators look up their own parts.
#include <array>
#include <cstdint>
#include <vector>

#include "models/recommender.h"
#include "plan/spec/plan.h"
#include "plan/spec/pooled_way.h"

namespace orrery::plan {

/// A part of a table on one rank.
struct TableShard {
  int table = 0;
  int rank = 0;
  std::int64_t row_begin = 0, row_end = 0;
  std::int64_t column_begin = 0, column_end = 0;
  PooledWay way = PooledWay::exchange;
  std::int64_t offset = 0;    ///< elements, within the rank's tables (replicated: within their bucket)
  std::int64_t state = 0;     ///< index within the states, one per row
  std::int64_t column = 0;    ///< first of its columns within a sample's pooled vectors of this rank and way
  std::int64_t squares = -1;  ///< first of its rows' squares, if other ranks have other columns of these rows; else -1
  /// For a part outside the device's memory: `slots` is the number of rows in its cache on the device, and `offset` and
  /// `state` are places in that cache. `far_offset` and `far_state` are the places of the rows in the buffers of their
  /// own memory, and `book` is the place of the part's books among those of all caches.
  std::int64_t slots = 0;
  std::int64_t row_bytes = 0;  ///< of a row with its states
  Space space = Space::device;
  std::int64_t far_offset = 0, far_state = 0, book = 0;
  bool first_columns = true;  ///< has the table's first columns, so it writes what all parts by columns share to
                              ///< checkpoints
  [[nodiscard]] std::int64_t rows() const { return row_end - row_begin; }
  [[nodiscard]] std::int64_t columns() const { return column_end - column_begin; }
  [[nodiscard]] std::int64_t elements() const { return rows() * columns(); }
  [[nodiscard]] bool cached() const { return space != Space::device; }
  [[nodiscard]] std::int64_t device_rows() const { return cached() ? slots : rows(); }
};

/// Where a buffer of pooled vectors, or of their gradients, is: at a rank that has the rows, with a slot for each
/// rank's samples; or at the samples' owner, with a slot for each rank that sends it some.
enum class PooledEnd : std::uint8_t { tables, samples };

/// The slots of one way in such a buffer, in elements of the buffer's type; for int8, including the scales.
struct PooledSlots {
  std::int64_t offset = 0, count = 0, slot = 0;
  [[nodiscard]] std::int64_t elements() const { return count * slot; }
};

/// Columns of a table as the samples' owner receives them: those of sample i begin at value `at` + i * `stride`.
struct PooledPart {
  int table = 0;
  std::int64_t column_begin = 0, columns = 0;
  std::int64_t at = 0, stride = 0;
};

struct TableLayout {
  struct Table {
    std::int64_t rows = 0, multi_hot = 1;
    bool mean = false;             ///< of `multi_hot` rows; means over bags of several lengths are weights of lookups
    std::int64_t first_index = 0;  ///< within a sample's lookups
    bool replicated = false;
    bool varies = false;  ///< bags may be shorter than `multi_hot`: index -1 stands behind their last one
    double mean_hot = 1;  ///< expected lookups of a sample
  };
  int ranks = 1, ranks_per_node = 1;
  std::int64_t samples = 0;  ///< n: samples of a rank and step
  std::int64_t embedding_dim = 0;
  std::int64_t indices = 0;  ///< lookups of a sample, at most
  std::int64_t words = 1;    ///< of int32 that a lookup takes (models::Recommender::lookup_words)
  std::vector<Table> tables;
  std::vector<TableShard> shards;      ///< by rank, then by table, rows and columns
  std::vector<std::size_t> first;      ///< ranks + 1 offsets into `shards`
  std::vector<TableShard> replicated;  ///< on every rank; `column` counts only these
  std::vector<PooledPart> parts;       ///< of all sharded tables; those of equal columns are added up in this order
  /// For each rank and PooledWay: the columns of a sample's pooled vectors, and the number of shards that they come
  /// from.
  struct OfWay {
    std::int64_t columns = 0, shards = 0;
  };
  std::vector<std::array<OfWay, kPooledWays>> of_rank;
  // Largest values over all ranks.
  std::int64_t most_shards = 0;
  std::array<std::int64_t, kPooledWays> most_columns = {};
  std::int64_t most_indices = 0;  ///< lookups from one rank to one other: the room of a slot
  std::int64_t most_elements = 0, most_rows = 0;
  std::int64_t replicated_elements = 0, replicated_rows = 0, replicated_columns = 0;
  /// Of tables outside the device's memory, by Space, on the rank that has most: all their values and rows; the rows
  /// that a step may fetch, and their values; and the share of these rows that a step is expected to fetch.
  struct Far {
    std::int64_t elements = 0, rows = 0;
    std::int64_t moved_rows = 0, moved_elements = 0;
    double expected = 0;
  };
  std::array<Far, kSpaces> far = {};
  std::int64_t most_book = 0;
  PooledType forward = PooledType::fp32, backward = PooledType::fp32;  ///< types of travelling vectors and gradients
  std::int64_t squares = 0;  ///< total of rows whose squares are summed over ranks

  [[nodiscard]] std::size_t begin(int rank) const { return first[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t end(int rank) const { return first[static_cast<std::size_t>(rank) + 1]; }
  [[nodiscard]] std::int64_t shards_of(int rank) const { return static_cast<std::int64_t>(end(rank) - begin(rank)); }
  [[nodiscard]] int nodes() const { return ranks / ranks_per_node; }
  [[nodiscard]] bool uses(PooledWay way) const { return most_columns[static_cast<std::size_t>(way)] > 0; }
  [[nodiscard]] std::int64_t columns_of(int rank, PooledWay way) const;  ///< of a sample's pooled vectors
  /// Values in a slot of pooled vectors laid out as this rank's shards are; for int8, bytes including the scales.
  [[nodiscard]] std::int64_t pooled_values(int rank, PooledWay way, PooledType type) const;
  [[nodiscard]] std::int64_t most_pooled_values(PooledWay way, PooledType type) const;
  [[nodiscard]] PooledSlots slots(PooledEnd end, PooledWay way, PooledType type) const;
  [[nodiscard]] std::int64_t pooled_elements(PooledEnd end, PooledType type) const;  ///< of the slots of all ways
  /// At the tables: the slot that has the samples of `rank`.
  [[nodiscard]] std::int64_t slot_of(PooledWay way, int rank) const;
  /// The rank whose shards define the layout of slot `slot` at `rank`.
  [[nodiscard]] int owner_of(PooledEnd end, PooledWay way, std::int64_t slot, int rank) const;
  /// Lookups of a rank in a step; where tables are split by rows, the expected number.
  [[nodiscard]] double expected_lookups(int rank) const;
  [[nodiscard]] double values_looked_up(int rank) const;  ///< in the columns that it has
  /// The rank that moves most: its lookups, their rows' mean width, and the values that it pools over all samples.
  struct Lookups {
    std::int64_t count = 0, width = 0, values = 0;
  };
  [[nodiscard]] Lookups heaviest() const;
  [[nodiscard]] bool sharded() const { return !shards.empty(); }
  [[nodiscard]] bool cached() const { return most_book > 0; }
  /// An upper bound on the distinct rows of a part that a step looks up.
  [[nodiscard]] std::int64_t most_looked_up(const TableShard& shard) const;
};

/// Words of int32 that the books of a cache of `slots` rows take (exec/engine/row_cache.h): a header, five words for
/// each row, and a hash index that is at most half full, with a power of two of words.
inline constexpr std::int64_t kBookHeader = 16, kBookColumns = 5;
[[nodiscard]] std::int64_t book_index(std::int64_t slots);
[[nodiscard]] std::int64_t book_words(std::int64_t slots);

/// `per_node`: ranks of each node; all of them if there are fewer.
[[nodiscard]] TableLayout make_table_layout(const models::Recommender& model, const PlanSpec& spec, int per_node);

/// Element type in which pooled values travel; for int8, without scales.
[[nodiscard]] models::DType dtype_of(PooledType type);

}  // namespace orrery::plan
