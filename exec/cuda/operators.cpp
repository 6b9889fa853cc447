// From an operator's kind to its kernel: sizes and operands as models/op.h fixes them, checked before anything is
// queued, because a kernel that reads past an operand reads another buffer of the arena and nobody notices.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/ensure.h"
#include "exec/cuda/backend.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {
namespace {

using models::Op;
using models::OpKind;

/// One operator and everything it was called with.
struct Call {
  const Op& op;
  std::span<const Operand> in, out;
  const StepContext& context;
  cudaStream_t stream;

  [[nodiscard]] std::byte* checked(std::span<const Operand> all, const char* side, std::size_t index,
                                   std::int64_t elements) const {
    ENSURE(index < all.size() && all[index].data != nullptr, "{} has no {} {}", models::name_of(op.kind), side, index);
    ENSURE(all[index].elements >= elements, "{}, {} {}: {} elements where {} are needed", models::name_of(op.kind),
           side, index, all[index].elements, elements);
    return all[index].data;
  }
  [[nodiscard]] const float* input(std::size_t index, std::int64_t elements) const {
    return reinterpret_cast<const float*>(checked(in, "input", index, elements));
  }
  [[nodiscard]] const float* optional(std::size_t index, std::int64_t elements) const {
    return index < in.size() && in[index].data ? input(index, elements) : nullptr;
  }
  [[nodiscard]] const std::int32_t* ids(std::size_t index, std::int64_t elements) const {
    return reinterpret_cast<const std::int32_t*>(checked(in, "input", index, elements));
  }
  [[nodiscard]] float* output(std::size_t index, std::int64_t elements) const {
    return reinterpret_cast<float*>(checked(out, "output", index, elements));
  }
  [[nodiscard]] float* optional_output(std::size_t index, std::int64_t elements) const {
    return index < out.size() && out[index].data ? output(index, elements) : nullptr;
  }
};

void run_embedding(const Call& call) {
  const Op& op = call.op;
  const std::int64_t first = call.context.tensor_rank * op.m;
  const std::int64_t n = op.n, m = op.m, c = op.k;
  if (op.kind == OpKind::embedding)
    embedding(call.stream, call.ids(0, n), call.input(1, m * c), call.output(0, n * c), n, c, first, m);
  else
    embedding_grad(call.stream, call.ids(0, n), call.input(1, n * c), call.output(0, m * c), n, c, first, m);
}

void run_position(const Call& call) {
  const std::int64_t n = call.op.n, c = call.op.m, t = call.op.sequence;
  ENSURE(t > 0 && (call.op.row_shard || n % t == 0), "{} rows of sequences of {}", n, t);
  if (call.op.kind == OpKind::position_add) {
    const std::int64_t first = call.op.row_shard ? call.context.tensor_rank * n : 0;
    position_add(call.stream, call.input(0, n * c), call.input(1, std::min(first + n, t) * c), call.output(0, n * c), n,
                 c, t, first);
  } else
    position_grad(call.stream, call.input(0, n * c), call.output(0, t * c), n, c, t);
}

void run_norm(const Call& call) {
  const std::int64_t n = call.op.n, c = call.op.m;
  const float epsilon = static_cast<float>(call.op.epsilon);
  if (call.op.kind == OpKind::layer_norm)
    layer_norm(call.stream, call.input(0, n * c), call.input(1, c), call.optional(2, c), call.output(0, n * c),
               call.output(1, n), call.output(2, n), n, c, epsilon);
  else
    rms_norm(call.stream, call.input(0, n * c), call.input(1, c), call.output(0, n * c), call.output(1, n), n, c,
             epsilon);
}

void run_norm_grad(const Call& call) {
  const std::int64_t n = call.op.n, c = call.op.m, size = n * c;
  if (call.op.kind == OpKind::layer_norm_grad)
    layer_norm_grad(call.stream, call.input(0, size), call.input(1, size), call.input(2, c), call.input(3, n),
                    call.input(4, n), call.optional(5, size), call.output(0, size), call.output(1, c),
                    call.optional_output(2, c), n, c);
  else
    rms_norm_grad(call.stream, call.input(0, size), call.input(1, size), call.input(2, c), call.input(3, n),
                  call.optional(4, size), call.output(0, size), call.output(1, c), n, c);
}

AttentionShape shape_of(const Op& op) {
  ENSURE(op.kv_heads > 0 && op.heads % op.kv_heads == 0, "{} heads share {}", op.heads, op.kv_heads);
  AttentionShape shape;
  shape.batch = op.batch;
  shape.sequence = op.sequence;
  shape.heads = static_cast<int>(op.heads);
  shape.kv_heads = static_cast<int>(op.kv_heads);
  shape.head_dim = static_cast<int>(op.head_dim);
  shape.causal = op.causal;
  shape.flash = op.flash;
  return shape;
}

void run_attention(const Call& call) {
  const Op& op = call.op;
  const std::int64_t n = op.batch * op.sequence;
  const std::int64_t packed = n * (op.heads + 2 * op.kv_heads) * op.head_dim;
  const std::int64_t y = n * op.heads * op.head_dim;
  const std::int64_t saved = n * op.heads * (op.flash ? 1 : op.sequence);
  if (op.kind == OpKind::attention)
    attention(call.stream, shape_of(op), call.input(0, packed), call.output(0, y), call.output(1, saved));
  else
    attention_grad(call.stream, shape_of(op), call.input(0, y), call.input(1, packed), call.input(2, y),
                   call.input(3, saved), call.output(0, packed));
}

void run_rope(const Call& call) {
  const Op& op = call.op;
  ENSURE(op.head_dim % 2 == 0, "rope turns pairs, but heads have {} elements", op.head_dim);
  const std::int64_t packed = op.batch * op.sequence * (op.heads + 2 * op.kv_heads) * op.head_dim;
  rope(call.stream, shape_of(op), call.input(0, packed), call.output(0, packed), op.epsilon,
       op.kind == OpKind::rope ? 1 : -1);
}

void run_activation(const Call& call) {
  const std::int64_t n = call.op.n, f = call.op.m, size = n * f;
  const OpKind kind = call.op.kind;
  if (kind == OpKind::gelu)
    gelu(call.stream, call.input(0, size), call.output(0, size), size);
  else if (kind == OpKind::gelu_grad)
    gelu_grad(call.stream, call.input(0, size), call.input(1, size), call.output(0, size), size);
  else if (kind == OpKind::swiglu)
    swiglu(call.stream, call.input(0, 2 * size), call.output(0, size), n, f);
  else
    swiglu_grad(call.stream, call.input(0, size), call.input(1, 2 * size), call.output(0, 2 * size), n, f);
}

/// The shard's logits: how many of its columns are real, and the id of the first.
struct Shard {
  std::int64_t first, valid;
  explicit Shard(const Call& call)
      : first(call.context.tensor_rank * call.op.m),
        valid(std::clamp<std::int64_t>(call.op.vocab - first, 0, call.op.m)) {}
};

void run_loss(const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m;
  const Shard s(call);
  const float scale = static_cast<float>(call.op.scale);
  const OpKind kind = call.op.kind;
  if (kind == OpKind::softmax_max)
    softmax_max(call.stream, call.input(0, n * m), call.output(0, n), n, m, s.valid);
  else if (kind == OpKind::softmax_sum)
    softmax_sum(call.stream, call.input(0, n * m), call.input(1, n), call.ids(2, n), call.output(0, 2 * n), n, m,
                s.valid, s.first);
  else if (kind == OpKind::cross_entropy)
    cross_entropy(call.stream, call.input(0, n), call.input(1, 2 * n), call.output(0, 1), n, scale);
  else
    cross_entropy_grad(call.stream, call.input(0, n * m), call.input(1, n), call.input(2, n), call.ids(3, n),
                       call.output(0, n * m), n, m, s.valid, s.first, scale);
}

AdamWStep adamw_step(const StepContext& context) {
  const double t = static_cast<double>(context.step + 1);
  AdamWStep step;
  step.keep = static_cast<float>(1 - context.learning_rate * context.weight_decay);
  step.rate = static_cast<float>(context.learning_rate / (1 - std::pow(context.beta1, t)));
  step.root = static_cast<float>(std::sqrt(1 - std::pow(context.beta2, t)));
  step.beta1 = static_cast<float>(context.beta1);
  step.rest1 = static_cast<float>(1 - context.beta1);
  step.beta2 = static_cast<float>(context.beta2);
  step.rest2 = static_cast<float>(1 - context.beta2);
  step.epsilon = static_cast<float>(context.epsilon);
  return step;
}

void run_adamw(const Call& call, const RangeTable& table) {
  const std::int64_t m = call.op.m;
  adamw(call.stream, call.input(0, m), call.optional(1, 1), call.output(0, m), call.output(1, m), call.output(2, m),
        table.data(), table.tiles, adamw_step(call.context));
}

/// Sizes of a matrix product's operands; the product itself is the backend's.
void check_matmul(const Call& call) {
  const Op& op = call.op;
  static_cast<void>(call.input(0, op.m * op.k));
  static_cast<void>(call.input(1, op.k * op.n));
  static_cast<void>(call.optional(2, op.n));
  static_cast<void>(call.output(0, op.m * op.n));
}

void run_bytes(const Call& call) {
  const std::int64_t m = call.op.m;
  if (m == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(m * models::size_of(call.op.dtype));
  std::byte* to = call.checked(call.out, "output", 0, m);
  if (call.op.kind == OpKind::fill_zero) return check(cudaMemsetAsync(to, 0, bytes, call.stream), "fill_zero");
  const std::byte* from = call.checked(call.in, "input", 0, m);
  if (from != to) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, call.stream), "copy");
}

}  // namespace

void CudaBackend::run(const Op& op, std::span<const Operand> in, std::span<const Operand> out,
                      std::span<const ElementRange> ranges, const StepContext& context) {
  const bool bytes_only = op.kind == OpKind::fill_zero || op.kind == OpKind::copy;
  if (op.dtype != models::DType::fp32 && !bytes_only)
    throw Failure(fmt::format("the CUDA backend computes in fp32 only so far, not {} in {}", models::name_of(op.kind),
                              models::name_of(op.dtype)));
  const Call call{op, in, out, context, stream_.get()};
  const std::int64_t m = op.m;
  switch (op.kind) {
    case OpKind::load_tokens: throw Failure("load_tokens is for the executor: it has no arithmetic");
    case OpKind::embedding:
    case OpKind::embedding_grad: return run_embedding(call);
    case OpKind::position_add:
    case OpKind::position_grad: return run_position(call);
    case OpKind::layer_norm:
    case OpKind::rms_norm: return run_norm(call);
    case OpKind::layer_norm_grad:
    case OpKind::rms_norm_grad: return run_norm_grad(call);
    case OpKind::matmul: check_matmul(call); return matmul(op, in, out);
    case OpKind::bias_grad: return bias_grad(call.stream, call.input(0, op.n * m), call.output(0, m), op.n, m);
    case OpKind::rope:
    case OpKind::rope_grad: return run_rope(call);
    case OpKind::attention:
    case OpKind::attention_grad: return run_attention(call);
    case OpKind::ring_attention:
    case OpKind::ring_attention_grad:
    case OpKind::split_kv:
    case OpKind::merge_kv: throw Failure("the CUDA backend has no ring attention yet: context parallelism runs on CPU");
    case OpKind::gelu:
    case OpKind::gelu_grad:
    case OpKind::swiglu:
    case OpKind::swiglu_grad: return run_activation(call);
    case OpKind::add_bias:
      return add_bias(call.stream, call.input(0, op.n * m), call.input(1, op.n * m), call.optional(2, m),
                      call.output(0, op.n * m), op.n, m);
    case OpKind::add:
      return add(call.stream, call.input(0, op.n * m), call.input(1, op.n * m), call.output(0, op.n * m), op.n * m);
    case OpKind::softmax_max:
    case OpKind::softmax_sum:
    case OpKind::cross_entropy:
    case OpKind::cross_entropy_grad: return run_loss(call);
    case OpKind::fill_zero:
    case OpKind::copy: return run_bytes(call);
    case OpKind::accumulate_into: return add(call.stream, call.output(0, m), call.input(0, m), call.output(0, m), m);
    case OpKind::norm_squared: {
      const RangeTable& table = ranges_.find(ranges, m, stream_.get());
      return norm_squared(call.stream, call.input(0, m), table.data(), table.tiles, table.scratch(), call.output(0, 1));
    }
    case OpKind::clip_coefficient:
      return clip_coefficient(call.stream, call.input(0, 1), call.output(0, 1), call.output(1, 1),
                              static_cast<float>(context.clip_norm));
    case OpKind::overflow:
    case OpKind::loss_scale: throw Failure("the CUDA backend computes in fp32: it has no loss scaling");
    case OpKind::sgd:
    case OpKind::lamb_moments:
    case OpKind::lamb:
    case OpKind::factor_sums:
    case OpKind::factor_moments:
    case OpKind::factor_norms:
    case OpKind::adafactor:
    case OpKind::adamw_8bit:
      throw Failure(fmt::format("the CUDA backend has no {} yet: it trains with AdamW, other optimizers run on CPU",
                                models::name_of(op.kind)));
    case OpKind::type_add:
    case OpKind::type_grad:
    case OpKind::gather_rows:
    case OpKind::scatter_rows:
    case OpKind::tanh:
    case OpKind::tanh_grad:
    case OpKind::gelu_erf:
    case OpKind::gelu_erf_grad:
    case OpKind::class_loss:
    case OpKind::class_loss_grad:
      throw Failure(fmt::format("the CUDA backend has no {} yet: BERT trains on CPU", models::name_of(op.kind)));
    case OpKind::convert:
    case OpKind::sum_pieces:
    case OpKind::orthogonalise:
    case OpKind::add_scaled:
    case OpKind::encode:
    case OpKind::decode:
      throw Failure(
          fmt::format("the CUDA backend has no {} yet: compressed gradients and encoded activations run on "
                      "CPU",
                      models::name_of(op.kind)));
    case OpKind::adamw: return run_adamw(call, ranges_.find(ranges, m, stream_.get()));
  }
}

}  // namespace orrery::exec::cuda
