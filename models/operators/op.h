#pragma once
/// Op: one operator with its sizes, the common grain of cost (which times it) and exec (which runs it). Operands are
/// numbered by the owner of the op list: a LayerProgram numbers its tensors, a Schedule its buffer views.
///
/// All matrices are row-major. "rows" is n = B*T unless stated otherwise. `accumulate` means out += instead of out =;
/// an output that "accumulates if so said" does so if Op::accumulate is set. Operand orders are fixed here and nowhere
/// else; an operand index of -1 means "absent" where the operand is marked optional.
#include <array>
#include <cstdint>
#include <vector>

#include "models/activation.h"
#include "models/dtype.h"
#include "models/experts.h"
#include "models/rope.h"

namespace orrery::models {

enum class OpKind : std::uint8_t {
  // -- input and embedding
  load_tokens,  ///< out: tokens (B,T) int32, targets (B,T) int32: this rank's part. Reads the data; no arithmetic
                ///< With k > 0 predictions a sequence: tokens, targets (B,k), token types (B,T), the micro-batch's
                ///< rows that are predicted (B,k), whether the second segment is from elsewhere (B)
  /// in: tokens, table (m=local vocab rows, C). out: x (n,C) = scale * table[token]. Rows outside the shard give 0
  embedding,
  position_add,    ///< in: x (n,C), table (k + max T,C). out: y (n,C) = x + table[k + t]   (y may be x)
  embedding_grad,  ///< in: tokens, dx (n,C). out: dtable (m,C) += scale * dx; ids outside the shard are skipped
  position_grad,   ///< in: dx (n,C). out: dtable (k + T rows used,C), accumulates
  // -- normalisation
  layer_norm,       ///< in: x, [weight], [bias]. out: y (n,C), mean (n), rstd (n)
  layer_norm_grad,  ///< in: dy, x, [weight], mean, rstd, [addend (n,C)]. out: dx (= grad + addend), [dweight],
                    ///< [dbias] (these accumulate if so said)
  rms_norm,         ///< in: x, [weight]. out: y, rstd
  rms_norm_grad,    ///< in: dy, x, [weight], rstd, [addend]. out: dx, [dweight] (accumulates if so said)
  // -- matrix product: out (m,n) (+)= scale op(A) op(B) [+ bias (n)]; in fp8 also out[1]: the operands' bytes
  // (models/operators/fp8.h)
  matmul,     ///< in: A, B, [bias]. out: C (m,n). A is (m,k) or, trans_a, (k,m); B is (k,n) or, trans_b, (n,k)
  bias_grad,  ///< in: dy (n,m). out: dbias (m), the column sums (accumulates if so said)
  // -- attention over packed heads: qkv (n, (H+2G)*D), q rows first, then k, then v within each token; with heads of v
  // of value_dim columns V, (n, (H+G)*D + G*V), and y (n,H*V)
  rope,       ///< in: qkv. out: qkv, of each head's first `rotary` columns rotated (in place allowed)
  rope_grad,  ///< in: dqkv. out: dqkv rotated back (in place allowed)
  /// in: qkv, [sinks (H)]. out: y (n,H*D), and saved: flash -> lse (B,H,T); unfused -> probabilities (B,H,T,T). A
  /// head's sink is one more logit in each of its rows, without key and value (Agarwal et al. 2025, gpt-oss; Xiao et
  /// al. 2023). With `chosen` > 0 a row reads only the tokens of its choice, the last input.
  attention,
  attention_grad,  ///< in: dy, qkv, y, saved, [sinks (H)], [choice]. out: dqkv, [dsinks (H), accumulates]
  /// Ring attention (Liu, Zaharia, Abbeel 2023) computes the same, block by block, over the keys and values of member
  /// `part - ring_step` of the context group. in: qkv (its q), kv (n,2G*D). out: y, lse; `accumulate`: merged with
  /// their contents by the row statistics. Sinks (as in attention) count in the first step only.
  ring_attention,
  /// in: dy, qkv, y, lse, kv, [sinks (H)]. out: dq into dqkv (accumulates if so said), dkv (n,2G*D), [dsinks (H)]
  ring_attention_grad,
  split_kv,  ///< in: qkv. out: kv (n,2G*D), k rows first
  merge_kv,  ///< in: dkv. out: dqkv, its k and v
  // -- elementwise
  gelu,         ///< in: x (n,F). out: y
  gelu_grad,    ///< in: dy, x. out: dx (may be dy)
  swiglu,       ///< in: x (n,2F) gate first, up second. out: y (n,F) = silu(gate)*up
  swiglu_grad,  ///< in: dy (n,F), x (n,2F). out: dx (n,2F)
  add_bias,     ///< in: residual (n,C), x (n,C), [bias (C)]. out: y = residual + x + bias (may be x or residual); with
                ///< dropout of x + bias alone
  add,          ///< in: a, b. out: c = a + b (may be a)
  // -- loss over vocabulary shards (m = local vocab columns, rows n); padded columns count as -inf
  softmax_max,         ///< in: logits (n,m). out: max (n)
  softmax_sum,         ///< in: logits, max (n), targets. out: sums (2,n): row sums of exp(l-max), then target logits (0
                       ///< outside)
  cross_entropy,       ///< in: max, sums (2,n). out: loss (1), accumulates scale*sum(log(sum)+max-target)
  cross_entropy_grad,  ///< in: logits, max, sums, targets. out: dlogits (n,m) = scale*(softmax - onehot) (may be
                       ///< logits)
  // -- optimizer, over flat ranges of `m` elements
  fill_zero,        ///< out: x (m)
  copy,             ///< in: x (m). out: y (m) = x
  accumulate_into,  ///< in: x (m). out: y (m) += x
  norm_squared,     ///< in: grad (m) [with weights by `ranges`]. out: total (1), accumulates
  /// in: norm squared (1), [scaling (4)]. out: norm (1), coefficient (1) = min(1, clip/(norm+1e-6)); unclipped 1.
  /// With scaling, the norm is of the gradients without their scale, and the coefficient takes it out of them.
  clip_coefficient,
  overflow,  ///< in: norm squared (1). out: flag (1) = 1 if it is not finite, which any overflow of a gradient makes it
  /// out: scaling (4) = scale, steps since it last changed, steps skipped so far, whether this step is skipped (the
  /// flag). Updates the first three. Dynamic loss scaling (Micikevicius et al. 2018, section 3.2).
  loss_scale,
  // Updates. "param" is fp32: the master, if compute reads less than fp32; the compute copy (m) is then the last
  // output. If the scaling says that the step is skipped, the update does nothing. Hyper-parameters come with the step.
  adamw,  ///< in: grad (m), coefficient (1), [scaling (4)]. out: param, first moment (m), second moment (m), [copy]
  /// Updates each element by itself, with one state or none, by `rule`. in: grad (m), coefficient (1), [scaling]. out:
  /// param, [momentum (m)], [copy]
  momentum_update,
  /// LAMB (You et al. 2020, algorithm 2) in two halves; between them, `norms` is summed over the ranks that have parts
  /// of a tensor. in: grad (m), coefficient, param (m), [scaling]. out: first moment, second moment, norms (2 for each
  /// of the n parameters of the bucket: squares of param and of its direction), accumulates.
  lamb_moments,
  lamb,  ///< in: first moment (m), second moment (m), norms (2n), [scaling]. out: param, [copy]
  /// Adafactor (Shazeer and Stern 2018, algorithms 4 and 5). `factors` (k values) has, for each matrix, its sum, the
  /// sums of its rows and the sums of its columns; for other parameters, each element. in: grad (m), coefficient. out:
  /// sums (k) of squared gradients, accumulates.
  factor_sums,
  factor_moments,  ///< in: sums (m), [scaling]. out: factors (m), moving averages
  /// in: grad (m), coefficient, param (m), factors (k). out: norms (2n): squares of param and of its direction,
  /// accumulates.
  factor_norms,
  adafactor,  ///< in: grad (m), coefficient, factors (k), norms (2n), [scaling]. out: param, [copy]
  /// Adam with moments in 8 bits, quantised block by block (Dettmers et al. 2022). in: grad (m), coefficient,
  /// [scaling]. out: param, codes of the first and of the second moment (m bytes each), the blocks' scales of both
  /// (m/kQuantisedBlock each), [copy].
  adamw_8bit,
  // -- BERT: token types, chosen rows, and its second head
  type_add,  ///< in: x (n,C), table (k types,C), types. out: y (n,C) = x + table[type] (may be x). row_shard: see there
  type_grad,  ///< in: dx (n,C), types. out: dtable (k,C), accumulates
  /// in: x (k,m), [rows (n) int32: of the micro-batch; without it, the first of each of n sequences]. out: y (n,m).
  /// With row_shard, x begins at row tensor_rank*k of the micro-batch, and rows of other ranks give 0.
  gather_rows,
  /// in: dy (n,m), [rows (n)]. out: dx (k,m), with row_shard as above: rows that were gathered get their gradients, the
  /// others 0; `accumulate`: added to its contents.
  scatter_rows,
  tanh,             ///< in: x (n,m). out: y (may be x)
  tanh_grad,        ///< in: dy, y. out: dx = dy (1 - y^2) (may be dy)
  gelu_erf,         ///< in: x (n,F). out: y = x/2 (1 + erf(x/sqrt(2)))
  gelu_erf_grad,    ///< in: dy, x. out: dx (may be dy)
  class_loss,       ///< in: logits (n,m), classes (n) int32. out: loss (1), accumulates scale*sum(log-sum-exp - logit)
  class_loss_grad,  ///< in: logits, classes, [scaling]. out: dlogits = scale*(softmax - onehot) (may be logits)
  // -- compression (plan/lower/compress.h, plan/lower/encode.h), over flat ranges of `m` elements unless said otherwise
  convert,  ///< in: x (m). out: y (m), rounded to its own type. `dtype`: the narrower one
  /// in: pieces (n of m elements each). out: y (m): their sum, in fp32 and in their order, then rounded to y's own
  /// type. `accumulate`: added to its contents. `dtype`: of the pieces
  sum_pieces,
  orthogonalise,  ///< out: x (m,n), whose columns are made orthonormal in place
  add_scaled,     ///< in: x (m). out: y (m) += scale * x
  encode,         ///< in: x (m). out: m values of k bits each, as bytes (models/encoding.h)
  decode,         ///< in: m values of k bits each, as bytes. out: x (m)
  /// in: x (n,m). out: y (may be x): each value is 0 with probability `dropout`, or multiplied by 1/(1 - dropout), by a
  /// mask that (seed, step, sequence of the step, site, row and column) determine (models/operators/dropout.h).
  /// Backward is the same operator.
  dropout,
  relu,       ///< in: x (n,F). out: y (may be x)
  relu_grad,  ///< in: dy, y. out: dx (may be dy): dy where y > 0
  /// Gist's lossless storage of a ReLU's output (models/encoding.h). in: x (n,m). out: its sparse bytes, with room for
  /// `capacity` nonzero values; if there are more, the bytes say so and hold none.
  sparse_encode,
  /// in: sparse bytes, and what x was made of: a (n,k), weight (m,k), [bias (m)]. out: x (n,m), to the bit; if the
  /// bytes do not hold it, relu(a weight^T + bias), computed again.
  sparse_decode,
  /// Activations of models/activation.h, chosen by `function`. in: x (n,F). out: y (may be x)
  activate,
  activate_grad,  ///< in: dy, x. out: dx (may be dy)
  gate,           ///< in: x (n,2F) gate first, up second. out: y (n,F) = function(gate)*up
  gate_grad,      ///< in: dy (n,F), x (n,2F). out: dx (n,2F)
  /// RMSNorm of each head of q and of k by itself (Henry et al. 2020; Qwen3), or `joint`ly of all of them. in: qkv,
  /// [weight of q (D; joint: H*D)], [weight of k (D; joint: G*D)]. out: y in the layout of qkv, with v as `values`
  /// says;
  /// rstd (n,H+G; joint: n,2; n,H+2G where v is normed too).
  head_norm,
  head_norm_grad,  ///< in: dy, qkv, [weights of q and k], rstd. out: dqkv (may be dy), [their gradients (accumulate)]
  soft_cap,        ///< in: x (n,m). out: y = cap tanh(x/cap) (may be x); its gradient is cross_entropy_grad's
  // -- mixtures of experts (models/experts.h): n tokens, E experts, k chosen for each token; each rank of `slots` has
  // `experts` of them. Rows of tokens travel in slots: one for each rank that has experts, with room for `capacity`
  // rows. In a slot, the rows of an expert follow those of the expert before, in the order of their tokens. counts
  // (slots, experts) int32 has their numbers; only these rows of an operand (slots*capacity,m) are present.
  /// in: logits (n,m=E) fp32, [bias (E)]. out: scores (n,E) fp32, choice (n,k) int32, best first, weights (n,k) fp32.
  /// `routing` says how.
  route,
  /// in: dweights (n,k), logits (n,E), scores (n,E), choice (n,k), weights (n,k), [load (E): choices of each expert in
  /// the step, over all layers and ranks], [scaling: of losses in fp16]. out: dlogits (n,E), with the gradients of the
  /// auxiliary losses, scaled as dweights are.
  route_grad,
  /// in: logits (n,E), choice (n,k). out: tally (2E+1) fp32, accumulates: for each expert the number of tokens that
  /// chose it, and the sum of its softmax; then the sum of squares of log-sum-exp.
  count_choices,
  /// in: choice (n,k). out: place (n,k) int32: the row in the slots, -1 for rows that `token_limit` drops; and the
  /// counts of the rows that are sent. A slot without room for all its rows is a Failure that names the bound.
  place_rows,
  dispatch,  ///< in: x (n,m), place (n,k), [weights (n,k)]. out: rows (slots*capacity,m) = [weight *] x
  combine,   ///< in: rows (slots*capacity,m), place (n,k), [weights (n,k)]. out: y (n,m) = sum over k of [weight *] row
  /// in: dy (n,m), rows (slots*capacity,m), place (n,k). out: dweights (n,k) = dy . row; 0 where there is none
  combine_weight_grad,
  /// A product for each expert. in: a (slots*capacity,k), w, counts, [second w (of the same shape)]. out: c
  /// (slots*capacity,n). trans_b: w is (experts,n,k); with a second w, c is (.., 2n), its product after the first
  /// one's. Otherwise w is (experts,k,n); with a second w, a is (.., 2k), and c is the sum of both products.
  grouped_matmul,
  /// in: dy (slots*capacity,m or 2m), x (slots*capacity,n), counts. out: dw (experts,m,n), [second dw] (accumulates if
  /// so said)
  grouped_weight_grad,
  /// in: x (slots*capacity,m), bias (experts,m), counts, [second bias; then x is (..,2m)]. out: y (may be x) = x +
  /// scale times the bias of the row's expert
  expert_bias,
  expert_bias_grad,  ///< in: dy as x of expert_bias, counts. out: dbias (experts,m), [second]; accumulates
  /// in: x (slots*capacity,m), counts. out: encoded rows (slots*capacity,k), by `codec` (models/experts.h)
  encode_rows,
  decode_rows,    ///< in: encoded rows, counts. out: x (slots*capacity,m)
  row_gate,       ///< in: x (n,m), g (n). out: y = sigmoid(g) x (may be x)
  row_gate_grad,  ///< in: dy (n,m), x (n,m), g (n). out: dx (may be dy), dg (n)
  /// in: tally (2E+1) of the step, summed over layers, ranks and micro-batches. out: losses (2) fp32: the auxiliary
  /// loss E sum_e load_e/n softmax_e/n, and the z-loss, both without their coefficients; n tokens times layers.
  balance_losses,
  /// in: tally (2E+1) of a layer. out: bias (E), each moved by `scale` towards the mean load (Wang et al. 2024)
  balance_bias,
  // -- recommendation models (models/recommender.h): n samples of this rank, D values in a vector, f vectors in a
  // sample. Which parts of which tables each rank holds, and where the data that it sends and receives is, is in
  // plan::TableLayout, which the executor provides: sizes here are of the rank that has most, for prices. Slots: one
  // for each rank. Pooled vectors and their gradients are in the layout of the tables' end or of the samples' end, by
  // way (plan::PooledEnd).
  /// out: dense (n,m), labels (n), indices (n,k) int32: this rank's part. Reads the data. Indices, here and below, are
  /// lookups of TableLayout::words each: a row, and behind it, where lookups have weights, the bits of an fp32
  load_clicks,
  /// in: indices (n,k). out: lengths (slots, shards, n) int32 of each rank's shards; indices within them (slots, room)
  /// int32; how many exchanged values are sent and received, forward and then backward (slots), [the same by nodes]. An
  /// index that is not in its table is a Failure that names table and sample.
  bucketise_indices,
  /// Gives rows of tables outside the device's memory a place in its cache: rows without one take the places of the
  /// rows that were looked up longest ago. in: lengths, indices (as received). out: books (RowCache), which stay from
  /// step to step; indices of places instead of rows; and for each memory of rows (host, NVMe) a list of rows to fetch
  /// and a list of rows to write back (plan::RowMove). n: lookups. accumulate: the step changes the rows that it looks
  /// up.
  cache_rows,
  /// in: lengths, indices (as received, or from cache_rows), tables, [rows as received, where indices are those of a
  /// cache: by them a bag's sum is a tree, exec/data/row_blocks.h]. out: sums of rows (slots at the tables).
  /// n: lookups, m: columns of a row, k: values of the output
  embedding_bag,
  /// in: lengths, indices, gradients (at the tables). out: for tables whose columns are on several ranks, the squares
  /// of each row's gradient, summed over this rank's columns (they are then summed over ranks); n, m as above.
  embedding_bag_squares,
  /// in: lengths, indices, gradients (at the tables), [squares of whole rows], [books of cache_rows]. out: tables,
  /// [states], total (1), which accumulates the squares of this rank's gradients. A row's gradients are summed in the
  /// order of the step's samples; then `rule` updates the row: sgd; row-wise Adagrad like fbgemm's
  /// EXACT_ROWWISE_ADAGRAD, with one state per row (state += mean of squares; row -= rate g / (sqrt(state) + epsilon));
  /// Adam like fbgemm's ADAM, with the first moments of all values and then the second ones; rows that no sample looks
  /// up keep them (bias corrections count the run's steps).
  embedding_bag_update,
  embedding_lookup,  ///< in: indices (n,k), tables that every rank has whole. out: sums (n, their columns)
  /// in: indices (n,k), dy (n, columns). out: gradients of these tables, whole, [lookups of each row]; both are written
  embedding_lookup_grad,
  /// in: gradients (m), [lookups of each row]. out: tables (m), [states]. `rule` as in embedding_bag_update
  table_update,
  /// in: pooled vectors (at the samples' owner), bottom (n,D), [sums of embedding_lookup]. out: vectors
  /// (n,f,D), bottom first, then each table's: the sum over its shards, or their mean by its `multi_hot`
  pooled_join,
  pooled_split,     ///< in: dy (n,f,D). out: gradients (at the samples' owner), dbottom (n,D), [gradients of the
                    ///< lookups' sums]
  interaction_dot,  ///< in: x (n,k=f vectors of m=D). out: y (n, D + f(f-1)/2): the first vector, then products i > j
  interaction_dot_grad,  ///< in: dy, x. out: dx (n,f,D)
  cross,                 ///< in: x0 (n,m), u (n,m), x (n,m). out: y = x0 u + x (Wang et al. 2021, equation 2)
  cross_grad,            ///< in: dy, x0, u. out: du = dy x0, dx0 += dy u
  /// in: logits (n), labels (n). out: loss (1), accumulates scale * sum(log(1 + exp(l)) - label l)
  click_loss,
  click_loss_grad,  ///< in: logits (n), labels (n). out: dlogits = scale (sigmoid(l) - label)
  /// in: pooled vectors (slots). out: the same in the output's type; int8: for each vector a scale (fp32, the largest
  /// magnitude / 127) and then its bytes. row_shard: slots at the samples' owner; otherwise at the tables
  encode_pooled,
  decode_pooled,  ///< the way back
  // -- latent attention (models/layers/latent_notes.h): `rotary` of a head's D columns rotate, and its value has k
  // columns
  split_columns,  ///< in: x (n,m+k). out: its first m columns (n,m), the others (n,k)
  join_columns,   ///< in: a (n,m), b (n,k). out: x (n,m+k)
  /// in: q (n,H*D), for each head the columns that do not rotate, then those that do; kv (n,H*(D-rotary+k)), for each
  /// head the columns of its key that do not rotate, then its value; key (n,rotary), the rotating columns of all heads'
  /// keys. out: qkv (n,3*H*D) for `rope` and attention: rotating columns come first, and of these 2i and 2i+1, a pair
  /// in DeepSeek's order, become i and i + rotary/2; a value's k columns are followed by zeros.
  latent_pack,
  latent_pack_grad,  ///< in: dqkv (n,3*H*D). out: dq, dkv, dkey (n,rotary), which is summed over the heads
  head_values,       ///< in: y (n,H*D). out: (n,H*k), the first k columns of each head
  head_values_grad,  ///< in: dy (n,H*k). out: (n,H*D), whose other columns are 0
  // -- Muon (Jordan et al. 2024): plan/outline/whole_matrices.h says for which matrices, and which rank has what of
  // them
  /// in: grad (m), coefficient (1), [scaling]. out: momentum (m), direction (m). For matrices, momentum moves towards
  /// the gradient, and the direction is the gradient moved towards momentum (Nesterov); for all else the direction is
  /// 0.
  muon_moments,
  /// Makes a whole matrix of m rows and n columns nearly orthogonal by five steps of Newton-Schulz. in: directions (a
  /// piece of `parts.shard` elements for each rank that has parts of the bucket, tensor ranks next to each other). out:
  /// this rank's direction (parts.shard), in which its piece's part of the matrix is written; workspace. Does nothing
  /// if the piece has no part of the matrix. `expected`: 1 if the rank with the most work runs it, else 0.
  newton_schulz,
  /// Updates matrices along the result of newton_schulz, and all else as adamw does. in: grad (m), coefficient (1),
  /// direction (m), [scaling]. out: param, momentum and first moment (m), second moment (k: for the elements before the
  /// matrices), [copy]
  muon,
  // -- state spaces (models/layers/state_space_mixer.cpp). projected (n, 2 inner + 2 groups state + H): z, x, B, C, dt,
  // where inner = H*D; convolved (n, inner + 2 groups state): x, B, C. H heads of D columns, `kv_heads` groups;
  // Op::ssm has the other sizes.
  /// in: projected, weight (columns, taps), [bias (columns)]. out: convolved = silu of the causal convolution of each
  /// column of x, B and C by itself, over the tokens of a sequence
  causal_conv,
  /// in: dconvolved, projected, weight, [bias]. out: dprojected (its x, B and C), dweight, [dbias]; both accumulate
  causal_conv_grad,
  /// For each head, with dt = softplus(raw dt + bias) and a = exp(-exp(A_log) dt): S = a S + dt x B^T, y = S C + D x
  /// (Dao and Gu 2024, equation 1 with section 7's heads). in: convolved, projected (its dt), dt bias (H), A_log (H),
  /// D (H). out: y (n,inner)
  state_scan,
  /// in: dy, convolved, projected, dt bias, A_log, D. out: dconvolved, dprojected (its dt), ddt bias, dA_log, dD (these
  /// accumulate), states (B, chunks, H, D, state) fp32: before each chunk, made again
  state_scan_grad,
  /// in: y (n,inner), projected (its z), [weight (inner)]. out: RMSNorm(y silu(z)) of each of `norm_groups` runs of
  /// columns, [rstd (n,norm_groups)]; without runs y silu(z) alone. With `ssm.delta`: RMSNorm(y) silu(z), with a weight
  /// (inner / norm_groups) that the
  /// runs share
  gated_norm,
  gated_norm_grad,  ///< in: dout, y, projected, [weight], [rstd]. out: dy, dprojected (its z), [dweight (accumulates)]
  // -- an activation with parameters
  xielu,       ///< in: x (n,F), p (1), n (1) (models/activation.h). out: y
  xielu_grad,  ///< in: dy, x, p, n. out: dx (may be dy), dp, dn (accumulate)
  // -- gated delta networks: as state spaces (`ssm.delta`), with v, k and q in place of x, B and C, and two columns for
  // each head behind them, a and b: projected (n, 2 inner + 2 groups state + 2 H)
  /// For each head, with k and q divided by their lengths (the root of their squares' sum and 1e-6), q also by the root
  /// of `state`, a = exp(-exp(A_log) softplus(raw a + dt bias)) and b = sigmoid(raw b): S = a S (I - b k k^T) + b v
  /// k^T,
  /// y = S q (Yang, Kautz and Hatamizadeh 2024, equation 10, for the transposed state). in: convolved, projected (its a
  /// and b), dt bias (H), A_log (H). out: y (n,inner)
  delta_rule,
  /// in: dy, convolved, projected, dt bias, A_log. out: dconvolved, dprojected (its a and b), ddt bias, dA_log (these
  /// accumulate), states (B, chunks, H, D, state) fp32, made again
  delta_rule_grad,
  // -- attention whose output is gated (Model::attention_gate)
  output_gate,       ///< in: x (n,m), g (n,m). out: y = x sigmoid(g)
  output_gate_grad,  ///< in: dy, x, g. out: dx, dg (n,m)
  // -- attention that reads chosen tokens alone (Model::indexer): m small heads of k columns. Predicted, not executed
  /// in: queries (n,m*k), keys (n,k), [weights (n,m)]. out: choice (n,chosen) int32: of the tokens before each,
  /// those with the largest sums over heads of
  /// weight relu(query . key)
  choose_tokens,
  /// Of the divergence of the chosen tokens' scores, behind a softmax, from attention's probabilities, summed over its
  /// heads. in: qkv, saved, choice, queries, keys, [weights]. out: dqueries, dkeys, [dweights]
  choose_tokens_grad,
  // -- a gated short convolution (models/layers/convolution_mixer.cpp); `ssm.taps` tokens
  /// in: projected (n,3m): b, c and x, weight (m,taps). out: y (n,m) = c times the causal convolution of b x, each
  /// column by itself, over the tokens of a sequence
  gated_conv,
  gated_conv_grad,  ///< in: dy, projected, weight. out: dprojected, dweight (accumulates)
  // -- lightning attention (models/layers/lightning_mixer.cpp): H heads of D columns
  /// For each head h, with q, k and v behind silu and a = exp(-scale 2^(-8 (h + 1) / H)): S = a S + v k^T, y = S q. in:
  /// qkv (n, 3 H D): q of all heads, then k, then v. out: y (n, H D)
  decayed_attention,
  /// in: dy, qkv. out: dqkv, states (B, chunks, H, D, D) fp32: before each chunk, made again
  decayed_attention_grad,
  // -- Mamba's first form (models/layers/selective_mixer.cpp): H columns, each a head with a state of `ssm.state`
  /// For each column, with dt = softplus(raw dt + bias) and a_i = exp(-exp(A_log_i) dt): s_i = a_i s_i + dt x B_i, y =
  /// s C
  /// + D x (Gu and Dao 2023, algorithm 2). in: x (n,H), raw dt (n,H), B (n,state), C (n,state), dt bias (H), A_log
  /// (H,state), D (H). out: y (n,H)
  selective_scan,
  /// in: dy, x, raw dt, B, C, dt bias, A_log, D. out: dx, d raw dt, dB, dC, ddt bias, dA_log, dD (these accumulate),
  /// workspace (selective_workspace) fp32
  selective_scan_grad,
  // -- a router's trained numbers, one for each of E experts (models/layers/router_notes.h); n rows with k choices
  scale_choices,  ///< in: weights (n,k), choice (n,k) int32, scales (E). out: y (n,k) = weight times its expert's scale
  scale_choices_grad,  ///< in: dy, weights, choice, scales. out: dweights, dscales (accumulates)
  // -- each layer's own input (Model::layer_inputs): m columns, of those that the embedding has made for all layers.
  // Predicted, not executed
  layer_input,  ///< out: x (n,m)
  // -- several residual streams (Model::streams): k of m columns; and runs of tokens in one key (Model::compressed):
  // `run`
  // tokens of k*m columns, k runs that overlap. Predicted, not executed
  /// in: x (n,k*m), [logits (n,c), bias, scales]. out: y (n,m): the streams' weighted sum, [weights of add_streams,
  /// made
  /// in `chosen` steps]
  mix_streams,
  mix_streams_grad,  ///< in: dy, x, logits, bias, scales, [dweights]. out: dx, dlogits, dbias, dscales (these add)
  add_streams,       ///< in: [x (n,k*m)], h (n,m), [weights]. out: y (n,k*m): streams mixed, and h in each of them
  add_streams_grad,  ///< in: dy, x, h, weights. out: dx, dh, dweights
  /// Attention of H heads to one key of D columns, which is the value too, of `chosen` tokens and runs at most. in: q
  /// (n,H*D), key (n,D), sinks, [keys of runs (n/run,D)], [choice]. out: y (n,H*D), saved as attention's
  run_attention,
  run_attention_grad,  ///< in: dy, y, saved, q, key, sinks, [runs], [choice]. out: dq, dkey, dsinks (adds), [druns]
  pool_runs,           ///< in: x (n,k*m), gates, bias (run,k*m). out: y (n/run,m), each column the mean by a softmax
  pool_runs_grad,      ///< in: dy, x, gates, bias. out: dx, dgates, dbias (adds)
  /// in: x (n,m). out: y (n,m), of which the columns of each of `runs` are those of x times its factor (y may be x);
  /// its own gradient
  scale_columns,
};

/// newton_schulz: a bucket has `shards` pieces of `shard` elements, and the matrix begins at its element `offset`; its
/// rows or its columns are divided over some number of tensor ranks.
struct MatrixParts {
  std::int64_t offset = 0, shard = 0;
  std::int32_t shards = 1, row_ways = 1, column_ways = 1;
  bool operator==(const MatrixParts&) const = default;
};

/// What head_norm makes of v: nothing, a norm without a weight, or such a norm of k in its place; qkv then has no v.
enum class HeadValues : std::uint8_t { kept, normed, of_keys };

/// A state space's sizes beside heads, groups and head_dim; local to a rank.
struct StateSpaceShape {
  std::int64_t state = 0, taps = 0, chunk = 0, norm_groups = 0;
  bool delta = false;  ///< of a gated delta network
  auto operator<=>(const StateSpaceShape&) const = default;
};

/// Neighbouring runs of columns, from the first one on, and what each is multiplied by; the columns behind them stay.
struct ScaledRuns {
  std::array<std::int64_t, 5> columns = {};
  std::array<double, 5> factors = {};
  bool operator==(const ScaledRuns&) const = default;
};

/// How a router's logits become a choice and its weights: see models/experts.h.
struct Routing {
  Scores scores = Scores::softmax;
  bool normalised = false;
  double weight_scale = 1;
  std::int32_t groups = 1, groups_chosen = 1;
  bool groups_by_two = true;
  double aux = 0, z = 0;         ///< coefficients of the auxiliary losses over the tokens and layers of the step
  std::int64_t token_limit = 0;  ///< the tokens of each sequence that an expert takes at most; 0: no limit
  bool operator==(const Routing&) const = default;
};

/// What momentum_update does with gradient g, parameter p and state m, rate r and decay d:
///   sgd   adds g + d p to momentum m, and moves p along it (Sutskever et al. 2013, in the form of PyTorch's SGD)
///   lion  p -= r (sign(beta1 m + (1 - beta1) g) + d p), then m = beta2 m + (1 - beta2) g (Chen et al. 2023,
///         algorithm 2)
///   adagrad  m += g^2, p -= r g / (sqrt(m) + epsilon) (Duchi et al. 2011, in the form of PyTorch's Adagrad)
///   adam     only for tables (embedding_bag_update, table_update)
enum class UpdateRule : std::uint8_t { sgd, lion, adagrad, adam };

/// Steps of newton_schulz, as published.
inline constexpr int kNewtonSchulzSteps = 5;

/// Elements that share a scale in adamw_8bit. The paper's blocks have 2048; 256, as in later versions of its library,
/// keeps small parameters from being padded to many times their size.
inline constexpr std::int64_t kQuantisedBlock = 256;

/// Sizes and flags; each kind above says which of them it uses. Sizes are local to a rank.
struct Op {
  OpKind kind{};
  DType dtype = DType::fp32;  ///< of the activations and weights it touches
  bool trans_a = false;
  bool trans_b = false;
  bool accumulate = false;
  bool causal = false;
  bool flash = false;  ///< attention keeps row statistics instead of probabilities
  /// Products round their operands as they read them: bf16 to fp8, fp32 to tf32 (attention may too). Tensors keep
  /// `dtype`.
  bool rounded = false;
  bool four_bits = false;  ///< bf16 is rounded to fp4, not fp8
  /// matmul: see there. embedding, embedding_grad: n tokens, m local vocabulary rows, k = C. Optimizer kinds: m
  /// elements. All others: n rows of m columns (swiglu: m = F, the width of y).
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 0, sequence = 0;  ///< B (matmul, bias_grad: a step's samples, or 0); T: this rank's tokens
  /// Ways of context parallelism: a rank has chunks i and 2 context - 1 - i of a sequence of 2 context chunks, where i
  /// is its place in the group, so that causal attention is the same work on every rank (Megatron-core).
  std::int64_t context = 1;
  std::int64_t ring_step = 0;  ///< ring_attention: 0 is the rank's own block
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t value_dim = 0;            ///< columns of a head of v, and of y's; 0: head_dim
  bool joint = false;                    ///< head_norm: one norm over all heads of q, one over k's
  HeadValues values = HeadValues::kept;  ///< head_norm
  std::int64_t vocab = 0;                ///< global, unpadded; the shard begins at tensor_rank*m
  double epsilon = 0;                    ///< norm epsilon, or rope theta
  std::int64_t rotary = 0;               ///< rope, latent attention: columns of a head that turn; rope's 0: all
  RopeScaling rope_scaling;              ///< of rope
  Function function = Function::none;    ///< activate, gate and their gradients
  // Attention and related kinds. A score is q.k times score_scale (0: 1/sqrt(D)). With cap > 0 it becomes cap
  // tanh(score/cap). With alibi_heads > 0 (the number in the whole model), slope(head) (key - query) is added. With
  // window > 0 it is masked if query - key >= window. soft_cap also uses `cap`; so does cross_entropy_grad if the
  // logits are capped.
  double score_scale = 0, cap = 0;
  std::int64_t alibi_heads = 0, window = 0;
  bool row_shard =
      false;  ///< position_add, type_add, and with dropout: the n rows begin at row tensor_rank*n of the micro-batch
  double scale = 1;  ///< loss scale factor: 1/(tokens of the global batch); embedding: of its rows; matmul: of A B;
                     ///< decayed_attention: of its rates
  bool stochastic = false;            ///< updates: param has 16 bits and is rounded at random, instead of having a
                                      ///< master
  bool half_moments = false;          ///< adamw: both moments are bf16
  UpdateRule rule = UpdateRule::sgd;  ///< of momentum_update
  /// Updates: number `turn` of the `turns` within one training step; each counts as a step of the optimizer.
  std::int32_t turn = 0, turns = 1;
  /// dropout, add_bias (of x + bias), attention and related kinds (of the probabilities): the rate; 0: none. `site`:
  /// the place in the model that draws; different for each.
  double dropout = 0;
  std::int32_t site = 0;
  std::int64_t run = 0;       ///< pool_runs: tokens of one; choose_tokens: of a key, 0: one
  std::int64_t capacity = 0;  ///< sparse_encode, sparse_decode; mixtures of experts: rows that a slot has room for
  // Mixtures of experts. `chosen`: k; of attention, the tokens that each reads, 0: all. With `slots` > 0, rows of other
  // operators (gate, activate …) are in slots too, and their last input says how many there are.
  std::int64_t slots = 0, experts = 0, chosen = 0;
  Routing routing = {};
  TokenCodec codec = TokenCodec::none;  ///< encode_rows, decode_rows
  MatrixParts parts = {};               ///< newton_schulz
  StateSpaceShape ssm = {};             ///< state spaces
  ScaledRuns runs = {};                 ///< scale_columns
  /// Share of the rows that are present, if data decides their number: for prices, drawn from a stated distribution.
  /// Also used by newton_schulz.
  double expected = 1;
  std::vector<int> in;
  std::vector<int> out;
  bool operator==(const Op&) const = default;
};

/// Calls take(name, value) with each size on which an operator's time depends wherever it runs: what records of
/// measured operators hold, and what prices and times are remembered by.
template <class AnOp, class Take>
constexpr void each_size(AnOp& op, const Take& take) {
  take("m", op.m), take("n", op.n), take("k", op.k), take("batch", op.batch), take("sequence", op.sequence);
  take("heads", op.heads), take("kv_heads", op.kv_heads), take("head_dim", op.head_dim);
  take("value_dim", op.value_dim), take("vocab", op.vocab), take("window", op.window), take("rotary", op.rotary);
  take("alibi_heads", op.alibi_heads);
  take("state", op.ssm.state), take("taps", op.ssm.taps), take("chunk", op.ssm.chunk);
  take("norm_groups", op.ssm.norm_groups);
}
inline constexpr std::size_t kOpSizes = 17;

/// Columns of a head of v.
[[nodiscard]] inline std::int64_t value_columns(const Op& op) {
  return op.value_dim > 0 ? op.value_dim : op.head_dim;
}
/// Columns of k and v, and of packed q, k and v.
[[nodiscard]] inline std::int64_t key_value_columns(const Op& op) {
  return op.kv_heads * (op.head_dim + value_columns(op));
}
[[nodiscard]] inline std::int64_t packed_columns(const Op& op) {
  return op.heads * op.head_dim + key_value_columns(op);
}

/// How many runs of columns of q, of k and of v head_norm takes by themselves, and how wide they are.
struct NormedRuns {
  std::int64_t of_q = 0, q_width = 0, of_k = 0, k_width = 0;
  std::int64_t of_v = 0;  ///< as wide as those of k
  [[nodiscard]] std::int64_t count() const { return of_q + of_k + of_v; }
  /// Columns of q and k.
  [[nodiscard]] std::int64_t width() const { return of_q * q_width + of_k * k_width; }
};
[[nodiscard]] inline NormedRuns normed_runs(const Op& op) {
  const std::int64_t d = op.head_dim;
  if (op.joint) return {1, op.heads * d, 1, op.kv_heads * d};
  return {op.heads, d, op.kv_heads, d, op.values == HeadValues::kept ? 0 : op.kv_heads};
}

/// Columns of a state space's operands. Without a state there is only what is gated and convolved.
[[nodiscard]] inline std::int64_t inner_columns(const Op& op) {
  return op.heads * op.head_dim;
}
[[nodiscard]] inline std::int64_t convolved_columns(const Op& op) {
  return inner_columns(op) + 2 * op.kv_heads * op.ssm.state;
}
[[nodiscard]] inline std::int64_t projected_columns(const Op& op) {
  return inner_columns(op) + convolved_columns(op) + (op.ssm.state == 0 ? 0 : op.ssm.delta ? 2 : 1) * op.heads;
}
/// selective_scan_grad: states before each chunk, and of as many runs of columns the sums of B's and C's gradients.
inline constexpr std::int64_t kColumnRuns = 8;
[[nodiscard]] inline std::int64_t selective_workspace(const Op& op) {
  const std::int64_t chunks = (op.sequence + op.ssm.chunk - 1) / op.ssm.chunk;
  return (op.batch * chunks * op.heads + 2 * kColumnRuns * op.n) * op.ssm.state;
}
/// Chunks of a sequence.
[[nodiscard]] inline std::int64_t chunks_of(const Op& op) {
  return (op.sequence + op.ssm.chunk - 1) / op.ssm.chunk;
}

/// FLOPs; a multiply-add counts 2. Recomputed by hand in tests. Attention counts the full matrix if it is not causal;
/// if it is causal, the full matrix too (`full_attention_matrix`) or only the lower triangle that is really computed.
/// With a window of W keys, the full matrix is T rows of W.
[[nodiscard]] double flops_of(const Op& op, bool full_attention_matrix = false);
/// Tokens that each reads at most, in its own sequence: a window's, chosen ones, or all.
[[nodiscard]] std::int64_t tokens_seen(const Op& op);
/// Share of attention's T x T scores that masks leave, for an operator's own tokens.
[[nodiscard]] double seen_share(const Op& op);
/// Bytes read and written once each, as a kernel without reuse across ops moves them.
[[nodiscard]] double bytes_of(const Op& op);
/// The function that an activation's operator computes: fixed by its kind, or as Op::function says.
[[nodiscard]] Function function_of(const Op& op);
/// Whether an operator updates parameters.
[[nodiscard]] bool updates_parameters(OpKind kind);
/// Outputs that are gradients of weights, to which an operator adds although it could as well write: those that
/// `accumulate` applies to. Empty if it writes, and for operators that can only add.
[[nodiscard]] std::vector<std::size_t> writable_sums(const Op& op);
[[nodiscard]] const char* name_of(OpKind kind);
/// The last kind, for loops over all kinds.
inline constexpr OpKind kLastOpKind = OpKind::scale_columns;

}  // namespace orrery::models
