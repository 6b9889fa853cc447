#pragma once
/// The inner loops of the CPU backend: a table of functions, compiled once per instruction set (exec/cpu/simd/) and
/// chosen when the backend is made. All work on contiguous fp32 rows; the caller divides rows or columns over threads.
/// Results do not depend on that division.
#include <cstdint>

#include "models/activation.h"

namespace orrery::exec {

/// Constants of one AdamW update, with bias corrections already applied.
struct AdamWFactors {
  float gradient = 1;  ///< clip coefficient
  float beta1 = 0, beta2 = 0;
  float rest1 = 1, rest2 = 1;  ///< 1 - beta1, 1 - beta2
  float keep = 1;              ///< 1 - learning rate * weight decay
  float step = 0;              ///< learning rate / (1 - beta1^t)
  float denominator = 1;       ///< 1 / sqrt(1 - beta2^t)
  float epsilon = 0;
  float decay = 0;  ///< LAMB: the weight decay in its direction
};

/// Constants of one SGD update; weight decay is added to the gradient.
struct SgdFactors {
  float gradient = 1;
  float decay = 0;
  float momentum = 0;
  float rate = 0;
  bool nesterov = false;
};

/// A dropout mask (models/operators/dropout.h): its identity, and what it does to elements.
struct DropoutDraw {
  std::uint64_t key = 0;
  std::uint32_t site = 0, sequence = 0;
  std::uint32_t threshold = 0;  ///< of 2^16: 16 random bits below this drop an element
  float scale = 1;              ///< factor for elements that are kept
};

/// C (m,n) = op(A) op(B), or with `adds` C + it; op transposes if trans_a, trans_b say so. Row-major, with leading
/// dimensions; k is at least 1.
struct Product {
  bool trans_a = false, trans_b = false, adds = false;
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
};

/// How a bag's rows are summed: as four blocks, each of consecutive rows of a table, the sums of the blocks as
/// (0 + 1) + (2 + 3). The lookups are in the order of their blocks.
struct RowBlocks {
  const std::int32_t* rows = nullptr;   ///< of each lookup, which itself may name a place elsewhere
  const std::int32_t* first = nullptr;  ///< the first rows of blocks 1 to 3; nullptr: all rows are of one block
};

struct Kernels {
  using Count = std::int64_t;
  const char* name;  ///< "avx512", "avx2", "baseline"

  // -- rows of (rows, columns)
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float* y, float* mean, float* rstd,
                     Count rows, Count columns, float epsilon);
  /// dx = gradient + addend (null: none). dx may be dy or addend.
  void (*layer_norm_grad)(const float* dy, const float* x, const float* weight, const float* mean, const float* rstd,
                          const float* addend, float* dx, Count rows, Count columns);
  void (*rms_norm)(const float* x, const float* weight, float* y, float* rstd, Count rows, Count columns,
                   float epsilon);
  void (*rms_norm_grad)(const float* dy, const float* x, const float* weight, const float* rstd, const float* addend,
                        float* dx, Count rows, Count columns);

  // -- sums over `rows` rows, `stride` apart, of `columns` columns; all accumulate
  void (*column_sum)(const float* x, float* sum, Count rows, Count stride, Count columns);
  /// dweight += sum dy*(x-mean)*rstd, dbias += sum dy. mean and dbias may be null.
  void (*norm_weight_grad)(const float* dy, const float* x, const float* mean, const float* rstd, float* dweight,
                           float* dbias, Count rows, Count stride, Count columns);

  // -- elementwise over `count` elements
  void (*gelu_erf)(const float* x, float* y, Count count);
  void (*gelu_erf_grad)(const float* dy, const float* x, float* dx, Count count);
  void (*add)(const float* a, const float* b, float* c, Count count);
  /// y = a + b + bias (null: none), row by row
  void (*add_bias)(const float* a, const float* b, const float* bias, float* y, Count rows, Count columns);

  // -- attention: one row of scores in place
  /// p = exp(scale*s - max)/sum over `count` elements; returns max + log(sum).
  float (*softmax_row)(float* scores, Count count, float scale);
  /// s = exp(scale*s - lse)
  void (*probabilities_row)(float* scores, Count count, float scale, float lse);
  /// dp = scale * p * (dp - dot)
  void (*softmax_grad_row)(const float* p, float* dp, Count count, float scale, float dot);
  float (*dot)(const float* a, const float* b, Count count);

  // -- loss: rows are `stride` apart; only the first `columns` columns count
  void (*row_max)(const float* logits, float* max, Count rows, Count stride, Count columns);
  void (*row_exp_sum)(const float* logits, const float* max, float* sum, Count rows, Count stride, Count columns);
  /// dlogits = exp(logits - max) * scale / sum; the rest of the row is zero
  void (*row_softmax)(const float* logits, const float* max, const float* sum, float* dlogits, Count rows, Count stride,
                      Count columns, float scale);

  // -- optimizer
  double (*sum_of_squares)(const float* x, Count count);  ///< in double precision
  void (*adamw)(const float* gradient, float* parameter, float* first, float* second, Count count,
                const AdamWFactors& factors);
  /// `momentum` may be null.
  void (*sgd)(const float* gradient, float* parameter, float* momentum, Count count, const SgdFactors& factors);
  /// Updates both moments; direction = step m / (sqrt(v) denominator + epsilon) + decay parameter.
  void (*lamb_direction)(const float* gradient, const float* parameter, float* first, float* second, float* direction,
                         Count count, const AdamWFactors& factors);
  /// parameter -= rate * the same direction
  void (*lamb_step)(const float* first, const float* second, float* parameter, Count count, const AdamWFactors& factors,
                    float rate);
  // -- rows of embedding tables, `width` values each; zeros if `count` is 0
  /// sum = rows index[0] ... index[count - 1], those of each block in that order, the blocks' sums as a tree. Rows of
  /// index[count, known) are prefetched.
  void (*sum_rows)(const float* rows, const std::int32_t* index, const RowBlocks& blocks, Count count, Count known,
                   Count width, float* sum);
  /// The same of lookups of two words, a row and the bits of the fp32 weight by which it is multiplied.
  void (*sum_weighted_rows)(const float* rows, const std::int32_t* lookups, const RowBlocks& blocks, Count count,
                            Count known, Count width, float* sum);
  /// The same for rows that begin at base[starts[i]], and with weights, as one block.
  void (*sum_parts)(const float* base, const std::int64_t* starts, Count count, Count known, Count width, float* sum);
  void (*sum_weighted_parts)(const float* base, const std::int64_t* starts, const float* weights, Count count,
                             Count known, Count width, float* sum);

  // -- 16-bit values: bf16 and fp16, rounded to nearest even
  void (*from_bf16)(const std::uint16_t* x, float* y, Count count);
  void (*to_bf16)(const float* x, std::uint16_t* y, Count count);
  void (*from_fp16)(const std::uint16_t* x, float* y, Count count);
  void (*to_fp16)(const float* x, std::uint16_t* y, Count count);

  /// Factors of a mask's elements [first, first + count): 0 or the scale.
  void (*dropout_factors)(const DropoutDraw& draw, std::uint64_t first, Count count, float* factors);
  void (*relu)(const float* x, float* y, Count count);
  void (*relu_grad)(const float* dy, const float* y, float* dx, Count count);
  /// Activations of exec/engine/activations.h; gated ones are multiplied by `up`.
  void (*activate)(models::Function function, const float* x, float* y, Count count);
  void (*activate_grad)(models::Function function, const float* dy, const float* x, float* dx, Count count);
  void (*gate)(models::Function function, const float* gate, const float* up, float* y, Count count);
  void (*gate_grad)(models::Function function, const float* dy, const float* gate, const float* up, float* dgate,
                    float* dup, Count count);
  /// y (null: none) = cap tanh(scale*x/cap), slopes (null: none) = 1 - tanh^2; either may be x
  void (*cap)(const float* x, float* y, float* slopes, Count count, float scale, float cap);

  // -- products for few rows by many weights; null where no instruction multiplies and adds, and libraries are better
  /// An element's bits depend on its row, its column and k alone. `room`: product_room(p) values.
  void (*product)(const Product& p, float* room);
  Count (*product_room)(const Product& p);
};

}  // namespace orrery::exec
