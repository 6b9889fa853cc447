#pragma once
/// The CUDA kernels, one launcher per operator of models/op.h, in fp32. Shapes are those of op.h: row-major, n rows.
/// Every launcher queues on `stream` and returns; every reduction has a fixed order, so that a run repeats bit by bit.
#include <cuda_runtime.h>

#include <cstdint>

namespace orrery::exec::cuda {

using std::int32_t;
using std::int64_t;

// embedding.cu: `first_id` is the first token id of this rank's shard of `shard_rows` rows.
void embedding(cudaStream_t stream, const int32_t* tokens, const float* table, float* x, int64_t rows, int64_t columns,
               int64_t first_id, int64_t shard_rows);
void embedding_grad(cudaStream_t stream, const int32_t* tokens, const float* dx, float* dtable, int64_t rows,
                    int64_t columns, int64_t first_id, int64_t shard_rows);
/// Row i of x is row first + i of the micro-batch.
void position_add(cudaStream_t stream, const float* x, const float* table, float* y, int64_t rows, int64_t columns,
                  int64_t sequence, int64_t first);
void position_grad(cudaStream_t stream, const float* dx, float* dtable, int64_t rows, int64_t columns,
                   int64_t sequence);

// norm.cu: `addend` may be null. `dx` may be `dy`, `x` or `addend`.
void layer_norm(cudaStream_t stream, const float* x, const float* weight, const float* bias, float* y, float* mean,
                float* rstd, int64_t rows, int64_t columns, float epsilon);
void layer_norm_grad(cudaStream_t stream, const float* dy, const float* x, const float* weight, const float* mean,
                     const float* rstd, const float* addend, float* dx, float* dweight, float* dbias, int64_t rows,
                     int64_t columns);
void rms_norm(cudaStream_t stream, const float* x, const float* weight, float* y, float* rstd, int64_t rows,
              int64_t columns, float epsilon);
void rms_norm_grad(cudaStream_t stream, const float* dy, const float* x, const float* weight, const float* rstd,
                   const float* addend, float* dx, float* dweight, int64_t rows, int64_t columns);
void bias_grad(cudaStream_t stream, const float* dy, float* dbias, int64_t rows, int64_t columns);

// attention.cu: packed heads as in op.h.
struct AttentionShape {
  int64_t batch = 0, sequence = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = false;
  bool flash = false;  ///< `saved` is lse (B,H,T); else probabilities (B,H,T,T)
};
inline constexpr int kMaxHeadDim = 256;
void attention(cudaStream_t stream, const AttentionShape& shape, const float* qkv, float* y, float* saved);
void attention_grad(cudaStream_t stream, const AttentionShape& shape, const float* dy, const float* qkv, const float* y,
                    const float* saved, float* dqkv);
/// Rotates the pairs (i, i + D/2) of every q and k head by t * theta^(-2i/D) times `direction` (+1 forward, -1 back).
/// Su et al., "RoFormer" (2021), eq. 34, with the pairing of Llama's published weights.
void rope(cudaStream_t stream, const AttentionShape& shape, const float* in, float* out, double theta,
          double direction);

// elementwise.cu
void gelu(cudaStream_t stream, const float* x, float* y, int64_t count);
void gelu_grad(cudaStream_t stream, const float* dy, const float* x, float* dx, int64_t count);
void swiglu(cudaStream_t stream, const float* x, float* y, int64_t rows, int64_t columns);
void swiglu_grad(cudaStream_t stream, const float* dy, const float* x, float* dx, int64_t rows, int64_t columns);
void add_bias(cudaStream_t stream, const float* residual, const float* x, const float* bias, float* y, int64_t rows,
              int64_t columns);
/// c = a + b, element by element.
void add(cudaStream_t stream, const float* a, const float* b, float* c, int64_t count);
/// Adds `bias` to every row of `y`.
void add_bias_to_rows(cudaStream_t stream, const float* bias, float* y, int64_t rows, int64_t columns);

// loss.cu: a rank's shard of `columns` logits of which the first `valid` are real; `first_id` is the first one's id.
void softmax_max(cudaStream_t stream, const float* logits, float* max, int64_t rows, int64_t columns, int64_t valid);
void softmax_sum(cudaStream_t stream, const float* logits, const float* max, const int32_t* targets, float* sums,
                 int64_t rows, int64_t columns, int64_t valid, int64_t first_id);
void cross_entropy(cudaStream_t stream, const float* max, const float* sums, float* loss, int64_t rows, float scale);
void cross_entropy_grad(cudaStream_t stream, const float* logits, const float* max, const float* sums,
                        const int32_t* targets, float* dlogits, int64_t rows, int64_t columns, int64_t valid,
                        int64_t first_id, float scale);

// optimizer.cu: a flat vector cut into tiles, each inside one ElementRange.
struct RangeTile {
  int64_t begin = 0;  ///< element
  int32_t count = 0;  ///< elements, at most kTileElements
  int32_t decay = 0;  ///< 1: weight decay applies
  double norm_weight = 1;
};
inline constexpr int64_t kTileElements = 16384;
/// total += sum over tiles of norm_weight * sum of squares. `partials` holds `tiles` doubles of scratch.
void norm_squared(cudaStream_t stream, const float* gradient, const RangeTile* table, int64_t tiles, double* partials,
                  float* total);
void clip_coefficient(cudaStream_t stream, const float* total, float* norm, float* coefficient, float clip_norm);
/// Constants of one step, rounded once from double: computed in float, 1 - 0.999 would be off by 5e-5 of itself.
struct AdamWStep {
  float keep = 1;              ///< 1 - learning rate * weight decay
  float rate = 0;              ///< learning rate / (1 - beta1^t), t from 1
  float root = 1;              ///< sqrt(1 - beta2^t)
  float beta1 = 0, rest1 = 1;  ///< rest1 = 1 - beta1
  float beta2 = 0, rest2 = 1;
  float epsilon = 0;
};
/// Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2, in the form PyTorch computes it.
/// `coefficient` may be null: 1.
void adamw(cudaStream_t stream, const float* gradient, const float* coefficient, float* parameter, float* first,
           float* second, const RangeTile* table, int64_t tiles, const AdamWStep& step);

}  // namespace orrery::exec::cuda
