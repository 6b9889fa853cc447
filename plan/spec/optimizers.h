#pragma once
/// The optimizers, one row each: what a job may set, which states are kept, and which operator makes the update. Job
/// files, memory, lowering and prices read this table; backends implement the update (exec/cpu/operators_update.cpp,
/// exec/cuda/kernels/updates.cu). docs/formats.md describes them to users.
#include <array>
#include <cstddef>

#include "models/operators/op.h"

namespace orrery::plan {

enum class OptimizerKind { adamw, sgd, lamb, adafactor, adamw_8bit, lion, rowwise_adagrad, adam, muon };

struct OptimizerTraits {
  OptimizerKind kind{};
  const char* name = "";    ///< as in job files
  models::OpKind update{};  ///< the operator that updates parameters; one on bytes where moments are quantised
  models::UpdateRule rule = models::UpdateRule::sgd;  ///< of OpKind::momentum_update
  int moments = 0;                      ///< states with one value per parameter; SGD without momentum has none
  bool whole_tensors = false;           ///< the update needs norms or sums of whole parameters
  bool whole_matrices = false;          ///< a block's matrices are updated by a function of whole ones, all else as by
                                        ///< AdamW
  bool betas = false, epsilon = false;  ///< keys that a job may give
  // Defaults: the paper's, where it has any; AdamW's are those of GPT models (Brown et al. 2020, appendix B).
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon_value = 1e-8, weight_decay = 0.1;
};

// clang-format off
inline constexpr auto kOptimizers = std::to_array<OptimizerTraits>({
    {.kind = OptimizerKind::adamw, .name = "adamw", .update = models::OpKind::adamw, .moments = 2, .betas = true,
     .epsilon = true},
    {.kind = OptimizerKind::sgd, .name = "sgd", .update = models::OpKind::momentum_update, .moments = 1,
     .weight_decay = 0},
    {.kind = OptimizerKind::lamb, .name = "lamb", .update = models::OpKind::lamb, .moments = 2, .whole_tensors = true,
     .betas = true, .epsilon = true, .beta2 = 0.999, .epsilon_value = 1e-6, .weight_decay = 0.01},
    // The rate is the paper's relative step.
    {.kind = OptimizerKind::adafactor, .name = "adafactor", .update = models::OpKind::adafactor, .whole_tensors = true,
     .learning_rate = 1e-2, .weight_decay = 0},
    {.kind = OptimizerKind::adamw_8bit, .name = "adamw-8bit", .update = models::OpKind::adamw_8bit, .moments = 2,
     .betas = true, .epsilon = true},
    // Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2; defaults of its appendix's code.
    {.kind = OptimizerKind::lion, .name = "lion", .update = models::OpKind::momentum_update,
     .rule = models::UpdateRule::lion, .moments = 1, .betas = true, .learning_rate = 1e-4, .beta2 = 0.99,
     .weight_decay = 0},
    // For recommendation models: tables by rows, as fbgemm's EXACT_ROWWISE_ADAGRAD, all else element by element.
    {.kind = OptimizerKind::rowwise_adagrad, .name = "rowwise_adagrad", .update = models::OpKind::momentum_update,
     .rule = models::UpdateRule::adagrad, .moments = 1, .epsilon = true, .learning_rate = 1e-2, .weight_decay = 0},
    // Kingma and Ba 2015, "Adam", with the defaults of its algorithm 1: AdamW without decay. Tables are as in fbgemm's
    // ADAM: rows that a step does not look up keep value and moments.
    {.kind = OptimizerKind::adam, .name = "adam", .update = models::OpKind::adamw, .rule = models::UpdateRule::adam,
     .moments = 2, .betas = true, .epsilon = true, .beta2 = 0.999, .weight_decay = 0},
    // Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; defaults of torch.optim.Muon.
    {.kind = OptimizerKind::muon, .name = "muon", .update = models::OpKind::muon, .moments = 2,
     .whole_matrices = true},
});
// clang-format on

[[nodiscard]] constexpr const OptimizerTraits& traits_of(OptimizerKind kind) {
  return kOptimizers[static_cast<std::size_t>(kind)];
}

// Rows are in the order of the enumeration.
static_assert([] {
  for (std::size_t i = 0; i < kOptimizers.size(); ++i)
    if (static_cast<std::size_t>(kOptimizers[i].kind) != i) return false;
  return true;
}());

}  // namespace orrery::plan
