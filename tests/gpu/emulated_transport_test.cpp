// The NCCL transport and its meeting point, between threads: results, ordering on streams, agreement, failure.
#include <gtest/gtest.h>

#include <nccl.h>

#include <array>
#include <chrono>
#include <cmath>
#include <mutex>
#include <set>
#include <thread>

#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/nccl_transport.h"
#include "exec/engine/thread_transport.h"
#include "tests/exec/training.h"

namespace orrery::exec::gpu_test {
namespace emulated_transport_test {

using models::DType;

struct Faults {
  Faults() { emulation::reset_nccl_faults(); }
  ~Faults() { emulation::reset_nccl_faults(); }
};

/// A rank: backend, transport and a device vector.
struct Rank {
  cuda::CudaBackend backend{0};
  std::unique_ptr<Transport> transport;
  std::byte* arena = backend.allocate_arena(1 << 16);
  Rank(Transport& host, const CudaTransportOptions& options)
      : transport(cuda::make_cuda_transport(backend, host, options)) {}
  void put(const std::vector<float>& values, std::int64_t at = 0) {
    backend.copy_to_device(arena + at * 4, std::as_bytes(std::span(values)));
  }
  std::vector<float> get(std::size_t count, std::int64_t at = 0) {
    std::vector<float> values(count);
    backend.copy_to_host(std::as_writable_bytes(std::span(values)), arena + at * 4);
    return values;
  }
  void finish(Request& request) { cuda::finish(request, "a test", 20); }
};

void on_ranks(int ranks, const std::function<void(Rank&)>& body,
              CudaTransportOptions options = {.start_timeout_s = 20}) {
  ThreadWorld world(ranks);
  testing::in_threads(
      ranks,
      [&](int rank) {
        const auto host = world.transport(rank);
        Rank self(*host, options);
        body(self);
      },
      [&](const std::string& why) { world.abort(why); });
}

plan::Group strided(int stride, int size) {
  return {"group", {{stride, size}}};
}

TEST(NcclTransport, SumsWithinGroupsOfAnyStride) {
  const Faults none;
  on_ranks(4, [](Rank& self) {
    const int rank = self.transport->rank();
    ASSERT_EQ(self.transport->name(), "nccl");
    const GroupId neighbours = self.transport->make_group(strided(1, 2));
    const GroupId strangers = self.transport->make_group(strided(2, 2));
    const GroupId alone = self.transport->make_group(strided(1, 1));
    const float mine = static_cast<float>(rank + 1);
    for (const auto& [group, expected] : {std::pair{neighbours, rank < 2 ? 3.0F : 7.0F},
                                          std::pair{strangers, rank % 2 == 0 ? 4.0F : 6.0F}, std::pair{alone, mine}}) {
      self.put({mine, -mine});
      const auto request = self.transport->all_reduce(group, plan::Reduce::sum, DType::fp32, self.arena, 2);
      self.finish(*request);
      EXPECT_EQ(self.get(2), (std::vector<float>{expected, -expected}));
    }
  });
}

TEST(NcclTransport, GathersInRankOrderAndScattersSums) {
  const Faults none;
  on_ranks(3, [](Rank& self) {
    const float rank = static_cast<float>(self.transport->rank());
    const GroupId all = self.transport->make_group(strided(1, 3));
    self.put({rank, 10 + rank});
    self.finish(*self.transport->all_gather(all, DType::fp32, self.arena, self.arena + 400, 2));
    EXPECT_EQ(self.get(6, 100), (std::vector<float>{0, 10, 1, 11, 2, 12}));
    self.put({1 * rank, 2 * rank, 3 * rank});
    self.finish(*self.transport->reduce_scatter(all, DType::fp32, self.arena, self.arena + 400, 1));
    EXPECT_EQ(self.get(1, 100), (std::vector<float>{3 * (rank + 1)}));
    self.put({rank, -rank});
    self.finish(*self.transport->all_reduce(all, plan::Reduce::maximum, DType::fp32, self.arena, 2));
    EXPECT_EQ(self.get(2), (std::vector<float>{2, 0}));
  });
}

// Nothing waits on the host between compute, communication and compute: only events order them.
TEST(NcclTransport, OrdersComputeAndCommunicationOnTheDevice) {
  const Faults none;
  on_ranks(2, [](Rank& self) {
    const GroupId both = self.transport->make_group(strided(1, 2));
    auto* x = reinterpret_cast<float*>(self.arena);
    self.put(std::vector<float>(8, 1));
    std::vector<std::unique_ptr<Request>> requests;
    for (int round = 0; round < 3; ++round) {
      cuda::add(self.backend.stream(), x, x, x, 8);  // doubles
      requests.push_back(self.transport->all_reduce(both, plan::Reduce::sum, DType::fp32, self.arena, 8));
      ASSERT_FALSE(requests.back()->ends().empty());
      for (const auto& end : requests.back()->ends()) self.backend.order_behind(*end);
    }
    cuda::add(self.backend.stream(), x, x, x, 8);
    EXPECT_EQ(self.get(8), std::vector<float>(8, 128));  // (2 * 2)^3 * 2
  });
}

// Both ranks send before they receive; with one channel for both directions, or without any, this hangs.
TEST(NcclTransport, CrossingMessagesDoNotBlockEachOther) {
  const Faults none;
  on_ranks(2, [](Rank& self) {
    const int other = 1 - self.transport->rank();
    self.transport->connect({other}, {other});
    self.put({static_cast<float>(other), 7});
    const auto sent = self.transport->send(other, 3, DType::fp32, self.arena, 2);
    const auto received = self.transport->receive(other, 3, DType::fp32, self.arena + 400, 2);
    self.finish(*received);
    self.finish(*sent);
    EXPECT_EQ(self.get(2, 100), (std::vector<float>{static_cast<float>(self.transport->rank()), 7}));
  });
}

TEST(NcclTransport, StagesMessagesBetweenRanksThatAreNotConnected) {
  const Faults none;
  on_ranks(2, [](Rank& self) {
    if (self.transport->rank() == 0) {
      self.put({42});
      self.finish(*self.transport->send(1, 5, DType::fp32, self.arena, 1));
    } else {
      self.finish(*self.transport->receive(0, 5, DType::fp32, self.arena, 1));
      EXPECT_EQ(self.get(1), std::vector<float>{42});
    }
  });
}

void expect_staged(Rank& self, const std::string& reason) {
  EXPECT_NE(self.transport->name().find(reason), std::string::npos) << self.transport->name();
  const GroupId all = self.transport->make_group(strided(1, 2));
  self.put({1, 2});
  self.finish(*self.transport->all_reduce(all, plan::Reduce::sum, DType::fp32, self.arena, 2));
  EXPECT_EQ(self.get(2), (std::vector<float>{2, 4}));
}

TEST(CudaTransport, AllRanksStageWhenOneCannotJoin) {
  const Faults faults;
  emulation::nccl_faults().refuse_rank = 1;
  on_ranks(2, [](Rank& self) { expect_staged(self, "through pinned memory"); }, {.start_timeout_s = 1});
}

TEST(CudaTransport, AllRanksStageWhenThereIsNoId) {
  const Faults faults;
  emulation::nccl_faults().no_ids = true;
  on_ranks(2, [](Rank& self) { expect_staged(self, "rank 0 could not make an NCCL id"); });
}

TEST(CudaTransport, StagesWhenAsked) {
  const Faults none;
  on_ranks(2, [](Rank& self) { expect_staged(self, "switched off"); }, {.nccl = false});
}

// A communicator reports a lost peer: the run ends with a Failure and everything in flight is aborted, on every rank.
TEST(NcclTransport, AbortsWhenAPeerIsLost) {
  const Faults faults;
  EXPECT_THROW(on_ranks(2,
                        [](Rank& self) {
                          const GroupId all = self.transport->make_group(strided(1, 2));
                          self.put({1});
                          self.backend.synchronise();
                          if (self.transport->rank() == 1) {  // never comes; its own watch fails too
                            emulation::nccl_faults().async = ncclRemoteError;
                            while (true) {
                              self.transport->check_health();
                              std::this_thread::sleep_for(std::chrono::milliseconds(1));
                            }
                          }
                          const auto request =
                              self.transport->all_reduce(all, plan::Reduce::sum, DType::fp32, self.arena, 1);
                          self.finish(*request);
                        }),
               Failure);
  EXPECT_EQ(emulation::nccl_faults().aborts, 4);  // two ranks, world and group
}

/// What the ranks' failure says.
std::string failure_of(int ranks, const std::function<void(Rank&)>& body, const CudaTransportOptions& options) {
  try {
    on_ranks(ranks, body, options);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "no failure";
}

// The host waits for computing alone, and the message that hangs is named: which one, of which step, over which group.
TEST(NcclTransport, GivesUpAtTheDeadlineAndNamesTheOperation) {
  const Faults none;
  const std::string why = failure_of(
      2,
      [](Rank& self) {
        const GroupId all = self.transport->make_group(strided(1, 2));
        if (self.transport->rank() == 1) {  // another collective than its peer's would hang as well: here none
          self.transport->barrier();
          return;
        }
        self.put({1});
        self.transport->prepare({{}, "all_reduce over group \"data\", training step 7"});
        const auto request = self.transport->all_reduce(all, plan::Reduce::sum, DType::fp32, self.arena, 1);
        for (const auto& end : request->ends()) self.backend.order_behind(*end);
        try {
          self.backend.synchronise();
        } catch (...) {
          self.transport->barrier();
          throw;
        }
        ADD_FAILURE() << "the operation cannot end";
        self.transport->barrier();
      },
      {.start_timeout_s = 5, .deadline_s = 0.2});
  EXPECT_NE(why.find("all_reduce over group \"data\", training step 7: not done within 0.2 s"), std::string::npos)
      << why;
  EXPECT_GE(emulation::nccl_faults().aborts, 2);
}

/// Once all ranks are here every communicator reports that a peer is gone; the rank finds out as it goes on.
[[noreturn]] void lose_a_peer(Rank& self) {
  self.transport->barrier();
  emulation::nccl_faults().async = ncclRemoteError;
  while (true) {
    self.transport->check_health();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::unique_ptr<Request> sum_of_one(Rank& self, GroupId group) {
  return self.transport->all_reduce(group, plan::Reduce::sum, DType::fp32, self.arena, 1);
}

// An abort of one communicator synchronises the device, where the other's kernel waits for the lost peer.
TEST(NcclTransport, AbortsAllCommunicatorsAtOnce) {
  const Faults faults;
  const std::string why = failure_of(2,
                                     [](Rank& self) {
                                       const GroupId one = self.transport->make_group(strided(1, 2)),
                                                     other = self.transport->make_group(strided(1, 2));
                                       self.put({1});
                                       self.backend.synchronise();
                                       std::unique_ptr<Request> first, second;
                                       if (self.transport->rank() == 0)
                                         first = sum_of_one(self, one), second = sum_of_one(self, other);
                                       lose_a_peer(self);
                                     },
                                     {.start_timeout_s = 20});
  EXPECT_NE(why.find("a communicator has failed"), std::string::npos) << why;
  EXPECT_EQ(emulation::nccl_faults().aborts, 6) << "two ranks, world and groups";
  EXPECT_EQ(emulation::nccl_faults().stuck, 0);
}

std::unique_ptr<Backend::Graph> graph_of_a_sum(Rank& self, GroupId group) {
  self.backend.begin_capture();
  const auto request = sum_of_one(self, group);
  for (const auto& end : request->ends()) self.backend.order_behind(*end);
  return self.backend.end_capture();
}

// Whoever holds a graph may be late to destroy it: the rank may be in the middle of anything.
TEST(NcclTransport, DestroysGraphsBeforeItWaitsForTheEndOfCommunicators) {
  const Faults faults;
  std::array<std::unique_ptr<Backend::Graph>, 2> graphs;  // outlive the ranks
  const std::string why = failure_of(2,
                                     [&](Rank& self) {
                                       const GroupId all = self.transport->make_group(strided(1, 2));
                                       self.put({1});
                                       self.finish(*sum_of_one(self, all));
                                       std::unique_ptr<Backend::Graph>& graph =
                                           graphs.at(static_cast<std::size_t>(self.transport->rank()));
                                       graph = graph_of_a_sum(self, all);
                                       if (self.transport->rank() == 0) self.backend.replay(*graph);  // it hangs
                                       lose_a_peer(self);
                                     },
                                     {.start_timeout_s = 20});
  EXPECT_NE(why.find("a communicator has failed"), std::string::npos) << why;
  EXPECT_EQ(emulation::nccl_faults().aborts, 4);
  EXPECT_EQ(emulation::nccl_faults().stuck, 0);
}

TEST(NcclTransport, AbortsWhileARankCaptures) {
  const Faults faults;
  static_cast<void>(failure_of(2,
                               [](Rank& self) {
                                 const GroupId all = self.transport->make_group(strided(1, 2));
                                 self.put({1});
                                 self.finish(*sum_of_one(self, all));
                                 self.backend.begin_capture();
                                 static_cast<void>(sum_of_one(self, all));
                                 self.transport->barrier();
                                 emulation::nccl_faults().async = ncclRemoteError;
                                 for (int i = 0; i < 10'000 && emulation::nccl_faults().aborts < 4; ++i)
                                   std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                 EXPECT_THROW(static_cast<void>(sum_of_one(self, all)), Failure);
                                 self.backend.abandon_capture();
                                 self.transport->check_health();
                               },
                               {.start_timeout_s = 20}));
  EXPECT_EQ(emulation::nccl_faults().stuck, 0);
}

TEST(NcclTransport, RefusesGraphsOnceTheyAreDropped) {
  cuda::CudaBackend backend{0};
  std::byte* const arena = backend.allocate_arena(64);
  const auto captured = [&] {
    backend.begin_capture();
    cuda::add(backend.stream(), reinterpret_cast<float*>(arena), reinterpret_cast<float*>(arena),
              reinterpret_cast<float*>(arena), 8);
    return backend.end_capture();
  };
  const auto graph = captured();
  EXPECT_NO_THROW(backend.replay(*graph));
  backend.drop_graphs();
  EXPECT_THROW(backend.replay(*graph), Failure);
  EXPECT_THROW(static_cast<void>(captured()), Failure);
  backend.synchronise();
}

// The end of communicators may block: whoever waits for the reason has it before.
TEST(NcclTransport, TellsOfAFailureBeforeItAborts) {
  const Faults faults;
  std::mutex lock;
  std::vector<std::string> told;
  std::vector<int> aborts;
  CudaTransportOptions options{.start_timeout_s = 20, .deadline_s = 0.2};
  options.on_failure = [&](const std::string& why) {
    const std::lock_guard guard(lock);
    told.push_back(why);
    aborts.push_back(emulation::nccl_faults().aborts);
  };
  const std::string why = failure_of(
      2,
      [](Rank& self) {
        const GroupId all = self.transport->make_group(strided(1, 2));
        std::unique_ptr<Request> sum;
        if (self.transport->rank() == 0) {
          self.put({1});
          sum = sum_of_one(self, all);
        }
        try {
          if (sum) self.finish(*sum);
        } catch (...) {
          self.transport->barrier();
          throw;
        }
        self.transport->barrier();
      },
      options);
  EXPECT_NE(why.find("all-reduce: not done within 0.2 s"), std::string::npos) << why;
  EXPECT_EQ(told, std::vector<std::string>{why});
  EXPECT_EQ(aborts, std::vector<int>{0});
}

TEST(NcclTransport, WaitsForAPeerThatIsLate) {
  const Faults none;
  on_ranks(2,
           [](Rank& self) {
             const GroupId all = self.transport->make_group(strided(1, 2));
             self.put({1});
             if (self.transport->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
             const auto request = self.transport->all_reduce(all, plan::Reduce::sum, DType::fp32, self.arena, 1);
             for (const auto& end : request->ends()) self.backend.order_behind(*end);
             EXPECT_EQ(self.get(1), std::vector<float>{2});
           },
           {.start_timeout_s = 20, .deadline_s = 20});
  EXPECT_EQ(emulation::nccl_faults().aborts, 0);
}

// One communicator is made, whatever groups and directions there are: the others are parts of it.
TEST(NcclTransport, SplitsAllCommunicatorsFromOne) {
  const Faults none;
  on_ranks(4, [](Rank& self) {
    static_cast<void>(self.transport->make_group(strided(1, 2)));
    static_cast<void>(self.transport->make_group(strided(2, 2)));
    const int rank = self.transport->rank();
    const std::vector<int> next = rank < 3 ? std::vector<int>{rank + 1} : std::vector<int>{};
    const std::vector<int> previous = rank > 0 ? std::vector<int>{rank - 1} : std::vector<int>{};
    self.transport->connect(next, previous);
    self.transport->connect(next, previous);  // as a second executor does
    if (rank > 0) self.finish(*self.transport->receive(rank - 1, 1, DType::fp32, self.arena, 1));
    if (rank == 0) self.put({5});
    if (rank < 3) self.finish(*self.transport->send(rank + 1, 1, DType::fp32, self.arena, 1));
    EXPECT_EQ(self.get(1), std::vector<float>{5});
  });
  EXPECT_EQ(emulation::nccl_faults().inits, 4) << "one on each rank";
}

void exchange_pieces(Rank& self) {
  const float rank = static_cast<float>(self.transport->rank());
  const GroupId all = self.transport->make_group(strided(1, 3));
  self.put({10 * rank, 10 * rank + 1, 10 * rank + 2});
  self.finish(*self.transport->all_to_all(all, DType::fp32, self.arena, self.arena + 400, 1));
  EXPECT_EQ(self.get(3, 100), (std::vector<float>{rank, 10 + rank, 20 + rank}));
  const GroupId alone = self.transport->make_group(strided(1, 1));
  self.finish(*self.transport->all_to_all(alone, DType::fp32, self.arena, self.arena + 400, 2));
  EXPECT_EQ(self.get(2, 100), (std::vector<float>{10 * rank, 10 * rank + 1}));
}

TEST(NcclTransport, SendsEveryMemberItsPiece) {
  const Faults none;
  on_ranks(3, exchange_pieces);
}

TEST(CudaTransport, SendsEveryMemberItsPieceWhenStaged) {
  const Faults none;
  on_ranks(3, exchange_pieces, {.nccl = false});
}

// Rank r sends r + m elements to member m: nothing from rank 0 to itself.
void exchange_counted(Rank& self, DType dtype, std::int64_t size) {
  const int rank = self.transport->rank();
  const GroupId all = self.transport->make_group(strided(1, 3));
  constexpr std::int64_t kSlot = 5;
  std::vector<std::int64_t> counts;
  for (int member = 0; member < 3; ++member) counts.push_back(rank + member);
  std::vector<std::uint8_t> sent(static_cast<std::size_t>(3 * kSlot * size));
  for (std::size_t i = 0; i < sent.size(); ++i)
    sent[i] = static_cast<std::uint8_t>(i + 80U * static_cast<unsigned>(rank));
  const std::vector<std::uint8_t> before(sent.size(), 7);
  self.backend.copy_to_device(self.arena, std::as_bytes(std::span(sent)));
  self.backend.copy_to_device(self.arena + 400, std::as_bytes(std::span(before)));
  self.finish(*self.transport->all_to_all_counted(all, dtype, self.arena, self.arena + 400, kSlot, counts, counts));
  std::vector<std::uint8_t> got(sent.size());
  self.backend.copy_to_host(std::as_writable_bytes(std::span(got)), self.arena + 400);
  for (int member = 0; member < 3; ++member)
    for (std::int64_t i = 0; i < (rank + member) * size; ++i) {
      const std::int64_t of_slot = rank * kSlot * size + i;  // of what the member has for this rank
      EXPECT_EQ(got[static_cast<std::size_t>(member * kSlot * size + i)],
                static_cast<std::uint8_t>(of_slot + 80 * member))
          << rank << " from " << member << ", byte " << i;
    }
}

TEST(NcclTransport, SendsEveryMemberWhatIsCounted) {
  const Faults none;
  on_ranks(3, [](Rank& self) {
    exchange_counted(self, DType::fp32, 4);
    exchange_counted(self, DType::uint8, 1);
    std::array<std::byte, 8> untouched{};
    self.backend.copy_to_host(untouched, self.arena + 400 + 4);  // behind what rank 0 has from itself and others
    if (self.transport->rank() == 0) {
      EXPECT_EQ(untouched[0], std::byte{7}) << "beyond the count";
    }
    const GroupId alone = self.transport->make_group(strided(1, 1));
    self.put({3, 4});
    self.finish(*self.transport->all_to_all_counted(alone, DType::fp32, self.arena, self.arena + 400, 8, {2}, {2}));
    EXPECT_EQ(self.get(2, 100), (std::vector<float>{3, 4}));
  });
}

TEST(CudaTransport, SendsEveryMemberWhatIsCountedWhenStaged) {
  const Faults none;
  on_ranks(3, [](Rank& self) { exchange_counted(self, DType::int32, 4); }, {.nccl = false});
}

TEST(Rendezvous, InARoundNoRankIsAnEndOfTwoDirections) {
  // A pipeline of four stages, twice, both ways.
  std::vector<cuda::Direction> wanted;
  for (const int first : {0, 4})
    for (int stage = 0; stage < 3; ++stage) {
      wanted.push_back({first + stage, first + stage + 1});
      wanted.push_back({first + stage + 1, first + stage});
    }
  wanted.push_back(wanted.front());
  const auto rounds = cuda::rounds_of(wanted);
  EXPECT_EQ(rounds.size(), 4U);  // an inner stage is an end of four
  std::set<cuda::Direction> seen;
  for (const auto& round : rounds) {
    std::set<int> ends;
    for (const cuda::Direction& direction : round) {
      EXPECT_TRUE(ends.insert(direction.from).second);
      EXPECT_TRUE(ends.insert(direction.to).second);
      EXPECT_TRUE(seen.insert(direction).second) << "a direction has one turn";
    }
  }
  EXPECT_EQ(seen.size(), 12U);
  EXPECT_TRUE(cuda::rounds_of({}).empty());
}

TEST(Rendezvous, SeesWhoSharesAGpu) {
  const std::vector<std::uint64_t> apart = {cuda::gpu_identity("0000:01:00.0"), cuda::gpu_identity("0000:02:00.0")};
  const std::vector<std::uint64_t> together = {apart[0], apart[1], cuda::gpu_identity("0000:01:00.0")};
  EXPECT_FALSE(cuda::any_shared(apart));
  EXPECT_TRUE(cuda::any_shared(together));
}

TEST(Ranges, AreCutIntoTilesThatCoverEverythingOnce) {
  using cuda::Cut;
  const std::vector<ElementRange> ranges = {
      {0, 17, false, 1}, {20, 20 + 2 * cuda::kTileElements + 5, true, 0.5}, {40000, 40000, true, 1}};
  const cuda::CutRanges cut = cuda::cut_ranges(ranges, 50000, Cut::tiles);
  std::int64_t at = 0;
  for (const cuda::RangeTile& tile : cut.tiles) {
    EXPECT_EQ(tile.begin, at);
    EXPECT_GT(tile.count, 0);
    EXPECT_LE(tile.count, cuda::kTileElements);
    at += tile.count;
    if (tile.range >= 0) {
      EXPECT_EQ(tile.decay != 0, ranges[static_cast<std::size_t>(tile.range)].decay);
      EXPECT_GE(tile.begin, ranges[static_cast<std::size_t>(tile.range)].begin);
      EXPECT_LE(tile.begin + tile.count, ranges[static_cast<std::size_t>(tile.range)].end);
    }
  }
  EXPECT_EQ(at, 50000);
  ASSERT_EQ(cut.ranges.size(), 3U);
  EXPECT_EQ(cut.ranges[1].tiles, 3);
  EXPECT_EQ(cut.ranges[2].tiles, 0);
  const cuda::CutRanges whole = cuda::cut_ranges({}, 3, Cut::tiles);
  ASSERT_EQ(whole.tiles.size(), 1U);
  EXPECT_EQ(whole.tiles[0].range, 0);
  EXPECT_EQ(whole.tiles[0].norm_weight, 1);
}

TEST(Ranges, ThatAreMatricesAreCutIntoRows) {
  ElementRange range{
      .begin = 10, .end = 40, .first = 7, .columns = 12};  // the end of row 0, rows 1 and 2, one of row 3
  const cuda::CutRanges cut = cuda::cut_ranges({&range, 1}, 40, cuda::Cut::rows);
  std::vector<std::int64_t> counts, columns;
  for (const cuda::RangeTile& tile : cut.tiles) {
    counts.push_back(tile.range < 0 ? -tile.count : tile.count);
    columns.push_back(tile.column);
  }
  EXPECT_EQ(counts, (std::vector<std::int64_t>{-10, 5, 12, 12, 1}));
  EXPECT_EQ(columns, (std::vector<std::int64_t>{0, 7, 0, 0, 0}));
  EXPECT_EQ(cut.stripes.size(), 1U);
}

TEST(Ranges, OfOneDecayAreJoinedIntoBlocks) {
  const std::int64_t block = models::kQuantisedBlock;
  const std::vector<ElementRange> ranges = {
      {0, 40, true, 1}, {40, block + 3, true, 1}, {2 * block, 2 * block + 9, false, 1}};
  const cuda::CutRanges cut = cuda::cut_ranges(ranges, 3 * block, cuda::Cut::blocks);
  ASSERT_EQ(cut.ranges.size(), 2U);
  ASSERT_EQ(cut.tiles.size(), 5U);  // block, 3 of the next, a gap, 9, a gap
  EXPECT_EQ(cut.tiles[0].count, block);
  EXPECT_EQ(cut.tiles[1].count, 3);
  EXPECT_EQ(cut.tiles[2].range, -1);
  EXPECT_EQ(cut.tiles[3].count, 9);
}

}  // namespace emulated_transport_test
}  // namespace orrery::exec::gpu_test
