#pragma once
/// Pipeline orders: in which order a stage runs the forward and backward passes of its micro-batches.
#include <cstdint>
#include <vector>

#include "plan/job.h"

namespace orrery::plan {

struct Turn {
  bool forward = true;
  std::int32_t micro_batch = 0;
  bool operator==(const Turn&) const = default;
};

/// gpipe: all forwards, then all backwards (Huang et al. 2019, section 2.2).
/// one_f_one_b: min(stages - 1 - stage, micro_batches) forwards, then one forward and one backward in turn, then the
/// remaining backwards; one synchronous update (PipeDream-Flush, Narayanan et al. 2021, figure 4).
[[nodiscard]] std::vector<Turn> turns(Order order, int stage, int stages, std::int64_t micro_batches);

/// One entry of an interleaved program: a pass, or a message that lies between passes.
struct Move {
  enum class Kind : std::uint8_t {
    forward,
    backward,
    send_activation,
    send_gradient,
    receive_activation,
    receive_gradient
  };
  Kind kind = Kind::forward;
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;  ///< of the rank that makes the move
  bool operator==(const Move&) const = default;
};

/// Interleaved 1F1B (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using
/// Megatron-LM", section 2.2.2), message by message as Megatron-LM's forward_backward_pipelining_with_interleaving: a
/// rank takes `stages` micro-batches through one chunk, then through the next. min(m v, (v - 1) p + 2 (p - 1 - stage))
/// forwards, then one forward and one backward in turn, then the rest of the backwards. Between turns it sends what
/// they made and receives what the next turn takes. The last stage's neighbour ahead is the first stage, one chunk
/// further. `micro_batches` is a multiple of `stages`, and stages >= 2.
[[nodiscard]] std::vector<Move> interleaved(int stage, int stages, int chunks, std::int64_t micro_batches);

/// The most micro-batches whose activations a stage holds at once under that order.
[[nodiscard]] std::int64_t in_flight(Order order, int stage, int stages, std::int64_t micro_batches);

}  // namespace orrery::plan
