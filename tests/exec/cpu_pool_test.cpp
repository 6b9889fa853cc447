// The pool hands out every chunk exactly once, however often and however little there is to do.
#include "exec/cpu/pool.h"

#include <gtest/gtest.h>

#include <atomic>

namespace orrery::exec {
namespace cpu_pool_test {

TEST(Pool, RunsEveryIndexExactlyOnceOverManyJobs) {
  for (const int threads : {1, 2, 3, 5}) {
    Pool pool(threads);
    EXPECT_EQ(threads, pool.threads());
    std::vector<std::atomic<int>> hits(1000);
    std::atomic<int> wrong_thread{0};
    for (std::int64_t job = 1; job <= 300; ++job)
      pool.each(job * 3, 7, [&](std::int64_t begin, std::int64_t end, int thread) {
        if (thread < 0 || thread >= threads) ++wrong_thread;
        for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
      });
    EXPECT_EQ(0, wrong_thread.load());
    for (std::size_t i = 0; i < hits.size(); ++i) {
      const int expected = 300 - static_cast<int>(i / 3);
      EXPECT_EQ(std::max(expected, 0), hits[i].load()) << "index " << i;
    }
  }
}

TEST(Pool, ResultsOfAJobAreVisibleToTheCaller) {
  Pool pool(3);
  std::vector<std::int64_t> squares(5000);
  for (std::int64_t round = 0; round < 50; ++round) {
    pool.each(5000, 11, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) squares[static_cast<std::size_t>(i)] = i * i + round;
    });
    for (std::int64_t i = 0; i < 5000; ++i) ASSERT_EQ(i * i + round, squares[static_cast<std::size_t>(i)]);
  }
}

TEST(Pool, ChunksDoNotDependOnTheNumberOfThreadsAndNothingIsRunForNothing) {
  Pool pool(2);
  pool.each(0, 5, [](std::int64_t, std::int64_t, int) { FAIL() << "nothing to do"; });
  std::atomic<int> odd{0};
  pool.each(23, 5, [&](std::int64_t begin, std::int64_t end, int) {
    if (begin % 5 != 0 || (end - begin != 5 && end != 23)) ++odd;
  });
  EXPECT_EQ(0, odd.load());
}

}  // namespace cpu_pool_test
}  // namespace orrery::exec
