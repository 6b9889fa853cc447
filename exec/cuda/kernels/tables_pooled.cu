// Moves pooled vectors between the slots that they travel in and the vectors that interact, and codes them in fewer
// bits for the way.
#include "exec/cuda/kernels/tables_device.h"

namespace orrery::exec::cuda {
namespace {

constexpr float kMostCode = 127;
constexpr int64_t kScaleBytes = 4;

/// Calls see(part, place) for the parts that have this element of a table's vector, in the order of their sum. `place`
/// is the place of the element in the slots, or for replicated tables among the rank's own.
template <class See>
__device__ inline void each_part(const TableParts& p, int64_t table, int64_t sample, int64_t column, const See& see) {
  for (int32_t i = p.of_table[table]; i < p.of_table[table + 1]; ++i) {
    const JoinedPart& part = p.joined[i];
    const int64_t own = column - part.column_begin;
    if (own >= 0 && own < part.columns) see(part, part.at + sample * part.stride + own);
  }
}

struct Join {
  TableParts p;
  const float* pooled;
  const float* bottom;
  const float* local;
  float* out;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t column = i % p.dim, vector = i / p.dim % (p.tables + 1), sample = i / (p.dim * (p.tables + 1));
    if (vector == 0) return store(out + i, load<N>(bottom + sample * p.dim + column));
    Pack<N> sum;
#pragma unroll
    for (int e = 0; e < N; ++e) sum.v[e] = 0;
    each_part(p, vector - 1, sample, column, [&](const JoinedPart& part, int64_t place) {
      const Pack<N> more = load<N>((part.local ? local : pooled) + place);
#pragma unroll
      for (int e = 0; e < N; ++e) sum.v[e] += part.weight * more.v[e];
    });
    store(out + i, sum);
  }
};

struct Split {
  TableParts p;
  const float* dy;
  float* pooled;
  float* bottom;
  float* local;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t column = i % p.dim, vector = i / p.dim % (p.tables + 1), sample = i / (p.dim * (p.tables + 1));
    const Pack<N> given = load<N>(dy + i);
    if (vector == 0) return store(bottom + sample * p.dim + column, given);
    each_part(p, vector - 1, sample, column, [&](const JoinedPart& part, int64_t place) {
      Pack<N> own;
#pragma unroll
      for (int e = 0; e < N; ++e) own.v[e] = part.weight * given.v[e];
      store((part.local ? local : pooled) + place, own);
    });
  }
};

/// Where a value of pooled vectors lies among the values and among the coded ones; -1 in a slot's unused room.
struct ValueAt {
  int64_t values = -1, coded = -1;
};
__device__ inline ValueAt value_at(const TableParts& p, const CodedSlots& slots, int64_t i) {
  for (int w = 0; w < kWays; ++w) {
    const CodedSlots::Way& way = slots.ways[w];
    const int64_t all = way.count * way.value_slot;
    if (i >= all) {
      i -= all;
      continue;
    }
    const int64_t slot = i / way.value_slot, at = i % way.value_slot;
    const int64_t owner = way.every > 0 ? slot * way.every : slots.own;
    if (at >= p.samples * p.columns[w * p.ranks + owner]) return {};
    return {way.values + slot * way.value_slot + at, way.coded + slot * way.coded_slot + at};
  }
  return {};
}

template <class T>
struct Encode {
  TableParts p;
  CodedSlots slots;
  const float* x;
  T* out;
  template <int N>
  __device__ void run(int64_t i) const {
    const ValueAt at = value_at(p, slots, i);
    if (at.values >= 0) put(out + at.coded, x[at.values]);
  }
};
template <class T>
struct Decode {
  TableParts p;
  CodedSlots slots;
  const T* x;
  float* out;
  template <int N>
  __device__ void run(int64_t i) const {
    const ValueAt at = value_at(p, slots, i);
    if (at.values >= 0) out[at.values] = widen(x[at.coded]);
  }
};

/// A vector of a slot: of one sample and one part.
struct VectorAt {
  bool there = false;
  int64_t values = 0, coded = 0, width = 0;
};
__device__ inline VectorAt vector_at(const TableParts& p, const CodedSlots& slots, int64_t item) {
  VectorAt out;
  const int64_t place = item % p.most_shards, sample = item / p.most_shards % p.samples;
  int64_t slot = item / (p.most_shards * p.samples);
  int w = 0;
  for (; w < kWays && slot >= slots.ways[w].count; ++w) slot -= slots.ways[w].count;
  if (w == kWays) return out;
  const CodedSlots::Way& way = slots.ways[w];
  const int64_t owner = way.every > 0 ? slot * way.every : slots.own;
  if (place >= p.first[owner + 1] - p.first[owner]) return out;
  const TablePart& part = p.parts[p.first[owner] + place];
  if (part.way != w) return out;
  const int64_t columns = p.columns[w * p.ranks + owner], vectors = p.vectors[w * p.ranks + owner];
  out.there = true;
  out.values = way.values + slot * way.value_slot + sample * columns + part.column;
  out.coded = way.coded + slot * way.coded_slot + sample * (columns + kScaleBytes * vectors) + part.column +
              kScaleBytes * part.place_of_way;
  out.width = part.columns;
  return out;
}

/// A warp for each vector.
__global__ void __launch_bounds__(kThreads)
    encode_bytes_kernel(TableParts p, CodedSlots slots, const float* x, uint8_t* out) {
  const VectorAt at = vector_at(p, slots, own_item(kWarp));
  const int lane = own_lane(kWarp);
  float most = 0;
  for (int64_t j = lane; j < at.width; j += kWarp) most = fmaxf(most, fabsf(x[at.values + j]));
  for (int offset = kWarp / 2; offset > 0; offset /= 2) most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
  if (!at.there) return;
  const float scale = most / kMostCode;
  const unsigned bits = __float_as_uint(scale);
  if (lane < kScaleBytes) out[at.coded + lane] = static_cast<uint8_t>(bits >> (8 * lane));
  for (int64_t j = lane; j < at.width; j += kWarp) {
    const float code = scale > 0 ? roundf(x[at.values + j] / scale) : 0;
    out[at.coded + kScaleBytes + j] = static_cast<uint8_t>(static_cast<signed char>(code));
  }
}

__global__ void __launch_bounds__(kThreads)
    decode_bytes_kernel(TableParts p, CodedSlots slots, const uint8_t* x, float* out) {
  const VectorAt at = vector_at(p, slots, own_item(kWarp));
  if (!at.there) return;
  unsigned bits = 0;
  for (int i = 0; i < kScaleBytes; ++i) bits |= static_cast<unsigned>(x[at.coded + i]) << (8 * i);
  const float scale = __uint_as_float(bits);
  for (int64_t j = own_lane(kWarp); j < at.width; j += kWarp)
    out[at.values + j] = scale * static_cast<float>(static_cast<signed char>(x[at.coded + kScaleBytes + j]));
}

}  // namespace

void pooled_join(cudaStream_t stream, const TableParts& parts, const float* pooled, const float* bottom,
                 const float* local, float* out) {
  const bool whole = parts.packed && aligned(pooled) && aligned(bottom) && aligned(local) && aligned(out);
  launch_packs<4>(stream, parts.samples * (parts.tables + 1) * parts.dim, whole,
                  Join{parts, pooled, bottom, local, out}, "pooled_join");
}

void pooled_split(cudaStream_t stream, const TableParts& parts, const float* dy, float* pooled, float* bottom,
                  float* local) {
  const bool whole = parts.packed && aligned(dy) && aligned(pooled) && aligned(bottom) && aligned(local);
  launch_packs<4>(stream, parts.samples * (parts.tables + 1) * parts.dim, whole,
                  Split{parts, dy, pooled, bottom, local}, "pooled_split");
}

template <class T>
void encode_pooled(cudaStream_t stream, const TableParts& parts, const CodedSlots& slots, const float* x, T* out) {
  launch_packs<1>(stream, slots.values(), false, Encode<T>{parts, slots, x, out}, "encode_pooled");
}
template <class T>
void decode_pooled(cudaStream_t stream, const TableParts& parts, const CodedSlots& slots, const T* x, float* out) {
  launch_packs<1>(stream, slots.values(), false, Decode<T>{parts, slots, x, out}, "decode_pooled");
}

void encode_pooled_bytes(cudaStream_t stream, const TableParts& parts, const CodedSlots& slots, const float* x,
                         uint8_t* out) {
  const int64_t vectors = slots.count() * parts.samples * parts.most_shards;
  if (vectors == 0) return;
  ORRERY_LAUNCH(encode_bytes_kernel, lane_grid(vectors, kWarp, "encode_pooled"), dim3(kThreads), 0, stream, parts,
                slots, x, out);
  check_launch("encode_pooled");
}
void decode_pooled_bytes(cudaStream_t stream, const TableParts& parts, const CodedSlots& slots, const uint8_t* x,
                         float* out) {
  const int64_t vectors = slots.count() * parts.samples * parts.most_shards;
  if (vectors == 0) return;
  ORRERY_LAUNCH(decode_bytes_kernel, lane_grid(vectors, kWarp, "decode_pooled"), dim3(kThreads), 0, stream, parts,
                slots, x, out);
  check_launch("decode_pooled");
}

#define ORRERY_INSTANTIATE(T)                                                                        \
  template void encode_pooled(cudaStream_t, const TableParts&, const CodedSlots&, const float*, T*); \
  template void decode_pooled(cudaStream_t, const TableParts&, const CodedSlots&, const T*, float*);
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda
