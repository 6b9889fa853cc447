// From an operator's kind to its kernel: sizes and operands as models/operators/op.h fixes them.
#include <fmt/core.h>

#include <algorithm>

#include "base/ensure.h"
#include "exec/cuda/backend.h"
#include "exec/cuda/call.h"
#include "exec/cuda/dropout.h"
#include "exec/cuda/fusion.h"
#include "exec/cuda/kernels/kernels.h"
#include "models/operators/run_alone.h"

namespace orrery::exec::cuda {
namespace {

using models::Op;
using models::OpKind;

Positions positions_of(const Call& call) {
  return {call.op.context, call.context.part};
}

template <class T>
void run_embedding(const Call& call) {
  const Op& op = call.op;
  const std::int64_t first = call.context.tensor_rank * op.m;
  const std::int64_t n = op.n, m = op.m, c = op.k;
  if (op.kind == OpKind::embedding)
    embedding(call.stream, call.ids(0, n), call.input<T>(1, m * c), call.output<T>(0, n * c), n, c, first, m,
              static_cast<float>(op.scale));
  else
    embedding_grad<T>(call.stream, call.ids(0, n), call.input<T>(1, n * c), call.output<GradientOf<T>>(0, m * c), n, c,
                      first, m, static_cast<float>(op.scale), call.scratch);
}

template <class T>
void run_position(const Call& call) {
  const Op& op = call.op;
  const std::int64_t n = op.n, c = op.m, t = op.sequence;
  ENSURE(t > 0 && (op.row_shard || n % t == 0), "{} rows of sequences of {}", n, t);
  ENSURE(op.context == 1 || (t % 2 == 0 && !op.row_shard), "context parallelism over {} rows of a sequence", t);
  if (op.kind == OpKind::position_add) {
    const std::int64_t first = op.row_shard ? call.context.tensor_rank * n : 0;
    const std::int64_t read = op.context > 1 ? t * op.context : std::min(first + n, t);
    position_add(call.stream, call.input<T>(0, n * c), call.input<T>(1, (op.k + read) * c) + op.k * c,
                 call.output<T>(0, n * c), n, c, t, first, positions_of(call));
  } else
    position_grad<T>(call.stream, call.input<T>(0, n * c),
                     call.output<GradientOf<T>>(0, (op.k + t * op.context) * c) + op.k * c, n, c, t,
                     positions_of(call));
}

/// `added`: the add_bias before it, when both are one.
template <class T>
void run_norm(const Call& call, const Call* added) {
  const std::int64_t n = call.op.n, c = call.op.m;
  const float epsilon = static_cast<float>(call.op.epsilon);
  NormInput<T> in;
  if (added) {
    in.residual = added->input<T>(0, n * c);
    in.x = added->input<T>(1, n * c);
    in.added_bias = added->optional<T>(2, c);
    in.sum = added->output<T>(0, n * c);
    in.masks = row_masks(*added);
  } else {
    in.x = call.input<T>(0, n * c);
  }
  if (call.op.kind == OpKind::layer_norm)
    layer_norm(call.stream, in, call.input<T>(1, c), call.optional<T>(2, c), call.output<T>(0, n * c),
               call.output(1, n), call.output(2, n), n, c, epsilon);
  else
    rms_norm(call.stream, in, call.input<T>(1, c), call.output<T>(0, n * c), call.output(1, n), n, c, epsilon);
}

template <class T>
void run_norm_grad(const Call& call) {
  using G = GradientOf<T>;
  const std::int64_t n = call.op.n, c = call.op.m, size = n * c;
  if (call.op.kind == OpKind::layer_norm_grad)
    layer_norm_grad<T>(call.stream, call.input<T>(0, size), call.input<T>(1, size), call.input<T>(2, c),
                       call.input(3, n), call.input(4, n), call.optional<T>(5, size), call.output<T>(0, size),
                       call.output<G>(1, c), call.optional_output<G>(2, c), n, c, call.scratch, call.op.accumulate);
  else
    rms_norm_grad<T>(call.stream, call.input<T>(0, size), call.input<T>(1, size), call.input<T>(2, c), call.input(3, n),
                     call.optional<T>(4, size), call.output<T>(0, size), call.output<G>(1, c), n, c, call.scratch,
                     call.op.accumulate);
}

AttentionShape shape_of(const Call& call) {
  const Op& op = call.op;
  ENSURE(op.kv_heads > 0 && op.heads % op.kv_heads == 0, "{} heads share {}", op.heads, op.kv_heads);
  AttentionShape shape;
  shape.batch = op.batch;
  shape.sequence = op.sequence;
  shape.heads = static_cast<int>(op.heads);
  shape.kv_heads = static_cast<int>(op.kv_heads);
  shape.head_dim = static_cast<int>(op.head_dim);
  shape.causal = op.causal;
  shape.flash = op.flash;
  shape.masks = score_masks(call);
  shape.score_scale = op.score_scale;
  shape.cap = op.cap;
  shape.window = op.window;
  shape.alibi_heads = static_cast<int>(op.alibi_heads);
  shape.first_head = static_cast<int>(call.context.tensor_rank * op.heads);
  return shape;
}

/// Elements of the operands of attention.
struct AttentionSizes {
  std::int64_t n, packed, kv, y, lse;
  explicit AttentionSizes(const Op& op)
      : n(op.batch * op.sequence),
        packed(n * (op.heads + 2 * op.kv_heads) * op.head_dim),
        kv(n * 2 * op.kv_heads * op.head_dim),
        y(n * op.heads * op.head_dim),
        lse(n * op.heads) {}
};

template <class T>
void run_attention(const Call& call) {
  const Op& op = call.op;
  const AttentionSizes s(op);
  const bool forward = op.kind == OpKind::attention;
  const auto saved = [&](std::size_t index) -> void* {
    if (op.flash) return call.typed<float>(!forward, index, s.lse);
    return call.typed<T>(!forward, index, s.lse * op.sequence);
  };
  if (forward)
    attention(call.stream, shape_of(call), call.input<T>(0, s.packed), call.output<T>(0, s.y), saved(1));
  else
    attention_grad(call.stream, shape_of(call), call.input<T>(0, s.y), call.input<T>(1, s.packed),
                   call.input<T>(2, s.y), saved(3), call.output<T>(0, s.packed), call.scratch);
}

/// What a causal mask keeps of a block, with the chunks of each rank as plan/spec/plan.h says: the lower triangle of
/// the own block, the first chunk of an earlier rank's block, and the whole block of a later rank for the second chunk
/// of queries.
RingBlock block_of(const Op& op, int part) {
  ENSURE(op.context > 1 && op.ring_step < op.context && op.sequence % 2 == 0, "ring step {} of {} over {} tokens",
         op.ring_step, op.context, op.sequence);
  ENSURE(op.window == 0 && op.alibi_heads == 0, "a ring without windows and slopes: {}, {}", op.window, op.alibi_heads);
  RingBlock block;
  block.keys = op.sequence;
  block.accumulate = op.accumulate;
  if (!op.causal) return block;
  block.triangle = op.ring_step == 0;
  const bool later = op.ring_step > part;  // the owner, part - ring_step, wraps around to a rank after this one
  if (later) block.first_query = op.sequence / 2;
  if (!later && !block.triangle) block.keys = op.sequence / 2;
  return block;
}

template <class T>
void run_ring_attention(const Call& call) {
  const Op& op = call.op;
  const AttentionSizes s(op);
  const RingBlock block = block_of(op, call.context.part);
  if (op.kind == OpKind::ring_attention)
    ring_attention(call.stream, shape_of(call), block, call.input<T>(0, s.packed), call.input<T>(1, s.kv),
                   call.output<T>(0, s.y), call.output(1, s.lse));
  else
    ring_attention_grad(call.stream, shape_of(call), block, call.input<T>(0, s.y), call.input<T>(1, s.packed),
                        call.input<T>(2, s.y), call.input(3, s.lse), call.input<T>(4, s.kv),
                        call.output<T>(0, s.packed), call.output<T>(1, s.kv), call.scratch);
}

template <class T>
void run_keys_and_values(const Call& call) {
  const Op& op = call.op;
  const AttentionSizes s(op);
  const std::int64_t first = op.heads * op.head_dim, width = 2 * op.kv_heads * op.head_dim;
  if (op.kind == OpKind::split_kv)
    take_columns(call.stream, call.input<T>(0, s.packed), call.output<T>(0, s.kv), s.n, first + width, first, width);
  else
    put_columns(call.stream, call.input<T>(0, s.kv), call.output<T>(0, s.packed), s.n, first + width, first, width);
}

template <class T>
void run_rope(const Call& call) {
  const Op& op = call.op;
  const std::int64_t turned = op.rotary > 0 ? op.rotary : op.head_dim;
  ENSURE(turned % 2 == 0 && turned <= op.head_dim, "rope turns pairs, but of {} elements of a head {}", op.head_dim,
         turned);
  const std::int64_t packed = AttentionSizes(op).packed;
  Rotation rotation{};
  const std::vector<double> rates = models::rope_rates(op.epsilon, op.rope_scaling, turned);
  ENSURE(rates.size() <= Rotation::kMostPairs, "rope of heads of {} columns", turned);
  std::copy(rates.begin(), rates.end(), rotation.rates);
  rotation.attention = op.rope_scaling.attention;
  rope(call.stream, shape_of(call), positions_of(call), call.input<T>(0, packed), call.output<T>(0, packed), turned,
       rotation, op.kind == OpKind::rope ? 1 : -1, call.scratch);
}

template <class T>
void run_function(const Call& call) {
  const Op& op = call.op;
  const std::int64_t n = op.n, f = op.m, size = n * f;
  const models::Function function = models::function_of(op);
  if (op.kind == OpKind::gelu || op.kind == OpKind::activate)
    activate(call.stream, function, call.input<T>(0, size), call.output<T>(0, size), size);
  else if (op.kind == OpKind::gelu_grad || op.kind == OpKind::activate_grad)
    activate_grad(call.stream, function, call.input<T>(0, size), call.input<T>(1, size), call.output<T>(0, size), size);
  else if (op.kind == OpKind::swiglu || op.kind == OpKind::gate)
    gate(call.stream, function, call.input<T>(0, 2 * size), call.output<T>(0, size), n, f);
  else if (op.kind == OpKind::swiglu_grad || op.kind == OpKind::gate_grad)
    gate_grad(call.stream, function, call.input<T>(0, size), call.input<T>(1, 2 * size), call.output<T>(0, 2 * size), n,
              f);
  else
    soft_cap(call.stream, call.input<T>(0, size), call.output<T>(0, size), size, static_cast<float>(op.cap));
}

template <class T>
void run_head_norm(const Call& call) {
  using G = GradientOf<T>;
  const Op& op = call.op;
  refuse_value_norms(op);
  const AttentionSizes s(op);
  const models::NormedRuns runs = models::normed_runs(op);
  const std::int64_t q = runs.q_width, k = runs.k_width, statistics = s.n * runs.count();
  if (op.kind == OpKind::head_norm)
    head_norm(call.stream, shape_of(call), op.joint, call.input<T>(0, s.packed), call.input<T>(1, q),
              call.input<T>(2, k), call.output<T>(0, s.packed), call.output(1, statistics),
              static_cast<float>(op.epsilon));
  else
    head_norm_grad<T>(call.stream, shape_of(call), op.joint, call.input<T>(0, s.packed), call.input<T>(1, s.packed),
                      call.input<T>(2, q), call.input<T>(3, k), call.input(4, statistics), call.output<T>(0, s.packed),
                      call.output<G>(1, q), call.output<G>(2, k), call.scratch);
}

template <class T>
void run_addition(const Call& call) {
  const std::int64_t n = call.op.n, m = call.op.m;
  if (call.op.kind == OpKind::add_bias)
    add_bias(call.stream, call.input<T>(0, n * m), call.input<T>(1, n * m), call.optional<T>(2, m),
             call.output<T>(0, n * m), n, m);
  else if (call.op.kind == OpKind::add)
    add(call.stream, call.input<T>(0, n * m), call.input<T>(1, n * m), call.output<T>(0, n * m), n * m);
  else
    add<T>(call.stream, call.output<T>(0, m), call.input<T>(0, m), call.output<T>(0, m), m);
}

/// The shard's logits: how many of its columns are real, and the id of the first.
struct Shard {
  std::int64_t first, valid;
  explicit Shard(const Call& call)
      : first(call.context.tensor_rank * call.op.m),
        valid(std::clamp<std::int64_t>(call.op.vocab - first, 0, call.op.m)) {}
};

/// `maximum`: the softmax_max before it, when both are one.
template <class T>
void run_loss(const Call& call, const Call* maximum) {
  const std::int64_t n = call.op.n, m = call.op.m;
  const Shard s(call);
  const float scale = static_cast<float>(call.op.scale);
  const OpKind kind = call.op.kind;
  if (maximum)
    softmax_statistics(call.stream, call.input<T>(0, n * m), call.ids(2, n), maximum->output(0, n),
                       call.output(0, 2 * n), n, m, s.valid, s.first);
  else if (kind == OpKind::softmax_max)
    softmax_max(call.stream, call.input<T>(0, n * m), call.output(0, n), n, m, s.valid);
  else if (kind == OpKind::softmax_sum)
    softmax_sum(call.stream, call.input<T>(0, n * m), call.input(1, n), call.ids(2, n), call.output(0, 2 * n), n, m,
                s.valid, s.first);
  else
    cross_entropy_grad(call.stream, call.input<T>(0, n * m), call.input(1, n), call.input(2, n), call.ids(3, n),
                       call.optional(4, 1), call.output<T>(0, n * m), n, m, s.valid, s.first, scale,
                       static_cast<float>(call.op.cap));
}

void run_bytes(const Call& call) {
  const std::int64_t m = call.op.m;
  if (m == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(m * models::size_of(call.op.dtype));
  std::byte* to = call.checked(false, 0, m).data;
  if (call.op.kind == OpKind::fill_zero) return check(cudaMemsetAsync(to, 0, bytes, call.stream), "fill_zero");
  const std::byte* from = call.checked(true, 0, m).data;
  if (from != to) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, call.stream), "copy");
}

/// The type that an operator computes in: the type of its first operand that holds values.
models::DType computed_type(const Op& op, std::span<const Operand> in) {
  const bool tokens_first = op.kind == OpKind::embedding || op.kind == OpKind::embedding_grad;
  const std::size_t index = tokens_first ? 1 : 0;
  return index < in.size() && in[index].data ? in[index].dtype : op.dtype;
}

}  // namespace

void CudaBackend::note_own_attention(const Op& op, const std::string& reason) {
  const bool tensor_cores =
      op.flash && models::size_of(op.dtype) == 2 && has_tensor_kernel(static_cast<int>(op.head_dim));
  kernels_.insert(
      KernelChoice{models::name_of(op.kind), tensor_cores ? "own, tensor cores" : "own, fp32 cores", reason});
}

// In 16 bits, with row statistics and without dropout: cuDNN draws masks by a generator of its own, and draws others on
// every split of a model.
bool CudaBackend::attention_by_cudnn(const Call& call) {
  const Op& op = call.op;
  const models::DType dtype = computed_type(op, call.in);
  const auto leave = [&](const std::string& reason) {
    note_own_attention(op, reason);
    return false;
  };
  if (dtype != models::DType::bf16 && dtype != models::DType::fp16) return leave("cuDNN's is for 16 bits");
  if (!op.flash) return leave("the plan's attention is not flash");
  if (op.dropout > 0) return leave("cuDNN's graph takes no masks that every split of a model draws alike");
  if (op.cap > 0 || op.alibi_heads > 0 || op.window > 0 || op.score_scale > 0)
    return leave("cuDNN's graph here has no caps, slopes, windows and scales of a model's own");
  if (!cudnn_) return leave(no_cudnn_);
  const AttentionSizes s(op);
  const auto data = [&](bool input, std::size_t index, std::int64_t elements) -> void* {
    return call.checked(input, index, elements).data;
  };
  AttentionCall one{.dtype = dtype, .shape = shape_of(call)};
  one.ring = op.kind == OpKind::ring_attention || op.kind == OpKind::ring_attention_grad;
  if (one.ring) one.block = block_of(op, call.context.part);
  if (op.kind == OpKind::attention || op.kind == OpKind::ring_attention) {
    one.qkv = data(true, 0, s.packed);
    one.y = data(false, 0, s.y);
    one.lse = call.output(1, s.lse);
    if (one.ring) one.kv = data(true, 1, s.kv);
  } else {
    one.dy = data(true, 0, s.y);
    one.qkv = data(true, 1, s.packed);
    one.y = data(true, 2, s.y);
    one.lse = const_cast<float*>(call.input(3, s.lse));
    one.dqkv = data(false, 0, s.packed);
    if (one.ring) one.kv = data(true, 4, s.kv), one.dkv = data(false, 1, s.kv);
  }
  const bool done = cudnn_->run(one, call.stream);
  const CudnnAttention::Choice choice = cudnn_->choice(one);
  if (!done) return leave(choice.refusal);
  std::string kernel = "cuDNN " + cudnn_->version(), reason;
  if (one.dy) {
    kernel += choice.repeats ? ", repeats bit by bit" : ", sums in any order";
    if (choice.repeats) reason = choice.no_atomics.empty() ? "a faster one takes --no-repeat" : choice.no_atomics;
  }
  kernels_.insert(KernelChoice{models::name_of(op.kind), std::move(kernel), std::move(reason)});
  return true;
}

void CudaBackend::run_whole_loss(std::span<const OpCall> calls, const StepContext& context) {
  const auto call = [&](std::size_t i) {
    return Call{*calls[i].op, calls[i].in, calls[i].out, context, stream_.get(), {}};
  };
  const Call max = call(0), sum = call(1), loss = call(2), gradient = call(3);
  const std::int64_t n = max.op.n, m = max.op.m;
  by_type(computed_type(max.op, max.in), "cross_entropy", [&]<class T>(std::type_identity<T>) {
    WholeLoss<T> one;
    one.logits = gradient.output<T>(0, n * m);
    one.targets = sum.ids(2, n);
    one.scaling = gradient.optional(4, 1);
    one.max = max.output(0, n);
    one.sums = sum.output(0, 2 * n);
    one.loss = loss.output(0, 1);
    one.rows = n;
    one.columns = m;
    one.valid = Shard(gradient).valid;
    one.loss_scale = static_cast<float>(loss.op.scale);
    one.gradient_scale = static_cast<float>(gradient.op.scale);
    one.cap = static_cast<float>(gradient.op.cap);
    one.counter = static_cast<unsigned*>(counter_.data());
    whole_cross_entropy(stream_.get(), one);
  });
}

void CudaBackend::run_one(const OpCall& one, const StepContext& context, const OpCall* before) {
  const Op& op = *one.op;
  const auto draw = [&](const Op& of) {
    return of.dropout > 0 || of.kind == OpKind::dropout ? dropout_draw(of, context) : DropoutDraw{};
  };
  const Call call{op, one.in, one.out, context, stream_.get(), products_.scratch(), draw(op)};
  const auto typed = [&](const auto& body) { by_type(computed_type(op, one.in), models::name_of(op.kind), body); };
  if (runs_in_slots(op)) return run_experts(call);
  switch (op.kind) {
    case OpKind::load_tokens: throw Failure("load_tokens is for the executor: it has no arithmetic");
    case OpKind::embedding:
    case OpKind::embedding_grad: return typed([&]<class T>(std::type_identity<T>) { run_embedding<T>(call); });
    case OpKind::position_add:
    case OpKind::position_grad: return typed([&]<class T>(std::type_identity<T>) { run_position<T>(call); });
    case OpKind::layer_norm:
    case OpKind::rms_norm: {
      if (!before) return typed([&]<class T>(std::type_identity<T>) { run_norm<T>(call, nullptr); });
      const Call added{*before->op, before->in, before->out, context, stream_.get(), {}, draw(*before->op)};
      return typed([&]<class T>(std::type_identity<T>) { run_norm<T>(call, &added); });
    }
    case OpKind::layer_norm_grad:
    case OpKind::rms_norm_grad: return typed([&]<class T>(std::type_identity<T>) { run_norm_grad<T>(call); });
    case OpKind::matmul: return matmul(call);
    case OpKind::bias_grad:
      return typed([&]<class T>(std::type_identity<T>) {
        bias_grad<T>(call.stream, call.input<T>(0, op.n * op.m), call.output<GradientOf<T>>(0, op.m), op.n, op.m,
                     call.scratch, op.accumulate);
      });
    case OpKind::rope:
    case OpKind::rope_grad: return typed([&]<class T>(std::type_identity<T>) { run_rope<T>(call); });
    case OpKind::attention:
    case OpKind::attention_grad:
      refuse_attention(op);
      if (attention_by_cudnn(call)) return;
      return typed([&]<class T>(std::type_identity<T>) { run_attention<T>(call); });
    case OpKind::ring_attention:
    case OpKind::ring_attention_grad:
      refuse_attention(op);
      if (attention_by_cudnn(call)) return;
      return typed([&]<class T>(std::type_identity<T>) { run_ring_attention<T>(call); });
    case OpKind::split_kv:
    case OpKind::merge_kv: return typed([&]<class T>(std::type_identity<T>) { run_keys_and_values<T>(call); });
    case OpKind::add_bias:
      if (op.dropout > 0) return run_dropped(call);
      return typed([&]<class T>(std::type_identity<T>) { run_addition<T>(call); });
    case OpKind::add:
    case OpKind::accumulate_into: return typed([&]<class T>(std::type_identity<T>) { run_addition<T>(call); });
    case OpKind::cross_entropy:
      return cross_entropy(call.stream, call.input(0, op.n), call.input(1, 2 * op.n), call.output(0, 1), op.n,
                           static_cast<float>(op.scale));
    case OpKind::softmax_max:
    case OpKind::softmax_sum:
    case OpKind::cross_entropy_grad: {
      if (!before) return typed([&]<class T>(std::type_identity<T>) { run_loss<T>(call, nullptr); });
      const Call maximum{*before->op, before->in, before->out, context, stream_.get(), {}};
      return typed([&]<class T>(std::type_identity<T>) { run_loss<T>(call, &maximum); });
    }
    case OpKind::fill_zero:
    case OpKind::copy: return run_bytes(call);
    case OpKind::norm_squared:
    case OpKind::clip_coefficient:
    case OpKind::overflow:
    case OpKind::loss_scale:
    case OpKind::adamw:
    case OpKind::momentum_update:
    case OpKind::lamb_moments:
    case OpKind::lamb:
    case OpKind::factor_sums:
    case OpKind::factor_moments:
    case OpKind::factor_norms:
    case OpKind::adafactor:
    case OpKind::adamw_8bit:
    case OpKind::muon_moments:
    case OpKind::muon: return update(call, one.ranges);
    case OpKind::type_add:
    case OpKind::type_grad:
    case OpKind::gather_rows:
    case OpKind::scatter_rows:
    case OpKind::tanh:
    case OpKind::tanh_grad:
    case OpKind::gelu_erf:
    case OpKind::gelu_erf_grad:
    case OpKind::class_loss:
    case OpKind::class_loss_grad: return run_masked(call);
    case OpKind::convert:
    case OpKind::sum_pieces:
    case OpKind::orthogonalise:
    case OpKind::add_scaled:
    case OpKind::encode:
    case OpKind::decode: return run_compression(call);
    case OpKind::sparse_encode:
    case OpKind::sparse_decode: return run_sparse(call);
    case OpKind::dropout: return run_dropped(call);
    case OpKind::gelu:
    case OpKind::gelu_grad:
    case OpKind::swiglu:
    case OpKind::swiglu_grad:
    case OpKind::activate:
    case OpKind::activate_grad:
    case OpKind::gate:
    case OpKind::gate_grad:
    case OpKind::soft_cap: return typed([&]<class T>(std::type_identity<T>) { run_function<T>(call); });
    case OpKind::head_norm:
    case OpKind::head_norm_grad: return typed([&]<class T>(std::type_identity<T>) { run_head_norm<T>(call); });
    case OpKind::relu:
    case OpKind::relu_grad: return run_rectified(call);
    case OpKind::route:
    case OpKind::route_grad:
    case OpKind::count_choices:
    case OpKind::place_rows:
    case OpKind::dispatch:
    case OpKind::combine:
    case OpKind::combine_weight_grad:
    case OpKind::grouped_matmul:
    case OpKind::grouped_weight_grad:
    case OpKind::expert_bias:
    case OpKind::expert_bias_grad:
    case OpKind::encode_rows:
    case OpKind::decode_rows:
    case OpKind::row_gate:
    case OpKind::row_gate_grad:
    case OpKind::balance_losses:
    case OpKind::balance_bias: return run_experts(call);
    case OpKind::load_clicks: throw Failure("load_clicks is for the executor: it has no arithmetic");
    case OpKind::cache_rows: return refuse_tiers(op);
    case OpKind::bucketise_indices:
    case OpKind::embedding_bag:
    case OpKind::embedding_bag_squares:
    case OpKind::embedding_bag_update:
    case OpKind::embedding_lookup:
    case OpKind::embedding_lookup_grad:
    case OpKind::table_update: return run_tables(call);
    case OpKind::pooled_join:
    case OpKind::pooled_split:
    case OpKind::interaction_dot:
    case OpKind::interaction_dot_grad:
    case OpKind::cross:
    case OpKind::cross_grad:
    case OpKind::click_loss:
    case OpKind::click_loss_grad:
    case OpKind::encode_pooled:
    case OpKind::decode_pooled: return run_recommender(call);
    case OpKind::split_columns:
    case OpKind::join_columns:
    case OpKind::latent_pack:
    case OpKind::latent_pack_grad:
    case OpKind::head_values:
    case OpKind::head_values_grad: return run_latent(call);
    case OpKind::newton_schulz: return run_newton_schulz(call);
#define ORRERY_CASE(kind) case OpKind::kind:
      ORRERY_CPU_ALONE(ORRERY_CASE)
      ORRERY_PREDICTED_ALONE(ORRERY_CASE)
#undef ORRERY_CASE
      return refuse_on_cuda(op);
  }
}

void CudaBackend::run(const Op& op, std::span<const Operand> in, std::span<const Operand> out,
                      std::span<const ElementRange> ranges, const StepContext& context) {
  release();
  run_now({&op, in, out, ranges}, context);
}

void CudaBackend::run_now(const OpCall& one, const StepContext& context) {
  if (on_host(one.in, one.out)) return host_backend().run(*one.op, one.in, one.out, one.ranges, context);
  run_one(one, context, nullptr);
}

void CudaBackend::release() {
  if (const std::optional<Held> held = std::exchange(held_, std::nullopt)) run_now(held->call(), held->context);
}

namespace {

/// Masks of dropout are drawn alike.
bool same_micro_batch(const StepContext& a, const StepContext& b) {
  return a.step == b.step && a.sample_step == b.sample_step && a.first_sequence == b.first_sequence;
}

}  // namespace

void CudaBackend::run_all(std::span<const OpCall> calls, const StepContext& context) {
  if (held_ && !same_micro_batch(held_->context, context)) release();
  const std::optional<Held> held = std::exchange(held_, std::nullopt);
  std::vector<OpCall> with_held;
  if (held) {
    with_held.push_back(held->call());
    with_held.insert(with_held.end(), calls.begin(), calls.end());
    calls = with_held;
  }
  const FusionOptions options{.epilogues = products_.options().epilogues != EpilogueUse::never};
  const std::vector<FusedGroup> groups = fuse(calls, options);
  for (const FusedGroup& group : groups) {
    const OpCall& one = calls[group.first];
    if (group.kind == Fused::no) {
      if (&group == &groups.back() && may_wait(one) && !on_host(one.in, one.out)) {
        held_ = Held{*one.op, {one.in.begin(), one.in.end()}, {one.out.begin(), one.out.end()}, context};
        return;
      }
      run_now(one, context);
      continue;
    }
    const OpCall& next = calls[group.first + 1];
    if (group.kind == Fused::whole_loss) {
      run_whole_loss(calls.subspan(group.first, group.count), context);
      continue;
    }
    if (group.kind == Fused::product_gelu || group.kind == Fused::product_gelu_grad) {
      const Call product{*one.op, one.in, one.out, context, stream_.get(), products_.scratch()};
      product_and_gelu(product, one, next);
    } else if (group.kind == Fused::product_bias_grad) {
      product_and_bias_grad(one, next, context);
    } else {
      run_one(next, context, &one);
    }
  }
}

}  // namespace orrery::exec::cuda
