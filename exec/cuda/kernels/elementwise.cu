// Activations, additions and rotary positions: 16 bytes of every operand per thread where they allow it.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

// The tanh form of GELU that GPT-2 uses: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.
constexpr float kSqrtTwoOverPi = 0.79788456080286535588F;
constexpr float kGeluCubic = 0.044715F;

/// In fp32 the library's; for 16-bit results one with two fast instructions (an error of 1e-6, against 4e-3 and 5e-4 of
/// bf16 and fp16): at 4.8 TB/s a multiprocessor has some 13 instructions for each bf16 element.
template <class T>
__device__ inline float tanh_for(float x) {
  if constexpr (sizeof(T) == 4) return tanhf(x);
  return 1.0F - __fdividef(2.0F, __expf(2.0F * x) + 1.0F);
}
template <class T>
__device__ inline float sigmoid_for(float x) {
  if constexpr (sizeof(T) == 4) return 1.0F / (1.0F + expf(-x));
  return __fdividef(1.0F, 1.0F + __expf(-x));
}

template <class T>
struct Gelu {
  const T* x;
  T* y;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> v = load<N>(x + i);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float t = tanh_for<T>(kSqrtTwoOverPi * (v.v[e] + kGeluCubic * v.v[e] * v.v[e] * v.v[e]));
      v.v[e] = 0.5F * v.v[e] * (1.0F + t);
    }
    store(y + i, v);
  }
};

template <class T>
struct GeluGrad {
  const T* dy;
  const T* x;
  T* dx;
  template <int N>
  __device__ void run(int64_t i) const {
    const Pack<N> in = load<N>(x + i);
    Pack<N> g = load<N>(dy + i);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float v = in.v[e];
      const float t = tanh_for<T>(kSqrtTwoOverPi * (v + kGeluCubic * v * v * v));
      const float inner = kSqrtTwoOverPi * (1.0F + 3.0F * kGeluCubic * v * v);
      g.v[e] = g.v[e] * (0.5F * (1.0F + t) + 0.5F * v * (1.0F - t * t) * inner);
    }
    store(dx + i, g);
  }
};

/// GELU as it is defined, by the error function (same paper, section 2), as BERT has it.
constexpr float kSqrtHalf = 0.70710678118654752440F;
constexpr float kOneOverSqrtTwoPi = 0.39894228040143267794F;

template <class T>
struct GeluErf {
  const T* x;
  T* y;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> v = load<N>(x + i);
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] = 0.5F * v.v[e] * (1.0F + erff(kSqrtHalf * v.v[e]));
    store(y + i, v);
  }
};

template <class T>
struct GeluErfGrad {
  const T* dy;
  const T* x;
  T* dx;
  template <int N>
  __device__ void run(int64_t i) const {
    const Pack<N> in = load<N>(x + i);
    Pack<N> g = load<N>(dy + i);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float v = in.v[e];
      const float density = kOneOverSqrtTwoPi * expf(-0.5F * v * v);
      g.v[e] *= 0.5F * (1.0F + erff(kSqrtHalf * v)) + v * density;
    }
    store(dx + i, g);
  }
};

template <class T>
struct Tanh {
  const T* x;
  T* y;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> v = load<N>(x + i);
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] = tanhf(v.v[e]);
    store(y + i, v);
  }
};

template <class T>
struct TanhGrad {
  const T* dy;
  const T* y;
  T* dx;
  template <int N>
  __device__ void run(int64_t i) const {
    const Pack<N> out = load<N>(y + i);
    Pack<N> g = load<N>(dy + i);
#pragma unroll
    for (int e = 0; e < N; ++e) g.v[e] *= 1.0F - out.v[e] * out.v[e];
    store(dx + i, g);
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

/// Shazeer, "GLU Variants Improve Transformer" (2020): silu(gate) * up, gate and up side by side in a row of 2F.
template <class T>
struct SwiGlu {
  const T* x;
  T* y;
  int64_t columns;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t at = i / columns * 2 * columns + i % columns;
    Pack<N> gate = load<N>(x + at);
    const Pack<N> up = load<N>(x + at + columns);
#pragma unroll
    for (int e = 0; e < N; ++e) gate.v[e] = gate.v[e] * sigmoid_for<T>(gate.v[e]) * up.v[e];
    store(y + i, gate);
  }
};

template <class T>
struct SwiGluGrad {
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
      const float v = gate.v[e];
      const float s = sigmoid_for<T>(v);
      gate.v[e] = g.v[e] * up.v[e] * s * (1.0F + v * (1.0F - s));
      up.v[e] = g.v[e] * v * s;
    }
    store(dx + at, gate);
    store(dx + at + columns, up);
  }
};

template <class T>
struct AddBias {
  const T* residual;
  const T* x;
  const T* bias;
  T* y;
  int64_t columns;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> sum = load<N>(residual + i);
    add_to(sum, x + i);
    if (bias) add_to(sum, bias + i % columns);
    store(y + i, sum);
  }
};

template <class T, class B>
struct AddBiasToRows {
  const B* bias;
  T* y;
  int64_t columns;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> sum = load<N>(y + i);
    add_to(sum, bias + i % columns);
    store(y + i, sum);
  }
};

template <class T>
struct Add {
  const T* a;
  const T* b;
  T* c;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> sum = load<N>(a + i);
    add_to(sum, b + i);
    store(c + i, sum);
  }
};

/// Element i of the narrow matrix and where it is in the wide one.
template <class T, bool Take>
struct Columns {
  const T* from;
  T* to;
  int64_t wide, first, width;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t other = i / width * wide + first + i % width;
    store(to + (Take ? i : other), load<N>(from + (Take ? other : i)));
  }
};

/// One pair of a head of width 2 * half; heads [0, rotated) are q and k, the rest v, which is copied. The angle is
/// computed in double: at position 4096 a float is 2e-4 off.
template <class T>
struct Rope {
  const T* in;
  T* out;
  int64_t sequence, heads, rotated, half;
  Positions positions;
  double theta, direction;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t pair = i % half;
    const int64_t head = i / half % heads;
    const int64_t row = i / half / heads;
    const int64_t at = (row * heads + head) * 2 * half + pair;
    const float a = widen(in[at]);
    const float b = widen(in[at + half]);
    if (head >= rotated) {
      put(out + at, a);
      put(out + at + half, b);
      return;
    }
    const double rate = pow(theta, -static_cast<double>(pair) / static_cast<double>(half));
    const double angle = direction * static_cast<double>(position_of(positions, sequence, row % sequence)) * rate;
    const float c = static_cast<float>(cos(angle));
    const float s = static_cast<float>(sin(angle));
    put(out + at, a * c - b * s);
    put(out + at + half, b * c + a * s);
  }
};

}  // namespace

template <class T>
void gelu(cudaStream_t stream, const T* x, T* y, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, x, y), Gelu<T>{x, y}, "gelu");
}

template <class T>
void gelu_grad(cudaStream_t stream, const T* dy, const T* x, T* dx, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, dy, x, dx), GeluGrad<T>{dy, x, dx}, "gelu_grad");
}

template <class T>
void gelu_erf(cudaStream_t stream, const T* x, T* y, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, x, y), GeluErf<T>{x, y}, "gelu_erf");
}

template <class T>
void gelu_erf_grad(cudaStream_t stream, const T* dy, const T* x, T* dx, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, dy, x, dx), GeluErfGrad<T>{dy, x, dx}, "gelu_erf_grad");
}

template <class T>
void tanh_of(cudaStream_t stream, const T* x, T* y, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, x, y), Tanh<T>{x, y}, "tanh");
}

template <class T>
void tanh_grad(cudaStream_t stream, const T* dy, const T* y, T* dx, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, dy, y, dx), TanhGrad<T>{dy, y, dx}, "tanh_grad");
}

template <class T>
void relu(cudaStream_t stream, const T* x, T* y, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, x, y), Relu<T>{x, y}, "relu");
}

template <class T>
void relu_grad(cudaStream_t stream, const T* dy, const T* y, T* dx, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, dy, y, dx), ReluGrad<T>{dy, y, dx}, "relu_grad");
}

template <class T>
void swiglu(cudaStream_t stream, const T* x, T* y, int64_t rows, int64_t columns) {
  launch_packs<kWidth<T>>(stream, rows * columns, packs<T>(columns, x, y), SwiGlu<T>{x, y, columns}, "swiglu");
}

template <class T>
void swiglu_grad(cudaStream_t stream, const T* dy, const T* x, T* dx, int64_t rows, int64_t columns) {
  launch_packs<kWidth<T>>(stream, rows * columns, packs<T>(columns, dy, x, dx), SwiGluGrad<T>{dy, x, dx, columns},
                          "swiglu_grad");
}

template <class T>
void add_bias(cudaStream_t stream, const T* residual, const T* x, const T* bias, T* y, int64_t rows, int64_t columns) {
  launch_packs<kWidth<T>>(stream, rows * columns, packs<T>(columns, residual, x, bias, y),
                          AddBias<T>{residual, x, bias, y, columns}, "add_bias");
}

template <class T>
void add(cudaStream_t stream, const T* a, const T* b, T* c, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, a, b, c), Add<T>{a, b, c}, "add");
}

template <class T, class B>
void add_bias_to_rows(cudaStream_t stream, const B* bias, T* y, int64_t rows, int64_t columns) {
  constexpr int kEach = kWidth < T >> kWidth<B> ? kWidth<T> : kWidth<B>;
  const bool whole = packs<T>(columns, bias, y) && columns % kEach == 0;
  launch_packs<kEach>(stream, rows * columns, whole, AddBiasToRows<T, B>{bias, y, columns}, "matmul, bias");
}

template <class T>
void take_columns(cudaStream_t stream, const T* from, T* to, int64_t rows, int64_t wide, int64_t first, int64_t width) {
  const bool whole = packs<T>(wide, from, to) && packs<T>(first) && packs<T>(width);
  launch_packs<kWidth<T>>(stream, rows * width, whole, Columns<T, true>{from, to, wide, first, width}, "split_kv");
}

template <class T>
void put_columns(cudaStream_t stream, const T* from, T* to, int64_t rows, int64_t wide, int64_t first, int64_t width) {
  const bool whole = packs<T>(wide, from, to) && packs<T>(first) && packs<T>(width);
  launch_packs<kWidth<T>>(stream, rows * width, whole, Columns<T, false>{from, to, wide, first, width}, "merge_kv");
}

template <class T>
void rope(cudaStream_t stream, const AttentionShape& shape, const Positions& positions, const T* in, T* out,
          double theta, double direction) {
  const int64_t heads = shape.heads + 2 * shape.kv_heads;
  const int64_t half = shape.head_dim / 2;
  const int64_t pairs = shape.batch * shape.sequence * heads * half;
  const Rope<T> body{in, out, shape.sequence, heads, shape.heads + shape.kv_heads, half, positions, theta, direction};
  launch_packs<1>(stream, pairs, false, body, "rope");
}

#define ORRERY_INSTANTIATE(T)                                                                 \
  template void gelu(cudaStream_t, const T*, T*, int64_t);                                    \
  template void gelu_grad(cudaStream_t, const T*, const T*, T*, int64_t);                     \
  template void gelu_erf(cudaStream_t, const T*, T*, int64_t);                                \
  template void gelu_erf_grad(cudaStream_t, const T*, const T*, T*, int64_t);                 \
  template void tanh_of(cudaStream_t, const T*, T*, int64_t);                                 \
  template void tanh_grad(cudaStream_t, const T*, const T*, T*, int64_t);                     \
  template void relu(cudaStream_t, const T*, T*, int64_t);                                    \
  template void relu_grad(cudaStream_t, const T*, const T*, T*, int64_t);                     \
  template void swiglu(cudaStream_t, const T*, T*, int64_t, int64_t);                         \
  template void swiglu_grad(cudaStream_t, const T*, const T*, T*, int64_t, int64_t);          \
  template void add_bias(cudaStream_t, const T*, const T*, const T*, T*, int64_t, int64_t);   \
  template void add(cudaStream_t, const T*, const T*, T*, int64_t);                           \
  template void add_bias_to_rows(cudaStream_t, const T*, T*, int64_t, int64_t);               \
  template void take_columns(cudaStream_t, const T*, T*, int64_t, int64_t, int64_t, int64_t); \
  template void put_columns(cudaStream_t, const T*, T*, int64_t, int64_t, int64_t, int64_t);  \
  template void rope(cudaStream_t, const AttentionShape&, const Positions&, const T*, T*, double, double);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE
template void add_bias_to_rows(cudaStream_t, const __half*, float*, int64_t, int64_t);
template void add_bias_to_rows(cudaStream_t, const __nv_bfloat16*, float*, int64_t, int64_t);

}  // namespace orrery::exec::cuda
