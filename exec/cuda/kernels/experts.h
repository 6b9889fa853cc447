#pragma once
/// Kernels of mixtures of experts (models/operators/op.h has their operands). The number of rows is read on the device,
/// from counts that an earlier kernel wrote: no launch waits for the host, and launches have the size of the bound.
#include <cuda_runtime.h>

#include <cstdint>

#include "exec/cuda/kernels/kernels.h"
#include "models/operators/op.h"

namespace orrery::exec::cuda {

/// Faults that a kernel cannot throw; on the device, all 0 if nothing is wrong.
struct ExpertFaults {
  /// The complement of (layer + 1) << 32 | token, for the first token of the first layer whose scores are not finite.
  unsigned long long token = 0;
  /// A slot that is chosen by more rows than it has room for.
  int32_t layer = 0, slot = 0, rows = 0, experts = 0, capacity = 0;
};

// experts_route.cu: all in fp32, a warp for each token.
struct RouterShape {
  int64_t tokens = 0, experts = 0, chosen = 0;
  models::Routing routing;
  int32_t layer = -1;  ///< for faults
};
/// A token whose scores are not finite chooses -1, which all other kernels skip. `bias` may be null.
void route(cudaStream_t stream, const RouterShape& shape, const float* logits, const float* bias, float* scores,
           int32_t* choice, float* weights, ExpertFaults* faults);
struct RouteGradient {
  const float* dweights = nullptr;
  const float* logits = nullptr;
  const float* scores = nullptr;
  const int32_t* choice = nullptr;
  const float* weights = nullptr;
  const float* load = nullptr;     ///< may be null if aux is 0
  const float* scaling = nullptr;  ///< of losses, one value; null: 1
  float* dlogits = nullptr;
  float aux = 0, z = 0;  ///< factors of the losses' gradients
};
void route_grad(cudaStream_t stream, const RouterShape& shape, const RouteGradient& one);
void count_choices(cudaStream_t stream, const RouterShape& shape, const float* logits, const int32_t* choice,
                   float* tally, KernelScratch scratch);
void balance_losses(cudaStream_t stream, const float* tally, int64_t experts, double tokens, float* losses);
void balance_bias(cudaStream_t stream, const float* tally, int64_t experts, double rate, float* bias);

/// Slots of rows, and the number of each expert's rows in them.
struct RowSlots {
  const int32_t* counts = nullptr;  ///< (slots, experts)
  int64_t slots = 0, experts = 0, capacity = 0;
  [[nodiscard]] int64_t rows() const { return slots * capacity; }
};
/// Among each `span` choices (one sequence's), an expert takes at most `limit`; 0: all. A row beyond a slot's room gets
/// no place and is a fault. Writes `counts`.
struct RowPlaces {
  const int32_t* choice = nullptr;
  int64_t count = 0, span = 0, limit = 0;
  int32_t layer = -1;  ///< for faults
  int32_t* place = nullptr;
  int32_t* counts = nullptr;
};
void place_rows(cudaStream_t stream, const RowPlaces& places, const RowSlots& slots, ExpertFaults* faults,
                KernelScratch scratch);

// experts_rows.cu. `weights` may be null.
struct TokenPlaces {
  const int32_t* place = nullptr;
  int64_t tokens = 0, chosen = 0, columns = 0;
};
template <class T>
void dispatch(cudaStream_t stream, const TokenPlaces& places, const T* x, const float* weights, T* rows);
template <class T>
void combine(cudaStream_t stream, const TokenPlaces& places, const T* rows, const float* weights, T* y);
template <class T>
void combine_weight_grad(cudaStream_t stream, const TokenPlaces& places, const T* dy, const T* rows, float* dweights);
/// Biases of experts: of one product, or of two whose results are side by side in a row.
template <class T>
void expert_bias(cudaStream_t stream, const RowSlots& slots, const T* x, const T* first, const T* second, T* y,
                 int64_t columns, float scale, KernelScratch scratch);
template <class T>
void expert_bias_grad(cudaStream_t stream, const RowSlots& slots, const T* dy, GradientOf<T>* first,
                      GradientOf<T>* second, int64_t columns);
/// `width`: elements of an encoded row.
template <class T>
void encode_rows(cudaStream_t stream, const RowSlots& slots, models::TokenCodec codec, const T* x, void* to,
                 int64_t columns, int64_t width, KernelScratch scratch);
template <class T>
void decode_rows(cudaStream_t stream, const RowSlots& slots, models::TokenCodec codec, const void* from, T* x,
                 int64_t columns, int64_t width, KernelScratch scratch);
template <class T>
void row_gate(cudaStream_t stream, const T* x, const float* gate, T* y, int64_t rows, int64_t columns);
template <class T>
void row_gate_grad(cudaStream_t stream, const T* dy, const T* x, const float* gate, T* dx, float* dgate, int64_t rows,
                   int64_t columns);
/// Activations of the rows that are present: y has `columns` columns; with gates, x has twice that number.
struct SlotActivation {
  models::Function function = models::Function::none;
  bool rectifies = false;  ///< relu, which has no Function: backward is given y
  bool gates = false;
  int64_t columns = 0;
};
template <class T>
void activate_slots(cudaStream_t stream, const RowSlots& slots, const SlotActivation& one, const T* x, T* y,
                    KernelScratch scratch);
template <class T>
void activate_slots_grad(cudaStream_t stream, const RowSlots& slots, const SlotActivation& one, const T* dy, const T* x,
                         T* dx, KernelScratch scratch);

// experts_products.cu. An expert's rows in a slot are cut into tiles of 64. A block computes one tile times its
// expert's matrix: on tensor cores in 16 bits, else on fp32 cores. `tf32`: fp32 operands are rounded to 10 bits.
template <class T>
struct GroupedProduct {
  const T* a = nullptr;
  const T* first = nullptr;   ///< (experts,n,k), or (experts,k,n)
  const T* second = nullptr;  ///< may be null
  T* c = nullptr;
  int64_t n = 0, k = 0;
  bool transposed = false, tf32 = false;
};
template <class T>
void grouped_matmul(cudaStream_t stream, const RowSlots& slots, const GroupedProduct<T>& product,
                    KernelScratch scratch);
template <class T>
struct GroupedWeightGradient {
  const T* dy = nullptr;
  const T* x = nullptr;
  GradientOf<T>* first = nullptr;   ///< (experts,m,n)
  GradientOf<T>* second = nullptr;  ///< may be null; a row of dy is 2m wide then
  int64_t m = 0, n = 0;
  bool adds = false, tf32 = false;
};
template <class T>
void grouped_weight_grad(cudaStream_t stream, const RowSlots& slots, const GroupedWeightGradient<T>& gradient);

/// C (m,n) (+)= scale op(A) op(B) of operands with different types, on fp32 cores: for a router, whose logits are fp32
/// while activations have 16 bits.
template <class A, class B, class C>
struct MixedProduct {
  const A* a = nullptr;
  const B* b = nullptr;
  C* c = nullptr;
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false, adds = false;
  float scale = 1;
};
template <class A, class B, class C>
void mixed_product(cudaStream_t stream, const MixedProduct<A, B, C>& product);

}  // namespace orrery::exec::cuda
