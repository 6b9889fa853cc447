// Each operator on the CUDA backend against the CPU backend; built for a GPU and for the emulated runtime.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "exec/failure.h"
#include "models/operators/fp8.h"
#include "models/operators/operators.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace operators_test {

constexpr std::int64_t kArenaBytes = std::int64_t{16} << 20;  // bytes

struct Arenas {
  std::unique_ptr<Backend> cpu = make_cpu_backend(1);
  std::byte* host = cpu->allocate_arena(kArenaBytes);
  std::byte* device = cuda_backend().allocate_arena(kArenaBytes);
};

/// One pair of arenas for the program: a backend allocates once.
Arenas& arenas() {
  static Arenas instance;
  return instance;
}

/// Backward attention reads what forward made.
Case with_forward(Case c, const std::vector<Case>& all) {
  if (c.op.kind != models::OpKind::attention_grad) return c;
  std::string forward = c.name;
  forward.erase(forward.find("_grad"), std::strlen("_grad"));
  for (const Case& other : all) {
    if (other.name != forward) continue;
    const auto values = run_on(*arenas().cpu, arenas().host, other);
    c.in[2].floats = values[1];
    c.in[3].floats = values[2];
  }
  return c;
}

/// Whether the device takes the case: not all have tensor cores for 8 bits.
bool runs_here(const Case& c) {
  return !models::is_fp8_product(c.op) || cuda_backend().refusal(models::DType::fp8).empty();
}

class Operators : public testing::TestWithParam<std::size_t> {};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = all_cases();
  return all;
}

TEST_P(Operators, AgreeWithTheCpuBackendAndRepeatBitForBit) {
  const Case c = with_forward(cases()[GetParam()], cases());
  ASSERT_LE(arena_bytes(c), kArenaBytes);
  if (!runs_here(c)) GTEST_SKIP() << cuda_backend().refusal(models::DType::fp8);
  const auto expected = run_on(*arenas().cpu, arenas().host, c);
  std::vector<std::vector<float>> first;
  for (int variant = 0; variant < variants(); ++variant) {
    choose_variant(variant);
    const auto got = run_on(cuda_backend(), arenas().device, c);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const Slot& slot = i < c.in.size() ? c.in[i] : c.out[i - c.in.size()];
      if (!slot.ids.empty()) {  // not floats: bits
        EXPECT_EQ(std::memcmp(got[i].data(), expected[i].data(), got[i].size() * sizeof(float)), 0);
        continue;
      }
      EXPECT_LE(relative_difference(got[i], expected[i]), c.tolerance) << "operand " << i;
    }
    if (variant == 0) first = got;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i].empty()) continue;
      EXPECT_EQ(std::memcmp(got[i].data(), first[i].data(), got[i].size() * sizeof(float)), 0)
          << "operand " << i << ", variant " << variant;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, Operators, testing::Range(std::size_t{0}, all_cases().size()),
                         [](const auto& tested) { return cases()[tested.param].name; });

// A kind without a case is one that the backend refuses, by its name.
TEST(OperatorCases, CoverEveryKindThatIsNotRefusedByName) {
  std::set<models::OpKind> tested;
  for (const Case& c : cases()) tested.insert(c.op.kind);
  for (int kind = 0; kind <= static_cast<int>(models::kLastOpKind); ++kind) {
    models::Op op;
    op.kind = static_cast<models::OpKind>(kind);
    const bool has = models::traits_of(op).run_by == models::RunBy::backends;
    EXPECT_EQ(has, tested.contains(op.kind))
        << models::name_of(op.kind) << ": mend its row in models/operators/operators.cpp";
    if (tested.contains(op.kind)) continue;
    const std::string name = models::name_of(op.kind);
    try {
      cuda_backend().run(op, {}, {}, {}, {});
      ADD_FAILURE() << name << " is neither tested nor refused";
    } catch (const Failure& failure) {
      EXPECT_NE(std::string(failure.what()).find(name), std::string::npos) << failure.what();
    }
  }
}

// Pairs that become one kernel, beside the same operators one by one on the CPU: what each of them would have written
// is there.
class Chains : public testing::TestWithParam<models::DType> {};

Slot of_type(Slot slot, models::DType dtype) {
  slot.dtype = dtype;
  return slot;
}

TEST_P(Chains, LeaveInMemoryWhatTheirOperatorsWouldOneByOne) {
  const models::DType type = GetParam();
  const double of_type_16 = type == models::DType::bf16 ? bound::kOneUnitBf16 : bound::kOneUnitFp16;
  const double tolerance = type == models::DType::fp32 ? bound::kFp32 : of_type_16;
  std::mt19937 random(7);
  const auto floats = [&](std::int64_t n) { return of_type(random_floats(random, n), type); };
  const auto op_of = [&](models::OpKind kind, std::int64_t n, std::int64_t m, std::int64_t k = 0) {
    models::Op op;
    op.kind = kind;
    op.dtype = type;
    op.n = n;
    op.m = m;
    op.k = k;
    op.epsilon = 1e-5;
    return op;
  };
  std::vector<Chain> chains;
  const std::int64_t rows = 24, in = 40, columns = 16;
  for (const std::int64_t out : {32, 33})  // 33 rows are too uneven for an epilogue: two kernels then
    for (const bool biased : {false, true}) {
      models::Op product = op_of(models::OpKind::matmul, out, rows, in);
      product.trans_b = true;
      Chain forward{"product, gelu",
                    {floats(rows * in), floats(out * in), floats(out), of_type(unset(rows * out), type),
                     of_type(unset(rows * out), type)},
                    {}};
      forward.links = {{product, {0, 1, biased ? 2 : -1}, {3}}, {op_of(models::OpKind::gelu, rows, out), {3}, {4}}};
      chains.push_back(forward);
      models::Op back = op_of(models::OpKind::matmul, out, rows, in);
      Chain backward{"product, gelu_grad",
                     {floats(rows * in), floats(in * out), of_type(unset(rows * out), type), floats(rows * out)},
                     {}};
      backward.links = {{back, {0, 1, -1}, {2}}, {op_of(models::OpKind::gelu_grad, rows, out), {2, 3}, {2}}};
      backward.tolerance = bound::kGeluGradient;
      chains.push_back(backward);
    }
  const models::DType sums = type == models::DType::fp16 ? type : models::DType::fp32;  // of weights' gradients
  for (const std::int64_t out : {32, 33})
    for (const bool accumulates : {false, true}) {
      models::Op weight = op_of(models::OpKind::matmul, in, out, rows),
                 bias = op_of(models::OpKind::bias_grad, rows, out);
      weight.trans_a = true;
      weight.accumulate = bias.accumulate = accumulates;
      const auto before = [&](std::int64_t n) { return accumulates ? random_floats(random, n) : unset(n); };
      Chain gradients{
          "bias_grad, product",
          {floats(rows * out), floats(rows * in), of_type(before(out * in), sums), of_type(before(out), sums)},
          {{bias, {0}, {3}}, {weight, {0, 1, -1}, {2}}}};
      chains.push_back(gradients);
    }
  for (const bool biased : {false, true})
    for (const std::int64_t c : {columns, columns + 3}) {
      Chain norm{"add_bias, layer_norm",
                 {floats(rows * c), floats(rows * c), floats(c), of_type(unset(rows * c), type), floats(c), floats(c),
                  of_type(unset(rows * c), type), unset(rows), unset(rows)},
                 {}};
      norm.links = {{op_of(models::OpKind::add_bias, rows, c), {0, 1, biased ? 2 : -1}, {3}},
                    {op_of(models::OpKind::layer_norm, rows, c), {3, 4, 5}, {6, 7, 8}}};
      chains.push_back(norm);
      Chain rms = norm;
      rms.name = "add_bias in place, rms_norm";
      rms.links = {{op_of(models::OpKind::add_bias, rows, c), {0, 1, biased ? 2 : -1}, {1}},
                   {op_of(models::OpKind::rms_norm, rows, c), {1, 4}, {6, 7}}};
      rms.slots[3] = floats(1);
      rms.slots[8] = floats(1);
      chains.push_back(rms);
      models::Op max = op_of(models::OpKind::softmax_max, rows, c), sum = max;
      max.vocab = sum.vocab = c - 2;
      sum.kind = models::OpKind::softmax_sum;
      Chain loss{
          "softmax_max, softmax_sum",
          {floats(rows * c), random_ids(random, rows, static_cast<std::int32_t>(c - 2)), unset(rows), unset(2 * rows)},
          {}};
      loss.links = {{max, {0}, {2}}, {sum, {0, 2, 1}, {3}}};
      chains.push_back(loss);
      models::Op mean = max, gradient = max;
      mean.kind = models::OpKind::cross_entropy;
      mean.accumulate = true;
      gradient.kind = models::OpKind::cross_entropy_grad;
      mean.scale = gradient.scale = 1.0 / 48;
      loss.name = "softmax_max, softmax_sum, cross_entropy, cross_entropy_grad";
      loss.slots.push_back(zeros(1));
      loss.slots.back().floats[0] = 1;
      loss.slots.push_back(zeros(4));
      loss.slots.back().floats[0] = 64;
      loss.links.push_back({mean, {2, 3}, {4}});
      loss.links.push_back({gradient, {0, 2, 3, 1, biased ? 5 : -1}, {0}});
      chains.push_back(loss);
      Chain dropped = norm;
      dropped.name = "add_bias with dropout, layer_norm";
      models::Op& masked = dropped.links[0].op;
      masked.dropout = 0.25, masked.site = 2;
      masked.batch = 2, masked.sequence = rows / 2;
      chains.push_back(dropped);
    }
  for (const Chain& chain : chains) {
    const auto expected = run_on(*arenas().cpu, arenas().host, chain);
    for (int variant = 0; variant < variants(); ++variant) {
      choose_variant(variant);
      const auto got = run_on(cuda_backend(), arenas().device, chain);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (!chain.slots[i].ids.empty()) continue;
        EXPECT_LE(relative_difference(got[i], expected[i]), std::max(tolerance, chain.tolerance))
            << chain.name << ", slot " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, Chains, testing::Values(models::DType::fp32, models::DType::bf16, models::DType::fp16),
                         [](const auto& tested) { return std::string(models::name_of(tested.param)); });

TEST(CudaBackend, RefusesWhatItCannotComputeByName) {
  models::Op op;
  op.kind = models::OpKind::gelu;
  op.dtype = models::DType::int64;
  EXPECT_THROW(cuda_backend().run(op, {}, {}, {}, {}), Failure);
  op.dtype = models::DType::fp32;
  op.n = op.m = 4;
  const Operand one{arenas().device, 16, models::DType::fp32}, other{arenas().device, 16, models::DType::bf16};
  EXPECT_THROW(cuda_backend().run(op, {&one, 1}, {&other, 1}, {}, {}), Failure) << "a mixture of types";
}

// Not near, the same: codes, largest values and scales.
TEST(RoundedOperands, AreTheBytesThatTheCpuBackendMakes) {
  for (const Case& c : rounded_cases()) {
    if (!models::is_fp8_product(c.op) || !runs_here(c)) continue;
    const auto expected = run_on(*arenas().cpu, arenas().host, c);
    EXPECT_EQ(run_on(cuda_backend(), arenas().device, c).at(4), expected.at(4)) << c.name;
  }
}

TEST(RoundedOperands, ThatAreNotFiniteMakeNoFiniteProduct) {
  for (Case c : rounded_cases()) {
    if (!models::is_fp8_product(c.op) || !runs_here(c)) continue;
    c.in[0].floats[5] = std::numeric_limits<float>::infinity();
    const auto got = run_on(cuda_backend(), arenas().device, c);
    for (const float value : got.at(3)) EXPECT_TRUE(std::isnan(value)) << c.name;
  }
}

// A kernel cannot throw: the next wait does, and then the backend is as before.
TEST(Experts, WithScoresThatAreNoNumbersOrSlotsTooSmallFailWhereTheHostWaits) {
  const auto failure_of = [](const Case& c) {
    try {
      static_cast<void>(run_on(cuda_backend(), arenas().device, c));
    } catch (const Failure& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  const auto fails = [&](const std::string& name, const auto& change, const std::string& why) {
    const auto found = std::find_if(cases().begin(), cases().end(), [&](const Case& c) { return c.name == name; });
    ASSERT_NE(found, cases().end()) << name;
    Case c = *found;
    change(c);
    c.context.layer = plan::LayerId(2);
    EXPECT_NE(failure_of(c).find(why), std::string::npos) << failure_of(c);
    EXPECT_EQ(failure_of(*found), "");
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  fails(
      "route_softmax", [&](Case& c) { c.in[0].floats[4 * 12 + 1] = c.in[0].floats[7 * 12] = nan; },
      "layer 2: the router's scores of token 4 of the micro-batch are no finite numbers");
  fails(
      "place_rows_3_limit_0", [](Case& c) { c.op.capacity = 100; }, "layer 2: experts");
}

TEST(CudaBackend, TimesBetweenMarksAreNotNegative) {
  Backend& backend = cuda_backend();
  const Backend::Mark from = backend.mark();
  const Backend::Mark to = backend.mark();
  EXPECT_GE(backend.seconds_between(from, to), 0.0);
}

}  // namespace operators_test
}  // namespace orrery::exec::gpu_test
