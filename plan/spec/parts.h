#pragma once
/// The parts of a plan.
#include <cstdint>

#include "models/model.h"
#include "plan/spec/space.h"

namespace orrery::plan {

enum class Recompute { none, selective, full };
enum class Rounding { nearest, stochastic };

/// How gradients travel over the data group (plan/lower/compress.h).
enum class GradientCompression : std::uint8_t { none, bf16, fp16, powersgd };
/// Format in which saved activations of blocks wait for backward, as in Gist (Jain et al. 2018, section 4.2; models/
/// encoding.h); lossless: a ReLU's output without its zeros (section 4.1).
enum class ActivationEncoding : std::uint8_t { none, fp16, fp10, fp8, lossless };

/// What travels or waits in fewer bits. All but `lossless` change the mathematics.
struct Compression {
  GradientCompression gradients = GradientCompression::none;
  ActivationEncoding activations = ActivationEncoding::none;
  int rank = 4;  ///< powersgd: columns of P and Q
  /// powersgd: a matrix of n x m values is compressed where (n + m) * rank * minimum_rate < n * m.
  double minimum_rate = 2;
  double capacity = 0.6;  ///< lossless: the largest share of values that may be nonzero
  /// bf16, fp16: this many neighbouring replicas, those of a node, sum their gradients in full precision before the sum
  /// is rounded and exchanged with other nodes (plan/lower/compress.h). 0: all exchange at once.
  int group = 0;
  /// powersgd: this many first steps of a run reduce gradients whole (start_powerSGD_iter of PyTorch's hook).
  std::int64_t start = 0;
  bool operator==(const Compression&) const = default;
};

/// In what rows of tokens travel to their experts, gradients of what these made among them, and back. All but none
/// changes the mathematics: rows are rounded wherever the experts are, so that no placement does.
struct Tokens {
  models::TokenCodec dispatch = models::TokenCodec::none, combine = models::TokenCodec::none;
  bool operator==(const Tokens&) const = default;
};

/// What lives outside the device's memory (plan/lower/offload.h); `device`: nothing leaves it.
struct Offload {
  /// host: what blocks save for backward moves out after forward and returns ahead of backward; with full recomputation
  /// that is the blocks' checkpoints (ZeRO, Rajbhandari et al. 2020, section 6.1: P_a+cpu).
  Space activations = Space::device;
  /// host: master values, moments and summed gradients live there; its cores do the update (ZeRO-Offload, Ren et al.
  /// 2021); nvme: master values and moments are streamed from files through the host (ZeRO-Infinity, Rajbhandari 2021).
  Space optimizer = Space::device;
  Space parameters = Space::device;  ///< host, nvme: a layer's values are fetched for its passes (ZeRO-Infinity)
  int prefetch = 1;                  ///< how many layers ahead of their use values are fetched
  bool operator==(const Offload&) const = default;
  [[nodiscard]] bool any() const {
    return activations != Space::device || optimizer != Space::device || parameters != Space::device;
  }
};

}  // namespace orrery::plan
