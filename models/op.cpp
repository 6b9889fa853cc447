// Counts of one operator: floating-point operations and bytes. Matrix products and attention count multiply-adds as
// two; elementwise operators count a small whole number per element, which only matters where bytes do not dominate.
#include "models/op.h"

#include "models/encoding.h"

namespace orrery::models {

namespace {

// Row-wise operators touch n rows of m columns unless they say otherwise.
double elements(const Op& op) {
  return static_cast<double>(op.m) * static_cast<double>(op.n);
}

// Philox's ten rounds of two products and four exclusive ors, shared by eight elements, a comparison and a product.
constexpr double kDrawFlops = 10;

// Columns of packed q, k and v.
double qkv_columns(const Op& op) {
  return static_cast<double>(op.heads + 2 * op.kv_heads) * static_cast<double>(op.head_dim);
}

double tokens(const Op& op) {
  return static_cast<double>(op.batch) * static_cast<double>(op.sequence);
}

// One product of the attention: B*H*T*T*D multiply-adds; a causal kernel needs the lower triangle (T+1)/2T of it.
double attention_product(const Op& op, bool full) {
  const double t = static_cast<double>(op.sequence);
  const double all = 2.0 * tokens(op) * static_cast<double>(op.heads) * t * static_cast<double>(op.head_dim);
  if (op.window > 0 && op.window < op.sequence)
    return all * (full ? static_cast<double>(op.window) / t : seen_share(op));
  // Of another rank's block half the products remain under the mask: see exec/cpu/ring_attention.cpp.
  if (op.causal && op.ring_step > 0 && !full) return all / 2;
  return op.causal && !full ? all * (t + 1) / (2 * t) : all;
}

// Those of q and k.
double head_norm_elements(const Op& op) {
  return tokens(op) * static_cast<double>(op.heads + op.kv_heads) * static_cast<double>(op.head_dim);
}
// Columns of latent attention's keys and values before they are packed, of a head.
double latent_width(const Op& op) {
  return static_cast<double>(op.head_dim - op.rotary + op.k);
}
double all_heads(const Op& op) {
  return static_cast<double>(op.n) * static_cast<double>(op.heads);
}
std::int64_t rotary_columns(const Op& op) {
  return op.rotary > 0 ? op.rotary : op.head_dim;
}

double attention_saved_bytes(const Op& op) {
  const double rows = tokens(op) * static_cast<double>(op.heads);
  return op.flash ? 4.0 * rows : rows * static_cast<double>(op.sequence) * static_cast<double>(size_of(op.dtype));
}

// The residual's gradient, added by the same kernel.
bool has_addend(const Op& op) {
  const std::size_t place = op.kind == OpKind::layer_norm_grad ? 5 : 4;
  return op.in.size() > place && op.in[place] >= 0;
}

// An update reads and writes the parameter, or its master and besides the copy that compute reads, output `copy`.
double parameter_bytes(const Op& op, std::size_t copy) {
  return (op.stochastic ? 4 : 8) + (op.out.size() > copy ? 2 : 0);
}

// Rows of the slots that are there.
double expected_rows(const Op& op) {
  return op.expected * static_cast<double>(op.slots * op.capacity);
}
// Multiply-adds of a row in all products of an expert that the operator is.
double grouped_width(const Op& op) {
  const bool gradient = op.kind == OpKind::grouped_weight_grad;
  const double products = (gradient ? op.out.size() > 1 : op.in.size() > 3) ? 2 : 1;
  return products * static_cast<double>(gradient ? op.m * op.n : op.n * op.k);
}
// Of gate and up, or of one product.
double biases_of(const Op& op) {
  return (op.kind == OpKind::expert_bias ? op.in.size() > 3 : op.out.size() > 1) ? 2 : 1;
}
// Of the interaction's k vectors, over all samples.
double pairs(const Op& op) {
  const auto f = static_cast<double>(op.k);
  return static_cast<double>(op.n) * f * (f - 1) / 2;
}
double chosen_values(const Op& op) {
  return static_cast<double>(op.n) * static_cast<double>(op.chosen);
}

}  // namespace

double seen_share(const Op& op) {
  const double t = static_cast<double>(op.sequence), w = static_cast<double>(op.window);
  if (!op.causal) return 1;
  if (op.window <= 0 || op.window >= op.sequence) return (t + 1) / (2 * t);
  return (w * (w + 1) / 2 + (t - w) * w) / (t * t);
}

// X X^T, its square, and what these make of X (Jordan et al. 2024); beside these sums of both, and the norm.
double newton_schulz_flops(const Op& op) {
  const auto shorter = static_cast<double>(std::min(op.m, op.n)), longer = static_cast<double>(std::max(op.m, op.n));
  const double square = shorter * shorter, whole = shorter * longer;
  return kNewtonSchulzSteps * (4 * square * longer + 2 * square * shorter + 3 * square + 2 * whole) + 3 * whole;
}

// Of one step: a product reads its operands and writes its result, and so do the two sums.
double newton_schulz_bytes(const Op& op) {
  const auto shorter = static_cast<double>(std::min(op.m, op.n)), longer = static_cast<double>(std::max(op.m, op.n));
  return 4 * (4 * shorter * longer + 6 * shorter * shorter);
}

double flops_of(const Op& op, bool full_attention_matrix) {
  const auto m = static_cast<double>(op.m);
  switch (op.kind) {
    case OpKind::matmul: return 2.0 * static_cast<double>(op.m) * static_cast<double>(op.n) * static_cast<double>(op.k);
    case OpKind::attention:
    case OpKind::ring_attention: return 2 * attention_product(op, full_attention_matrix);  // QK^T and PV
    case OpKind::attention_grad:
    case OpKind::ring_attention_grad:
      // dV, dP, dQ, dK; a flash kernel computes QK^T again (Dao et al. 2022, algorithm 4), a cap's slope takes it too.
      return ((op.flash || op.cap > 0) && !full_attention_matrix ? 5 : 4) *
             attention_product(op, full_attention_matrix);
    case OpKind::layer_norm:
    case OpKind::rms_norm: return 8 * elements(op);
    case OpKind::layer_norm_grad:
    case OpKind::rms_norm_grad: return 14 * elements(op);
    case OpKind::gelu:
    case OpKind::gelu_erf:
    case OpKind::tanh: return 12 * elements(op);
    case OpKind::relu:
    case OpKind::relu_grad: return elements(op);
    case OpKind::dropout: return kDrawFlops * elements(op);
    case OpKind::gelu_grad:
    case OpKind::gelu_erf_grad: return 20 * elements(op);
    case OpKind::tanh_grad: return 3 * elements(op);
    case OpKind::class_loss:
    case OpKind::class_loss_grad: return 4 * elements(op);
    case OpKind::swiglu:
    case OpKind::swiglu_grad: return 10 * elements(op);
    case OpKind::activate:
    case OpKind::gate: return traits_of(op.function).forward_flops * elements(op);
    case OpKind::activate_grad:
    case OpKind::gate_grad: return traits_of(op.function).grad_flops * elements(op);
    case OpKind::head_norm: return 8 * head_norm_elements(op);
    case OpKind::head_norm_grad: return 14 * head_norm_elements(op);
    case OpKind::soft_cap: return 14 * elements(op);
    case OpKind::route:
    case OpKind::route_grad: return 16 * elements(op);
    case OpKind::count_choices: return 8 * elements(op);
    case OpKind::combine:
    case OpKind::combine_weight_grad: return 2 * elements(op) * static_cast<double>(op.chosen);
    case OpKind::grouped_matmul:
    case OpKind::grouped_weight_grad: return 2 * expected_rows(op) * grouped_width(op);
    case OpKind::expert_bias:
    case OpKind::expert_bias_grad: return elements(op) * biases_of(op);
    case OpKind::encode_rows: return 8 * elements(op);
    case OpKind::decode_rows: return 2 * elements(op);
    case OpKind::row_gate: return 2 * elements(op);
    case OpKind::row_gate_grad: return 4 * elements(op);
    case OpKind::latent_pack_grad: return all_heads(op) * static_cast<double>(op.rotary);
    case OpKind::balance_losses:
    case OpKind::balance_bias: return 4 * m;
    case OpKind::softmax_max: return elements(op);
    case OpKind::softmax_sum:
    case OpKind::cross_entropy_grad: return 4 * elements(op);
    case OpKind::cross_entropy: return 4 * static_cast<double>(op.n);
    case OpKind::rope:
    case OpKind::rope_grad:
      return 6 * tokens(op) * static_cast<double>(op.heads + op.kv_heads) * static_cast<double>(rotary_columns(op));
    case OpKind::position_add:
    case OpKind::position_grad:
    case OpKind::type_add:
    case OpKind::type_grad:
    case OpKind::embedding_grad:
    case OpKind::bias_grad:
    case OpKind::add: return 2 * elements(op);
    case OpKind::add_bias: return (2 + (op.dropout > 0 ? kDrawFlops : 0)) * elements(op);
    case OpKind::accumulate_into: return static_cast<double>(op.m);
    case OpKind::norm_squared: return 2 * static_cast<double>(op.m);
    case OpKind::adamw: return 14 * static_cast<double>(op.m);
    case OpKind::momentum_update: return 6 * static_cast<double>(op.m);
    case OpKind::lamb_moments: return 20 * static_cast<double>(op.m);
    case OpKind::lamb: return 10 * static_cast<double>(op.m);
    case OpKind::factor_sums: return 4 * static_cast<double>(op.m);
    case OpKind::factor_moments: return 3 * static_cast<double>(op.m);
    case OpKind::factor_norms: return 9 * static_cast<double>(op.m);
    case OpKind::adafactor: return 9 * static_cast<double>(op.m);
    case OpKind::muon_moments: return 6 * static_cast<double>(op.m);
    case OpKind::newton_schulz: return newton_schulz_flops(op);
    // What is no matrix moves as by AdamW.
    case OpKind::muon: return 5 * m + 9 * static_cast<double>(op.k);
    // Eight steps of a search for each code, beside AdamW's arithmetic.
    case OpKind::adamw_8bit: return 40 * static_cast<double>(op.m);
    case OpKind::convert: return m;
    case OpKind::sum_pieces: return m * static_cast<double>(op.n);
    // Twice: each column's part along those before it is taken out, and it is divided by its length.
    case OpKind::orthogonalise: return m * static_cast<double>(4 * op.n * op.n + 6 * op.n);
    case OpKind::add_scaled: return 2 * m;
    case OpKind::encode: return 8 * m;
    case OpKind::decode: return 4 * m;
    case OpKind::sparse_encode:
    case OpKind::sparse_decode: return 4 * elements(op);
    case OpKind::place_rows:
    case OpKind::dispatch:
    case OpKind::embedding_bag:
    case OpKind::embedding_lookup:
    case OpKind::embedding_lookup_grad: return elements(op);
    case OpKind::embedding_bag_squares: return 2 * elements(op);
    case OpKind::embedding_bag_update: return (op.rule == UpdateRule::adam ? 16 : 6) * elements(op);
    case OpKind::table_update: return (op.rule == UpdateRule::adam ? 14 : 4) * m;
    case OpKind::interaction_dot: return pairs(op) * 2 * m;
    case OpKind::interaction_dot_grad: return pairs(op) * 4 * m;
    case OpKind::pooled_join:
    case OpKind::pooled_split: return elements(op);
    case OpKind::cross: return 2 * elements(op);
    case OpKind::cross_grad: return 3 * elements(op);
    case OpKind::click_loss:
    case OpKind::click_loss_grad: return 8 * static_cast<double>(op.n);
    case OpKind::encode_pooled:
    case OpKind::decode_pooled: return 2 * m;
    case OpKind::load_clicks:
    case OpKind::bucketise_indices:
    case OpKind::cache_rows:
    case OpKind::load_tokens:
    case OpKind::embedding:
    case OpKind::gather_rows:
    case OpKind::scatter_rows:
    case OpKind::split_kv:
    case OpKind::merge_kv:
    case OpKind::split_columns:
    case OpKind::join_columns:
    case OpKind::latent_pack:
    case OpKind::head_values:
    case OpKind::head_values_grad:
    case OpKind::fill_zero:
    case OpKind::copy:
    case OpKind::overflow:
    case OpKind::loss_scale:
    case OpKind::clip_coefficient: return 0;
  }
  return 0;
}

double bytes_of(const Op& op) {
  const double e = static_cast<double>(size_of(op.dtype));
  const double n = static_cast<double>(op.n);
  const double m = static_cast<double>(op.m);
  const double k = static_cast<double>(op.k);
  switch (op.kind) {
    case OpKind::load_tokens: return 8 * tokens(op) + (k > 0 ? 4 * static_cast<double>(op.batch) * (2 * k + 1) : 0);
    case OpKind::embedding: return e * 2 * n * k + 4 * n;
    case OpKind::embedding_grad: return e * 3 * n * k + 4 * n;
    case OpKind::position_add: return e * 2 * elements(op);
    case OpKind::position_grad: return e * elements(op);
    case OpKind::type_add: return e * 2 * elements(op) + 4 * n;
    case OpKind::type_grad: return e * elements(op) + 4 * n;
    case OpKind::gather_rows: return e * 2 * elements(op) + 4 * n;
    case OpKind::scatter_rows: return e * (op.accumulate ? 3 * elements(op) : elements(op) + m * k) + 4 * n;
    case OpKind::tanh: return e * 2 * elements(op);
    case OpKind::tanh_grad: return e * 3 * elements(op);
    case OpKind::class_loss: return e * elements(op) + 4 * n;
    case OpKind::class_loss_grad: return e * 2 * elements(op) + 4 * n;
    case OpKind::layer_norm:
    case OpKind::rms_norm: return e * 2 * elements(op) + 8 * n;
    case OpKind::layer_norm_grad:
    case OpKind::rms_norm_grad: return e * (has_addend(op) ? 4 : 3) * elements(op) + 8 * n;
    case OpKind::matmul: return e * (m * k + k * n + (op.accumulate ? 2 : 1) * m * n);
    case OpKind::bias_grad: return e * elements(op);
    case OpKind::rope:
    case OpKind::rope_grad:
      return e * 2 * tokens(op) * static_cast<double>(op.heads + op.kv_heads) * static_cast<double>(rotary_columns(op));
    case OpKind::head_norm:
      return e * 2 * tokens(op) * qkv_columns(op) + 4 * tokens(op) * static_cast<double>(op.heads + op.kv_heads);
    case OpKind::head_norm_grad:
      return e * 3 * head_norm_elements(op) + 4 * tokens(op) * static_cast<double>(op.heads + op.kv_heads);
    case OpKind::activate:
    case OpKind::soft_cap: return e * 2 * elements(op);
    // Logits in and scores out, in fp32 whatever the model's type; and what each token has chosen.
    case OpKind::route: return 8 * elements(op) + 8 * chosen_values(op);
    case OpKind::route_grad: return 12 * elements(op) + 12 * chosen_values(op);
    case OpKind::count_choices: return 4 * elements(op) + 4 * chosen_values(op);
    case OpKind::place_rows: return 8 * chosen_values(op);
    case OpKind::dispatch: return e * (elements(op) + m * chosen_values(op)) + 4 * chosen_values(op);
    case OpKind::combine: return e * (elements(op) + m * chosen_values(op)) + 8 * chosen_values(op);
    case OpKind::combine_weight_grad: return e * (elements(op) + m * chosen_values(op)) + 8 * chosen_values(op);
    case OpKind::grouped_matmul: {
      const double weights = op.in.size() > 3 ? 2 : 1, inputs = op.trans_b ? 1 : weights,
                   outputs = op.trans_b ? weights : 1;
      return e * (expected_rows(op) * (inputs * k + outputs * n) + weights * static_cast<double>(op.experts) * n * k);
    }
    case OpKind::grouped_weight_grad: {
      const double weights = op.out.size() > 1 ? 2 : 1;
      return e * (expected_rows(op) * (weights * m + n) +
                  (op.accumulate ? 2 : 1) * weights * static_cast<double>(op.experts) * m * n);
    }
    case OpKind::load_clicks: return 4 * n * (m + 1 + k);
    case OpKind::bucketise_indices: return 8 * n * k;
    // Read, found, moved to the front of its list (two neighbours), written.
    case OpKind::cache_rows: return 32 * n;
    case OpKind::embedding_bag: return e * (elements(op) + k) + 4 * n;
    case OpKind::embedding_lookup: return e * (elements(op) + k) + 4 * n;
    case OpKind::embedding_lookup_grad: return e * (2 * elements(op) + 2 * k) + 4 * n;
    case OpKind::embedding_bag_squares: return e * elements(op) + 16 * n;
    // Gradients read; rows and their states read and written; indices sorted. Adam's two states are as wide as a row.
    case OpKind::embedding_bag_update:
      if (op.rule == UpdateRule::adam) return e * 7 * elements(op) + 24 * n;
      return e * 3 * elements(op) + (op.out.size() > 1 && op.out[1] >= 0 ? 32 : 24) * n;
    case OpKind::table_update: return e * (op.rule == UpdateRule::adam ? 7 : 3) * m;
    case OpKind::pooled_join:
    case OpKind::pooled_split: return e * 2 * elements(op);
    case OpKind::interaction_dot: return e * (m * n * (k + 1) + pairs(op));
    case OpKind::interaction_dot_grad: return e * (m * n * (2 * k + 1) + pairs(op));
    case OpKind::cross: return e * 4 * elements(op);
    case OpKind::cross_grad: return e * 6 * elements(op);
    case OpKind::click_loss: return 8 * n;
    case OpKind::click_loss_grad: return 12 * n;
    case OpKind::encode_pooled:
    case OpKind::decode_pooled: return (4 + k) * m;
    case OpKind::expert_bias: return e * 2 * elements(op) * biases_of(op);
    case OpKind::expert_bias_grad: return e * elements(op) * biases_of(op);
    case OpKind::encode_rows:
    case OpKind::decode_rows: return e * elements(op) + static_cast<double>(size_of(dtype_of(op.codec))) * n * k;
    case OpKind::row_gate: return e * 2 * elements(op) + 4 * n;
    case OpKind::row_gate_grad: return e * 3 * elements(op) + 8 * n;
    case OpKind::split_columns:
    case OpKind::join_columns: return e * 2 * n * (m + k);
    case OpKind::latent_pack:
    case OpKind::latent_pack_grad:
      return e * (all_heads(op) * (4 * static_cast<double>(op.head_dim) + latent_width(op)) +
                  n * static_cast<double>(op.rotary));
    case OpKind::head_values: return e * 2 * all_heads(op) * k;
    case OpKind::head_values_grad: return e * all_heads(op) * (k + static_cast<double>(op.head_dim));
    case OpKind::balance_losses: return 8 * m;
    case OpKind::balance_bias: return 12 * m;
    case OpKind::activate_grad:
    case OpKind::gate: return e * 3 * elements(op);
    case OpKind::gate_grad: return e * 5 * elements(op);
    case OpKind::attention: {
      const double qkv = tokens(op) * qkv_columns(op);
      const double y = tokens(op) * static_cast<double>(op.heads * op.head_dim);
      // An unfused kernel writes the scores, reads and writes them in the softmax, and reads them for PV.
      return e * (qkv + y) + (op.flash ? 1 : 4) * attention_saved_bytes(op);
    }
    case OpKind::attention_grad: {
      const double qkv = tokens(op) * qkv_columns(op);
      const double y = tokens(op) * static_cast<double>(op.heads * op.head_dim);
      return e * 2 * (qkv + y) + (op.flash ? 1 : 6) * attention_saved_bytes(op);
    }
    case OpKind::ring_attention:
    case OpKind::ring_attention_grad: {
      const bool grad = op.kind == OpKind::ring_attention_grad;
      const double y = tokens(op) * static_cast<double>(op.heads * op.head_dim);
      const double accumulated = op.accumulate ? y : 0;  // y or dq, read and written again
      return e * ((grad ? 2 : 1) * (tokens(op) * qkv_columns(op) + y) + accumulated) + attention_saved_bytes(op);
    }
    case OpKind::split_kv:
    case OpKind::merge_kv: return e * 4 * tokens(op) * static_cast<double>(op.kv_heads * op.head_dim);
    case OpKind::gelu:
    case OpKind::gelu_erf:
    case OpKind::relu:
    case OpKind::dropout: return e * 2 * elements(op);
    case OpKind::relu_grad: return e * 3 * elements(op);
    case OpKind::sparse_encode:
    case OpKind::sparse_decode:
      return e * elements(op) + static_cast<double>(sparse_bytes(op.m * op.n, op.capacity, size_of(op.dtype)));
    case OpKind::gelu_grad:
    case OpKind::gelu_erf_grad: return e * 3 * elements(op);
    case OpKind::swiglu: return e * 3 * elements(op);
    case OpKind::swiglu_grad: return e * 5 * elements(op);
    case OpKind::add_bias:
    case OpKind::add: return e * 3 * elements(op);
    case OpKind::softmax_max: return e * elements(op) + 4 * n;
    case OpKind::softmax_sum: return e * elements(op) + 12 * n;
    case OpKind::cross_entropy: return 12 * n;
    case OpKind::cross_entropy_grad: return e * 2 * elements(op) + 16 * n;
    case OpKind::fill_zero: return e * m;
    case OpKind::copy: return e * 2 * m;
    case OpKind::accumulate_into: return e * 3 * m;
    case OpKind::norm_squared: return e * m;
    case OpKind::clip_coefficient: return 12;
    case OpKind::adamw:
      // Gradient read; parameter and both moments (fp32) read and written; a compute copy written.
      return (e + 16 + parameter_bytes(op, 3)) * m;
    case OpKind::momentum_update:
      return (e + (op.out.size() > 1 && op.out[1] >= 0 ? 8 : 0) + parameter_bytes(op, 2)) * m;
    case OpKind::lamb_moments: return (e + 16 + (op.stochastic ? 2 : 4)) * m;
    case OpKind::lamb: return (8 + parameter_bytes(op, 1)) * m;
    case OpKind::factor_sums: return e * m;
    case OpKind::factor_moments: return 12 * m;
    case OpKind::factor_norms: return (e + 4) * m;
    case OpKind::adafactor: return (e + parameter_bytes(op, 1)) * m;
    case OpKind::muon_moments: return (e + 12) * m;
    case OpKind::newton_schulz: return kNewtonSchulzSteps * newton_schulz_bytes(op);
    case OpKind::muon: return (4 + parameter_bytes(op, 3)) * m + (e + 16) * static_cast<double>(op.k);
    case OpKind::adamw_8bit: return (e + 4 + 16.0 / kQuantisedBlock + parameter_bytes(op, 5)) * m;
    case OpKind::overflow: return 8;
    case OpKind::loss_scale: return 32;
    case OpKind::convert: return (4 + e) * m;
    case OpKind::sum_pieces: return (n * e + (op.accumulate ? 8 : 4)) * m;
    case OpKind::orthogonalise: return e * 2 * elements(op);
    case OpKind::add_scaled: return e * 3 * m;
    case OpKind::encode:
    case OpKind::decode: return e * m + static_cast<double>(encoded_bytes(op.m, op.k));
  }
  return 0;
}

Function function_of(const Op& op) {
  if (op.kind == OpKind::gelu || op.kind == OpKind::gelu_grad) return Function::gelu;
  if (op.kind == OpKind::swiglu || op.kind == OpKind::swiglu_grad) return Function::silu;
  return op.function;
}

bool updates_parameters(OpKind kind) {
  return kind == OpKind::adamw || kind == OpKind::momentum_update || kind == OpKind::lamb ||
         kind == OpKind::adafactor || kind == OpKind::adamw_8bit || kind == OpKind::muon;
}

std::vector<std::size_t> writable_sums(const Op& op) {
  if (!op.accumulate) return {};
  if (op.kind == OpKind::matmul || op.kind == OpKind::bias_grad) return {0};
  if (op.kind == OpKind::grouped_weight_grad)
    return op.out.size() > 1 ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{0};
  if (op.kind == OpKind::layer_norm_grad) return {1, 2};
  if (op.kind == OpKind::rms_norm_grad) return {1};
  return {};
}

const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::load_tokens: return "load_tokens";
    case OpKind::embedding: return "embedding";
    case OpKind::position_add: return "position_add";
    case OpKind::embedding_grad: return "embedding_grad";
    case OpKind::position_grad: return "position_grad";
    case OpKind::layer_norm: return "layer_norm";
    case OpKind::layer_norm_grad: return "layer_norm_grad";
    case OpKind::rms_norm: return "rms_norm";
    case OpKind::rms_norm_grad: return "rms_norm_grad";
    case OpKind::matmul: return "matmul";
    case OpKind::bias_grad: return "bias_grad";
    case OpKind::rope: return "rope";
    case OpKind::rope_grad: return "rope_grad";
    case OpKind::attention: return "attention";
    case OpKind::attention_grad: return "attention_grad";
    case OpKind::ring_attention: return "ring_attention";
    case OpKind::ring_attention_grad: return "ring_attention_grad";
    case OpKind::split_kv: return "split_kv";
    case OpKind::merge_kv: return "merge_kv";
    case OpKind::gelu: return "gelu";
    case OpKind::gelu_grad: return "gelu_grad";
    case OpKind::swiglu: return "swiglu";
    case OpKind::swiglu_grad: return "swiglu_grad";
    case OpKind::add_bias: return "add_bias";
    case OpKind::add: return "add";
    case OpKind::softmax_max: return "softmax_max";
    case OpKind::softmax_sum: return "softmax_sum";
    case OpKind::cross_entropy: return "cross_entropy";
    case OpKind::cross_entropy_grad: return "cross_entropy_grad";
    case OpKind::fill_zero: return "fill_zero";
    case OpKind::copy: return "copy";
    case OpKind::accumulate_into: return "accumulate_into";
    case OpKind::norm_squared: return "norm_squared";
    case OpKind::clip_coefficient: return "clip_coefficient";
    case OpKind::overflow: return "overflow";
    case OpKind::loss_scale: return "loss_scale";
    case OpKind::adamw: return "adamw";
    case OpKind::momentum_update: return "momentum_update";
    case OpKind::lamb_moments: return "lamb_moments";
    case OpKind::lamb: return "lamb";
    case OpKind::factor_sums: return "factor_sums";
    case OpKind::factor_moments: return "factor_moments";
    case OpKind::factor_norms: return "factor_norms";
    case OpKind::adafactor: return "adafactor";
    case OpKind::muon_moments: return "muon_moments";
    case OpKind::newton_schulz: return "newton_schulz";
    case OpKind::muon: return "muon";
    case OpKind::adamw_8bit: return "adamw_8bit";
    case OpKind::type_add: return "type_add";
    case OpKind::type_grad: return "type_grad";
    case OpKind::gather_rows: return "gather_rows";
    case OpKind::scatter_rows: return "scatter_rows";
    case OpKind::tanh: return "tanh";
    case OpKind::tanh_grad: return "tanh_grad";
    case OpKind::gelu_erf: return "gelu_erf";
    case OpKind::gelu_erf_grad: return "gelu_erf_grad";
    case OpKind::class_loss: return "class_loss";
    case OpKind::class_loss_grad: return "class_loss_grad";
    case OpKind::convert: return "convert";
    case OpKind::sum_pieces: return "sum_pieces";
    case OpKind::orthogonalise: return "orthogonalise";
    case OpKind::add_scaled: return "add_scaled";
    case OpKind::encode: return "encode";
    case OpKind::decode: return "decode";
    case OpKind::dropout: return "dropout";
    case OpKind::relu: return "relu";
    case OpKind::relu_grad: return "relu_grad";
    case OpKind::sparse_encode: return "sparse_encode";
    case OpKind::sparse_decode: return "sparse_decode";
    case OpKind::activate: return "activate";
    case OpKind::activate_grad: return "activate_grad";
    case OpKind::gate: return "gate";
    case OpKind::gate_grad: return "gate_grad";
    case OpKind::head_norm: return "head_norm";
    case OpKind::head_norm_grad: return "head_norm_grad";
    case OpKind::soft_cap: return "soft_cap";
    case OpKind::route: return "route";
    case OpKind::route_grad: return "route_grad";
    case OpKind::count_choices: return "count_choices";
    case OpKind::place_rows: return "place_rows";
    case OpKind::dispatch: return "dispatch";
    case OpKind::combine: return "combine";
    case OpKind::combine_weight_grad: return "combine_weight_grad";
    case OpKind::grouped_matmul: return "grouped_matmul";
    case OpKind::grouped_weight_grad: return "grouped_weight_grad";
    case OpKind::expert_bias: return "expert_bias";
    case OpKind::expert_bias_grad: return "expert_bias_grad";
    case OpKind::encode_rows: return "encode_rows";
    case OpKind::decode_rows: return "decode_rows";
    case OpKind::row_gate: return "row_gate";
    case OpKind::row_gate_grad: return "row_gate_grad";
    case OpKind::balance_losses: return "balance_losses";
    case OpKind::balance_bias: return "balance_bias";
    case OpKind::load_clicks: return "load_clicks";
    case OpKind::bucketise_indices: return "bucketise_indices";
    case OpKind::cache_rows: return "cache_rows";
    case OpKind::embedding_bag: return "embedding_bag";
    case OpKind::embedding_bag_squares: return "embedding_bag_squares";
    case OpKind::embedding_bag_update: return "embedding_bag_update";
    case OpKind::embedding_lookup: return "embedding_lookup";
    case OpKind::embedding_lookup_grad: return "embedding_lookup_grad";
    case OpKind::table_update: return "table_update";
    case OpKind::pooled_join: return "pooled_join";
    case OpKind::pooled_split: return "pooled_split";
    case OpKind::interaction_dot: return "interaction_dot";
    case OpKind::interaction_dot_grad: return "interaction_dot_grad";
    case OpKind::cross: return "cross";
    case OpKind::cross_grad: return "cross_grad";
    case OpKind::click_loss: return "click_loss";
    case OpKind::click_loss_grad: return "click_loss_grad";
    case OpKind::encode_pooled: return "encode_pooled";
    case OpKind::decode_pooled: return "decode_pooled";
    case OpKind::split_columns: return "split_columns";
    case OpKind::join_columns: return "join_columns";
    case OpKind::latent_pack: return "latent_pack";
    case OpKind::latent_pack_grad: return "latent_pack_grad";
    case OpKind::head_values: return "head_values";
    case OpKind::head_values_grad: return "head_values_grad";
  }
  return "?";
}

}  // namespace orrery::models
