// Attention to a window of tokens and to runs of earlier ones in one key each (DeepSeek-AI 2026, "DeepSeek-V4", section
// 2.3), in three kinds: to the window alone, also to chosen short runs (which overlap), also to all long runs. Sizes
// are those of Hugging Face's class (modeling_deepseek_v4.py).
//
// A narrow vector of each token becomes the heads' queries, normed without weights; one product makes the key that all
// heads share, which is their value too. A run's key is the mean of its tokens' products, weighted column by column by
// a softmax over the run. Columns that turn in keys turn back in the output. The output's groups of heads each become
// narrower by a product of their own before the product that leads back to the residual.
//
// Tensor parallelism divides the heads with their groups; every rank makes the narrow vectors and keys of all rows. The
// indexer has all of its heads on every rank.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.h"
#include "models/layers/linear_notes.h"
#include "models/layers/mixers.h"

namespace orrery::models {

namespace {

enum class Runs { none, chosen, all };

/// Runs of tokens, each in one key of `width` columns: a product and gates of each token, a bias of each place in a
/// run, a norm and a rotation of the result.
class RunKeys {
 public:
  RunKeys(LinearNotes& to, const std::string& at, const std::string& name, std::int64_t width, std::int64_t run,
          std::int64_t overlap)
      : to_(to), name_(name), width_(width), run_(run), overlap_(overlap) {
    const std::int64_t c = to_.model.hidden, wide = overlap * width;
    keys_ = {.in = c, .out = wide, .rows = to_.all_rows};
    gates_ = keys_;
    for (const auto& [linear, key] : {std::pair{&keys_, "kv.weight"}, std::pair{&gates_, "gate.weight"}})
      std::tie(linear->weight, linear->weight_gradient) =
          to_.parameter(to_.by_heads(to_.matrix(at + key, wide, c, -1, to_.model.initial_stddev)));
    std::tie(bias_, bias_gradient_) =
        to_.parameter(to_.by_heads(to_.matrix(at + "places", run, wide, -1, to_.model.initial_stddev)));
    std::tie(norm_, norm_gradient_) = to_.parameter(to_.by_heads(to_.vector(at + "norm.weight", width, -1, 1)));
    made_ = to_.activation(name + ".made", wide), gated_ = to_.activation(name + ".gates", wide);
    pooled_ = to_.activation(name + ".pooled", {runs(), width}, to_.options.dtype);
    y_ = to_.activation(name, {runs(), width}, to_.options.dtype);
    rstd_ = to_.rows(name + ".rstd", runs());
  }

  [[nodiscard]] TensorId keys() const { return y_; }
  /// Of the micro-batch; whole ones.
  [[nodiscard]] std::int64_t runs() const { return to_.options.batch * of_sequence(); }
  [[nodiscard]] std::int64_t of_sequence() const { return std::max<std::int64_t>(1, to_.options.sequence / run_); }

  void forward(TensorId x) {
    to_.linear_forward(keys_, x, made_, false);
    to_.linear_forward(gates_, x, gated_, false);
    to_.emit(pool(OpKind::pool_runs, {made_, gated_, bias_}, {pooled_}));
    to_.emit(norm(OpKind::rms_norm, {pooled_, norm_}, {y_, rstd_}));
  }
  /// Adds to dx.
  void backward(TensorId dkeys, TensorId x, TensorId dx) {
    const TensorId dpooled = to_.activation("d_" + name_ + ".pooled", {runs(), width_}, to_.options.dtype);
    const TensorId dmade = to_.activation("d_" + name_ + ".made", keys_.out);
    const TensorId dgates = to_.activation("d_" + name_ + ".gates", keys_.out);
    Op back = norm(OpKind::rms_norm_grad, {dkeys, pooled_, norm_, rstd_, {}},
                   {dpooled, to_.gradient_or_none(norm_, norm_gradient_)});
    back.accumulate = norm_gradient_.exists();
    to_.emit(std::move(back));
    to_.emit(pool(OpKind::pool_runs_grad, {dpooled, made_, gated_, bias_},
                  {dmade, dgates, to_.sum_or_none(bias_, bias_gradient_)}));
    for (const auto& [linear, dy] : {std::pair{&keys_, dmade}, std::pair{&gates_, dgates}}) {
      to_.weight_backward(*linear, dy, x);
      if (dx.exists()) to_.input_backward(*linear, dy, dx, true);
    }
  }

 private:
  Op pool(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, width_);
    o.k = overlap_, o.run = run_;
    return o;
  }
  Op norm(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, width_);
    o.n = runs();
    o.epsilon = to_.model.norm_epsilon;
    return o;
  }

  LinearNotes& to_;
  std::string name_;
  std::int64_t width_, run_, overlap_;
  Linear keys_, gates_;
  TensorId bias_, bias_gradient_, norm_, norm_gradient_, made_, gated_, pooled_, y_, rstd_;
};

class CompressedMixer final : public MixerNotes {
 public:
  CompressedMixer(LinearNotes& to, Runs reads)
      : to_(to), of_(to.model.compressed), reads_(reads), heads_(to.model.heads / to.options.tensor) {
    const std::int64_t c = to_.model.hidden, d = to_.model.head_dim, t = to_.options.tensor;
    const std::string at = to_.prefix() + "attn.";
    const double stddev = to_.model.initial_stddev;
    make(q_a_, to_.by_heads(to_.matrix(at + "q_a.weight", of_.q_rank, c, -1, stddev)), c, of_.q_rank);
    make(q_b_, to_.matrix(at + "q_b.weight", to_.model.heads * d, of_.q_rank, 0, stddev), of_.q_rank, heads_ * d);
    make(kv_, to_.by_heads(to_.matrix(at + "kv.weight", d, c, -1, stddev)), c, d);
    // Of each group of heads by itself: as many multiply-adds as one group's columns by all groups' narrow ones.
    const std::int64_t in = to_.model.heads * d / of_.out_groups;
    make(o_a_, to_.matrix(at + "o_a.weight", of_.out_groups * of_.out_rank, in, 0, stddev), in,
         of_.out_groups * of_.out_rank / t);
    make(o_b_, to_.matrix(at + "o_b.weight", c, of_.out_groups * of_.out_rank, 1, to_.residual_initial_stddev()),
         of_.out_groups * of_.out_rank / t, c);
    narrow_ = make_norm(at + "q_a_norm.weight", "attention.q_a", of_.q_rank);
    key_ = make_norm(at + "kv_norm.weight", "attention.kv", d);
    Tensor sinks = to_.vector(at + "sinks", to_.model.heads, 0, 0);
    sinks.initial_stddev = stddev;
    std::tie(sinks_, sinks_gradient_) = to_.parameter(std::move(sinks));
    q_ = to_.activation("attention.q", q_b_.out), q_normed_ = to_.activation("attention.q.normed", q_b_.out);
    q_rstd_ = to_.rows("attention.q.rstd", to_.all_rows * heads_);
    if (reads_ != Runs::none) {
      const bool some = reads_ == Runs::chosen;
      runs_.emplace(to_, at + "runs.", "attention.runs", d, some ? of_.short_run : of_.long_run, some ? 2 : 1);
    }
    if (reads_ == Runs::chosen) make_indexer(at);
    out_ = to_.activation("attention", heads_ * d);
    lse_ = to_.options.flash
               ? to_.activation("attention.lse", {to_.options.batch, heads_, to_.options.sequence}, DType::fp32)
               : to_.activation("attention.probabilities",
                                {to_.options.batch, heads_, to_.options.sequence, keys_read()}, to_.options.dtype);
    narrow_out_ = to_.activation("attention.out.narrow", o_a_.out);
  }

  void forward(TensorId x, TensorId h, bool adds) override {
    to_.linear_forward(q_a_, x, narrow_.before, false);
    to_.emit(norm(narrow_, OpKind::rms_norm, {narrow_.before, narrow_.weight}, {narrow_.after, narrow_.rstd}));
    to_.linear_forward(q_b_, narrow_.after, q_, false);
    to_.emit(heads_norm(OpKind::rms_norm, {q_, {}}, {q_normed_, q_rstd_}));
    to_.linear_forward(kv_, x, key_.before, false);
    to_.emit(norm(key_, OpKind::rms_norm, {key_.before, key_.weight}, {key_.after, key_.rstd}));
    rotate(OpKind::rope, q_normed_, heads_);
    rotate(OpKind::rope, key_.after, 1);
    if (runs_) runs_->forward(x);
    if (choice_.exists()) indexer_forward(x);
    to_.emit(attention(OpKind::run_attention, read({q_normed_, key_.after}), {out_, lse_}));
    rotate(OpKind::rope, out_, heads_);
    to_.linear_forward(o_a_, out_, narrow_out_, false);
    to_.linear_forward(o_b_, narrow_out_, h, false, adds);
  }

  void backward(TensorId dh_own, TensorId x_own, TensorId dx_own, const std::string& name) override {
    const TensorId dh = to_.gathered(dh_own, "d_attention.h");
    const TensorId x = to_.gathered(x_own, name + ".gathered_again");
    const TensorId dx = to_.partial(dx_own, "d_" + name + ".partial");
    const auto wide = [&](const char* of, std::int64_t columns) { return to_.activation(of, columns); };
    const TensorId dnarrow = wide("d_attention.out.narrow", o_a_.out), dout = wide("d_attention", q_b_.out);
    const TensorId dq = wide("d_attention.q", q_b_.out), dkey = wide("d_attention.kv", kv_.out);
    to_.linear_backward(o_b_, dh, narrow_out_, dnarrow);
    to_.linear_backward(o_a_, dnarrow, out_, dout);
    rotate(OpKind::rope_grad, dout, heads_);
    const TensorId druns =
        runs_ ? to_.activation("d_attention.runs", {runs_->runs(), to_.model.head_dim}, to_.options.dtype) : TensorId();
    to_.emit(attention(OpKind::run_attention_grad, read({dout, out_, lse_, q_normed_, key_.after}),
                       {dq, dkey, to_.sum_or_none(sinks_, sinks_gradient_), druns}));
    rotate(OpKind::rope_grad, dq, heads_);
    rotate(OpKind::rope_grad, dkey, 1);
    to_.emit(heads_norm(OpKind::rms_norm_grad, {dq, q_, {}, q_rstd_, {}}, {dq, {}}));
    narrow_backward(narrow_, q_b_, dq, "d_attention.q_a");
    norm_backward(key_, dkey, "d_attention.kv.before");
    to_.linear_backward(q_a_, narrow_.gradient, x, dx);
    to_.weight_backward(kv_, key_.gradient, x);
    to_.input_backward(kv_, key_.gradient, dx, true);
    if (runs_) runs_->backward(druns, x, dx);
    if (choice_.exists()) indexer_backward(x);
    to_.add_up(dx, dx_own);
  }

 private:
  struct Narrow {
    TensorId weight = {}, weight_gradient = {}, before = {}, after = {}, rstd = {}, gradient = {};
    std::int64_t width = 0;
  };

  void make(Linear& linear, Tensor weight, std::int64_t in, std::int64_t out) {
    linear = {.in = in, .out = out, .rows = to_.all_rows};
    std::tie(linear.weight, linear.weight_gradient) = to_.parameter(std::move(weight));
  }
  Narrow make_norm(const std::string& weight, const std::string& name, std::int64_t width) {
    Narrow made{.width = width};
    std::tie(made.weight, made.weight_gradient) = to_.parameter(to_.by_heads(to_.vector(weight, width, -1, 1)));
    made.before = to_.activation(name + ".before", width), made.after = to_.activation(name, width);
    made.rstd = to_.rows(name + ".rstd", to_.all_rows);
    return made;
  }
  Op norm(const Narrow& of, OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, of.width);
    o.epsilon = to_.model.norm_epsilon;
    return o;
  }
  void norm_backward(Narrow& of, TensorId dy, const std::string& name) {
    of.gradient = to_.activation(name, of.width);
    Op o = norm(of, OpKind::rms_norm_grad, {dy, of.before, of.weight, of.rstd, {}},
                {of.gradient, to_.gradient_or_none(of.weight, of.weight_gradient)});
    o.accumulate = of.weight_gradient.exists();
    to_.emit(std::move(o));
  }
  void narrow_backward(Narrow& of, const Linear& reader, TensorId dy, const std::string& name) {
    const TensorId dnormed = to_.activation(name + ".normed", of.width);
    to_.linear_backward(reader, dy, of.after, dnormed);
    norm_backward(of, dnormed, name);
  }
  // Each head of the queries by itself.
  Op heads_norm(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, to_.model.head_dim);
    o.n *= heads_;
    o.epsilon = to_.model.norm_epsilon;
    return o;
  }
  void rotate(OpKind kind, TensorId of, std::int64_t heads) {
    Op o = to_.op(kind, {of}, {of}, 0);
    o.heads = heads;
    o.head_dim = to_.model.head_dim;
    o.rotary = of_.rope;
    o.epsilon = reads_ == Runs::none ? to_.model.rope_theta : of_.theta;
    if (reads_ != Runs::none) o.rope_scaling = to_.model.rope_scaling;
    to_.emit(o);
  }
  /// Tokens and runs that a token reads at most.
  [[nodiscard]] std::int64_t keys_read() const {
    const std::int64_t tokens = std::min(of_.window, to_.options.sequence);
    if (reads_ == Runs::none) return tokens;
    const std::int64_t runs = runs_->of_sequence();
    return tokens + (reads_ == Runs::chosen ? std::min(to_.model.indexer.chosen, runs) : runs);
  }
  Op attention(OpKind kind, const Tensors& in, const Tensors& out) const {
    Op o = to_.op(kind, in, out, 0);
    o.heads = heads_;
    o.kv_heads = 1;
    o.head_dim = to_.model.head_dim;
    o.causal = true;
    o.flash = to_.options.flash;
    o.rounded = to_.options.products == DType::tf32;
    o.chosen = std::min(keys_read(), to_.options.sequence);
    return o;
  }
  /// An operator's operands, then sinks, keys of runs, and which are chosen.
  Tensors read(Tensors operands) const {
    operands.push_back(sinks_);
    if (runs_) operands.push_back(runs_->keys());
    if (choice_.exists()) operands.push_back(choice_);
    return operands;
  }

  // -- the indexer of short runs ------------------------------------------------------------------------------------
  void make_indexer(const std::string& at) {
    const Indexer& i = to_.model.indexer;
    const double stddev = to_.model.initial_stddev;
    make(index_q_, to_.by_heads(to_.matrix(at + "index.q.weight", i.heads * i.width, of_.q_rank, -1, stddev)),
         of_.q_rank, i.heads * i.width);
    make(index_weights_, to_.by_heads(to_.matrix(at + "index.weights.weight", i.heads, to_.model.hidden, -1, stddev)),
         to_.model.hidden, i.heads);
    index_runs_.emplace(to_, at + "index.", "index.runs", i.width, of_.short_run, 2);
    index_query_ = to_.activation("index.q", index_q_.out);
    index_weight_ = to_.activation("index.weights", i.heads);
    choice_ = to_.activation("index.choice", {to_.all_rows, std::min(i.chosen, runs_->of_sequence())}, DType::int32);
  }
  Op choosing(OpKind kind, const Tensors& in, const Tensors& out) const {
    const Indexer& i = to_.model.indexer;
    Op o = to_.op(kind, in, out, i.heads);
    o.k = i.width;
    o.chosen = std::min(i.chosen, runs_->of_sequence());
    o.run = of_.short_run;
    o.causal = true;
    return o;
  }
  void indexer_forward(TensorId x) {
    to_.linear_forward(index_q_, narrow_.after, index_query_, false);
    to_.linear_forward(index_weights_, x, index_weight_, false);
    index_runs_->forward(x);
    to_.emit(choosing(OpKind::choose_tokens, {index_query_, index_runs_->keys(), index_weight_}, {choice_}));
  }
  void indexer_backward(TensorId x) {
    if (!index_q_.trains()) return;
    const TensorId dq = to_.activation("d_index.q", index_q_.out);
    const TensorId dw = to_.activation("d_index.weights", index_weights_.out);
    const TensorId dk =
        to_.activation("d_index.runs", {index_runs_->runs(), to_.model.indexer.width}, to_.options.dtype);
    Op o = choosing(OpKind::choose_tokens_grad,
                    {q_normed_, lse_, choice_, index_query_, index_runs_->keys(), index_weight_}, {dq, dk, dw});
    o.heads = heads_, o.kv_heads = 1, o.head_dim = to_.model.head_dim;
    to_.emit(o);
    to_.weight_backward(index_q_, dq, narrow_.after);
    to_.weight_backward(index_weights_, dw, x);
    index_runs_->backward(dk, x, {});
  }

  LinearNotes& to_;
  const CompressedAttention& of_;
  Runs reads_;
  std::int64_t heads_;
  Linear q_a_, q_b_, kv_, o_a_, o_b_, index_q_, index_weights_;
  Narrow narrow_, key_;
  std::optional<RunKeys> runs_, index_runs_;
  TensorId sinks_, sinks_gradient_, q_, q_normed_, q_rstd_, out_, lse_, narrow_out_;
  TensorId index_query_, index_weight_, choice_;
};

MixerTraits compressed_mixer_of(Mixer mixer, const char* word, const char* title, const char* titles) {
  return {.mixer = mixer,
          .word = word,
          .title = title,
          .titles = titles,
          .key = "compressed_attention",
          .example =
              "compressed_attention: {q_rank: 1024, rope: 64, window: 128, short_run: 4, long_run: 128, out_groups: "
              "8, out_rank: 1024, theta: 160000}, and pattern: [local+mlp, condensed+mlp]",
          .sized = [](const Model& m) { return m.compressed.any(); },
          .in_order = true,
          .core = OpKind::run_attention,
          .check =
              [](const Needs& needs, const Model& m) {
                const CompressedAttention& a = m.compressed;
                needs("compressed_attention",
                      a.out_rank > 0 && m.heads % a.out_groups == 0 && a.rope % 2 == 0 && a.rope <= m.head_dim,
                      "groups of heads divide them, and pairs of a head's columns turn", "out_groups: 8, rope: 64");
                const bool chosen = std::any_of(m.pattern.begin(), m.pattern.end(),
                                                [](const BlockParts& p) { return p.mixer == Mixer::compressed; });
                const Indexer& i = m.indexer;
                needs("indexer", chosen ? i.any() && i.every == 1 && i.block == 0 && i.after == 0 : !i.any(),
                      "chosen runs, and no others, need an indexer in each of their layers",
                      "indexer: {heads: 64, width: 128, chosen: 512}");
              },
          .undivided =
              [](const Model& m, std::int64_t ways) {
                return m.heads % ways == 0 && m.compressed.out_groups % ways == 0
                           ? std::string()
                           : fmt::format("the compressed attention's {} in {}", base::count_of(m.heads, "head"),
                                         base::count_of(m.compressed.out_groups, "group"));
              },
          .divisors = "a tensor degree that divides heads and their groups",
          .sizes =
              [](const Model& m) {
                return fmt::format("{} of one key of {}, window {}, runs of {} and {}", base::count_of(m.heads, "head"),
                                   m.head_dim, m.compressed.window, m.compressed.short_run, m.compressed.long_run);
              }};
}

}  // namespace

MixerTraits local_mixer() {
  MixerTraits row = compressed_mixer_of(Mixer::local, "local", "attention to a window of shared keys",
                                        "layers of attention to a window of shared keys");
  row.notes = [](LinearNotes& to) -> std::unique_ptr<MixerNotes> {
    return std::make_unique<CompressedMixer>(to, Runs::none);
  };
  return row;
}
MixerTraits compressed_mixer() {
  MixerTraits row = compressed_mixer_of(Mixer::compressed, "compressed", "attention to chosen runs of tokens",
                                        "layers of attention to chosen runs of tokens");
  row.notes = [](LinearNotes& to) -> std::unique_ptr<MixerNotes> {
    return std::make_unique<CompressedMixer>(to, Runs::chosen);
  };
  return row;
}
MixerTraits condensed_mixer() {
  MixerTraits row = compressed_mixer_of(Mixer::condensed, "condensed", "attention to long runs of tokens",
                                        "layers of attention to long runs of tokens");
  row.notes = [](LinearNotes& to) -> std::unique_ptr<MixerNotes> {
    return std::make_unique<CompressedMixer>(to, Runs::all);
  };
  return row;
}

}  // namespace orrery::models
