#pragma once
/// Loops over elements of activations by their formulas (exec/engine/activations.h): over all rows, or over the rows
/// that are present in experts' slots.
#include "exec/cuda/kernels/functions_device.h"
#include "exec/cuda/kernels/values.h"
#include "exec/engine/activations.h"

namespace orrery::exec::cuda {

template <class T, class Formula>
struct Activate {
  const T* x;
  T* y;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> v = load<N>(x + i);
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] = Formula::template value<MathFor<T>>(v.v[e]);
    store(y + i, v);
  }
};

template <class T, class Formula>
struct ActivateGrad {
  const T* dy;
  const T* x;
  T* dx;
  template <int N>
  __device__ void run(int64_t i) const {
    const Pack<N> in = load<N>(x + i);
    Pack<N> g = load<N>(dy + i);
#pragma unroll
    for (int e = 0; e < N; ++e) g.v[e] *= Formula::template slope<MathFor<T>>(in.v[e]);
    store(dx + i, g);
  }
};

template <class T, class Formula>
struct Gate {
  const T* x;
  T* y;
  int64_t columns;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t at = i / columns * 2 * columns + i % columns;
    Pack<N> gate = load<N>(x + at);
    const Pack<N> up = load<N>(x + at + columns);
#pragma unroll
    for (int e = 0; e < N; ++e) gate.v[e] = Formula::template value<MathFor<T>>(gate.v[e]) * Formula::up(up.v[e]);
    store(y + i, gate);
  }
};

template <class T, class Formula>
struct GateGrad {
  const T* dy;
  const T* x;
  T* dx;
  int64_t columns;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t at = i / columns * 2 * columns + i % columns;
    Pack<N> gate = load<N>(x + at);
    Pack<N> up = load<N>(x + at + columns);
    const Pack<N> g = load<N>(dy + i);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float v = gate.v[e], u = up.v[e];
      gate.v[e] = g.v[e] * Formula::up(u) * Formula::template slope<MathFor<T>>(v);
      up.v[e] = Formula::through(g.v[e] * Formula::template value<MathFor<T>>(v), u);
    }
    store(dx + at, gate);
    store(dx + at + columns, up);
  }
};

template <class T>
struct Relu {
  const T* x;
  T* y;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> v = load<N>(x + i);
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] = v.v[e] <= 0 ? 0.0F : v.v[e];  // NaN stays NaN
    store(y + i, v);
  }
};

template <class T>
struct ReluGrad {
  const T* dy;
  const T* y;
  T* dx;
  template <int N>
  __device__ void run(int64_t i) const {
    const Pack<N> out = load<N>(y + i);
    Pack<N> g = load<N>(dy + i);
#pragma unroll
    for (int e = 0; e < N; ++e) g.v[e] = out.v[e] > 0 ? g.v[e] : 0.0F;
    store(dx + i, g);
  }
};

}  // namespace orrery::exec::cuda
