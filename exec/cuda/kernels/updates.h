#pragma once
/// Kernels over flat vectors of parameters: gradient norms, loss scaling, and the updates of all optimizers, each one
/// launch for a whole bucket whatever the number of tensors in it. A table of tiles on the device says which elements
/// belong together and how they are treated. Clipping coefficient, loss scale and skipped steps are read on the device:
/// the host never waits for them.
#include <cuda_runtime.h>

#include <cstdint>

#include "exec/cuda/kernels/kernels.h"
#include "models/operators/op.h"

namespace orrery::exec::cuda {

enum class Stored : int32_t { fp32, bf16, fp16 };

/// A vector of some type; null: absent. The type is the same for a whole launch, so testing it costs next to nothing
/// compared with waiting for memory.
struct Floats {
  void* data = nullptr;
  Stored type = Stored::fp32;
};

/// A run of elements of one ElementRange; or of no range (`range` -1), where only compute copies are written.
struct RangeTile {
  int64_t begin = 0;   ///< element
  int32_t count = 0;   ///< elements
  int32_t range = -1;  ///< index into the ranges
  int32_t decay = 0;   ///< 1: weight decay applies
  int32_t column = 0;  ///< for a tile that is (part of) a row of a matrix: where in the row it begins
  int64_t row = 0;
  double norm_weight = 1;
};
inline constexpr int64_t kTileElements = 16384;

/// exec::ElementRange on the device, with the tiles that it was cut into.
struct DeviceRange {
  int64_t begin = 0, end = 0;
  int64_t first_tile = 0, tiles = 0;
  int64_t norms = -1, first = 0, columns = 0;
  int64_t factor_sum = -1, factor_rows = -1, factor_columns = -1;
  int64_t logical = 0;
  uint64_t stream = 0;
  double share = 1, all_rows = 0, all_columns = 0;
  double orthogonal = 0;
  int32_t decay = 0;
};

/// 32 columns of a range that is a matrix.
struct Stripe {
  int32_t range = 0;
  int32_t column = 0;
};

/// Tables of one set of ranges, on the device.
struct Tables {
  const RangeTile* tiles = nullptr;
  int64_t tile_count = 0;
  const DeviceRange* ranges = nullptr;
  int64_t range_count = 0;
  const Stripe* stripes = nullptr;
  int64_t stripe_count = 0;
  double* partials = nullptr;  ///< 2 for each tile
};

/// Values that change from training step to training step: in the device's memory, so that a graph with an update is
/// right in the next step too.
struct StepValues {
  int64_t step = 0;  ///< training step that has begun
  double rate = 0, matrix_rate = 0;
  bool operator==(const StepValues&) const = default;
};
void set_step_values(cudaStream_t stream, StepValues* to, const StepValues& values);

/// What an update needs besides its operands. Constants are rounded from double to fp32 once, where they are used:
/// computed in float, 1 - 0.999 would have a relative error of 5e-5.
struct UpdateStep {
  const StepValues* now = nullptr;
  int64_t turn = 0, turns = 1;  ///< updates in turns within one training step each count as a step
  double beta1 = 0, beta2 = 0, epsilon = 0, decay = 0, momentum = 0;
  bool nesterov = false;
  models::UpdateRule rule = models::UpdateRule::sgd;  ///< of momentum_update
  bool adaptive = true;                               ///< Adafactor; so are the next two
  double clip_update = 1, decay_power = 0.8;
  double matrix_decay = 0;             ///< Muon's matrices
  const float* coefficient = nullptr;  ///< of the gradient; null: 1
  const float* scaling = nullptr;      ///< loss scaling (4): steps skipped so far, and whether this one is
  bool stochastic = false;             ///< parameters in bf16 are rounded at random
  uint64_t seed = 0;
};

/// What an update changes, and the copy that compute reads.
struct Target {
  Floats parameter, copy;
};

/// total += sum over tiles of norm_weight * sum of squares.
void norm_squared(cudaStream_t stream, Floats gradient, const Tables& tables, float* total);
/// Pascanu et al. 2013, algorithm 1, with 1e-6 as in PyTorch's clip_grad_norm_. `scaling` may be null.
void clip_coefficient(cudaStream_t stream, const float* total, const float* scaling, float* norm, float* coefficient,
                      float clip_norm);
void overflow(cudaStream_t stream, const float* total, float* flag);
void loss_scale(cudaStream_t stream, float* scaling, float factor, float interval);

/// Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2, in the form PyTorch computes it.
/// Moments in fewer than 32 bits are rounded to nearest.
void adamw(cudaStream_t stream, Floats gradient, const Target& target, Floats first, Floats second,
           const Tables& tables, const UpdateStep& step);
/// By `step.rule`. `momentum` may be null where the rule is SGD's.
void momentum_update(cudaStream_t stream, Floats gradient, const Target& target, float* momentum, const Tables& tables,
                     const UpdateStep& step);
/// LAMB (You et al. 2020, algorithm 2): moments and norms, then the step.
void lamb_moments(cudaStream_t stream, Floats gradient, Floats parameter, float* first, float* second, float* norms,
                  const Tables& tables, const UpdateStep& step);
void lamb(cudaStream_t stream, const float* first, const float* second, const float* norms, const Target& target,
          const Tables& tables, const UpdateStep& step);

// muon.cu (Jordan et al. 2024; models/operators/op.h). `second` has only the elements that belong to no matrix.
void muon_moments(cudaStream_t stream, Floats gradient, float* momentum, float* direction, int64_t count,
                  const Tables& tables, const UpdateStep& step);
void muon(cudaStream_t stream, Floats gradient, const float* direction, const Target& target, float* first,
          float* second, const Tables& tables, const UpdateStep& step);

// factored.cu: Adafactor (Shazeer and Stern 2018, algorithms 4 and 5). Tiles are rows of matrices.
void factor_sums(cudaStream_t stream, Floats gradient, float* sums, const Tables& tables, const UpdateStep& step);
void factor_moments(cudaStream_t stream, const float* sums, float* factors, int64_t count, const UpdateStep& step);
void factor_norms(cudaStream_t stream, Floats gradient, Floats parameter, const float* factors, float* norms,
                  const Tables& tables, const UpdateStep& step);
void adafactor(cudaStream_t stream, Floats gradient, const float* factors, const float* norms, const Target& target,
               const Tables& tables, const UpdateStep& step);

// quantised.cu: exec/engine/quantised.h's code books on the device.
inline constexpr int kCodes = 256;
struct DeviceBook {
  float values[kCodes];
  float bounds[kCodes];  ///< the last one is infinite
  int32_t zero = 0;
};
struct Moments8 {
  uint8_t* first = nullptr;
  uint8_t* second = nullptr;
  float* first_scale = nullptr;
  float* second_scale = nullptr;
};
/// Tiles are blocks of models::kQuantisedBlock elements. `runs`: where stochastic rounding finds its numbers.
void adamw_8bit(cudaStream_t stream, Floats gradient, const Target& target, const Moments8& moments,
                const DeviceBook* signed_book, const DeviceBook* unsigned_book, const Tables& blocks,
                const Tables& runs, const UpdateStep& step);

}  // namespace orrery::exec::cuda
