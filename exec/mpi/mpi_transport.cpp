// MPI behind the Transport interface. Counts beyond MPI's int are split into chunks; errors are Failures.
#include "exec/mpi/mpi_transport.h"

#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <limits>

#include "base/ensure.h"
#include "exec/engine/half.h"
#include "exec/engine/reduce.h"
#include "exec/failure.h"
#include "exec/mpi/mpi_check.h"
#include "exec/mpi/pairwise.h"

namespace orrery::exec {

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Failure(fmt::format("{}: {}", what, std::string(text.data(), static_cast<std::size_t>(length))));
}

namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 30;  // of one MPI call, whose counts are int

MPI_Datatype sum_type(models::DType dtype) {
  switch (dtype) {
    case models::DType::fp32: return MPI_FLOAT;
    case models::DType::int32: return MPI_INT32_T;
    case models::DType::int64: return MPI_INT64_T;
    case models::DType::bf16:
    case models::DType::fp16: return MPI_UINT16_T;  // reduced by operations of our own
    case models::DType::tf32:
    case models::DType::uint8:
    case models::DType::fp4:
    case models::DType::fp8: break;
  }
  throw Failure(fmt::format("MPI has no reduction of {}", models::name_of(dtype)), FailureKind::environment);
}

/// MPI has no 16-bit floating type: user operations get them as integers of that size.
template <models::DType dtype, plan::Reduce reduce>
void reduce_16(void* in, void* into, int* count, MPI_Datatype*) {
  reduce_into(static_cast<std::byte*>(into), static_cast<const std::byte*>(in), *count, dtype, reduce);
}

class Operations {
 public:
  Operations() {
    using models::DType;
    using plan::Reduce;
    make(0, reduce_16<DType::bf16, Reduce::sum>);
    make(1, reduce_16<DType::bf16, Reduce::maximum>);
    make(2, reduce_16<DType::fp16, Reduce::sum>);
    make(3, reduce_16<DType::fp16, Reduce::maximum>);
  }
  ~Operations() {
    for (MPI_Op& op : own_) MPI_Op_free(&op);
  }
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  [[nodiscard]] MPI_Op of(models::DType dtype, plan::Reduce reduce) const {
    const bool sum = reduce == plan::Reduce::sum;
    if (dtype == models::DType::bf16) return own_[sum ? 0 : 1];
    if (dtype == models::DType::fp16) return own_[sum ? 2 : 3];
    return sum ? MPI_SUM : MPI_MAX;
  }

 private:
  void make(std::size_t i, MPI_User_function* function) {
    check_mpi(MPI_Op_create(function, 1, &own_[i]), "MPI_Op_create");
  }
  std::array<MPI_Op, 4> own_{};
};

/// Several MPI requests that count as one.
class MpiRequest : public Request {
 public:
  bool test() override {
    while (next_ < requests_.size()) {
      int done = 0;
      check_mpi(MPI_Test(&requests_[next_], &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (!done) return false;
      ++next_;
    }
    return true;
  }
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

 private:
  std::vector<MPI_Request> requests_;
  std::size_t next_ = 0;
};

/// Calls `each(first, count)` for chunks that MPI can count.
template <class Each>
void in_chunks(std::int64_t elements, Each each) {
  std::int64_t first = 0;
  do {
    const std::int64_t count = std::min(kMostElements, elements - first);
    each(first, static_cast<int>(count));
    first += count;
  } while (first < elements);
}

class MpiTransport : public Transport {
 public:
  MpiTransport(int rank, int size, const Waiter& waiter) : rank_(rank), size_(size), waiter_(waiter) {
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &messages_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &host_), "MPI_Comm_dup");
  }
  ~MpiTransport() override {
    for (Communicator& group : groups_)
      if (group.communicator != MPI_COMM_NULL) MPI_Comm_free(&group.communicator);
    MPI_Comm_free(&messages_);
    MPI_Comm_free(&host_);
  }

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  GroupId make_group(const plan::Group& group) override {
    const std::vector<int> members = group.members(rank_);
    Communicator made;
    made.size = static_cast<int>(members.size());
    const int colour = members.empty() ? MPI_UNDEFINED : members.front();
    check_mpi(MPI_Comm_split(host_, colour, rank_, &made.communicator), "MPI_Comm_split");
    int size = 0;
    if (made.communicator != MPI_COMM_NULL) check_mpi(MPI_Comm_size(made.communicator, &size), "MPI_Comm_size");
    ENSURE(size == made.size, "group {} has {} members, expected {}", group.name, size, made.size);
    groups_.push_back(made);
    return static_cast<GroupId>(groups_.size()) - 1;
  }

  std::unique_ptr<Request> all_reduce(GroupId group, plan::Reduce reduce, models::DType dtype, std::byte* data,
                                      std::int64_t elements) override {
    const int members = groups_[static_cast<std::size_t>(group)].size;
    const std::int64_t piece = (elements + members - 1) / members * models::size_of(dtype);
    if (members > 1 && piece >= kLeastPiece && piece <= kLargestPiece)
      return pairwise_all_reduce(pairwise(group, dtype, reduce), data, elements);
    auto request = std::make_unique<MpiRequest>();
    in_chunks(elements, [&](std::int64_t first, int count) {
      check_mpi(MPI_Iallreduce(MPI_IN_PLACE, data + first * models::size_of(dtype), count, sum_type(dtype),
                               operations_.of(dtype, reduce), communicator(group), request->add()),
                "MPI_Iallreduce");
    });
    return request;
  }

  std::unique_ptr<Request> all_gather(GroupId group, models::DType dtype, const std::byte* source, std::byte* target,
                                      std::int64_t elements_per_rank) override {
    auto request = std::make_unique<MpiRequest>();
    const std::int64_t bytes = elements_per_rank * models::size_of(dtype);
    int mine = 0;
    check_mpi(MPI_Comm_rank(communicator(group), &mine), "MPI_Comm_rank");
    const void* from = source == target + mine * bytes ? MPI_IN_PLACE : static_cast<const void*>(source);
    with_block(bytes, [&](MPI_Datatype type, int count) {
      check_mpi(MPI_Iallgather(from, count, type, target, count, type, communicator(group), request->add()),
                "MPI_Iallgather");
    });
    return request;
  }

  std::unique_ptr<Request> reduce_scatter(GroupId group, models::DType dtype, const std::byte* source,
                                          std::byte* target, std::int64_t elements_per_rank) override {
    const MPI_Comm comm = communicator(group);
    int mine = 0;
    check_mpi(MPI_Comm_rank(comm, &mine), "MPI_Comm_rank");
    const std::int64_t width = models::size_of(dtype);
    const std::int64_t bytes = elements_per_rank * width;
    const int members = groups_[static_cast<std::size_t>(group)].size;
    const bool overlaps = target >= source && target < source + bytes * members;
    // A library halves the group: members far apart are added first. All-reduces, and threads, add neighbours first.
    const bool is_tree = members > 2 && std::has_single_bit(static_cast<unsigned>(members));
    if (members > 1 && bytes <= kLargestPiece && (bytes >= kLeastPiece || overlaps || is_tree || is_16_bit(dtype)))
      return pairwise_reduce_scatter(pairwise(group, dtype, plan::Reduce::sum), source, target, elements_per_rank);
    auto request = std::make_unique<MpiRequest>();
    if (elements_per_rank * members <= kMostElements && !overlaps) {
      check_mpi(MPI_Ireduce_scatter_block(source, target, static_cast<int>(elements_per_rank), sum_type(dtype),
                                          operations_.of(dtype, plan::Reduce::sum), comm, request->add()),
                "MPI_Ireduce_scatter_block");
      return request;
    }
    // The rank's own block of the source is the target, or counts are too large: one reduction per member.
    for (int root = 0; root < members; ++root)
      in_chunks(elements_per_rank, [&](std::int64_t first, int count) {
        const std::byte* from = source + root * bytes + first * width;
        std::byte* to = target + first * width;
        const void* send = root == mine && from == to ? MPI_IN_PLACE : static_cast<const void*>(from);
        check_mpi(MPI_Ireduce(send, root == mine ? static_cast<void*>(to) : nullptr, count, sum_type(dtype),
                              operations_.of(dtype, plan::Reduce::sum), root, comm, request->add()),
                  "MPI_Ireduce");
      });
    return request;
  }

  std::unique_ptr<Request> all_to_all(GroupId group, models::DType dtype, const std::byte* source, std::byte* target,
                                      std::int64_t elements_per_rank) override {
    auto request = std::make_unique<MpiRequest>();
    with_block(elements_per_rank * models::size_of(dtype), [&](MPI_Datatype type, int count) {
      check_mpi(MPI_Ialltoall(source, count, type, target, count, type, communicator(group), request->add()),
                "MPI_Ialltoall");
    });
    return request;
  }

  // One message between each pair of members, as MPI's own counts and displacements are ints.
  std::unique_ptr<Request> all_to_all_counted(GroupId group, models::DType dtype, const std::byte* source,
                                              std::byte* target, std::int64_t slot,
                                              const std::vector<std::int64_t>& sent,
                                              const std::vector<std::int64_t>& received) override {
    constexpr int kTag = 1;  // a group has only one under way: they are steps of one stream
    const MPI_Comm comm = communicator(group);
    const int members = groups_[static_cast<std::size_t>(group)].size;
    int mine = 0;
    check_mpi(MPI_Comm_rank(comm, &mine), "MPI_Comm_rank");
    const std::int64_t width = models::size_of(dtype), bytes = slot * width;
    auto request = std::make_unique<MpiRequest>();
    for (int step = 1; step < members; ++step) {
      const int from = (mine + members - step) % members;
      const auto i = static_cast<std::size_t>(from);
      if (received[i] == 0) continue;
      in_chunks(received[i] * width, [&](std::int64_t first, int count) {
        check_mpi(MPI_Irecv(target + from * bytes + first, count, MPI_BYTE, from, kTag, comm, request->add()),
                  "MPI_Irecv");
      });
    }
    for (int step = 1; step < members; ++step) {
      const int to = (mine + step) % members;
      const auto i = static_cast<std::size_t>(to);
      if (sent[i] == 0) continue;
      in_chunks(sent[i] * width, [&](std::int64_t first, int count) {
        check_mpi(MPI_Isend(source + to * bytes + first, count, MPI_BYTE, to, kTag, comm, request->add()), "MPI_Isend");
      });
    }
    const auto own = static_cast<std::size_t>(mine);
    ENSURE(sent[own] == received[own], "a rank sends itself {} values and expects {}", sent[own], received[own]);
    if (sent[own] > 0)
      std::memcpy(target + mine * bytes, source + mine * bytes, static_cast<std::size_t>(sent[own] * width));
    return request;
  }

  std::unique_ptr<Request> send(int to, int tag, models::DType dtype, const std::byte* data,
                                std::int64_t elements) override {
    auto request = std::make_unique<MpiRequest>();
    in_chunks(elements * models::size_of(dtype), [&](std::int64_t first, int count) {
      check_mpi(MPI_Isend(data + first, count, MPI_BYTE, to, tag, messages_, request->add()), "MPI_Isend");
    });
    return request;
  }

  std::unique_ptr<Request> receive(int from, int tag, models::DType dtype, std::byte* data,
                                   std::int64_t elements) override {
    auto request = std::make_unique<MpiRequest>();
    in_chunks(elements * models::size_of(dtype), [&](std::int64_t first, int count) {
      check_mpi(MPI_Irecv(data + first, count, MPI_BYTE, from, tag, messages_, request->add()), "MPI_Irecv");
    });
    return request;
  }

  void barrier() override {
    MpiRequest request;
    check_mpi(MPI_Ibarrier(host_, request.add()), "MPI_Ibarrier");
    wait(request, "a barrier of all ranks");
  }

  std::vector<std::string> gather_text(const std::string& text) override {
    ENSURE(text.size() < static_cast<std::size_t>(std::numeric_limits<int>::max()), "a text of {} bytes", text.size());
    const int length = static_cast<int>(text.size());
    std::vector<int> lengths(rank_ == 0 ? static_cast<std::size_t>(size_) : 0);
    MpiRequest sizes;
    check_mpi(MPI_Igather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, host_, sizes.add()), "MPI_Igather");
    wait(sizes, "the sizes of gathered texts");
    MpiRequest texts;
    std::vector<std::string> out(lengths.size());
    if (rank_ == 0) out[0] = text;
    for (std::size_t i = 1; i < out.size(); ++i) {
      out[i].resize(static_cast<std::size_t>(lengths[i]));
      check_mpi(MPI_Irecv(out[i].data(), lengths[i], MPI_CHAR, static_cast<int>(i), 0, host_, texts.add()),
                "MPI_Irecv");
    }
    if (rank_ != 0) check_mpi(MPI_Isend(text.data(), length, MPI_CHAR, 0, 0, host_, texts.add()), "MPI_Isend");
    wait(texts, "gathered texts");
    return out;
  }

  double maximum(double value) override {
    MpiRequest request;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, host_, request.add()), "MPI_Iallreduce");
    wait(request, "the maximum of a number over all ranks");
    return value;
  }

 private:
  struct Communicator {
    MPI_Comm communicator = MPI_COMM_NULL;
    int size = 0;
    int exchanges = 0;  ///< begun so far: members begin them in the same order, so tags follow from it
  };

  PairwiseSum pairwise(GroupId group, models::DType dtype, plan::Reduce reduce) {
    constexpr int kTags = 1 << 14;  // MPI guarantees 2^15 - 1
    const MPI_Comm comm = communicator(group);
    int& exchanges = groups_[static_cast<std::size_t>(group)].exchanges;
    exchanges = (exchanges + 1) % kTags;
    return {comm, exchanges, dtype, reduce, &pieces_};
  }

  MPI_Comm communicator(GroupId group) const {
    const MPI_Comm comm = groups_.at(static_cast<std::size_t>(group)).communicator;
    ENSURE(comm != MPI_COMM_NULL, "rank {} is no member of group {}", rank_, group);
    return comm;
  }

  void wait(Request& request, const char* what) const {
    waiter_.finish(request, [&] { return fmt::format("rank {}: {}", rank_, what); });
  }

  /// Calls `call(type, count)` with count * type = `bytes`, count within MPI's int.
  template <class Call>
  static void with_block(std::int64_t bytes, Call call) {
    if (bytes <= kMostElements) return call(MPI_BYTE, static_cast<int>(bytes));
    ENSURE(bytes % 4 == 0 && bytes / 4 <= std::numeric_limits<int>::max(), "a gather of {} bytes a rank", bytes);
    call(MPI_INT32_T, static_cast<int>(bytes / 4));
  }

  Operations operations_;
  int rank_, size_;
  const Waiter& waiter_;
  MPI_Comm messages_ = MPI_COMM_NULL, host_ = MPI_COMM_NULL;
  std::vector<Communicator> groups_;
  PieceStore pieces_;
};

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  int provided = 0;
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (provided < MPI_THREAD_SERIALIZED)
    throw Failure("this MPI does not allow two threads to call it in turn", FailureKind::environment);
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_size(node, &on_node_), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(node, &rank_on_node_), "MPI_Comm_rank");
  MPI_Comm_free(&node);
}

MpiSession::~MpiSession() {
  MPI_Finalize();
}

std::string MpiSession::library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string all(text.data(), static_cast<std::size_t>(length));
  return all.substr(0, all.find('\n'));
}

void MpiSession::abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

std::unique_ptr<Transport> make_mpi_transport(const MpiSession& session, const Waiter& waiter) {
  return std::make_unique<MpiTransport>(session.rank(), session.size(), waiter);
}

}  // namespace orrery::exec
