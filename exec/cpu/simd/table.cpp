// One level's table of kernels.
#include "exec/cpu/simd/functions.h"

#define ORRERY_TEXT(name) ORRERY_QUOTE(name)
#define ORRERY_QUOTE(name) #name

namespace orrery::exec::simd::ORRERY_SIMD_LEVEL {

const Kernels& table();

const Kernels& table() {
  static constexpr Kernels kernels = {
      .name = ORRERY_TEXT(ORRERY_SIMD_LEVEL),
      .layer_norm = layer_norm,
      .layer_norm_grad = layer_norm_grad,
      .rms_norm = rms_norm,
      .rms_norm_grad = rms_norm_grad,
      .column_sum = column_sum,
      .norm_weight_grad = norm_weight_grad,
      .gelu_erf = gelu_erf,
      .gelu_erf_grad = gelu_erf_grad,
      .add = add,
      .add_bias = add_bias,
      .softmax_row = softmax_row,
      .probabilities_row = probabilities_row,
      .softmax_grad_row = softmax_grad_row,
      .dot = dot,
      .row_max = row_max,
      .row_exp_sum = row_exp_sum,
      .row_softmax = row_softmax,
      .sum_of_squares = sum_of_squares,
      .adamw = adamw,
      .sgd = sgd,
      .lamb_direction = lamb_direction,
      .lamb_step = lamb_step,
      .sum_rows = sum_rows,
      .sum_weighted_rows = sum_weighted_rows,
      .sum_parts = sum_parts,
      .sum_weighted_parts = sum_weighted_parts,
      .from_bf16 = from_bf16,
      .to_bf16 = to_bf16,
      .from_fp16 = from_fp16,
      .to_fp16 = to_fp16,
      .dropout_factors = dropout_factors,
      .relu = relu,
      .relu_grad = relu_grad,
      .activate = activate,
      .activate_grad = activate_grad,
      .gate = gate,
      .gate_grad = gate_grad,
      .cap = cap,
      .product = product,
      .product_room = product_room,
  };
  return kernels;
}

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL
