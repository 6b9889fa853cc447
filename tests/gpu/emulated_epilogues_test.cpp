// Epilogues where they win: what times decide, what is decided without them, what the plan file keeps, and that no way
// to decide changes what is in memory. Times are made up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "exec/cuda/backend.h"
#include "tests/gpu/emulated_training.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace emulated_epilogues_test {

using cuda::EpilogueUse;
using models::DType;
using models::OpKind;
using testing::Outcome;
using testing::Trial;

constexpr double kProduct = 1e-3, kKernel = 1e-4;  // seconds
constexpr std::int64_t kArenaBytes = std::int64_t{1} << 20;

/// The clock of this thread's device, for as long as it lives. A product with one of `cheap` takes about as long as one
/// without, with any other twice as long.
class MadeUpTimes {
 public:
  explicit MadeUpTimes(const std::vector<cublasLtEpilogue_t>& cheap) {
    emulation::made_up_times() = {true, kKernel, 0};
    emulation::lt_record() = {};
    auto& seconds = emulation::lt_record().seconds;
    for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADB})
      seconds[epilogue] = 2 * kProduct;
    seconds[CUBLASLT_EPILOGUE_DEFAULT] = kProduct;
    for (const auto epilogue : cheap) seconds[epilogue] = 0.95 * kProduct;
  }
  ~MadeUpTimes() {
    emulation::made_up_times() = {};
    emulation::lt_record() = {};
  }
  MadeUpTimes(const MadeUpTimes&) = delete;
  MadeUpTimes& operator=(const MadeUpTimes&) = delete;
};

std::string fresh_file(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("orrery-epilogues-" + name);
  std::filesystem::remove_all(path);
  return (path / "plans.txt").string();
}

/// A layer's gradients of bias and weight, in bf16, added to what is there.
Chain gradients() {
  constexpr std::int64_t kRows = 24, kIn = 40, kOut = 32;
  std::mt19937 random(3);
  models::Op bias, weight;
  bias.kind = OpKind::bias_grad;
  bias.dtype = weight.dtype = DType::bf16;
  bias.n = kRows, bias.m = kOut;
  weight.kind = OpKind::matmul;
  weight.m = kOut, weight.n = kIn, weight.k = kRows;
  weight.trans_a = weight.accumulate = bias.accumulate = true;
  return {"bias_grad, product",
          {of(random_floats(random, kRows * kOut), DType::bf16), of(random_floats(random, kRows * kIn), DType::bf16),
           random_floats(random, kOut * kIn), random_floats(random, kOut)},
          {{bias, {0}, {3}}, {weight, {0, 1, -1}, {2}}}};
}

/// A layer with a bias and GELU, and the gradient of another layer's input through GELU.
Chain activations() {
  constexpr std::int64_t kRows = 24, kIn = 40, kOut = 32;
  std::mt19937 random(5);
  const auto floats = [&](std::int64_t n) { return of(random_floats(random, n), DType::bf16); };
  const Slot result = of(unset(kRows * kOut), DType::bf16);
  models::Op product, gelu;
  product.kind = OpKind::matmul;
  product.dtype = gelu.dtype = DType::bf16;
  product.m = kRows, product.n = kOut, product.k = kIn;
  gelu.kind = OpKind::gelu;
  gelu.n = kRows, gelu.m = kOut;
  models::Op slope = gelu, forward = product;
  slope.kind = OpKind::gelu_grad;
  forward.trans_b = true;
  return {"product, gelu; product, gelu_grad",
          {floats(kRows * kIn), floats(kOut * kIn), floats(kOut), result, result, floats(kIn * kOut), result},
          {{forward, {0, 1, 2}, {3}}, {gelu, {3}, {4}}, {product, {0, 5, -1}, {6}}, {slope, {6, 3}, {6}}}};
}

class EpiloguesOf {
 public:
  explicit EpiloguesOf(const std::string& file, EpilogueUse use = EpilogueUse::timed, double tune_above = 1)
      : backend_(0, nullptr, {.plan_file = file, .tune_above_flops = tune_above, .epilogues = use}) {}
  std::vector<std::vector<float>> run(const Chain& chain) { return run_on(backend_, arena_, chain); }
  /// Of the operators, which kernel, and why; empty where nothing was chosen.
  [[nodiscard]] KernelChoice choice(const std::string& op) const {
    for (const KernelChoice& one : backend_.kernel_choices())
      if (one.op == op) return one;
    return {};
  }
  [[nodiscard]] bool as_one(const std::string& op) const { return choice(op).kernel == "one kernel of cuBLASLt's"; }
  [[nodiscard]] cuda::CudaBackend& backend() { return backend_; }

 private:
  cuda::CudaBackend backend_;
  std::byte* arena_ = backend_.allocate_arena(kArenaBytes);
};

void expect_as_on_the_cpu(const Chain& chain, const std::vector<std::vector<float>>& got, double tolerance = 4e-3) {
  static const std::unique_ptr<Backend> cpu = make_cpu_backend(1);
  static std::byte* const arena = cpu->allocate_arena(kArenaBytes);
  const auto expected = run_on(*cpu, arena, chain);
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(relative_difference(got[i], expected[i]), tolerance) << chain.name << ", slot " << i;
}

constexpr const char *kBiasGrad = "matmul + bias_grad", *kGelu = "matmul + bias + gelu",
                     *kGeluGrad = "matmul + gelu_grad", *kBias = "matmul + bias";

TEST(EmulatedEpilogues, AreOneKernelWhereThatIsFaster) {
  const MadeUpTimes times({CUBLASLT_EPILOGUE_BGRADB});
  const long emptied = emulation::second_level_cache().emptied;
  EpiloguesOf device({});
  expect_as_on_the_cpu(gradients(), device.run(gradients()));
  EXPECT_TRUE(device.as_one(kBiasGrad));
  // The product, and what adds the sums; beside them the product and both kernels of the sums.
  EXPECT_EQ(device.choice(kBiasGrad).reason, "32 x 40 x 24 in bf16: 1050.0 us as one, 1200.0 us apart");
  // Both kernels of cuBLASLt's are tuned, two proposals each; then the ways are timed in turns.
  constexpr int kTuned = 2 * 7, kRounds = 8;
  EXPECT_EQ(emulation::second_level_cache().emptied - emptied, 2 * kTuned + 2 * kRounds)
      << "before each run that counts";
  const int with = emulation::lt_record().with[CUBLASLT_EPILOGUE_BGRADB];
  const int without = emulation::lt_record().with[CUBLASLT_EPILOGUE_DEFAULT];
  expect_as_on_the_cpu(gradients(), device.run(gradients()));
  EXPECT_EQ(emulation::lt_record().with[CUBLASLT_EPILOGUE_BGRADB], with + 1) << "timed once";
  EXPECT_EQ(emulation::lt_record().with[CUBLASLT_EPILOGUE_DEFAULT], without);
}

TEST(EmulatedEpilogues, AreKernelsApartWhereTheyAreSlower) {
  const MadeUpTimes times({});
  EpiloguesOf device({});
  expect_as_on_the_cpu(gradients(), device.run(gradients()));
  EXPECT_FALSE(device.as_one(kBiasGrad));
  EXPECT_EQ(device.choice(kBiasGrad).kernel, "kernels apart");
  EXPECT_EQ(device.choice(kBiasGrad).reason, "32 x 40 x 24 in bf16: 2100.0 us as one, 1200.0 us apart");
  const int with = emulation::lt_record().with[CUBLASLT_EPILOGUE_BGRADB];
  expect_as_on_the_cpu(gradients(), device.run(gradients()));
  EXPECT_EQ(emulation::lt_record().with[CUBLASLT_EPILOGUE_BGRADB], with);
}

TEST(EmulatedEpilogues, AreChosenEachForItself) {
  for (const bool slope_wins : {false, true}) {
    const MadeUpTimes times(slope_wins ? std::vector{CUBLASLT_EPILOGUE_DGELU}
                                       : std::vector{CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
    EpiloguesOf device({});
    expect_as_on_the_cpu(activations(), device.run(activations()));
    EXPECT_EQ(device.as_one(kGelu), !slope_wins) << device.choice(kGelu).reason;
    EXPECT_EQ(device.as_one(kGeluGrad), slope_wins) << device.choice(kGeluGrad).reason;
    EXPECT_FALSE(device.as_one(kBias)) << "a bias without GELU, which the two apart have";
    EXPECT_EQ(device.choice(kBias).reason, "24 x 32 x 40 in bf16: 2000.0 us as one, 1100.0 us apart");
  }
}

TEST(EmulatedEpilogues, OfAShapeAreReadBackFromThePlanFile) {
  for (const bool wins : {false, true}) {
    const std::string file = fresh_file(wins ? "wins" : "loses");
    std::vector<std::vector<float>> first;
    {
      const MadeUpTimes times(wins ? std::vector{CUBLASLT_EPILOGUE_BGRADB} : std::vector<cublasLtEpilogue_t>{});
      EpiloguesOf device(file);
      first = device.run(gradients());
    }
    // By these times the other way would be faster; who reads the file does not ask.
    const MadeUpTimes times(wins ? std::vector<cublasLtEpilogue_t>{} : std::vector{CUBLASLT_EPILOGUE_BGRADB});
    EpiloguesOf again(file);
    EXPECT_EQ(again.run(gradients()), first) << "the same bits";
    EXPECT_EQ(again.as_one(kBiasGrad), wins);
    EXPECT_EQ(emulation::lt_record().launches, 1);
    EXPECT_EQ(emulation::lt_record().with[CUBLASLT_EPILOGUE_BGRADB], wins ? 1 : 0);
    EXPECT_NE(again.choice(kBiasGrad).reason.find("us apart"), std::string::npos) << "both times are kept too";
  }
}

TEST(EmulatedEpilogues, WithoutTimesAreChosenByRule) {
  const MadeUpTimes times({CUBLASLT_EPILOGUE_BGRADB});
  for (const int capability : {80, 90}) {
    emulation::capability() = capability;
    EpiloguesOf device({}, EpilogueUse::timed, 1e12);
    expect_as_on_the_cpu(gradients(), device.run(gradients()));
    expect_as_on_the_cpu(activations(), device.run(activations()));
    EXPECT_FALSE(device.as_one(kBiasGrad));
    EXPECT_EQ(device.choice(kBiasGrad).reason, "by rule: too small to be timed");
    EXPECT_EQ(device.as_one(kGelu), capability >= 90);
    EXPECT_EQ(device.as_one(kGeluGrad), capability >= 90);
    if (capability < 90) {
      EXPECT_TRUE(device.as_one(kBias));
    }
  }
  emulation::capability() = 90;
}

// What a tensor group's ranks all have a copy of, a bias behind the sum over the group, must stay the same bits: ranks
// that timed for themselves, or read different files, would not agree.
TEST(EmulatedEpilogues, OfATensorGroupAreChosenByRuleWhateverTheFileSays) {
  const std::string file = fresh_file("group");
  const MadeUpTimes times({CUBLASLT_EPILOGUE_BGRADB});
  {
    EpiloguesOf device(file);
    static_cast<void>(device.run(gradients()));
    ASSERT_TRUE(device.as_one(kBiasGrad));
  }
  EpiloguesOf again(file);
  Chain split = gradients();
  split.context.tensor_ways = 2;
  expect_as_on_the_cpu(split, again.run(split));
  EXPECT_FALSE(again.as_one(kBiasGrad));
  EXPECT_EQ(again.choice(kBiasGrad).reason, "by rule: the ranks of a tensor group must choose alike");
}

TEST(EmulatedEpilogues, CanBeSwitchedOnAndOff) {
  const MadeUpTimes times({});
  EpiloguesOf on({}, EpilogueUse::always);
  expect_as_on_the_cpu(gradients(), on.run(gradients()));
  EXPECT_TRUE(on.as_one(kBiasGrad));
  EXPECT_EQ(emulation::lt_record().with[CUBLASLT_EPILOGUE_BGRADB], 2 * 8 + 1) << "two proposals tuned, and the run";
  emulation::lt_record().with.clear();
  EpiloguesOf off({}, EpilogueUse::never);
  expect_as_on_the_cpu(gradients(), off.run(gradients()));
  expect_as_on_the_cpu(activations(), off.run(activations()));
  for (const auto& [epilogue, launches] : emulation::lt_record().with) {
    EXPECT_EQ(epilogue, CUBLASLT_EPILOGUE_DEFAULT) << launches;
  }
  struct Wish {
    const char* value;
    EpilogueUse use;
  };
  for (const Wish& wish : {Wish{"on", EpilogueUse::always}, Wish{"off", EpilogueUse::never},
                           Wish{"", EpilogueUse::timed}, Wish{"timed", EpilogueUse::timed}}) {
    setenv("ORRERY_EPILOGUES", wish.value, 1);
    EXPECT_EQ(cuda::Products::Options{}.epilogues, wish.use) << wish.value;
  }
  unsetenv("ORRERY_EPILOGUES");
}

TEST(EmulatedEpilogues, OfALibraryWithoutThemAreKernelsApart) {
  const MadeUpTimes times({CUBLASLT_EPILOGUE_BGRADB});
  emulation::lt_record().no_epilogues = true;
  for (const EpilogueUse use : {EpilogueUse::timed, EpilogueUse::always}) {
    EpiloguesOf device({}, use);
    expect_as_on_the_cpu(gradients(), device.run(gradients()));
    expect_as_on_the_cpu(activations(), device.run(activations()));
    if (use == EpilogueUse::timed) {
      EXPECT_EQ(device.choice(kBiasGrad).reason, "cuBLASLt has none for 32 x 40 x 24 in bf16");
    }
  }
}

TEST(EmulatedEpilogues, AreNeverTimedWithinAGraph) {
  const MadeUpTimes times({CUBLASLT_EPILOGUE_BGRADB});
  EpiloguesOf device({});
  const Chain chain = gradients();
  std::byte* const arena = device.backend().allocate_arena(kArenaBytes);
  const auto step = [&] {
    std::vector<Operand> operands;
    for (const Slot& slot : chain.slots)
      operands.push_back({arena + operands.size() * 8192, slot.elements(), slot.dtype});
    const Operand none;
    const std::vector<Operand> factors = {operands[0], operands[1], none};
    const OpCall calls[] = {{&chain.links[0].op, {&operands[0], 1}, {&operands[3], 1}, {}},
                            {&chain.links[1].op, factors, {&operands[2], 1}, {}}};
    device.backend().run_all(calls, {});
  };
  device.backend().begin_capture();
  EXPECT_THROW(step(), Failure);
  device.backend().abandon_capture();
  EXPECT_EQ(device.choice(kBiasGrad).reason, "") << "nothing is chosen";
  step();
  EXPECT_TRUE(device.as_one(kBiasGrad));
  device.backend().begin_capture();
  step();
  EXPECT_NE(device.backend().end_capture(), nullptr);
}

// -- trainings ------------------------------------------------------------------------------------------------------

/// What the ranks' backends chose, seen after each step.
struct Seen {
  std::mutex lock;
  std::map<std::string, std::map<std::string, int>> kernels;  ///< by operators, how often which
  int bias_grads = 0;                                         ///< launches with that epilogue
  void watch(Trial& trial) {
    trial.after_step = [this](Backend& backend, std::int64_t) {
      const std::lock_guard guard(lock);
      bias_grads += emulation::lt_record().with[CUBLASLT_EPILOGUE_BGRADB];
      for (const KernelChoice& choice : backend.kernel_choices()) ++kernels[choice.op][choice.kernel];
    };
  }
  [[nodiscard]] bool only(const std::string& op, const std::string& kernel) const {
    const auto found = kernels.find(op);
    return found != kernels.end() && found->second.size() == 1 && found->second.contains(kernel);
  }
};

struct Case {
  const char* name;
  void (*set)(plan::PlanSpec&);
  bool joins = true;  ///< bias and weight are in one pass, of the same rows, for some layer
};

class TrainingWithEpilogues : public ::testing::TestWithParam<Case> {};

TEST_P(TrainingWithEpilogues, EqualsTheCpuBackendOnTheSamePlan) {
  Trial trial = short_trial(3);
  GetParam().set(trial.spec);
  const Outcome theirs = testing::train(trial);
  Seen seen;
  seen.watch(trial);
  const Outcome ours =
      on_devices(trial, true, {.plan_file = {}, .tune_above_flops = 1e12, .epilogues = EpilogueUse::always});
  const bool fp32 = trial.spec.numerics.precision == DType::fp32;
  expect_near(ours, theirs, fp32 ? Bounds{1e-5, 5e-5, 5e-5} : Bounds{2e-3, 2e-2, 3e-2});
  expect_memory_as_placed(ours);
  EXPECT_EQ(seen.only(kBiasGrad, "one kernel of cuBLASLt's"), GetParam().joins);
  EXPECT_EQ(seen.bias_grads > 0, GetParam().joins);
}

using plan::PlanSpec;

INSTANTIATE_TEST_SUITE_P(
    Plans, TrainingWithEpilogues,
    ::testing::Values(Case{"serial", [](PlanSpec&) {}},
                      Case{"bf16", [](PlanSpec& s) { s.numerics.precision = DType::bf16; }},
                      Case{"fp16", [](PlanSpec& s) { s.numerics.precision = DType::fp16; }},
                      Case{"tf32", [](PlanSpec& s) { s.numerics.precision = DType::tf32; }, false},
                      Case{"tensor_2", [](PlanSpec& s) { s.mesh.tensor = 2; }},
                      Case{"sequence_parallel_recompute",
                           [](PlanSpec& s) {
                             s.mesh.tensor = 2, s.mesh.sequence_parallel = true;
                             s.recomputation.what = plan::Recompute::full;
                           },
                           false},
                      Case{"zero_bubble", [](PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::zb_h1; },
                           false},
                      Case{"zero_3", [](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Timed on the operands of the first step, which a graph's capture follows.
TEST(EmulatedEpilogues, ByTimesTrainTheSameBitsWithGraphsAndWithout) {
  for (const bool wins : {false, true}) {
    Trial trial = short_trial(3);
    trial.spec.shape.batch = 4;
    trial.gradients_at = {};  // what is read within a step stands between graphs
    trial.spec.numerics.precision = DType::bf16;
    trial.spec.recomputation.what = plan::Recompute::full;
    Seen seen;
    seen.watch(trial);
    const auto run = [&](bool graphs) {
      Trial one = trial;
      one.graphs = graphs;
      std::unique_ptr<MadeUpTimes> times;
      one.devices = [&](Transport&) {
        times = std::make_unique<MadeUpTimes>(wins ? std::vector{CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_DGELU}
                                                   : std::vector<cublasLtEpilogue_t>{});
        testing::Devices devices;
        devices.backend = std::make_unique<cuda::CudaBackend>(
            0, make_cpu_backend(1), cuda::Products::Options{.plan_file = {}, .tune_above_flops = 1});
        return devices;
      };
      return testing::train(one);
    };
    const Outcome with = run(true), without = run(false);
    ASSERT_EQ(with.steps.size(), without.steps.size());
    for (std::size_t i = 0; i < with.steps.size(); ++i) EXPECT_EQ(with.steps[i].loss, without.steps[i].loss) << i;
    for (const auto& [name, tensor] : without.weights) EXPECT_EQ(with.weights.at(name).values, tensor.values) << name;
    EXPECT_GT(with.graphs.front().replayed, 0);
    EXPECT_EQ(with.graphs.front().failed, 0) << with.graphs.front().reason;
    EXPECT_TRUE(seen.only(kBiasGrad, wins ? "one kernel of cuBLASLt's" : "kernels apart"));
    EXPECT_TRUE(seen.only(kGeluGrad, wins ? "one kernel of cuBLASLt's" : "kernels apart"));
  }
}

}  // namespace emulated_epilogues_test
}  // namespace orrery::exec::gpu_test
