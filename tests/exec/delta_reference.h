#pragma once
/// Qwen3-Next's and Qwen3.5's forward passes in double precision, as family_reference.h has those of other families.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/exec/family_reference.h"

namespace orrery::exec::testing::reference {

inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

struct Deltas {
  std::size_t groups = 2, heads = 4, key = 6, value = 8;
};

/// S = a (I - b k k^T) S + b k v^T, with the matrix in front of S written out; y = S^T q / sqrt(key).
inline Matrix gated_delta(const File& f, const std::string& at, const Deltas& s, const Matrix& x) {
  const std::size_t share = s.heads / s.groups, own = share * s.value, of_group = 2 * s.key + 2 * own;
  const std::size_t keys = s.groups * s.key, mixed = 2 * keys + s.heads * s.value;
  // q of all groups, then k, then v; z apart.
  Matrix before(x.rows, mixed), z(x.rows, s.heads * s.value), b(x.rows, s.heads), a = b;
  if (f.count(at + "in_proj_qkv.weight") > 0) {  // Qwen3.5
    before = linear(f, at + "in_proj_qkv", x), z = linear(f, at + "in_proj_z", x);
    b = linear(f, at + "in_proj_b", x), a = linear(f, at + "in_proj_a", x);
  } else {
    const Matrix all = linear(f, at + "in_proj_qkvz", x), strengths = linear(f, at + "in_proj_ba", x);
    for (std::size_t t = 0; t < x.rows; ++t)
      for (std::size_t g = 0; g < s.groups; ++g) {
        for (std::size_t i = 0; i < s.key; ++i) {
          before(t, g * s.key + i) = all(t, g * of_group + i);
          before(t, keys + g * s.key + i) = all(t, g * of_group + s.key + i);
        }
        for (std::size_t i = 0; i < own; ++i) {
          before(t, 2 * keys + g * own + i) = all(t, g * of_group + 2 * s.key + i);
          z(t, g * own + i) = all(t, g * of_group + 2 * s.key + own + i);
        }
        for (std::size_t i = 0; i < share; ++i) {
          b(t, g * share + i) = strengths(t, g * 2 * share + i);
          a(t, g * share + i) = strengths(t, g * 2 * share + share + i);
        }
      }
  }
  const Weights& taps = f.at(at + "conv1d.weight");
  const std::size_t width = taps.shape.at(2);
  Matrix conv(x.rows, mixed);
  for (std::size_t t = 0; t < x.rows; ++t)
    for (std::size_t c = 0; c < mixed; ++c) {
      double sum = 0;
      for (std::size_t back = 0; back < width && back <= t; ++back)
        sum += taps.v.at(c * width + width - 1 - back) * before(t - back, c);
      conv(t, c) = silu(sum);
    }
  const auto unit = [&](std::size_t t, std::size_t first) {
    std::vector<double> out(s.key);
    double squares = 1e-6;
    for (std::size_t i = 0; i < s.key; ++i) out[i] = conv(t, first + i), squares += out[i] * out[i];
    for (double& one : out) one /= std::sqrt(squares);
    return out;
  };
  Matrix y(x.rows, s.heads * s.value);
  for (std::size_t h = 0; h < s.heads; ++h) {
    const std::size_t g = h / share;
    Matrix state(s.key, s.value);
    for (std::size_t t = 0; t < x.rows; ++t) {
      const double strength = sigmoid(b(t, h));
      const double step = std::log1p(std::exp(a(t, h) + f.at(at + "dt_bias").v.at(h)));
      const double decay = std::exp(-std::exp(f.at(at + "A_log").v.at(h)) * step);
      const std::vector<double> q = unit(t, g * s.key), k = unit(t, keys + g * s.key);
      Matrix next(s.key, s.value);
      for (std::size_t i = 0; i < s.key; ++i)
        for (std::size_t p = 0; p < s.value; ++p) {
          next(i, p) = strength * k[i] * conv(t, 2 * keys + h * s.value + p);
          for (std::size_t j = 0; j < s.key; ++j)
            next(i, p) += decay * ((i == j ? 1 : 0) - strength * k[i] * k[j]) * state(j, p);
        }
      state = next;
      for (std::size_t p = 0; p < s.value; ++p)
        for (std::size_t i = 0; i < s.key; ++i)
          y(t, h * s.value + p) += state(i, p) * q[i] / std::sqrt(static_cast<double>(s.key));
    }
  }
  return linear(f, at + "out_proj", times(rms_norm(f, at + "norm", y, 1e-5), each(z, silu)));
}

/// Expert e of tensors (experts, out, in), whose first has its gate's rows and then those of up.
inline Matrix stacked_mlp(const File& f, const std::string& at, std::size_t e, const Matrix& x) {
  const File named = {{"first.weight", f.at(at + "gate_up_proj")}, {"last.weight", f.at(at + "down_proj")}};
  return of_stack(named, "last", e, gated(of_stack(named, "first", e, x)));
}

/// The `chosen` largest of a softmax, divided by their sum, and an expert behind a gate that every token takes.
inline Matrix qwen_experts(const File& f, const std::string& at, std::size_t chosen, const Matrix& x) {
  const Matrix logits = linear(f, at + "gate", x), gate = linear(f, at + "shared_expert_gate", x);
  Matrix y = gated_mlp(f, at + "shared_expert.", x);
  for (std::size_t r = 0; r < x.rows; ++r)
    for (std::size_t c = 0; c < y.columns; ++c) y(r, c) *= sigmoid(gate(r, 0));
  for (std::size_t e = 0; e < logits.columns; ++e) {
    const bool stacked = f.count(at + "experts.gate_up_proj") > 0;
    const Matrix of =
        stacked ? stacked_mlp(f, at + "experts.", e, x) : gated_mlp(f, at + "experts." + std::to_string(e) + ".", x);
    for (std::size_t r = 0; r < x.rows; ++r) {
      std::vector<double> all(logits.columns);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::exp(logits(r, i));
      std::vector<double> sorted = all;
      std::sort(sorted.rbegin(), sorted.rend());
      if (all[e] < sorted.at(chosen - 1)) continue;
      double sum = 0;
      for (std::size_t i = 0; i < chosen; ++i) sum += sorted[i];
      for (std::size_t c = 0; c < y.columns; ++c) y(r, c) += all[e] / sum * of(r, c);
    }
  }
  return y;
}

/// A gated delta network, or in every second layer attention whose output is gated, then experts or an MLP.
inline Matrix qwen3_next(const File& f, const Sizes& s, const Deltas& deltas, std::size_t turned, std::size_t chosen,
                         const std::vector<int>& ids) {
  Matrix x = embedding(f, "model.embed_tokens.weight", ids);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".", heads = at + "self_attn.";
    const Matrix n = rms_norm(f, at + "input_layernorm", x, 1e-5, 1);
    Matrix h(0, 0);
    if (i % 2 == 0) {
      h = gated_delta(f, at + "linear_attn.", deltas, n);
    } else {
      const Matrix both = linear(f, heads + "q_proj", n);
      Matrix q(n.rows, both.columns / 2), gate = q;
      for (std::size_t r = 0; r < n.rows; ++r)
        for (std::size_t c = 0; c < q.columns; ++c) {
          const std::size_t from = c / s.dim * 2 * s.dim + c % s.dim;
          q(r, c) = both(r, from), gate(r, c) = both(r, from + s.dim);
        }
      q = rotary(rms_norm(f, heads + "q_norm", q, 1e-5, 1), s.dim, turned);
      const Matrix k = rotary(rms_norm(f, heads + "k_norm", linear(f, heads + "k_proj", n), 1e-5, 1), s.dim, turned);
      h = linear(f, heads + "o_proj", times(attend(q, k, linear(f, heads + "v_proj", n), s.dim), each(gate, sigmoid)));
    }
    x = plus(x, h);
    const Matrix m = rms_norm(f, at + "post_attention_layernorm", x, 1e-5, 1);
    const bool mixed = f.count(at + "mlp.gate.weight") > 0;
    x = plus(x, mixed ? qwen_experts(f, at + "mlp.", chosen, m) : gated_mlp(f, at + "mlp.", m));
  }
  return linear(f, "lm_head", rms_norm(f, "model.norm", x, 1e-5, 1));
}

}  // namespace orrery::exec::testing::reference
