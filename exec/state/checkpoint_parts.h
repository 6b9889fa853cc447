#pragma once
/// The parts of a checkpoint: runs of a rank's share of a logical tensor, as exec/state/checkpoint_manifest.h lists
/// them.
#include <cstdint>
#include <string>
#include <vector>

#include "exec/engine/logical.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// Moments of 8-bit Adam are saved in fp32. SGD's momentum is a first moment. Adafactor's factors and loss scaling are
/// tensors of their own. stashed: an earlier version of a weight, in a pipeline that does not drain. error, low_rank_q:
/// see exec/state/compression_states.h.
enum class State {
  weight,
  first_moment,
  second_moment,
  stashed,
  factor_sum,
  factor_rows,
  factor_columns,
  scaling,
  error,
  low_rank_q
};
inline constexpr State kStates[] = {State::weight, State::first_moment,
                                    State::second_moment};  ///< one value per element
[[nodiscard]] const char* name_of(State state);
/// Whether there may be several of one tensor: versions of a weight, errors of replicas, Q of tensor ranks.
[[nodiscard]] bool has_versions(State state);
[[nodiscard]] plan::BufferId buffer_of(const plan::Bucket& bucket, State state);

/// Local elements [begin, end) of a part of a logical tensor: that of the `tensor_rank`th of the ranks that split it.
struct CheckpointPart {
  std::string file;  ///< "rank-00000.safetensors"
  std::string key;   ///< name of the tensor in that file; one dimension
  State state{};
  int version = 0;        ///< of a stashed weight: its place in the ring; of an error or Q: its holder
  models::Tensor tensor;  ///< name, shape, logical_shape and split_axis only
  int tensor_rank = 0;
  std::int64_t begin = 0, end = 0;
  std::uint32_t crc = 0;  ///< of its bytes in the file; absent from manifests of format 1.0
};

/// A run of values that is not part of a bucket: factors, loss scaling.
struct OwnState {
  State state{};
  plan::ParameterRange range;  ///< name and shapes
  plan::BufferId buffer;
  std::int64_t offset = 0;
  const plan::Bucket* bucket = nullptr;  ///< of the parameter whose state it is; null: of none
  [[nodiscard]] bool of_experts() const { return bucket != nullptr && bucket->experts; }
};
[[nodiscard]] std::vector<OwnState> own_states(const plan::RankClass& rank_class);

/// A part of what one rank writes. If states are sharded, the rank writes its own shard of every n-th bucket, where n
/// is the number of sub-groups; otherwise it writes every data-th bucket. Of the ranks that split a bucket's
/// matrices the first alone writes what is not split, and second copies (the tied table's, or a mirrored model's) are
/// not written.
struct OwnedPart {
  CheckpointPart part;
  plan::BufferId buffer;
  std::int64_t buffer_offset = 0;
};

/// One version of a bucket's state, as it is saved and loaded.
struct SavedState {
  State state{};
  int version = 0;
};
[[nodiscard]] std::vector<SavedState> saved_states(const plan::RankClass& rank_class, const plan::Bucket& bucket);
[[nodiscard]] std::vector<OwnedPart> owned_parts(const plan::Schedule& schedule, int rank);

}  // namespace orrery::exec
