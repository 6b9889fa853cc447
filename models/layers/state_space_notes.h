#pragma once
/// Mamba-2's mixer, in place of attention (Dao and Gu 2024, "Transformers are SSMs", section 7.1). Private to models/;
/// see expand.cpp.
///
/// One product makes the gate z, the values x, keys B and queries C of each group of heads, and the raw step widths dt.
/// A short causal convolution runs over x, B and C; the scan lets each head's state take in a token and be read; a norm
/// gated by z and a product lead back to the residual.
///
/// Tensor parallelism divides the heads with their groups of B and C, and the runs of columns that the norm takes by
/// themselves (section 8.1): the first product is split by columns and the last by rows, as in attention, so that one
/// all-reduce follows in forward and one in backward.
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/latent_notes.h"

namespace orrery::models {

class StateSpaceNotes : protected LatentNotes {
 protected:
  using LatentNotes::LatentNotes;

  struct StateMixer {
    Linear in, out;
    TensorId conv, conv_gradient, conv_bias, conv_bias_gradient;
    TensorId dt_bias, dt_bias_gradient, a_log, a_log_gradient, d, d_gradient, norm, norm_gradient;
    TensorId projected, convolved, scanned, normed, rstd;
  };

  StateMixer make_state_mixer(const std::string& at, double residual_stddev) {
    const StateSpace& s = model_.ssm;
    const std::int64_t c = model_.hidden, bc = s.groups * s.state;
    const Op sizes = state_op(OpKind::state_scan, {}, {});
    StateMixer m;
    m.in = {.in = c, .out = projected_columns(sizes), .rows = n_};
    const auto of_token = [&](const char* name, std::int64_t rows) {
      return matrix(at + name + ".weight", rows, c, 0, model_.initial_stddev);
    };
    std::tie(m.in.weight, m.in.weight_gradient) = parameter(
        in_one_file_tensor(at + "in.weight", {of_token("z", s.inner()), of_token("x", s.inner()), of_token("b", bc),
                                              of_token("c", bc), of_token("dt", s.heads)}));
    // (columns, 1, taps), as files have it and no optimizer takes for a matrix. The standard deviation of PyTorch's
    // initial values of a convolution, which are uniform within 1/sqrt(taps).
    const double conv_stddev = 1 / std::sqrt(3 * static_cast<double>(s.taps));
    std::vector<Tensor> taps, biases;
    for (const auto& [name, rows] : {std::pair{"conv_x", s.inner()}, {"conv_b", bc}, {"conv_c", bc}}) {
      taps.push_back(matrix(at + name + ".weight", rows, s.taps, 0, conv_stddev));
      for (auto* shape : {&taps.back().shape, &taps.back().logical_shape}) shape->insert(shape->begin() + 1, 1);
      biases.push_back(vector(at + name + ".bias", rows, 0, 0));
    }
    std::tie(m.conv, m.conv_gradient) = parameter(in_one_file_tensor(at + "conv.weight", std::move(taps)));
    if (s.conv_bias)
      std::tie(m.conv_bias, m.conv_bias_gradient) = parameter(in_one_file_tensor(at + "conv.bias", std::move(biases)));
    const auto of_heads = [&](const char* name, Initial initial, double value) {
      Tensor t = vector(at + name, s.heads, 0, value);
      t.initial = initial;
      return parameter(std::move(t));
    };
    std::tie(m.dt_bias, m.dt_bias_gradient) = of_heads("dt_bias", Initial::step_width, 0);
    std::tie(m.a_log, m.a_log_gradient) = of_heads("a_log", Initial::decay_log, 0);
    std::tie(m.d, m.d_gradient) = of_heads("d", Initial::normal, 1);
    std::tie(m.norm, m.norm_gradient) = parameter(vector(at + "norm.weight", s.inner(), 0, 1));
    m.out = {.in = inner_columns(sizes), .out = c, .rows = n_};
    std::tie(m.out.weight, m.out.weight_gradient) =
        parameter(matrix(at + "proj.weight", c, s.inner(), 1, residual_stddev));
    m.projected = activation("ssm.projected", m.in.out);
    m.convolved = activation("ssm.convolved", convolved_columns(sizes));
    m.scanned = activation("ssm.scanned", m.out.in);
    m.normed = activation("ssm.normed", m.out.in);
    m.rstd = activation("ssm.rstd", {n_, sizes.ssm.norm_groups}, DType::fp32);
    return m;
  }

  // h (partial over the tensor group) = the mixer of x (all rows).
  void state_forward(const StateMixer& m, TensorId x, TensorId h) {
    linear_forward(m.in, x, m.projected, false);
    emit(state_op(OpKind::causal_conv, {m.projected, m.conv, m.conv_bias}, {m.convolved}));
    emit(state_op(OpKind::state_scan, {m.convolved, m.projected, m.dt_bias, m.a_log, m.d}, {m.scanned}));
    emit(state_op(OpKind::gated_norm, {m.scanned, m.projected, m.norm}, {m.normed, m.rstd}));
    linear_forward(m.out, m.normed, h, false);
  }
  // From dh to dx, the gradient of x, which gets the name `name`.
  void state_backward(const StateMixer& m, TensorId dh_own, TensorId x, TensorId dx, const std::string& name) {
    const TensorId dh = gathered(dh_own, "d_ssm.h");
    const TensorId dnormed = activation("d_ssm.normed", m.out.in), dscanned = activation("d_ssm.scanned", m.out.in);
    const TensorId dprojected = activation("d_ssm.projected", m.in.out);
    const TensorId dconvolved = activation("d_ssm.convolved", columns_of(m.convolved));
    linear_backward(m.out, dh, m.normed, dnormed);
    emit(state_op(OpKind::gated_norm_grad, {dnormed, m.scanned, m.projected, m.norm, m.rstd},
                  {dscanned, dprojected, sum_or_none(m.norm, m.norm_gradient)}));
    const Op sizes = state_op(OpKind::state_scan, {}, {});
    const TensorId states = activation(
        "d_ssm.states", {options_.batch, chunks_of(sizes), sizes.heads, sizes.head_dim, sizes.ssm.state}, DType::fp32);
    emit(state_op(OpKind::state_scan_grad, {dscanned, m.convolved, m.projected, m.dt_bias, m.a_log, m.d},
                  {dconvolved, dprojected, sum_or_none(m.dt_bias, m.dt_bias_gradient),
                   sum_or_none(m.a_log, m.a_log_gradient), sum_or_none(m.d, m.d_gradient), states}));
    emit(state_op(OpKind::causal_conv_grad, {dconvolved, m.projected, m.conv, m.conv_bias},
                  {dprojected, sum_or_none(m.conv, m.conv_gradient),
                   m.conv_bias ? sum_or_none(m.conv_bias, m.conv_bias_gradient) : TensorId()}));
    column_backward(m.in, dprojected, x, dx, name);
  }

 private:
  Op state_op(OpKind kind, const Tensors& in, const Tensors& out) const {
    const StateSpace& s = model_.ssm;
    Op o = op(kind, in, out, 0);
    o.heads = s.heads / options_.tensor;
    o.kv_heads = s.groups / options_.tensor;
    o.head_dim = s.width;
    o.ssm = {.state = s.state, .taps = s.taps, .chunk = s.chunk, .norm_groups = s.normed_runs() / options_.tensor};
    o.m = kind == OpKind::causal_conv || kind == OpKind::causal_conv_grad ? convolved_columns(o) : inner_columns(o);
    o.epsilon = model_.norm_epsilon;
    return o;
  }
  // Several logical tensors, which files hold as one: each knows where it begins there.
  static Tensor in_one_file_tensor(const std::string& name, std::vector<Tensor> pieces) {
    std::int64_t rows = 0;
    for (Tensor& one : pieces) {
      one.group_rows = one.logical_shape[0], one.group_first = rows;
      rows += one.group_rows;
    }
    for (Tensor& one : pieces) one.group_stride = rows;
    return fused(name, std::move(pieces));
  }
};

}  // namespace orrery::models
