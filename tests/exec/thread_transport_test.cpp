// Ranks as threads: sums, gathers, messages, and what happens when ranks disagree or fail.
#include "exec/engine/thread_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "exec/engine/waiter.h"
#include "exec/failure.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace thread_transport_test {

using models::DType;

const Waiter kWaiter(wait_policy(8, 1, std::chrono::seconds(60)));

void finish(std::unique_ptr<Request> request) {
  kWaiter.finish(*request, [] { return std::string("a test's request"); });
}

std::byte* bytes(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}
std::byte* bytes(float& value) {
  return reinterpret_cast<std::byte*>(&value);
}

void with_ranks(int ranks, const std::function<void(Transport&)>& body) {
  ThreadWorld world(ranks);
  testing::in_threads(
      ranks,
      [&](int rank) {
        const auto transport = world.transport(rank);
        body(*transport);
      },
      [&](const std::string& why) { world.abort(why); });
}

plan::Group group(std::vector<plan::Group::Dimension> dimensions) {
  plan::Group g;
  g.name = "test";
  g.dimensions = std::move(dimensions);
  return g;
}

TEST(ThreadTransport, SumsOverStridedGroups) {
  with_ranks(4, [](Transport& t) {
    const GroupId columns = t.make_group(group({{2, 2}}));  // {0, 2} and {1, 3}
    std::vector<float> x = {static_cast<float>(t.rank()), 10};
    finish(t.all_reduce(columns, plan::Reduce::sum, DType::fp32, bytes(x), 2));
    EXPECT_EQ(x, (std::vector<float>{t.rank() % 2 == 0 ? 2.0F : 4.0F, 20}));
  });
}

// Beside 2^24 a single 1 is lost: as a binary tree the ones of ranks 2 and 3 meet first.
TEST(ThreadTransport, SumsAsABinaryTreeOfRanks) {
  with_ranks(4, [](Transport& t) {
    const GroupId all = t.make_group(group({{1, 4}}));
    std::vector<float> x = {t.rank() == 0 ? 16777216.0F : 1.0F};
    finish(t.all_reduce(all, plan::Reduce::sum, DType::fp32, bytes(x), 1));
    EXPECT_EQ(x[0], 16777218.0F);
  });
}

TEST(ThreadTransport, TakesMaxima) {
  with_ranks(3, [](Transport& t) {
    const GroupId all = t.make_group(group({{1, 3}}));
    float x = static_cast<float>(-t.rank());
    finish(t.all_reduce(all, plan::Reduce::maximum, DType::fp32, bytes(x), 1));
    EXPECT_EQ(x, 0.0F);
  });
}

TEST(ThreadTransport, GathersFromTheRanksOwnPlace) {
  with_ranks(3, [](Transport& t) {
    const GroupId all = t.make_group(group({{1, 3}}));
    std::vector<float> x(6, -1);
    const auto mine = static_cast<std::size_t>(2 * t.rank());
    x[mine] = static_cast<float>(t.rank());
    x[mine + 1] = static_cast<float>(10 * t.rank());
    finish(t.all_gather(all, DType::fp32, bytes(x[mine]), bytes(x), 2));
    EXPECT_EQ(x, (std::vector<float>{0, 0, 1, 10, 2, 20}));
  });
}

TEST(ThreadTransport, ScattersSumsIntoTheRanksOwnPlace) {
  with_ranks(2, [](Transport& t) {
    const GroupId all = t.make_group(group({{1, 2}}));
    std::vector<float> x = {1, 2, 3, 4};
    finish(t.reduce_scatter(all, DType::fp32, bytes(x), bytes(x[static_cast<std::size_t>(2 * t.rank())]), 2));
    EXPECT_EQ(x, t.rank() == 0 ? (std::vector<float>{2, 4, 3, 4}) : (std::vector<float>{1, 2, 6, 8}));
  });
}

TEST(ThreadTransport, MatchesMessagesByTagAndOrder) {
  with_ranks(2, [](Transport& t) {
    if (t.rank() == 0) {
      float a = 1, b = 2, c = 3;
      auto first = t.send(1, 7, DType::fp32, bytes(a), 1);
      auto second = t.send(1, 7, DType::fp32, bytes(b), 1);
      auto other = t.send(1, 8, DType::fp32, bytes(c), 1);
      finish(std::move(other));
      finish(std::move(first));
      finish(std::move(second));
    } else {
      float a = 0, b = 0, c = 0;
      finish(t.receive(0, 8, DType::fp32, bytes(c), 1));
      finish(t.receive(0, 7, DType::fp32, bytes(a), 1));
      finish(t.receive(0, 7, DType::fp32, bytes(b), 1));
      EXPECT_EQ(std::vector<float>({a, b, c}), (std::vector<float>{1, 2, 3}));
    }
  });
}

TEST(ThreadTransport, SendsWaitForTheirReceive) {
  ThreadWorld world(2);
  const auto t = world.transport(0);
  float x = 1;
  const auto request = t->send(1, 0, DType::fp32, bytes(x), 1);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(request->test());
}

TEST(ThreadTransport, RefusesAMessageOfAnotherSize) {
  EXPECT_THROW(with_ranks(2,
                          [](Transport& t) {
                            std::vector<float> x(2);
                            finish(t.rank() == 0 ? t.send(1, 0, DType::fp32, bytes(x), 2)
                                                 : t.receive(0, 0, DType::fp32, bytes(x), 1));
                          }),
               Failure);
}

TEST(ThreadTransport, RefusesDifferentCollectivesInOneGroup) {
  EXPECT_THROW(with_ranks(2,
                          [](Transport& t) {
                            const GroupId all = t.make_group(group({{1, 2}}));
                            std::vector<float> x(4);
                            finish(t.all_reduce(all, plan::Reduce::sum, DType::fp32, bytes(x), t.rank() == 0 ? 2 : 3));
                          }),
               Failure);
}

TEST(ThreadTransport, AFailedRankEndsTheWaitOfTheOthers) {
  EXPECT_THROW(with_ranks(3,
                          [](Transport& t) {
                            if (t.rank() == 1) throw Failure("rank 1 gave up");
                            t.barrier();
                          }),
               Failure);
}

TEST(ThreadTransport, GathersTextsAndMaximaOnTheHost) {
  with_ranks(3, [](Transport& t) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<std::string> texts = t.gather_text(std::to_string(t.rank() + round));
      EXPECT_EQ(texts.size(), t.rank() == 0 ? 3U : 0U);
      for (std::size_t i = 0; i < texts.size(); ++i)
        EXPECT_EQ(texts[i], std::to_string(i + static_cast<std::size_t>(round)));
      EXPECT_EQ(t.maximum(t.rank() * 1.5 + round), 3.0 + round);
    }
  });
}

TEST(ThreadTransport, SumsBfloat16WithRounding) {
  with_ranks(2, [](Transport& t) {
    const GroupId all = t.make_group(group({{1, 2}}));
    std::uint16_t x = t.rank() == 0 ? 0x3f80 : 0x3b80;  // 1 and 2^-8: the sum is halfway, and rounds to even
    finish(t.all_reduce(all, plan::Reduce::sum, DType::bf16, reinterpret_cast<std::byte*>(&x), 1));
    EXPECT_EQ(x, 0x3f80);
  });
}

// 1 + 3 / 512: each addend alone is lost beside 1, all together are more than half of its last place.
TEST(ThreadTransport, SumsOfSeveralIn16BitsAreRoundedOnce) {
  with_ranks(4, [](Transport& t) {
    const GroupId all = t.make_group(group({{1, 4}}));
    std::vector<std::uint16_t> x(4, t.rank() == 0 ? 0x3f80 : 0x3b00);
    std::uint16_t sum = 0;
    finish(t.reduce_scatter(all, DType::bf16, reinterpret_cast<std::byte*>(x.data()),
                            reinterpret_cast<std::byte*>(&sum), 1));
    EXPECT_EQ(sum, 0x3f81);
  });
}

}  // namespace thread_transport_test
}  // namespace orrery::exec
