// Interaction of the vectors of a recommendation model, and its loss.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/tables.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

constexpr std::size_t kStaged = 48 * 1024;  // bytes of shared memory that every device has
constexpr int kLossThreads = 1024;

/// Pairs (i, j) with j < i, row by row.
__device__ inline int64_t pair_of(int64_t i, int64_t j) {
  return i * (i - 1) / 2 + j;
}
__device__ inline int64_t first_of_pair(int64_t pair) {
  auto i = static_cast<int64_t>((1 + sqrt(1 + 8 * static_cast<double>(pair))) / 2);
  while (i * (i - 1) / 2 > pair) --i;
  while (i * (i + 1) / 2 <= pair) ++i;
  return i;
}

/// Vectors of a sample, in shared memory if they fit. A row is one value longer there, so that neighbouring threads,
/// which read neighbouring vectors, use different banks.
struct Vectors {
  const float* data;
  int64_t stride;
  [[nodiscard]] __device__ const float* row(int64_t i) const { return data + i * stride; }
};
__device__ inline Vectors staged_vectors(const float* x, int64_t vectors, int64_t dim, bool staged, float* shared) {
  if (!staged) return {x, dim};
  for (int64_t e = threadIdx.x; e < vectors * dim; e += kThreads) shared[e / dim * (dim + 1) + e % dim] = x[e];
  __syncthreads();
  return {shared, dim + 1};
}

/// Block: one sample.
__global__ void __launch_bounds__(kThreads)
    dot_kernel(const float* x, float* y, int64_t vectors, int64_t dim, bool staged) {
  ORRERY_DYNAMIC_SHARED(shared);
  const int64_t pairs = vectors * (vectors - 1) / 2;
  const float* const of_sample = x + blockIdx.x * vectors * dim;
  const Vectors v = staged_vectors(of_sample, vectors, dim, staged, shared);
  float* const out = y + blockIdx.x * (dim + pairs);
  for (int64_t c = threadIdx.x; c < dim; c += kThreads) out[c] = of_sample[c];
  for (int64_t pair = threadIdx.x; pair < pairs; pair += kThreads) {
    const int64_t i = first_of_pair(pair);
    const float* const a = v.row(i);
    const float* const b = v.row(pair - i * (i - 1) / 2);
    float sum = 0;
    for (int64_t c = 0; c < dim; ++c) sum += a[c] * b[c];
    out[dim + pair] = sum;
  }
}

/// Block: one sample. A vector's gradient is the sum over the others, in their order.
__global__ void __launch_bounds__(kThreads)
    dot_grad_kernel(const float* dy, const float* x, float* dx, int64_t vectors, int64_t dim, bool staged) {
  ORRERY_DYNAMIC_SHARED(shared);
  const int64_t pairs = vectors * (vectors - 1) / 2;
  const Vectors v = staged_vectors(x + blockIdx.x * vectors * dim, vectors, dim, staged, shared);
  const float* const given = dy + blockIdx.x * (dim + pairs);
  const float* const of_pairs = given + dim;
  float* const out = dx + blockIdx.x * vectors * dim;
  for (int64_t e = threadIdx.x; e < vectors * dim; e += kThreads) {
    const int64_t own = e / dim, c = e % dim;
    float sum = own == 0 ? given[c] : 0;
    for (int64_t j = 0; j < own; ++j) sum += of_pairs[pair_of(own, j)] * v.row(j)[c];
    for (int64_t i = own + 1; i < vectors; ++i) sum += of_pairs[pair_of(i, own)] * v.row(i)[c];
    out[e] = sum;
  }
}

struct Cross {
  const float* x0;
  const float* u;
  const float* x;
  float* y;
  template <int N>
  __device__ void run(int64_t i) const {
    const Pack<N> a = load<N>(x0 + i), b = load<N>(u + i);
    Pack<N> sum = load<N>(x + i);
#pragma unroll
    for (int e = 0; e < N; ++e) sum.v[e] += a.v[e] * b.v[e];
    store(y + i, sum);
  }
};

struct CrossGrad {
  const float* dy;
  const float* x0;
  const float* u;
  float* du;
  float* dx0;
  template <int N>
  __device__ void run(int64_t i) const {
    const Pack<N> given = load<N>(dy + i), a = load<N>(x0 + i), b = load<N>(u + i);
    Pack<N> of_u, sum = load<N>(dx0 + i);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      of_u.v[e] = given.v[e] * a.v[e];
      sum.v[e] += given.v[e] * b.v[e];
    }
    store(du + i, of_u);
    store(dx0 + i, sum);
  }
};

/// One block. log(1 + e^l) - y l, without overflow.
__global__ void __launch_bounds__(kLossThreads)
    click_loss_kernel(const float* logits, const float* labels, float* loss, int64_t n, double scale) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kLossThreads) {
    const double l = static_cast<double>(logits[i]);
    sum += fmax(l, 0.0) + log1p(exp(-fabs(l))) - static_cast<double>(labels[i]) * l;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) loss[0] += static_cast<float>(scale * sum);
}

struct ClickLossGrad {
  const float* logits;
  const float* labels;
  float* dlogits;
  double scale;
  template <int N>
  __device__ void run(int64_t i) const {
    const double click = 1 / (1 + exp(-static_cast<double>(logits[i])));
    dlogits[i] = static_cast<float>(scale * (click - static_cast<double>(labels[i])));
  }
};

/// Bytes of shared memory for a sample's vectors; 0: they stay where they are.
std::size_t staged_bytes(int64_t vectors, int64_t dim) {
  const std::size_t bytes = static_cast<std::size_t>(vectors * (dim + 1)) * sizeof(float);
  return bytes <= kStaged ? bytes : 0;
}

}  // namespace

void interaction_dot(cudaStream_t stream, const float* x, float* y, int64_t n, int64_t vectors, int64_t dim) {
  const std::size_t bytes = staged_bytes(vectors, dim);
  ORRERY_LAUNCH(dot_kernel, row_grid(n, "interaction_dot"), dim3(kThreads), bytes, stream, x, y, vectors, dim,
                bytes > 0);
  check_launch("interaction_dot");
}

void interaction_dot_grad(cudaStream_t stream, const float* dy, const float* x, float* dx, int64_t n, int64_t vectors,
                          int64_t dim) {
  const std::size_t bytes = staged_bytes(vectors, dim);
  ORRERY_LAUNCH(dot_grad_kernel, row_grid(n, "interaction_dot_grad"), dim3(kThreads), bytes, stream, dy, x, dx, vectors,
                dim, bytes > 0);
  check_launch("interaction_dot_grad");
}

void cross(cudaStream_t stream, const float* x0, const float* u, const float* x, float* y, int64_t count) {
  launch_packs<4>(stream, count, packs<float>(count, x0, u, x, y), Cross{x0, u, x, y}, "cross");
}

void cross_grad(cudaStream_t stream, const float* dy, const float* x0, const float* u, float* du, float* dx0,
                int64_t count) {
  launch_packs<4>(stream, count, packs<float>(count, dy, x0, u, du, dx0), CrossGrad{dy, x0, u, du, dx0}, "cross_grad");
}

void click_loss(cudaStream_t stream, const float* logits, const float* labels, float* loss, int64_t n, double scale) {
  ORRERY_LAUNCH(click_loss_kernel, dim3(1), dim3(kLossThreads), 0, stream, logits, labels, loss, n, scale);
  check_launch("click_loss");
}

void click_loss_grad(cudaStream_t stream, const float* logits, const float* labels, float* dlogits, int64_t n,
                     double scale) {
  launch_packs<1>(stream, n, false, ClickLossGrad{logits, labels, dlogits, scale}, "click_loss_grad");
}

}  // namespace orrery::exec::cuda
