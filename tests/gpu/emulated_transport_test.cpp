// The NCCL transport and its meeting point, between threads: results, ordering on streams, agreement, failure.
#include <gtest/gtest.h>

#include <nccl.h>

#include <cmath>

#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/nccl_transport.h"
#include "exec/thread_transport.h"
#include "tests/exec/training.h"

namespace orrery::exec::gpu_test {
namespace {

using models::DType;

struct Faults {
  Faults() { emulation::nccl_faults() = {}; }
  ~Faults() { emulation::nccl_faults() = {}; }
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
      ASSERT_TRUE(requests.back()->order_compute());
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
                            dynamic_cast<cuda::NcclTransport&>(*self.transport).check_health();
                            return;
                          }
                          const auto request =
                              self.transport->all_reduce(all, plan::Reduce::sum, DType::fp32, self.arena, 1);
                          self.finish(*request);
                        }),
               Failure);
  EXPECT_EQ(emulation::nccl_faults().aborts, 4);  // two ranks, world and group
}

TEST(NcclTransport, GivesUpAtTheDeadline) {
  const Faults none;
  EXPECT_THROW(on_ranks(2,
                        [](Rank& self) {
                          const GroupId all = self.transport->make_group(strided(1, 2));
                          if (self.transport->rank() == 1) return;
                          self.put({1});
                          self.finish(*self.transport->all_reduce(all, plan::Reduce::sum, DType::fp32, self.arena, 1));
                        },
                        {.start_timeout_s = 5, .deadline_s = 0.2}),
               Failure);
}

TEST(Rendezvous, DirectionsComeInOneOrderForAllRanks) {
  const auto middle = cuda::directions(1, {2, 0}, {0, 2});
  const std::vector<cuda::Direction> expected = {{0, 1}, {1, 0}, {1, 2}, {2, 1}};
  EXPECT_EQ(middle, expected);
  EXPECT_TRUE(cuda::directions(3, {}, {}).empty());
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

}  // namespace
}  // namespace orrery::exec::gpu_test
