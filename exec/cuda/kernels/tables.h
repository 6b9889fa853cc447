#pragma once
/// Kernels of embedding tables: indices sorted by their owners, sums of rows, and updates of rows whose gradients are
/// merged in a fixed order. Which parts of which tables a rank has is data (plan/spec/table_layout.h), here as arrays
/// on the device. Launches have the sizes of bounds; the number of lookups is read on the device.
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/updates.h"

namespace orrery::exec::cuda {

/// plan::TableShard on the device, with what operators need to know about its table.
struct TablePart {
  int64_t row_begin = 0, row_end = 0, column_begin = 0, columns = 0;
  int64_t offset = 0, state = 0, squares = -1;
  int64_t column = 0;            ///< within a sample's pooled vectors of its rank and way
  int64_t at = 0;                ///< its first column in the slots at the tables,
  int64_t slot = 0, stride = 0;  ///< from one slot to the next, and from one sample to the next
  int64_t first_index = 0, multi_hot = 1;
  int64_t lookups_before = 0;  ///< of a sample, in the replicated parts before this one
  int32_t rank = 0, table = 0;
  int32_t place = 0;  ///< number among its rank's parts; -1 for a replicated part
  int32_t way = 0;    ///< plan::PooledWay
  int32_t place_of_way = 0;
  int32_t by_places = 0;  ///< its slots are in the order of their ranks' places in nodes
  float weight = 1;       ///< factor of a bag's sum
};

/// plan::PooledPart on the device; also for replicated tables, whose sums are the rank's own.
struct JoinedPart {
  int64_t column_begin = 0, columns = 0, at = 0, stride = 0;
  float weight = 1;
  int32_t local = 0;  ///< replicated
};

/// plan::TableLayout on the device, as one rank sees it.
struct TableParts {
  const TablePart* parts = nullptr;  ///< all ranks' parts, by rank
  const int32_t* first = nullptr;    ///< ranks + 1 offsets into them
  const int64_t* columns = nullptr;  ///< of a sample's pooled vectors, by way, then by rank
  const int64_t* vectors = nullptr;  ///< number of these vectors, in the same order
  const TablePart* own = nullptr;    ///< this rank's
  const TablePart* replicated = nullptr;
  const int32_t* of_table = nullptr;   ///< tables + 1 offsets into:
  const JoinedPart* joined = nullptr;  ///< by table, in the order in which they are summed
  const int32_t* counts = nullptr;     ///< 4 runs of `ranks`, 4 of `nodes`: counts of bucketise_indices for pooled
                                       ///< vectors
  int32_t ranks = 1, per_node = 1, nodes = 1, own_count = 0, replicated_count = 0, tables = 0;
  int64_t samples = 0, dim = 0;
  int64_t indices = 0, words = 1;  ///< lookups of a sample at most, and int32 of each: a row, and the bits of a weight
  int64_t most_shards = 0, most_indices = 0, most_rows = 0, squares = 0;
  int64_t at_tables = 0, at_samples = 0;  ///< values of all slots of pooled vectors at each end
  int64_t replicated_rows = 0, replicated_columns = 0;
  int64_t replicated_lookups = 0;  ///< of a sample
  int64_t widest = 0;              ///< columns of the widest part among this rank's and the replicated ones
  bool packed = false;             ///< columns of all parts begin and end at multiples of 4
  [[nodiscard]] int64_t bags() const { return ranks * most_shards * samples; }
  [[nodiscard]] int64_t lookups() const { return ranks * most_indices; }  ///< at most
};

/// Device memory that operators on tables need besides operands; sizes are for the most `lookups` and `bags`.
struct TableRoom {
  int32_t* starts = nullptr;   ///< bags + 1: lookups before each bag
  uint32_t* keys[2] = {};      ///< lookups: rows, counted over all parts of a rank
  int32_t* samples[2] = {};    ///< lookups: the sample of the step that each belongs to
  float* weights[2] = {};      ///< lookups: their weights; null if they have none
  int32_t* digits = nullptr;   ///< kDigits for each tile of lookups, + 1
  int32_t* before = nullptr;   ///< lookups + 1: distinct rows before each
  int32_t* groups = nullptr;   ///< lookups + 1: the first lookup of each distinct row
  int32_t* sums = nullptr;     ///< of tiles of a scan, + 1
  double* squares = nullptr;   ///< of each distinct row's gradient
  double* partials = nullptr;  ///< kTablePartials
};
inline constexpr int kDigitBits = 5, kDigits = 1 << kDigitBits;
inline constexpr int64_t kTableTile = 2048;  ///< lookups that a block sorts at a time
inline constexpr int kTablePartials = 64;

// tables.cu
void bucketise_indices(cudaStream_t stream, const TableParts& parts, const int32_t* indices, int32_t* lengths,
                       int32_t* values, const TableRoom& room);
/// A part's rows are `rows[part.offset + row * columns]`.
void embedding_bag(cudaStream_t stream, const TableParts& parts, const int32_t* lengths, const int32_t* values,
                   const float* tables, float* pooled, const TableRoom& room);
void embedding_lookup(cudaStream_t stream, const TableParts& parts, const int32_t* indices, const float* tables,
                      float* out);
/// out[i] = sum of in[j], j < i, for i up to `count`: one more than there are. `out` may be `in`.
void exclusive_scan(cudaStream_t stream, const int32_t* in, int32_t* out, int64_t count, int32_t* sums);

// tables_merge.cu: sorts lookups by row, and those of a row by member and sample; then makes one sum for each distinct
// row, in that order.
struct MergedRows {
  const uint32_t* keys = nullptr;
  const int32_t* samples = nullptr;
  const float* weights = nullptr;  ///< null: none
  const int32_t* groups = nullptr;
  const int32_t* group_count = nullptr;
  int64_t most_groups = 0;
  const float* gradients = nullptr;  ///< at the places that `parts` give
  int32_t of_member = 1, per_node = 1, nodes = 1;
  const TablePart* parts = nullptr;  ///< ascending by `state`
  int32_t part_count = 0;
  int64_t widest = 0;
  bool packed = false;
};
/// merge_bags: of the indices that a rank received; merge_lookups: of its own samples in replicated tables.
[[nodiscard]] MergedRows merge_bags(cudaStream_t stream, const TableParts& parts, const int32_t* lengths,
                                    const int32_t* values, const float* gradients, const TableRoom& room);
[[nodiscard]] MergedRows merge_lookups(cudaStream_t stream, const TableParts& parts, const int32_t* indices,
                                       const float* gradients, const TableRoom& room);
/// For tables whose columns are on several ranks. `squares` is cleared first.
void merged_squares(cudaStream_t stream, const MergedRows& rows, float* squares);

/// How a row's gradient changes it, as in the CPU backend's RowUpdate.
struct RowStep {
  models::UpdateRule rule = models::UpdateRule::sgd;
  UpdateStep step;
  float* values = nullptr;
  float* states = nullptr;
  int64_t second = 0;                    ///< Adam: elements from a first moment to its second moment
  int64_t width = 1;                     ///< of whole rows
  const float* whole_squares = nullptr;  ///< for rows with columns on other ranks, as merged_squares has them
};
/// total += sum of squares of all gradients of rows.
void merged_update(cudaStream_t stream, const MergedRows& rows, const RowStep& step, float* total,
                   const TableRoom& room);
/// gradients[part.offset + row * columns] = the sum; counts (null: not wanted) = lookups, at the row's state.
void merged_gradients(cudaStream_t stream, const MergedRows& rows, float* gradients, float* counts);
/// Updates rows of replicated tables, `dim` wide, by their gradients: with `lookups` the rows with more than 0 of them,
/// else the rows whose gradient is not 0.
void table_update(cudaStream_t stream, const float* gradients, const float* lookups, int64_t rows, int64_t dim,
                  const RowStep& step);

// tables_pooled.cu
void pooled_join(cudaStream_t stream, const TableParts& parts, const float* pooled, const float* bottom,
                 const float* local, float* out);
void pooled_split(cudaStream_t stream, const TableParts& parts, const float* dy, float* pooled, float* bottom,
                  float* local);
/// The slots of one end in fp32 and as they are sent, by plan::PooledWay.
inline constexpr int kWays = 3;
struct CodedSlots {
  struct Way {
    int64_t values = 0, value_slot = 0;  ///< elements: offset of the first slot, and from one slot to the next
    int64_t coded = 0, coded_slot = 0;
    int32_t count = 0;  ///< 0: nothing travels this way
    int32_t every = 0;  ///< slot i has the layout of rank i * every; 0: of `own`
  } ways[kWays];
  int32_t own = 0;
  [[nodiscard]] int64_t count() const {
    int64_t sum = 0;
    for (const Way& way : ways) sum += way.count;
    return sum;
  }
  [[nodiscard]] int64_t values() const {
    int64_t sum = 0;
    for (const Way& way : ways) sum += way.count * way.value_slot;
    return sum;
  }
};
template <class T>
void encode_pooled(cudaStream_t stream, const TableParts& parts, const CodedSlots& slots, const float* x, T* out);
template <class T>
void decode_pooled(cudaStream_t stream, const TableParts& parts, const CodedSlots& slots, const T* x, float* out);
/// Bytes: for each vector its largest magnitude / 127, then its values divided by that, rounded, halves away from zero.
void encode_pooled_bytes(cudaStream_t stream, const TableParts& parts, const CodedSlots& slots, const float* x,
                         uint8_t* out);
void decode_pooled_bytes(cudaStream_t stream, const TableParts& parts, const CodedSlots& slots, const uint8_t* x,
                         float* out);

// recommend.cu: of n samples, `vectors` of `dim` values each.
void interaction_dot(cudaStream_t stream, const float* x, float* y, int64_t n, int64_t vectors, int64_t dim);
void interaction_dot_grad(cudaStream_t stream, const float* dy, const float* x, float* dx, int64_t n, int64_t vectors,
                          int64_t dim);
void cross(cudaStream_t stream, const float* x0, const float* u, const float* x, float* y, int64_t count);
void cross_grad(cudaStream_t stream, const float* dy, const float* x0, const float* u, float* du, float* dx0,
                int64_t count);
void click_loss(cudaStream_t stream, const float* logits, const float* labels, float* loss, int64_t n, double scale);
void click_loss_grad(cudaStream_t stream, const float* logits, const float* labels, float* dlogits, int64_t n,
                     double scale);

}  // namespace orrery::exec::cuda
