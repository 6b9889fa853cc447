// Activations, additions and rotary positions: 16 bytes of every operand per thread where they allow it.
#include "exec/cuda/kernels/activations_device.h"
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/functions_device.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

/// GELU as it is defined, by the error function (Hendrycks and Gimpel 2016, section 2), as BERT has it.
constexpr float kSqrtHalf = 0.70710678118654752440F;
constexpr float kOneOverSqrtTwoPi = 0.39894228040143267794F;

struct GeluErf {
  template <class Math>
  static __device__ float value(float x) {
    return 0.5F * x * (1.0F + erff(kSqrtHalf * x));
  }
  template <class Math>
  static __device__ float slope(float x) {
    const float density = kOneOverSqrtTwoPi * expf(-0.5F * x * x);
    return 0.5F * (1.0F + erff(kSqrtHalf * x)) + x * density;
  }
};

struct Tanh {
  template <class Math>
  static __device__ float value(float x) {
    return tanhf(x);
  }
  /// From the result, which is what is kept.
  template <class Math>
  static __device__ float slope(float y) {
    return 1.0F - y * y;
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

/// Cosine and sine of every pair's angle at `rows` rows of a sequence from `first` on. Computed in double, because at
/// position 4096 a float is 2e-4 off; once for all heads and sequences, because a cosine and a sine of doubles take
/// longer than the memory of a thousand pairs.
struct Angles {
  float* cosine;
  float* sine;
  int64_t sequence, first, half;
  Positions positions;
  Rotation rotation;
  template <int N>
  __device__ void run(int64_t i) const {
    const double position = static_cast<double>(position_of(positions, sequence, first + i / half));
    const double angle = position * rotation.rates[i % half];
    cosine[i] = static_cast<float>(rotation.attention * cos(angle));
    sine[i] = static_cast<float>(rotation.attention * sin(angle));
  }
};

/// Pairs of a head of width `dim`, of which 2 * half columns turn. Heads [0, rotated) are q and k, the others v, which
/// is copied. Of `heads` in a row, those from `visited` on are left alone.
template <class T>
struct Rope {
  const T* in;
  T* out;
  const float* cosine;
  const float* sine;
  int64_t sequence, first, rows;  // the rows [first, first + rows) of each sequence
  int64_t heads, visited, rotated, half, dim;
  float direction;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t pair = i % half;
    const int64_t head = i / half % visited;
    const int64_t row = i / half / visited;
    const int64_t at = ((row / rows * sequence + first + row % rows) * heads + head) * dim + pair;
    Pack<N> a = load<N>(in + at);
    Pack<N> b = load<N>(in + at + half);
    if (head < rotated) {
      const Pack<N> c = load<N>(cosine + row % rows * half + pair);
      const Pack<N> s = load<N>(sine + row % rows * half + pair);
#pragma unroll
      for (int e = 0; e < N; ++e) {
        const float left = a.v[e], right = b.v[e], turn = direction * s.v[e];
        a.v[e] = left * c.v[e] - right * turn;
        b.v[e] = right * c.v[e] + left * turn;
      }
    }
    store(out + at, a);
    store(out + at + half, b);
  }
};

}  // namespace

template <class T>
void gelu_erf(cudaStream_t stream, const T* x, T* y, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, x, y), Activate<T, GeluErf>{x, y}, "gelu_erf");
}

template <class T>
void gelu_erf_grad(cudaStream_t stream, const T* dy, const T* x, T* dx, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, dy, x, dx), ActivateGrad<T, GeluErf>{dy, x, dx},
                          "gelu_erf_grad");
}

template <class T>
void tanh_of(cudaStream_t stream, const T* x, T* y, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, x, y), Activate<T, Tanh>{x, y}, "tanh");
}

template <class T>
void tanh_grad(cudaStream_t stream, const T* dy, const T* y, T* dx, int64_t count) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, dy, y, dx), ActivateGrad<T, Tanh>{dy, y, dx}, "tanh_grad");
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
          int64_t rotary, const Rotation& rotation, double direction, KernelScratch scratch) {
  if (in != out && rotary < shape.head_dim) {  // columns that do not turn are copied, the others turned in place
    const int64_t width = static_cast<int64_t>(shape.heads + 2 * shape.kv_heads) * shape.head_dim;
    check(cudaMemcpyAsync(out, in, static_cast<std::size_t>(shape.batch * shape.sequence * width) * sizeof(T),
                          cudaMemcpyDeviceToDevice, stream),
          "rope");
    in = out;
  }
  Rope<T> body;
  body.in = in;
  body.out = out;
  body.sequence = shape.sequence;
  body.heads = shape.heads + 2 * shape.kv_heads;
  body.rotated = shape.heads + shape.kv_heads;
  body.visited = in == out ? body.rotated : body.heads;  // heads that would be copied onto themselves are left out
  body.half = rotary / 2;
  body.dim = shape.head_dim;
  body.direction = static_cast<float>(direction);
  const int64_t row_bytes = 2 * body.half * static_cast<int64_t>(sizeof(float));
  const int64_t room = static_cast<int64_t>(scratch.bytes) / row_bytes;  // rows of a sequence at a time
  if (room < 1) throw Failure("CUDA: rope: too little memory for one row's angles");
  body.rows = room < shape.sequence ? room : shape.sequence;
  for (body.first = 0; body.first < shape.sequence; body.first += body.rows) {
    if (body.rows > shape.sequence - body.first) body.rows = shape.sequence - body.first;
    float* const cosine = static_cast<float*>(scratch.data);
    float* const sine = cosine + body.rows * body.half;
    body.cosine = cosine;
    body.sine = sine;
    launch_packs<1>(stream, body.rows * body.half, false,
                    Angles{cosine, sine, shape.sequence, body.first, body.half, positions, rotation}, "rope, angles");
    const int64_t pairs = shape.batch * body.rows * body.visited * body.half;
    launch_packs<kWidth<T>>(stream, pairs, packs<T>(body.half, in, out) && packs<T>(body.dim), body, "rope");
  }
}

#define ORRERY_INSTANTIATE(T)                                                                                       \
  template void gelu_erf(cudaStream_t, const T*, T*, int64_t);                                                      \
  template void gelu_erf_grad(cudaStream_t, const T*, const T*, T*, int64_t);                                       \
  template void tanh_of(cudaStream_t, const T*, T*, int64_t);                                                       \
  template void tanh_grad(cudaStream_t, const T*, const T*, T*, int64_t);                                           \
  template void relu(cudaStream_t, const T*, T*, int64_t);                                                          \
  template void relu_grad(cudaStream_t, const T*, const T*, T*, int64_t);                                           \
  template void add_bias(cudaStream_t, const T*, const T*, const T*, T*, int64_t, int64_t);                         \
  template void add(cudaStream_t, const T*, const T*, T*, int64_t);                                                 \
  template void add_bias_to_rows(cudaStream_t, const T*, T*, int64_t, int64_t);                                     \
  template void take_columns(cudaStream_t, const T*, T*, int64_t, int64_t, int64_t, int64_t);                       \
  template void put_columns(cudaStream_t, const T*, T*, int64_t, int64_t, int64_t, int64_t);                        \
  template void rope(cudaStream_t, const AttentionShape&, const Positions&, const T*, T*, int64_t, const Rotation&, \
                     double, KernelScratch);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE
template void add_bias_to_rows(cudaStream_t, const __half*, float*, int64_t, int64_t);
template void add_bias_to_rows(cudaStream_t, const __nv_bfloat16*, float*, int64_t, int64_t);

}  // namespace orrery::exec::cuda
