#pragma once
/// More of the references of tests/exec/family_reference.h: Gemma 4's experts, and blocks of LFM2 and Falcon-H1.
#include "tests/exec/family_reference.h"

namespace orrery::exec::testing::reference {

/// Gemma 4's mixture beside its MLP, each behind a norm of its own. The router reads the residual behind a norm, over
/// the root of its width, and weighs what an expert makes by that expert's number.
inline Matrix gemma4_moe(const File& f, const std::string& at, const Matrix& x, const Matrix& mlp) {
  constexpr double kEpsilon = 1e-5;
  const auto norm = [&](const char* name, const Matrix& of) { return rms_norm(f, at + name, of, kEpsilon); };
  const File router = {{"norm.weight", f.at(at + "router.scale")}};
  const double root = std::sqrt(static_cast<double>(x.columns));
  const Matrix routed = each(rms_norm(router, "norm", x, kEpsilon), [&](double v) { return v / root; });
  File stacks;
  for (const char* name : {"gate_up_proj", "down_proj"})
    stacks[std::string(name) + ".weight"] = f.at(at + "experts." + name);
  const Matrix y = mixture(norm("pre_feedforward_layernorm_2", x), linear(f, at + "router.proj", routed), 2,
                           [&](std::size_t e, const Matrix& rows) {
                             const Matrix both = of_stack(stacks, "gate_up_proj", e, rows);
                             const double scale = f.at(at + "router.per_expert_scale").v.at(e);
                             return each(of_stack(stacks, "down_proj", e, gated(both, gelu_tanh)),
                                         [&](double v) { return scale * v; });
                           });
  return plus(norm("post_feedforward_layernorm_1", mlp), norm("post_feedforward_layernorm_2", y));
}

/// LFM2: a convolution of few taps over b x, times c; attention in every second layer; then a gated MLP or experts.
inline Matrix lfm2(const File& f, const Sizes& s, const std::vector<int>& ids) {
  const auto mlp = [&](const std::string& at, const Matrix& rows) {
    return linear(f, at + "w2", times(each(linear(f, at + "w1", rows), silu), linear(f, at + "w3", rows)));
  };
  Matrix x = embedding(f, "model.embed_tokens.weight", ids);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".", heads = at + "self_attn.";
    const Matrix n = rms_norm(f, at + "operator_norm", x, 1e-5);
    Matrix h(0, 0);
    if (i % 2 == 0) {
      const Matrix all = linear(f, at + "conv.in_proj", n);
      const std::size_t c = all.columns / 3;
      const Matrix inner = times(columns(all, 0, c), columns(all, 2 * c, c));
      const Weights& taps = f.at(at + "conv.conv.weight");
      const std::size_t width = taps.shape.at(2);
      Matrix made(n.rows, c);
      for (std::size_t t = 0; t < n.rows; ++t)
        for (std::size_t j = 0; j < c; ++j)
          for (std::size_t back = 0; back < width && back <= t; ++back)
            made(t, j) += taps.v.at(j * width + width - 1 - back) * inner(t - back, j);
      h = linear(f, at + "conv.out_proj", times(columns(all, c, c), made));
    } else {
      const auto turned = [&](const char* product, const char* norm) {
        return rotary(rms_norm(f, heads + norm, linear(f, heads + product, n), 1e-5), s.dim, s.dim, 1e6);
      };
      h = linear(f, heads + "out_proj",
                 attend(turned("q_proj", "q_layernorm"), turned("k_proj", "k_layernorm"),
                        linear(f, heads + "v_proj", n), s.dim));
    }
    x = plus(x, h);
    const Matrix m = rms_norm(f, at + "ffn_norm", x, 1e-5);
    const std::string feed = at + "feed_forward.";
    x = plus(x, f.count(feed + "gate.weight") == 0
                    ? mlp(feed, m)
                    : by_sigmoids(m, linear(f, feed + "gate", m), 1, [&](std::size_t e, const Matrix& rows) {
                        return mlp(feed + "experts." + std::to_string(e) + ".", rows);
                      }));
  }
  return unembed(f, "model.embed_tokens.weight", rms_norm(f, "model.embedding_norm", x, 1e-5));
}

/// Falcon-H1, with the multipliers of tests/exec/families.h: of a key and of attention's output together with those of
/// its input.
inline Matrix falcon_h1(const File& f, const Sizes& s, std::size_t normed, const std::vector<int>& ids) {
  const auto times_all = [](const Matrix& of, double scale) { return each(of, [&](double v) { return scale * v; }); };
  const StateSpaces ssm = {.normed = normed, .scales = {0.9, 1.1, 0.8, 1.2, 1.3}};
  Matrix x = times_all(embedding(f, "model.embed_tokens.weight", ids), 2);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".", heads = at + "self_attn.";
    const Matrix n = rms_norm(f, at + "input_layernorm", x, 1e-5);
    const Matrix k = rotary(times_all(linear(f, heads + "k_proj", n), 1.4), s.dim, s.dim);
    const Matrix q = rotary(linear(f, heads + "q_proj", n), s.dim, s.dim);
    const Matrix h = linear(f, heads + "o_proj", attend(q, k, linear(f, heads + "v_proj", n), s.dim));
    x = plus(x, plus(times_all(h, 0.7), times_all(state_space(f, at + "mamba.", ssm, n), 0.6)));
    const Matrix m = rms_norm(f, at + "pre_ff_layernorm", x, 1e-5);
    const std::string mlp = at + "feed_forward.";
    const Matrix inner =
        times(each(times_all(linear(f, mlp + "gate_proj", m), 1.5), silu), linear(f, mlp + "up_proj", m));
    x = plus(x, times_all(linear(f, mlp + "down_proj", inner), 0.4));
  }
  return times_all(linear(f, "lm_head", rms_norm(f, "model.final_layernorm", x, 1e-5)), 0.5);
}

}  // namespace orrery::exec::testing::reference
