#pragma once
/// What the attention kernels share: shapes, masks, operands, and merging the results of two sets of keys.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/dropout_device.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {

struct Layout {
  int64_t sequence, tiles;
  int64_t width, kv_width;  // of a token's row in qkv, and of a row that keys are read from
  int heads, group, dim;    // group: query heads per key head
  int key_heads;
  bool causal, flash;
  float scale;
  // How many keys count, and from which query on; fewer than all for a block of a ring.
  int64_t first_query, keys;
  bool accumulate;
  ScoreMasks masks;
  // Changes of scores besides the scale; 0: none.
  float cap;
  int64_t window;
  int alibi_heads, first_head;
};

/// ALiBi's slope of a head, as in models/alibi.h.
__device__ inline float slope_of(const Layout& l, int head) {
  if (l.alibi_heads == 0) return 0;
  const int own = l.first_head + head;
  int n = 1;
  while (2 * n <= l.alibi_heads) n *= 2;
  const int power = own < n ? 8 * (own + 1) : 4 * (2 * (own - n) + 1);
  return exp2f(-static_cast<float>(power) / static_cast<float>(n));
}
/// A scaled score after the cap, plus its slope times the distance. `bend`: the cap's derivative, a factor of the
/// gradient.
__device__ inline float bent(const Layout& l, float slope, int64_t query, int64_t key, float s, float& bend) {
  bend = 1;
  if (l.cap > 0) {
    const float t = tanhf(s / l.cap);
    s = l.cap * t;
    bend = 1.0F - t * t;
  }
  if (l.alibi_heads > 0) s += slope * static_cast<float>(key - query);
  return s;
}
__device__ inline float bent(const Layout& l, float slope, int64_t query, int64_t key, float s) {
  float unused;
  return bent(l, slope, query, key, s, unused);
}

/// Operands: q in rows of `width`, keys and values in rows of `kv_width`; their gradients likewise.
template <class T>
struct Inputs {
  const T* q;
  const T* k;
  const T* v;
};
template <class T>
struct Gradients {
  T* q;
  T* k;
  T* v;
};

/// What backward reads besides q, k and v.
template <class T>
struct Saved {
  const T* dy;
  const T* y;
  const float* lse;  ///< null: probabilities instead
  const T* probabilities;
};

/// Where a block works: one sequence and one head, from a one-dimensional grid with the tile running fastest.
struct Place {
  int64_t batch, tile;
  int head;
};

__device__ inline Place place_of(int64_t tiles, int heads) {
  const int64_t index = blockIdx.x;
  const int64_t pair = index / tiles;
  return {pair / heads, index % tiles, static_cast<int>(pair % heads)};
}

__device__ inline bool masked(const Layout& l, int64_t query, int64_t key) {
  return key >= l.keys || query < l.first_query || (l.causal && key > query) ||
         (l.window > 0 && query - key >= l.window);
}

/// The end of the tiles of keys that some query of `tile` sees.
__device__ inline int64_t tiles_seen(const Layout& l, int64_t tile, int64_t size) {
  const int64_t all = (l.keys + size - 1) / size;
  return l.causal && tile + 1 < all ? tile + 1 : all;
}

/// The first tile of keys that some query of `tile` sees; and, of `all` tiles of queries, the end of those that see
/// some key of `tile`.
__device__ inline int64_t first_tile_seen(const Layout& l, int64_t tile, int64_t size) {
  const int64_t first = tile * size - l.window + 1;
  return l.window > 0 && first > 0 ? first / size : 0;
}
__device__ inline int64_t tiles_seeing(const Layout& l, int64_t tile, int64_t size, int64_t all) {
  const int64_t end = ((tile + 1) * size + l.window - 2) / size + 1;  // tile of the last query that sees the tile's
                                                                      // last key: window - 1 later
  return l.window > 0 && end < all ? end : all;
}

/// Draws for the probabilities of one query of one head.
struct QueryDraw {
  uint64_t key, high, first;  // Philox's key; half of its counter; the element of this query and the first key
};
__device__ inline QueryDraw draw_of(const Layout& l, uint64_t key, int64_t batch, int64_t head, int64_t query) {
  const int64_t all = l.sequence * l.masks.queries.context;
  const int64_t row = (l.masks.first_head + head) * all + position_of(l.masks.queries, l.sequence, query);
  return {key, counter_high(l.masks.draw, batch), static_cast<uint64_t>(row * all)};
}
/// Which of `N` keys from `first_key` on are kept, one bit each. The keys of a ring's block are two runs of the
/// sequence.
template <int N>
__device__ inline unsigned kept_keys(const Layout& l, const QueryDraw& draw, int64_t first_key) {
  const Positions owner{l.masks.queries.context, l.masks.owner};
  unsigned kept = 0;
  int done = 0;
#pragma unroll 1
  do {
    const int64_t key = first_key + done, left = l.sequence / 2 - key;  // left in the first run
    const unsigned run =
        kept_run<N>(draw.key, draw.high, draw.first + static_cast<uint64_t>(position_of(owner, l.sequence, key)),
                    l.masks.draw.threshold);
    const bool breaks = owner.context > 1 && left > 0 && left < N - done;
    kept |= (breaks ? run & ((1U << left) - 1) : run) << done;
    done = breaks ? done + static_cast<int>(left) : N;
  } while (done < N);
  return kept & first_bits<N>();
}

/// How to merge the result of these keys into a row of y that other keys made, from both log-sum-exps: the merged one,
/// how much of the old row stays, and how much of the new one is added.
struct Merged {
  float lse, keep, add;
};
__device__ inline Merged merge(float before, float here) {
  const float highest = fmaxf(before, here);
  const float lse = highest + logf(expf(before - highest) + expf(here - highest));
  return {lse, expf(before - lse), expf(here - lse)};
}

// tensor_attention.cu: flash attention of 16-bit operands on tensor cores.
/// Whether the tensor-core kernels take these operands: head widths that they were compiled for, addresses of 16 bytes.
template <class T>
bool fits_tensor_cores(const Layout& l, const Inputs<T>& in) {
  const auto aligned = [](const T* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  return sizeof(T) == 2 && l.flash && has_tensor_kernel(l.dim) && aligned(in.q) && aligned(in.k) && aligned(in.v);
}
template <class T>
void tensor_forward(cudaStream_t stream, const Layout& l, int64_t batch, const Inputs<T>& in, T* y, float* lse);
/// `delta`: room for one float per query and head.
template <class T>
void tensor_backward(cudaStream_t stream, const Layout& l, int64_t batch, const Inputs<T>& in, const Saved<T>& saved,
                     const Gradients<T>& out, float* delta);

}  // namespace orrery::exec::cuda
