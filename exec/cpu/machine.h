#pragma once
/// What the CPU backend's operators share: threads, kernels, scratch memory, and checked access to operands.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "exec/cpu/kernels.h"
#include "exec/cpu/pool.h"
#include "exec/engine/backend.h"
#include "models/operators/op.h"
#include "models/operators/run_alone.h"

namespace orrery::exec {

/// Memory that kernels need beyond their operands: one piece per thread, grown on demand, and counted.
class KernelScratch {
 public:
  explicit KernelScratch(int threads) : pieces_(static_cast<std::size_t>(threads)) {}
  /// At least `floats` values, aligned to a cache line; valid until the same thread asks for more.
  [[nodiscard]] float* get(int thread, std::int64_t floats);
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct Free {
    void operator()(float* p) const;
  };
  struct Piece {
    std::unique_ptr<float[], Free> data;
    std::int64_t floats = 0;
  };
  std::vector<Piece> pieces_;
};

/// cos and sin of position t times the rate of pair i (models/rope.h), (T, D/2) each.
struct RopeTable {
  std::int64_t sequence = 0, head_dim = 0;
  double theta = 0;
  models::RopeScaling scaling;
  std::vector<float> cosines, sines;
};

/// The last two tables that were asked for: layers with a window may rotate at other rates than the rest.
class RopeTables {
 public:
  /// For `sequence` positions and heads of which `head_dim` columns rotate; valid until two others were asked for.
  const RopeTable& get(std::int64_t sequence, std::int64_t head_dim, double theta, const models::RopeScaling& scaling);
  [[nodiscard]] std::int64_t bytes() const;

 private:
  RopeTable tables_[2];
  std::size_t oldest_ = 0;
};

struct Machine {
  Machine(int threads, const Kernels& table) : pool(threads), kernels(table), scratch(threads) {}
  Pool pool;
  const Kernels& kernels;
  KernelScratch scratch;
  KernelScratch widened{16};  ///< 16-bit operands in fp32, one piece per operand
  RopeTables rope;
};

/// One operator with all arguments of its call.
struct Call {
  const models::Op& op;
  std::span<const Operand> in;
  std::span<const Operand> out;
  std::span<const ElementRange> ranges;
  const StepContext& context;

  /// Operands, checked to hold `elements` values. The optional kind is null when absent.
  [[nodiscard]] const float* input(std::size_t index, std::int64_t elements) const;
  [[nodiscard]] const float* optional_input(std::size_t index, std::int64_t elements) const;
  [[nodiscard]] const std::int32_t* ids(std::size_t index, std::int64_t elements) const;
  [[nodiscard]] float* output(std::size_t index, std::int64_t elements) const;
  [[nodiscard]] float* optional_output(std::size_t index, std::int64_t elements) const;
  /// Where the run's embedding tables are; only schedules that look up tables have it.
  [[nodiscard]] const plan::TableLayout& tables() const;
};

/// Elements of a chunk of streaming work: large enough to hide the hand-over, and independent of the number of threads,
/// so that partial sums are too.
constexpr std::int64_t stream_chunk = std::int64_t{1} << 16;

/// The call's ranges, or the single range `all` if it has none.
[[nodiscard]] std::span<const ElementRange> ranges_of(const Call& call, const ElementRange& all);

/// What the loss scaling (input operand `index`, if present) says about this update.
struct UpdateClock {
  bool skips = false;
  double time = 1;  ///< updates so far, including this one
};
[[nodiscard]] UpdateClock clock_of(const Call& call, std::size_t index);
/// The coefficient from clipping gradients: input operand 1, or 1.
[[nodiscard]] float coefficient_of(const Call& call);
/// Adam's constants, without decay and the gradients' coefficient.
[[nodiscard]] AdamWFactors adam_factors(const Call& call, const UpdateClock& clock);
/// The same for AdamW, with the gradients' coefficient and the learning rate.
[[nodiscard]] AdamWFactors adamw_factors(const Call& call, const UpdateClock& clock);
/// Writes the copy that compute reads, output operand `index`, if the update changes a master.
void write_copy(Machine& machine, const Call& call, const float* parameter, std::size_t index);

/// Work that is worth giving to another thread, in elements of cheap arithmetic (some 10 microseconds).
constexpr std::int64_t worthwhile_elements = 16384;

/// Rows per chunk if each row has `columns` elements.
[[nodiscard]] inline std::int64_t rows_per_chunk(std::int64_t columns) {
  return std::max<std::int64_t>(1, worthwhile_elements / std::max<std::int64_t>(1, columns));
}
/// Columns per chunk if each column has `rows` elements: whole cache lines.
[[nodiscard]] inline std::int64_t columns_per_chunk(std::int64_t rows) {
  constexpr std::int64_t line = 64;
  return (worthwhile_elements / std::max<std::int64_t>(1, rows) / line + 1) * line;
}

/// Whether an operand is bf16 or fp16. run_widened calls `run` on operands in fp32 and rounds its results.
[[nodiscard]] bool has_16_bit(const Call& call);  // widened.cpp
void run_widened(Machine& machine, const Call& call, const std::function<void(const Call&)>& run);
void run_matmul_by_panels(Machine& machine, const Call& call);  // gemm_panels.cpp

// The operators, by file.
void run_embedding(Machine&, const Call&);  // operators_input.cpp
void run_position_add(Machine&, const Call&);
void run_embedding_grad(Machine&, const Call&);
void run_position_grad(Machine&, const Call&);
void run_rope(Machine&, const Call&, bool backward);
void run_norm(Machine&, const Call&);  // operators_rows.cpp: layer_norm, rms_norm
void run_norm_grad(Machine&, const Call&);
void run_bias_grad(Machine&, const Call&);
void run_gelu_erf(Machine&, const Call&);
void run_gelu_erf_grad(Machine&, const Call&);
void run_add_bias(Machine&, const Call&);
void run_add(Machine&, const Call&);
void run_activate(Machine&, const Call&);
void run_activate_grad(Machine&, const Call&);
void run_gate(Machine&, const Call&);
void run_gate_grad(Machine&, const Call&);
void run_head_norm(Machine&, const Call&);
void run_head_norm_grad(Machine&, const Call&);
void run_soft_cap(Machine&, const Call&);
void run_matmul(Machine&, const Call&);     // gemm.cpp
void run_attention(Machine&, const Call&);  // attention.cpp
void run_attention_grad(Machine&, const Call&);
void run_ring_attention(Machine&, const Call&);  // ring_attention.cpp
void run_ring_attention_grad(Machine&, const Call&);
void run_split_kv(Machine&, const Call&);
void run_merge_kv(Machine&, const Call&);
void run_softmax_max(Machine&, const Call&);  // operators_loss.cpp
void run_softmax_sum(Machine&, const Call&);
void run_cross_entropy(Machine&, const Call&);
void run_cross_entropy_grad(Machine&, const Call&);
void run_fill_zero(Machine&, const Call&);  // operators_optimizer.cpp
void run_copy(Machine&, const Call&);
void run_accumulate(Machine&, const Call&);
void run_norm_squared(Machine&, const Call&);
void run_clip_coefficient(Machine&, const Call&);
void run_adamw(Machine&, const Call&);
void run_momentum_update(Machine&, const Call&);  // operators_update.cpp
void run_lamb_moments(Machine&, const Call&);
void run_lamb(Machine&, const Call&);
void run_muon_moments(Machine&, const Call&);  // operators_muon.cpp
void run_newton_schulz(Machine&, const Call&);
void run_muon(Machine&, const Call&);
void run_overflow(Machine&, const Call&);
void run_loss_scale(Machine&, const Call&);
void run_factor_sums(Machine&, const Call&);  // operators_factored.cpp
void run_factor_moments(Machine&, const Call&);
void run_factor_norms(Machine&, const Call&);
void run_adafactor(Machine&, const Call&);
void run_adamw_8bit(Machine&, const Call&);  // operators_quantised.cpp
void run_type_add(Machine&, const Call&);    // operators_masked.cpp
void run_type_grad(Machine&, const Call&);
void run_gather_rows(Machine&, const Call&);
void run_scatter_rows(Machine&, const Call&);
void run_tanh(Machine&, const Call&);
void run_tanh_grad(Machine&, const Call&);
void run_class_loss(Machine&, const Call&);
void run_class_loss_grad(Machine&, const Call&);
void run_convert(Machine&, const Call&);  // operators_compression.cpp
void run_sum_pieces(Machine&, const Call&);
void run_orthogonalise(Machine&, const Call&);
void run_add_scaled(Machine&, const Call&);
void run_encode(Machine&, const Call&);
void run_decode(Machine&, const Call&);
void run_dropout(Machine&, const Call&);  // operators_dropout.cpp
void run_add_dropped(Machine&, const Call&);
void run_relu(Machine&, const Call&);
void run_relu_grad(Machine&, const Call&);
void run_sparse_encode(Machine&, const Call&);  // operators_sparse.cpp
void run_sparse_decode(Machine&, const Call&);

void run_bucketise_indices(Machine&, const Call&);  // operators_tables.cpp
void run_cache_rows(Machine&, const Call&);         // operators_cache.cpp
void run_embedding_bag(Machine&, const Call&);
void run_embedding_bag_squares(Machine&, const Call&);
void run_embedding_bag_update(Machine&, const Call&);
void run_embedding_lookup(Machine&, const Call&);
void run_embedding_lookup_grad(Machine&, const Call&);
void run_table_update(Machine&, const Call&);
void run_pooled_join(Machine&, const Call&);  // operators_recommend.cpp
void run_pooled_split(Machine&, const Call&);
void run_interaction_dot(Machine&, const Call&);
void run_interaction_dot_grad(Machine&, const Call&);
void run_cross(Machine&, const Call&);
void run_cross_grad(Machine&, const Call&);
void run_click_loss(Machine&, const Call&);
void run_click_loss_grad(Machine&, const Call&);
void run_encode_pooled(Machine&, const Call&);
void run_decode_pooled(Machine&, const Call&);
void run_route(Machine&, const Call&);  // operators_route.cpp
void run_route_grad(Machine&, const Call&);
void run_count_choices(Machine&, const Call&);
void run_place_rows(Machine&, const Call&);
void run_balance_losses(Machine&, const Call&);
void run_balance_bias(Machine&, const Call&);
void run_dispatch(Machine&, const Call&);  // operators_experts.cpp
void run_combine(Machine&, const Call&);
void run_combine_weight_grad(Machine&, const Call&);
void run_grouped_matmul(Machine&, const Call&);
void run_grouped_weight_grad(Machine&, const Call&);
void run_expert_bias(Machine&, const Call&);  // operators_expert_rows.cpp
void run_expert_bias_grad(Machine&, const Call&);
void run_encode_rows(Machine&, const Call&);
void run_decode_rows(Machine&, const Call&);
void run_row_gate(Machine&, const Call&);
void run_row_gate_grad(Machine&, const Call&);
void run_split_columns(Machine&, const Call&);  // operators_latent.cpp
void run_join_columns(Machine&, const Call&);
void run_latent_pack(Machine&, const Call&);
void run_latent_pack_grad(Machine&, const Call&);
void run_head_values(Machine&, const Call&);
void run_head_values_grad(Machine&, const Call&);
// Kinds that CPU ranks alone run: each by a function of its name.
#define ORRERY_DECLARE(kind) void run_##kind(Machine&, const Call&);
ORRERY_CPU_ALONE(ORRERY_DECLARE)
#undef ORRERY_DECLARE

}  // namespace orrery::exec
