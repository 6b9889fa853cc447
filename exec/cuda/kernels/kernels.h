#pragma once
/// The CUDA kernels, one launcher per operator of models/op.h and some for two that follow each other. T is the type of
/// activations and weights (float, __half, __nv_bfloat16), GradientOf<T> that of weights' gradients; all arithmetic is
/// in fp32. Shapes are those of op.h: row-major, n rows. Every launcher queues on `stream` and returns; every reduction
/// has a fixed order, so that a run repeats bit by bit. Each .cu file instantiates its launchers for the three types.
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

/// As plan::gradient_dtype.
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

// -- dropout: masks are drawn, never stored (models/dropout.h), here by one operator of one rank
/// Which masks: the same for the whole launch, but for the training step, which is read on the device, so that a graph
/// draws new ones with each replay.
struct DropoutDraw {
  const int64_t* step = nullptr;  ///< on the device: the training step that has begun; null: nothing is dropped
  int64_t ahead = 0;              ///< the masks are those of so many steps later
  uint64_t seed = 0;
  uint32_t site = 0, first_sequence = 0;
  uint32_t threshold = 0;  ///< what is dropped has 16 bits below it
  float scale = 1;         ///< of what is kept
};

// embedding.cu: `first_id` is the first token id of this rank's shard of `shard_rows` rows; rows count times `scale`.
template <class T>
void embedding(cudaStream_t stream, const int32_t* tokens, const T* table, T* x, int64_t rows, int64_t columns,
               int64_t first_id, int64_t shard_rows, float scale);
/// In order of the tokens. `scratch`: 8 (shard_rows + rows) bytes, for lists of each token's places; with less, every
/// first place looks for the others itself.
template <class T>
void embedding_grad(cudaStream_t stream, const int32_t* tokens, const T* dx, GradientOf<T>* dtable, int64_t rows,
                    int64_t columns, int64_t first_id, int64_t shard_rows, float scale, KernelScratch scratch);
/// Row r of a sequence is at position r, or with `context` > 1 where chunks `part` and 2 context - 1 - part of it lie.
struct Positions {
  int64_t context = 1, part = 0;
};
/// Masks of rows, of which the first is row `first_row` of the micro-batch, `sequence` rows to a sequence.
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
// and rounded as there. Backward: `addend` may be null, `dx` may be `dy`, `x` or `addend`; column sums are cut into as
// many parts as `scratch` has room for.
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

// attention.cu: packed heads as in op.h. Flash attention of 16-bit operands takes the tensor cores where heads are 16,
// 32, 64, 80, 96 or 128 wide; backward then keeps a float for each query of each head in `scratch`.
/// Masks of probabilities: of this rank's queries, for keys of the rank that is `owner` of the ring. Heads count on
/// from `first_head`.
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
  ScoreMasks masks;    ///< probabilities are saved as they are without
  // What else becomes of scores, as models/op.h has it; heads count on from `first_head` of the model's.
  double score_scale = 0, cap = 0;
  int64_t window = 0;
  int alibi_heads = 0, first_head = 0;
};
inline constexpr int kMaxHeadDim = 256;
/// Heads for which there are kernels on tensor cores.
[[nodiscard]] constexpr bool has_tensor_kernel(int head_dim) {
  return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128;
}
/// `saved`: float of flash attention, else T.
template <class T>
void attention(cudaStream_t stream, const AttentionShape& shape, const T* qkv, T* y, void* saved);
template <class T>
void attention_grad(cudaStream_t stream, const AttentionShape& shape, const T* dy, const T* qkv, const T* y,
                    const void* saved, T* dqkv, KernelScratch scratch);
/// One block of ring attention: what the mask leaves of another rank's keys.
struct RingBlock {
  int64_t first_query = 0;  ///< of each sequence; those before see none of these keys
  int64_t keys = 0;         ///< the first of them count
  bool triangle = false;    ///< the own block under a causal mask
  bool accumulate = false;  ///< merged with what is in y and lse; backward: added to dq
};
template <class T>
void ring_attention(cudaStream_t stream, const AttentionShape& shape, const RingBlock& block, const T* qkv, const T* kv,
                    T* y, float* lse);
template <class T>
void ring_attention_grad(cudaStream_t stream, const AttentionShape& shape, const RingBlock& block, const T* dy,
                         const T* qkv, const T* y, const float* lse, const T* kv, T* dqkv, T* dkv,
                         KernelScratch scratch);
/// A block of a ring that lies by itself, (batch, queries, heads, dim) and statistics (batch, heads, queries), and what
/// it goes into: the same queries and heads of sequences of so many rows, with all heads.
struct BlockPlace {
  int64_t batch = 0, queries = 0, sequence = 0;
  int heads = 0, all_heads = 0, dim = 0;
};
/// y, made of other keys with the log-sum-exp `lse`, and the block's: as if made of both. `y` and `lse` begin at the
/// block's first query and head. T: 16 bits.
template <class T>
void merge_ring_block(cudaStream_t stream, const BlockPlace& place, const T* block, const float* block_lse, T* y,
                      float* lse);
/// Adds the block to rows of `stride` elements from one to the next.
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
/// `direction` (+1 forward, -1 back).
/// Su et al., "RoFormer" (2021), eq. 34, with the pairing of Llama's published weights. Angles go through `scratch`.
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
/// x and y may be the same, as dx and dy.
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

// activations.cu: those of exec/engine/activations.h, `gate` with x (rows, 2 columns); caps of logits; norms of heads,
// as models/op.h has them. y and x may be the same but in `gate`, as dx and dy.
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
void head_norm(cudaStream_t stream, const AttentionShape& shape, const T* x, const T* weight_q, const T* weight_k, T* y,
               float* rstd, float epsilon);
/// `scratch`: as many parts of D floats as there is room for.
template <class T>
void head_norm_grad(cudaStream_t stream, const AttentionShape& shape, const T* dy, const T* x, const T* weight_q,
                    const T* weight_k, const float* rstd, T* dx, GradientOf<T>* dweight_q, GradientOf<T>* dweight_k,
                    KernelScratch scratch);

// dropout.cu: y = x under its mask, or residual + (x + bias) under it; `bias` may be null.
template <class T>
void drop_rows(cudaStream_t stream, const RowMasks& masks, const T* x, T* y, int64_t rows, int64_t columns);
template <class T>
void add_dropped(cudaStream_t stream, const RowMasks& masks, const T* residual, const T* x, const T* bias, T* y,
                 int64_t rows, int64_t columns);

// sparse.cu: what a ReLU has left (models/encoding.h), `count` values of type T in rows of `columns`.
/// `scratch`: 8 bytes for each kSparsePiece values.
inline constexpr int64_t kSparsePiece = 8192;
struct SparseBytes {
  int64_t* count = nullptr;  ///< values that are not zero
  uint8_t* bits = nullptr;   ///< one for each value
  void* values = nullptr;
  int64_t capacity = 0;
};
template <class T>
void sparse_encode(cudaStream_t stream, const T* x, const SparseBytes& to, int64_t count, KernelScratch scratch);
/// Queues what gives x back, and what computes x again as relu(a weight^T + bias), a (rows, inner), weight (columns,
/// inner), `bias` or null, in `tf32` of rounded factors; on the device one of both has nothing to do.
template <class T>
void sparse_decode(cudaStream_t stream, const SparseBytes& from, const T* a, const T* weight, const T* bias, T* x,
                   int64_t rows, int64_t columns, int64_t inner, bool tf32, KernelScratch scratch);

// loss.cu: a rank's shard of `columns` logits of which the first `valid` are real; `first_id` is the first one's id.
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
/// `scaling` (null: 1) is the loss scale on the device. With a `cap` logits are capped: theirs is the gradient before.
template <class T>
void cross_entropy_grad(cudaStream_t stream, const T* logits, const float* max, const float* sums,
                        const int32_t* targets, const float* scaling, T* dlogits, int64_t rows, int64_t columns,
                        int64_t valid, int64_t first_id, float scale, float cap);

/// All of it where the vocabulary is not split, in one pass over the logits, which become their gradient. `counter` is
/// 0 before and after: who has come last adds up the loss, in the order of the rows.
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

// masked.cu: BERT's token types, chosen rows, and loss over few classes. What data says is checked where it is made
// (exec/data/masked_data.h); a type, row or class that there is not reads nothing and makes NaN, which the loss then
// shows.
template <class T>
void type_add(cudaStream_t stream, const int32_t* types, const T* x, const T* table, T* y, int64_t rows,
              int64_t columns, int64_t kinds);
/// `scratch`: as much of (parts, kinds, columns) floats as there is room for.
template <class T>
void type_grad(cudaStream_t stream, const int32_t* types, const T* dx, GradientOf<T>* dtable, int64_t rows,
               int64_t columns, int64_t kinds, KernelScratch scratch);
/// `count` rows of a micro-batch of `all`, of which this rank has `held` from `first` on.
struct ChosenRows {
  const int32_t* rows = nullptr;  ///< null: every `stride`-th
  int64_t count = 0, stride = 0, all = 0, first = 0, held = 0;
};
template <class T>
void gather_rows(cudaStream_t stream, const ChosenRows& chosen, const T* x, T* y, int64_t columns);
/// In the order in which rows were chosen, where one was chosen twice.
template <class T>
void scatter_rows(cudaStream_t stream, const ChosenRows& chosen, const T* dy, T* dx, int64_t columns, bool accumulate);
template <class T>
void class_loss(cudaStream_t stream, const T* logits, const int32_t* classes, float* loss, int64_t rows,
                int64_t columns, double scale);
template <class T>
void class_loss_grad(cudaStream_t stream, const T* logits, const int32_t* classes, const float* scaling, T* dlogits,
                     int64_t rows, int64_t columns, double scale);

}  // namespace orrery::exec::cuda
