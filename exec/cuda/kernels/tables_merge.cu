// Gradients of rows that several samples look up, merged in a fixed order: a stable radix sort of lookups by row, whose
// counts alone are added by atomics, then one sum for each distinct row.
#include "exec/cuda/kernels/scan_device.h"
#include "exec/cuda/kernels/tables_device.h"
#include "exec/cuda/kernels/update_device.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kItems = static_cast<int>(kTableTile) / kThreads;  // lookups of a thread in a tile
constexpr int kKept = 2;                  // packs of a row's gradient that a thread keeps while their squares are
                                          // summed
constexpr uint32_t kNoRow = 0xffffffffU;  // after all rows

// -- keys -------------------------------------------------------------------------------------------------------------
// For each bag of this rank's parts: its lookups, as they were received.
struct KeysOfBags {
  TableParts p;
  const int32_t* lengths;
  const int32_t* values;
  const int32_t* starts;
  uint32_t* keys;
  int32_t* samples;
  float* weights;
  template <int N>
  __device__ void run(int64_t bag) const {
    const int64_t of_member = p.most_shards * p.samples, member = bag / of_member;
    const int64_t place = bag / p.samples % p.most_shards;
    const int64_t first = member * p.most_indices + (starts[bag] - starts[member * of_member]);
    for (int32_t i = 0; i < lengths[bag]; ++i) {
      const int32_t* const lookup = values + (first + i) * p.words;
      const bool there = place < p.own_count && *lookup >= 0 && *lookup < p.own[place].row_end - p.own[place].row_begin;
      keys[starts[bag] + i] = there ? static_cast<uint32_t>(p.own[place].state + *lookup) : kNoRow;
      samples[starts[bag] + i] = static_cast<int32_t>(member * p.samples + bag % p.samples);
      if (weights) weights[starts[bag] + i] = weight_of(lookup, p.words);
    }
  }
};

/// The same for each bag of replicated tables, whose lookups have room for the longest; those behind a shorter bag have
/// no row.
struct KeysOfLookups {
  TableParts p;
  const int32_t* indices;
  uint32_t* keys;
  int32_t* samples;
  float* weights;
  int32_t* count;
  template <int N>
  __device__ void run(int64_t bag) const {
    const TablePart& part = p.replicated[bag / p.samples];
    const int64_t sample = bag % p.samples;
    int64_t at = part.lookups_before * p.samples + sample * part.multi_hot;
    const int32_t* lookup = indices + (sample * p.indices + part.first_index) * p.words;
    for (int64_t j = 0; j < part.multi_hot; ++j, ++at, lookup += p.words) {
      const bool there = *lookup >= 0 && *lookup < part.row_end;
      keys[at] = there ? static_cast<uint32_t>(part.state + *lookup) : kNoRow;
      samples[at] = static_cast<int32_t>(sample);
      if (weights) weights[at] = weight_of(lookup, p.words);
    }
    if (bag == 0) *count = static_cast<int32_t>(p.samples * p.replicated_lookups);
  }
};

// -- the sort ---------------------------------------------------------------------------------------------------------
__device__ inline int digit_of(uint32_t key, int shift) {
  return static_cast<int>(key >> shift) & (kDigits - 1);
}

/// Block: one tile. Counts how often it has each digit; the counts of all tiles for one digit stand together.
__global__ void __launch_bounds__(kThreads)
    digits_kernel(const uint32_t* keys, const int32_t* count, int shift, int32_t* digits, int64_t tiles) {
  __shared__ int of_tile[kDigits];
  const int me = static_cast<int>(threadIdx.x);
  if (me < kDigits) of_tile[me] = 0;
  __syncthreads();
  for (int e = 0; e < kItems; ++e) {
    const int64_t i = blockIdx.x * kTableTile + e * kThreads + me;
    if (i < *count) atomicAdd(&of_tile[digit_of(keys[i], shift)], 1);
  }
  __syncthreads();
  if (me < kDigits) digits[me * tiles + blockIdx.x] = of_tile[me];
}

struct Sorted {
  const uint32_t* keys;
  const int32_t* samples;
  const float* weights;  ///< null: none
  uint32_t* to_keys;
  int32_t* to_samples;
  float* to_weights;
};

/// Block: one tile. Moves lookups to their places by one digit. Equal ones stay in order, because each thread has
/// neighbours and counts its own.
__global__ void __launch_bounds__(kThreads)
    order_kernel(Sorted s, const int32_t* count, int shift, const int32_t* digits, int64_t tiles) {
  __shared__ unsigned short places[kDigits * kThreads];
  __shared__ int starts[kDigits];
  const int me = static_cast<int>(threadIdx.x);
  const int64_t first = blockIdx.x * kTableTile + static_cast<int64_t>(me) * kItems, all = *count;
  if (blockIdx.x * kTableTile >= all) return;  // the same in the whole block
  for (int d = 0; d < kDigits; ++d) places[d * kThreads + me] = 0;
  uint32_t keys[kItems];
#pragma unroll
  for (int e = 0; e < kItems; ++e) {
    keys[e] = first + e < all ? s.keys[first + e] : 0;
    if (first + e < all) ++places[digit_of(keys[e], shift) * kThreads + me];
  }
  __syncthreads();
  int mine = 0;
  for (int i = 0; i < kDigits; ++i) mine += places[me * kDigits + i];
  int total = 0;
  int before = before_me(mine, total);
  for (int i = 0; i < kDigits; ++i) {
    const int here = places[me * kDigits + i];
    places[me * kDigits + i] = static_cast<unsigned short>(before);
    before += here;
  }
  __syncthreads();
  if (me < kDigits) starts[me] = places[me * kThreads];
  __syncthreads();
#pragma unroll
  for (int e = 0; e < kItems; ++e) {
    if (first + e >= all) continue;
    const int digit = digit_of(keys[e], shift);
    const int place = places[digit * kThreads + me]++ - starts[digit];
    const int64_t to = digits[digit * tiles + blockIdx.x] + place;
    s.to_keys[to] = keys[e];
    s.to_samples[to] = s.samples[first + e];
    if (s.weights) s.to_weights[to] = s.weights[first + e];
  }
}

// -- distinct rows ----------------------------------------------------------------------------------------------------
struct FirstOfRow {
  const uint32_t* keys;
  const int32_t* count;
  int32_t* first;
  template <int N>
  __device__ void run(int64_t i) const {
    first[i] = i < *count && keys[i] != kNoRow && (i == 0 || keys[i] != keys[i - 1]) ? 1 : 0;
  }
};

/// `before[i]`: distinct rows before lookup i; of all `most` in the end.
struct PlaceGroups {
  const uint32_t* keys;
  const int32_t* count;
  const int32_t* before;
  int64_t most;
  int32_t* groups;
  template <int N>
  __device__ void run(int64_t i) const {
    const auto is_row = [&](int64_t at) { return at < *count && keys[at] != kNoRow; };
    if (i < most && before[i + 1] > before[i]) groups[before[i]] = static_cast<int32_t>(i);
    if (!is_row(i) && (i == 0 || is_row(i - 1))) groups[before[most]] = static_cast<int32_t>(i);
  }
};

MergedRows sort_and_group(cudaStream_t stream, const TableRoom& room, int64_t most, const int32_t* count,
                          int64_t rows) {
  const int64_t tiles = (most + kTableTile - 1) / kTableTile;
  const dim3 grid = row_grid(tiles, "merging rows");
  int now = 0;
  // All bits of kNoRow are set, so it sorts after every row, as the key `rows` would.
  for (int shift = 0; shift < 32 && (rows >> shift) > 0; shift += kDigitBits, now = 1 - now) {
    ORRERY_LAUNCH(digits_kernel, grid, dim3(kThreads), 0, stream, room.keys[now], count, shift, room.digits, tiles);
    check_launch("merging rows, digits");
    exclusive_scan(stream, room.digits, room.digits, kDigits * tiles, room.sums);
    const Sorted sorted{room.keys[now],     room.samples[now],     room.weights[now],
                        room.keys[1 - now], room.samples[1 - now], room.weights[1 - now]};
    ORRERY_LAUNCH(order_kernel, grid, dim3(kThreads), 0, stream, sorted, count, shift, room.digits, tiles);
    check_launch("merging rows, order");
  }
  const uint32_t* const keys = room.keys[now];
  launch_packs<1>(stream, most, false, FirstOfRow{keys, count, room.before}, "merging rows, distinct ones");
  exclusive_scan(stream, room.before, room.before, most, room.sums);
  launch_packs<1>(stream, most + 1, false, PlaceGroups{keys, count, room.before, most, room.groups},
                  "merging rows, groups");
  MergedRows out;
  out.keys = keys;
  out.samples = room.samples[now];
  out.weights = room.weights[now];
  out.groups = room.groups;
  out.group_count = room.before + most;
  out.most_groups = most;
  return out;
}

// -- one sum for each distinct row ------------------------------------------------------------------------------------
/// A distinct row, for the threads that share it.
struct Row {
  int64_t group = 0, begin = 0, end = 0;  ///< lookups
  int64_t row = 0, state = 0;             ///< within its part; over all parts
  TablePart part;
};

__device__ inline Row row_of(const MergedRows& m, int64_t group) {
  Row out;
  out.group = group;
  out.begin = m.groups[group];
  out.end = m.groups[group + 1];
  out.state = m.keys[out.begin];
  int32_t low = 0, high = m.part_count;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (m.parts[middle].state <= out.state)
      low = middle;
    else
      high = middle;
  }
  out.part = m.parts[low];
  out.row = out.state - out.part.state;
  return out;
}

/// The first distinct row of a part.
__device__ inline int64_t first_group(const MergedRows& m, const TablePart& part) {
  int64_t low = 0, high = *m.group_count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (m.keys[m.groups[middle]] < static_cast<uint32_t>(part.state))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// N columns of the row's gradient.
template <int N>
__device__ inline Pack<N> summed(const MergedRows& m, const Row& row, int64_t column) {
  return sum_in_order<N>(
      row.end - row.begin,
      [&](int64_t i) {
        const int32_t sample = m.samples[row.begin + i], member = sample / m.of_member;
        const int32_t of_member = sample - member * m.of_member;
        return m.gradients + place_at_tables(row.part, member, of_member, m.per_node, m.nodes) + column;
      },
      [&](int64_t i) { return m.weights ? m.weights[row.begin + i] : 1.0F; });
}

template <int N>
__device__ inline double squares_of(const Pack<N>& pack) {
  double out = 0;
#pragma unroll
  for (int e = 0; e < N; ++e) out += static_cast<double>(pack.v[e]) * static_cast<double>(pack.v[e]);
  return out;
}

/// For each distinct row, gives `use` the sum of squares of its gradient, and then the gradient, pack by pack.
template <int N, class Use>
__global__ void __launch_bounds__(kThreads) rows_kernel(MergedRows m, int lanes, Use use) {
  use.begin_block();
  const int64_t group = own_item(lanes);
  const bool there = group < *m.group_count;
  const int64_t lane = own_lane(lanes);
  Row row;
  if (there) row = row_of(m, group);
  const int64_t width = there ? row.part.columns : 0;
  double squares = 0;
  Pack<N> kept[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int64_t column = (k * lanes + lane) * N;
    if (column >= width) continue;
    kept[k] = summed<N>(m, row, column);
    squares += squares_of(kept[k]);
  }
  for (int64_t column = (kKept * lanes + lane) * N; column < width; column += lanes * N)
    squares += squares_of(summed<N>(m, row, column));
  squares = lane_sum(squares, lanes);
  use.begin_row(m, row, there, squares, lane == 0);
  if (!there) return;
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int64_t column = (k * lanes + lane) * N;
    if (column < width) use.template apply<N>(row, column, kept[k]);
  }
  for (int64_t column = (kKept * lanes + lane) * N; column < width; column += lanes * N)
    use.template apply<N>(row, column, summed<N>(m, row, column));
}

template <class Use>
void launch_rows(cudaStream_t stream, const MergedRows& m, bool whole, const Use& use, const char* name) {
  if (m.most_groups == 0) return;
  whole = whole && m.packed && aligned(m.gradients);
  const int lanes = lanes_of(m.widest, whole ? 4 : 1);
  const dim3 grid = lane_grid(m.most_groups, lanes, name);
  if (whole)
    ORRERY_LAUNCH((rows_kernel<4, Use>), grid, dim3(kThreads), 0, stream, m, lanes, use);
  else
    ORRERY_LAUNCH((rows_kernel<1, Use>), grid, dim3(kThreads), 0, stream, m, lanes, use);
  check_launch(name);
}

struct KeepSquares {
  float* squares;
  __device__ void begin_block() {}
  __device__ void begin_row(const MergedRows& m, const Row& row, bool there, double sum, bool first) {
    if (there && first && row.part.squares >= 0)
      squares[row.part.squares + row.group - first_group(m, row.part)] = static_cast<float>(sum);
  }
  template <int N>
  __device__ void apply(const Row&, int64_t, const Pack<N>&) {}
};

struct KeepGradients {
  float* gradients;
  float* counts;
  __device__ void begin_block() {}
  __device__ void begin_row(const MergedRows&, const Row& row, bool there, double, bool first) {
    if (there && first && counts) counts[row.state] = static_cast<float>(row.end - row.begin);
  }
  template <int N>
  __device__ void apply(const Row& row, int64_t column, const Pack<N>& gradient) {
    store(gradients + row.part.offset + row.row * row.part.columns + column, gradient);
  }
};

/// What is the same for all rows in a step.
struct StepOfRows {
  RowStep s;
  AdamFactors adam;
  float rate;
  __device__ void begin_block() {
    if (s.rule == models::UpdateRule::adam) adam = adam_factors(s.step, s.step.now->rate);
    rate = static_cast<float>(s.step.now->rate);
  }
  /// The state of a row before the step: of Adagrad.
  [[nodiscard]] __device__ float state_before(int64_t state) const {
    return s.rule == models::UpdateRule::adagrad ? s.states[state] : 0;
  }
  /// Returns the row's rate. The first of the threads that share a row writes its state.
  __device__ float begin_row(int64_t state, float before, double squares, bool first) const {
    if (s.rule != models::UpdateRule::adagrad) return rate;
    const float after = before + static_cast<float>(squares / static_cast<double>(s.width));
    if (first) s.states[state] = after;
    return rate / (sqrtf(after) + static_cast<float>(s.step.epsilon));
  }
  template <int N>
  __device__ void apply(int64_t at, float of_row, const Pack<N>& g) const {
    Pack<N> value = load<N>(s.values + at);
    if (s.rule != models::UpdateRule::adam) {
#pragma unroll
      for (int e = 0; e < N; ++e) value.v[e] -= of_row * g.v[e];
      return store(s.values + at, value);
    }
    Pack<N> first = load<N>(s.states + at), second = load<N>(s.states + s.second + at);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      first.v[e] = adam.beta1 * first.v[e] + adam.rest1 * g.v[e];
      second.v[e] = adam.beta2 * second.v[e] + adam.rest2 * (g.v[e] * g.v[e]);
      value.v[e] -= adam.rate * (first.v[e] / (sqrtf(second.v[e]) * adam.denominator + adam.epsilon));
    }
    store(s.states + at, first);
    store(s.states + s.second + at, second);
    store(s.values + at, value);
  }
};

struct MoveRows {
  StepOfRows step;
  double* squares;
  float of_row = 0;
  __device__ void begin_block() { step.begin_block(); }
  __device__ void begin_row(const MergedRows& m, const Row& row, bool there, double sum, bool first) {
    const float before = there ? step.state_before(row.state) : 0;
    __syncwarp();  // all have read the state before one writes it
    if (!there) return;
    if (first) squares[row.group] = sum;
    double whole = sum;
    if (step.s.rule == models::UpdateRule::adagrad && step.s.whole_squares && row.part.squares >= 0)
      whole = static_cast<double>(step.s.whole_squares[row.part.squares + row.group - first_group(m, row.part)]);
    of_row = step.begin_row(row.state, before, whole, first);
  }
  template <int N>
  __device__ void apply(const Row& row, int64_t column, const Pack<N>& gradient) {
    step.apply(row.part.offset + row.row * row.part.columns + column, of_row, gradient);
  }
};

__global__ void __launch_bounds__(kThreads)
    partials_kernel(const double* squares, const int32_t* count, double* partials) {
  double sum = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < *count;
       i += kTablePartials * kThreads)
    sum += squares[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void total_kernel(const double* partials, float* total) {
  if (threadIdx.x > 0) return;
  double sum = static_cast<double>(total[0]);
  for (int i = 0; i < kTablePartials; ++i) sum += partials[i];
  total[0] = static_cast<float>(sum);
}

/// Some threads for each row.
template <int N>
__global__ void __launch_bounds__(kThreads) dense_rows_kernel(const float* gradients, const float* lookups,
                                                              int64_t rows, int64_t width, StepOfRows step, int lanes) {
  step.begin_block();
  const int64_t row = own_item(lanes), lane = own_lane(lanes);
  const bool there = row < rows;
  double squares = 0;
  for (int64_t column = lane * N; there && column < width; column += lanes * N)
    squares += squares_of(load<N>(gradients + row * width + column));
  squares = lane_sum(squares, lanes);
  const float before = there ? step.state_before(row) : 0;
  __syncwarp();  // all have read the state before one writes it
  if (!there || (lookups ? lookups[row] == 0 : squares == 0)) return;
  const float of_row = step.begin_row(row, before, squares, lane == 0);
  for (int64_t column = lane * N; column < width; column += lanes * N)
    step.apply(row * width + column, of_row, load<N>(gradients + row * width + column));
}

}  // namespace

MergedRows merge_bags(cudaStream_t stream, const TableParts& parts, const int32_t* lengths, const int32_t* values,
                      const float* gradients, const TableRoom& room) {
  const int64_t bags = parts.bags();
  exclusive_scan(stream, lengths, room.starts, bags, room.sums);
  launch_packs<1>(stream, bags, false,
                  KeysOfBags{parts, lengths, values, room.starts, room.keys[0], room.samples[0], room.weights[0]},
                  "merging rows, keys");
  MergedRows out = sort_and_group(stream, room, parts.lookups(), room.starts + bags, parts.most_rows);
  out.gradients = gradients;
  out.of_member = static_cast<int32_t>(parts.samples);
  out.per_node = parts.per_node;
  out.nodes = parts.nodes;
  out.parts = parts.own;
  out.part_count = parts.own_count;
  out.widest = parts.widest;
  out.packed = parts.packed;
  return out;
}

MergedRows merge_lookups(cudaStream_t stream, const TableParts& parts, const int32_t* indices, const float* gradients,
                         const TableRoom& room) {
  const int64_t most = parts.samples * parts.replicated_lookups;
  launch_packs<1>(stream, parts.samples * parts.replicated_count, false,
                  KeysOfLookups{parts, indices, room.keys[0], room.samples[0], room.weights[0], room.starts},
                  "merging rows, keys");
  MergedRows out = sort_and_group(stream, room, most, room.starts, parts.replicated_rows);
  out.gradients = gradients;
  out.of_member = static_cast<int32_t>(parts.samples);
  out.parts = parts.replicated;
  out.part_count = parts.replicated_count;
  out.widest = parts.widest;
  out.packed = parts.packed;
  return out;
}

void merged_squares(cudaStream_t stream, const MergedRows& rows, float* squares) {
  launch_rows(stream, rows, true, KeepSquares{squares}, "embedding_bag_squares");
}

void merged_gradients(cudaStream_t stream, const MergedRows& rows, float* gradients, float* counts) {
  launch_rows(stream, rows, aligned(gradients), KeepGradients{gradients, counts}, "embedding_lookup_grad");
}

void merged_update(cudaStream_t stream, const MergedRows& rows, const RowStep& step, float* total,
                   const TableRoom& room) {
  const bool whole = aligned(step.values) && aligned(step.states) && step.second % 4 == 0;
  launch_rows(stream, rows, whole, MoveRows{{step, {}, 0}, room.squares}, "embedding_bag_update");
  ORRERY_LAUNCH(partials_kernel, dim3(kTablePartials), dim3(kThreads), 0, stream, room.squares, rows.group_count,
                room.partials);
  check_launch("embedding_bag_update, squares");
  ORRERY_LAUNCH(total_kernel, dim3(1), dim3(kWarp), 0, stream, room.partials, total);
  check_launch("embedding_bag_update, total");
}

void table_update(cudaStream_t stream, const float* gradients, const float* lookups, int64_t rows, int64_t dim,
                  const RowStep& step) {
  if (rows == 0) return;
  const bool whole =
      dim % 4 == 0 && step.second % 4 == 0 && aligned(gradients) && aligned(step.values) && aligned(step.states);
  const int lanes = lanes_of(dim, whole ? 4 : 1);
  const dim3 grid = lane_grid(rows, lanes, "table_update");
  const StepOfRows moves{step, {}, 0};
  if (whole)
    ORRERY_LAUNCH(dense_rows_kernel<4>, grid, dim3(kThreads), 0, stream, gradients, lookups, rows, dim, moves, lanes);
  else
    ORRERY_LAUNCH(dense_rows_kernel<1>, grid, dim3(kThreads), 0, stream, gradients, lookups, rows, dim, moves, lanes);
  check_launch("table_update");
}

}  // namespace orrery::exec::cuda
