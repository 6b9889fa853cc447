#pragma once
/// What a framework keeps in a device's memory beyond what the mathematics asks for, as facts of its source code: the
/// `memory:` part of a stack file. Orrery's own executors have none: their arena is all there is.
#include <cstdint>
#include <string>

#include "base/yaml.h"
#include "plan/schedule/orders.h"

namespace orrery::cost {

/// What a published figure of memory counts.
enum class MemoryKind : std::uint8_t {
  allocated,  ///< tensors (torch.cuda.max_memory_allocated)
  reserved,   ///< what the caching allocator has asked the device for (max_memory_reserved)
  device,     ///< all that the process holds there (nvidia-smi): context and communicators besides
  needed,     ///< what a device must have for the run to live: as `device`, without what the allocator can give back
};
[[nodiscard]] const char* name_of(MemoryKind kind);
/// What is asked of a stage's memory.
struct MemoryQuestion {
  MemoryKind kind = MemoryKind::device;
  plan::ZeroBubble zero_bubble =
      plan::ZeroBubble::none;  ///< a framework's own account of the order, of one chunk a stage
};

/// What a row's words on its figure mean ("nvidia-smi max over GPUs"); `otherwise` where they say nothing of the kind.
[[nodiscard]] MemoryKind memory_kind(const std::string& words, MemoryKind otherwise);

struct MemoryRecipe {
  bool stated = false;                       ///< the stack has this part; else its memory is the schedule's arena
  MemoryKind reported = MemoryKind::device;  ///< what its users read, where a source does not say
  /// Dropout is drawn: for backward stay one byte for each element that a mask covers and, in unfused attention, the
  /// probabilities before and after (Korthikanti et al. 2022, section 4.1: 2 sbh and 3 a s^2 b of equation 1). Models
  /// without biases (Llama, MPT, PaLM) train without it.
  bool dropout = false;
  /// Copies of the logits in fp32 at once while the loss is computed: 1 in place, 3 in PyTorch's own cross-entropy.
  int loss_copies = 0;
  /// Where gradients are accumulated in fp32, backward makes them in the type of the computation all the same, and they
  /// wait for the end of the micro-batch; each is then cast by itself.
  bool gradients_beside = false;
  /// Bytes of each optimized parameter that the update makes and frees: gradients flattened, and cast to fp32.
  double update_fp16 = 0, update_bf16 = 0;
  /// They lie in one piece, for which the caching allocator finds no room among what activations left free: it asks the
  /// device for more, so that reserved memory has both.
  bool update_in_one_piece = false;
  std::int64_t reduce_bucket = 0;  ///< elements of a buffer through which gradients are reduced; 0: none
  bool keeps_messages = false;     ///< a stage clones what it receives and keeps what it sends, with each micro-batch
  bool keeps_gathered = false;     ///< what a product gathers of a tensor group's rows waits for backward as it is
  /// Of what passes make and free again, what the caching allocator holds besides, in pieces that nothing fits; and
  /// of that what is left when a device is full, since it gives back what nobody uses before a run dies.
  double fragmentation = 0, stuck = 0;
  double pipeline_fragmentation = 0;  ///< the same of what all micro-batches in flight but one keep; it stays stuck
  double moment_bytes = 8;            ///< of both of Adam's moments, a parameter
};

[[nodiscard]] MemoryRecipe read_memory_recipe(const base::Cursor& at);

}  // namespace orrery::cost
