#pragma once
/// Pipeline orders: the sequence in which a stage runs the forward and backward passes of its micro-batches.
#include <cstdint>
#include <vector>

#include "plan/spec/plan.h"

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

/// One entry of a program with chunks or split passes: a pass, or a message between passes.
struct Move {
  enum class Kind : std::uint8_t {
    forward,
    backward,
    send_activation,
    send_gradient,
    receive_activation,
    receive_gradient,
    weights,  ///< the weight gradients of a split backward pass
    update    ///< the end of a training step, where the next one is under way already
  };
  Kind kind = Kind::forward;
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;  ///< of the rank that makes the move
  /// Of a forward pass: its operators take turns with those of the backward pass that is the next move, so that the
  /// messages of each run beside the compute of the other. Both have what they read when the first begins, and what
  /// they make is sent when both have ended.
  bool beside = false;
  bool operator==(const Move&) const = default;
};

/// Whether the order of a plan has such pairs, and the passes have messages within them (of a tensor, context or expert
/// group), without which a pair is two passes in turn. Copies to other memories count by whole passes: plans that have
/// them run no pairs.
[[nodiscard]] bool runs_beside(const PlanSpec& spec);

/// One part of a pass of a pair.
struct PairPart {
  bool backward = false;
  std::int32_t part = 0;
  bool operator==(const PairPart&) const = default;
};
/// How the parts of both passes take turns, evenly from begin to end; at the same place the forward pass comes first.
[[nodiscard]] std::vector<PairPart> in_turn(std::int32_t forward_parts, std::int32_t backward_parts);

/// Interleaved 1F1B (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using
/// Megatron-LM", section 2.2.2), message by message as in Megatron-LM's forward_backward_pipelining_with_interleaving:
/// a rank takes `stages` micro-batches through one chunk, then the next. min(m v, (v - 1) p + 2 (p - 1 - stage))
/// forwards, then one forward and one backward in turn, then the remaining backwards. Between turns it sends their
/// results and receives the inputs of the next turn. After the last stage comes the first, one chunk further.
/// `micro_batches` is a multiple of `stages`, and stages >= 2.
[[nodiscard]] std::vector<Move> interleaved(int stage, int stages, int chunks, std::int64_t micro_batches);

/// 1F1B with a split backward: the gradient of the input (B), and later those of the weights (W): Qi et al. 2023, "Zero
/// Bubble Pipeline Parallelism". h1, h2: the orders of its sections 2.1 and 2.2. limit_2p: the order that its search
/// finds within the activations of 2p micro-batches (ZB-2p). The order found within p (section 3, ZB-1p) holds as many
/// as h1. These name what a framework holds in memory; the orders that Orrery lowers are below.
enum class ZeroBubble : std::uint8_t { none, h1, h2, limit_2p };

/// Micro-batches that a stage holds at once: whole ones, and those with only the inputs of W left.
struct Held {
  std::int64_t whole = 0, for_weights = 0;
  bool operator==(const Held&) const = default;
};

/// Held at the peak, with p = `stages`. h1: p - stage whole ones and `stage` halves; h2: 2 (p - stage) - 1 and 2 stage.
/// limit_2p: as many forwards as fit before the first B can run, two more than in h2 because a B takes longer than a
/// forward, and halves up to the limit; the first stage needs no more than in h2.
[[nodiscard]] Held held(ZeroBubble order, int stage, int stages, std::int64_t micro_batches);

/// The zero-bubble orders (Qi, Wan, Huang, Lin 2023, "Zero Bubble Pipeline Parallelism", arXiv:2401.10241; the V order:
/// by the same authors, 2024, arXiv:2405.15362): `backward` makes only the input's gradient and `weights` the rest,
/// later. With t_F, t_B, t_W the times of the passes, p stages, free transfers and m >= 2 p - 1 a stage waits at most
///   zb_h1  min(p - 1 - s, m) forwards, then 1F1B, weights s micro-batches later: (p - 1) (t_F + t_B - t_W), and each
///          stage holds p micro-batches (section 2.3; 1F1B: (p - 1) (t_F + t_B + t_W), as many on the first stage)
///   zb_h2  min(2 (p - 1 - s), m) forwards, weights 2 s later: (p - 1) (t_F + t_B - 2 t_W), 2 p - 1 micro-batches
///   zb_v   two chunks per stage, folded; made by hand for t_F = t_B = t_W: then no wait, at p micro-batches
///   dualpipe_v  two chunks per stage, folded: DualPipe (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section
///          3.2.1) cut in half, so that no stage is held twice (deepseek-ai/DualPipe, DualPipeV; m >= 2 p):
///          (p - 1) (t_F + t_B - t_W) with the passes of a chunk, if these take about equally long, at p + 1/2
///          micro-batches
///   dualpipe  DualPipe itself (the same, figure 5 and table 2; deepseek-ai/DualPipe; m >= 2 p): the model is held
///          twice; micro-batches 0 to m/2 - 1 enter at the first stage and run through first chunks, the others enter
///          at the last and run through second chunks: (p/2 - 1) (t_FB + t_B - 3 t_W), with t_FB a forward and a
///          backward pass that overlap and t_B a whole backward pass, at p + 1 micro-batches. Compute of one rank does
///          not overlap: t_FB = t_F + t_B, but for the messages that `beside` hides
/// Messages lie between the passes: each is sent right after the pass that makes it, and its receive is posted where it
/// would be made if all passes took equally long. By stage.
/// The figures above assume `weights_wait`. Without it, each micro-batch's weights pass follows its backward pass at
/// once, and the gradient of its input is sent in between. `beside`: dualpipe and dualpipe_v run the passes of a pair
/// beside each other (Move::beside), those that their authors' code overlaps.
[[nodiscard]] std::vector<std::vector<Move>> zero_bubble(Order order, int stages, std::int64_t micro_batches,
                                                         bool weights_wait = true, bool beside = false);

/// The passes of each rank in a custom order, with messages as in the orders above. By stage.
[[nodiscard]] std::vector<std::vector<Move>> custom(const PassOrder& passes);

/// The order of a plan with chunks or split passes, by stage. A custom order has its own number of micro-batches: ask
/// for fewer only where a part of the order is enough.
[[nodiscard]] std::vector<std::vector<Move>> moves_of(const PlanSpec& spec, std::int64_t micro_batches);

/// A stage's moves in a training step of an asynchronous order (plan/schedule/asynchronous.h): 1F1B from one training
/// step into the next. A pass's input is received while an earlier pass runs. Micro-batches are counted from the step's
/// first; those from `micro_batches` on belong to later steps.
struct AsynchronousMoves {
  std::vector<Move> opening;  ///< of a run's first step alone, before the others
  std::vector<Move> every;
};
[[nodiscard]] AsynchronousMoves asynchronous_moves(const PlanSpec& spec, StageId stage, std::int64_t micro_batches);

/// The most micro-batches whose activations a stage holds at once in that order.
[[nodiscard]] std::int64_t in_flight(Order order, int stage, int stages, std::int64_t micro_batches);

}  // namespace orrery::plan
