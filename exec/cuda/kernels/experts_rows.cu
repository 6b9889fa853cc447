// Rows of tokens on their way to experts and back, and operations on each row in the slots by itself. Places in a slot
// without a row are neither read nor written.
#include "exec/cuda/kernels/activations_device.h"
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/experts.h"
#include "exec/cuda/kernels/values.h"
#include "models/operators/fp8.h"

namespace orrery::exec::cuda {
namespace {

using models::TokenCodec;

constexpr int kWarps = kThreads / kWarp;

// -- between tokens and slots -----------------------------------------------------------------------------------------
template <class T>
struct Dispatch {
  TokenPlaces p;
  const T* x;
  const float* weights;
  T* rows;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t token = i / p.columns, column = i % p.columns;
    const Pack<N> values = load<N>(x + i);
    for (int64_t j = token * p.chosen; j < (token + 1) * p.chosen; ++j) {
      const int64_t row = p.place[j];
      if (row < 0) continue;
      Pack<N> out = values;
#pragma unroll
      for (int e = 0; weights && e < N; ++e) out.v[e] *= weights[j];
      store(rows + row * p.columns + column, out);
    }
  }
};

template <class T>
struct Combine {
  TokenPlaces p;
  const T* rows;
  const float* weights;
  T* y;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t token = i / p.columns, column = i % p.columns;
    Pack<N> sum{};
    for (int64_t j = token * p.chosen; j < (token + 1) * p.chosen; ++j) {
      const int64_t row = p.place[j];
      if (row < 0) continue;
      const Pack<N> values = load<N>(rows + row * p.columns + column);
      const float weight = weights ? weights[j] : 1.0F;
#pragma unroll
      for (int e = 0; e < N; ++e) sum.v[e] += weight * values.v[e];
    }
    store(y + i, sum);
  }
};

/// A warp for each choice.
template <class T>
__global__ void __launch_bounds__(kThreads)
    combine_weight_grad_kernel(TokenPlaces p, const T* dy, const T* rows, float* dweights) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (i >= p.tokens * p.chosen) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = p.place[i];
  float sum = 0;
  for (int64_t c = lane; row >= 0 && c < p.columns; c += kWarp)
    sum += widen(dy[i / p.chosen * p.columns + c]) * widen(rows[row * p.columns + c]);
  sum = warp_sum(sum);
  if (lane == 0) dweights[i] = sum;
}

// -- rows in slots ----------------------------------------------------------------------------------------------------
// The expert to which each row belongs; -1: no row is there.
struct OwnersOfRows {
  RowSlots s;
  int32_t* owners;
  template <int N>
  __device__ void run(int64_t row) const {
    const int32_t* const counts = s.counts + row / s.capacity * s.experts;
    int64_t left = row % s.capacity;
    int32_t owner = -1;
    for (int64_t e = 0; e < s.experts; ++e) {
      if (left < counts[e]) {
        owner = static_cast<int32_t>(e);
        break;
      }
      left -= counts[e];
    }
    owners[row] = owner;
  }
};

/// In the workspace.
const int32_t* owners_of(cudaStream_t stream, const RowSlots& slots, KernelScratch scratch) {
  if (static_cast<std::size_t>(slots.rows()) * sizeof(int32_t) > scratch.bytes)
    throw Failure("CUDA: more rows of experts than the workspace has room for");
  auto* const owners = static_cast<int32_t*>(scratch.data);
  launch_packs<1>(stream, slots.rows(), false, OwnersOfRows{slots, owners}, "rows of experts");
  return owners;
}

/// Runs `body` on the elements of rows that are there; `body` counts the same elements.
template <class Body>
struct RowsThatAreThere {
  const int32_t* owners;
  int64_t columns;
  Body body;
  template <int N>
  __device__ void run(int64_t i) const {
    if (owners[i / columns] >= 0) body.template run<N>(i);
  }
};

template <class T>
struct ExpertBias {
  const int32_t* owners;
  const T* x;
  const T* first;
  const T* second;
  T* y;
  int64_t columns;
  float scale;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t sides = second ? 2 : 1, row = i / (sides * columns), column = i % columns;
    const T* const bias = i % (sides * columns) < columns ? first : second;
    Pack<N> out = load<N>(x + i);
    const Pack<N> more = load<N>(bias + owners[row] * columns + column);
#pragma unroll
    for (int e = 0; e < N; ++e) out.v[e] += scale * more.v[e];
    store(y + i, out);
  }
};

/// Block (32 columns, expert) of (32, 32) threads: thread (x, y) adds rows y, y + 32, … of each slot, row 0 the 32
/// sums.
template <class T>
__global__ void __launch_bounds__(kWarp* kWarp)
    expert_bias_grad_kernel(RowSlots s, const T* dy, GradientOf<T>* first, GradientOf<T>* second, int64_t columns) {
  __shared__ float sums[kWarp][kWarp + 1];
  const int64_t sides = second ? 2 : 1, width = sides * columns, expert = blockIdx.y;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  for (int64_t slot = 0; slot < s.slots; ++slot) {
    const int32_t* const counts = s.counts + slot * s.experts;
    int64_t begin = slot * s.capacity;
    for (int64_t e = 0; e < expert; ++e) begin += counts[e];
    if (column < width)
      for (int64_t row = begin + threadIdx.y; row < begin + counts[expert]; row += kWarp)
        sum += widen(dy[row * width + column]);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  float total = 0;
  for (int y = 0; y < kWarp; ++y) total += sums[y][threadIdx.x];
  GradientOf<T>* const target = (column < columns ? first : second) + expert * columns + column % columns;
  put(target, widen(*target) + total);
}

// -- in fewer bits ----------------------------------------------------------------------------------------------------
__device__ inline unsigned warp_most(unsigned value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const unsigned other = __shfl_xor_sync(kAllLanes, value, offset);
    value = value > other ? value : other;
  }
  return value;
}

/// What shares a scale: a row, or of fp8 a block of it.
struct CodedRows {
  const int32_t* owners;
  int64_t rows, columns, width;
  TokenCodec codec;
  __device__ int64_t scales() const { return models::scales_of_row(codec, columns); }
  __device__ int64_t block() const { return codec == TokenCodec::fp8 ? models::kTokenBlock : columns; }
};

/// One warp for each scale: first the scale, then the codes. A value that is not finite makes all that share its scale
/// NaN.
template <class T>
__global__ void __launch_bounds__(kThreads) encode_rows_kernel(CodedRows c, const T* x, unsigned char* to) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp, scales = c.scales();
  if (index >= c.rows * scales) return;  // the whole warp, as below
  const int64_t row = index / scales, block = index % scales, begin = block * c.block();
  if (c.owners[row] < 0) return;
  const int64_t end = begin + c.block() < c.columns ? begin + c.block() : c.columns;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* const from = x + row * c.columns;
  unsigned char* const head = to + row * c.width;
  unsigned char* const codes = head + scales * static_cast<int64_t>(sizeof(float));
  unsigned most = 0;
  for (int64_t i = begin + lane; i < end; i += kWarp) {
    const unsigned bits = __float_as_uint(widen(from[i])) & 0x7fffffffU;
    most = most > bits ? most : bits;
  }
  most = warp_most(most);
  float scale = models::fp8_descale(most, models::Fp8::e4m3);
  if (c.codec == TokenCodec::fp8) {
    const float up = models::fp8_scale(most, models::Fp8::e4m3);
    for (int64_t i = begin + lane; i < end; i += kWarp)
      codes[i] = static_cast<unsigned char>(models::fp8_code(widen(from[i]) * up, models::Fp8::e4m3));
  } else {
    constexpr float kMostCode = 127;
    const bool finite = most < 0x7f800000U;
    if (finite) scale = __uint_as_float(most) / kMostCode;
    for (int64_t i = begin + lane; i < end; i += kWarp)
      codes[i] = static_cast<unsigned char>(finite && scale > 0 ? lroundf(widen(from[i]) / scale) : 0);
  }
  if (lane == 0) memcpy(head + block * static_cast<int64_t>(sizeof scale), &scale, sizeof scale);
}

template <class T>
struct DecodeRows {
  CodedRows c;
  const unsigned char* from;
  T* x;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t row = i / c.columns, column = i % c.columns;
    const unsigned char* const head = from + row * c.width;
    float scale = 0;
    memcpy(&scale, head + column / c.block() * static_cast<int64_t>(sizeof scale), sizeof scale);
    const unsigned code = head[c.scales() * static_cast<int64_t>(sizeof scale) + column];
    put(x + i, scale * (c.codec == TokenCodec::fp8 ? models::fp8_value(code, models::Fp8::e4m3)
                                                   : static_cast<float>(static_cast<signed char>(code))));
  }
};

/// To another floating type; rows of both are as long.
template <class From, class To>
struct ConvertRows {
  const From* from;
  To* to;
  template <int N>
  __device__ void run(int64_t i) const {
    put(to + i, widen(from[i]));
  }
};

// -- gates and activations --------------------------------------------------------------------------------------------
template <class T>
struct RowGate {
  const T* x;
  const float* gate;
  T* y;
  int64_t columns;
  template <int N>
  __device__ void run(int64_t i) const {
    const float factor = 1.0F / (1.0F + expf(-gate[i / columns]));
    Pack<N> v = load<N>(x + i);
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] *= factor;
    store(y + i, v);
  }
};

/// A warp for each row; dx may be dy.
template <class T>
__global__ void __launch_bounds__(kThreads) row_gate_grad_kernel(const T* dy, const T* x, const float* gate, T* dx,
                                                                 float* dgate, int64_t rows, int64_t columns) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= rows) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float factor = 1.0F / (1.0F + expf(-gate[row]));
  float sum = 0;
  for (int64_t i = row * columns + lane; i < (row + 1) * columns; i += kWarp) {
    const float g = widen(dy[i]);
    sum += g * widen(x[i]);
    put(dx + i, factor * g);
  }
  sum = warp_sum(sum);
  if (lane == 0) dgate[row] = sum * factor * (1.0F - factor);
}

dim3 warps_for(int64_t warps, const char* name) {
  return row_grid((warps + kWarps - 1) / kWarps, name);
}

}  // namespace

template <class T>
void dispatch(cudaStream_t stream, const TokenPlaces& places, const T* x, const float* weights, T* rows) {
  launch_packs<kWidth<T>>(stream, places.tokens * places.columns, packs<T>(places.columns, x, rows),
                          Dispatch<T>{places, x, weights, rows}, "dispatch");
}

template <class T>
void combine(cudaStream_t stream, const TokenPlaces& places, const T* rows, const float* weights, T* y) {
  launch_packs<kWidth<T>>(stream, places.tokens * places.columns, packs<T>(places.columns, rows, y),
                          Combine<T>{places, rows, weights, y}, "combine");
}

template <class T>
void combine_weight_grad(cudaStream_t stream, const TokenPlaces& places, const T* dy, const T* rows, float* dweights) {
  const char* const name = "combine_weight_grad";
  ORRERY_LAUNCH(combine_weight_grad_kernel<T>, warps_for(places.tokens * places.chosen, name), dim3(kThreads), 0,
                stream, places, dy, rows, dweights);
  check_launch(name);
}

template <class T>
void expert_bias(cudaStream_t stream, const RowSlots& slots, const T* x, const T* first, const T* second, T* y,
                 int64_t columns, float scale, KernelScratch scratch) {
  const int32_t* const owners = owners_of(stream, slots, scratch);
  const int64_t width = (second ? 2 : 1) * columns;
  const ExpertBias<T> body{owners, x, first, second, y, columns, scale};
  launch_packs<kWidth<T>>(stream, slots.rows() * width, packs<T>(columns, x, first, second, y),
                          RowsThatAreThere<ExpertBias<T>>{owners, width, body}, "expert_bias");
}

template <class T>
void expert_bias_grad(cudaStream_t stream, const RowSlots& slots, const T* dy, GradientOf<T>* first,
                      GradientOf<T>* second, int64_t columns) {
  dim3 grid = row_grid(((second ? 2 : 1) * columns + kWarp - 1) / kWarp, "expert_bias_grad");
  if (slots.experts > 65535) throw Failure("CUDA: expert_bias_grad: too many experts");
  grid.y = static_cast<unsigned>(slots.experts);
  ORRERY_LAUNCH(expert_bias_grad_kernel<T>, grid, dim3(kWarp, kWarp), 0, stream, slots, dy, first, second, columns);
  check_launch("expert_bias_grad");
}

template <class T>
void encode_rows(cudaStream_t stream, const RowSlots& slots, TokenCodec codec, const T* x, void* to, int64_t columns,
                 int64_t width, KernelScratch scratch) {
  const int32_t* const owners = owners_of(stream, slots, scratch);
  if (codec == TokenCodec::bf16) {
    using Body = ConvertRows<T, __nv_bfloat16>;
    return launch_packs<1>(stream, slots.rows() * columns, false,
                           RowsThatAreThere<Body>{owners, columns, Body{x, static_cast<__nv_bfloat16*>(to)}},
                           "encode_rows");
  }
  const CodedRows coded{owners, slots.rows(), columns, width, codec};
  ORRERY_LAUNCH(encode_rows_kernel<T>, warps_for(slots.rows() * models::scales_of_row(codec, columns), "encode_rows"),
                dim3(kThreads), 0, stream, coded, x, static_cast<unsigned char*>(to));
  check_launch("encode_rows");
}

template <class T>
void decode_rows(cudaStream_t stream, const RowSlots& slots, TokenCodec codec, const void* from, T* x, int64_t columns,
                 int64_t width, KernelScratch scratch) {
  const int32_t* const owners = owners_of(stream, slots, scratch);
  const int64_t count = slots.rows() * columns;
  if (codec == TokenCodec::bf16) {
    using Body = ConvertRows<__nv_bfloat16, T>;
    const Body body{static_cast<const __nv_bfloat16*>(from), x};
    return launch_packs<1>(stream, count, false, RowsThatAreThere<Body>{owners, columns, body}, "decode_rows");
  }
  using Body = DecodeRows<T>;
  const Body body{{owners, slots.rows(), columns, width, codec}, static_cast<const unsigned char*>(from), x};
  launch_packs<1>(stream, count, false, RowsThatAreThere<Body>{owners, columns, body}, "decode_rows");
}

template <class T>
void row_gate(cudaStream_t stream, const T* x, const float* gate, T* y, int64_t rows, int64_t columns) {
  launch_packs<kWidth<T>>(stream, rows * columns, packs<T>(columns, x, y), RowGate<T>{x, gate, y, columns}, "row_gate");
}

template <class T>
void row_gate_grad(cudaStream_t stream, const T* dy, const T* x, const float* gate, T* dx, float* dgate, int64_t rows,
                   int64_t columns) {
  ORRERY_LAUNCH(row_gate_grad_kernel<T>, warps_for(rows, "row_gate_grad"), dim3(kThreads), 0, stream, dy, x, gate, dx,
                dgate, rows, columns);
  check_launch("row_gate_grad");
}

// nvcc accepts kWidth<T> as a constant neither within a generic lambda nor after it.
template <class T>
void activate_slots(cudaStream_t stream, const RowSlots& slots, const SlotActivation& one, const T* x, T* y,
                    KernelScratch scratch) {
  constexpr int kPack = kWidth<T>;
  const int32_t* const owners = owners_of(stream, slots, scratch);
  const bool whole = packs<T>(one.columns, x, y);
  const int64_t columns = one.columns, count = slots.rows() * columns;
  if (one.rectifies)
    return launch_packs<kPack>(stream, count, whole, RowsThatAreThere<Relu<T>>{owners, columns, {x, y}}, "relu");
  with_formula(one.function, [&]<class Formula>(Formula) {
    using OfGate = Gate<T, Formula>;
    using OfAll = Activate<T, Formula>;
    if (one.gates)
      launch_packs<kPack>(stream, count, whole, RowsThatAreThere<OfGate>{owners, columns, OfGate{x, y, columns}},
                          "gate");
    else
      launch_packs<kPack>(stream, count, whole, RowsThatAreThere<OfAll>{owners, columns, OfAll{x, y}}, "activate");
  });
}

template <class T>
void activate_slots_grad(cudaStream_t stream, const RowSlots& slots, const SlotActivation& one, const T* dy, const T* x,
                         T* dx, KernelScratch scratch) {
  constexpr int kPack = kWidth<T>;
  const int32_t* const owners = owners_of(stream, slots, scratch);
  const bool whole = packs<T>(one.columns, dy, x, dx);
  const int64_t columns = one.columns, count = slots.rows() * columns;
  if (one.rectifies)
    return launch_packs<kPack>(stream, count, whole, RowsThatAreThere<ReluGrad<T>>{owners, columns, {dy, x, dx}},
                               "relu_grad");
  with_formula(one.function, [&]<class Formula>(Formula) {
    using OfGate = GateGrad<T, Formula>;
    using OfAll = ActivateGrad<T, Formula>;
    if (one.gates)
      launch_packs<kPack>(stream, count, whole, RowsThatAreThere<OfGate>{owners, columns, OfGate{dy, x, dx, columns}},
                          "gate_grad");
    else
      launch_packs<kPack>(stream, count, whole, RowsThatAreThere<OfAll>{owners, columns, OfAll{dy, x, dx}},
                          "activate_grad");
  });
}

#define ORRERY_INSTANTIATE(T)                                                                                          \
  template void dispatch(cudaStream_t, const TokenPlaces&, const T*, const float*, T*);                                \
  template void combine(cudaStream_t, const TokenPlaces&, const T*, const float*, T*);                                 \
  template void combine_weight_grad(cudaStream_t, const TokenPlaces&, const T*, const T*, float*);                     \
  template void expert_bias(cudaStream_t, const RowSlots&, const T*, const T*, const T*, T*, int64_t, float,           \
                            KernelScratch);                                                                            \
  template void expert_bias_grad<T>(cudaStream_t, const RowSlots&, const T*, GradientOf<T>*, GradientOf<T>*, int64_t); \
  template void encode_rows(cudaStream_t, const RowSlots&, TokenCodec, const T*, void*, int64_t, int64_t,              \
                            KernelScratch);                                                                            \
  template void decode_rows(cudaStream_t, const RowSlots&, TokenCodec, const void*, T*, int64_t, int64_t,              \
                            KernelScratch);                                                                            \
  template void row_gate(cudaStream_t, const T*, const float*, T*, int64_t, int64_t);                                  \
  template void row_gate_grad(cudaStream_t, const T*, const T*, const float*, T*, float*, int64_t, int64_t);           \
  template void activate_slots(cudaStream_t, const RowSlots&, const SlotActivation&, const T*, T*, KernelScratch);     \
  template void activate_slots_grad(cudaStream_t, const RowSlots&, const SlotActivation&, const T*, const T*, T*,      \
                                    KernelScratch);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda
