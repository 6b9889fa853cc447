// Matrix products' plan cache, tuning and epilogues, and the planner that finds neighbours to fuse.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "exec/cuda/fusion.h"
#include "exec/cuda/products.h"

namespace orrery::exec::gpu_test {
namespace emulated_products_test {

using cuda::Epilogue;
using cuda::PlanCache;
using cuda::Product;
using cuda::Products;
using cuda::ProductShape;
using cuda::StoredPlan;
using models::DType;

std::string fresh_file(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("orrery-plans-" + name);
  std::filesystem::remove_all(path);
  return (path / "folder" / "plans.txt").string();
}

ProductShape some_shape() {
  ProductShape shape{8192, 3072, 768, false, true, true, false, DType::bf16, DType::fp32, Epilogue::none, 128};
  return shape;
}

StoredPlan some_plan() {
  return {{1, 2, 3, 0xffffffffffffffff, 5, 6, 7, 8}, 1 << 20, 1.25e-4};
}

TEST(PlanCache, IsReadBackFromItsFile) {
  const std::string file = fresh_file("read-back");
  {
    PlanCache cache(file, "NVIDIA H200", 130100);
    EXPECT_FALSE(cache.find(some_shape()));
    cache.keep(some_shape(), some_plan());
  }
  const PlanCache again(file, "NVIDIA H200", 130100);
  ASSERT_TRUE(again.find(some_shape()));
  EXPECT_EQ(*again.find(some_shape()), some_plan());
  ProductShape other = some_shape();
  other.epilogue = Epilogue::bias;
  EXPECT_FALSE(again.find(other));
}

TEST(PlanCache, HasChoicesBesidePlans) {
  const std::string file = fresh_file("choices");
  ProductShape shape = some_shape();
  shape.epilogue = Epilogue::bias_grad;
  const cuda::StoredChoice faster{true, 1.25e-4, 1.5e-4}, slower{false, 2e-4, 1.5e-4};
  {
    PlanCache cache(file, "NVIDIA H200", 130100);
    cache.keep(shape, slower);
    cache.keep(shape, some_plan());
    cache.keep(shape, faster);
    shape.epilogue = Epilogue::gelu_grad;
    cache.keep(shape, slower);
  }
  const PlanCache again(file, "NVIDIA H200", 130100);
  EXPECT_EQ(again.find_choice(shape), slower);
  shape.epilogue = Epilogue::bias_grad;
  EXPECT_EQ(again.find_choice(shape), faster) << "the last one counts";
  EXPECT_EQ(again.find(shape), some_plan());
  EXPECT_EQ(again.size(), 1U);
  EXPECT_FALSE(again.find_choice(some_shape()));
  EXPECT_FALSE(PlanCache(file, "NVIDIA H200", 130200).find_choice(shape));
  const std::string line = again.line_of(shape, faster);
  EXPECT_TRUE(again.parse_choice(line));
  EXPECT_FALSE(again.parse(line)) << "no plan of a kernel";
  for (const std::string& broken : {line + "\t1", line.substr(0, line.rfind('\t')), std::string("one")})
    EXPECT_FALSE(again.parse_choice(broken)) << broken;
  std::string neither = line;
  neither.replace(neither.find("\tone\t"), 5, "\tsix\t");
  EXPECT_FALSE(again.parse_choice(neither));
}

TEST(PlanCache, PassesOverOtherDevicesVersionsAndWhatItCannotRead) {
  const std::string file = fresh_file("others");
  PlanCache(file, "NVIDIA H200", 130100).keep(some_shape(), some_plan());
  EXPECT_EQ(PlanCache(file, "NVIDIA H100", 130100).size(), 0U);
  EXPECT_EQ(PlanCache(file, "NVIDIA H200", 130200).size(), 0U);
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  {
    std::ofstream out(file, std::ios::app);
    out << "\nnonsense\n" << line.substr(0, line.size() / 2) << "\n" << line << " and more\n";
  }
  EXPECT_EQ(PlanCache(file, "NVIDIA H200", 130100).size(), 1U);
}

TEST(PlanCache, WithoutAFileKeepsPlansInMemory) {
  PlanCache cache({}, "any", 1);
  cache.keep(some_shape(), some_plan());
  EXPECT_TRUE(cache.find(some_shape()));
  PlanCache nowhere("/proc/no/such/folder/plans.txt", "any", 1);
  nowhere.keep(some_shape(), some_plan());
  EXPECT_TRUE(nowhere.find(some_shape()));
}

TEST(PlanCache, FindsItsPlaceInTheEnvironment) {
  setenv("ORRERY_CACHE_DIR", "/somewhere", 1);
  EXPECT_EQ(cuda::default_plan_file(), "/somewhere/cublaslt-plans.txt");
  unsetenv("ORRERY_CACHE_DIR");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(cuda::default_plan_file(), "/cache/orrery/cublaslt-plans.txt");
  unsetenv("XDG_CACHE_HOME");
}

TEST(PlanCache, KeysKnowHowAddressesAreAligned) {
  alignas(256) static char memory[512];
  EXPECT_EQ(cuda::common_alignment({memory, nullptr}), 256);
  EXPECT_EQ(cuda::common_alignment({memory, memory + 48}), 16);
  EXPECT_EQ(cuda::common_alignment({memory, memory + 48, memory + 2}), 2);
}

/// Operands in emulated device memory: m x k ones, k x n twos.
struct Operands {
  std::vector<float> a, b, c;
  Product product;
  explicit Operands(std::int64_t m, std::int64_t n, std::int64_t k)
      : a(static_cast<std::size_t>(m * k), 1),
        b(static_cast<std::size_t>(k * n), 2),
        c(static_cast<std::size_t>(m * n), 5) {
    product.shape.m = m;
    product.shape.n = n;
    product.shape.k = k;
    product.a = a.data();
    product.b = b.data();
    product.c = c.data();
  }
};

TEST(Products, AreTunedOncePerShapeAndThenFoundOnDisk) {
  const std::string file = fresh_file("tuned");
  const cuda::Stream stream;
  Operands o(16, 24, 8);
  o.product.shape.accumulate = true;
  const auto run = [&](Products& products) {
    EXPECT_TRUE(products.run(o.product, stream.get()));
    cudaStreamSynchronize(stream.get());
  };
  constexpr int kSizes = 3;  // of workspace, for each of which the library is asked
  const int asked = emulation::lt_record().asked;
  {
    Products products("device", 1 << 16, {.plan_file = file, .tune_above_flops = 1});
    const long emptied = emulation::second_level_cache().emptied;
    const int before = emulation::lt_record().launches;
    run(products);
    EXPECT_EQ(o.c[0], 5 + 16) << "tuning adds nothing to what is accumulated";
    constexpr int kProposals = 2, kTimed = kProposals * (1 + 6);
    EXPECT_EQ(emulation::second_level_cache().emptied - emptied, kTimed) << "before each run that counts";
    EXPECT_EQ(emulation::lt_record().launches - before, kTimed + kProposals + 1) << "and those that warm up";
    run(products);
    EXPECT_EQ(o.c[0], 5 + 32);
    EXPECT_EQ(products.tuned(), 1);
    EXPECT_EQ(emulation::lt_record().asked, asked + kSizes);
  }
  Products again("device", 1 << 16, {.plan_file = file, .tune_above_flops = 1});
  const int launches = emulation::lt_record().launches;
  run(again);
  EXPECT_EQ(again.tuned(), 0);
  EXPECT_EQ(emulation::lt_record().asked, asked + kSizes);
  EXPECT_EQ(emulation::lt_record().launches, launches + 1);
  EXPECT_EQ(o.c[0], 5 + 48);
}

// A plan may leave a device less than twice its cache.
TEST(Products, AreTunedWithWhateverIsInTheCacheWhereThereIsNoRoomToEmptyIt) {
  const cuda::Stream stream;
  Operands o(16, 24, 8);
  Products products("device", 1 << 16, {.plan_file = {}, .tune_above_flops = 1});
  emulation::memory_of_device().largest_piece = static_cast<std::size_t>(emulation::second_level_cache().bytes);
  const long emptied = emulation::second_level_cache().emptied;
  EXPECT_TRUE(products.run(o.product, stream.get()));
  emulation::memory_of_device() = {};
  cudaStreamSynchronize(stream.get());
  EXPECT_EQ(products.tuned(), 1);
  EXPECT_EQ(emulation::second_level_cache().emptied, emptied);
  EXPECT_EQ(o.c[0], 16);
}

TEST(Products, TooSmallToTuneTakeTheFirstProposal) {
  const cuda::Stream stream;
  Operands o(4, 4, 4);
  Products products("device", 1 << 16, {.plan_file = {}, .tune_above_flops = 1e9});
  const int launches = emulation::lt_record().launches;
  EXPECT_TRUE(products.run(o.product, stream.get()));
  cudaStreamSynchronize(stream.get());
  EXPECT_EQ(products.tuned(), 0);
  EXPECT_EQ(emulation::lt_record().launches, launches + 1);
  EXPECT_EQ(o.c[3], 8);
}

TEST(Products, WithoutAKernelForAnEpilogueSayNo) {
  const cuda::Stream stream;
  Operands o(16, 16, 4);
  std::vector<float> aux(16 * 16);
  o.product.aux = aux.data();
  o.product.shape.epilogue = Epilogue::gelu_aux;
  Products products("device", 1 << 16, {.plan_file = {}, .tune_above_flops = 1e9});
  emulation::lt_record().no_epilogues = true;
  EXPECT_FALSE(products.run(o.product, stream.get()));
  emulation::lt_record().no_epilogues = false;
}

// -- the planner
// -------------------------------------------------------------------------------------------------------
struct Step {
  std::vector<models::Op> ops;
  std::vector<std::vector<Operand>> in, out;
  std::vector<cuda::FusedGroup> fused(bool epilogues = true) const {
    std::vector<OpCall> calls;
    for (std::size_t i = 0; i < ops.size(); ++i) calls.push_back({&ops[i], in[i], out[i], {}});
    return cuda::fuse(calls, {.epilogues = epilogues});
  }
  void add(models::OpKind kind, std::int64_t n, std::int64_t m, std::vector<Operand> inputs,
           std::vector<Operand> outputs) {
    models::Op op;
    op.kind = kind;
    op.n = n;
    op.m = m;
    ops.push_back(op);
    in.push_back(std::move(inputs));
    out.push_back(std::move(outputs));
  }
};

Operand at(int place, DType dtype = DType::bf16) {
  constexpr int kApart = 128;  // bytes: 32 elements of any type
  static std::byte memory[32 * kApart];
  return {memory + kApart * place, 32, dtype};
}

using models::OpKind;

TEST(Fusion, JoinsAProductWithTheActivationBehindIt) {
  Step step;
  step.add(OpKind::matmul, 8, 4, {at(0), at(1), at(2)}, {at(3)});
  step.add(OpKind::gelu, 4, 8, {at(3)}, {at(4)});
  step.add(OpKind::matmul, 8, 4, {at(4), at(5), {}}, {at(6)});
  step.add(OpKind::gelu_grad, 4, 8, {at(6), at(3)}, {at(6)});
  const auto groups = step.fused();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0], (cuda::FusedGroup{0, 2, cuda::Fused::product_gelu}));
  EXPECT_EQ(groups[1], (cuda::FusedGroup{2, 2, cuda::Fused::product_gelu_grad}));
  EXPECT_EQ(step.fused(false).size(), 4U) << "switched off";
  for (auto* side : {&step.in, &step.out})
    for (std::vector<Operand>& operands : *side)
      for (Operand& operand : operands) operand.dtype = DType::fp32;
  EXPECT_EQ(step.fused().size(), 4U) << "the library's GELU has not the bits of fp32";
}

// As models/layers/linear_notes.h writes the backward pass of two layers with GELU between them.
Step backward() {
  Step step;
  step.add(OpKind::bias_grad, 8, 4, {at(0)}, {at(1, DType::fp32)});
  step.add(OpKind::matmul, 16, 4, {at(0), at(2), {}}, {at(3, DType::fp32)});
  step.ops[1].k = 8;
  step.ops[1].trans_a = step.ops[1].accumulate = true;
  step.add(OpKind::matmul, 16, 8, {at(0), at(4), {}}, {at(5)});
  step.add(OpKind::gelu_grad, 8, 16, {at(5), at(6)}, {at(5)});
  step.add(OpKind::bias_grad, 8, 16, {at(5)}, {at(7, DType::fp32)});
  step.add(OpKind::matmul, 12, 16, {at(5), at(8), {}}, {at(9, DType::fp32)});
  step.ops[5].k = 8;
  step.ops[5].trans_a = true;
  return step;
}

TEST(Fusion, JoinsABiasGradientWithItsWeightsAndLeavesGelusGradientToTheProductBeforeIt) {
  EXPECT_EQ(backward().fused(), (std::vector<cuda::FusedGroup>{{0, 2, cuda::Fused::product_bias_grad},
                                                               {2, 2, cuda::Fused::product_gelu_grad},
                                                               {4, 2, cuda::Fused::product_bias_grad}}));
  EXPECT_EQ(backward().fused(false).size(), 6U) << "switched off";
}

TEST(Fusion, LeavesABiasGradientAloneWhereItsSumsAreNotOfTheProductsRows) {
  const auto alone = [](const Step& step) { return step.fused().at(0).kind == cuda::Fused::no; };
  ASSERT_FALSE(alone(backward()));
  Step gathered = backward();  // sequence parallelism: the bias of a rank's rows, the weight of all
  gathered.in[1][0] = at(10);
  EXPECT_TRUE(alone(gathered));
  Step more_rows = backward();
  more_rows.ops[1].k = 16;
  EXPECT_TRUE(alone(more_rows));
  Step input_gradient = backward();
  input_gradient.ops[1].trans_a = false;
  EXPECT_TRUE(alone(input_gradient));
  Step other_type = backward();
  other_type.out[0][0] = at(1);
  EXPECT_TRUE(alone(other_type));
  Step over_an_operand = backward();
  over_an_operand.out[0][0] = at(2, DType::fp32);
  EXPECT_TRUE(alone(over_an_operand));
  Step rounded = backward();  // tf32 and fp8: the sums are of what is not rounded
  rounded.ops[1].rounded = true;
  EXPECT_TRUE(alone(rounded));
  Step apart = backward();  // a backward pass in two has the weights' products in the second
  apart.add(OpKind::bias_grad, 8, 4, {at(0)}, {at(1, DType::fp32)});
  EXPECT_EQ(apart.fused().back().kind, cuda::Fused::no);
}

TEST(Fusion, LeavesAloneWhatWouldNotLeaveTheSameInMemory) {
  const auto alone = [](const Step& step) { return step.fused().size() == step.ops.size(); };
  Step not_in_place;  // the product's result is named and must be written
  not_in_place.add(OpKind::matmul, 8, 4, {at(0), at(1), {}}, {at(2)});
  not_in_place.add(OpKind::gelu_grad, 4, 8, {at(2), at(3)}, {at(4)});
  EXPECT_TRUE(alone(not_in_place));
  Step biased;
  biased.add(OpKind::matmul, 8, 4, {at(0), at(1), at(5)}, {at(2)});
  biased.add(OpKind::gelu_grad, 4, 8, {at(2), at(3)}, {at(2)});
  EXPECT_TRUE(alone(biased));
  Step accumulates;
  accumulates.add(OpKind::matmul, 8, 4, {at(0), at(1), {}}, {at(2)});
  accumulates.ops[0].accumulate = true;
  accumulates.add(OpKind::gelu, 4, 8, {at(2)}, {at(3)});
  EXPECT_TRUE(alone(accumulates));
  Step wider;
  wider.add(OpKind::matmul, 8, 4, {at(0), at(1), {}}, {at(2, DType::fp32)});
  wider.add(OpKind::gelu, 4, 8, {at(2, DType::fp32)}, {at(3, DType::fp32)});
  EXPECT_TRUE(alone(wider));
  Step over_an_input;
  over_an_input.add(OpKind::matmul, 8, 4, {at(0), at(1), {}}, {at(2)});
  over_an_input.add(OpKind::gelu, 4, 8, {at(2)}, {at(0)});
  EXPECT_TRUE(alone(over_an_input));
  Step another;
  another.add(OpKind::add_bias, 4, 8, {at(0), at(1), {}}, {at(2)});
  another.add(OpKind::layer_norm, 4, 8, {at(1), at(3), at(4)}, {at(5), at(6), at(7)});
  EXPECT_TRUE(alone(another));
}

TEST(Fusion, JoinsASumWithItsNormAndTheStatisticsOfOneSoftmax) {
  Step step;
  step.add(OpKind::add_bias, 4, 8, {at(0), at(1), at(2)}, {at(1)});
  step.add(OpKind::rms_norm, 4, 8, {at(1), at(3)}, {at(4), at(5)});
  step.add(OpKind::softmax_max, 4, 8, {at(6)}, {at(7)});
  step.add(OpKind::softmax_sum, 4, 8, {at(6), at(7), at(8)}, {at(9)});
  step.add(OpKind::softmax_max, 4, 8, {at(6)}, {at(7)});
  const auto groups = step.fused();
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].kind, cuda::Fused::add_norm);
  EXPECT_EQ(groups[1].kind, cuda::Fused::softmax_pair);
  EXPECT_EQ(groups[2].kind, cuda::Fused::no);
}

Step whole_loss() {
  Step step;
  step.add(OpKind::softmax_max, 4, 8, {at(0)}, {at(1)});
  step.add(OpKind::softmax_sum, 4, 8, {at(0), at(1), at(2)}, {at(3)});
  step.add(OpKind::cross_entropy, 4, 8, {at(1), at(3)}, {at(4)});
  step.add(OpKind::cross_entropy_grad, 4, 8, {at(0), at(1), at(3), at(2)}, {at(0)});
  for (models::Op& op : step.ops) op.vocab = 7;
  return step;
}

TEST(Fusion, JoinsAllOfTheLossWhereItsGradientTakesTheLogitsPlace) {
  EXPECT_EQ(whole_loss().fused(), (std::vector<cuda::FusedGroup>{{0, 4, cuda::Fused::whole_loss}}));
  const auto pair_alone = [](const Step& step) {
    const auto groups = step.fused();
    return groups.size() == 3 && groups[0].kind == cuda::Fused::softmax_pair;
  };
  Step elsewhere = whole_loss();
  elsewhere.out[3] = {at(5)};
  EXPECT_TRUE(pair_alone(elsewhere)) << "who reads the logits later would read their gradient";
  Step other_targets = whole_loss();
  other_targets.in[3][3] = at(6);
  EXPECT_TRUE(pair_alone(other_targets));
  Step other_sums = whole_loss();
  other_sums.in[2][1] = at(6);
  EXPECT_TRUE(pair_alone(other_sums));
  Step shard = whole_loss();
  for (models::Op& op : shard.ops) op.vocab = 16;
  EXPECT_TRUE(pair_alone(shard)) << "of a vocabulary that is split";
}

}  // namespace emulated_products_test
}  // namespace orrery::exec::gpu_test
