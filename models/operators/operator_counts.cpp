// Formulas of models/operators/operator_counts.h.
#include "models/operators/operator_counts.h"

#include <algorithm>

#include "models/encoding.h"

namespace orrery::models {

CountedOp::CountedOp(const Op& of, bool full_attention_matrix)
    : op(of),
      full(full_attention_matrix),
      m(static_cast<double>(of.m)),
      n(static_cast<double>(of.n)),
      k(static_cast<double>(of.k)),
      bytes(static_cast<double>(size_of(of.dtype))) {}

std::int64_t tokens_seen(const Op& op) {
  return op.chosen > 0 ? op.chosen : op.window > 0 ? std::min(op.window, op.sequence) : op.sequence;
}

double seen_share(const Op& op) {
  const double t = static_cast<double>(op.sequence), w = static_cast<double>(tokens_seen(op));
  if (!op.causal) return 1;
  if (w >= t) return (t + 1) / (2 * t);
  return (w * (w + 1) / 2 + (t - w) * w) / (t * t);
}

namespace counts {

namespace {

// One product of the attention over heads of `width` columns, D or those of v: B*H*T*T*width multiply-adds; a causal
// kernel needs the lower triangle (T+1)/2T of it.
double attention_product(const CountedOp& s, std::int64_t width) {
  const Op& op = s.op;
  const double t = static_cast<double>(op.sequence);
  const double all = 2.0 * tokens(s) * static_cast<double>(op.heads) * t * static_cast<double>(width);
  if (tokens_seen(op) < op.sequence) return all * (s.full ? static_cast<double>(tokens_seen(op)) / t : seen_share(op));
  // Of another rank's block, half of the products remain under the mask: see exec/cpu/ring_attention.cpp.
  if (op.causal && op.ring_step > 0 && !s.full) return all / 2;
  return op.causal && !s.full ? all * (t + 1) / (2 * t) : all;
}

double attention_saved_bytes(const CountedOp& s) {
  const double rows = tokens(s) * static_cast<double>(s.op.heads);
  return s.op.flash ? 4.0 * rows : rows * static_cast<double>(s.op.sequence) * s.bytes;
}

double attention_rows(const CountedOp& s) {
  return tokens(s) * static_cast<double>(s.op.heads * value_columns(s.op));
}

// Multiply-adds of a state space's products for all tokens.
struct ScanProducts {
  explicit ScanProducts(const CountedOp& s) {
    const auto chunk = static_cast<double>(std::min(s.op.ssm.chunk, s.op.sequence));
    const double seen = s.full ? chunk : (chunk + 1) / 2, state = static_cast<double>(s.op.ssm.state);
    scores = s.n * seen * state * static_cast<double>(s.op.kv_heads);
    within = inner(s) * seen;
    states = inner(s) * state;
  }
  double scores, within, states;  ///< C B^T; its product with x; making states, or reading them
};

// fp32 states before each chunk, and C B^T of each, written and read.
double chunk_bytes(const CountedOp& s) {
  const double chunks = static_cast<double>(s.op.batch * chunks_of(s.op));
  const auto of_states = static_cast<double>(inner_columns(s.op) * s.op.ssm.state);
  const auto chunk = static_cast<double>(std::min(s.op.ssm.chunk, s.op.sequence));
  const double of_scores = static_cast<double>(s.op.kv_heads) * chunk * chunk;
  return 8 * chunks * (of_states + of_scores);
}

// Multiply-adds of a gated delta network's products for all tokens.
struct DeltaProducts {
  explicit DeltaProducts(const CountedOp& s) : of(s) {
    const auto chunk = static_cast<double>(std::min(s.op.ssm.chunk, s.op.sequence));
    const double seen = s.full ? chunk : (chunk + 1) / 2;
    inverse = all_heads(s) * (chunk - 1) * (chunk - 2) / 6;
    keys = all_heads(s) * seen * static_cast<double>(s.op.ssm.state);
  }
  ScanProducts of;       ///< scores: k k^T, or q k^T; within: the inverse or q k^T with values; states: each of three
  double inverse, keys;  ///< of the triangular matrix; its product with the keys
};

// States and inverses in fp32; keys and values that the inverse has changed, and values less what the state had.
double delta_chunk_bytes(const CountedOp& s) {
  const double chunks = static_cast<double>(s.op.batch * chunks_of(s.op));
  const auto of_states = static_cast<double>(inner_columns(s.op) * s.op.ssm.state);
  const auto chunk = static_cast<double>(std::min(s.op.ssm.chunk, s.op.sequence));
  const double of_inverses = static_cast<double>(s.op.heads) * chunk * chunk;
  return 8 * chunks * (of_states + of_inverses) +
         2 * s.bytes * (all_heads(s) * static_cast<double>(s.op.ssm.state) + 2 * inner(s));
}

// Rows of the slots that are there.
double expected_rows(const CountedOp& s) {
  return s.op.expected * static_cast<double>(s.op.slots * s.op.capacity);
}

}  // namespace

double none(const CountedOp&) {
  return 0;
}

double function_flops(const CountedOp& s) {
  return traits_of(s.op.function).forward_flops * elements(s);
}

double function_grad_flops(const CountedOp& s) {
  return traits_of(s.op.function).grad_flops * elements(s);
}

double qkv_columns(const CountedOp& s) {
  return static_cast<double>(packed_columns(s.op));
}

double rotary_columns(const CountedOp& s) {
  return static_cast<double>(s.op.rotary > 0 ? s.op.rotary : s.op.head_dim);
}

double head_norm_elements(const CountedOp& s) {
  const NormedRuns runs = normed_runs(s.op);
  return tokens(s) * static_cast<double>(runs.width() + runs.of_v * runs.k_width);
}

double attention_flops(const CountedOp& s) {
  return attention_product(s, s.op.head_dim) + attention_product(s, value_columns(s.op));  // QK^T and PV
}

// dV, dP, dQ, dK; a flash kernel computes QK^T again (Dao et al. 2022, algorithm 4), a cap's slope takes it too.
double attention_grad_flops(const CountedOp& s) {
  const int of_keys = (s.op.flash || s.op.cap > 0) && !s.full ? 3 : 2;
  return of_keys * attention_product(s, s.op.head_dim) + 2 * attention_product(s, value_columns(s.op));
}

// Of one pass over what each token's small heads score: all tokens before it, or those that were chosen.
double index_product(const CountedOp& s, double seen) {
  return 2 * tokens(s) * seen * s.m * s.k;
}

double mix_flops(const CountedOp& s) {
  return 2 * s.k * elements(s) + 4 * static_cast<double>(s.op.chosen) * s.k * s.k * s.n;
}

double choose_flops(const CountedOp& s) {
  const double t = static_cast<double>(s.op.run > 1 ? s.op.sequence / s.op.run : s.op.sequence);
  return index_product(s, s.full ? t : (t + 1) / 2);
}

// Attention's scores of the chosen tokens again, those of the small heads again, and both their gradients.
double choose_grad_flops(const CountedOp& s) {
  const double t = static_cast<double>(s.op.sequence);
  const double seen = s.full ? static_cast<double>(tokens_seen(s.op)) : seen_share(s.op) * t;
  return 2 * tokens(s) * seen * static_cast<double>(s.op.heads * s.op.head_dim) + 3 * index_product(s, seen);
}

double choose_bytes(const CountedOp& s) {
  return tokens(s) * (s.bytes * (s.m * s.k + s.k + s.m) + 4.0 * static_cast<double>(s.op.chosen));
}

double choose_grad_bytes(const CountedOp& s) {
  const double own = s.bytes * (s.m * s.k + s.k + s.m);
  return tokens(s) * (s.bytes * qkv_columns(s) + 2 * own + 4.0 * static_cast<double>(s.op.chosen));
}

// An unfused kernel writes the scores, reads and writes them in the softmax, and reads them for PV.
double attention_bytes(const CountedOp& s) {
  const double qkv = tokens(s) * qkv_columns(s);
  return s.bytes * (qkv + attention_rows(s)) + (s.op.flash ? 1 : 4) * attention_saved_bytes(s);
}

double attention_grad_bytes(const CountedOp& s) {
  const double qkv = tokens(s) * qkv_columns(s);
  return s.bytes * 2 * (qkv + attention_rows(s)) + (s.op.flash ? 1 : 6) * attention_saved_bytes(s);
}

double ring_attention_bytes(const CountedOp& s) {
  const bool grad = s.op.kind == OpKind::ring_attention_grad;
  const double y = attention_rows(s);
  const double accumulated = s.op.accumulate ? y : 0;  // y or dq, read and written again
  return s.bytes * ((grad ? 2 : 1) * (tokens(s) * qkv_columns(s) + y) + accumulated) + attention_saved_bytes(s);
}

double rope_flops(const CountedOp& s) {
  return 6 * tokens(s) * static_cast<double>(s.op.heads + s.op.kv_heads) * rotary_columns(s);
}

double rope_bytes(const CountedOp& s) {
  return s.bytes * 2 * tokens(s) * static_cast<double>(s.op.heads + s.op.kv_heads) * rotary_columns(s);
}

double key_value_bytes(const CountedOp& s) {
  return s.bytes * 2 * tokens(s) * static_cast<double>(key_value_columns(s.op));
}

// The residual's gradient may be added by the same kernel.
double norm_grad_bytes(const CountedOp& s) {
  const std::size_t place = s.op.kind == OpKind::layer_norm_grad ? 5 : 4;
  const bool addend = s.op.in.size() > place && s.op.in[place] >= 0;
  return s.bytes * (addend ? 4 : 3) * elements(s) + 8 * s.n;
}

// Flops of all expert products that the operator stands for (one or two).
double grouped_flops(const CountedOp& s) {
  const bool gradient = s.op.kind == OpKind::grouped_weight_grad;
  const double products = (gradient ? s.op.out.size() > 1 : s.op.in.size() > 3) ? 2 : 1;
  const auto width = static_cast<double>(gradient ? s.op.m * s.op.n : s.op.n * s.op.k);
  return 2 * expected_rows(s) * (products * width);
}

double grouped_bytes(const CountedOp& s) {
  const double weights = s.op.in.size() > 3 ? 2 : 1, inputs = s.op.trans_b ? 1 : weights,
               outputs = s.op.trans_b ? weights : 1;
  return s.bytes *
         (expected_rows(s) * (inputs * s.k + outputs * s.n) + weights * static_cast<double>(s.op.experts) * s.n * s.k);
}

double grouped_grad_bytes(const CountedOp& s) {
  const double weights = s.op.out.size() > 1 ? 2 : 1;
  return s.bytes * (expected_rows(s) * (weights * s.m + s.n) +
                    (s.op.accumulate ? 2 : 1) * weights * static_cast<double>(s.op.experts) * s.m * s.n);
}

// Each head counts with all of its columns, and with those of its keys and values before packing.
double latent_bytes(const CountedOp& s) {
  const auto before = static_cast<double>(s.op.head_dim - s.op.rotary + s.op.k);
  return s.bytes *
         (all_heads(s) * (4 * static_cast<double>(s.op.head_dim) + before) + s.n * static_cast<double>(s.op.rotary));
}

double biases_of(const CountedOp& s) {
  return (s.op.kind == OpKind::expert_bias ? s.op.in.size() > 3 : s.op.out.size() > 1) ? 2 : 1;
}

double combined_flops(const CountedOp& s) {
  return 2 * elements(s) * static_cast<double>(s.op.chosen);
}

double travelling_bytes(const CountedOp& s) {
  return s.bytes * elements(s) + static_cast<double>(size_of(dtype_of(s.op.codec))) * s.n * s.k;
}

double columns_bytes(const CountedOp& s) {
  return s.bytes * 2 * s.n * (s.m + s.k);
}

double lookup_bytes(const CountedOp& s) {
  return s.bytes * (elements(s) + s.k) + 4 * s.n;
}

double exchanged_bytes(const CountedOp& s, double of_choice) {
  return s.bytes * (elements(s) + s.m * chosen_values(s)) + of_choice * chosen_values(s);
}

// Gradients read; rows and their states read and written; indices sorted.
double bag_update_bytes(const CountedOp& s) {
  if (by_adam(s)) return s.bytes * 7 * elements(s) + 24 * s.n;
  return s.bytes * 3 * elements(s) + (s.op.out.size() > 1 && s.op.out[1] >= 0 ? 32 : 24) * s.n;
}

// The parameter is read and written in fp32, or its master is; then the copy that compute reads is written too.
double parameter_bytes(const CountedOp& s, std::size_t copy) {
  return (s.op.stochastic ? 4 : 8) + (s.op.out.size() > copy ? 2 : 0);
}

double newton_schulz_flops(const CountedOp& s) {
  const double shorter = std::min(s.m, s.n), longer = std::max(s.m, s.n);
  const double square = shorter * shorter, whole = shorter * longer;
  return kNewtonSchulzSteps * (4 * square * longer + 2 * square * shorter + 3 * square + 2 * whole) + 3 * whole;
}

// In each Newton-Schulz step a product reads its operands and writes its result, and so do the two sums.
double newton_schulz_bytes(const CountedOp& s) {
  const double shorter = std::min(s.m, s.n), longer = std::max(s.m, s.n);
  return kNewtonSchulzSteps * (4 * (4 * shorter * longer + 6 * shorter * shorter));
}

double inner(const CountedOp& s) {
  return s.n * static_cast<double>(inner_columns(s.op));
}

double convolved(const CountedOp& s) {
  return s.n * static_cast<double>(convolved_columns(s.op));
}

double conv_flops(const CountedOp& s) {
  return convolved(s) * (2 * static_cast<double>(s.op.ssm.taps) + traits_of(Activation::swiglu).forward_flops);
}

// Computed again, then for x and for the weight.
double conv_grad_flops(const CountedOp& s) {
  return convolved(s) * (6 * static_cast<double>(s.op.ssm.taps) + traits_of(Activation::swiglu).grad_flops);
}

double gated_conv_flops(const CountedOp& s) {
  return elements(s) * (2 * static_cast<double>(s.op.ssm.taps) + 2);
}

double gated_conv_grad_flops(const CountedOp& s) {
  return elements(s) * (6 * static_cast<double>(s.op.ssm.taps) + 5);
}

double scan_flops(const CountedOp& s) {
  const ScanProducts p(s);
  return 2 * (p.scores + p.within + 2 * p.states);
}

double scan_grad_flops(const CountedOp& s) {
  const ScanProducts p(s);
  const double gradients = 2 * scan_flops(s);
  return s.full ? gradients : gradients + 2 * (p.scores + p.within + p.states);
}

double scan_bytes(const CountedOp& s) {
  return s.bytes * (convolved(s) + inner(s) + all_heads(s)) + chunk_bytes(s);
}

double scan_grad_bytes(const CountedOp& s) {
  return s.bytes * (2 * convolved(s) + inner(s) + 2 * all_heads(s)) + 2 * chunk_bytes(s);
}

double delta_flops(const CountedOp& s) {
  const DeltaProducts p(s);
  return 2 * (2 * p.of.scores + p.inverse + p.keys + 2 * p.of.within + 3 * p.of.states);
}

double delta_grad_flops(const CountedOp& s) {
  const DeltaProducts p(s);
  const double forward = delta_flops(s);
  return s.full ? 2 * forward : 3 * forward - 2 * (p.of.within + p.of.states);
}

double delta_bytes(const CountedOp& s) {
  return s.bytes * (convolved(s) + inner(s) + 2 * all_heads(s)) + delta_chunk_bytes(s);
}

double delta_grad_bytes(const CountedOp& s) {
  return s.bytes * (2 * convolved(s) + inner(s) + 4 * all_heads(s)) + 2 * delta_chunk_bytes(s);
}

double selective_flops(const CountedOp& s) {
  constexpr double kOfCell = 7, kOfColumn = 6;
  return inner(s) * (kOfCell * static_cast<double>(s.op.ssm.state) + kOfColumn);
}

double selective_grad_flops(const CountedOp& s) {
  return (s.full ? 2 : 3) * selective_flops(s);
}

double sparse_bytes_of(const CountedOp& s) {
  return s.bytes * elements(s) + static_cast<double>(sparse_bytes(s.op.m * s.op.n, s.op.capacity, size_of(s.op.dtype)));
}

double encoded_bytes_of(const CountedOp& s) {
  return s.bytes * s.m + static_cast<double>(encoded_bytes(s.op.m, s.op.k));
}

}  // namespace counts

}  // namespace orrery::models
