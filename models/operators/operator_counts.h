#pragma once
/// Formulas of FLOPs and bytes that rows of models/operators/operators.cpp name: those that several rows use, and those
/// that are too long for a row. Sizes are as models/operators/op.h says for each kind.
#include "models/operators/operators.h"

namespace orrery::models::counts {

/// Philox's ten rounds of two products and four exclusive ors, shared by eight elements, a comparison and a product.
inline constexpr double kDrawFlops = 10;

[[nodiscard]] double none(const CountedOp& s);

/// n rows of m columns, unless an operator says otherwise.
[[nodiscard]] inline double elements(const CountedOp& s) {
  return s.m * s.n;
}
/// `kTimes` FLOPs for each element of rows, or of a flat range.
template <int kTimes>
double each(const CountedOp& s) {
  return kTimes * elements(s);
}
template <int kTimes>
double flat(const CountedOp& s) {
  return kTimes * s.m;
}
/// Bytes of `kTimes` passes over the elements plus `kOfRow` bytes for each row; or of passes over a flat range.
template <int kTimes, int kOfRow = 0>
double moved(const CountedOp& s) {
  return s.bytes * kTimes * elements(s) + kOfRow * s.n;
}
template <int kTimes>
double moved_flat(const CountedOp& s) {
  return s.bytes * kTimes * s.m;
}

/// FLOPs of an activation with operators of its own, and of its gradient.
template <Activation kOne>
double forward(const CountedOp& s) {
  return traits_of(kOne).forward_flops * elements(s);
}
template <Activation kOne>
double backward(const CountedOp& s) {
  return traits_of(kOne).grad_flops * elements(s);
}
/// FLOPs per element of Op::function.
[[nodiscard]] double function_flops(const CountedOp& s);
[[nodiscard]] double function_grad_flops(const CountedOp& s);

/// B*T.
[[nodiscard]] inline double tokens(const CountedOp& s) {
  return static_cast<double>(s.op.batch) * static_cast<double>(s.op.sequence);
}
/// Columns of packed q, k and v.
[[nodiscard]] double qkv_columns(const CountedOp& s);
/// Columns of q and k that turn.
[[nodiscard]] double rotary_columns(const CountedOp& s);
/// Elements of q and k.
[[nodiscard]] double head_norm_elements(const CountedOp& s);
/// n rows of all heads.
[[nodiscard]] inline double all_heads(const CountedOp& s) {
  return s.n * static_cast<double>(s.op.heads);
}
/// Rows of a head norm's statistics.
[[nodiscard]] inline double head_norm_rows(const CountedOp& s) {
  return tokens(s) * static_cast<double>(normed_runs(s.op).count());
}
[[nodiscard]] inline double chosen_values(const CountedOp& s) {
  return s.n * static_cast<double>(s.op.chosen);
}
/// Pairs of the interaction's k vectors, over all samples.
[[nodiscard]] inline double pairs(const CountedOp& s) {
  return s.n * s.k * (s.k - 1) / 2;
}

[[nodiscard]] double attention_flops(const CountedOp& s);
[[nodiscard]] double attention_grad_flops(const CountedOp& s);
[[nodiscard]] double attention_bytes(const CountedOp& s);
[[nodiscard]] double attention_grad_bytes(const CountedOp& s);
/// Of each token the weighted sum of k streams, and its k x k matrix made doubly stochastic in `chosen` steps.
[[nodiscard]] double mix_flops(const CountedOp& s);
[[nodiscard]] double choose_flops(const CountedOp& s);
[[nodiscard]] double choose_grad_flops(const CountedOp& s);
[[nodiscard]] double choose_bytes(const CountedOp& s);
[[nodiscard]] double choose_grad_bytes(const CountedOp& s);
[[nodiscard]] double ring_attention_bytes(const CountedOp& s);
[[nodiscard]] double rope_flops(const CountedOp& s);
[[nodiscard]] double rope_bytes(const CountedOp& s);
[[nodiscard]] double key_value_bytes(const CountedOp& s);
[[nodiscard]] double norm_grad_bytes(const CountedOp& s);
[[nodiscard]] double grouped_flops(const CountedOp& s);
[[nodiscard]] double grouped_bytes(const CountedOp& s);
[[nodiscard]] double grouped_grad_bytes(const CountedOp& s);
[[nodiscard]] double latent_bytes(const CountedOp& s);
/// Biases of gate and up, or of one product.
[[nodiscard]] double biases_of(const CountedOp& s);
[[nodiscard]] double combined_flops(const CountedOp& s);
/// Bytes of rows in slots, and of the encoded rows.
[[nodiscard]] double travelling_bytes(const CountedOp& s);
[[nodiscard]] double columns_bytes(const CountedOp& s);
[[nodiscard]] double lookup_bytes(const CountedOp& s);
/// Bytes moved between rows of tokens and rows in slots.
[[nodiscard]] double exchanged_bytes(const CountedOp& s, double of_choice);
/// Whether tables are updated by Adam, whose two states are as wide as a row.
[[nodiscard]] inline bool by_adam(const CountedOp& s) {
  return s.op.rule == UpdateRule::adam;
}
[[nodiscard]] double bag_update_bytes(const CountedOp& s);
/// Bytes that an update moves for a parameter, whose copy for computing is output `copy`.
[[nodiscard]] double parameter_bytes(const CountedOp& s, std::size_t copy);
/// X X^T, its square, and their products with X (Jordan et al. 2024); besides, the sums of both, and the norm.
[[nodiscard]] double newton_schulz_flops(const CountedOp& s);
[[nodiscard]] double newton_schulz_bytes(const CountedOp& s);
/// Elements of a state space's x, and of its x, B and C.
[[nodiscard]] double inner(const CountedOp& s);
[[nodiscard]] double convolved(const CountedOp& s);
[[nodiscard]] double conv_flops(const CountedOp& s);
[[nodiscard]] double conv_grad_flops(const CountedOp& s);
/// Both gates and the taps; the gradient computes them again, and those of the gates, of the taps and of b x.
[[nodiscard]] double gated_conv_flops(const CountedOp& s);
[[nodiscard]] double gated_conv_grad_flops(const CountedOp& s);
/// Of the chunked form (Dao and Gu 2024, section 6; listing 1): C B^T of each group, its masked product with x, the
/// states of the chunks and what these add to y. The mask leaves half of the first two.
[[nodiscard]] double scan_flops(const CountedOp& s);
[[nodiscard]] double scan_bytes(const CountedOp& s);
/// The same twice; if all that is computed counts, C B^T, the states and the product with x once more.
[[nodiscard]] double scan_grad_flops(const CountedOp& s);
[[nodiscard]] double scan_grad_bytes(const CountedOp& s);
/// Of the chunked form (Yang, Kautz and Hatamizadeh 2024, section 3.3; Yang et al. 2024, "Parallelizing Linear
/// Transformers with the Delta Rule", section 3.2): k k^T and q k^T of each group; for each head the inverse of a
/// triangular matrix, its products with keys and with values, q k^T with the latter, and three products with the state.
[[nodiscard]] double delta_flops(const CountedOp& s);
[[nodiscard]] double delta_bytes(const CountedOp& s);
/// The same twice; if all that is computed counts, all but both products that make y once more.
[[nodiscard]] double delta_grad_flops(const CountedOp& s);
[[nodiscard]] double delta_grad_bytes(const CountedOp& s);
/// Of each cell of a column's state: the power of its decay, which takes two, its product with the state, the taken
/// value's with B, their sum, the product with C and its sum; of each column the step, its product with x, and D x.
[[nodiscard]] double selective_flops(const CountedOp& s);
/// The states once more, and twice as much.
[[nodiscard]] double selective_grad_flops(const CountedOp& s);
[[nodiscard]] double sparse_bytes_of(const CountedOp& s);
[[nodiscard]] double encoded_bytes_of(const CountedOp& s);

}  // namespace orrery::models::counts
