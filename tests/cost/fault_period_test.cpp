/// Faults at a fixed period: the formula against runs that are simulated step by step, as exec/run/run.cpp goes.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cost/run/goodput_forecast.h"

namespace orrery::cost {
namespace fault_period_test {

/// A run on a machine: what each thing takes.
struct Machine {
  double step = 0, copy = 0, write = 0, commit = 0, restart = 0;
  std::int64_t every = 1;
};

/// Steps that stand after one attempt of `until` seconds, restart included: training, saving and committing in the
/// order in which exec::run does.
std::int64_t committed(const Machine& m, double until) {
  double now = m.restart, written = 0;
  std::int64_t done = 0, saved = 0, pending = -1;
  const auto commit = [&] {
    now = std::max(now, written) + m.commit;
    if (now <= until) saved = pending;
    pending = -1;
  };
  while (now <= until) {
    now += m.step;
    ++done;
    if (done % m.every == 0) {
      if (pending >= 0) commit();
      now += m.copy;
      written = now + m.write;
      pending = done;
    }
    if (pending >= 0 && written <= now) commit();
  }
  return saved;
}

double predicted(const Machine& m, double period) {
  const Reliability system{0, m.restart, m.copy + m.commit, persist_time(m.write, m.step)};
  return periodic_goodput(period, m.every, m.step, system).shares.useful;
}

TEST(FaultPeriod, IsWhatARunStepByStepMeasures) {
  constexpr double kPeriod = 30;
  const Machine machines[] = {{0.05, 0.01, 0.03, 0.02, 3.5, 10}, {0.05, 0.01, 0.4, 0.02, 3.5, 20},
                              {0.2, 0.15, 0.7, 0.1, 6, 5},       {0.01, 0.02, 0.02, 0.05, 2, 100},
                              {0.5, 0.5, 1.4, 0.2, 12, 4},       {1.5, 0.1, 0.2, 0.1, 4, 1}};
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> jitter(-0.5, 0.5);
  for (const Machine& m : machines) {
    SCOPED_TRACE(::testing::Message() << m.step << " s a step, a checkpoint every " << m.every);
    const double cycle = static_cast<double>(m.every) * m.step + m.copy + m.commit;
    double steps = 0;
    constexpr int kFaults = 20'000;
    for (int i = 0; i < kFaults; ++i) {
      Machine now = m;  // a restart is never twice the same: faults come anywhere between two checkpoints
      now.restart += jitter(random) * cycle;
      steps += static_cast<double>(committed(now, kPeriod));
    }
    const double measured = steps * m.step / (kFaults * kPeriod);
    EXPECT_NEAR(predicted(m, kPeriod), measured, 0.003);
    const double first = 1 - m.restart / kPeriod - (cycle / 2) / kPeriod;  // pauses and writing forgotten
    EXPECT_GT(first - measured, 0.006) << "the test sees pauses and writing";
  }
}

TEST(FaultPeriod, IsAStaircaseWhereNothingVaries) {
  const Machine m{0.1, 0.02, 0.15, 0.03, 4, 10};
  for (double period = 5; period < 40; period += 0.37) {
    const Reliability system{0, m.restart, m.copy + m.commit, persist_time(m.write, m.step)};
    const PeriodicGoodput found = periodic_goodput(period, m.every, m.step, system);
    EXPECT_NEAR(found.regular, static_cast<double>(committed(m, period)) * m.step / period, 1e-9) << period;
    EXPECT_NEAR(found.regular, found.shares.useful, static_cast<double>(m.every) * m.step / period) << period;
  }
}

TEST(FaultPeriod, LeavesNothingWhereRestartsTakeAsLong) {
  const Reliability system{0, 31, 0.1, 0.1};
  const PeriodicGoodput found = periodic_goodput(30, 10, 0.1, system);
  EXPECT_EQ(found.shares.useful, 0);
  EXPECT_EQ(found.shares.restart, 1);
  EXPECT_EQ(found.steps_per_fault, 0);
  // Nor where a checkpoint needs longer than there is.
  EXPECT_EQ(periodic_goodput(30, 1000, 0.1, {0, 5, 0.1, 0.1}).shares.useful, 0);
}

TEST(FaultPeriod, IsPartOfAForecast) {
  ForecastRequest asked;
  asked.failures.period = 30;
  asked.restart = {4, "measured"};
  asked.step = 0.1;
  asked.checkpoint = {0.02, 0.15, 0.03};
  asked.every = 10;
  asked.steps = 10'000;
  const Forecast found = forecast(asked);
  ASSERT_TRUE(found.periodic);
  EXPECT_NEAR(found.now.useful, predicted({0.1, 0.02, 0.15, 0.03, 4, 10}, 30), 1e-12);
  EXPECT_NEAR(found.periodic->steps_per_fault, found.now.useful * 30 / 0.1, 1e-9);
  EXPECT_NEAR(found.run, 1000 / found.now.useful, 1e-9);
  EXPECT_NEAR(found.failures, found.run / 30, 1e-9);
  EXPECT_NEAR(found.run_without, 1000 * 1.05, 1e-9);
}

}  // namespace fault_period_test
}  // namespace orrery::cost
