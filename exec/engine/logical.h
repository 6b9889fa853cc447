#pragma once
/// From a rank's flat bucket to logical tensors and back: which elements of which global, unpadded tensor a run of a
/// bucket holds. Initial values, checkpoints and gathered gradients are written in these terms, so that they do not
/// depend on the run's sharding.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// Elements that are consecutive both in the rank's part of a tensor and in the logical tensor.
struct Run {
  std::int64_t local = 0;    ///< first element, flat, in the rank's part of the tensor
  std::int64_t logical = 0;  ///< first element, flat in C order, in the logical tensor
  std::int64_t elements = 0;
};

/// Runs of a tensor's local elements [begin, end) on tensor rank `tensor_rank`; skips padding.
[[nodiscard]] std::vector<Run> runs_of(const models::Tensor& tensor, int tensor_rank, std::int64_t begin,
                                       std::int64_t end);

/// A run of one parameter that lies in a buffer of a bucket.
struct Holding {
  const plan::ParameterRange* range = nullptr;
  std::int64_t buffer_offset = 0;  ///< elements, within the buffer
  std::int64_t local_begin = 0;    ///< elements, flat, in the rank's part of the tensor
  std::int64_t local_end = 0;
};

/// Which of the bucket's elements [begin, end) belong to parameters, for a buffer whose element 0 is the bucket's
/// element `origin`.
[[nodiscard]] std::vector<Holding> holdings_between(const plan::Bucket& bucket, std::int64_t begin, std::int64_t end,
                                                    std::int64_t origin);

/// Which of the bucket's parameters `buffer` (parameters, shard, master, a moment) holds: all of them, or this data
/// rank's shard; the buffer's size tells.
[[nodiscard]] std::vector<Holding> holdings(const plan::RankClass& rank_class, const plan::Bucket& bucket,
                                            plan::BufferId buffer, int data_rank);

/// The reduced gradients that this rank has before the optimizer: a shard if the optimizer's states are sharded.
[[nodiscard]] std::vector<Holding> gradient_holdings(const plan::RankClass& rank_class, const plan::Bucket& bucket,
                                                     int data_rank, plan::BufferId& buffer);

/// The buffer with the values that the optimizer updates: master, shard or parameters.
[[nodiscard]] plan::BufferId weight_buffer(const plan::Bucket& bucket);
[[nodiscard]] bool is_sharded(const plan::RankClass& rank_class, const plan::Bucket& bucket, plan::BufferId buffer);
[[nodiscard]] std::int64_t logical_elements(const models::Tensor& tensor);

}  // namespace orrery::exec
