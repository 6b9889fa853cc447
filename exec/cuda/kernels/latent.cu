// Latent attention: heads are packed for attention, and gradients unpacked.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/latent.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

/// For a column where pairs are (i, i + half): its place where pairs are neighbours (models/operators/op.h).
__device__ inline int64_t of_pairs(int64_t column, int64_t turned) {
  return column < turned / 2 ? 2 * column : 2 * (column - turned / 2) + 1;
}
__device__ inline int64_t of_halves(int64_t column, int64_t turned) {
  return column / 2 + column % 2 * (turned / 2);
}

/// An element of qkv each.
template <class T>
struct LatentPack {
  LatentShape s;
  const T* q;
  const T* kv;
  const T* key;
  T* qkv;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t all = s.heads * s.width, row = i / (3 * all), part = i / all % 3;
    const int64_t head = i % all / s.width, column = i % s.width, stays = s.width - s.turned;
    const T* const made = kv + (row * s.heads + head) * (stays + s.value);
    float value = 0;
    if (part == 0)
      value = widen(
          q[row * all + head * s.width + (column < s.turned ? stays + of_pairs(column, s.turned) : column - s.turned)]);
    else if (part == 1)
      value = widen(column < s.turned ? key[row * s.turned + of_pairs(column, s.turned)] : made[column - s.turned]);
    else if (column < s.value)
      value = widen(made[stays + column]);
    put(qkv + i, value);
  }
};

/// An element of dq each.
template <class T>
struct QueryGrad {
  LatentShape s;
  const T* dqkv;
  T* dq;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t all = s.heads * s.width, row = i / all, head = i % all / s.width, column = i % s.width;
    const int64_t stays = s.width - s.turned;
    const int64_t from = column < stays ? s.turned + column : of_halves(column - stays, s.turned);
    dq[i] = dqkv[row * 3 * all + head * s.width + from];
  }
};

/// An element of dkv each.
template <class T>
struct MadeGrad {
  LatentShape s;
  const T* dqkv;
  T* dkv;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t all = s.heads * s.width, stays = s.width - s.turned, made = stays + s.value;
    const int64_t row = i / (s.heads * made), head = i / made % s.heads, column = i % made;
    const T* const of_k = dqkv + row * 3 * all + all + head * s.width;
    dkv[i] = column < stays ? of_k[s.turned + column] : of_k[all + column - stays];
  }
};

/// An element of dkey each: the sum over the heads, in their order.
template <class T>
struct KeyGrad {
  LatentShape s;
  const T* dqkv;
  T* dkey;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t all = s.heads * s.width, row = i / s.turned, column = i % s.turned;
    const T* const of_k = dqkv + row * 3 * all + all + of_halves(column, s.turned);
    float sum = 0;
    for (int64_t head = 0; head < s.heads; ++head) sum += widen(of_k[head * s.width]);
    put(dkey + i, sum);
  }
};

}  // namespace

template <class T>
void latent_pack(cudaStream_t stream, const LatentShape& shape, const T* q, const T* kv, const T* key, T* qkv) {
  launch_packs<1>(stream, shape.rows * 3 * shape.heads * shape.width, false, LatentPack<T>{shape, q, kv, key, qkv},
                  "latent_pack");
}

template <class T>
void latent_pack_grad(cudaStream_t stream, const LatentShape& shape, const T* dqkv, T* dq, T* dkv, T* dkey) {
  const int64_t n = shape.rows, made = shape.width - shape.turned + shape.value;
  launch_packs<1>(stream, n * shape.heads * shape.width, false, QueryGrad<T>{shape, dqkv, dq}, "latent_pack_grad, q");
  launch_packs<1>(stream, n * shape.heads * made, false, MadeGrad<T>{shape, dqkv, dkv}, "latent_pack_grad, kv");
  launch_packs<1>(stream, n * shape.turned, false, KeyGrad<T>{shape, dqkv, dkey}, "latent_pack_grad, key");
}

#define ORRERY_INSTANTIATE(T)                                                                    \
  template void latent_pack(cudaStream_t, const LatentShape&, const T*, const T*, const T*, T*); \
  template void latent_pack_grad(cudaStream_t, const LatentShape&, const T*, T*, T*, T*);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda
