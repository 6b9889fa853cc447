// Each operator on the CUDA backend against the CPU backend; built for a GPU and for the emulated runtime.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "exec/failure.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

constexpr std::int64_t kArenaBytes = std::int64_t{16} << 20;

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
  const std::string forward = "attention" + c.name.substr(std::strlen("attention_grad"));
  for (const Case& other : all) {
    if (other.name != forward) continue;
    const auto values = run_on(*arenas().cpu, arenas().host, other);
    c.in[2].floats = values[1];
    c.in[3].floats = values[2];
  }
  return c;
}

class Operators : public testing::TestWithParam<std::size_t> {};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = all_cases();
  return all;
}

TEST_P(Operators, AgreeWithTheCpuBackendAndRepeatBitForBit) {
  const Case c = with_forward(cases()[GetParam()], cases());
  ASSERT_LE(arena_bytes(c), kArenaBytes);
  const auto expected = run_on(*arenas().cpu, arenas().host, c);
  std::vector<std::vector<float>> first;
  for (int variant = 0; variant < variants(); ++variant) {
    choose_variant(variant);
    const auto got = run_on(cuda_backend(), arenas().device, c);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (i < c.in.size() && !c.in[i].ids.empty()) {  // ids, not floats: bits
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

/// What trains with anything but AdamW in fp32, which the CUDA backend does not have yet.
const std::set<models::OpKind>& refused_updates() {
  using K = models::OpKind;
  static const std::set<K> kinds = {K::overflow,    K::loss_scale,     K::sgd,          K::lamb_moments, K::lamb,
                                    K::factor_sums, K::factor_moments, K::factor_norms, K::adafactor,    K::adamw_8bit};
  return kinds;
}

TEST(CudaBackend, RefusesOtherOptimizersByName) {
  for (const models::OpKind kind : refused_updates()) {
    models::Op op;
    op.kind = kind;
    EXPECT_THROW(cuda_backend().run(op, {}, {}, {}, {}), Failure) << models::name_of(kind);
  }
}

/// What BERT alone has.
const std::set<models::OpKind>& refused_of_bert() {
  using K = models::OpKind;
  static const std::set<K> kinds = {K::type_add,  K::type_grad, K::gather_rows,   K::scatter_rows, K::tanh,
                                    K::tanh_grad, K::gelu_erf,  K::gelu_erf_grad, K::class_loss,   K::class_loss_grad};
  return kinds;
}

TEST(CudaBackend, RefusesWhatBertAloneHasByName) {
  for (const models::OpKind kind : refused_of_bert()) {
    models::Op op;
    op.kind = kind;
    try {
      cuda_backend().run(op, {}, {}, {}, {});
      FAIL() << models::name_of(kind);
    } catch (const Failure& failure) {
      EXPECT_NE(std::string(failure.what()).find(models::name_of(kind)), std::string::npos) << failure.what();
    }
  }
}

/// What compresses gradients and encodes activations, which the CUDA backend does not have yet.
const std::set<models::OpKind>& refused_compression() {
  using K = models::OpKind;
  static const std::set<K> kinds = {K::convert, K::sum_pieces, K::orthogonalise, K::add_scaled, K::encode, K::decode};
  return kinds;
}

TEST(CudaBackend, RefusesCompressionThatItDoesNotHaveYet) {
  for (const models::OpKind kind : refused_compression()) {
    models::Op op;
    op.kind = kind;
    EXPECT_THROW(cuda_backend().run(op, {}, {}, {}, {}), Failure) << models::name_of(kind);
  }
}

TEST(OperatorCases, CoverEveryKind) {
  std::set<models::OpKind> tested;
  for (const Case& c : cases()) tested.insert(c.op.kind);
  for (int kind = 0; kind <= static_cast<int>(models::kLastOpKind); ++kind) {
    const auto op = static_cast<models::OpKind>(kind);
    if (op == models::OpKind::load_tokens) continue;  // the executor's
    if (op == models::OpKind::ring_attention || op == models::OpKind::ring_attention_grad ||
        op == models::OpKind::split_kv || op == models::OpKind::merge_kv)
      continue;  // refused, see below
    if (refused_updates().contains(op) || refused_of_bert().contains(op) || refused_compression().contains(op))
      continue;
    EXPECT_TRUE(tested.contains(op)) << models::name_of(op);
  }
}

TEST(CudaBackend, RefusesRingAttentionThatItDoesNotHaveYet) {
  models::Op op;
  for (const models::OpKind kind : {models::OpKind::ring_attention, models::OpKind::ring_attention_grad,
                                    models::OpKind::split_kv, models::OpKind::merge_kv}) {
    op.kind = kind;
    EXPECT_THROW(cuda_backend().run(op, {}, {}, {}, {}), Failure) << models::name_of(kind);
  }
}

TEST(CudaBackend, RefusesATypeItCannotCompute) {
  models::Op op;
  op.kind = models::OpKind::gelu;
  op.dtype = models::DType::bf16;
  EXPECT_THROW(cuda_backend().run(op, {}, {}, {}, {}), Failure);
}

TEST(CudaBackend, TimesBetweenMarksAreNotNegative) {
  Backend& backend = cuda_backend();
  const Backend::Mark from = backend.mark();
  const Backend::Mark to = backend.mark();
  EXPECT_GE(backend.seconds_between(from, to), 0.0);
}

}  // namespace
}  // namespace orrery::exec::gpu_test
