// Expansion of layers into operators. Reading order: models/layer_notes.h (how tensors and ops are noted down),
// attention_forward, mlp_forward and their backwards, then the three kinds of layer put together.
//
// Tensor parallelism is Megatron-LM's (Shoeybi et al. 2019, section 3): the first product of attention and of the MLP
// is split by columns, the second by rows, one all-reduce after each in forward and one before each in backward; the
// vocabulary is split by rows, and the loss is computed on shards with two small all-reduces. With sequence parallelism
// (Korthikanti et al. 2022, section 4.2.2) each all-reduce becomes a reduce-scatter behind the block and an all-gather
// before it; what lies between works on a rank's rows. The gathered input of a product is not kept: it is gathered
// again for the weight's gradient, as theirs is.
//
// Context parallelism splits the tokens of a sequence (Megatron-core's and Transformer Engine's ring): attention takes
// keys and values of one rank after the other, which pass around the ring while the block before is computed; backward
// they pass again, and their gradients follow one block behind until they are home.
#include "models/expand.h"

#include <cmath>
#include <tuple>

#include "base/ensure.h"
#include "models/layer_notes.h"

namespace orrery::models {

std::int64_t Tensor::elements() const {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;
  return count;
}

std::int64_t padded_vocab(const Model& model, std::int64_t tensor, std::int64_t multiple) {
  const std::int64_t unit = multiple * tensor;
  return (model.vocab + unit - 1) / unit * unit;
}

namespace {

class Builder : private LayerNotes {
 public:
  Builder(const Model& model, LayerKind kind, std::int64_t layer, const ExpandOptions& options)
      : LayerNotes(model, kind, layer, options) {}

  LayerProgram build() {
    switch (program_.kind) {
      case LayerKind::embedding: embedding(); break;
      case LayerKind::block: model_.pre_norm ? pre_norm_block() : post_norm_block(); break;
      case LayerKind::head: head(); break;
    }
    return std::move(program_);
  }

 private:
  // -- pieces shared by layers ----------------------------------------------------------------------------------
  void norm_forward(const Norm& norm, int x, int y) {
    const bool layer_norm = norm.bias >= 0;
    Op o = layer_norm
               ? own_op(OpKind::layer_norm, {x, norm.weight, norm.bias}, {y, norm.mean, norm.rstd}, model_.hidden)
               : own_op(OpKind::rms_norm, {x, norm.weight}, {y, norm.rstd}, model_.hidden);
    o.epsilon = model_.norm_epsilon;
    emit(o);
  }
  void norm_backward(const Norm& norm, int dy, int x, int addend, int dx) {
    const bool layer_norm = norm.bias >= 0;
    Op o = layer_norm ? own_op(OpKind::layer_norm_grad, {dy, x, norm.weight, norm.mean, norm.rstd, addend},
                               {dx, norm.weight_gradient, norm.bias_gradient}, model_.hidden)
                      : own_op(OpKind::rms_norm_grad, {dy, x, norm.weight, norm.rstd, addend},
                               {dx, norm.weight_gradient}, model_.hidden);
    o.accumulate = true;
    o.epsilon = model_.norm_epsilon;
    emit(o);
  }

  // fp8 recipes leave the head as it is (Micikevicius et al. 2022, section 3; Transformer Engine's linear layers).
  bool rounds() const {
    return options_.products == DType::tf32 || (options_.products == DType::fp8 && program_.kind == LayerKind::block);
  }

  // y (n,out) = x (n,in) W^T [+ bias]
  void linear_forward(const Linear& linear, int x, int y, bool with_bias) {
    Op o = op(OpKind::matmul, {x, linear.weight, with_bias ? linear.bias : -1}, {y}, 0);
    o.m = linear.rows;
    o.n = linear.out;
    o.k = linear.in;
    o.trans_b = true;
    o.rounded = rounds();
    emit(o);
  }
  // dW += dy^T x, and dx = dy W.
  void linear_backward(const Linear& linear, int dy, int x, int dx) {
    weight_backward(linear, dy, x);
    input_backward(linear, dy, dx);
  }
  void weight_backward(const Linear& linear, int dy, int x) {
    Op weight = op(OpKind::matmul, {dy, x, -1}, {linear.weight_gradient}, 0);
    weight.m = linear.out;
    weight.n = linear.in;
    weight.k = linear.rows;
    weight.trans_a = true;
    weight.accumulate = true;
    weight.rounded = rounds();
    emit(weight);
  }
  void input_backward(const Linear& linear, int dy, int dx) {
    Op input = op(OpKind::matmul, {dy, linear.weight, -1}, {dx}, 0);
    input.m = linear.rows;
    input.n = linear.in;
    input.k = linear.out;
    input.rounded = rounds();
    emit(input);
  }
  // The same of a product split by columns, whose input gradients are added up over the group. Each rank kept its rows
  // of x: they are gathered again, and the sums travel before the weight's gradient is computed.
  void column_backward(const Linear& linear, int dy, int x, int dx, const std::string& name) {
    if (!sharded_) {
      linear_backward(linear, dy, x, dx);
      all_reduce(dx);
      return;
    }
    const int all = gathered(x, name + ".gathered_again");
    const int sums = partial(dx, "d_" + name + ".partial");
    input_backward(linear, dy, sums);
    add_up(sums, dx);
    weight_backward(linear, dy, all);
  }
  void bias_backward(const Linear& linear, int dy) {
    if (linear.bias_gradient < 0) return;
    Op o = op(OpKind::bias_grad, {dy}, {linear.bias_gradient},
              program_.tensors[static_cast<std::size_t>(linear.bias_gradient)].elements());
    o.n = program_.tensors[static_cast<std::size_t>(dy)].shape[0];
    o.accumulate = true;
    emit(o);
  }

  // -- attention ------------------------------------------------------------------------------------------------
  struct Attention {
    Linear qkv, projection;
    int packed = -1, out = -1, saved = -1;
    std::int64_t heads = 0, kv_heads = 0;
  };

  Attention make_attention() {
    Attention a;
    const std::int64_t d = model_.head_dim;
    const std::int64_t c = model_.hidden;
    const double residual_stddev = model_.initial_stddev / std::sqrt(2.0 * static_cast<double>(model_.layers));
    a.heads = model_.heads / options_.tensor;
    a.kv_heads = model_.kv_heads / options_.tensor;
    const std::string at = prefix() + "attn.";
    const std::vector<std::pair<std::string, std::int64_t>> parts = {
        {"q", model_.heads * d}, {"k", model_.kv_heads * d}, {"v", model_.kv_heads * d}};
    std::vector<Tensor> weights, biases;
    for (const auto& [name, width] : parts) {
      weights.push_back(matrix(at + name + ".weight", width, c, 0, model_.initial_stddev));
      biases.push_back(vector(at + name + ".bias", width, 0, 0));
    }
    a.qkv = {.in = c, .out = (a.heads + 2 * a.kv_heads) * d, .rows = n_};
    std::tie(a.qkv.weight, a.qkv.weight_gradient) = parameter(fused(at + "qkv.weight", weights));
    if (model_.bias) std::tie(a.qkv.bias, a.qkv.bias_gradient) = parameter(fused(at + "qkv.bias", biases));
    a.projection = {.in = a.heads * d, .out = c, .rows = n_};
    std::tie(a.projection.weight, a.projection.weight_gradient) =
        parameter(matrix(at + "proj.weight", c, model_.heads * d, 1, residual_stddev));
    if (model_.bias)
      std::tie(a.projection.bias, a.projection.bias_gradient) = parameter(by_rows(vector(at + "proj.bias", c, -1, 0)));
    a.packed = activation("qkv", a.qkv.out);
    a.out = activation("attention", a.heads * d);
    a.saved = options_.flash
                  ? activation("attention.lse", {options_.batch, a.heads, options_.sequence}, DType::fp32)
                  : activation("attention.probabilities",
                               {options_.batch, a.heads, options_.sequence, options_.sequence}, options_.dtype);
    return a;
  }

  Op attention_op(OpKind kind, const Attention& a, std::vector<int> in, std::vector<int> out) const {
    Op o = op(kind, std::move(in), std::move(out), 0);
    o.heads = a.heads;
    o.kv_heads = a.kv_heads;
    o.head_dim = model_.head_dim;
    o.causal = model_.causal;
    o.flash = options_.flash;
    o.rounded = options_.products == DType::tf32;
    if (kind == OpKind::rope || kind == OpKind::rope_grad) o.epsilon = model_.rope_theta;
    return o;
  }

  // h (partial over the tensor group) = attention(a); no bias of the projection.
  void attention_forward(const Attention& a, int x, int h) {
    linear_forward(a.qkv, x, a.packed, model_.bias);
    if (model_.positions == Positions::rope) emit(attention_op(OpKind::rope, a, {a.packed}, {a.packed}));
    options_.context > 1 ? ring_forward(a) : emit(attention_op(OpKind::attention, a, {a.packed}, {a.out, a.saved}));
    linear_forward(a.projection, a.out, h, false);
  }
  // From dh (the gradient after the projection's bias) to da, the gradient of x, which `name` names.
  void attention_backward(const Attention& a, int dh_own, int x, int da, const std::string& name) {
    const int dh = gathered(dh_own, "d_attention.h");
    const int dout = activation("d_attention", a.projection.in);
    const int dpacked = activation("d_qkv", a.qkv.out);
    bias_backward(a.projection, dh_own);
    linear_backward(a.projection, dh, a.out, dout);
    options_.context > 1 ? ring_backward(a, dout, dpacked)
                         : emit(attention_op(OpKind::attention_grad, a, {dout, a.packed, a.out, a.saved}, {dpacked}));
    if (model_.positions == Positions::rope) emit(attention_op(OpKind::rope_grad, a, {dpacked}, {dpacked}));
    bias_backward(a.qkv, dpacked);
    column_backward(a.qkv, dpacked, x, da, name);
  }

  // -- context parallelism: the ring -----------------------------------------------------------------------------
  int key_values(const Attention& a, const std::string& name, std::int64_t step) {
    return activation(name + "." + std::to_string(step), 2 * a.kv_heads * model_.head_dim);
  }
  Op ring_op(OpKind kind, const Attention& a, std::int64_t step, std::vector<int> in, std::vector<int> out) const {
    Op o = attention_op(kind, a, std::move(in), std::move(out));
    o.ring_step = step;
    o.accumulate = step > 0;
    return o;
  }
  // The block after `kv` sets out before this one is computed.
  int next_block(const Attention& a, const std::string& name, std::int64_t step, int kv) {
    const int next = key_values(a, name, step);
    communicate(GroupCollective::ring_shift, kv, next);
    return next;
  }

  void ring_forward(const Attention& a) {
    int kv = key_values(a, "kv", 0);
    emit(attention_op(OpKind::split_kv, a, {a.packed}, {kv}));
    for (std::int64_t step = 0; step < options_.context; ++step) {
      const int next = step + 1 < options_.context ? next_block(a, "kv", step + 1, kv) : -1;
      if (next < 0) cut();  // the last block may still be under way while the one before it is computed
      emit(ring_op(OpKind::ring_attention, a, step, {a.packed, kv}, {a.out, a.saved}));
      kv = next;
    }
  }

  void ring_backward(const Attention& a, int dout, int dpacked) {
    int kv = key_values(a, "kv.again", 0), dkv = -1;
    emit(attention_op(OpKind::split_kv, a, {a.packed}, {kv}));
    for (std::int64_t step = 0; step < options_.context; ++step) {
      const int others = step > 0 ? next_block(a, "d_kv.received", step, dkv) : -1;  // what others added to this block
      const int next = step + 1 < options_.context ? next_block(a, "kv.again", step + 1, kv) : -1;
      dkv = key_values(a, "d_kv", step);
      emit(ring_op(OpKind::ring_attention_grad, a, step, {dout, a.packed, a.out, a.saved, kv}, {dpacked, dkv}));
      if (others >= 0) {
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
    int before = -1, after = -1;  ///< around the activation function
    std::int64_t width = 0;       ///< local F
  };

  Mlp make_mlp() {
    Mlp mlp;
    const std::int64_t c = model_.hidden;
    const std::int64_t f = model_.ffn_hidden;
    const bool gated = model_.activation == Activation::swiglu;
    const double residual_stddev = model_.initial_stddev / std::sqrt(2.0 * static_cast<double>(model_.layers));
    const std::string at = prefix() + "mlp.";
    mlp.width = f / options_.tensor;
    mlp.up = {.in = c, .out = gated ? 2 * mlp.width : mlp.width, .rows = n_};
    const Tensor fc = matrix(at + (gated ? "gate.weight" : "fc.weight"), f, c, 0, model_.initial_stddev);
    std::tie(mlp.up.weight, mlp.up.weight_gradient) = parameter(
        gated ? fused(at + "gate_up.weight", {fc, matrix(at + "up.weight", f, c, 0, model_.initial_stddev)}) : fc);
    if (model_.bias && !gated) std::tie(mlp.up.bias, mlp.up.bias_gradient) = parameter(vector(at + "fc.bias", f, 0, 0));
    mlp.down = {.in = mlp.width, .out = c, .rows = n_};
    std::tie(mlp.down.weight, mlp.down.weight_gradient) =
        parameter(matrix(at + "proj.weight", c, f, 1, residual_stddev));
    if (model_.bias)
      std::tie(mlp.down.bias, mlp.down.bias_gradient) = parameter(by_rows(vector(at + "proj.bias", c, -1, 0)));
    mlp.before = activation("mlp.before", mlp.up.out);
    mlp.after = activation("mlp.after", mlp.width);
    return mlp;
  }

  void mlp_forward(const Mlp& mlp, int x, int h) {
    linear_forward(mlp.up, x, mlp.before, mlp.up.bias >= 0);
    emit(op(model_.activation == Activation::swiglu ? OpKind::swiglu : OpKind::gelu, {mlp.before}, {mlp.after},
            mlp.width));
    linear_forward(mlp.down, mlp.after, h, false);
  }
  void mlp_backward(const Mlp& mlp, int dh_own, int x, int dx, const std::string& name) {
    const int dh = gathered(dh_own, "d_mlp.h");
    const bool gated = model_.activation == Activation::swiglu;
    const int dafter = activation("d_mlp.after", mlp.width);
    bias_backward(mlp.down, dh_own);
    linear_backward(mlp.down, dh, mlp.after, dafter);
    int dbefore = dafter;
    if (gated) {
      dbefore = activation("d_mlp.before", mlp.up.out);
      emit(op(OpKind::swiglu_grad, {dafter, mlp.before}, {dbefore}, mlp.width));
    } else {
      emit(op(OpKind::gelu_grad, {dafter, mlp.before}, {dafter}, mlp.width));
    }
    bias_backward(mlp.up, dbefore);
    column_backward(mlp.up, dbefore, x, dx, name);
  }

  void residual(int skip, int x, int bias, int y) {
    emit(own_op(OpKind::add_bias, {skip, x, bias}, {y}, model_.hidden));
  }

  void ends(bool has_x, bool has_y) {
    const std::vector<std::int64_t> shape = {own_rows_, model_.hidden};
    if (has_x) program_.x = role("x", TensorRole::input, shape, options_.dtype);
    if (has_y) program_.y = role("y", TensorRole::output, shape, options_.dtype);
    if (has_y) program_.dy = role("dy", TensorRole::input, shape, options_.dtype);
    if (has_x) program_.dx = role("dx", TensorRole::output, shape, options_.dtype);
  }

  std::string prefix() const { return "h." + std::to_string(layer_) + "."; }

  // -- layers ---------------------------------------------------------------------------------------------------
  // y = r + mlp(norm(r)), r = x + attention(norm(x))   (GPT-2, Llama)
  void pre_norm_block() {
    ends(true, true);
    const Norm norm_1 = norm(prefix() + "ln_1");
    const Attention attention = make_attention();
    const Norm norm_2 = norm(prefix() + "ln_2");
    const Mlp mlp = make_mlp();
    const std::int64_t c = model_.hidden;
    const int a = own_activation("ln_1", c), h = own_activation("attention.h", c), r = own_activation("residual", c);
    const int b = own_activation("ln_2", c), g = own_activation("mlp.h", c);
    const int h_sums = partial(h, "attention.h.partial"), g_sums = partial(g, "mlp.h.partial");
    begin(program_.forward);
    norm_forward(norm_1, program_.x, a);
    attention_forward(attention, gathered(a, "ln_1.gathered"), h_sums);
    add_up(h_sums, h);
    residual(program_.x, h, attention.projection.bias, r);
    norm_forward(norm_2, r, b);
    mlp_forward(mlp, gathered(b, "ln_2.gathered"), g_sums);
    add_up(g_sums, g);
    residual(r, g, mlp.down.bias, program_.y);

    const int db = own_activation("d_ln_2", c), dr = own_activation("d_residual", c), da = own_activation("d_ln_1", c);
    begin(program_.backward);
    mlp_backward(mlp, program_.dy, b, db, "ln_2");
    norm_backward(norm_2, db, r, program_.dy, dr);
    attention_backward(attention, dr, a, da, "ln_1");
    norm_backward(norm_1, da, program_.x, dr, program_.dx);
  }

  // y = norm(r + mlp(r)), r = norm(x + attention(x))   (BERT)
  void post_norm_block() {
    ends(true, true);
    const Attention attention = make_attention();
    const Norm norm_1 = norm(prefix() + "ln_1");
    const Mlp mlp = make_mlp();
    const Norm norm_2 = norm(prefix() + "ln_2");
    const std::int64_t c = model_.hidden;
    const int h = own_activation("attention.h", c), s = own_activation("sum_1", c), r = own_activation("ln_1", c);
    const int g = own_activation("mlp.h", c), u = own_activation("sum_2", c);
    const int h_sums = partial(h, "attention.h.partial"), g_sums = partial(g, "mlp.h.partial");
    begin(program_.forward);
    attention_forward(attention, gathered(program_.x, "x.gathered"), h_sums);
    add_up(h_sums, h);
    residual(program_.x, h, attention.projection.bias, s);
    norm_forward(norm_1, s, r);
    mlp_forward(mlp, gathered(r, "ln_1.gathered"), g_sums);
    add_up(g_sums, g);
    residual(r, g, mlp.down.bias, u);
    norm_forward(norm_2, u, program_.y);

    const int du = own_activation("d_sum_2", c), dm = own_activation("d_mlp", c), ds = own_activation("d_sum_1", c);
    const int da = own_activation("d_attention.x", c);
    begin(program_.backward);
    norm_backward(norm_2, program_.dy, u, -1, du);
    mlp_backward(mlp, du, r, dm, "mlp");
    emit(own_op(OpKind::add, {dm, du}, {dm}, c));
    norm_backward(norm_1, dm, s, -1, ds);
    attention_backward(attention, ds, program_.x, da, "attention.x");
    emit(own_op(OpKind::add, {da, ds}, {program_.dx}, c));
  }

  std::pair<int, int> token_table(bool shared) {
    const std::int64_t padded = padded_vocab(model_, options_.tensor, options_.vocab_multiple);
    Tensor table = matrix(shared || program_.kind == LayerKind::embedding ? "wte.weight" : "lm_head.weight", padded,
                          model_.hidden, 0, model_.initial_stddev);
    table.logical_shape[0] = model_.vocab;
    table.shared = shared;
    return parameter(table);
  }

  void embedding() {
    ends(false, true);
    const std::int64_t c = model_.hidden;
    const auto [table, table_gradient] = token_table(model_.tied_embeddings);
    const int tokens = role("tokens", TensorRole::tokens, {options_.batch, options_.sequence}, DType::int32);
    const bool learned = model_.positions == Positions::learned;
    int positions = -1, positions_gradient = -1;
    if (learned)
      std::tie(positions, positions_gradient) =
          parameter(matrix("wpe.weight", model_.max_sequence, c, -1, model_.initial_stddev));
    Norm after;
    if (!model_.pre_norm) after = norm("ln_e");
    const int e = model_.pre_norm ? program_.y : own_activation("embedded", c);
    const int e_sums = partial(e, "embedded.partial");
    begin(program_.forward);
    Op lookup = op(OpKind::embedding, {tokens, table}, {e_sums},
                   padded_vocab(model_, options_.tensor, options_.vocab_multiple) / options_.tensor);
    lookup.k = c;
    lookup.vocab = model_.vocab;
    emit(lookup);
    add_up(e_sums, e);
    if (learned) {
      Op place = own_op(OpKind::position_add, {e, positions}, {e}, c);
      place.row_shard = sharded_;
      emit(place);
    }
    if (!model_.pre_norm) norm_forward(after, e, program_.y);

    begin(program_.backward);
    int de = program_.dy;
    if (!model_.pre_norm) {
      de = own_activation("d_embedded", c);
      norm_backward(after, program_.dy, e, -1, de);
    }
    de = gathered(de, "d_embedded.gathered");
    if (learned) {
      Op grad = op(OpKind::position_grad, {de}, {positions_gradient}, c);
      grad.accumulate = true;
      emit(grad);
    }
    Op scatter = op(OpKind::embedding_grad, {tokens, de}, {table_gradient}, lookup.m);
    scatter.k = c;
    scatter.vocab = model_.vocab;
    scatter.accumulate = true;
    emit(scatter);
  }

  void head() {
    ends(true, false);
    const std::int64_t c = model_.hidden;
    const auto [table, table_gradient] = token_table(model_.tied_embeddings);
    const std::int64_t columns = padded_vocab(model_, options_.tensor, options_.vocab_multiple) / options_.tensor;
    Linear unembed{.weight = table, .weight_gradient = table_gradient, .in = c, .out = columns, .rows = n_};
    // BERT's masked-language head transforms before it unembeds (dense, GELU, LayerNorm; Devlin et al. 2019) and adds a
    // bias per word.
    Linear transform{.in = c, .out = c, .rows = own_rows_};
    int dense = -1, activated = -1;
    if (!model_.pre_norm) {
      std::tie(transform.weight, transform.weight_gradient) =
          parameter(by_rows(matrix("head.dense.weight", c, c, -1, model_.initial_stddev)));
      if (model_.bias)
        std::tie(transform.bias, transform.bias_gradient) = parameter(by_rows(vector("head.dense.bias", c, -1, 0)));
      if (model_.bias) {
        Tensor words = vector("head.bias", columns * options_.tensor, 0, 0);
        words.logical_shape[0] = model_.vocab;
        std::tie(unembed.bias, unembed.bias_gradient) = parameter(words);
      }
      dense = own_activation("head.dense", c);
      activated = own_activation("head.activated", c);
    }
    const Norm last = norm("ln_f");
    const int targets = role("targets", TensorRole::targets, {options_.batch, options_.sequence}, DType::int32);
    const int a = own_activation("ln_f", c), logits = activation("logits", columns);
    const int maxima = rows("logits.max", n_), sums = activation("logits.sums", {2, n_}, DType::fp32);
    const int loss = role("loss", TensorRole::loss, {1}, DType::fp32);
    const auto vocabulary_op = [&](OpKind kind, std::vector<int> in, std::vector<int> out) {
      Op o = op(kind, std::move(in), std::move(out), columns);
      o.vocab = model_.vocab;
      o.scale = 1.0 / static_cast<double>(options_.global_tokens);
      o.accumulate = kind == OpKind::cross_entropy;
      return o;
    };
    begin(program_.forward);
    int into_norm = program_.x;
    if (dense >= 0) {
      linear_forward(transform, program_.x, dense, model_.bias);
      emit(own_op(OpKind::gelu, {dense}, {activated}, c));
      into_norm = activated;
    }
    norm_forward(last, into_norm, a);
    linear_forward(unembed, gathered(a, "ln_f.gathered"), logits, unembed.bias >= 0);
    emit(vocabulary_op(OpKind::softmax_max, {logits}, {maxima}));
    all_reduce(maxima, GroupOperation::maximum);
    emit(vocabulary_op(OpKind::softmax_sum, {logits, maxima, targets}, {sums}));
    all_reduce(sums);
    emit(vocabulary_op(OpKind::cross_entropy, {maxima, sums}, {loss}));

    const int da = own_activation("d_ln_f", c);
    begin(program_.backward);
    emit(vocabulary_op(OpKind::cross_entropy_grad, {logits, maxima, sums, targets}, {logits}));
    bias_backward(unembed, logits);
    column_backward(unembed, logits, a, da, "ln_f");
    if (dense < 0) {
      norm_backward(last, da, program_.x, -1, program_.dx);
      return;
    }
    const int dactivated = own_activation("d_head.activated", c);
    norm_backward(last, da, activated, -1, dactivated);
    emit(own_op(OpKind::gelu_grad, {dactivated, dense}, {dactivated}, c));
    bias_backward(transform, dactivated);
    linear_backward(transform, dactivated, program_.x, program_.dx);
  }
};

}  // namespace

LayerProgram expand(const Model& model, LayerKind kind, std::int64_t layer, const ExpandOptions& options) {
  ENSURE(options.tensor >= 1 && model.heads % options.tensor == 0 && model.kv_heads % options.tensor == 0 &&
             model.ffn_hidden % options.tensor == 0,
         "tensor {} does not divide heads {}, key/value heads {} or width {}", options.tensor, model.heads,
         model.kv_heads, model.ffn_hidden);
  ENSURE(options.context == 1 || options.flash, "context parallelism merges row statistics");
  ENSURE(!options.sequence_parallel || options.batch * options.sequence % options.tensor == 0,
         "tensor {} does not divide {} x {} rows", options.tensor, options.batch, options.sequence);
  return Builder(model, kind, layer, options).build();
}

}  // namespace orrery::models
