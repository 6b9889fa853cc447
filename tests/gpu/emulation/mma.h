#pragma once
/// Warp-wide products of 16 x 16 tiles as CUDA's wmma has them, over emulated warps: lane l has elements 8 l to 8 l + 7
/// of a tile, row by row, and a product reads what the other lanes have published.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16);
  static constexpr int num_elements = 8;
  float x[num_elements];
};

namespace emulated {

inline float to_float(float value) {
  return value;
}
inline float to_float(__half value) {
  return __half2float(value);
}
inline float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

inline unsigned thread() {
  return threadIdx.x + blockDim.x * threadIdx.y;
}

/// All 256 elements of a warp's tile. Two places alternate, so that nobody overwrites what is still read.
inline const float* published(const float* mine) {
  static thread_local float places[32][2][256];
  static thread_local unsigned uses[1024];
  const unsigned me = thread();
  float* place = places[me / 32][uses[me]++ % 2];
  for (unsigned i = 0; i < 8; ++i) place[me % 32 * 8 + i] = mine[i];
  emulation::warp_vote(true);
  return place;
}

}  // namespace emulated

template <class F>
void fill_fragment(F& f, float value) {
  for (float& v : f.x) v = value;
}

template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& f, const T* from, unsigned stride) {
  const unsigned lane = emulated::thread() % 32;
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned row = (lane * 8 + i) / 16, column = (lane * 8 + i) % 16;
    const bool rows = std::is_same_v<Layout, row_major>;
    f.x[i] = emulated::to_float(from[rows ? row * stride + column : column * stride + row]);
  }
  emulation::warp_vote(true);
}
inline void load_matrix_sync(fragment<accumulator, 16, 16, 16, float>& f, const float* from, unsigned stride,
                             layout_t) {
  const unsigned lane = emulated::thread() % 32;
  for (unsigned i = 0; i < 8; ++i) f.x[i] = from[(lane * 8 + i) / 16 * stride + (lane * 8 + i) % 16];
  emulation::warp_vote(true);
}
inline void store_matrix_sync(float* to, const fragment<accumulator, 16, 16, 16, float>& f, unsigned stride, layout_t) {
  const unsigned lane = emulated::thread() % 32;
  for (unsigned i = 0; i < 8; ++i) to[(lane * 8 + i) / 16 * stride + (lane * 8 + i) % 16] = f.x[i];
  emulation::warp_vote(true);
}

template <class T, class LayoutA, class LayoutB>
void mma_sync(fragment<accumulator, 16, 16, 16, float>& d, const fragment<matrix_a, 16, 16, 16, T, LayoutA>& a,
              const fragment<matrix_b, 16, 16, 16, T, LayoutB>& b, const fragment<accumulator, 16, 16, 16, float>& c) {
  float left[256];
  const float* all = emulated::published(a.x);
  for (int i = 0; i < 256; ++i) left[i] = all[i];
  const float* right = emulated::published(b.x);
  const unsigned lane = emulated::thread() % 32;
  for (unsigned i = 0; i < 8; ++i) {
    const unsigned row = (lane * 8 + i) / 16, column = (lane * 8 + i) % 16;
    float sum = c.x[i];
    for (unsigned k = 0; k < 16; ++k) sum += left[row * 16 + k] * right[k * 16 + column];
    d.x[i] = sum;
  }
}

}  // namespace nvcuda::wmma
