#pragma once
/// More of the references of tests/exec/family_reference.h: families nearer to GPT than to Llama, and nanochat.
#include "tests/exec/family_reference.h"

namespace orrery::exec::testing::reference {

// -- attention and MLP behind one LayerNorm, with a bias of the head: GPT-J, Phi --------------------------------------

struct BehindOne {
  const char *table, *layer, *norm, *attention, *out, *up, *down, *last;
  std::size_t turned = 0;
  bool adjacent = false;
  const char* packed = nullptr;  ///< CodeGen's qkv_proj
};

/// CodeGen's q, k and v: in each of four parts a quarter of q, then of v, then of k.
inline Matrix of_cores(const Matrix& all, std::size_t which) {
  const std::size_t quarter = all.columns / 12;
  Matrix out(all.rows, 4 * quarter);
  for (std::size_t r = 0; r < all.rows; ++r)
    for (std::size_t core = 0; core < 4; ++core)
      for (std::size_t c = 0; c < quarter; ++c) out(r, core * quarter + c) = all(r, (3 * core + which) * quarter + c);
  return out;
}

inline Matrix behind_one(const File& f, const Sizes& s, const BehindOne& a, const std::vector<int>& ids) {
  Matrix x = embedding(f, std::string(a.table) + ".weight", ids);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = a.layer + std::to_string(i) + ".", heads = at + a.attention;
    const Matrix n = layer_norm(f, at + a.norm, x);
    const Matrix all = a.packed ? linear(f, heads + a.packed, n) : Matrix(0, 0);
    const Matrix q =
        rotary(a.packed ? of_cores(all, 0) : linear(f, heads + "q_proj", n), s.dim, a.turned, 10000, a.adjacent);
    const Matrix k =
        rotary(a.packed ? of_cores(all, 2) : linear(f, heads + "k_proj", n), s.dim, a.turned, 10000, a.adjacent);
    const Matrix v = a.packed ? of_cores(all, 1) : linear(f, heads + "v_proj", n);
    const Matrix h = linear(f, heads + a.out, attend(q, k, v, s.dim));
    const Matrix g = linear(f, at + a.down, each(linear(f, at + a.up, n), gelu_tanh));
    x = plus(plus(x, h), g);
  }
  return linear(f, "lm_head", layer_norm(f, a.last, x));
}

// -- nanochat ---------------------------------------------------------------------------------------------------------

/// Norms have no weights, and pairs rotate backwards.
inline Matrix nanochat(const File& f, const Sizes& s, double cap, const std::vector<int>& ids) {
  const auto norm = [](const Matrix& x, std::size_t width) {
    const File ones = {{"norm.weight", {{width}, std::vector<double>(width, 1)}}};
    return rms_norm(ones, "norm", x, 1e-5);
  };
  const auto backwards = [&](Matrix x) {
    Matrix y = x;
    for (std::size_t t = 0; t < x.rows; ++t)
      for (std::size_t first = 0; first < x.columns; first += s.dim)
        for (std::size_t i = 0; i < s.dim / 2; ++i) {
          const double angle =
              static_cast<double>(t) * std::pow(10000, -2.0 * static_cast<double>(i) / static_cast<double>(s.dim));
          const double a = x(t, first + i), b = x(t, first + i + s.dim / 2);
          y(t, first + i) = a * std::cos(angle) + b * std::sin(angle);
          y(t, first + i + s.dim / 2) = b * std::cos(angle) - a * std::sin(angle);
        }
    return y;
  };
  Matrix x = embedding(f, "model.embed_tokens.weight", ids);
  x = norm(x, x.columns);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".", heads = at + "self_attn.";
    const Matrix n = norm(x, x.columns);
    const Matrix q = norm(backwards(linear(f, heads + "q_proj", n)), s.dim);
    const Matrix k = norm(backwards(linear(f, heads + "k_proj", n)), s.dim);
    x = plus(x, linear(f, heads + "o_proj", attend(q, k, linear(f, heads + "v_proj", n), s.dim)));
    const Matrix m = each(linear(f, at + "mlp.fc1", norm(x, x.columns)), [](double v) { return v > 0 ? v * v : 0; });
    x = plus(x, linear(f, at + "mlp.fc2", m));
  }
  return each(linear(f, "lm_head", norm(x, x.columns)), [&](double v) { return cap * std::tanh(v / cap); });
}

// -- GPT-Neo ----------------------------------------------------------------------------------------------------------

/// Scores without a scale; each second layer sees `window` tokens.
inline Matrix gpt_neo(const File& f, const Sizes& s, const std::vector<int>& ids) {
  std::vector<int> places(ids.size());
  std::iota(places.begin(), places.end(), 0);
  Matrix x = plus(embedding(f, "transformer.wte.weight", ids), embedding(f, "transformer.wpe.weight", places));
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "transformer.h." + std::to_string(i) + ".", heads = at + "attn.attention.";
    const Matrix n = layer_norm(f, at + "ln_1", x);
    Scores how;
    how.scale = 1;
    if (i % 2 == 1) how.window = s.window;
    x = plus(x, linear(f, heads + "out_proj",
                       attend(linear(f, heads + "q_proj", n), linear(f, heads + "k_proj", n),
                              linear(f, heads + "v_proj", n), s.dim, how)));
    const Matrix m = each(linear(f, at + "mlp.c_fc", layer_norm(f, at + "ln_2", x)), gelu_tanh);
    x = plus(x, linear(f, at + "mlp.c_proj", m));
  }
  return unembed(f, "transformer.wte.weight", layer_norm(f, "transformer.ln_f", x));
}

// -- q, k and v in turn: StarCoder, MPT, Qwen -------------------------------------------------------------------------

struct InTurn {
  const char* layer = "transformer.h.";
  const char *norm_1 = "ln_1", *norm_2 = "ln_2", *last = "transformer.ln_f";
  const char *qkv = "attn.c_attn", *out = "attn.c_proj", *up = "mlp.c_fc", *down = "mlp.c_proj";
  bool positions = false, alibi = false;
  bool qwen = false;       ///< RMSNorm, rotation, and down(w1(x) silu(w2(x))) in front of a head of its own
  std::size_t groups = 0;  ///< key/value heads; 0: as many as heads
  double (*activation)(double) = gelu_erf;
};

inline Matrix in_turn(const File& f, const Sizes& s, const InTurn& a, const std::vector<int>& ids) {
  const auto norm = [&](const std::string& name, const Matrix& x) {
    return a.qwen ? rms_norm(f, name, x, 1e-5) : layer_norm(f, name, x);
  };
  Matrix x = embedding(f, "transformer.wte.weight", ids);
  std::vector<int> places(ids.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int>(i);
  if (a.positions) x = plus(x, embedding(f, "transformer.wpe.weight", places));
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = a.layer + std::to_string(i) + ".";
    const Matrix all = linear(f, at + a.qkv, norm(at + a.norm_1, x));
    const std::size_t own = x.columns, kv = a.groups > 0 ? a.groups * s.dim : own;
    Matrix q = columns(all, 0, own), k = columns(all, own, kv);
    if (a.qwen) q = rotary(q, s.dim, s.dim), k = rotary(k, s.dim, s.dim);
    Scores how;
    how.alibi = a.alibi;
    x = plus(x, linear(f, at + a.out, attend(q, k, columns(all, own + kv, kv), s.dim, how)));
    const Matrix m = norm(at + a.norm_2, x);
    const Matrix inner = a.qwen ? times(linear(f, at + "mlp.w1", m), each(linear(f, at + "mlp.w2", m), silu))
                                : each(linear(f, at + a.up, m), a.activation);
    x = plus(x, linear(f, at + a.down, inner));
  }
  x = norm(a.last, x);
  return a.qwen ? linear(f, "lm_head", x) : unembed(f, "transformer.wte.weight", x);
}

// -- fused heads: GPT-NeoX, Falcon, BLOOM -----------------------------------------------------------------------------

struct Heads {
  Matrix q, k, v;
};
/// (groups, q of the group's heads then k then v, dim) rows, as `view(…)` of query_key_value has it.
inline Heads split_groups(const Matrix& all, std::size_t dim, std::size_t groups) {
  const std::size_t width = all.columns / groups, own = width - 2 * dim;
  Heads out{Matrix(all.rows, own * groups), Matrix(all.rows, dim * groups), Matrix(all.rows, dim * groups)};
  for (std::size_t r = 0; r < all.rows; ++r)
    for (std::size_t g = 0; g < groups; ++g) {
      for (std::size_t c = 0; c < own; ++c) out.q(r, g * own + c) = all(r, g * width + c);
      for (std::size_t c = 0; c < dim; ++c) {
        out.k(r, g * dim + c) = all(r, g * width + own + c);
        out.v(r, g * dim + c) = all(r, g * width + own + dim + c);
      }
    }
  return out;
}

inline Matrix neox(const File& f, const Sizes& s, std::size_t turned, const std::vector<int>& ids) {
  Matrix x = embedding(f, "gpt_neox.embed_in.weight", ids);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "gpt_neox.layers." + std::to_string(i) + ".";
    const Heads h = split_groups(linear(f, at + "attention.query_key_value", layer_norm(f, at + "input_layernorm", x)),
                                 s.dim, x.columns / s.dim);
    const Matrix a = attend(rotary(h.q, s.dim, turned), rotary(h.k, s.dim, turned), h.v, s.dim);
    const Matrix m =
        each(linear(f, at + "mlp.dense_h_to_4h", layer_norm(f, at + "post_attention_layernorm", x)), gelu_erf);
    x = plus(plus(x, linear(f, at + "attention.dense", a)), linear(f, at + "mlp.dense_4h_to_h", m));
  }
  return linear(f, "embed_out", layer_norm(f, "gpt_neox.final_layer_norm", x));
}

inline Matrix falcon(const File& f, const Sizes& s, std::size_t groups, bool two_norms, const std::vector<int>& ids) {
  Matrix x = embedding(f, "transformer.word_embeddings.weight", ids);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "transformer.h." + std::to_string(i) + ".";
    const Matrix n = layer_norm(f, at + (two_norms ? "ln_attn" : "input_layernorm"), x);
    const Matrix m = two_norms ? layer_norm(f, at + "ln_mlp", x) : n;
    const Heads h = split_groups(linear(f, at + "self_attention.query_key_value", n), s.dim, groups);
    const Matrix a = attend(rotary(h.q, s.dim, s.dim), rotary(h.k, s.dim, s.dim), h.v, s.dim);
    const Matrix inner = each(linear(f, at + "mlp.dense_h_to_4h", m), gelu_erf);
    x = plus(plus(x, linear(f, at + "self_attention.dense", a)), linear(f, at + "mlp.dense_4h_to_h", inner));
  }
  return unembed(f, "transformer.word_embeddings.weight", layer_norm(f, "transformer.ln_f", x));
}

inline Matrix bloom(const File& f, const Sizes& s, const std::vector<int>& ids) {
  Matrix x =
      layer_norm(f, "transformer.word_embeddings_layernorm", embedding(f, "transformer.word_embeddings.weight", ids));
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "transformer.h." + std::to_string(i) + ".";
    const Heads h =
        split_groups(linear(f, at + "self_attention.query_key_value", layer_norm(f, at + "input_layernorm", x)), s.dim,
                     x.columns / s.dim);
    Scores how;
    how.alibi = true;
    x = plus(x, linear(f, at + "self_attention.dense", attend(h.q, h.k, h.v, s.dim, how)));
    const Matrix inner =
        each(linear(f, at + "mlp.dense_h_to_4h", layer_norm(f, at + "post_attention_layernorm", x)), gelu_tanh);
    x = plus(x, linear(f, at + "mlp.dense_4h_to_h", inner));
  }
  return unembed(f, "transformer.word_embeddings.weight", layer_norm(f, "transformer.ln_f", x));
}

inline Matrix internlm2(const File& f, const Sizes& s, std::size_t groups, const std::vector<int>& ids) {
  constexpr double kEpsilon = 1e-5;
  Matrix x = embedding(f, "model.tok_embeddings.weight", ids);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".";
    const Heads h =
        split_groups(linear(f, at + "attention.wqkv", rms_norm(f, at + "attention_norm", x, kEpsilon)), s.dim, groups);
    const Matrix a = attend(rotary(h.q, s.dim, s.dim), rotary(h.k, s.dim, s.dim), h.v, s.dim);
    x = plus(x, linear(f, at + "attention.wo", a));
    const Matrix m = rms_norm(f, at + "ffn_norm", x, kEpsilon);
    const Matrix inner = times(each(linear(f, at + "feed_forward.w1", m), silu), linear(f, at + "feed_forward.w3", m));
    x = plus(x, linear(f, at + "feed_forward.w2", inner));
  }
  return linear(f, "output", rms_norm(f, "model.norm", x, kEpsilon));
}

// -- OPT --------------------------------------------------------------------------------------------------------------

inline Matrix opt(const File& f, const Sizes& s, const std::vector<int>& ids) {
  Matrix x = embedding(f, "model.decoder.embed_tokens.weight", ids);
  std::vector<int> places(ids.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int>(i) + 2;
  x = plus(x, embedding(f, "model.decoder.embed_positions.weight", places));
  for (std::size_t i = 0; i < s.layers; ++i) {
    const std::string at = "model.decoder.layers." + std::to_string(i) + ".";
    const Matrix n = layer_norm(f, at + "self_attn_layer_norm", x);
    const Matrix a = attend(linear(f, at + "self_attn.q_proj", n), linear(f, at + "self_attn.k_proj", n),
                            linear(f, at + "self_attn.v_proj", n), s.dim);
    x = plus(x, linear(f, at + "self_attn.out_proj", a));
    const Matrix inner =
        each(linear(f, at + "fc1", layer_norm(f, at + "final_layer_norm", x)), [](double v) { return v > 0 ? v : 0; });
    x = plus(x, linear(f, at + "fc2", inner));
  }
  return unembed(f, "model.decoder.embed_tokens.weight", layer_norm(f, "model.decoder.final_layer_norm", x));
}

}  // namespace orrery::exec::testing::reference
