#pragma once
/// MiniMax-01's, Jamba's and Mamba's forward passes in double precision, as family_reference.h has those of other
/// families.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/exec/delta_reference.h"
#include "tests/exec/family_reference.h"

namespace orrery::exec::testing::reference {

/// Lightning attention in the form that pairs tokens: the share of token j in token i is q_i k_j, times the head's
/// decay once for each token between them.
inline Matrix lightning(const File& f, const std::string& at, std::size_t heads, double layer, double layers,
                        const Matrix& x) {
  const Matrix all = each(linear(f, at + "qkv_proj", x), silu);
  const std::size_t width = all.columns / heads / 3;
  Matrix y(x.rows, heads * width);
  for (std::size_t h = 0; h < heads; ++h) {
    const double share = 1 - layer / (layers - 1 + 1e-5) + 1e-5;
    const double rate = share * std::pow(std::pow(2.0, -8.0 / static_cast<double>(heads)), static_cast<double>(h + 1));
    const std::size_t q = 3 * h * width, k = q + width, v = k + width;
    for (std::size_t i = 0; i < x.rows; ++i)
      for (std::size_t j = 0; j <= i; ++j) {
        double score = 0;
        for (std::size_t d = 0; d < width; ++d) score += all(i, q + d) * all(j, k + d);
        score *= std::exp(-rate * static_cast<double>(i - j));
        for (std::size_t d = 0; d < width; ++d) y(i, h * width + d) += score * all(j, v + d);
      }
  }
  const Matrix gate = each(linear(f, at + "output_gate", x), sigmoid);
  return linear(f, at + "out_proj", times(rms_norm(f, at + "norm", y, 1e-6), gate));
}

/// A softmax over all experts; the two largest, divided by their sum if `normalised`.
inline Matrix softmax_moe(const Matrix& x, const Matrix& logits, bool normalised,
                          const std::function<Matrix(std::size_t, const Matrix&)>& expert) {
  Matrix y = mixture(x, logits, 2, expert);
  if (normalised) return y;
  for (std::size_t r = 0; r < x.rows; ++r) {
    std::vector<double> odds;
    for (std::size_t e = 0; e < logits.columns; ++e) odds.push_back(std::exp(logits(r, e)));
    const double all = std::accumulate(odds.begin(), odds.end(), 0.0);
    std::sort(odds.rbegin(), odds.rend());
    for (std::size_t c = 0; c < y.columns; ++c) y(r, c) *= (odds[0] + odds[1]) / all;
  }
  return y;
}

/// MiniMax-01 with the factors of tests/exec/families.h: lightning attention, attention in every second layer; a half's
/// result is added to its norm's.
inline Matrix minimax(const File& f, const Sizes& s, std::size_t heads, const std::vector<int>& ids) {
  const auto times_all = [](const Matrix& of, double scale) { return each(of, [&](double v) { return scale * v; }); };
  Matrix x = embedding(f, "model.embed_tokens.weight", ids);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".", own = at + "self_attn.";
    const Matrix n = rms_norm(f, at + "input_layernorm", x, 1e-5);
    if (i % 2 == 0) {
      const Matrix h = lightning(f, own, heads, static_cast<double>(i), static_cast<double>(s.layers), n);
      x = plus(times_all(n, 1.2), times_all(h, 0.9));
    } else {
      const auto turned = [&](const char* name) { return rotary(linear(f, own + name, n), s.dim, s.dim / 2, 1e6); };
      const Matrix h =
          linear(f, own + "o_proj", attend(turned("q_proj"), turned("k_proj"), linear(f, own + "v_proj", n), s.dim));
      x = plus(times_all(n, 1.5), times_all(h, 0.8));
    }
    const Matrix m = rms_norm(f, at + "post_attention_layernorm", x, 1e-5);
    const std::string moe = at + "block_sparse_moe.";
    const Matrix g = softmax_moe(m, linear(f, moe + "gate", m), true, [&](std::size_t e, const Matrix& rows) {
      const std::string one = moe + "experts." + std::to_string(e) + ".";
      return linear(f, one + "w2", times(each(linear(f, one + "w1", rows), silu), linear(f, one + "w3", rows)));
    });
    x = plus(times_all(m, 1.7), times_all(g, 0.7));
  }
  return linear(f, "lm_head", rms_norm(f, "model.norm", x, 1e-5));
}

/// Mamba's first form, each column by itself: what is left of a token's value after others is its power of all decays
/// between them. `normed` norms the step, B or C, by its name.
inline Matrix selective(const File& f, const std::string& at, std::size_t state, const Matrix& x,
                        const std::function<Matrix(const char*, const Matrix&)>& normed) {
  const Matrix all = linear(f, at + "in_proj", x);
  const std::size_t inner = all.columns / 2;
  const Weights& taps = f.at(at + "conv1d.weight");
  const std::size_t width = taps.shape.at(2);
  Matrix u(x.rows, inner);
  for (std::size_t t = 0; t < x.rows; ++t)
    for (std::size_t c = 0; c < inner; ++c) {
      double sum = f.at(at + "conv1d.bias").v.at(c);
      for (std::size_t back = 0; back < width && back <= t; ++back)
        sum += taps.v.at(c * width + width - 1 - back) * all(t - back, c);
      u(t, c) = silu(sum);
    }
  const Matrix narrow = linear(f, at + "x_proj", u);
  const std::size_t rank = narrow.columns - 2 * state;
  const Matrix b = normed("b_layernorm", columns(narrow, rank, state));
  const Matrix c = normed("c_layernorm", columns(narrow, rank + state, state));
  const Matrix dt = each(linear(f, at + "dt_proj", normed("dt_layernorm", columns(narrow, 0, rank))),
                         [](double v) { return std::log1p(std::exp(v)); });
  Matrix y(x.rows, inner);
  for (std::size_t p = 0; p < inner; ++p)
    for (std::size_t i = 0; i < x.rows; ++i) {
      double steps = 0;  // between token j and token i
      y(i, p) = f.at(at + "D").v.at(p) * u(i, p);
      for (std::size_t j = i + 1; j-- > 0;) {
        for (std::size_t n = 0; n < state; ++n)
          y(i, p) += c(i, n) * std::exp(-std::exp(f.at(at + "A_log").v.at(p * state + n)) * steps) * dt(j, p) *
                     u(j, p) * b(j, n);
        steps += dt(j, p);
      }
    }
  return linear(f, at + "out_proj", times(y, each(columns(all, inner, inner), silu)));
}

/// Jamba: that, then an MLP; attention without positions in every second layer, then experts.
inline Matrix jamba(const File& f, const Sizes& s, std::size_t state, const std::vector<int>& ids) {
  Matrix x = embedding(f, "model.embed_tokens.weight", ids);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".", own = at + "self_attn.";
    const Matrix n = rms_norm(f, at + "input_layernorm", x, 1e-5);
    const auto by_weight = [&](const char* name, const Matrix& one) {
      return rms_norm(f, at + "mamba." + name, one, 1e-5);
    };
    x = plus(x, i % 2 == 0 ? selective(f, at + "mamba.", state, n, by_weight)
                           : linear(f, own + "o_proj",
                                    attend(linear(f, own + "q_proj", n), linear(f, own + "k_proj", n),
                                           linear(f, own + "v_proj", n), s.dim)));
    const Matrix m = rms_norm(f, at + "pre_ff_layernorm", x, 1e-5);
    const std::string feed = at + "feed_forward.";
    x = plus(x, f.count(feed + "router.weight") == 0
                    ? gated_mlp(f, feed, m)
                    : softmax_moe(m, linear(f, feed + "router", m), false, [&](std::size_t e, const Matrix& rows) {
                        return gated_mlp(f, feed + "experts." + std::to_string(e) + ".", rows);
                      }));
  }
  return linear(f, "lm_head", rms_norm(f, "model.final_layernorm", x, 1e-5));
}

/// Mamba: selective state spaces alone; in Falcon Mamba's the step, B and C are divided by their root mean square.
inline Matrix mamba(const File& f, const Sizes& s, std::size_t state, bool falcon, const std::vector<int>& ids) {
  const auto divided = [&](const char*, const Matrix& one) {
    if (!falcon) return one;
    Matrix y = one;
    for (std::size_t r = 0; r < y.rows; ++r) {
      double squares = 0;
      for (std::size_t c = 0; c < y.columns; ++c) squares += y(r, c) * y(r, c);
      for (std::size_t c = 0; c < y.columns; ++c) y(r, c) /= std::sqrt(squares / static_cast<double>(y.columns) + 1e-6);
    }
    return y;
  };
  Matrix x = embedding(f, "backbone.embeddings.weight", ids);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "backbone.layers." + std::to_string(i) + ".";
    x = plus(x, selective(f, at + "mixer.", state, rms_norm(f, at + "norm", x, 1e-5), divided));
  }
  return linear(f, f.count("lm_head.weight") > 0 ? "lm_head" : "backbone.embeddings",
                rms_norm(f, "backbone.norm_f", x, 1e-5));
}

}  // namespace orrery::exec::testing::reference
