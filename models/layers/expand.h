#pragma once
/// Expands one layer of a Model into operators: once, for cost to time and for exec to run. A LayerProgram lists the
/// layer's tensors (local to one tensor-parallel rank) and two lists of parts: runs of operators, cut exactly where the
/// tensor-parallel group communicates. What backward needs from forward follows from which operators read which
/// tensors.
#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "models/dtype.h"
#include "models/model.h"
#include "models/operators/op.h"

namespace orrery::models {

using TensorId = base::Id<struct TensorTag>;  ///< of a layer: LayerProgram::tensors

/// An operator's operand (models/operators/op.h, -1 if absent) as a tensor of its layer, and the other way around.
[[nodiscard]] constexpr TensorId tensor_of(int operand) {
  return operand < 0 ? TensorId() : TensorId(operand);
}
[[nodiscard]] constexpr int operand_of(TensorId tensor) {
  return tensor ? static_cast<int>(tensor.index()) : -1;
}

enum class LayerKind { embedding, block, head };

enum class TensorRole {
  parameter,   ///< lives in a flat bucket
  gradient,    ///< of the parameter `of`
  activation,  ///< everything else; lives from its first writer to its last reader
  input,       ///< what enters from the previous layer (x) or, backward, from the next (dy)
  output,      ///< what leaves to the next layer (y) or, backward, to the previous (dx)
  tokens,      ///< (B,T) int32
  targets,     ///< (B,T) int32
  /// (B,T) int32: the token after each target, which a module that predicts further predicts; -1 at a sequence's end
  further_targets,
  loss,  ///< scalar accumulator, lives for the step
  /// tally: (2E+1), a layer's choices of experts, for the step; load: (E), tokens over all layers and ranks
  tally,
  load,
  /// (E) fp32, lives for the run: added to the scores when experts are chosen; no gradient moves it
  balance,
  // Further inputs of a masked-language model, whose targets are (B,k) for k predictions per sequence
  /// (B,T) int32
  token_types,
  /// (B,k) int32: rows of the micro-batch
  masked_rows,
  /// (B) int32: 0 if the second segment follows the first, 1 if it comes from elsewhere
  next_sentence,
};

/// Whether it holds ids of tokens of a micro-batch.
[[nodiscard]] constexpr bool is_token_ids(TensorRole role) {
  return role == TensorRole::tokens || role == TensorRole::targets || role == TensorRole::further_targets;
}

/// How a parameter's values are drawn before the first step.
enum class Initial : std::uint8_t {
  normal,      ///< normal(0, stddev), or initial_value if stddev is 0
  decay_log,   ///< log of a rate that is uniform in [1, 16] (Dao and Gu 2024; Mamba-2's A)
  place_log,   ///< log of the place in its row, from 1 on (Gu and Dao 2023, section 3.6; Mamba's A)
  step_width,  ///< softplus of it is a step width whose log is uniform between those of 0.001 and 0.1
};

/// How a parameter's global shape maps to a rank's part: `axis` is cut into `tensor` equal parts; -1: replicated. A
/// padded axis has more rows than the logical tensor; the extra rows are zero and stay zero.
struct Tensor {
  std::string name;  ///< unique in the layer: "ln_1.weight", "attention.qkv.weight", "h"
  TensorRole role = TensorRole::activation;
  std::vector<std::int64_t> shape = {};  ///< local
  DType dtype = DType::fp32;
  TensorId of = {};  ///< for gradients: the parameter
  // parameters only
  std::vector<std::int64_t> logical_shape = {};  ///< global, unpadded; same rank as `shape`
  int split_axis = -1;
  bool shared = false;  ///< the tied token table: one parameter, used by embedding and head
  bool decay = false;   ///< weight decay applies (matrices and embeddings)
  bool frozen = false;  ///< a parameter that does not train and has no gradient (models/lora.h)
  /// Each tensor rank sees only some rows (sequence parallelism) or some heads; the group sums the gradient.
  bool partial_gradient = false;
  double initial_stddev = 0;  ///< normal(0, stddev); 0 with initial_value
  double initial_value = 0;   ///< 1 for norm weights
  Initial initial = Initial::normal;
  /// A fused parameter (q, k and v; gate and up) is stored as one matrix but consists of several logical tensors, in
  /// this order along axis 0; each has its own name, shapes, split and initial values. Empty: the tensor is a single
  /// piece.
  std::vector<Tensor> pieces = {};
  /// For pieces of q, k and v: how many rows belong to one key/value head, and where they begin among all q, k and v
  /// rows of that head. Some families store weights head by head. For pieces of the
  /// tensors of other mixers: the piece's rows of a group in the file's tensor, where they begin among all
  /// rows of that group, and how many these are.
  std::int64_t group_rows = 0, group_first = 0, group_stride = 0;
  /// For an expert's own parameter: which of the rank's experts it belongs to. The name says so too, until the rank is
  /// known (plan::name_experts). -1: none.
  std::int64_t expert = -1;
  /// This tensor consists of rows of another tensor of the layer, from element `first` on, and has no memory of its
  /// own. None: it has.
  TensorId part_of = {};
  std::int64_t first = 0;
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t bytes() const { return elements() * size_of(dtype); }
};

enum class GroupOperation { sum, maximum };
enum class GroupCollective { all_reduce, all_gather, reduce_scatter, ring_shift, all_to_all };

/// A run of operators without communication, or one collective over the tensor group: an all-reduce of `tensor` in
/// place, or an all-gather or reduce-scatter of `source` into `tensor`; with `experts` over the ranks that split an
/// expert. ring_shift runs over the context group: `source` becomes the next member's `tensor`. all_to_all runs over
/// the expert group, from `source` into `tensor`, in one piece per member; with `sent` and `received` it is counted
/// (plan::CountedRows).
struct Part {
  std::vector<Op> ops;
  TensorId tensor = {};
  GroupOperation reduce = GroupOperation::sum;
  GroupCollective collective = GroupCollective::all_reduce;
  TensorId source = {};
  bool recomputed = false;            ///< within backward: operators of forward, repeated
  TensorId sent = {}, received = {};  ///< of int32 counts; none: whole pieces
  double expected = 1;                ///< counted: the share of the bound that is filled
  bool experts = false;               ///< over the ranks that split an expert, not over the tensor group
  bool for_fp8 = false;               ///< all-gather: only fp8 products, and sums for a bias, read the result
  [[nodiscard]] bool is_communication() const { return tensor.exists(); }
};

struct LayerProgram {
  LayerKind kind{};
  base::ById<TensorId, Tensor> tensors;
  std::vector<Part> forward;
  std::vector<Part> backward;
  /// The forward pass for evaluation, if it differs: where the loss of the head comes in chunks, or together with its
  /// gradient.
  std::vector<Part> evaluation;
  TensorId x, y;    ///< forward input and output; none at the ends of the model (embedding has no x, head no y)
  TensorId dy, dx;  ///< backward input and output
};

struct ExpandOptions {
  std::int64_t batch = 1;     ///< B of one micro-batch
  std::int64_t sequence = 1;  ///< T; under context parallelism a rank's tokens of a sequence
  std::int64_t context = 1;   ///< context-parallel ways; needs `flash`
  std::int64_t tensor = 1;    ///< tensor-parallel ways; heads, F and padded V divide by it
  DType dtype = DType::fp32;  ///< of activations and of the weights that compute reads
  bool flash = true;
  /// Lower precision of products: fp8 in the linear layers of blocks, tf32 in every product.
  DType products = DType::fp32;
  /// Korthikanti et al. 2022, section 4.2.2: row-wise operators (norms, residuals) hold n/tensor rows on each rank;
  /// products gather their input rows and scatter their sums. Rows are the micro-batch's, so `tensor` divides B*T.
  bool sequence_parallel = false;
  std::int64_t vocab_multiple = 128;  ///< padded vocabulary is a multiple of this times `tensor`
  bool dropout = true;                ///< the model's dropout applies; false outside training
  std::int64_t global_tokens = 1;     ///< tokens of the whole step, for the loss scale
  /// expert: the number of ranks that share a layer's experts equally. expert_bound: a slot has room for this many
  /// times the balanced number of rows, unless something else bounds them.
  std::int64_t expert = 1;
  double expert_bound = 2;
  /// The number of ranks that split an expert; 0: the tensor group. Other ranks each route their own rows and gather
  /// one another's.
  std::int64_t expert_ways = 0;
  double imbalance = 1;  ///< the fullest rank's rows / the mean; used for prices
  TokenCodec dispatch = TokenCodec::none, combine = TokenCodec::none;  ///< for rows on their way to experts and back
  std::int64_t loss_chunks = 1;  ///< parts in which the head computes logits and loss (models/layers/loss_chunks.h)
  bool loss_at_once = false;     ///< forward computes the gradient of the whole logits right after the loss
};

[[nodiscard]] LayerProgram expand(const Model& model, LayerKind kind, std::int64_t layer, const ExpandOptions& options);
/// The tensor whose memory `tensor` uses: itself, or the one it is part of.
[[nodiscard]] TensorId owner_of(const LayerProgram& program, TensorId tensor);
[[nodiscard]] std::int64_t padded_vocab(const Model& model, std::int64_t tensor, std::int64_t multiple);

}  // namespace orrery::models
