// Values in fewer bits: 16-bit gradients and their sums, PowerSGD's small matrices, Gist's encodings.
#include "exec/cuda/kernels/compression.h"
#include "exec/cuda/kernels/update_device.h"
#include "models/encoding.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kEight = 8;  // elements at a time: 16 bytes of 16-bit values

bool aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

struct Convert {
  Floats x, y;
  template <int N>
  __device__ void run(int64_t i) const {
    store(y, i, load<N>(x, i));
  }
};

struct SumPieces {
  Floats from, y;
  int64_t count, pieces;
  bool accumulate;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> sum = load<N>(from, i);
    for (int64_t p = 1; p < pieces; ++p) {
      const Pack<N> one = load<N>(from, p * count + i);
#pragma unroll
      for (int e = 0; e < N; ++e) sum.v[e] += one.v[e];
    }
    if (accumulate) {
      const Pack<N> old = load<N>(y, i);
#pragma unroll
      for (int e = 0; e < N; ++e) sum.v[e] = old.v[e] + sum.v[e];
    }
    store(y, i, sum);
  }
};

struct AddScaled {
  Floats x, y;
  float scale;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> sum = load<N>(y, i);
    const Pack<N> more = load<N>(x, i);
#pragma unroll
    for (int e = 0; e < N; ++e) sum.v[e] += scale * more.v[e];
    store(y, i, sum);
  }
};

constexpr int kColumnThreads = 1024;
constexpr int kDots = 8;  // at a time

/// Sums over the block, the same bits in every thread.
template <int N>
__device__ inline void block_sums(double (&values)[N]) {
  __shared__ double partial[N][kWarp];
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = warp_sum(values[i]);
  __syncthreads();  // other threads may still read the sums before
  if (threadIdx.x % kWarp == 0)
#pragma unroll
    for (int i = 0; i < N; ++i) partial[i][threadIdx.x / kWarp] = values[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; ++i) {
    values[i] = 0;
    for (unsigned warp = 0; warp < blockDim.x / kWarp; ++warp) values[i] += partial[i][warp];
  }
}

/// Columns of a matrix, whose rows are divided among the threads: each thread touches only its own rows, so that
/// threads wait only for sums.
struct Columns {
  float* x;
  int64_t rows, columns;

  __device__ double length(int64_t c) const {
    double sum[1] = {0};
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
      const double v = static_cast<double>(x[r * columns + c]);
      sum[0] += v * v;
    }
    block_sums(sum);
    return sqrt(sum[0]);
  }
  /// Removes from column c its parts along the `some` columns from `first` on, with all dot products in one pass.
  __device__ void take_out(int64_t c, int64_t first, int some) const {
    double along[kDots] = {};
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
      const float* row = x + r * columns;
      const double v = static_cast<double>(row[c]);
#pragma unroll
      for (int j = 0; j < kDots; ++j)
        if (j < some) along[j] += v * static_cast<double>(row[first + j]);
    }
    block_sums(along);
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
      float* row = x + r * columns;
      float v = row[c];
#pragma unroll
      for (int j = 0; j < kDots; ++j)
        if (j < some) v -= static_cast<float>(along[j]) * row[first + j];
      row[c] = v;
    }
  }
  /// As in the CPU backend: twice, because rounding leaves parts along the other columns; false if hardly anything is
  /// left.
  __device__ bool settle(int64_t c) const {
    constexpr double kNothing = 1e-6, kMost = 0.5;
    for (int round = 0; round < 2; ++round) {
      const double before = length(c);
      for (int64_t first = 0; first < c; first += kDots)
        take_out(c, first, c - first < kDots ? static_cast<int>(c - first) : kDots);
      const double left = length(c);
      if (left <= (round == 0 ? kNothing : kMost) * before) return false;
      const float factor = static_cast<float>(1 / left);  // what is no number stays visible
      for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) x[r * columns + c] *= factor;
    }
    return true;
  }
};

/// Gram-Schmidt where the earlier columns, eight at a time, are removed from each column twice, which is enough
/// (Giraud, Langou, Rozloznik 2005).
__global__ void __launch_bounds__(kColumnThreads) orthogonalise_kernel(Columns p) {
  for (int64_t c = 0; c < p.columns; ++c) {
    bool settled = p.settle(c);
    for (int64_t unit = 0; !settled && unit < p.rows; ++unit) {
      for (int64_t r = threadIdx.x; r < p.rows; r += blockDim.x) p.x[r * p.columns + c] = r == unit ? 1.0F : 0.0F;
      settled = p.settle(c);
    }
  }
}

/// Codes of 8 or 16 bits, of type C.
template <class C>
struct Encode {
  Floats x;
  C* codes;
  models::Format format;
  template <int N>
  __device__ void run(int64_t i) const {
    const Pack<N> values = load<N>(x, i);
    C out[N];
#pragma unroll
    for (int e = 0; e < N; ++e) out[e] = static_cast<C>(models::encoded(values.v[e], format));
    if constexpr (N == 1) {
      codes[i] = out[0];
    } else {
      typename Word<N * sizeof(C)>::Type word;
      memcpy(&word, static_cast<const void*>(out), sizeof(word));
      *reinterpret_cast<decltype(word)*>(codes + i) = word;
    }
  }
};

template <class C>
struct Decode {
  const C* codes;
  Floats y;
  models::Format format;
  template <int N>
  __device__ void run(int64_t i) const {
    C in[N];
    if constexpr (N == 1) {
      in[0] = codes[i];
    } else {
      using W = typename Word<N * sizeof(C)>::Type;
      const W word = *reinterpret_cast<const W*>(codes + i);
      memcpy(static_cast<void*>(in), &word, sizeof(word));
    }
    Pack<N> values;
#pragma unroll
    for (int e = 0; e < N; ++e) values.v[e] = models::decoded(in[e], format);
    store(y, i, values);
  }
};

constexpr int kTen = 10;
constexpr unsigned kTenBits = 0x3FF;

/// Item i is a word of three codes; neighbours' loads of one element each share their lines.
struct EncodeTens {
  Floats x;
  unsigned* words;
  int64_t count;
  template <int N>
  __device__ void run(int64_t i) const {
    const models::Format format = models::format_of(kTen);
    unsigned word = 0;
#pragma unroll
    for (int e = 0; e < models::kTensToAWord; ++e) {
      const int64_t at = i * models::kTensToAWord + e;
      if (at < count) word |= models::encoded(load<1>(x, at).v[0], format) << (e * kTen);
    }
    words[i] = word;
  }
};

struct DecodeTens {
  const unsigned* words;
  Floats y;
  int64_t count;
  template <int N>
  __device__ void run(int64_t i) const {
    const models::Format format = models::format_of(kTen);
    const unsigned word = words[i];
#pragma unroll
    for (int e = 0; e < models::kTensToAWord; ++e) {
      const int64_t at = i * models::kTensToAWord + e;
      if (at >= count) continue;
      Pack<1> value;
      value.v[0] = models::decoded(word >> (e * kTen) & kTenBits, format);
      store(y, at, value);
    }
  }
};

}  // namespace

void convert(cudaStream_t stream, const Floats& x, const Floats& y, int64_t count) {
  const bool whole = aligned(x.data) && aligned(y.data) && count % kEight == 0;
  launch_packs<kEight>(stream, count, whole, Convert{x, y}, "convert");
}

void sum_pieces(cudaStream_t stream, const Floats& from, const Floats& y, int64_t count, int64_t pieces,
                bool accumulate) {
  const bool whole = aligned(from.data) && aligned(y.data) && count % kEight == 0;
  launch_packs<kEight>(stream, count, whole, SumPieces{from, y, count, pieces, accumulate}, "sum_pieces");
}

void add_scaled(cudaStream_t stream, const Floats& x, const Floats& y, int64_t count, float scale) {
  const bool whole = aligned(x.data) && aligned(y.data) && count % kEight == 0;
  launch_packs<kEight>(stream, count, whole, AddScaled{x, y, scale}, "add_scaled");
}

void orthogonalise(cudaStream_t stream, float* x, int64_t rows, int64_t columns) {
  ORRERY_LAUNCH(orthogonalise_kernel, dim3(1), dim3(kColumnThreads), 0, stream, Columns{x, rows, columns});
  check_launch("orthogonalise");
}

void encode(cudaStream_t stream, const Floats& x, void* codes, int64_t count, int64_t bits) {
  const models::Format format = models::format_of(bits);
  const bool whole = aligned(x.data) && aligned(codes) && count % kEight == 0;
  if (bits == kTen)
    launch_packs<1>(stream, (count + models::kTensToAWord - 1) / models::kTensToAWord, false,
                    EncodeTens{x, static_cast<unsigned*>(codes), count}, "encode");
  else if (bits == 8)
    launch_packs<kEight>(stream, count, whole, Encode<std::uint8_t>{x, static_cast<std::uint8_t*>(codes), format},
                         "encode");
  else
    launch_packs<kEight>(stream, count, whole, Encode<std::uint16_t>{x, static_cast<std::uint16_t*>(codes), format},
                         "encode");
}

void decode(cudaStream_t stream, const void* codes, const Floats& y, int64_t count, int64_t bits) {
  const models::Format format = models::format_of(bits);
  const bool whole = aligned(codes) && aligned(y.data) && count % kEight == 0;
  if (bits == kTen)
    launch_packs<1>(stream, (count + models::kTensToAWord - 1) / models::kTensToAWord, false,
                    DecodeTens{static_cast<const unsigned*>(codes), y, count}, "decode");
  else if (bits == 8)
    launch_packs<kEight>(stream, count, whole, Decode<std::uint8_t>{static_cast<const std::uint8_t*>(codes), y, format},
                         "decode");
  else
    launch_packs<kEight>(stream, count, whole,
                         Decode<std::uint16_t>{static_cast<const std::uint16_t*>(codes), y, format}, "decode");
}

}  // namespace orrery::exec::cuda
