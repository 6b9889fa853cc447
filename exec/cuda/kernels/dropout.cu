// Dropout of rows, alone and within the residual's addition: eight elements to a thread, which is what one draw serves.
#include "exec/cuda/kernels/dropout_device.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kServed = static_cast<int>(models::kDropoutServed);

template <class T>
struct DropRows {
  RowMasks masks;
  const T* x;
  T* y;
  int64_t columns;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> v = load<N>(x + i);
    const Pack<N> factors = factors_of<N>(masks, key_of(masks.draw), i, columns);
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] *= factors.v[e];
    store(y + i, v);
  }
};

template <class T>
struct AddDropped {
  RowMasks masks;
  const T* residual;
  const T* x;
  const T* bias;
  T* y;
  int64_t columns;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> v = load<N>(x + i);
    if (bias) add_to(v, bias + i % columns);
    const Pack<N> factors = factors_of<N>(masks, key_of(masks.draw), i, columns);
    const Pack<N> base = load<N>(residual + i);
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] = base.v[e] + factors.v[e] * v.v[e];
    store(y + i, v);
  }
};

}  // namespace

template <class T>
void drop_rows(cudaStream_t stream, const RowMasks& masks, const T* x, T* y, int64_t rows, int64_t columns) {
  const bool whole = packs<T>(columns, x, y) && columns % kServed == 0;
  launch_packs<kServed>(stream, rows * columns, whole, DropRows<T>{masks, x, y, columns}, "dropout");
}

template <class T>
void add_dropped(cudaStream_t stream, const RowMasks& masks, const T* residual, const T* x, const T* bias, T* y,
                 int64_t rows, int64_t columns) {
  const bool whole = packs<T>(columns, residual, x, bias, y) && columns % kServed == 0;
  launch_packs<kServed>(stream, rows * columns, whole, AddDropped<T>{masks, residual, x, bias, y, columns},
                        "add_bias with dropout");
}

#define ORRERY_INSTANTIATE(T)                                                             \
  template void drop_rows(cudaStream_t, const RowMasks&, const T*, T*, int64_t, int64_t); \
  template void add_dropped(cudaStream_t, const RowMasks&, const T*, const T*, const T*, T*, int64_t, int64_t);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda
