// Expands layers into operators. Reading order: models/layers/layer_notes.h (how tensors and operators are noted down),
// models/layers/linear_notes.h (norms and products), attention_forward (models/layers/latent_notes.h: what latent
// attention has in place of the product for q, k and v), mlp_forward and their backward passes, the assembled blocks,
// then models/layers/end_notes.h (the input, and the heads with their losses).
//
// Tensor parallelism is Megatron-LM's (Shoeybi et al. 2019, section 3): the first product of attention and of the MLP
// is split by columns, the second by rows, with one all-reduce after each in forward and one before each in backward;
// the vocabulary is split by rows, and the loss is computed on shards with two small all-reduces. With sequence
// parallelism (Korthikanti et al. 2022, section 4.2.2) each all-reduce becomes a reduce-scatter after the block and an
// all-gather before it; everything in between works on a rank's own rows. As in their scheme, a product's gathered
// input is not kept, but gathered again for the weight's gradient.
//
// Context parallelism splits the tokens of a sequence (the ring of Megatron-core and Transformer Engine). Keys and
// values pass around the ring: attention works on one rank's block while the next one travels. In backward they pass
// around again, and their gradients follow one block behind until they are home.
#include "models/layers/expand.h"

#include <cmath>
#include <tuple>

#include "base/ensure.h"
#include "models/layers/end_notes.h"
#include "models/layers/fp8_gathers.h"
#include "models/operators/operators.h"

namespace orrery::models {

namespace {

class LayerBuilder : private EndNotes {
 public:
  LayerBuilder(const Model& model, LayerKind kind, std::int64_t layer, const ExpandOptions& options)
      : EndNotes(model, kind, layer, options) {}

  LayerProgram build() {
    switch (program_.kind) {
      case LayerKind::embedding: embedding(); break;
      case LayerKind::block: model_.pre_norm ? pre_norm_block() : post_norm_block(); break;
      case LayerKind::head: head(Further{*this}); break;
    }
    mark_gathers_for_fp8(program_);
    return std::move(program_);
  }

 private:
  // -- attention ------------------------------------------------------------------------------------------------
  struct Attention {
    Linear qkv, projection;
    Latent latent;  ///< in place of `qkv`
    TensorId packed, out, saved;
    TensorId values;                 ///< the columns of `out` that hold values, if values are narrower than heads
    TensorId sinks, sinks_gradient;  ///< (H)
    // An operator's operands, followed by the sinks if there are any.
    [[nodiscard]] static Tensors with(Tensors operands, TensorId sinks) {
      if (sinks.exists()) operands.push_back(sinks);
      return operands;
    }
    std::int64_t heads = 0, kv_heads = 0;
    // Norms of the heads of q and k: they read `packed`, and attention reads `normed`.
    TensorId q_norm, q_norm_gradient, k_norm, k_norm_gradient, normed, rstd;
    [[nodiscard]] TensorId read() const { return normed.exists() ? normed : packed; }
  };

  // GPT-2 scales what is added to the residual by depth; BERT, with its norms after the residual, does not.
  double residual_initial_stddev() const {
    return model_.pre_norm ? model_.initial_stddev / std::sqrt(2.0 * static_cast<double>(model_.layers))
                           : model_.initial_stddev;
  }

  Attention make_attention() {
    if (model_.latent.any()) return make_latent_attention();
    Attention a;
    const std::int64_t d = model_.head_dim;
    const std::int64_t c = model_.hidden;
    const double residual_stddev = residual_initial_stddev();
    a.heads = model_.heads / options_.tensor;
    a.kv_heads = model_.kv_heads / options_.tensor;
    const std::string at = prefix() + "attn.";
    const std::int64_t queries = model_.heads / model_.kv_heads * d;  // per key/value head
    struct Piece {
      const char* name;
      std::int64_t rows, first;
    };
    std::vector<Tensor> weights, biases;
    for (const Piece& piece : {Piece{"q", queries, 0}, Piece{"k", d, queries}, Piece{"v", d, queries + d}}) {
      const std::int64_t width = piece.rows * model_.kv_heads;
      weights.push_back(matrix(at + piece.name + ".weight", width, c, 0, model_.initial_stddev));
      biases.push_back(vector(at + piece.name + ".bias", width, 0, 0));
      for (Tensor* one : {&weights.back(), &biases.back()})
        one->group_rows = piece.rows, one->group_first = piece.first, one->group_stride = queries + 2 * d;
    }
    a.qkv = {.in = c, .out = (a.heads + 2 * a.kv_heads) * d, .rows = n_};
    std::tie(a.qkv.weight, a.qkv.weight_gradient) = parameter(fused(at + "qkv.weight", weights));
    adapt(a.qkv, model_.lora.qkv);
    if (has_qkv_bias()) std::tie(a.qkv.bias, a.qkv.bias_gradient) = parameter(fused(at + "qkv.bias", biases));
    if (model_.qk_norm) {
      const std::int64_t q = model_.joint_qk_norm ? a.heads * d : d, k = model_.joint_qk_norm ? a.kv_heads * d : d;
      std::tie(a.q_norm, a.q_norm_gradient) = parameter(by_heads(vector(at + "q_norm.weight", q, -1, 1)));
      std::tie(a.k_norm, a.k_norm_gradient) = parameter(by_heads(vector(at + "k_norm.weight", k, -1, 1)));
    }
    a.projection = {.in = a.heads * d, .out = c, .rows = n_};
    std::tie(a.projection.weight, a.projection.weight_gradient) =
        parameter(matrix(at + "proj.weight", c, model_.heads * d, 1, residual_stddev));
    adapt(a.projection, model_.lora.projection);
    if (model_.bias && model_.attention_bias)
      std::tie(a.projection.bias, a.projection.bias_gradient) = parameter(by_rows(vector(at + "proj.bias", c, -1, 0)));
    a.packed = activation("qkv", a.qkv.out);
    if (model_.qk_norm) {
      a.normed = activation("qkv.normed", a.qkv.out);
      a.rstd = activation("qkv.rstd", {n_, model_.joint_qk_norm ? 2 : a.heads + a.kv_heads}, DType::fp32);
    }
    make_core(a);
    return a;
  }
  void make_core(Attention& a) {
    if (model_.attention_sinks) {
      Tensor sinks = vector(prefix() + "attn.sinks", model_.heads, 0, 0);
      sinks.initial_stddev = model_.initial_stddev;
      std::tie(a.sinks, a.sinks_gradient) = parameter(std::move(sinks));
    }
    a.out = activation("attention", a.heads * model_.head_dim);
    a.saved = options_.flash
                  ? activation("attention.lse", {options_.batch, a.heads, options_.sequence}, DType::fp32)
                  : activation("attention.probabilities",
                               {options_.batch, a.heads, options_.sequence, options_.sequence}, options_.dtype);
  }
  Attention make_latent_attention() {
    Attention a;
    a.heads = a.kv_heads = model_.heads / options_.tensor;
    const std::string at = prefix() + "attn.";
    a.latent = make_latent(at);
    a.projection = {.in = a.heads * model_.latent.value, .out = model_.hidden, .rows = n_};
    std::tie(a.projection.weight, a.projection.weight_gradient) = parameter(
        matrix(at + "proj.weight", model_.hidden, model_.heads * model_.latent.value, 1, residual_initial_stddev()));
    adapt(a.projection, model_.lora.projection);
    a.packed = activation("qkv", 3 * a.heads * model_.head_dim);
    make_core(a);
    a.values = activation("attention.values", a.projection.in);
    return a;
  }

  bool has_qkv_bias() const { return (model_.bias && model_.attention_bias) || model_.qkv_bias; }

  Op attention_op(OpKind kind, const Attention& a, const Tensors& in, const Tensors& out) const {
    Op o = op(kind, in, out, 0);
    o.heads = a.heads;
    o.kv_heads = a.kv_heads;
    o.head_dim = model_.head_dim;
    o.causal = model_.causal;
    o.flash = options_.flash;
    o.rounded = options_.products == DType::tf32;
    if (kind == OpKind::rope || kind == OpKind::rope_grad) {
      const bool own = model_.window_theta > 0 && model_.windowed(layer_);
      o.epsilon = own ? model_.window_theta : model_.rope_theta;
      if (!own) o.rope_scaling = model_.rope_scaling;
      o.rotary = model_.latent.any() ? model_.latent.rope : model_.rotary_columns();
      if (o.rotary == o.head_dim) o.rotary = 0;
    }
    if (kind == OpKind::head_norm || kind == OpKind::head_norm_grad)
      o.epsilon = model_.norm_epsilon, o.joint = model_.joint_qk_norm;
    if (!attends(kind)) return o;
    if (model_.query_scale > 0) o.score_scale = 1 / std::sqrt(model_.query_scale);
    if (const double factor = model_.rope_scaling.scores(); factor != 1)
      o.score_scale = factor * (o.score_scale > 0 ? o.score_scale : 1 / std::sqrt(model_.head_dim));
    o.cap = model_.attention_cap;
    o.alibi_heads = model_.positions == Positions::alibi ? model_.heads : 0;
    if (model_.windowed(layer_) && model_.window < options_.sequence * options_.context) o.window = model_.window;
    if (!drops(model_.dropout.attention)) return o;
    o.dropout = model_.dropout.attention;
    o.site = dropout_site(layer_, DropoutPlace::attention);
    return o;
  }

  // Where the sinks' gradients accumulate; none without sinks.
  TensorId sinks_sum(const Attention& a) { return a.sinks ? sum_or_none(a.sinks, a.sinks_gradient) : TensorId(); }

  // h (partial over the tensor group) = attention(a), without the projection's bias.
  void attention_forward(const Attention& a, TensorId x, TensorId h) {
    const bool latent = model_.latent.any();
    latent ? latent_forward(a.latent, x, a.packed) : linear_forward(a.qkv, x, a.packed, has_qkv_bias());
    const TensorId read = a.read();
    if (model_.qk_norm) emit(attention_op(OpKind::head_norm, a, {a.packed, a.q_norm, a.k_norm}, {a.normed, a.rstd}));
    if (model_.rotates(layer_)) emit(attention_op(OpKind::rope, a, {read}, {read}));
    options_.context > 1 ? ring_forward(a)
                         : emit(attention_op(OpKind::attention, a, Attention::with({read}, a.sinks), {a.out, a.saved}));
    if (latent) emit(latent_op(OpKind::head_values, {a.out}, {a.values}));
    linear_forward(a.projection, latent ? a.values : a.out, h, false);
  }
  // From dh (the gradient after the projection's bias) to da, the gradient of x, which gets the name `name`.
  void attention_backward(const Attention& a, TensorId dh_own, TensorId x, TensorId da, const std::string& name) {
    const TensorId dh = gathered(dh_own, "d_attention.h");
    const bool latent = model_.latent.any();
    const TensorId dout = activation("d_attention", a.heads * model_.head_dim);
    const TensorId dpacked = activation("d_qkv", (a.heads + 2 * a.kv_heads) * model_.head_dim);
    bias_backward(a.projection, dh_own);
    if (latent) {
      const TensorId dvalues = activation("d_attention.values", a.projection.in);
      linear_backward(a.projection, dh, a.values, dvalues);
      emit(latent_op(OpKind::head_values_grad, {dvalues}, {dout}));
    } else {
      linear_backward(a.projection, dh, a.out, dout);
    }
    options_.context > 1
        ? ring_backward(a, dout, dpacked)
        : emit(attention_op(OpKind::attention_grad, a, Attention::with({dout, a.read(), a.out, a.saved}, a.sinks),
                            Attention::with({dpacked}, sinks_sum(a))));
    if (model_.rotates(layer_)) emit(attention_op(OpKind::rope_grad, a, {dpacked}, {dpacked}));
    if (model_.qk_norm) {
      Op o =
          attention_op(OpKind::head_norm_grad, a, {dpacked, a.packed, a.q_norm, a.k_norm, a.rstd},
                       {dpacked, sum_or_none(a.q_norm, a.q_norm_gradient), sum_or_none(a.k_norm, a.k_norm_gradient)});
      o.accumulate = true;
      emit(o);
    }
    if (latent) return latent_backward(a.latent, dpacked, x, da, name);
    bias_backward(a.qkv, dpacked);
    column_backward(a.qkv, dpacked, x, da, name);
  }

  // -- context parallelism: the ring -----------------------------------------------------------------------------
  TensorId key_values(const Attention& a, const std::string& name, std::int64_t step) {
    return activation(name + "." + std::to_string(step), 2 * a.kv_heads * model_.head_dim);
  }
  Op ring_op(OpKind kind, const Attention& a, std::int64_t step, const Tensors& in, const Tensors& out) const {
    Op o = attention_op(kind, a, in, out);
    o.ring_step = step;
    o.accumulate = step > 0;
    return o;
  }
  // Sends the block after `kv` on its way before this one is computed.
  TensorId next_block(const Attention& a, const std::string& name, std::int64_t step, TensorId kv) {
    const TensorId next = key_values(a, name, step);
    communicate(GroupCollective::ring_shift, kv, next);
    return next;
  }

  void ring_forward(const Attention& a) {
    TensorId kv = key_values(a, "kv", 0);
    emit(attention_op(OpKind::split_kv, a, {a.read()}, {kv}));
    for (std::int64_t step = 0; step < options_.context; ++step) {
      const TensorId next = step + 1 < options_.context ? next_block(a, "kv", step + 1, kv) : TensorId();
      if (!next.exists()) cut();  // the last block may still travel while the one before it is computed
      emit(ring_op(OpKind::ring_attention, a, step, Attention::with({a.read(), kv}, step == 0 ? a.sinks : TensorId()),
                   {a.out, a.saved}));
      kv = next;
    }
  }

  void ring_backward(const Attention& a, TensorId dout, TensorId dpacked) {
    TensorId kv = key_values(a, "kv.again", 0), dkv;
    emit(attention_op(OpKind::split_kv, a, {a.read()}, {kv}));
    for (std::int64_t step = 0; step < options_.context; ++step) {
      const TensorId others =
          step > 0 ? next_block(a, "d_kv.received", step, dkv) : TensorId();  // what others added to this block
      const TensorId next = step + 1 < options_.context ? next_block(a, "kv.again", step + 1, kv) : TensorId();
      dkv = key_values(a, "d_kv", step);
      emit(ring_op(OpKind::ring_attention_grad, a, step,
                   Attention::with({dout, a.read(), a.out, a.saved, kv}, step == 0 ? a.sinks : TensorId()),
                   Attention::with({dpacked, dkv}, step == 0 ? sinks_sum(a) : TensorId())));
      if (others.exists()) {
        cut();
        emit(op(OpKind::add, {dkv, others}, {dkv}, 2 * a.kv_heads * model_.head_dim));
      }
      kv = next;
    }
    emit(attention_op(OpKind::merge_kv, a, {next_block(a, "d_kv.home", options_.context, dkv)}, {dpacked}));
  }

  // -- MLP ------------------------------------------------------------------------------------------------------
  struct Mlp {
    Linear up, down;
    TensorId before, after;  ///< around the activation function
    std::int64_t width = 0;  ///< local F
  };

  Mlp make_mlp() {
    Mlp mlp;
    const std::int64_t c = model_.hidden;
    const std::int64_t f = model_.ffn_hidden;
    const bool gated = traits_of(model_.activation).gated;
    const double residual_stddev = residual_initial_stddev();
    const std::string at = prefix() + "mlp.";
    mlp.width = f / options_.tensor;
    mlp.up = {.in = c, .out = gated ? 2 * mlp.width : mlp.width, .rows = n_};
    const Tensor fc = matrix(at + (gated ? "gate.weight" : "fc.weight"), f, c, 0, model_.initial_stddev);
    std::tie(mlp.up.weight, mlp.up.weight_gradient) = parameter(
        gated ? fused(at + "gate_up.weight", {fc, matrix(at + "up.weight", f, c, 0, model_.initial_stddev)}) : fc);
    adapt(mlp.up, model_.lora.up);
    if (model_.bias && !gated) std::tie(mlp.up.bias, mlp.up.bias_gradient) = parameter(vector(at + "fc.bias", f, 0, 0));
    mlp.down = {.in = mlp.width, .out = c, .rows = n_};
    std::tie(mlp.down.weight, mlp.down.weight_gradient) =
        parameter(matrix(at + "proj.weight", c, f, 1, residual_stddev));
    adapt(mlp.down, model_.lora.down);
    if (model_.bias)
      std::tie(mlp.down.bias, mlp.down.bias_gradient) = parameter(by_rows(vector(at + "proj.bias", c, -1, 0)));
    // In place if nothing reads the values before: a ReLU's output is enough for its backward.
    if (!rectifies()) mlp.before = activation("mlp.before", mlp.up.out);
    mlp.after = activation("mlp.after", mlp.width);
    if (rectifies()) mlp.before = mlp.after;
    return mlp;
  }

  void mlp_forward(const Mlp& mlp, TensorId x, TensorId h) {
    linear_forward(mlp.up, x, mlp.before, mlp.up.bias.exists());
    emit(activation_op(false, {mlp.before}, mlp.after, mlp.width));
    linear_forward(mlp.down, mlp.after, h, false);
  }
  void mlp_backward(const Mlp& mlp, TensorId dh_own, TensorId x, TensorId dx, const std::string& name) {
    const TensorId dh = gathered(dh_own, "d_mlp.h");
    const TensorId dafter = activation("d_mlp.after", mlp.width);
    bias_backward(mlp.down, dh_own);
    linear_backward(mlp.down, dh, mlp.after, dafter);
    const TensorId dbefore = traits_of(model_.activation).gated ? activation("d_mlp.before", mlp.up.out) : dafter;
    emit(activation_op(true, {dafter, mlp.before}, dbefore, mlp.width));
    bias_backward(mlp.up, dbefore);
    column_backward(mlp.up, dbefore, x, dx, name);
  }

  // y = skip + dropout(x + bias), and the gradient of the branch from dy.
  void residual(TensorId skip, TensorId x, TensorId bias, TensorId y, DropoutPlace place) {
    emit(drawing(own_op(OpKind::add_bias, {skip, x, bias}, {y}, model_.hidden), model_.dropout.residual,
                 dropout_site(layer_, place)));
  }
  TensorId branch_gradient(TensorId dy, DropoutPlace place, const std::string& name) {
    return dropped(dy, model_.dropout.residual, dropout_site(layer_, place), name);
  }

  std::string prefix() const { return "h." + std::to_string(layer_) + "."; }

  // -- layers ---------------------------------------------------------------------------------------------------
  // y = r + mlp(norm(r)), r = x + attention(norm(x))   (GPT-2, Llama). If attention and MLP are parallel, the MLP's
  // norm reads x too, or the MLP uses attention's norm. Output norms apply before the addition, and may be the only
  // ones (OLMo 2).
  // Either half may be missing, with its norms; attention may be a state space.
  struct PreNormBlock {
    BlockParts parts;
    TensorId x, y, dy, dx;
    Norm norm_1, out_1, norm_2, out_2;
    Attention attention;
    StateMixer state;
    Mlp mlp;
    Mixture mixture;
    [[nodiscard]] bool mixes() const { return parts.mixer != Mixer::none; }
    [[nodiscard]] bool feeds() const { return parts.feed != Feed::none; }
    [[nodiscard]] bool mixed() const { return parts.feed == Feed::experts; }
    TensorId a, h, r, b, g;
    TensorId h_sums, g_sums;
  };
  void pre_norm_block() {
    ends(true, true);
    PreNormBlock block = make_block(program_.x, program_.y);
    begin(program_.forward);
    block_forward(block);
    block.dy = program_.dy, block.dx = program_.dx;
    begin(program_.backward);
    block_backward(block);
  }
  PreNormBlock make_block(TensorId x, TensorId y) {
    PreNormBlock k;
    k.parts = model_.parts(layer_);
    k.x = x, k.y = y;
    const bool first = model_.input_norm, mixes = k.mixes(), feeds = k.feeds();
    if (first && mixes) k.norm_1 = norm(prefix() + "ln_1");
    if (k.parts.mixer == Mixer::attention) k.attention = make_attention();
    if (k.parts.mixer == Mixer::mamba) k.state = make_state_mixer(prefix() + "ssm.", residual_initial_stddev());
    if (model_.output_norm && mixes) k.out_1 = norm(prefix() + "ln_1_out");
    if (first && feeds && !model_.shared_norm) k.norm_2 = norm(prefix() + "ln_2");
    if (k.mixed())
      k.mixture = make_mixture(residual_initial_stddev());
    else if (feeds)
      k.mlp = make_mlp();
    if (model_.output_norm && feeds) k.out_2 = norm(prefix() + "ln_2_out");
    const std::int64_t c = model_.hidden;
    k.a = first && mixes ? own_activation("ln_1", c) : x;
    if (mixes) k.h = own_activation("attention.h", c), k.h_sums = partial(k.h, "attention.h.partial");
    k.r = !mixes ? x : !feeds ? y : own_activation("residual", c);
    if (!feeds) return k;
    k.b = model_.shared_norm ? k.a : first ? own_activation("ln_2", c) : k.r;
    k.g = own_activation("mlp.h", c);
    k.g_sums = k.mixed() ? TensorId() : partial(k.g, "mlp.h.partial");
    return k;
  }
  void block_forward(const PreNormBlock& k) {
    const TensorId a_all = k.mixes() ? mixer_forward(k) : TensorId();
    if (k.feeds()) feed_forward(k, a_all);
  }
  // r = x + mixer(norm(x)); returns all rows of the norm.
  TensorId mixer_forward(const PreNormBlock& k) {
    if (model_.input_norm) norm_forward(k.norm_1, k.x, k.a);
    const TensorId a_all = gathered(k.a, "ln_1.gathered");
    k.parts.mixer == Mixer::mamba ? state_forward(k.state, a_all, k.h_sums)
                                  : attention_forward(k.attention, a_all, k.h_sums);
    add_up(k.h_sums, k.h);
    residual(k.x, output_norm(k.out_1, k.h, "attention.normed"), k.attention.projection.bias, k.r,
             DropoutPlace::attention_branch);
    return a_all;
  }
  void feed_forward(const PreNormBlock& k, TensorId a_all) {
    const bool shared = model_.shared_norm;
    if (!shared && model_.input_norm) norm_forward(k.norm_2, model_.parallel ? k.x : k.r, k.b);
    if (k.mixed()) {
      mixture_forward(k.mixture, k.b, k.g, "ln_2");
    } else {
      mlp_forward(k.mlp, shared ? a_all : gathered(k.b, "ln_2.gathered"), k.g_sums);
      add_up(k.g_sums, k.g);
    }
    residual(k.r, output_norm(k.out_2, k.g, "mlp.normed"), k.mlp.down.bias, k.y, DropoutPlace::mlp_branch);
  }
  void block_backward(const PreNormBlock& k) {
    const std::int64_t c = model_.hidden;
    const TensorId db = k.feeds() ? own_activation("d_ln_2", c) : TensorId();
    const TensorId da = k.mixes() ? own_activation("d_ln_1", c) : TensorId();
    const TensorId dr = model_.shared_norm || !k.feeds() ? k.dy : k.mixes() ? own_activation("d_residual", c) : k.dx;
    if (k.feeds()) feed_backward(k, db, dr);
    if (k.mixes()) mixer_backward(k, da, db, dr);
  }
  // From dy to the gradient of what the norm made, and to dr.
  void feed_backward(const PreNormBlock& k, TensorId db, TensorId dr) {
    const TensorId dg = branch_gradient(k.dy, DropoutPlace::mlp_branch, "d_mlp.dropped");
    const TensorId dg_own = output_norm_gradient(k.out_2, dg, k.g, "d_mlp.normed");
    k.mixed() ? mixture_backward(k.mixture, dg_own, k.b, db, "ln_2") : mlp_backward(k.mlp, dg_own, k.b, db, "ln_2");
    // With the gradient of the skip: of r, or of x if attention and MLP are parallel.
    if (!model_.shared_norm) input_gradient(k.norm_2, db, model_.parallel ? k.x : k.r, k.dy, dr);
  }
  void mixer_backward(const PreNormBlock& k, TensorId da, TensorId db, TensorId dr) {
    const TensorId dbranch =
        branch_gradient(model_.parallel ? k.dy : dr, DropoutPlace::attention_branch, "d_attention.dropped");
    const TensorId dh = output_norm_gradient(k.out_1, dbranch, k.h, "d_attention.normed");
    k.parts.mixer == Mixer::mamba ? state_backward(k.state, dh, k.a, da, "ln_1")
                                  : attention_backward(k.attention, dh, k.a, da, "ln_1");
    if (model_.shared_norm) emit(own_op(OpKind::add, {da, db}, {da}, model_.hidden));
    input_gradient(k.norm_1, da, k.x, dr, k.dx);
  }
  // dx = addend + the gradient of x, which the norm reads, or without one what follows it.
  void input_gradient(const Norm& norm, TensorId dy, TensorId x, TensorId addend, TensorId dx) {
    if (norm.weight.exists()) return norm_backward(norm, dy, x, addend, dx);
    emit(own_op(OpKind::add, {dy, addend}, {dx}, model_.hidden));
  }

  // -- predictions further than the next token ---------------------------------------------------------------------
  // The module of models::FurtherPrediction, as part of the head: the last block's output is its x.
  struct Further {
    LayerBuilder& to;
    Norm of_hidden = {}, of_token = {}, last = {};
    Linear from_hidden = {}, from_token = {};  ///< the two halves of the product that joins them
    TensorId table = {}, table_gradient = {}, next = {};
    TensorId hidden = {}, token = {}, embedded = {}, joined = {}, y = {}, a = {};
    PreNormBlock block = {};
    VocabularyLoss loss = {};

    [[nodiscard]] bool any() const { return to.model_.further.any(); }

    Linear half(const std::string& name) {
      const std::int64_t c = to.model_.hidden;
      Linear linear{.in = c, .out = c, .rows = to.own_rows_};
      std::tie(linear.weight, linear.weight_gradient) =
          to.parameter(to.by_rows(to.matrix(name, c, c, -1, to.model_.initial_stddev)));
      return linear;
    }

    // The tokens that it embeds are those that the head predicts; it predicts those after them.
    void forward(const VocabularyLoss& words) {
      const std::int64_t c = to.model_.hidden;
      to.layer_ = to.model_.layers;
      const std::string at = to.prefix();
      if (to.model_.tied_embeddings)
        table = words.unembed.weight, table_gradient = words.unembed.weight_gradient;
      else
        std::tie(table, table_gradient) = to.token_table(true);
      of_hidden = to.norm(at + "hnorm"), of_token = to.norm(at + "enorm");
      from_hidden = half(at + "eh_proj.hidden.weight"), from_token = half(at + "eh_proj.token.weight");
      embedded = to.own_activation("further.embedded", c);
      hidden = to.own_activation("further.hidden", c), token = to.own_activation("further.token", c);
      joined = to.own_activation("further.joined", c), y = to.own_activation("further.y", c);
      block = to.make_block(joined, y);
      last = to.norm(at + "ln_f");
      a = to.own_activation("further.ln_f", c);
      next = words.targets;
      loss = to.make_loss(words.unembed, to.input(TensorRole::further_targets), words.loss,
                          words.scale * to.model_.further.weight, "further.");
      to.look_up(next, table, embedded, "further.embedded.partial");
      to.norm_forward(of_token, embedded, token);
      to.norm_forward(of_hidden, to.program_.x, hidden);
      to.linear_forward(from_hidden, hidden, joined, false);
      to.linear_forward(from_token, token, joined, false);
      to.current_->back().ops.back().accumulate = true;
      to.block_forward(block);
      to.norm_forward(last, y, a);
      to.loss_forward(loss, a);
    }

    void backward(TensorId dx) {
      const std::int64_t c = to.model_.hidden;
      const auto fresh = [&](const char* name) { return to.own_activation(name, c); };
      const TensorId da = fresh("d_further.ln_f"), dhidden = fresh("d_further.hidden");
      const TensorId dtoken = fresh("d_further.token"), dembedded = fresh("d_further.embedded");
      block.dy = fresh("d_further.y"), block.dx = fresh("d_further.joined");
      to.loss_backward(loss, a, da);
      to.norm_backward(last, da, y, {}, block.dy);
      to.block_backward(block);
      to.linear_backward(from_token, block.dx, token, dtoken);
      to.linear_backward(from_hidden, block.dx, hidden, dhidden);
      to.norm_backward(of_token, dtoken, embedded, {}, dembedded);
      const TensorId all = to.gathered(dembedded, "d_further.embedded.gathered");
      to.emit(to.table_op(OpKind::embedding_grad, {next, all}, table_gradient));
      to.norm_backward(of_hidden, dhidden, to.program_.x, dx, to.program_.dx);
    }
  };

  TensorId output_norm(const Norm& norm, TensorId x, const std::string& name) {
    if (!norm.weight.exists()) return x;
    const TensorId y = own_activation(name, model_.hidden);
    norm_forward(norm, x, y);
    return y;
  }
  TensorId output_norm_gradient(const Norm& norm, TensorId dy, TensorId x, const std::string& name) {
    if (!norm.weight.exists()) return dy;
    const TensorId dx = own_activation(name, model_.hidden);
    norm_backward(norm, dy, x, {}, dx);
    return dx;
  }

  // y = norm(r + mlp(r)), r = norm(x + attention(x))   (BERT)
  void post_norm_block() {
    ends(true, true);
    const Attention attention = make_attention();
    const Norm norm_1 = norm(prefix() + "ln_1");
    const Mlp mlp = make_mlp();
    const Norm norm_2 = norm(prefix() + "ln_2");
    const std::int64_t c = model_.hidden;
    const TensorId h = own_activation("attention.h", c), s = own_activation("sum_1", c), r = own_activation("ln_1", c);
    const TensorId g = own_activation("mlp.h", c), u = own_activation("sum_2", c);
    const TensorId h_sums = partial(h, "attention.h.partial"), g_sums = partial(g, "mlp.h.partial");
    begin(program_.forward);
    attention_forward(attention, gathered(program_.x, "x.gathered"), h_sums);
    add_up(h_sums, h);
    residual(program_.x, h, attention.projection.bias, s, DropoutPlace::attention_branch);
    norm_forward(norm_1, s, r);
    mlp_forward(mlp, gathered(r, "ln_1.gathered"), g_sums);
    add_up(g_sums, g);
    residual(r, g, mlp.down.bias, u, DropoutPlace::mlp_branch);
    norm_forward(norm_2, u, program_.y);

    const TensorId du = own_activation("d_sum_2", c), dm = own_activation("d_mlp", c),
                   ds = own_activation("d_sum_1", c);
    const TensorId da = own_activation("d_attention.x", c);
    begin(program_.backward);
    norm_backward(norm_2, program_.dy, u, {}, du);
    mlp_backward(mlp, branch_gradient(du, DropoutPlace::mlp_branch, "d_mlp.dropped"), r, dm, "mlp");
    emit(own_op(OpKind::add, {dm, du}, {dm}, c));
    norm_backward(norm_1, dm, s, {}, ds);
    attention_backward(attention, branch_gradient(ds, DropoutPlace::attention_branch, "d_attention.dropped"),
                       program_.x, da, "attention.x");
    emit(own_op(OpKind::add, {da, ds}, {program_.dx}, c));
  }
};

}  // namespace

LayerProgram expand(const Model& model, LayerKind kind, std::int64_t layer, const ExpandOptions& options) {
  ENSURE(!model.experts.any() ||
             (model.experts.count % options.expert == 0 && model.pre_norm &&
              model.experts.hidden % (options.expert_ways > 0 ? options.expert_ways : options.tensor) == 0 &&
              model.experts.shared % options.tensor == 0),
         "{} experts of width {} (shared {}) over {} ranks, tensor {}", model.experts.count, model.experts.hidden,
         model.experts.shared, options.expert, options.tensor);
  ENSURE(options.tensor >= 1 && model.heads % options.tensor == 0 && model.kv_heads % options.tensor == 0 &&
             model.ffn_hidden % options.tensor == 0,
         "tensor {} does not divide heads {}, key/value heads {} or width {}", options.tensor, model.heads,
         model.kv_heads, model.ffn_hidden);
  ENSURE(!model.ssm.any() || (options.context == 1 && model.ssm.heads % options.tensor == 0 &&
                              model.ssm.groups % options.tensor == 0 && model.ssm.normed_runs() % options.tensor == 0),
         "a state space of {} heads in {} groups, normed in {}, over tensor {} and context {}", model.ssm.heads,
         model.ssm.groups, model.ssm.normed_runs(), options.tensor, options.context);
  ENSURE(!model.latent.any() ||
             (model.pre_norm && model.kv_heads == model.heads &&
              model.head_dim == model.latent.nope + model.latent.rope && model.latent.value <= model.head_dim),
         "latent attention of {} heads of {}, {} keys, values of {}", model.heads, model.head_dim, model.kv_heads,
         model.latent.value);
  ENSURE(options.context == 1 || options.flash, "context parallelism merges row statistics");
  ENSURE(!options.sequence_parallel || options.batch * options.sequence % options.tensor == 0,
         "tensor {} does not divide {} x {} rows", options.tensor, options.batch, options.sequence);
  ENSURE(options.context == 1 || model.positions != Positions::alibi, "a ring has no slopes");
  return LayerBuilder(model, kind, layer, options).build();
}

}  // namespace orrery::models
