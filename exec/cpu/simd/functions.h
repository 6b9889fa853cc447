#pragma once
/// One level's kernels, under the names that the table of exec/cpu/kernels.h gives them.
#include "exec/cpu/kernels.h"
#include "exec/cpu/simd/vector.h"

namespace orrery::exec::simd::ORRERY_SIMD_LEVEL {

void layer_norm(const float* x, const float* weight, const float* bias, float* y, float* mean, float* rstd, Count rows,
                Count columns, float epsilon);
void layer_norm_grad(const float* dy, const float* x, const float* weight, const float* mean, const float* rstd,
                     const float* addend, float* dx, Count rows, Count columns);
void rms_norm(const float* x, const float* weight, float* y, float* rstd, Count rows, Count columns, float epsilon);
void rms_norm_grad(const float* dy, const float* x, const float* weight, const float* rstd, const float* addend,
                   float* dx, Count rows, Count columns);
void column_sum(const float* x, float* total, Count rows, Count stride, Count columns);
void norm_weight_grad(const float* dy, const float* x, const float* mean, const float* rstd, float* dweight,
                      float* dbias, Count rows, Count stride, Count columns);
void gelu_erf(const float* x, float* y, Count count);
void gelu_erf_grad(const float* dy, const float* x, float* dx, Count count);
void add(const float* a, const float* b, float* c, Count count);
void add_bias(const float* a, const float* b, const float* bias, float* y, Count rows, Count columns);
float softmax_row(float* scores, Count count, float scale);
void probabilities_row(float* scores, Count count, float scale, float lse);
void softmax_grad_row(const float* p, float* dp, Count count, float scale, float subtrahend);
float dot(const float* a, const float* b, Count count);
void row_max(const float* logits, float* max, Count rows, Count stride, Count columns);
void row_exp_sum(const float* logits, const float* max, float* total, Count rows, Count stride, Count columns);
void row_softmax(const float* logits, const float* max, const float* total, float* dlogits, Count rows, Count stride,
                 Count columns, float scale);
double sum_of_squares(const float* x, Count count);
void adamw(const float* gradient, float* parameter, float* first, float* second, Count count,
           const AdamWFactors& factors);
void sgd(const float* gradient, float* parameter, float* momentum, Count count, const SgdFactors& factors);
void lamb_direction(const float* gradient, const float* parameter, float* first, float* second, float* direction,
                    Count count, const AdamWFactors& factors);
void lamb_step(const float* first, const float* second, float* parameter, Count count, const AdamWFactors& factors,
               float rate);
void sum_rows(const float* rows, const std::int32_t* index, const RowBlocks& blocks, Count count, Count known,
              Count width, float* total);
void sum_weighted_rows(const float* rows, const std::int32_t* lookups, const RowBlocks& blocks, Count count,
                       Count known, Count width, float* total);
void sum_parts(const float* base, const std::int64_t* starts, Count count, Count known, Count width, float* total);
void sum_weighted_parts(const float* base, const std::int64_t* starts, const float* weights, Count count, Count known,
                        Count width, float* total);
void from_bf16(const std::uint16_t* x, float* y, Count count);
void to_bf16(const float* x, std::uint16_t* y, Count count);
void from_fp16(const std::uint16_t* x, float* y, Count count);
void to_fp16(const float* x, std::uint16_t* y, Count count);
void dropout_factors(const DropoutDraw& draw, std::uint64_t first, Count count, float* factors);
void relu(const float* x, float* y, Count count);
void relu_grad(const float* dy, const float* y, float* dx, Count count);
void activate(models::Function function, const float* x, float* y, Count count);
void activate_grad(models::Function function, const float* dy, const float* x, float* dx, Count count);
void gate(models::Function function, const float* gate, const float* up, float* y, Count count);
void gate_grad(models::Function function, const float* dy, const float* gate, const float* up, float* dgate, float* dup,
               Count count);
void cap(const float* x, float* y, float* slopes, Count count, float scale, float cap);
#if ORRERY_SIMD_BYTES >= 32
void product(const Product& p, float* room);
Count product_room(const Product& p);
#else
constexpr decltype(Kernels::product) product = nullptr;
constexpr decltype(Kernels::product_room) product_room = nullptr;
#endif

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL
