// The exchange as a state machine driven by test(): first pieces are received and summed, then, for an all-reduce,
// the sums go out.
#include "exec/mpi/pairwise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "base/ensure.h"
#include "exec/engine/half.h"
#include "exec/engine/reduce.h"
#include "exec/mpi/mpi_check.h"

namespace orrery::exec {

PieceStore::Piece PieceStore::take(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  const auto fits = std::find_if(free_.begin(), free_.end(), [&](const Piece& p) { return p->size() >= size; });
  if (fits == free_.end()) {
    if (!free_.empty()) free_.pop_back();  // too short for this request: replaced, so that the store stays small
    return std::make_unique<std::vector<std::byte>>(size);
  }
  Piece piece = std::move(*fits);
  free_.erase(fits);
  return piece;
}

void PieceStore::give(Piece piece) {
  if (piece) free_.push_back(std::move(piece));
}

namespace {

class PairwiseRequest : public Request {
 public:
  /// Member i's piece of the source begins at element first(i); this rank's own is summed in `own`.
  PairwiseRequest(const PairwiseSum& sum, const std::byte* source, std::byte* own, std::vector<std::int64_t> begins,
                  std::byte* all)
      : sum_(sum), width_(models::size_of(sum.dtype)), begins_(std::move(begins)), own_(own), all_(all) {
    check_mpi(MPI_Comm_rank(sum.communicator, &me_), "MPI_Comm_rank");
    members_ = static_cast<int>(begins_.size()) - 1;
    const std::byte* const mine = source + begin(me_);
    ENSURE(mine == own || mine + bytes(me_) <= own || own + bytes(me_) <= mine, "overlapping pieces of a sum");
    if (mine != own) std::memcpy(own, mine, static_cast<std::size_t>(bytes(me_)));
    if (is_16_bit(sum.dtype)) {
      wide_ = sum.store->take(values() * static_cast<std::int64_t>(sizeof(float)));
      widen(sum.dtype, own, wide());
    }
    tree_ = !wide_ && std::has_single_bit(begins_.size() - 1);
    for (int round = 0; round < std::min(2, members_ - 1); ++round) receive(round);
    for (int round = 0; round < members_ - 1; ++round) {
      const int to = tree_ ? me_ ^ (round + 1) : (me_ + round + 1) % members_;
      check_mpi(MPI_Isend(source + begin(to), static_cast<int>(bytes(to)), MPI_BYTE, to, sum.tag, sum.communicator,
                          &sends_.emplace_back()),
                "MPI_Isend");
    }
  }
  ~PairwiseRequest() override {
    for (Incoming& one : incoming_) sum_.store->give(std::move(one.piece));
    for (PieceStore::Piece& piece : open_) sum_.store->give(std::move(piece));
    sum_.store->give(std::move(wide_));
  }

  bool test() override {
    for (; received_ < members_ - 1; ++received_) {
      Incoming& one = incoming_[static_cast<std::size_t>(received_ % 2)];
      if (!done(one.request)) return false;
      if (tree_)
        add_to_tree(std::move(one.piece));
      else
        add(one.piece->data());
      if (received_ + 2 < members_ - 1) receive(received_ + 2);
    }
    // Only now may sums overwrite what was sent.
    for (; sent_ < sends_.size(); ++sent_)
      if (!done(sends_[sent_])) return false;
    if (all_ == nullptr) return true;
    if (!spreading_) spread();
    for (; sent_ < sends_.size(); ++sent_)
      if (!done(sends_[sent_])) return false;
    return true;
  }

 private:
  struct Incoming {
    PieceStore::Piece piece;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  [[nodiscard]] std::int64_t begin(int member) const { return begins_[static_cast<std::size_t>(member)] * width_; }
  [[nodiscard]] std::int64_t bytes(int member) const { return begin(member + 1) - begin(member); }

  [[nodiscard]] std::int64_t values() const { return bytes(me_) / width_; }
  [[nodiscard]] std::span<float> wide() const {
    return {reinterpret_cast<float*>(wide_->data()), static_cast<std::size_t>(values())};
  }
  void add(const std::byte* piece) {
    if (!wide_) return reduce_into(own_, piece, values(), sum_.dtype, sum_.reduce);
    reduce_wide(wide().data(), piece, values(), sum_.dtype, sum_.reduce);
    if (received_ + 2 == members_) narrow(sum_.dtype, wide(), own_);
  }

  // Member me ^ i came i-th; own_ is the 0th. Sums of fp32 commute, so the tree is the same for every member.
  void add_to_tree(PieceStore::Piece piece) {
    open_.push_back(std::move(piece));
    for (int joins = joins_after(static_cast<std::size_t>(received_) + 1); joins > 0; --joins) {
      std::byte* const into = open_.size() == 1 ? own_ : open_[open_.size() - 2]->data();
      reduce_into(into, open_.back()->data(), values(), sum_.dtype, sum_.reduce);
      sum_.store->give(std::move(open_.back()));
      open_.pop_back();
    }
  }

  static bool done(MPI_Request& request) {
    int flag = 0;
    check_mpi(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    return flag != 0;
  }
  void receive(int round) {
    Incoming& one = incoming_[static_cast<std::size_t>(round % 2)];
    if (!one.piece) one.piece = sum_.store->take(bytes(me_));
    const int from = tree_ ? me_ ^ (round + 1) : (me_ + members_ - round - 1) % members_;
    check_mpi(MPI_Irecv(one.piece->data(), static_cast<int>(bytes(me_)), MPI_BYTE, from, sum_.tag, sum_.communicator,
                        &one.request),
              "MPI_Irecv");
  }
  void spread() {
    spreading_ = true;
    for (int round = 1; round < members_; ++round) {
      const int to = (me_ + round) % members_, from = (me_ + members_ - round) % members_;
      check_mpi(MPI_Irecv(all_ + begin(from), static_cast<int>(bytes(from)), MPI_BYTE, from, sum_.tag,
                          sum_.communicator, &sends_.emplace_back()),
                "MPI_Irecv");
      check_mpi(MPI_Isend(own_, static_cast<int>(bytes(me_)), MPI_BYTE, to, sum_.tag, sum_.communicator,
                          &sends_.emplace_back()),
                "MPI_Isend");
    }
  }

  PairwiseSum sum_;
  std::int64_t width_;
  std::vector<std::int64_t> begins_;
  std::byte* own_;
  std::byte* all_;          ///< null: sums are not sent on
  PieceStore::Piece wide_;  ///< sums in fp32 of what is in 16 bits
  int me_ = 0, members_ = 0, received_ = 0;
  bool spreading_ = false, tree_ = false;
  std::vector<PieceStore::Piece> open_;  ///< of the tree: sums that wait for their other halves
  std::array<Incoming, 2> incoming_;
  std::vector<MPI_Request> sends_;  ///< while sums are sent out, also their receives
  std::size_t sent_ = 0;
};

/// Bounds of pieces that are as equal as whole elements allow.
std::vector<std::int64_t> divided(std::int64_t elements, int members) {
  std::vector<std::int64_t> begins;
  for (int i = 0; i <= members; ++i) begins.push_back(elements * i / members);
  return begins;
}

int size_of(MPI_Comm communicator) {
  int size = 0;
  check_mpi(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  return size;
}

}  // namespace

std::unique_ptr<Request> pairwise_all_reduce(const PairwiseSum& sum, std::byte* data, std::int64_t elements) {
  std::vector<std::int64_t> begins = divided(elements, size_of(sum.communicator));
  int me = 0;
  check_mpi(MPI_Comm_rank(sum.communicator, &me), "MPI_Comm_rank");
  std::byte* const own = data + begins[static_cast<std::size_t>(me)] * models::size_of(sum.dtype);
  return std::make_unique<PairwiseRequest>(sum, data, own, std::move(begins), data);
}

std::unique_ptr<Request> pairwise_reduce_scatter(const PairwiseSum& sum, const std::byte* source, std::byte* target,
                                                 std::int64_t elements_per_rank) {
  const int members = size_of(sum.communicator);
  return std::make_unique<PairwiseRequest>(sum, source, target, divided(elements_per_rank * members, members), nullptr);
}

}  // namespace orrery::exec
