// What the table of operators says of outputs, held to the CPU backend by the cases that the CUDA backend is held to:
// of what is only written nothing is read, and all of it is written; what is added to is read.
#include <gtest/gtest.h>

#include <cstring>

#include "exec/failure.h"
#include "models/operators/operators.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace cpu_written_test {

constexpr std::int64_t kArenaBytes = std::int64_t{16} << 20;  // bytes

/// The output where an operator began with `value` in it.
std::vector<float> after(Backend& backend, std::byte* arena, Case c, std::size_t output, float value) {
  for (float& one : c.out[output].floats) one = value;
  return run_on(backend, arena, c)[c.in.size() + output];
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(OperatorOutputs, AreReadWhereTheTableSaysSoAndNowhereElse) {
  const auto backend = make_cpu_backend(1);
  std::byte* arena = backend->allocate_arena(kArenaBytes);
  int written = 0, added = 0;
  for (const Case& c : all_cases()) {
    if (c.op.slots > 0) continue;  // rows that are not there stay as they were
    const models::Operands& row = models::traits_of(c.op).out;
    for (std::size_t i = 0; i < c.out.size(); ++i) {
      if (c.out[i].floats.empty() || c.out[i].same_as_input >= 0 || row[i].name == "workspace") continue;
      const bool writes = models::only_writes(c.op, i), adds = row[i].use == models::Use::adds;
      if (!writes && !adds) continue;
      const bool alike = same(after(*backend, arena, c, i, 1), after(*backend, arena, c, i, 2));
      EXPECT_EQ(alike, writes) << c.name << ", " << row[i].name << " of " << models::name_of(c.op.kind);
      (writes ? written : added) += 1;
    }
  }
  EXPECT_GT(written, 100);
  EXPECT_GT(added, 10);
}

TEST(OperatorOutputs, OfTheExecutorsOwnKindsAreNoBackends) {
  const auto backend = make_cpu_backend(1);
  for (const models::OperatorTraits& row : models::kOperators) {
    if (row.run_by != models::RunBy::executor) continue;
    models::Op op;
    op.kind = row.kind;
    EXPECT_THROW(backend->run(op, {}, {}, {}, {}), Failure) << row.name;
  }
}

}  // namespace cpu_written_test
}  // namespace orrery::exec::gpu_test
