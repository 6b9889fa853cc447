// Operators that only BERT has: token types, rows chosen by data, and a loss over few classes.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/rows_device.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

template <int N>
__device__ inline Pack<N> no_number() {
  Pack<N> out;
#pragma unroll
  for (int e = 0; e < N; ++e) out.v[e] = NAN;
  return out;
}

template <class T>
struct TypeAdd {
  const int32_t* types;
  const T* x;
  const T* table;
  T* y;
  int64_t columns, kinds;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t kind = types[i / columns];
    Pack<N> sum = load<N>(x + i);
    const Pack<N> more = kind >= 0 && kind < kinds ? load<N>(table + kind * columns + i % columns) : no_number<N>();
#pragma unroll
    for (int e = 0; e < N; ++e) sum.v[e] += more.v[e];
    store(y + i, sum);
  }
};

constexpr int kKindsAtOnce = 2;  // BERT's: its rows are read once

template <class T>
struct TypeSums {
  const int32_t* types;
  const T* dx;
  GradientOf<T>* dtable;
  float* parts;  // (part, kind, column), or null: there is one part
  int64_t rows, columns, kinds, rows_per_part;
};

/// Block (32, 32) at (stripe, part, pair of kinds): thread (tx, ty) sums column 32*stripe + tx over rows ty, ty + 32, …
/// of the part, by kind; then row 0 of threads adds the 32 partial sums in order.
template <class T>
__global__ void __launch_bounds__(1024) type_sums_kernel(TypeSums<T> s) {
  __shared__ float partial[kKindsAtOnce][kWarp][kWarp + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const int64_t first_kind = static_cast<int64_t>(blockIdx.z) * kKindsAtOnce;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * s.rows_per_part;
  const int64_t last = first + s.rows_per_part < s.rows ? first + s.rows_per_part : s.rows;
  float sums[kKindsAtOnce] = {};
  if (column < s.columns)
    for (int64_t row = first + threadIdx.y; row < last; row += kWarp) {
      const float g = widen(s.dx[row * s.columns + column]);
      const int64_t kind = s.types[row] - first_kind;
#pragma unroll
      for (int k = 0; k < kKindsAtOnce; ++k) sums[k] += kind == k ? g : 0.0F;
    }
#pragma unroll
  for (int k = 0; k < kKindsAtOnce; ++k) partial[k][threadIdx.y][threadIdx.x] = sums[k];
  __syncthreads();
  if (threadIdx.y != 0 || column >= s.columns) return;
  for (int k = 0; k < kKindsAtOnce && first_kind + k < s.kinds; ++k) {
    float total = 0;
    for (int lane = 0; lane < kWarp; ++lane) total += partial[k][lane][threadIdx.x];
    const int64_t at = (first_kind + k) * s.columns + column;
    if (s.parts)
      s.parts[static_cast<int64_t>(blockIdx.y) * s.kinds * s.columns + at] = total;
    else
      put(s.dtable + at, widen(s.dtable[at]) + total);
  }
}

template <class T>
struct AddTypeParts {
  TypeSums<T> s;
  int64_t parts;
  template <int N>
  __device__ void run(int64_t i) const {
    float sum = widen(s.dtable[i]);
    for (int64_t part = 0; part < parts; ++part) sum += s.parts[part * s.kinds * s.columns + i];
    put(s.dtable + i, sum);
  }
};

/// The row of the micro-batch for the i-th chosen one; -1: there is no such row.
__device__ inline int64_t row_of(const ChosenRows& chosen, int64_t i) {
  const int64_t row = chosen.rows ? chosen.rows[i] : i * chosen.stride;
  return row >= 0 && row < chosen.all ? row : -1;
}

template <class T>
struct GatherRows {
  ChosenRows chosen;
  const T* x;
  T* y;
  int64_t columns;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t row = row_of(chosen, i / columns), own = row - chosen.first;
    Pack<N> values{};
    if (row < 0)
      values = no_number<N>();
    else if (own >= 0 && own < chosen.held)
      values = load<N>(x + own * columns + i % columns);
    store(y + i, values);
  }
};

/// Rows; none of them is chosen twice.
template <class T>
struct ScatterRows {
  ChosenRows chosen;
  const T* dy;
  T* dx;
  int64_t columns;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t own = row_of(chosen, i / columns) - chosen.first;
    if (own < 0 || own >= chosen.held) return;
    T* target = dx + own * columns + i % columns;
    Pack<N> sum = load<N>(target);
    const Pack<N> more = load<N>(dy + i);
#pragma unroll
    for (int e = 0; e < N; ++e) sum.v[e] += more.v[e];
    store(target, sum);
  }
};

template <class T>
__device__ inline double log_sum_exp(const T* logits, int64_t columns) {
  float most = -INFINITY;
  for (int64_t c = 0; c < columns; ++c) most = fmaxf(most, widen(logits[c]));
  double sum = 0;
  for (int64_t c = 0; c < columns; ++c) sum += exp(static_cast<double>(widen(logits[c])) - static_cast<double>(most));
  return static_cast<double>(most) + log(sum);
}

/// One block: sequences are few, and one block keeps the order fixed.
template <class T>
__global__ void __launch_bounds__(kThreads) class_loss_kernel(const T* logits, const int32_t* classes, float* loss,
                                                              int64_t rows, int64_t columns, double scale) {
  double sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    const int64_t answer = classes[row];
    const T* l = logits + row * columns;
    const bool known = answer >= 0 && answer < columns;
    sum += known ? log_sum_exp(l, columns) - static_cast<double>(widen(l[answer])) : static_cast<double>(NAN);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) loss[0] = static_cast<float>(static_cast<double>(loss[0]) + scale * sum);
}

/// Element i is a row.
template <class T>
struct ClassLossGrad {
  const T* logits;
  const int32_t* classes;
  const float* scaling;
  T* dlogits;
  int64_t columns;
  double scale;
  template <int N>
  __device__ void run(int64_t i) const {
    const T* l = logits + i * columns;
    const double whole = log_sum_exp(l, columns);  // before the row is overwritten
    const double factor = scale * (scaling ? static_cast<double>(scaling[0]) : 1.0);
    const int64_t answer = classes[i];
    const bool known = answer >= 0 && answer < columns;
    for (int64_t c = 0; c < columns; ++c) {
      const double share = exp(static_cast<double>(widen(l[c])) - whole);
      const double hot = answer == c ? 1.0 : 0.0;
      put(dlogits + i * columns + c, known ? static_cast<float>(factor * (share - hot)) : NAN);
    }
  }
};

constexpr int64_t kEnoughBlocks = 528;  // as column sums in norm.cu
constexpr int64_t kLeastRows = 64;

}  // namespace

template <class T>
void type_add(cudaStream_t stream, const int32_t* types, const T* x, const T* table, T* y, int64_t rows,
              int64_t columns, int64_t kinds) {
  launch_packs<kWidth<T>>(stream, rows * columns, packs<T>(columns, x, table, y),
                          TypeAdd<T>{types, x, table, y, columns, kinds}, "type_add");
}

template <class T>
void type_grad(cudaStream_t stream, const int32_t* types, const T* dx, GradientOf<T>* dtable, int64_t rows,
               int64_t columns, int64_t kinds, KernelScratch scratch) {
  dim3 grid = row_grid((columns + kWarp - 1) / kWarp, "type_grad");
  const int64_t pairs = (kinds + kKindsAtOnce - 1) / kKindsAtOnce;
  if (pairs > 65535) throw Failure("CUDA: type_grad: too many token types");
  grid.z = static_cast<unsigned>(pairs);
  const int64_t size = kinds * columns;
  const int64_t room = static_cast<int64_t>(scratch.bytes) / (static_cast<int64_t>(sizeof(float)) * size);
  int64_t parts = (kEnoughBlocks + grid.x - 1) / grid.x;
  parts = parts < rows / kLeastRows ? parts : rows / kLeastRows;
  parts = parts < room ? parts : room;
  if (parts < 1) parts = 1;
  grid.y = static_cast<unsigned>(parts);
  float* partial = parts > 1 ? static_cast<float*>(scratch.data) : nullptr;
  const TypeSums<T> sums{types, dx, dtable, partial, rows, columns, kinds, (rows + parts - 1) / parts};
  ORRERY_LAUNCH(type_sums_kernel<T>, grid, dim3(kWarp, kWarp), 0, stream, sums);
  check_launch("type_grad");
  if (parts > 1) launch_packs<1>(stream, size, false, AddTypeParts<T>{sums, parts}, "type_grad");
}

template <class T>
void gather_rows(cudaStream_t stream, const ChosenRows& chosen, const T* x, T* y, int64_t columns) {
  launch_packs<kWidth<T>>(stream, chosen.count * columns, packs<T>(columns, x, y), GatherRows<T>{chosen, x, y, columns},
                          "gather_rows");
}

template <class T>
void scatter_rows(cudaStream_t stream, const ChosenRows& chosen, const T* dy, T* dx, int64_t columns, bool accumulate) {
  const auto bytes = static_cast<std::size_t>(chosen.held * columns) * sizeof(T);
  if (!accumulate) check(cudaMemsetAsync(dx, 0, bytes, stream), "scatter_rows");
  if (chosen.count == 0) return;
  if (!chosen.rows)
    return launch_packs<kWidth<T>>(stream, chosen.count * columns, packs<T>(columns, dy, dx),
                                   ScatterRows<T>{chosen, dy, dx, columns}, "scatter_rows");
  ORRERY_LAUNCH((scanning_sums_kernel<T, T>), row_stripes(chosen.count, columns, "scatter_rows"), dim3(kThreads), 0,
                stream, chosen.rows, dy, dx, chosen.count, columns, chosen.first, chosen.held, 1.0F);
  check_launch("scatter_rows");
}

template <class T>
void class_loss(cudaStream_t stream, const T* logits, const int32_t* classes, float* loss, int64_t rows,
                int64_t columns, double scale) {
  ORRERY_LAUNCH(class_loss_kernel<T>, dim3(1), dim3(kThreads), 0, stream, logits, classes, loss, rows, columns, scale);
  check_launch("class_loss");
}

template <class T>
void class_loss_grad(cudaStream_t stream, const T* logits, const int32_t* classes, const float* scaling, T* dlogits,
                     int64_t rows, int64_t columns, double scale) {
  launch_packs<1>(stream, rows, false, ClassLossGrad<T>{logits, classes, scaling, dlogits, columns, scale},
                  "class_loss_grad");
}

#define ORRERY_INSTANTIATE(T)                                                                                   \
  template void type_add(cudaStream_t, const int32_t*, const T*, const T*, T*, int64_t, int64_t, int64_t);      \
  template void type_grad<T>(cudaStream_t, const int32_t*, const T*, GradientOf<T>*, int64_t, int64_t, int64_t, \
                             KernelScratch);                                                                    \
  template void gather_rows(cudaStream_t, const ChosenRows&, const T*, T*, int64_t);                            \
  template void scatter_rows(cudaStream_t, const ChosenRows&, const T*, T*, int64_t, bool);                     \
  template void class_loss(cudaStream_t, const T*, const int32_t*, float*, int64_t, int64_t, double);           \
  template void class_loss_grad(cudaStream_t, const T*, const int32_t*, const float*, T*, int64_t, int64_t, double);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda
