// Indices sorted out by the ranks that have their rows, and sums of rows.
#include "exec/cuda/kernels/scan_device.h"
#include "exec/cuda/kernels/tables_device.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kItems = static_cast<int>(kTableTile) / kThreads;  // of a thread in a tile
constexpr int kScanThreads = 1024;

/// Block: one tile. Its items added up.
__global__ void __launch_bounds__(kThreads) tile_sums_kernel(const int32_t* in, int64_t count, int32_t* sums) {
  int mine = 0;
  for (int e = 0; e < kItems; ++e) {
    const int64_t i = blockIdx.x * kTableTile + e * kThreads + threadIdx.x;
    if (i < count) mine += in[i];
  }
  const int all = block_sum(mine);
  if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

/// One block: sums become what lies before each tile.
__global__ void __launch_bounds__(kScanThreads) before_tiles_kernel(int32_t* sums, int64_t tiles) {
  __shared__ int32_t of_thread[2][kScanThreads];
  const int me = static_cast<int>(threadIdx.x);
  const int64_t each = (tiles + kScanThreads - 1) / kScanThreads;
  const int64_t first = me * each, last = first + each < tiles ? first + each : tiles;
  int32_t sum = 0;
  for (int64_t i = first; i < last; ++i) sum += sums[i];
  int now = 0;
  of_thread[now][me] = sum;
  for (int offset = 1; offset < kScanThreads; offset *= 2, now = 1 - now) {
    __syncthreads();
    of_thread[1 - now][me] = of_thread[now][me] + (me >= offset ? of_thread[now][me - offset] : 0);
  }
  __syncthreads();
  int32_t before = of_thread[now][me] - sum;
  for (int64_t i = first; i < last; ++i) {
    const int32_t here = sums[i];
    sums[i] = before;
    before += here;
  }
}

/// Block: one tile, after the sum in `sums` (null: it is the only tile).
__global__ void __launch_bounds__(kThreads)
    scan_kernel(const int32_t* in, int32_t* out, int64_t count, const int32_t* sums) {
  const int64_t first = blockIdx.x * kTableTile + static_cast<int64_t>(threadIdx.x) * kItems;
  int32_t own[kItems];
  int mine = 0;
#pragma unroll
  for (int e = 0; e < kItems; ++e) {
    own[e] = first + e < count ? in[first + e] : 0;
    mine += own[e];
  }
  int total = 0;
  int before = before_me(mine, total) + (sums ? sums[blockIdx.x] : 0);
#pragma unroll
  for (int e = 0; e < kItems; ++e) {
    if (first + e <= count) out[first + e] = before;
    before += own[e];
  }
}

/// The sample, the rank and the part of the rank to which an element of `lengths` belongs.
struct BagAt {
  int64_t sample;
  const TablePart* part;  ///< null: the rank has fewer parts
  int32_t rank;
};
__device__ inline BagAt bag_at(const TableParts& p, int64_t bag) {
  BagAt out;
  out.sample = bag % p.samples;
  const int64_t run = bag / p.samples, place = run % p.most_shards;
  out.rank = static_cast<int32_t>(run / p.most_shards);
  const int32_t at = p.first[out.rank] + static_cast<int32_t>(place);
  out.part = at < p.first[out.rank + 1] ? p.parts + at : nullptr;
  return out;
}

struct CountIndices {
  TableParts p;
  const int32_t* indices;
  int32_t* lengths;
  template <int N>
  __device__ void run(int64_t bag) const {
    const BagAt at = bag_at(p, bag);
    int32_t count = 0;
    if (at.part) {
      const int32_t* const values = indices + (at.sample * p.indices + at.part->first_index) * p.words;
      for (int64_t j = 0; j < at.part->multi_hot * p.words; j += p.words)
        count += values[j] >= at.part->row_begin && values[j] < at.part->row_end ? 1 : 0;
    }
    lengths[bag] = count;
  }
};

struct PlaceIndices {
  TableParts p;
  const int32_t* indices;
  const int32_t* starts;
  int32_t* values;
  template <int N>
  __device__ void run(int64_t bag) const {
    const BagAt at = bag_at(p, bag);
    if (!at.part) return;
    const int32_t* const from = indices + (at.sample * p.indices + at.part->first_index) * p.words;
    const int64_t of_rank = at.rank * p.most_shards * p.samples;
    int32_t* to = values + (at.rank * p.most_indices + (starts[bag] - starts[of_rank])) * p.words;
    for (int64_t j = 0; j < at.part->multi_hot * p.words; j += p.words) {
      if (from[j] < at.part->row_begin || from[j] >= at.part->row_end) continue;
      *to++ = static_cast<int32_t>(from[j] - at.part->row_begin);
      if (p.words == 2) *to++ = from[j + 1];
    }
  }
};

/// `lanes` threads for each bag, for this rank's parts and the samples of all members.
template <int N>
__global__ void __launch_bounds__(kThreads)
    bag_kernel(TableParts p, const int32_t* lengths, const int32_t* values, const int32_t* starts, const float* tables,
               float* pooled, int lanes) {
  const int64_t item = own_item(lanes);
  const int64_t sample = item % p.samples, run = item / p.samples;
  const int64_t place = run % p.own_count, member = run / p.own_count;
  if (member >= p.ranks) return;
  const TablePart part = p.own[place];
  const int64_t of_member = member * p.most_shards * p.samples;
  const int64_t bag = of_member + place * p.samples + sample;
  const int32_t* const rows = values + (member * p.most_indices + (starts[bag] - starts[of_member])) * p.words;
  const float* const first = tables + part.offset;
  float* const to = pooled + place_at_tables(part, member, sample, p.per_node, p.nodes);
  const int64_t count = lengths[bag], height = part.row_end - part.row_begin;
  for (int64_t column = own_lane(lanes) * N; column < part.columns; column += lanes * N)
    store(to + column, sum_in_order<N>(
                           count,
                           [&](int64_t i) {
                             const int64_t row = rows[i * p.words];
                             return row >= 0 && row < height ? first + row * part.columns + column : nullptr;
                           },
                           [&](int64_t i) { return weight_of(rows + i * p.words, p.words); }));
}

/// The same of replicated tables and of this rank's own samples.
template <int N>
__global__ void __launch_bounds__(kThreads)
    lookup_kernel(TableParts p, const int32_t* indices, const float* tables, float* out, int lanes) {
  const int64_t item = own_item(lanes);
  const int64_t sample = item / p.replicated_count;
  if (sample >= p.samples) return;
  const TablePart part = p.replicated[item % p.replicated_count];
  const int32_t* const rows = indices + (sample * p.indices + part.first_index) * p.words;
  const float* const first = tables + part.offset;
  float* const to = out + sample * p.replicated_columns + part.column;
  for (int64_t column = own_lane(lanes) * N; column < part.columns; column += lanes * N)
    store(to + column, sum_in_order<N>(
                           part.multi_hot,
                           [&](int64_t i) {
                             const int64_t row = rows[i * p.words];
                             return row >= 0 && row < part.row_end ? first + row * part.columns + column : nullptr;
                           },
                           [&](int64_t i) { return weight_of(rows + i * p.words, p.words); }));
}

}  // namespace

void exclusive_scan(cudaStream_t stream, const int32_t* in, int32_t* out, int64_t count, int32_t* sums) {
  const int64_t tiles = count / kTableTile + 1;  // one more than `count` is written
  const int32_t* before = nullptr;
  if (tiles > 1) {
    ORRERY_LAUNCH(tile_sums_kernel, row_grid(tiles, "scan"), dim3(kThreads), 0, stream, in, count, sums);
    check_launch("scan, tiles");
    ORRERY_LAUNCH(before_tiles_kernel, dim3(1), dim3(kScanThreads), 0, stream, sums, tiles);
    check_launch("scan, sums");
    before = sums;
  }
  ORRERY_LAUNCH(scan_kernel, row_grid(tiles, "scan"), dim3(kThreads), 0, stream, in, out, count, before);
  check_launch("scan");
}

void bucketise_indices(cudaStream_t stream, const TableParts& parts, const int32_t* indices, int32_t* lengths,
                       int32_t* values, const TableRoom& room) {
  const int64_t bags = parts.bags();
  if (bags == 0) return;
  launch_packs<1>(stream, bags, false, CountIndices{parts, indices, lengths}, "bucketise_indices, lengths");
  exclusive_scan(stream, lengths, room.starts, bags, room.sums);
  launch_packs<1>(stream, bags, false, PlaceIndices{parts, indices, room.starts, values}, "bucketise_indices");
}

void embedding_bag(cudaStream_t stream, const TableParts& parts, const int32_t* lengths, const int32_t* values,
                   const float* tables, float* pooled, const TableRoom& room) {
  const int64_t items = parts.ranks * parts.own_count * parts.samples;
  if (items == 0) return;
  exclusive_scan(stream, lengths, room.starts, parts.bags(), room.sums);
  const bool whole = parts.packed && aligned(tables) && aligned(pooled);
  const int lanes = lanes_of(parts.widest, whole ? 4 : 1);
  const dim3 grid = lane_grid(items, lanes, "embedding_bag");
  if (whole)
    ORRERY_LAUNCH(bag_kernel<4>, grid, dim3(kThreads), 0, stream, parts, lengths, values, room.starts, tables, pooled,
                  lanes);
  else
    ORRERY_LAUNCH(bag_kernel<1>, grid, dim3(kThreads), 0, stream, parts, lengths, values, room.starts, tables, pooled,
                  lanes);
  check_launch("embedding_bag");
}

void embedding_lookup(cudaStream_t stream, const TableParts& parts, const int32_t* indices, const float* tables,
                      float* out) {
  const int64_t items = parts.samples * parts.replicated_count;
  if (items == 0) return;
  const bool whole = parts.packed && aligned(tables) && aligned(out);
  const int lanes = lanes_of(parts.widest, whole ? 4 : 1);
  const dim3 grid = lane_grid(items, lanes, "embedding_lookup");
  if (whole)
    ORRERY_LAUNCH(lookup_kernel<4>, grid, dim3(kThreads), 0, stream, parts, indices, tables, out, lanes);
  else
    ORRERY_LAUNCH(lookup_kernel<1>, grid, dim3(kThreads), 0, stream, parts, indices, tables, out, lanes);
  check_launch("embedding_lookup");
}

}  // namespace orrery::exec::cuda
