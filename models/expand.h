#pragma once
/// Expands one layer of a Model into operators, once, for cost to time and for exec to run. A LayerProgram lists the
/// tensors of the layer (local to one tensor-parallel rank) and two lists of parts: runs of operators, cut exactly
/// where the tensor-parallel group communicates. What backward needs of forward follows from who reads what.
#include <cstdint>
#include <string>
#include <vector>

#include "models/dtype.h"
#include "models/model.h"
#include "models/op.h"

namespace orrery::models {

enum class LayerKind { embedding, block, head };

enum class TensorRole {
  parameter,   ///< lives in a flat bucket
  gradient,    ///< of the parameter `of`
  activation,  ///< everything else; lives from its first writer to its last reader
  input,       ///< what enters from the previous layer (x) or, backward, from the next (dy)
  output,      ///< what leaves to the next layer (y) or, backward, to the previous (dx)
  tokens,      ///< (B,T) int32
  targets,     ///< (B,T) int32
  loss,        ///< scalar accumulator, lives for the step
  /// (2E+1) of a layer's choices of experts in the step, lives for the step; and of all layers and ranks, (E) tokens
  tally,
  load,
  /// (E) fp32, lives for the run: what is added to a score where experts are chosen; no gradient moves it
  balance,
  // A masked-language model has targets (B,k) for k predictions a sequence, and besides
  /// (B,T) int32
  token_types,
  /// (B,k) int32: rows of the micro-batch
  masked_rows,
  /// (B) int32: 0 where the second segment follows the first, 1 where it is from elsewhere
  next_sentence,
};

/// How a parameter's global shape maps to a rank's part: `axis` is cut into `tensor` equal parts; -1 = replicated.
/// A padded axis has more rows than the logical tensor; the rest is zero and stays zero.
struct Tensor {
  std::string name;  ///< unique in the layer: "ln_1.weight", "attention.qkv.weight", "h"
  TensorRole role = TensorRole::activation;
  std::vector<std::int64_t> shape = {};  ///< local
  DType dtype = DType::fp32;
  int of = -1;  ///< for gradients: the parameter's index
  // parameters only
  std::vector<std::int64_t> logical_shape = {};  ///< global, unpadded; same rank as `shape`
  int split_axis = -1;
  bool shared = false;  ///< the tied token table: one parameter, used by embedding and head
  bool decay = false;   ///< weight decay applies (matrices and embeddings)
  bool frozen = false;  ///< a parameter that does not train and has no gradient (models/lora.h)
  /// Each tensor rank sees some rows (sequence parallelism) or some heads; summed over the group.
  bool partial_gradient = false;
  double initial_stddev = 0;  ///< normal(0, stddev); 0 with initial_value
  double initial_value = 0;   ///< 1 for norm weights
  /// A fused parameter (q, k and v; gate and up) is stored as one matrix but is several logical tensors, in this order
  /// along axis 0; each carries its own name, shapes, split and initial values. Empty: the tensor is its own only
  /// piece.
  std::vector<Tensor> pieces = {};
  /// Of a piece of q, k and v: the rows that belong to one key/value head, and where they begin among all rows of q, k
  /// and v of that head. Weights of some families are stored head by head.
  std::int64_t group_rows = 0, group_first = 0, group_stride = 0;
  /// Of an expert's own: which of the rank's experts it is; the name says so too, until it is known whose rank it is
  /// (plan::name_experts). -1: of no expert.
  std::int64_t expert = -1;
  /// Rows of another tensor of the layer, from its element `first` on: memory of its own it has none. -1: it has.
  int part_of = -1;
  std::int64_t first = 0;
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t bytes() const { return elements() * size_of(dtype); }
};

enum class GroupOperation { sum, maximum };
enum class GroupCollective { all_reduce, all_gather, reduce_scatter, ring_shift, all_to_all };

/// A run of ops without communication, or one collective over the tensor group: an all-reduce of `tensor` in place, or
/// an all-gather or reduce-scatter of `source` into `tensor`. ring_shift runs over the context group: `source` becomes
/// the next member's `tensor`. all_to_all runs over the expert group, from `source` into `tensor`, in as many pieces as
/// it has members; with `sent` and `received` it is counted (plan::Counted).
struct Part {
  std::vector<Op> ops;
  int tensor = -1;
  GroupOperation reduce = GroupOperation::sum;
  GroupCollective collective = GroupCollective::all_reduce;
  int source = -1;
  bool recomputed = false;       ///< within backward: operators of forward, run again
  int sent = -1, received = -1;  ///< tensors of int32 counts; -1: whole pieces
  double expected = 1;           ///< counted: share of the bound that is there
  [[nodiscard]] bool is_communication() const { return tensor >= 0; }
};

struct LayerProgram {
  LayerKind kind{};
  std::vector<Tensor> tensors;
  std::vector<Part> forward;
  std::vector<Part> backward;
  /// Forward where no backward follows it (evaluation), if that is another: of a head whose loss comes in chunks, or
  /// with its gradient.
  std::vector<Part> evaluation;
  int x = -1, y = -1;    ///< forward input and output; -1 where there is none (embedding has no x, head no y)
  int dy = -1, dx = -1;  ///< backward input and output
};

struct ExpandOptions {
  std::int64_t batch = 1;     ///< B of one micro-batch
  std::int64_t sequence = 1;  ///< T; with context parallelism the tokens of a sequence that a rank has
  std::int64_t context = 1;   ///< context-parallel ways; needs `flash`
  std::int64_t tensor = 1;    ///< tensor-parallel ways; heads, F and padded V divide by it
  DType dtype = DType::fp32;  ///< of activations and of the weights that compute reads
  bool flash = true;
  /// Below `dtype` in products: fp8 in the linear layers of blocks, tf32 in every product.
  DType products = DType::fp32;
  /// Korthikanti et al. 2022, section 4.2.2: what is computed row by row (norms, residuals) holds n/tensor rows on each
  /// rank; products gather their rows and scatter their sums. Rows are the micro-batch's, so `tensor` divides B*T.
  bool sequence_parallel = false;
  std::int64_t vocab_multiple = 128;  ///< padded vocabulary is a multiple of this times `tensor`
  bool dropout = true;                ///< the model's; false where it does not train
  std::int64_t global_tokens = 1;     ///< tokens of the whole step, for the loss scale
  /// Ranks among which a layer's experts are divided, each of which has as many; and for how many times the balanced
  /// number of rows a slot has room, where nothing else bounds it.
  std::int64_t expert = 1;
  double expert_bound = 2;
  bool whole_experts = false;  ///< whatever `tensor`: they take a rank's own rows, which are apart
  double imbalance = 1;        ///< the fullest rank's rows over the mean: what prices take
  TokenCodec dispatch = TokenCodec::none, combine = TokenCodec::none;  ///< rows on their way to experts, and back
  std::int64_t loss_chunks = 1;  ///< of the rows that the head has logits of (models/loss_chunks.h)
  bool loss_at_once = false;     ///< the gradient of whole logits follows the loss in the forward pass
};

[[nodiscard]] LayerProgram expand(const Model& model, LayerKind kind, std::int64_t layer, const ExpandOptions& options);
/// The tensor whose memory `tensor` is, or is part of.
[[nodiscard]] int owner_of(const LayerProgram& program, int tensor);
[[nodiscard]] std::int64_t padded_vocab(const Model& model, std::int64_t tensor, std::int64_t multiple);

}  // namespace orrery::models
