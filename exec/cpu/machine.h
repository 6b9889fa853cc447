#pragma once
/// What the operators of the CPU backend share: threads, kernels, scratch memory, and checked access to operands.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/backend.h"
#include "exec/cpu/kernels.h"
#include "exec/cpu/pool.h"
#include "models/op.h"

namespace orrery::exec {

/// Memory that kernels need beyond their operands, one piece per thread, grown on demand and counted.
class Scratch {
 public:
  explicit Scratch(int threads) : pieces_(static_cast<std::size_t>(threads)) {}
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

/// cos and sin of position t times theta^(-2i/D), (T, D/2) each; made once per shape.
struct RopeTable {
  std::int64_t sequence = 0, head_dim = 0;
  double theta = 0;
  std::vector<float> cosines, sines;
  void prepare(std::int64_t t, std::int64_t d, double base);
};

struct Machine {
  Machine(int threads, const Kernels& table) : pool(threads), kernels(table), scratch(threads) {}
  Pool pool;
  const Kernels& kernels;
  Scratch scratch;
  RopeTable rope;
};

/// One operator and everything it was called with.
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
};

/// Work that is worth handing to another thread, in elements of cheap arithmetic (some 10 microseconds).
constexpr std::int64_t worthwhile_elements = 16384;

/// Rows of a chunk when each row has `columns` elements.
[[nodiscard]] inline std::int64_t rows_per_chunk(std::int64_t columns) {
  return std::max<std::int64_t>(1, worthwhile_elements / std::max<std::int64_t>(1, columns));
}
/// Columns of a chunk when each column has `rows` elements: whole cache lines.
[[nodiscard]] inline std::int64_t columns_per_chunk(std::int64_t rows) {
  constexpr std::int64_t line = 64;
  return (worthwhile_elements / std::max<std::int64_t>(1, rows) / line + 1) * line;
}

// The operators, by file.
void run_embedding(Machine&, const Call&);  // operators_input.cpp
void run_position_add(Machine&, const Call&);
void run_embedding_grad(Machine&, const Call&);
void run_position_grad(Machine&, const Call&);
void run_rope(Machine&, const Call&, bool backward);
void run_norm(Machine&, const Call&);  // operators_rows.cpp: layer_norm, rms_norm
void run_norm_grad(Machine&, const Call&);
void run_bias_grad(Machine&, const Call&);
void run_gelu(Machine&, const Call&);
void run_gelu_grad(Machine&, const Call&);
void run_swiglu(Machine&, const Call&);
void run_swiglu_grad(Machine&, const Call&);
void run_add_bias(Machine&, const Call&);
void run_add(Machine&, const Call&);
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

}  // namespace orrery::exec
