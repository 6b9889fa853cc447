#pragma once
/// The CUDA kernels, one launcher per operator of models/operators/op.h and some for two that follow each other. T is
/// the type of activations and weights (float, __half, __nv_bfloat16), GradientOf<T> that of weights' gradients; all
/// arithmetic is in fp32. Shapes are those of op.h: row-major, n rows. Every launcher queues on `stream` and returns;
/// every reduction has a fixed order, so that a run repeats bit by bit. Each .cu file instantiates its launchers for
/// the three types.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "models/activation.h"

struct __half;
struct __nv_bfloat16;

namespace orrery::exec::cuda {

using std::int32_t;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

/// The same type as plan::gradient_dtype.
template <class T>
struct GradientType {
  using Type = float;
};
template <>
struct GradientType<__half> {
  using Type = __half;
};
template <class T>
using GradientOf = typename GradientType<T>::Type;

/// Device memory for what a kernel needs besides its operands; free again once the stream has passed.
struct KernelScratch {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// -- dropout: masks are drawn, never stored (models/operators/dropout.h), here by one operator of one rank
/// Which masks: the same for a whole launch, except for the training step, which is read on the device, so that each
/// replay of a graph draws new ones.
struct DropoutDraw {
  const int64_t* step = nullptr;  ///< on the device: the training step that has begun; null: nothing is dropped
  int64_t ahead = 0;              ///< the masks are those of this many steps later
  uint64_t seed = 0;
  uint32_t site = 0, first_sequence = 0;
  uint32_t threshold = 0;  ///< an element is dropped if its 16 bits are below this
  float scale = 1;         ///< factor of kept elements
};

// embedding.cu: `first_id` is the first token id of this rank's shard of `shard_rows` rows; rows are multiplied by
// `scale`.
template <class T>
void embedding(cudaStream_t stream, const int32_t* tokens, const T* table, T* x, int64_t rows, int64_t columns,
               int64_t first_id, int64_t shard_rows, float scale);
/// Adds in the order of the tokens. `scratch`: 8 (shard_rows + rows) bytes for a list of each token's places; with
/// less, the block of a token's first place searches for the others.
template <class T>
void embedding_grad(cudaStream_t stream, const int32_t* tokens, const T* dx, GradientOf<T>* dtable, int64_t rows,
                    int64_t columns, int64_t first_id, int64_t shard_rows, float scale, KernelScratch scratch);
/// Row r of a sequence is at position r; with `context` > 1, at the position where chunks `part` and 2 context - 1 -
/// part have it.
struct Positions {
  int64_t context = 1, part = 0;
};
/// Masks of rows with `sequence` rows to a sequence; the first is row `first_row` of the micro-batch.
struct RowMasks {
  DropoutDraw draw;
  int64_t sequence = 1, first_row = 0;
  Positions positions;
};
/// Row i of x is row first + i of the micro-batch.
template <class T>
void position_add(cudaStream_t stream, const T* x, const T* table, T* y, int64_t rows, int64_t columns,
                  int64_t sequence, int64_t first, const Positions& positions);
template <class T>
void position_grad(cudaStream_t stream, const T* dx, GradientOf<T>* dtable, int64_t rows, int64_t columns,
                   int64_t sequence, const Positions& positions);

// norm.cu. Forward: with `residual` (else null) the row is residual + x [+ added_bias], which is also written to `sum`
// and used as rounded there. Backward: `addend` may be null, `dx` may be `dy`, `x` or `addend`; column sums are cut
// into as many parts as `scratch` has room for.
template <class T>
struct NormInput {
  const T* x = nullptr;
  const T* residual = nullptr;
  const T* added_bias = nullptr;
  T* sum = nullptr;
  RowMasks masks;  ///< of x + added_bias
};
template <class T>
void layer_norm(cudaStream_t stream, const NormInput<T>& in, const T* weight, const T* bias, T* y, float* mean,
                float* rstd, int64_t rows, int64_t columns, float epsilon);
template <class T>
void layer_norm_grad(cudaStream_t stream, const T* dy, const T* x, const T* weight, const float* mean,
                     const float* rstd, const T* addend, T* dx, GradientOf<T>* dweight, GradientOf<T>* dbias,
                     int64_t rows, int64_t columns, KernelScratch scratch, bool adds);
template <class T>
void rms_norm(cudaStream_t stream, const NormInput<T>& in, const T* weight, T* y, float* rstd, int64_t rows,
              int64_t columns, float epsilon);
template <class T>
void rms_norm_grad(cudaStream_t stream, const T* dy, const T* x, const T* weight, const float* rstd, const T* addend,
                   T* dx, GradientOf<T>* dweight, int64_t rows, int64_t columns, KernelScratch scratch, bool adds);
template <class T>
void bias_grad(cudaStream_t stream, const T* dy, GradientOf<T>* dbias, int64_t rows, int64_t columns,
               KernelScratch scratch, bool adds);

// attention.cu: packed heads as in op.h. Flash attention of 16-bit operands uses the tensor cores if heads are 16, 32,
// 64, 80, 96 or 128 wide; backward then keeps one float per query and head in `scratch`.
/// Masks of probabilities: for this rank's queries and the keys of rank `owner` of the ring. `first_head`: the number
/// of the rank's first head in the model.
struct ScoreMasks {
  DropoutDraw draw;
  Positions queries;
  int64_t owner = 0, first_head = 0;
};
struct AttentionShape {
  int64_t batch = 0, sequence = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = false;
  bool flash = false;  ///< `saved` is lse (B,H,T); else probabilities (B,H,T,T)
  ScoreMasks masks;    ///< probabilities are saved without masks
  // Other changes of scores, as in models/operators/op.h; `first_head`: the number of the rank's first head in the
  // model.
  double score_scale = 0, cap = 0;
  int64_t window = 0;
  int alibi_heads = 0, first_head = 0;
};
inline constexpr int kMaxHeadDim = 256;
/// Head widths for which there are kernels on tensor cores.
[[nodiscard]] constexpr bool has_tensor_kernel(int head_dim) {
  return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128;
}
/// `saved`: floats for flash attention, else T.
template <class T>
void attention(cudaStream_t stream, const AttentionShape& shape, const T* qkv, T* y, void* saved);
template <class T>
void attention_grad(cudaStream_t stream, const AttentionShape& shape, const T* dy, const T* qkv, const T* y,
                    const void* saved, T* dqkv, KernelScratch scratch);
/// One block of ring attention: the part of another rank's keys that the mask leaves.
struct RingBlock {
  int64_t first_query = 0;  ///< of each sequence; queries before it see none of these keys
  int64_t keys = 0;         ///< only this many, from the first on, count
  bool triangle = false;    ///< the rank's own block under a causal mask
  bool accumulate = false;  ///< the result is merged into y and lse; backward: added to dq
};
template <class T>
void ring_attention(cudaStream_t stream, const AttentionShape& shape, const RingBlock& block, const T* qkv, const T* kv,
                    T* y, float* lse);
template <class T>
void ring_attention_grad(cudaStream_t stream, const AttentionShape& shape, const RingBlock& block, const T* dy,
                         const T* qkv, const T* y, const float* lse, const T* kv, T* dqkv, T* dkv,
                         KernelScratch scratch);
/// A block of a ring in memory of its own, (batch, queries, heads, dim), with statistics (batch, heads, queries); and
/// the place that it goes to: the same queries and heads in sequences of `sequence` rows, with all heads.
struct BlockPlace {
  int64_t batch = 0, queries = 0, sequence = 0;
  int heads = 0, all_heads = 0, dim = 0;
};
/// Merges y, which other keys made with the log-sum-exp `lse`, with the block's result, as if both sets of keys had
/// made it. `y` and `lse` begin at the block's first query and head. T: 16 bits.
template <class T>
void merge_ring_block(cudaStream_t stream, const BlockPlace& place, const T* block, const float* block_lse, T* y,
                      float* lse);
/// Adds the block to rows that are `stride` elements apart.
template <class T>
void add_ring_queries(cudaStream_t stream, const BlockPlace& place, const T* block, T* dq, int64_t stride);
/// How pairs of a head rotate: radians from one position to the next, and the factor on cosines and sines. Passed to
/// kernels by value.
struct Rotation {
  static constexpr int kMostPairs = 256;
  double rates[kMostPairs];
  double attention;
};
/// Rotates the pairs (i, i + R/2) of the first R = `rotary` columns of every q and k head by t * rates[i] times
/// `direction` (+1 forward, -1 back). Su et al., "RoFormer" (2021), eq. 34, with the pairing of Llama's published
/// weights. Angles are computed in `scratch`.
template <class T>
void rope(cudaStream_t stream, const AttentionShape& shape, const Positions& positions, const T* in, T* out,
          int64_t rotary, const Rotation& rotation, double direction, KernelScratch scratch);
/// Columns [first, first + width) of rows of `wide` columns to or from a matrix of `width` columns.
template <class T>
void take_columns(cudaStream_t stream, const T* from, T* to, int64_t rows, int64_t wide, int64_t first, int64_t width);
template <class T>
void put_columns(cudaStream_t stream, const T* from, T* to, int64_t rows, int64_t wide, int64_t first, int64_t width);

// elementwise.cu
template <class T>
void gelu_erf(cudaStream_t stream, const T* x, T* y, int64_t count);
template <class T>
void gelu_erf_grad(cudaStream_t stream, const T* dy, const T* x, T* dx, int64_t count);
template <class T>
void tanh_of(cudaStream_t stream, const T* x, T* y, int64_t count);
template <class T>
void tanh_grad(cudaStream_t stream, const T* dy, const T* y, T* dx, int64_t count);
template <class T>
void add_bias(cudaStream_t stream, const T* residual, const T* x, const T* bias, T* y, int64_t rows, int64_t columns);
/// x and y may be the same; so may dx and dy.
template <class T>
void relu(cudaStream_t stream, const T* x, T* y, int64_t count);
template <class T>
void relu_grad(cudaStream_t stream, const T* dy, const T* y, T* dx, int64_t count);
/// c = a + b, element by element.
template <class T>
void add(cudaStream_t stream, const T* a, const T* b, T* c, int64_t count);
/// Adds `bias` to every row of `y`.
template <class T, class B>
void add_bias_to_rows(cudaStream_t stream, const B* bias, T* y, int64_t rows, int64_t columns);

// activations.cu: the activations of exec/engine/activations.h, where `gate` has x (rows, 2 columns); caps of logits;
// norms of heads, as in models/operators/op.h. y and x may be the same except in `gate`; so may dx and dy.
template <class T>
void activate(cudaStream_t stream, models::Function function, const T* x, T* y, int64_t count);
template <class T>
void activate_grad(cudaStream_t stream, models::Function function, const T* dy, const T* x, T* dx, int64_t count);
template <class T>
void gate(cudaStream_t stream, models::Function function, const T* x, T* y, int64_t rows, int64_t columns);
template <class T>
void gate_grad(cudaStream_t stream, models::Function function, const T* dy, const T* x, T* dx, int64_t rows,
               int64_t columns);
template <class T>
void soft_cap(cudaStream_t stream, const T* x, T* y, int64_t count, float cap);
template <class T>
void head_norm(cudaStream_t stream, const AttentionShape& shape, bool joint, const T* x, const T* weight_q,
               const T* weight_k, T* y, float* rstd, float epsilon);
/// `scratch`: parts as wide as a weight, in floats, as many as there is room for.
template <class T>
void head_norm_grad(cudaStream_t stream, const AttentionShape& shape, bool joint, const T* dy, const T* x,
                    const T* weight_q, const T* weight_k, const float* rstd, T* dx, GradientOf<T>* dweight_q,
                    GradientOf<T>* dweight_k, KernelScratch scratch);

// dropout.cu: y = x under its mask, or residual + (x + bias) under it; `bias` may be null.
template <class T>
void drop_rows(cudaStream_t stream, const RowMasks& masks, const T* x, T* y, int64_t rows, int64_t columns);
template <class T>
void add_dropped(cudaStream_t stream, const RowMasks& masks, const T* residual, const T* x, const T* bias, T* y,
                 int64_t rows, int64_t columns);

// sparse.cu: the nonzero outputs of a ReLU (models/encoding.h), out of `count` values of type T in rows of `columns`.
/// `scratch`: 8 bytes for each kSparsePiece values.
inline constexpr int64_t kSparsePiece = 8192;
struct SparseBytes {
  int64_t* count = nullptr;  ///< nonzero values
  uint8_t* bits = nullptr;   ///< one for each value
  void* values = nullptr;
  int64_t capacity = 0;
};
template <class T>
void sparse_encode(cudaStream_t stream, const T* x, const SparseBytes& to, int64_t count, KernelScratch scratch);
/// Queues a kernel that restores x, and one that computes x again as relu(a weight^T + bias), with a (rows, inner),
/// weight (columns, inner), `bias` or null, and in `tf32` with rounded factors; on the device, one of the two does
/// nothing.
template <class T>
void sparse_decode(cudaStream_t stream, const SparseBytes& from, const T* a, const T* weight, const T* bias, T* x,
                   int64_t rows, int64_t columns, int64_t inner, bool tf32, KernelScratch scratch);

// loss.cu: a rank's shard of `columns` logits; only the first `valid` are real; `first_id` is the first one's id.
template <class T>
void softmax_max(cudaStream_t stream, const T* logits, float* max, int64_t rows, int64_t columns, int64_t valid);
template <class T>
void softmax_sum(cudaStream_t stream, const T* logits, const float* max, const int32_t* targets, float* sums,
                 int64_t rows, int64_t columns, int64_t valid, int64_t first_id);
/// Both of the above in one pass over the logits.
template <class T>
void softmax_statistics(cudaStream_t stream, const T* logits, const int32_t* targets, float* max, float* sums,
                        int64_t rows, int64_t columns, int64_t valid, int64_t first_id);
void cross_entropy(cudaStream_t stream, const float* max, const float* sums, float* loss, int64_t rows, float scale);
/// `scaling` (null: 1) is the loss scale on the device. With a `cap`, logits are capped, and dlogits is the gradient
/// before the cap.
template <class T>
void cross_entropy_grad(cudaStream_t stream, const T* logits, const float* max, const float* sums,
                        const int32_t* targets, const float* scaling, T* dlogits, int64_t rows, int64_t columns,
                        int64_t valid, int64_t first_id, float scale, float cap);

/// The whole loss if the vocabulary is not split, in one pass over the logits, which become their gradient. `counter`
/// is 0 before and after: the last block to finish adds up the loss, in the order of the rows.
template <class T>
struct WholeLoss {
  T* logits = nullptr;
  const int32_t* targets = nullptr;
  const float* scaling = nullptr;  ///< null: 1
  float* max = nullptr;
  float* sums = nullptr;
  float* loss = nullptr;
  int64_t rows = 0, columns = 0, valid = 0;
  float loss_scale = 1, gradient_scale = 1, cap = 0;
  unsigned* counter = nullptr;
};
template <class T>
void whole_cross_entropy(cudaStream_t stream, const WholeLoss<T>& loss);

// masked.cu: BERT's token types, chosen rows, and loss over few classes. Values from data are checked where they are
// made (exec/data/masked_data.h); for a type, row or class that does not exist, kernels read nothing and make NaN,
// which the loss then shows.
template <class T>
void type_add(cudaStream_t stream, const int32_t* types, const T* x, const T* table, T* y, int64_t rows,
              int64_t columns, int64_t kinds);
/// `scratch`: (parts, kinds, columns) floats, with as many parts as there is room for.
template <class T>
void type_grad(cudaStream_t stream, const int32_t* types, const T* dx, GradientOf<T>* dtable, int64_t rows,
               int64_t columns, int64_t kinds, KernelScratch scratch);
/// `count` rows of a micro-batch of `all` rows; this rank has `held` of these, from `first` on.
struct ChosenRows {
  const int32_t* rows = nullptr;  ///< null: every `stride`-th
  int64_t count = 0, stride = 0, all = 0, first = 0, held = 0;
};
template <class T>
void gather_rows(cudaStream_t stream, const ChosenRows& chosen, const T* x, T* y, int64_t columns);
/// If a row was chosen twice, its gradients are added in the order in which rows were chosen.
template <class T>
void scatter_rows(cudaStream_t stream, const ChosenRows& chosen, const T* dy, T* dx, int64_t columns, bool accumulate);
template <class T>
void class_loss(cudaStream_t stream, const T* logits, const int32_t* classes, float* loss, int64_t rows,
                int64_t columns, double scale);
template <class T>
void class_loss_grad(cudaStream_t stream, const T* logits, const int32_t* classes, const float* scaling, T* dlogits,
                     int64_t rows, int64_t columns, double scale);

}  // namespace orrery::exec::cuda
