#pragma once
/// Forward passes of families in double precision, written from their papers and the definitions of Hugging Face's
/// classes, over tensors as their files hold them: names, orientations and what is stored less one are the files'. They
/// share nothing with models/ and exec/.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace orrery::exec::testing::reference {

struct Weights {
  std::vector<std::size_t> shape;
  std::vector<double> v;
};
using File = std::map<std::string, Weights>;

struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> v;
  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), v(r * c) {}
  double& operator()(std::size_t r, std::size_t c) { return v[r * columns + c]; }
  double operator()(std::size_t r, std::size_t c) const { return v[r * columns + c]; }
};

inline Matrix plus(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.v.size(); ++i) a.v[i] += b.v.at(i);
  return a;
}
inline Matrix times(const Matrix& a, const Matrix& b) {
  Matrix out = a;
  for (std::size_t i = 0; i < a.v.size(); ++i) out.v[i] *= b.v.at(i);
  return out;
}
template <class Function>
Matrix each(Matrix a, const Function& f) {
  for (double& x : a.v) x = f(x);
  return a;
}
/// torch.nn.Linear: weight (out, in).
inline Matrix linear(const File& file, const std::string& name, const Matrix& x) {
  const Weights& w = file.at(name + ".weight");
  const auto bias = file.find(name + ".bias");
  Matrix y(x.rows, w.shape.at(0));
  for (std::size_t r = 0; r < x.rows; ++r)
    for (std::size_t o = 0; o < y.columns; ++o) {
      double sum = bias == file.end() ? 0 : bias->second.v.at(o);
      for (std::size_t i = 0; i < x.columns; ++i) sum += x(r, i) * w.v.at(o * w.shape.at(1) + i);
      y(r, o) = sum;
    }
  return y;
}
inline Matrix columns(const Matrix& x, std::size_t first, std::size_t count) {
  Matrix out(x.rows, count);
  for (std::size_t r = 0; r < x.rows; ++r)
    for (std::size_t c = 0; c < count; ++c) out(r, c) = x(r, first + c);
  return out;
}
inline Matrix embedding(const File& file, const std::string& name, const std::vector<int>& ids) {
  const Weights& w = file.at(name);
  Matrix x(ids.size(), w.shape.at(1));
  for (std::size_t r = 0; r < ids.size(); ++r)
    for (std::size_t c = 0; c < x.columns; ++c) x(r, c) = w.v.at(static_cast<std::size_t>(ids[r]) * x.columns + c);
  return x;
}
inline Matrix layer_norm(const File& file, const std::string& name, const Matrix& x, double epsilon = 1e-5,
                         double one = 0) {
  const auto w = file.find(name + ".weight"), b = file.find(name + ".bias");  // a norm may have neither
  Matrix y = x;
  for (std::size_t r = 0; r < x.rows; ++r) {
    double mean = 0, square = 0;
    for (std::size_t c = 0; c < x.columns; ++c) mean += x(r, c);
    mean /= static_cast<double>(x.columns);
    for (std::size_t c = 0; c < x.columns; ++c) square += (x(r, c) - mean) * (x(r, c) - mean);
    const double s = 1 / std::sqrt(square / static_cast<double>(x.columns) + epsilon);
    for (std::size_t c = 0; c < x.columns; ++c)
      y(r, c) = (x(r, c) - mean) * s * (w == file.end() ? 1 : one + w->second.v.at(c)) +
                (b == file.end() ? 0 : b->second.v.at(c));
  }
  return y;
}
/// Of groups of as many columns as the weight has.
inline Matrix rms_norm(const File& file, const std::string& name, const Matrix& x, double epsilon, double one = 0) {
  const Weights& w = file.at(name + ".weight");
  const std::size_t width = w.v.size();
  Matrix y = x;
  for (std::size_t r = 0; r < x.rows; ++r)
    for (std::size_t first = 0; first < x.columns; first += width) {
      double square = 0;
      for (std::size_t c = 0; c < width; ++c) square += x(r, first + c) * x(r, first + c);
      const double s = 1 / std::sqrt(square / static_cast<double>(width) + epsilon);
      for (std::size_t c = 0; c < width; ++c) y(r, first + c) = x(r, first + c) * s * (one + w.v.at(c));
    }
  return y;
}
/// The same without weights, of groups of `width` columns.
inline Matrix unit_norm(const Matrix& x, std::size_t width, double epsilon) {
  const File ones = {{"ones.weight", {{width}, std::vector<double>(width, 1.0)}}};
  return rms_norm(ones, "ones", x, epsilon);
}
/// rotate_half over the first `turned` columns of each head of width `dim`; or, with `adjacent`, each two columns that
/// stand side by side.
inline Matrix rotary(const Matrix& x, std::size_t dim, std::size_t turned, double theta = 10000, bool adjacent = false,
                     const std::vector<double>& divisors = {}, double attention = 1) {
  Matrix y = x;
  for (std::size_t t = 0; t < x.rows; ++t)
    for (std::size_t first = 0; first < x.columns; first += dim)
      for (std::size_t i = 0; i < turned / 2; ++i) {
        const double angle = static_cast<double>(t) / (divisors.empty() ? 1 : divisors.at(i)) *
                             std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(turned));
        const std::size_t one = first + (adjacent ? 2 * i : i), other = adjacent ? one + 1 : one + turned / 2;
        const double a = x(t, one), b = x(t, other);
        y(t, one) = attention * (a * std::cos(angle) - b * std::sin(angle));
        y(t, other) = attention * (b * std::cos(angle) + a * std::sin(angle));
      }
  return y;
}

struct Scores {
  double scale = 0;  ///< 0: 1/sqrt(dim)
  double cap = 0;
  std::size_t window = 0;
  bool alibi = false;
  const Weights* sinks = nullptr;  ///< of each head, a logit beside its scores
};
/// Causal, with heads of width `dim`; keys and values may have fewer heads, and values another width.
inline Matrix attend(const Matrix& q, const Matrix& k, const Matrix& v, std::size_t dim, const Scores& how = {}) {
  const std::size_t heads = q.columns / dim, kv_heads = k.columns / dim, group = heads / kv_heads;
  const std::size_t width = v.columns / kv_heads;
  Matrix y(q.rows, heads * width);
  for (std::size_t h = 0; h < heads; ++h) {
    const std::size_t kv = h / group * dim, of_v = h / group * width;
    const double slope = how.alibi ? std::pow(2.0, -8.0 * static_cast<double>(h + 1) / static_cast<double>(heads)) : 0;
    for (std::size_t i = 0; i < q.rows; ++i) {
      std::vector<double> p(i + 1);
      double total = how.sinks != nullptr ? std::exp(how.sinks->v.at(h)) : 0;
      for (std::size_t j = 0; j <= i; ++j) {
        if (how.window > 0 && i >= how.window + j) continue;
        double s = 0;
        for (std::size_t d = 0; d < dim; ++d) s += q(i, h * dim + d) * k(j, kv + d);
        s *= how.scale > 0 ? how.scale : 1 / std::sqrt(static_cast<double>(dim));
        if (how.cap > 0) s = how.cap * std::tanh(s / how.cap);
        s += slope * static_cast<double>(j);  // BLOOM's: on the key's place
        total += p[j] = std::exp(s - slope * static_cast<double>(i));
      }
      for (std::size_t j = 0; j <= i; ++j)
        for (std::size_t d = 0; d < width; ++d) y(i, h * width + d) += p[j] / total * v(j, of_v + d);
    }
  }
  return y;
}

inline double gelu_erf(double x) {
  return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
}
inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
inline double silu(double x) {
  return x / (1 + std::exp(-x));
}

/// Mean over the rows of -log softmax(logits)[target].
inline double loss_of(const Matrix& logits, const std::vector<int>& targets) {
  double total = 0;
  for (std::size_t r = 0; r < logits.rows; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < logits.columns; ++c) sum += std::exp(logits(r, c));
    total += std::log(sum) - logits(r, static_cast<std::size_t>(targets[r]));
  }
  return total / static_cast<double>(logits.rows);
}
/// The head that is the token table.
inline Matrix unembed(const File& file, const std::string& table, const Matrix& x) {
  File one = {{"head.weight", file.at(table)}};
  return linear(one, "head", x);
}

/// A mixture of experts: each row takes its `chosen` largest logits, weighted by a softmax over them alone.
/// `expert(e, x)`: the rows of x through expert e.
inline Matrix mixture(const Matrix& x, const Matrix& logits, std::size_t chosen,
                      const std::function<Matrix(std::size_t, const Matrix&)>& expert) {
  std::vector<Matrix> made;
  for (std::size_t e = 0; e < logits.columns; ++e) made.push_back(expert(e, x));
  Matrix y(x.rows, x.columns);
  for (std::size_t r = 0; r < x.rows; ++r) {
    std::vector<std::size_t> order(logits.columns);
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits(r, a) > logits(r, b); });
    double total = 0;
    for (std::size_t i = 0; i < chosen; ++i) total += std::exp(logits(r, order[i]));
    for (std::size_t i = 0; i < chosen; ++i)
      for (std::size_t c = 0; c < y.columns; ++c)
        y(r, c) += std::exp(logits(r, order[i])) / total * made[order[i]](r, c);
  }
  return y;
}
/// Of a tensor (experts, out, in) the matrix of one expert.
inline Matrix of_stack(const File& file, const std::string& name, std::size_t expert, const Matrix& x) {
  const Weights& all = file.at(name + ".weight");
  const std::size_t size = all.shape.at(1) * all.shape.at(2);
  const auto begin = all.v.begin() + static_cast<std::ptrdiff_t>(expert * size);
  File one;
  one["expert.weight"] = {{all.shape.at(1), all.shape.at(2)}, {begin, begin + static_cast<std::ptrdiff_t>(size)}};
  return linear(one, "expert", x);
}

/// Sizes that no tensor's shape says.
/// Step 3.5: each head's columns times the sigmoid of its own gate.
inline Matrix by_head(Matrix x, const Matrix& gates) {
  const std::size_t dim = x.columns / gates.columns;
  for (std::size_t t = 0; t < x.rows; ++t)
    for (std::size_t c = 0; c < x.columns; ++c) x(t, c) /= 1 + std::exp(-gates(t, c / dim));
  return x;
}

struct Sizes {
  std::size_t layers = 2, dim = 8, window = 0;
  double query_scalar = 0;
};

// -- Llama's line: Mistral, Qwen2, Qwen3, Phi-3, Nemotron, Gemma, GLM, ERNIE, StarCoder 2 ... -------------------------

struct LlamaLike {
  bool fused = false;       ///< Phi-3's qkv_proj and gate_up_proj
  bool fused_mlp = false;   ///< GLM's gate_up_proj alone
  bool head_norms = false;  ///< Qwen3, Gemma 3
  const char *norm_1 = "input_layernorm", *norm_2 = "post_attention_layernorm";
  const char* late_norms[2] = {};          ///< HunYuan: of q and of k, behind the rotation
  double one = 0;                          ///< what norms' weights are stored less by
  bool layer_norms = false, gated = true;  ///< Nemotron: LayerNorm1P, squared ReLU
  std::size_t turned = 0;                  ///< 0: all of a head
  double (*activation)(double) = silu;
  bool sandwich = false, scaled = false, tied = false;
  double cap = 0, logit_cap = 0, epsilon = 1e-5;
  std::size_t window = 0;
  bool alternates = false, later = false;  ///< every second layer, the first ones or the last ones of two
  double theta = 10000, window_theta = 0;  ///< Gemma 3: of layers with a window
  bool adjacent = false;                   ///< GLM's and ERNIE's rotation
  std::size_t unrotated = 0;               ///< SmolLM 3: every n-th layer
  const char* after_attention = "post_attention_layernorm";  ///< of `sandwich`, with the next two
  const char* before_mlp = "pre_feedforward_layernorm";
  const char* after_mlp = "post_feedforward_layernorm";
  const char* up = "mlp.up_proj";  ///< without a gate: StarCoder 2's c_fc, c_proj
  const char* down = "mlp.down_proj";
  const char* packed = nullptr;                         ///< Baichuan's W_pack
  bool parallel = false;                                ///< Command R: attention and MLP read one norm
  bool after_alone = false;                             ///< OLMo 2: `sandwich` without the norms before
  double embeddings = 1, residuals = 1, logits = 1;     ///< Granite's multipliers
  std::vector<double> divisors = {};                    ///< longrope: of each pair's rate
  double turned_by = 1;                                 ///< longrope: factor on cosines and sines
  bool gated_attention = false;                         ///< Trinity: a gate of attention's output
  const char* sinks = "self_attn.attention_sink_bias";  ///< where the file has some
  double values = 1;                                    ///< MiMo-V2: v times this
  std::size_t full_dim = 0;                             ///< Gemma 4: of heads that see all; 0: as the others
  std::size_t full_pairs = 0;                           ///< with it: pairs of these heads that turn
  bool value_norms = false;                             ///< Gemma 4: and a layer without v_proj takes k for v
  std::size_t window_turned = 0;                        ///< Step 3.5: of heads with a window; 0: as the others
  /// Gemma 4: what stands beside the MLP, of a layer's weights, the residual and what the MLP made.
  std::function<Matrix(const File&, const std::string&, const Matrix&, const Matrix&)> beside = nullptr;
  /// In place of the MLP: of a layer's weights, whose names begin so, and the norm's output.
  std::function<Matrix(const File&, const std::string&, const Matrix&)> feed = nullptr;
};

inline Matrix llama_like(const File& f, const Sizes& s, const LlamaLike& a, const std::vector<int>& ids) {
  const auto norm = [&](const std::string& name, const Matrix& x) {
    return a.layer_norms ? layer_norm(f, name, x, a.epsilon, a.one) : rms_norm(f, name, x, a.epsilon, a.one);
  };
  Matrix x = embedding(f, "model.embed_tokens.weight", ids);
  if (a.scaled) x = each(x, [&](double v) { return v * std::sqrt(static_cast<double>(x.columns)); });
  const auto times_all = [](const Matrix& of, double scale) { return each(of, [&](double v) { return scale * v; }); };
  x = times_all(x, a.embeddings);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".";
    const Matrix n = a.after_alone ? x : norm(at + a.norm_1, x);
    Matrix q(0, 0), k(0, 0), v(0, 0);
    if (a.fused || a.packed) {
      const Matrix all = linear(f, at + (a.packed ? a.packed : "self_attn.qkv_proj"), n);
      const std::size_t own = f.at(at + "self_attn.o_proj.weight").shape.at(1), kv = (all.columns - own) / 2;
      q = columns(all, 0, own), k = columns(all, own, kv), v = columns(all, own + kv, kv);
    } else {
      q = linear(f, at + "self_attn.q_proj", n), k = linear(f, at + "self_attn.k_proj", n);
      v = f.count(at + "self_attn.v_proj.weight") > 0 ? linear(f, at + "self_attn.v_proj", n) : k;
    }
    const bool windowed = a.window > 0 && (!a.alternates || i % 2 == (a.later ? 1 : 0));
    const std::size_t dim = !windowed && a.full_dim > 0 ? a.full_dim : s.dim;
    if (a.value_norms) v = unit_norm(v, dim, a.epsilon);
    if (a.head_norms) {
      q = rms_norm(f, at + "self_attn.q_norm", q, a.epsilon, a.one);
      k = rms_norm(f, at + "self_attn.k_norm", k, a.epsilon, a.one);
    }
    const std::size_t own_turned = windowed && a.window_turned > 0 ? a.window_turned : a.turned;
    const std::size_t turned = own_turned > 0 ? own_turned : dim;
    Scores how;
    how.cap = a.cap;
    if (s.query_scalar > 0) how.scale = 1 / std::sqrt(s.query_scalar);
    if (windowed) how.window = a.window;
    if (const auto sinks = f.find(at + a.sinks); sinks != f.end()) how.sinks = &sinks->second;
    v = times_all(v, a.values);
    if (a.unrotated == 0 || (i + 1) % a.unrotated != 0) {
      const double theta = how.window > 0 && a.window_theta > 0 ? a.window_theta : a.theta;
      std::vector<double> divisors = a.divisors;
      if (!windowed && a.full_pairs > 0) {
        divisors.assign(dim / 2, std::numeric_limits<double>::infinity());
        std::fill_n(divisors.begin(), a.full_pairs, 1.0);
      }
      q = rotary(q, dim, turned, theta, a.adjacent, divisors, a.turned_by);
      k = rotary(k, dim, turned, theta, a.adjacent, divisors, a.turned_by);
    }
    if (a.late_norms[0]) {
      q = rms_norm(f, at + a.late_norms[0], q, a.epsilon, a.one);
      k = rms_norm(f, at + a.late_norms[1], k, a.epsilon, a.one);
    }
    Matrix h = attend(q, k, v, dim, how);
    if (a.gated_attention)
      h = times(h, each(linear(f, at + "self_attn.gate_proj", n), [](double z) { return 1 / (1 + std::exp(-z)); }));
    if (f.count(at + "self_attn.g_proj.weight") > 0) h = by_head(h, linear(f, at + "self_attn.g_proj", n));
    h = linear(f, at + "self_attn.o_proj", h);
    if (a.sandwich) h = norm(at + a.after_attention, h);
    x = plus(x, times_all(h, a.residuals));
    const Matrix m = a.parallel ? n : a.after_alone ? x : norm(at + (a.sandwich ? a.before_mlp : a.norm_2), x);
    if (a.feed && f.count(at + "mlp.gate_proj.weight") == 0) {
      const Matrix g = a.feed(f, at, m);
      x = plus(x, times_all(a.sandwich ? norm(at + a.after_mlp, g) : g, a.residuals));
      continue;
    }
    Matrix inner(0, 0);
    if (a.fused || a.fused_mlp) {
      const Matrix both = linear(f, at + "mlp.gate_up_proj", m);
      const std::size_t half = both.columns / 2;
      inner = times(each(columns(both, 0, half), a.activation), columns(both, half, half));
    } else if (a.gated) {
      inner = times(each(linear(f, at + "mlp.gate_proj", m), a.activation), linear(f, at + "mlp.up_proj", m));
    } else {
      inner = each(linear(f, at + a.up, m), a.activation);
    }
    Matrix g = linear(f, at + a.down, inner);
    if (a.beside) g = a.beside(f, at, x, g);
    if (a.sandwich) g = norm(at + a.after_mlp, g);
    x = plus(x, times_all(g, a.residuals));
  }
  x = norm("model.norm", x);
  x = a.tied ? unembed(f, "model.embed_tokens.weight", x) : linear(f, "lm_head", x);
  x = times_all(x, a.logits);
  if (a.logit_cap > 0) x = each(x, [&](double v) { return a.logit_cap * std::tanh(v / a.logit_cap); });
  return x;
}

/// A gated MLP whose first product makes gate and up.
inline Matrix gated(const Matrix& both, double (*activation)(double) = silu) {
  const std::size_t half = both.columns / 2;
  return times(each(columns(both, 0, half), activation), columns(both, half, half));
}

/// Apertus's MLP: xIELU with a layer's own shapes.
inline Matrix xielu_mlp(const File& f, const std::string& at, const Matrix& x) {
  const auto softplus = [&](const char* name) { return std::log1p(std::exp(f.at(at + "mlp.act_fn." + name).v.at(0))); };
  const double p = softplus("alpha_p"), n = 0.5 + softplus("alpha_n");
  return linear(f, at + "mlp.down_proj", each(linear(f, at + "mlp.up_proj", x), [&](double v) {
                  return 0.5 * v + (v > 0 ? p * v * v : n * (std::expm1(std::min(v, -1e-6)) - v));
                }));
}

/// Granite 3's mixture; in its second form beside an MLP that every token takes.
inline Matrix granite_moe(const File& f, const std::string& at, const Matrix& x) {
  const std::string moe = at + "block_sparse_moe.";
  Matrix y = mixture(x, linear(f, moe + "router.layer", x), 2, [&](std::size_t e, const Matrix& rows) {
    return of_stack(f, moe + "output_linear", e, gated(of_stack(f, moe + "input_linear", e, rows)));
  });
  const std::string shared = at + "shared_mlp.";
  if (f.count(shared + "input_linear.weight") == 0) return y;
  return plus(y, linear(f, shared + "output_linear", gated(linear(f, shared + "input_linear", x))));
}

inline Matrix gated_mlp(const File& f, const std::string& at, const Matrix& x) {
  return linear(f, at + "down_proj", times(each(linear(f, at + "gate_proj", x), silu), linear(f, at + "up_proj", x)));
}
/// HunYuan's mixture of `chosen` experts, beside an MLP that every token takes.
inline Matrix hunyuan_moe(const File& f, const std::string& at, const Matrix& x) {
  const std::string moe = at + "mlp.";
  const Matrix y = mixture(x, linear(f, moe + "gate.wg", x), 2, [&](std::size_t e, const Matrix& rows) {
    return gated_mlp(f, moe + "experts." + std::to_string(e) + ".", rows);
  });
  return plus(y, gated_mlp(f, moe + "shared_mlp.", x));
}

/// DeepSeek-V3's routing without groups and biases: the two largest sigmoids, divided by their sum, times `scale`.
/// `expert(e, x)`: the rows of x through expert e.
inline Matrix by_sigmoids(const Matrix& x, const Matrix& logits, double scale,
                          const std::function<Matrix(std::size_t, const Matrix&)>& expert) {
  // A softmax of log sigmoids over the chosen is just that.
  const Matrix logs = each(logits, [](double z) { return -std::log1p(std::exp(-z)); });
  return each(mixture(x, logs, 2, expert), [&](double y) { return scale * y; });
}

/// Solar Open's, K-EXAONE's and MiMo-V2's mixture, and under another name of the router Trinity's.
inline Matrix sigmoid_moe(const File& f, const std::string& at, const Matrix& x, const char* router, double scale) {
  const std::string moe = at + "mlp.";
  const Matrix y = by_sigmoids(x, linear(f, moe + router, x), scale, [&](std::size_t e, const Matrix& rows) {
    return gated_mlp(f, moe + "experts." + std::to_string(e) + ".", rows);
  });
  return f.count(moe + "shared_experts.up_proj.weight") == 0 ? y : plus(y, gated_mlp(f, moe + "shared_experts.", x));
}

/// Step 3.5's: the same, all experts of a layer in two tensors.
inline Matrix stacked_sigmoid_moe(const File& f, const std::string& at, const Matrix& x, double scale) {
  const std::string moe = at + "mlp.";
  File stacks;
  for (const char* name : {"gate_up_proj", "down_proj"})
    stacks[std::string(name) + ".weight"] = f.at(moe + "experts." + name);
  const Matrix y = by_sigmoids(x, linear(f, moe + "gate", x), scale, [&](std::size_t e, const Matrix& rows) {
    return of_stack(stacks, "down_proj", e, gated(of_stack(stacks, "gate_up_proj", e, rows)));
  });
  return plus(y, gated_mlp(f, moe + "shared_experts.", x));
}

/// Nemotron 3 Super's: experts work on a narrower copy of the token, the shared one on itself.
inline Matrix narrow_moe(const File& f, const std::string& at, const Matrix& x, double scale) {
  const auto mlp = [&](const std::string& name, const Matrix& rows) {
    return linear(f, name + "down_proj",
                  each(linear(f, name + "up_proj", rows), [](double v) { return v > 0 ? v * v : 0; }));
  };
  const Matrix copies = linear(f, at + "fc1_latent_proj", x);
  const Matrix sums = by_sigmoids(copies, linear(f, at + "gate", x), scale, [&](std::size_t e, const Matrix& rows) {
    return mlp(at + "experts." + std::to_string(e) + ".", rows);
  });
  return plus(linear(f, at + "fc2_latent_proj", sums), mlp(at + "shared_experts.", x));
}

/// Ling's: a softmax over the chosen, beside an MLP that every token takes if there is one.
inline Matrix bailing_moe(const File& f, const std::string& at, const Matrix& x) {
  const std::string moe = at + "mlp.", shared = moe + "shared_experts.";
  const Matrix y = mixture(x, linear(f, moe + "gate", x), 2, [&](std::size_t e, const Matrix& rows) {
    return gated_mlp(f, moe + "experts." + std::to_string(e) + ".", rows);
  });
  return f.count(shared + "up_proj.weight") == 0 ? y : plus(y, gated_mlp(f, shared, x));
}

/// The same tensors under other names: of each pair, the first becomes the second.
inline File renamed(const File& file, const std::vector<std::pair<std::string, std::string>>& names) {
  File out;
  for (const auto& [old, weights] : file) {
    std::string name = old;
    for (const auto& [from, to] : names)
      if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    out[name] = weights;
  }
  return out;
}

// -- state spaces: Mamba 2, Nemotron-H, Bamba, Granite 4 --------------------------------------------------------------

struct StateSpaces {
  std::size_t heads = 8, width = 8, groups = 2, state = 6, normed = 2;  ///< normed 0: gated alone
  std::vector<double> scales = {};                                      ///< of z, x, B, C and dt
};

/// In the form that pairs tokens as attention does (Dao and Gu 2024, equation 3): the share of token j in token i is
/// C_i B_j, times all decays after j.
inline Matrix state_space(const File& f, const std::string& at, const StateSpaces& s, const Matrix& x) {
  const std::size_t inner = s.heads * s.width, bc = s.groups * s.state, mixed = inner + 2 * bc;
  Matrix all = linear(f, at + "in_proj", x);
  if (!s.scales.empty())
    for (std::size_t t = 0; t < x.rows; ++t)
      for (std::size_t c = 0; c < all.columns; ++c)
        all(t, c) *= s.scales.at(c < inner            ? 0
                                 : c < 2 * inner      ? 1
                                 : c < 2 * inner + bc ? 2
                                 : c < inner + mixed  ? 3
                                                      : 4);
  const Weights& taps = f.at(at + "conv1d.weight");
  const std::size_t width = taps.shape.at(2);
  Matrix conv(x.rows, mixed);
  for (std::size_t t = 0; t < x.rows; ++t)
    for (std::size_t c = 0; c < mixed; ++c) {
      double sum = f.at(at + "conv1d.bias").v.at(c);
      for (std::size_t back = 0; back < width && back <= t; ++back)
        sum += taps.v.at(c * width + width - 1 - back) * all(t - back, inner + c);
      conv(t, c) = silu(sum);
    }
  Matrix y(x.rows, inner);
  for (std::size_t h = 0; h < s.heads; ++h) {
    const std::size_t b = inner + h / (s.heads / s.groups) * s.state, c = b + bc;
    std::vector<double> step(x.rows);
    for (std::size_t t = 0; t < x.rows; ++t)
      step[t] = std::log1p(std::exp(all(t, inner + mixed + h) + f.at(at + "dt_bias").v.at(h)));
    for (std::size_t i = 0; i < x.rows; ++i) {
      double decay = 0;
      for (std::size_t j = i + 1; j-- > 0;) {
        double share = 0;
        for (std::size_t n = 0; n < s.state; ++n) share += conv(i, c + n) * conv(j, b + n);
        share *= std::exp(decay) * step[j];
        for (std::size_t p = 0; p < s.width; ++p) y(i, h * s.width + p) += share * conv(j, h * s.width + p);
        decay -= std::exp(f.at(at + "A_log").v.at(h)) * step[j];
      }
      for (std::size_t p = 0; p < s.width; ++p)
        y(i, h * s.width + p) += f.at(at + "D").v.at(h) * conv(i, h * s.width + p);
    }
  }
  y = times(y, each(columns(all, 0, inner), silu));
  if (s.normed == 0) return linear(f, at + "out_proj", y);
  const std::size_t run = inner / s.normed;
  for (std::size_t r = 0; r < y.rows; ++r)
    for (std::size_t first = 0; first < inner; first += run) {
      double square = 0;
      for (std::size_t c = first; c < first + run; ++c) square += y(r, c) * y(r, c);
      const double scale = 1 / std::sqrt(square / static_cast<double>(run) + 1e-5);
      for (std::size_t c = first; c < first + run; ++c) y(r, c) *= scale * f.at(at + "norm.weight").v.at(c);
    }
  return linear(f, at + "out_proj", y);
}

/// One norm and one module for each letter; without positions.
inline Matrix of_letters(const File& f, const Sizes& s, const std::string& letters, const StateSpaces& ssm,
                         const std::vector<int>& ids) {
  Matrix x = embedding(f, "backbone.embeddings.weight", ids);
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const std::string layer = "backbone.layers." + std::to_string(i) + ".", at = layer + "mixer.";
    const Matrix n = rms_norm(f, layer + "norm", x, 1e-5);
    Matrix h(0, 0);
    if (letters[i] == 'M') h = state_space(f, at, ssm, n);
    if (letters[i] == '*')
      h = linear(f, at + "o_proj",
                 attend(linear(f, at + "q_proj", n), linear(f, at + "k_proj", n), linear(f, at + "v_proj", n), s.dim));
    if (letters[i] == 'E') h = narrow_moe(f, at, n, 5);
    if (letters[i] == '-')
      h = linear(f, at + "down_proj", each(linear(f, at + "up_proj", n), [](double v) { return v > 0 ? v * v : 0; }));
    x = plus(x, h);
  }
  return linear(f, "lm_head", rms_norm(f, "backbone.norm_f", x, 1e-5));
}

struct Bamba {
  const char *last = "model.final_layernorm", *before_mlp = "pre_ff_layernorm";
  std::size_t turned = 0;  ///< 0: no positions
  bool granite = false;    ///< gate and up in one tensor, and a tied head
  double embeddings = 1, residuals = 1, logits = 1;
};
/// A state space, or attention in every second layer, and then a gated MLP.
inline Matrix bamba(const File& f, const Sizes& s, const Bamba& a, const StateSpaces& ssm,
                    const std::vector<int>& ids) {
  const auto times_all = [](const Matrix& of, double scale) { return each(of, [&](double v) { return scale * v; }); };
  Matrix x = times_all(embedding(f, "model.embed_tokens.weight", ids), a.embeddings);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".", heads = at + "self_attn.";
    const Matrix n = rms_norm(f, at + "input_layernorm", x, 1e-5);
    const auto turned = [&](const Matrix& of) { return a.turned > 0 ? rotary(of, s.dim, a.turned) : of; };
    const Matrix h = i % 2 == 0
                         ? state_space(f, at + "mamba.", ssm, n)
                         : linear(f, heads + "o_proj",
                                  attend(turned(linear(f, heads + "q_proj", n)), turned(linear(f, heads + "k_proj", n)),
                                         linear(f, heads + "v_proj", n), s.dim));
    x = plus(x, times_all(h, a.residuals));
    const Matrix m = rms_norm(f, at + a.before_mlp, x, 1e-5);
    if (f.count(at + "block_sparse_moe.router.layer.weight") > 0) {
      x = plus(x, times_all(granite_moe(f, at, m), a.residuals));
      continue;
    }
    const Matrix both = a.granite ? linear(f, at + "shared_mlp.input_linear", m) : Matrix(0, 0);
    const std::size_t half = both.columns / 2;
    const Matrix gate = a.granite ? columns(both, 0, half) : linear(f, at + "feed_forward.gate_proj", m);
    const Matrix up = a.granite ? columns(both, half, half) : linear(f, at + "feed_forward.up_proj", m);
    const Matrix g = linear(f, at + (a.granite ? "shared_mlp.output_linear" : "feed_forward.down_proj"),
                            times(each(gate, silu), up));
    x = plus(x, times_all(g, a.residuals));
  }
  x = rms_norm(f, a.last, x, 1e-5);
  return times_all(a.granite ? unembed(f, "model.embed_tokens.weight", x) : linear(f, "lm_head", x), a.logits);
}

}  // namespace orrery::exec::testing::reference
