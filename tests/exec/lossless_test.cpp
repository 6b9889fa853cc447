// Gist's lossless storage of what a ReLU leaves: the bits of the run without it, whether everything fits or nothing
// does; memory as planned.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "exec/engine/half.h"
#include "models/encoding.h"
#include "tests/exec/cpu_testing.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace lossless_test {

using models::OpKind;
using testing::Outcome;
using testing::Trial;

Trial rectified_trial() {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.model.activation = models::Activation::relu;
  trial.steps = 6;
  trial.gradients_at = {0, 5};
  return trial;
}

struct Case {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

class Lossless : public ::testing::TestWithParam<std::tuple<double, Case>> {};

TEST_P(Lossless, IsBitwiseTheRunThatKeepsEverything) {
  const auto& [capacity, one] = GetParam();
  Trial trial = rectified_trial();
  one.set(trial.spec);
  const Outcome plain = testing::train(trial);
  trial.spec.compression.activations = plan::ActivationEncoding::lossless;
  trial.spec.compression.capacity = capacity;
  const Outcome sparse = testing::train(trial);
  for (std::size_t i = 0; i < plain.steps.size(); ++i) EXPECT_EQ(sparse.steps[i].loss, plain.steps[i].loss);
  for (const auto& [step, gradients] : plain.gradients)
    for (const auto& [name, tensor] : gradients) EXPECT_EQ(sparse.gradients.at(step).at(name).values, tensor.values);
  for (const auto& [name, tensor] : plain.weights) EXPECT_EQ(sparse.weights.at(name).values, tensor.values) << name;
  for (std::size_t rank = 0; rank < sparse.memory.size(); ++rank) {
    EXPECT_EQ(sparse.memory[rank].peak_live, sparse.placements[rank].peak_live_bytes);
    EXPECT_EQ(sparse.memory[rank].peak_extent, sparse.placements[rank].arena_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Lossless,
                         ::testing::Combine(::testing::Values(0.01, 0.5, 1.0),  // nothing fits, some does, all does
                                            ::testing::Values(Case{"serial", [](plan::PlanSpec&) {}},
                                                              Case{"bf16_data_2_zero_2",
                                                                   [](plan::PlanSpec& s) {
                                                                     s.mesh.data = 2, s.states.zero_stage = 2,
                                                                     s.numerics.precision = models::DType::bf16;
                                                                   }},
                                                              Case{"tensor_2_pipeline_2",
                                                                   [](plan::PlanSpec& s) {
                                                                     s.mesh.tensor = s.mesh.pipeline = 2;
                                                                   }})),
                         [](const auto& which) {
                           return std::string(std::get<1>(which.param).name) + "_" +
                                  std::to_string(static_cast<int>(100 * std::get<0>(which.param)));
                         });

// A loss of what the ReLU leaves: of 2 layers, 8 sequences and 4 micro-batches a step.
TEST(LosslessTraining, CountsWhatHadNoRoom) {
  Trial trial = rectified_trial();
  trial.gradients_at = {};
  trial.spec.compression.activations = plan::ActivationEncoding::lossless;
  const std::int64_t tensors = trial.model.layers * trial.spec.shape.batch / trial.spec.shape.micro_batch;
  for (const double capacity : {0.01, 1.0}) {
    trial.spec.compression.capacity = capacity;
    for (const StepResult& step : testing::train(trial).steps) {
      EXPECT_EQ(step.lossless.tensors, tensors);
      EXPECT_EQ(step.lossless.again, capacity < 1 ? tensors : 0);
      EXPECT_GT(step.lossless.densest, 0.2);
      EXPECT_LT(step.lossless.densest, 0.9);
    }
  }
  // The share that it reports is enough, and no less is.
  trial.spec.compression.capacity = 1;
  double densest = 0;
  for (const StepResult& step : testing::train(trial).steps) densest = std::max(densest, step.lossless.densest);
  const auto again = [&](double share) {
    trial.spec.compression.capacity = share;
    std::int64_t count = 0;
    for (const StepResult& step : testing::train(trial).steps) count += step.lossless.again;
    return count;
  };
  EXPECT_EQ(again(std::ceil(100 * densest) / 100), 0);
  EXPECT_GT(again(densest - 0.01), 0);
  trial.spec.compression = {};
  for (const StepResult& step : testing::train(trial).steps) EXPECT_EQ(step.lossless.tensors, 0);
}

TEST(LosslessTraining, TakesLessMemoryWhereMicroBatchesWait) {
  Trial trial = rectified_trial();
  trial.model.layers = 4;
  trial.training.initial_weights.clear();
  trial.spec.mesh.pipeline = 2, trial.spec.shape.micro_batch = 1;
  trial.steps = 2, trial.gradients_at = {};
  const Outcome plain = testing::train(trial);
  trial.spec.compression.activations = plan::ActivationEncoding::lossless;
  const Outcome sparse = testing::train(trial);
  EXPECT_LT(sparse.memory[0].peak_live, plain.memory[0].peak_live);
}

TEST(SparseStorage, GivesBackEveryBit) {
  using namespace testing;
  for (const std::int64_t rows : {1, 7, 300})
    for (const std::int64_t columns : {1, 64, 333}) {
      models::Op op = rows_op(OpKind::sparse_encode, rows, columns);
      Numbers x = random_numbers(rows * columns, "sparse");
      std::int64_t kept = 0;
      for (float& v : x) v = v > 0 ? v : 0.0F, kept += v != 0 ? 1 : 0;
      if (rows == 300) x[5] = NAN, x[6] = -0.0F;
      op.capacity = rows * columns;
      on_every_backend([&](Backend& backend) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(models::sparse_bytes(op.n * op.m, op.capacity, 4)) + 64);
        auto* const aligned = bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
        Operand stored{aligned, models::sparse_bytes(op.n * op.m, op.capacity, 4), models::DType::uint8};
        Numbers back(x.size(), 1);
        run(backend, op, {of(x)}, {stored});
        models::Op again = op;
        again.kind = OpKind::sparse_decode;
        run(backend, again, {stored}, {of(back)});
        EXPECT_EQ(0, std::memcmp(back.data(), x.data(), x.size() * sizeof(float)));
        return std::vector<Numbers>{};
      });
    }
}

TEST(SparseStorage, OfTooManyValuesSaysSoAndIsMadeAgain) {
  using namespace testing;
  const std::int64_t rows = 9, columns = 70, inner = 12;
  Numbers a = random_numbers(rows * inner, "a"), weight = random_numbers(columns * inner, "weight");
  Numbers bias = random_numbers(columns, "bias"), x(static_cast<std::size_t>(rows * columns)), back = x;
  const auto backend = make_cpu_backend(2);
  models::Op product;
  product.kind = OpKind::matmul;
  product.m = rows, product.n = columns, product.k = inner;
  product.trans_b = true;
  run(*backend, product, {of(a), of(weight), of(bias)}, {of(x)});
  run(*backend, rows_op(OpKind::relu, rows, columns), {of(x)}, {of(x)});
  std::int64_t kept = 0;
  for (const float v : x) kept += v != 0 ? 1 : 0;
  for (const std::int64_t capacity : {kept, kept - 1}) {
    models::Op op = rows_op(OpKind::sparse_encode, rows, columns);
    op.capacity = capacity;
    std::vector<std::int64_t> words(static_cast<std::size_t>(models::sparse_bytes(rows * columns, capacity, 4)) / 8 +
                                    1);
    Operand stored{reinterpret_cast<std::byte*>(words.data()), models::sparse_bytes(rows * columns, capacity, 4),
                   models::DType::uint8};
    run(*backend, op, {of(x)}, {stored});
    EXPECT_EQ(words[0], kept);
    op.kind = OpKind::sparse_decode;
    op.k = inner;
    run(*backend, op, {stored, of(a), of(weight), of(bias)}, {of(back)});
    EXPECT_EQ(back, x) << "capacity " << capacity;
    std::fill(a.begin(), a.end(), 0.0F);  // of the second alone the operands are read
    run(*backend, op, {stored, of(a), of(weight), of(bias)}, {of(back)});
    EXPECT_EQ(back == x, capacity == kept);
    a = random_numbers(rows * inner, "a");
  }
}

}  // namespace lossless_test
}  // namespace orrery::exec
