#pragma once
/// The optimizers, one row each: what a job may set, which states are kept, which operator makes the update, and what
/// they can be combined with. Whoever must know a property of an optimizer asks its row, never for its kind; backends
/// implement the update (exec/cpu/operators_update.cpp, exec/cuda/kernels/updates.cu). docs/formats.md describes them
/// to users.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "models/dtype.h"
#include "models/operators/op.h"

namespace orrery::plan {

enum class OptimizerKind { adamw, sgd, lamb, adafactor, adamw_8bit, lion, rowwise_adagrad, adam, muon, adamw_bf16 };

/// What an update depends on, besides the gradients and states of the value itself.
enum class UpdateOf {
  values,    ///< nothing more
  norms,     ///< norms of the whole parameter and of its direction: LAMB (You et al. 2020, algorithm 2)
  factors,   ///< norms, and squared gradients kept as sums of rows and columns (plan/outline/factors.h): Adafactor
  matrices,  ///< a block's whole matrix (plan/outline/whole_matrices.h): Muon; all else is updated as by AdamW
};

/// Keys that a job may give, besides the name, `learning_rate` and `weight_decay`.
struct OptimizerKeys {
  bool betas = false;  ///< `beta1`, `beta2`
  bool epsilon = false;
  bool momentum = false;
  bool nesterov = false;
  bool factors = false;  ///< `adaptive`, `clip_update`, `decay_power`
  bool adamw = false;    ///< a map of AdamW's keys, for the parameters that it leaves to AdamW
};

/// fp32 states of embedding tables: so many for a row, which follow from its whole gradient, and so many for each value
/// of a row, which change in every step that looks the row up.
struct TableStates {
  int by_row = 0, by_value = 0;
  [[nodiscard]] constexpr bool any() const { return by_row + by_value > 0; }
  /// Of tables with this many rows and values.
  [[nodiscard]] constexpr std::int64_t of(std::int64_t rows, std::int64_t values) const {
    return by_row * rows + by_value * values;
  }
};

struct OptimizerTraits {
  OptimizerKind kind{};
  const char* name = "";                              ///< as in job files
  models::OpKind update{};                            ///< the operator that updates parameters
  models::UpdateRule rule = models::UpdateRule::sgd;  ///< of OpKind::momentum_update, and of tables
  int moments = 0;                                    ///< states with one value per parameter
  bool momentum_optional = false;                     ///< a momentum of 0 is none: then it keeps no state
  models::DType moments_in = models::DType::fp32;     ///< uint8: but for embeddings', with a scale for each block
  UpdateOf update_of = UpdateOf::values;
  bool decays = true;        ///< takes a weight decay other than 0
  bool offloads = false;     ///< its states may be outside the device's memory: the host's cores can do its update
  bool tables = false;       ///< may update embedding tables: rows that no sample looks up do not change
  bool tables_only = false;  ///< it is for models with tables alone
  TableStates table_states = {};
  OptimizerKeys keys = {};
  std::string_view megatron = {};   ///< in the settings of Megatron-LM; empty: it cannot be said there
  std::string_view deepspeed = {};  ///< likewise of DeepSpeed
  // Defaults: the paper's, where it has any; AdamW's are those of GPT models (Brown et al. 2020, appendix B).
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1, momentum = 0.9;

  /// Whether the ranks that share a parameter must add up norms of it.
  [[nodiscard]] constexpr bool takes_norms() const {
    return update_of == UpdateOf::norms || update_of == UpdateOf::factors;
  }
  [[nodiscard]] constexpr bool quantised() const { return moments_in == models::DType::uint8; }
  [[nodiscard]] constexpr bool factored() const { return update_of == UpdateOf::factors; }
  [[nodiscard]] constexpr bool whole_matrices() const { return update_of == UpdateOf::matrices; }
  /// Whether the ranks that share a parameter must hear of each other's parts.
  [[nodiscard]] constexpr bool whole_parameters() const { return update_of != UpdateOf::values; }
};

// clang-format off
inline constexpr auto kOptimizers = std::to_array<OptimizerTraits>({
    {.kind = OptimizerKind::adamw, .name = "adamw", .update = models::OpKind::adamw, .moments = 2, .offloads = true,
     .keys = {.betas = true, .epsilon = true}, .megatron = "adam", .deepspeed = "AdamW"},
    {.kind = OptimizerKind::sgd, .name = "sgd", .update = models::OpKind::momentum_update, .moments = 1,
     .momentum_optional = true, .tables = true, .keys = {.momentum = true, .nesterov = true}, .megatron = "sgd",
     .deepspeed = "SGD", .weight_decay = 0},
    {.kind = OptimizerKind::lamb, .name = "lamb", .update = models::OpKind::lamb, .moments = 2,
     .update_of = UpdateOf::norms, .keys = {.betas = true, .epsilon = true}, .beta2 = 0.999, .epsilon = 1e-6,
     .weight_decay = 0.01},
    // The rate is the paper's relative step.
    {.kind = OptimizerKind::adafactor, .name = "adafactor", .update = models::OpKind::adafactor,
     .update_of = UpdateOf::factors, .keys = {.factors = true}, .learning_rate = 1e-2, .weight_decay = 0},
    {.kind = OptimizerKind::adamw_8bit, .name = "adamw-8bit", .update = models::OpKind::adamw_8bit, .moments = 2,
     .moments_in = models::DType::uint8, .keys = {.betas = true, .epsilon = true}},
    // Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2; defaults of its appendix's code.
    {.kind = OptimizerKind::lion, .name = "lion", .update = models::OpKind::momentum_update,
     .rule = models::UpdateRule::lion, .moments = 1, .keys = {.betas = true}, .learning_rate = 1e-4, .beta2 = 0.99,
     .weight_decay = 0},
    // For recommendation models: tables by rows, as fbgemm's EXACT_ROWWISE_ADAGRAD, all else element by element.
    {.kind = OptimizerKind::rowwise_adagrad, .name = "rowwise_adagrad", .update = models::OpKind::momentum_update,
     .rule = models::UpdateRule::adagrad, .moments = 1, .tables = true, .tables_only = true,
     .table_states = {.by_row = 1}, .keys = {.epsilon = true}, .learning_rate = 1e-2, .weight_decay = 0},
    // Kingma and Ba 2015, "Adam", with the defaults of its algorithm 1: AdamW without decay. Tables are as in fbgemm's
    // ADAM: rows that a step does not look up keep value and moments.
    {.kind = OptimizerKind::adam, .name = "adam", .update = models::OpKind::adamw, .rule = models::UpdateRule::adam,
     .moments = 2, .decays = false, .offloads = true, .tables = true, .table_states = {.by_value = 2},
     .keys = {.betas = true, .epsilon = true}, .megatron = "adam", .deepspeed = "AdamW", .beta2 = 0.999,
     .weight_decay = 0},
    // Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; defaults of torch.optim.Muon.
    {.kind = OptimizerKind::muon, .name = "muon", .update = models::OpKind::muon, .moments = 2,
     .update_of = UpdateOf::matrices, .keys = {.momentum = true, .adamw = true}, .momentum = 0.95},
    // DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.3.3; its numbers are those of section 4.2.
    {.kind = OptimizerKind::adamw_bf16, .name = "adamw-bf16", .update = models::OpKind::adamw, .moments = 2,
     .moments_in = models::DType::bf16, .keys = {.betas = true, .epsilon = true}},
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
// A row does not contradict itself.
static_assert([] {
  for (const OptimizerTraits& one : kOptimizers) {
    if (one.moments_in != models::DType::fp32 && one.moments == 0) return false;
    if ((one.tables_only || one.table_states.any()) && !one.tables) return false;
    if ((one.momentum_optional || one.keys.nesterov) && !one.keys.momentum) return false;
    if (!one.decays && one.weight_decay != 0) return false;
  }
  return true;
}());

}  // namespace orrery::plan
