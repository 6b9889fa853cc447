#pragma once
/// Sums long vectors over a group by exchanging pieces: every member receives its piece from each of the others and
/// adds them up, in fp32 among 2, 4, 8 … members as a binary tree (exec/engine/reduce.h), else in a fixed order, 16-bit
/// pieces in fp32 with one rounding; for an all-reduce, the sums are then sent to all. MPICH's own non-blocking
/// reductions copy and wait more: to reduce and scatter 800 KB, two ranks took 700 us with them (in place: one
/// reduction per member), and about 100 us this way. Shorter ones are left to MPICH, whose recursive doubling and
/// halving add nearest ranks first, as the same tree.
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "exec/engine/transport.h"

namespace orrery::exec {

/// Buffers that pieces are received into, reused from one sum to the next.
class PieceStore {
 public:
  using Piece = std::unique_ptr<std::vector<std::byte>>;
  [[nodiscard]] Piece take(std::int64_t bytes);
  void give(Piece piece);

 private:
  std::vector<Piece> free_;
};

/// From this size of a member's piece on, this exchange is faster; and the largest size that MPI can count.
inline constexpr std::int64_t kLeastPiece = std::int64_t{64} << 10;
inline constexpr std::int64_t kLargestPiece = std::int64_t{1} << 30;

struct PairwiseSum {
  MPI_Comm communicator = MPI_COMM_NULL;
  int tag = 0;  ///< the same on all members; not used by another operation in flight in the communicator
  models::DType dtype = models::DType::fp32;
  plan::Reduce reduce = plan::Reduce::sum;
  PieceStore* store = nullptr;  ///< must outlive the request
};

/// In place over `elements` values at `data`.
[[nodiscard]] std::unique_ptr<Request> pairwise_all_reduce(const PairwiseSum& sum, std::byte* data,
                                                           std::int64_t elements);
/// `source` holds `elements_per_rank` values for each member; `target` may be this rank's own block of it.
[[nodiscard]] std::unique_ptr<Request> pairwise_reduce_scatter(const PairwiseSum& sum, const std::byte* source,
                                                               std::byte* target, std::int64_t elements_per_rank);

}  // namespace orrery::exec
