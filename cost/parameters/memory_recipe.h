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

/// Whether operands of products in fewer bits exist as such outside the product.
enum class RoundedWeights : std::uint8_t {
  none,     ///< products round weights each time anew
  beside,   ///< they are rounded once a step, and stay beside the 16-bit ones
  instead,  ///< the 16-bit ones do not exist
};
[[nodiscard]] const char* name_of(RoundedWeights kind);
/// Bytes of a value that waits for backward as its readers there take it, in a plan whose products are in fp8, scales
/// included; 2: as it is. Readers of fewer than 2 bytes share one copy, of the most bytes among them.
struct KeptInFp8 {
  double products = 1;   ///< products: their inputs
  double gates = 2;      ///< an activation function, or its gradient: its inputs
  double attention = 2;  ///< attention's gradient: attention's own output
  bool operator==(const KeptInFp8&) const = default;
};

struct MemoryRecipe {
  bool stated = false;                       ///< the stack file has this part; else memory is the schedule's arena
  MemoryKind reported = MemoryKind::device;  ///< what its users report if a source does not say
  /// Dropout is applied. Kept for backward: one byte for each element that a mask covers and, in unfused attention, the
  /// probabilities before and after (Korthikanti et al. 2022, section 4.1: 2 sbh and 3 a s^2 b of equation 1). Models
  /// without biases (Llama, MPT, PaLM) train without dropout.
  bool dropout = false;
  /// Copies of the logits in fp32 beside two of 16 bits when the loss's backward pass begins. PyTorch's own
  /// cross-entropy has three of fp32 then (the log-softmax, its gradient and that of the logits), as many bytes as 2
  /// here; 3 if the caller holds the logits in fp32 as well.
  int loss_copies = 0;
  bool loss_apart = false;  ///< without copies in fp32, the gradient of the logits is a tensor of its own beside them
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
  /// A root-mean-square norm is composed, too: its input is kept in fp32 instead of as it is, and beside its output the
  /// normalised values, where its weight trains.
  bool composes_norms = false;
  /// Sums of residual branches are in fp32: autocast leaves parameters in fp32, so the token table gives fp32 rows.
  bool wide_sums = false;
  /// Bytes of each gradient that adds up over a step and is reduced, in that bucket too, with 16-bit and 8-bit
  /// arithmetic.
  double gradient_bytes = 4;
  /// What products in fewer bits read for a weight's gradient waits for backward as they read it (fp8: a byte), beside
  /// the 16-bit tensor only where something else reads that too.
  bool saves_rounded = false;
  RoundedWeights rounded_weights = RoundedWeights::none;  ///< of blocks
  /// Forward reads a rounded weight by rows and backward by columns. One copy serves both where a scale belongs to the
  /// whole tensor and the device multiplies 8-bit operands in either order (Blackwell); derived, no stack states it.
  bool one_rounded_copy = false;
  bool scales_blocks = false;  ///< rounded values share a scale along rows or along columns (mxfp8), not by tensor
  KeptInFp8 kept_in_fp8 = {};  ///< where `saves_rounded`
  /// Experts' rows are multiplied by the router's weights within the activation, so that their results are not kept.
  bool weighs_in_experts = false;
  /// Attention takes values that are narrower than keys, as latent attention has them; otherwise they are padded.
  bool narrow_values = false;
  /// ZeRO 3: 16-bit parameters exist only while they are gathered; the shards are the fp32 values.
  bool gathers_masters = false;
  /// Blocks whose saved tensors go to the host meanwhile.
  std::int64_t blocks_on_host = 0;
  /// Share of what passes allocate and free that the caching allocator holds in addition, in unusable pieces; `stuck`:
  /// the share that still remains when a device is full, because the allocator gives back unused memory before a run
  /// dies.
  double fragmentation = 0, stuck = 0;
  double pipeline_fragmentation = 0;  ///< the same for what all micro-batches in flight but one keep; it remains
  double moment_bytes = 8;            ///< both of Adam's moments, per parameter
};

/// Gives a recipe, if it is stated, what another one says of the model's code: the loss, gates and keys.
void take_model_code(const MemoryRecipe& code, MemoryRecipe& recipe);

[[nodiscard]] MemoryRecipe read_memory_recipe(const base::Cursor& at);

}  // namespace orrery::cost
