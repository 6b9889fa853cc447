#pragma once
/// The parts of a checkpoint: runs of a rank's share of a logical tensor. exec/state/checkpoint_manifest.h lists them.
#include <cstdint>
#include <string>
#include <vector>

#include "exec/engine/logical.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// Moments of 8-bit Adam are saved in fp32; SGD's momentum is a first moment. Adafactor's factors are tensors of their
/// own, and so is loss scaling. stashed: an earlier version of a weight, of a pipeline that does not drain. error,
/// low_rank_q: exec/state/compression_states.h.
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
inline constexpr State kStates[] = {State::weight, State::first_moment, State::second_moment};  ///< of each element
[[nodiscard]] const char* name_of(State state);
/// Of which there are several of one tensor: versions of a weight, errors of replicas, Q of tensor ranks.
[[nodiscard]] bool has_versions(State state);
[[nodiscard]] int buffer_of(const plan::Bucket& bucket, State state);

/// Local elements [begin, end) of the part that tensor rank `tensor_rank` has of a logical tensor.
struct CheckpointPart {
  std::string file;  ///< "rank-00000.safetensors"
  std::string key;   ///< name of the tensor in that file; one dimension
  State state{};
  int version = 0;        ///< of what is stashed: its place in the ring; of errors and Q: whose it is
  models::Tensor tensor;  ///< name, shape, logical_shape and split_axis only
  int tensor_rank = 0;
  std::int64_t begin = 0, end = 0;
  std::uint32_t crc = 0;  ///< of its bytes in the file; manifests of format 1.0 have none
};

/// A run of values that stands by itself in a buffer of the class: factors, loss scaling.
struct OwnState {
  State state{};
  plan::ParameterRange range;  ///< name and shapes
  int buffer = -1;
  std::int64_t offset = 0;
};
[[nodiscard]] std::vector<OwnState> own_states(const plan::RankClass& rank_class);

/// What rank `rank` writes: its own shard where the states are sharded, of every so many-th bucket if there are so many
/// sub-groups, else every data-th bucket; a replicated parameter from tensor rank 0 alone; a second copy of the tied
/// table, or of a mirrored model, not at all.
struct OwnedPart {
  CheckpointPart part;
  int buffer = -1;
  std::int64_t buffer_offset = 0;
};

/// A state of a bucket in one of its versions, as it is saved and loaded.
struct SavedState {
  State state{};
  int version = 0;
};
[[nodiscard]] std::vector<SavedState> saved_states(const plan::RankClass& rank_class, const plan::Bucket& bucket);
[[nodiscard]] std::vector<OwnedPart> owned_parts(const plan::Schedule& schedule, int rank);

}  // namespace orrery::exec
