#pragma once
/// What a framework keeps in device memory beyond what the mathematics needs, as facts from its source code: the
/// `memory:` part of a stack file. Orrery's own executors have none: they use only their arena.
#include <cstdint>
#include <string>

#include "base/yaml.h"
#include "plan/schedule/orders.h"

namespace orrery::cost {

/// What a published figure of memory counts.
enum class MemoryKind : std::uint8_t {
  allocated,  ///< tensors (torch.cuda.max_memory_allocated)
  reserved,   ///< memory that the caching allocator has requested from the device (max_memory_reserved)
  device,     ///< all that the process holds (nvidia-smi): including context and communicators
  needed,     ///< what the run needs to survive: as `device`, minus what the allocator can give back
};
[[nodiscard]] const char* name_of(MemoryKind kind);
/// A question about a stage's memory.
struct MemoryQuestion {
  MemoryKind kind = MemoryKind::device;
  plan::ZeroBubble zero_bubble =
      plan::ZeroBubble::none;  ///< the framework's own memory accounting of the order, for one chunk per stage
};

/// What a row's words say that its figure counts ("nvidia-smi max over GPUs"); `otherwise` if they say nothing of the
/// kind.
[[nodiscard]] MemoryKind memory_kind(const std::string& words, MemoryKind otherwise);

struct MemoryRecipe {
  bool stated = false;                       ///< the stack file has this part; else memory is the schedule's arena
  MemoryKind reported = MemoryKind::device;  ///< what its users report if a source does not say
  /// Dropout is applied. Kept for backward: one byte for each element that a mask covers and, in unfused attention, the
  /// probabilities before and after (Korthikanti et al. 2022, section 4.1: 2 sbh and 3 a s^2 b of equation 1). Models
  /// without biases (Llama, MPT, PaLM) train without dropout.
  bool dropout = false;
  /// Simultaneous fp32 copies of the logits in the loss: 1 in place, 3 in PyTorch's own cross-entropy.
  int loss_copies = 0;
  /// With fp32 accumulation, backward still makes gradients in the compute dtype, and they stay until the end of the
  /// micro-batch; then each is cast by itself.
  bool gradients_beside = false;
  /// Bytes per optimized parameter that the update allocates temporarily: gradients flattened, and cast to fp32.
  double update_fp16 = 0, update_bf16 = 0;
  /// These temporary gradients are one contiguous piece, which does not fit in the gaps that activations left: the
  /// caching allocator requests more from the device, so reserved memory includes both.
  bool update_in_one_piece = false;
  std::int64_t reduce_bucket = 0;  ///< elements of the buffer for gradient reductions; 0: none
  bool keeps_messages = false;     ///< per micro-batch, a stage clones what it receives and keeps what it sends
  bool keeps_gathered = false;     ///< tensor-group rows that a product has gathered stay gathered until backward
  /// What autograd keeps where the software composes operators that others fuse. composes_gates: a gated activation is
  /// two operators, and the activated gate is kept. repeats_keys: keys and values are repeated for the query heads that
  /// share them, and the copies are kept. gathers_rows: `torch.gather` puts rows in the order of experts and keeps its
  /// inputs: the rows as gathered from the tensor group, and again in the chosen order.
  bool composes_gates = false, repeats_keys = false, gathers_rows = false;
  /// Share of what passes allocate and free that the caching allocator holds in addition, in unusable pieces; `stuck`:
  /// the share that still remains when a device is full, because the allocator gives back unused memory before a run
  /// dies.
  double fragmentation = 0, stuck = 0;
  double pipeline_fragmentation = 0;  ///< the same for what all micro-batches in flight but one keep; it remains
  double moment_bytes = 8;            ///< both of Adam's moments, per parameter
};

[[nodiscard]] MemoryRecipe read_memory_recipe(const base::Cursor& at);

}  // namespace orrery::cost
