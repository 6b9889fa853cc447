#pragma once
/// What the tests of the CPU kernels share: random operands, a backend for every instruction set and number of
/// threads, and how far results may be from a reference computed in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "exec/cpu/backend.h"
#include "exec/cpu/dispatch.h"

namespace orrery::exec::testing {

using models::Op;
using models::OpKind;
using Numbers = std::vector<float>;
using Exact = std::vector<double>;
using Ids = std::vector<std::int32_t>;

inline Numbers random_numbers(std::int64_t count, const std::string& name, double stddev = 1, double mean = 0) {
  Numbers result(static_cast<std::size_t>(count));
  const std::uint64_t stream = base::stream_of(name);
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<float>(mean + stddev * base::normal(17, stream, i));
  return result;
}

inline Ids random_ids(std::int64_t count, std::int64_t bound, const std::string& name) {
  Ids result(static_cast<std::size_t>(count));
  const std::uint64_t stream = base::stream_of(name);
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<std::int32_t>(base::below(static_cast<std::uint64_t>(bound), 17, stream, i));
  return result;
}

inline Exact exact(const Numbers& x) {
  return Exact(x.begin(), x.end());
}

inline Operand of(Numbers& x) {
  return {reinterpret_cast<std::byte*>(x.data()), static_cast<std::int64_t>(x.size())};
}
inline Operand of(Ids& x) {
  return {reinterpret_cast<std::byte*>(x.data()), static_cast<std::int64_t>(x.size())};
}
inline Operand absent() {
  return {};
}

/// The largest difference, relative to the largest expected value.
inline double error_of(const Numbers& found, const Exact& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double worst = 0, largest = 1e-30;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(static_cast<double>(found[i]) - expected[i]);
    if (!(difference <= worst)) worst = difference;  // also when it is no number
    largest = std::max(largest, std::abs(expected[i]));
  }
  return worst / largest;
}

/// Calls body(backend) for every instruction set of this CPU with 1, 2 and 3 threads. `results` says what the body
/// computed: it must be the same, bit by bit, for any number of threads.
inline void on_every_backend(const std::function<std::vector<Numbers>(Backend&)>& body) {
  for (const Kernels* kernels : runnable_kernels()) {
    std::vector<Numbers> alone;
    for (int threads = 1; threads <= 3; ++threads) {
      SCOPED_TRACE(std::string(kernels->name) + ", " + std::to_string(threads) + " threads");
      CpuBackend backend(threads, *kernels);
      const std::vector<Numbers> results = body(backend);
      if (threads == 1) {
        alone = results;
        continue;
      }
      for (std::size_t i = 0; i < results.size(); ++i)
        EXPECT_EQ(0, std::memcmp(results[i].data(), alone[i].data(), alone[i].size() * sizeof(float)))
            << "result " << i << " depends on the number of threads";
    }
  }
}

inline void run(Backend& backend, const Op& op, std::vector<Operand> in, std::vector<Operand> out,
                const StepContext& context = {}, std::vector<ElementRange> ranges = {}) {
  backend.run(op, in, out, ranges, context);
}

inline Op rows_op(OpKind kind, std::int64_t rows, std::int64_t columns) {
  Op op;
  op.kind = kind;
  op.n = rows;
  op.m = columns;
  return op;
}

/// d(loss)/dx by central differences; `x` is restored.
inline Exact finite_differences(Exact& x, const std::function<double()>& loss, double step = 1e-5) {
  Exact gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + step;
    const double above = loss();
    x[i] = kept - step;
    const double below = loss();
    x[i] = kept;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

inline double weighted_sum(const Exact& values, const Numbers& weights) {
  double total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) total += values[i] * static_cast<double>(weights[i]);
  return total;
}

}  // namespace orrery::exec::testing
