#pragma once
/// What a probe times: operators in an order that occurs in training, and the memory they work on. The shapes are the
/// probe's own, spread over those of training; they belong to no model in the catalogue.
#include <cstdint>
#include <string>
#include <vector>

#include "exec/engine/backend.h"
#include "models/operators/op.h"

namespace orrery::exec {

struct Workload {
  enum class Fill { zero, random, ids };
  /// A piece of memory and its initial contents.
  struct Buffer {
    std::int64_t elements = 0;
    models::DType dtype = models::DType::fp32;
    Fill fill = Fill::zero;
    std::int64_t below = 1;  ///< ids: 0 .. below - 1
  };
  struct View {
    int buffer = 0;
    std::int64_t offset = 0, elements = 0;
  };
  std::string name;
  std::vector<models::Op> ops;  ///< operands are indices into `views`
  std::vector<View> views;
  std::vector<Buffer> buffers;
  StepContext context;
  [[nodiscard]] std::vector<std::int64_t> offsets() const;  ///< of each buffer in one arena; the last entry is its size
  [[nodiscard]] std::int64_t bytes() const { return offsets().back(); }
};

/// A transformer's layers, without communication.
struct LayerShape {
  std::int64_t layers = 1, hidden = 1, heads = 1, vocab = 256;
  std::int64_t batch = 1, sequence = 1;       ///< of a micro-batch
  int tensor = 1;                             ///< degree of the split: the operators are those of one of these ranks
  models::DType dtype = models::DType::fp32;  ///< of activations, and of the weights that products read
};

/// Embedding, `layers` blocks and the head, forward, then backward, then the optimizer over each layer's parameters.
/// Each layer saves its own values for backward; short-lived buffers share memory, as in an arena.
[[nodiscard]] Workload layers_workload(const LayerShape& shape);

/// `sets` products (m,k)x(k,n), each on its own operands, in turn. tf32 is fp32 rounded on input, and fp8 likewise
/// bf16.
[[nodiscard]] Workload matmul_workload(std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a, bool trans_b,
                                       int sets, models::DType dtype = models::DType::fp32);

/// copy, accumulate_into, fill_zero and norm_squared over arrays of `bytes`, on `sets` sets of arrays in turn.
[[nodiscard]] Workload streams_workload(std::int64_t bytes, int sets);

/// What the end of a training step does to buckets of `elements`, bucket by bucket.
[[nodiscard]] Workload optimizer_workload(std::int64_t elements, int buckets);

/// The operators and shapes that a probe times; workloads over `most_bytes` are left out. A CPU core computes in fp32
/// and bf16; a GPU gets larger shapes, most of them in bf16. `fp8`: the device computes in it.
enum class ProbedDevice { core, gpu };
[[nodiscard]] std::vector<Workload> standard_workloads(std::int64_t most_bytes,
                                                       ProbedDevice device = ProbedDevice::core, bool fp8 = true);

}  // namespace orrery::exec
