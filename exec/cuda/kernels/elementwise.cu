// Activations, additions and rotary positions: one thread per element or pair.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {
namespace {

// The tanh form of GELU that GPT-2 uses: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.
constexpr float kSqrtTwoOverPi = 0.79788456080286535588F;
constexpr float kGeluCubic = 0.044715F;

struct Gelu {
  const float* x;
  float* y;
  __device__ void operator()(int64_t i) const {
    const float v = x[i];
    y[i] = 0.5F * v * (1.0F + tanhf(kSqrtTwoOverPi * (v + kGeluCubic * v * v * v)));
  }
};

struct GeluGrad {
  const float* dy;
  const float* x;
  float* dx;
  __device__ void operator()(int64_t i) const {
    const float v = x[i];
    const float t = tanhf(kSqrtTwoOverPi * (v + kGeluCubic * v * v * v));
    const float inner = kSqrtTwoOverPi * (1.0F + 3.0F * kGeluCubic * v * v);
    dx[i] = dy[i] * (0.5F * (1.0F + t) + 0.5F * v * (1.0F - t * t) * inner);
  }
};

__device__ inline float sigmoid(float v) {
  return 1.0F / (1.0F + expf(-v));
}

/// Shazeer, "GLU Variants Improve Transformer" (2020): silu(gate) * up, gate and up side by side in a row of 2F.
struct SwiGlu {
  const float* x;
  float* y;
  int64_t columns;
  __device__ void operator()(int64_t i) const {
    const int64_t at = i / columns * 2 * columns + i % columns;
    const float gate = x[at];
    y[i] = gate * sigmoid(gate) * x[at + columns];
  }
};

struct SwiGluGrad {
  const float* dy;
  const float* x;
  float* dx;
  int64_t columns;
  __device__ void operator()(int64_t i) const {
    const int64_t at = i / columns * 2 * columns + i % columns;
    const float gate = x[at];
    const float up = x[at + columns];
    const float s = sigmoid(gate);
    const float g = dy[i];
    dx[at] = g * up * s * (1.0F + gate * (1.0F - s));
    dx[at + columns] = g * gate * s;
  }
};

struct AddBias {
  const float* residual;
  const float* x;
  const float* bias;
  float* y;
  int64_t columns;
  __device__ void operator()(int64_t i) const {
    const float sum = residual[i] + x[i];
    y[i] = bias ? sum + bias[i % columns] : sum;
  }
};

struct AddBiasToRows {
  const float* bias;
  float* y;
  int64_t columns;
  __device__ void operator()(int64_t i) const { y[i] += bias[i % columns]; }
};

struct Add {
  const float* a;
  const float* b;
  float* c;
  __device__ void operator()(int64_t i) const { c[i] = a[i] + b[i]; }
};

/// One pair of a head of width 2 * half; heads [0, rotated) are q and k, the rest v, which is copied. The angle is
/// computed in double: at position 4096 a float is 2e-4 off.
struct Rope {
  const float* in;
  float* out;
  int64_t sequence, heads, rotated, half;
  double theta, direction;
  __device__ void operator()(int64_t i) const {
    const int64_t pair = i % half;
    const int64_t head = i / half % heads;
    const int64_t row = i / half / heads;
    const int64_t at = (row * heads + head) * 2 * half + pair;
    const float a = in[at];
    const float b = in[at + half];
    if (head >= rotated) {
      out[at] = a;
      out[at + half] = b;
      return;
    }
    const double rate = pow(theta, -static_cast<double>(pair) / static_cast<double>(half));
    const double angle = direction * static_cast<double>(row % sequence) * rate;
    const float c = static_cast<float>(cos(angle));
    const float s = static_cast<float>(sin(angle));
    out[at] = a * c - b * s;
    out[at + half] = b * c + a * s;
  }
};

}  // namespace

void gelu(cudaStream_t stream, const float* x, float* y, int64_t count) {
  launch_each(stream, count, Gelu{x, y}, "gelu");
}

void gelu_grad(cudaStream_t stream, const float* dy, const float* x, float* dx, int64_t count) {
  launch_each(stream, count, GeluGrad{dy, x, dx}, "gelu_grad");
}

void swiglu(cudaStream_t stream, const float* x, float* y, int64_t rows, int64_t columns) {
  launch_each(stream, rows * columns, SwiGlu{x, y, columns}, "swiglu");
}

void swiglu_grad(cudaStream_t stream, const float* dy, const float* x, float* dx, int64_t rows, int64_t columns) {
  launch_each(stream, rows * columns, SwiGluGrad{dy, x, dx, columns}, "swiglu_grad");
}

void add_bias(cudaStream_t stream, const float* residual, const float* x, const float* bias, float* y, int64_t rows,
              int64_t columns) {
  launch_each(stream, rows * columns, AddBias{residual, x, bias, y, columns}, "add_bias");
}

void add(cudaStream_t stream, const float* a, const float* b, float* c, int64_t count) {
  launch_each(stream, count, Add{a, b, c}, "add");
}

void add_bias_to_rows(cudaStream_t stream, const float* bias, float* y, int64_t rows, int64_t columns) {
  launch_each(stream, rows * columns, AddBiasToRows{bias, y, columns}, "matmul, bias");
}

void rope(cudaStream_t stream, const AttentionShape& shape, const float* in, float* out, double theta,
          double direction) {
  const int64_t heads = shape.heads + 2 * shape.kv_heads;
  const int64_t half = shape.head_dim / 2;
  const int64_t pairs = shape.batch * shape.sequence * heads * half;
  launch_each(stream, pairs, Rope{in, out, shape.sequence, heads, shape.heads + shape.kv_heads, half, theta, direction},
              "rope");
}

}  // namespace orrery::exec::cuda
