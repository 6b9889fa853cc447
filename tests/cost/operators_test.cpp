/// Formulas of single operators against numbers worked out by hand.
#include "cost/prices/operators.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "cost/estimate/block_kinds.h"
#include "cost/network/copies.h"
#include "cost/prices/pricing.h"
#include "tests/clusters/support.h"
#include "tests/cost/support.h"

namespace orrery::cost {
namespace operators_test {

using models::DType;
using models::Op;
using models::OpKind;

DeviceRates four_processors() {
  DeviceRates r;
  r.gpu = true;
  r.multiprocessors = 4;
  r.peak = {4e12, 4e12, 4e12, 4e12};
  r.matmul = {4e12, 4e12, 4e12, 4e12};  // 1 TFLOP/s each
  r.tile_rows = 256;
  r.tile_columns = 128;
  r.k_half = 128;
  r.halving_loss = 0.5;
  r.memory = 1e18;
  r.flash = 0.5;
  r.flash_grad = 0.25;
  r.unfused = 0.1;
  return r;
}

TEST(GpuMatmul, CountsWholeWavesOfTiles) {
  const DeviceRates r = four_processors();
  // 1024 x 128 is 4 tiles of 256 x 128: one wave, each 2*256*128*(896+128) FLOP at 1 TFLOP/s.
  EXPECT_DOUBLE_EQ(gpu_matmul_time(r, DType::bf16, DType::bf16, 1024, 128, 896).value, 2.0 * 256 * 128 * 1024 / 1e12);
  // One more row needs a fifth tile and a second wave; half tiles (9, three waves, half rate) are no better.
  EXPECT_DOUBLE_EQ(gpu_matmul_time(r, DType::bf16, DType::bf16, 1025, 128, 896).value,
                   2 * 2.0 * 256 * 128 * 1024 / 1e12);
}

TEST(GpuMatmul, TakesSmallerTilesWhereTheyFillTheProcessors) {
  DeviceRates r = four_processors();
  r.halving_loss = 0.1;
  // 256 x 256: two big tiles leave half the processors idle; four of 128 x 128 at 0.9 of the rate are faster.
  EXPECT_DOUBLE_EQ(gpu_matmul_time(r, DType::bf16, DType::bf16, 256, 256, 896).value,
                   2.0 * 128 * 128 * 1024 / (0.9 * 1e12));
}

/// Products of at least 4 GFLOP that OpenXLA measured (xla, service/gpu/model/matmul_interpolator_data.h, one product;
/// TFLOP/s), from which no coefficient was taken. An operator's start takes 5 us in eager software.
struct XlasProduct {
  double m, n, k, tflops;
};

void expect_alike(const char* cluster_name, DType arithmetic, std::initializer_list<XlasProduct> table) {
  const clusters::Cluster cluster = clusters::testing::catalog(cluster_name);
  const DeviceRates r = device_rates(cluster, defaults(cluster));
  constexpr double kStart = 5e-6, kWithin = 0.15, kMeanWithin = 0.05;
  double mean = 0;
  for (const XlasProduct& one : table) {
    const double predicted = gpu_matmul_time(r, DType::bf16, arithmetic, one.m, one.n, one.k).value + kStart;
    const double ratio = predicted / (2 * one.m * one.n * one.k / (one.tflops * 1e12));
    EXPECT_NEAR(ratio, 1, kWithin) << one.m << " x " << one.n << " x " << one.k;
    mean += ratio / static_cast<double>(table.size());
  }
  EXPECT_NEAR(mean, 1, kMeanWithin);
}

TEST(GpuMatmul, AgreesWithProductsThatXlaMeasuredOnH100) {
  expect_alike("hgx-h100", DType::bf16,
               {{4096, 4096, 4096, 783.3},
                {2048, 2048, 2048, 632.0},
                {2048, 1024, 2048, 523.3},
                {1024, 2048, 2048, 524.3},
                {1024, 1024, 2048, 350.0},
                {2048, 512, 2048, 347.7},
                {4096, 256, 2048, 304.7},
                {256, 4096, 2048, 324.6},
                {4096, 512, 1024, 370.8},
                {512, 4096, 1024, 373.3},
                {4096, 2048, 512, 447.0},
                {4096, 1024, 512, 343.7},
                {4096, 4096, 256, 392.2}});
}

TEST(GpuMatmul, AgreesWithProductsThatXlaMeasuredOnB200) {
  expect_alike("hgx-b200", DType::bf16,
               {{4096, 4096, 4096, 1416.9},
                {4096, 2048, 4096, 1343.5},
                {4096, 4096, 2048, 1277.8},
                {4096, 2048, 2048, 1170.0},
                {2048, 2048, 4096, 1208.5},
                {4096, 4096, 1024, 1075.6},
                {4096, 2048, 1024, 913.8}});
  expect_alike("hgx-b200", DType::fp8,
               {{4096, 4096, 4096, 2765.0},
                {4096, 2048, 4096, 2499.4},
                {4096, 4096, 2048, 2485.0},
                {4096, 2048, 2048, 1833.5},
                {2048, 2048, 4096, 1955.8},
                {4096, 4096, 1024, 1895.4}});
}

TEST(GpuMatmul, IsNeverFasterThanItsMemoryTraffic) {
  DeviceRates r = four_processors();
  r.memory = 1e9;
  // bf16: (8*4096 + 4096*4096 + 8*4096) elements of 2 bytes.
  EXPECT_DOUBLE_EQ(gpu_matmul_time(r, DType::bf16, DType::bf16, 8, 4096, 4096).value,
                   (2 * 8 * 4096.0 + 4096.0 * 4096) * 2 / 1e9);
}

TEST(GpuMatmul, OfALibrarysOwnChoiceIsSlowerWhereTheDeviceSaysSo) {
  const auto rate = [](double untuned, double share) {
    const clusters::Cluster cluster = clusters::testing::catalog("dgx-a100");
    Calibration c = defaults(cluster);
    c.set("device.matmul.untuned_share", share, "by hand");
    c.set("stack.untuned", untuned, "by hand");
    return device_rates(cluster, c).matmul[1];
  };
  EXPECT_DOUBLE_EQ(rate(1, 0.5), rate(0, 1) / 2);
  EXPECT_DOUBLE_EQ(rate(0, 0.5), rate(0, 1)) << "products that were tuned";
  EXPECT_DOUBLE_EQ(rate(1, 1), rate(0, 1));
}

TEST(GpuMatmul, LosesLessToItsStackWhereArithmeticIsSlowerForEachByte) {
  const clusters::Cluster cluster = clusters::testing::catalog("dgx-a100");  // fp32 19.5, tf32 156, bf16 312 TFLOP/s
  Calibration c = defaults(cluster);
  const DeviceRates all = device_rates(cluster, c);
  c.set("stack.matmul_share", 0.8, "by hand");
  const DeviceRates some = device_rates(cluster, c);
  const auto share = [&](std::size_t i) { return some.matmul[i] / all.matmul[i]; };
  EXPECT_DOUBLE_EQ(share(1), 0.8);
  EXPECT_DOUBLE_EQ(share(4), 0.8) << "tf32: half as fast, twice the bytes";
  EXPECT_DOUBLE_EQ(share(0), 1 / (1 + 0.25 * 2 * 19.5 / 312)) << "fp32, 16 times slower";
}

TEST(HostOptimizer, IsAsFastAsItsSoftware) {
  const clusters::Cluster cluster = clusters::testing::catalog("dgx-a100");
  Calibration c = defaults(cluster);
  const double best = host_rates(cluster, c).memory;
  c.set("stack.host_share", 0.25, "by hand");
  EXPECT_DOUBLE_EQ(host_rates(cluster, c).memory, best / 4);
}

TEST(GpuMatmul, LosesByEachHalvingOfTheWidestLoadThatItsRowsAllow) {
  DeviceRates r = four_processors();
  r.narrow_load_loss = 0.5;
  Op product;  // x (512,k) W^T with W (n,k): rows of k, k and n elements of two bytes
  product.kind = OpKind::matmul, product.dtype = DType::bf16, product.trans_b = true;
  product.m = 512, product.k = 256;
  const auto share = [&](std::int64_t n) {
    product.n = n;
    return alignment_share(r, product);
  };
  EXPECT_DOUBLE_EQ(share(1024), 1);
  EXPECT_DOUBLE_EQ(share(1028), 0.5);   // a multiple of 8 bytes
  EXPECT_DOUBLE_EQ(share(1026), 0.25);  // of 4
  EXPECT_DOUBLE_EQ(share(1025), 0.125);
  EXPECT_DOUBLE_EQ(device_time(r, product).value,
                   8 * gpu_matmul_time(r, DType::bf16, DType::bf16, 512, 1025, 256).value);
  product.dtype = DType::fp32;  // four bytes an element: 1025 of them are a multiple of 4
  EXPECT_DOUBLE_EQ(share(1025), 0.25);
  // Rows of its other operands count alike: dx (512,1024) = dy (512,1025) W (1025,1024).
  product = {};
  product.kind = OpKind::matmul, product.dtype = DType::bf16;
  product.m = 512, product.n = 1024, product.k = 1025;
  EXPECT_DOUBLE_EQ(alignment_share(r, product), 0.125);
}

TEST(CpuMatmul, AddsPackingToArithmetic) {
  DeviceRates r;
  r.gpu = false;
  r.matmul = {80e9, 80e9, 80e9, 80e9};
  r.operand_bandwidth = 20e9;
  r.cache_size = 1e6;
  r.memory = 10e9;
  // 2*100*200*300 FLOP at 80 GFLOP/s; (100*300 + 300*200 + 100*200) floats at 20 GB/s.
  EXPECT_DOUBLE_EQ(cpu_matmul_time(r, DType::fp32, 100, 200, 300).value, 12e6 / 80e9 + 110000.0 * 4 / 20e9);
  // 3e6 bytes of operands do not fit: they come from memory besides.
  EXPECT_DOUBLE_EQ(cpu_matmul_time(r, DType::fp32, 500, 500, 500).value, 250e6 / 80e9 + 3e6 / 20e9 + 3e6 / 10e9);
}

TEST(Streaming, GoesAtTheCachesSpeedUntilItIsFull) {
  DeviceRates r;
  r.gpu = false;
  r.cache = 50e9;
  r.cache_size = 1e6;
  r.memory = 10e9;
  r.vector.fill(0);
  EXPECT_DOUBLE_EQ(streaming_time(r, 1e6, PriceFamily::copy).value, 1e6 / 50e9);
  EXPECT_DOUBLE_EQ(streaming_time(r, 1.5e6, PriceFamily::copy).value, 0.75e6 / 50e9 + 0.75e6 / 10e9);
  EXPECT_DOUBLE_EQ(streaming_time(r, 2e6, PriceFamily::copy).value, 2e6 / 10e9);
  EXPECT_DOUBLE_EQ(streaming_time(r, 1e6, PriceFamily::optimizer).value, 1e6 / 10e9)
      << "the optimizer walks over everything";
  r.vector[static_cast<std::size_t>(PriceFamily::activation)] = 5e9;
  EXPECT_DOUBLE_EQ(streaming_time(r, 1e6, PriceFamily::activation).value, 1e6 / 50e9 + 1e6 / 5e9);
}

TEST(Attention, OnGpusSkipsTheMaskedHalfOnlyWhenFused) {
  const DeviceRates r = four_processors();
  Op op;
  op.kind = OpKind::attention;
  op.dtype = DType::bf16;
  op.batch = 2;
  op.sequence = 128;
  op.heads = op.kv_heads = 4;
  op.head_dim = 64;
  op.n = 256;
  op.causal = true;
  op.flash = true;
  // Two products of 2*B*H*T*T*D, lower triangle (T+1)/2T, at half of 4 TFLOP/s.
  const double product = 2.0 * 2 * 4 * 128 * 128 * 64;
  EXPECT_NEAR(attention_time(r, op).value, 2 * product * 129 / 256 / 2e12, 1e-15);
  op.flash = false;
  EXPECT_NEAR(attention_time(r, op).value, 2 * product / 0.4e12, 1e-11);
}

TEST(Attention, OfNarrowHeadsWaitsForExponentials) {
  DeviceRates r = four_processors();
  r.exponentials = 1e9;
  Op op;
  op.kind = OpKind::attention;
  op.dtype = DType::bf16;
  op.batch = 1, op.sequence = op.n = 64, op.heads = op.kv_heads = 2;
  op.flash = true;
  const double scores = 2.0 * 64 * 64;
  op.head_dim = 128;
  EXPECT_NEAR(attention_time(r, op).value, scores * 4 * 128 / 2e12, 1e-15) << "what its efficiency was measured with";
  op.head_dim = 32;
  EXPECT_NEAR(attention_time(r, op).value, scores * 4 * 32 / 2e12 + scores * 0.75 / 1e9, 1e-15);
  op.kind = OpKind::attention_grad;
  EXPECT_NEAR(attention_time(r, op).value, scores * 10 * 32 / 1e12 + scores * 0.75 / 1e9, 1e-15) << "one exponential";
  op.kind = OpKind::attention;
  op.head_dim = 256;
  EXPECT_NEAR(attention_time(r, op).value, scores * 4 * 256 / 2e12, 1e-15);
  op.head_dim = 32;
  op.flash = false;
  EXPECT_NEAR(attention_time(r, op).value, scores * 4 * 32 / 0.4e12, 1e-12) << "its softmax is priced by its bytes";
  r.exponentials = 0;
  op.flash = true;
  EXPECT_NEAR(attention_time(r, op).value, scores * 4 * 32 / 2e12, 1e-15) << "a device of which it is not known";
}

TEST(Attention, OfAWindowTakesTheTimeOfTheKeysThatItLeaves) {
  const DeviceRates r = four_processors();
  Op op;
  op.kind = OpKind::attention;
  op.dtype = DType::bf16;
  op.batch = 1, op.sequence = op.n = 128, op.heads = op.kv_heads = 4, op.head_dim = 64;
  op.causal = op.flash = true;
  op.window = 16;  // 16*17/2 + 112*16 = 1928 of 128*128 scores
  EXPECT_NEAR(attention_time(r, op).value, 2 * 2.0 * 4 * 64 * 1928 / 2e12, 1e-15);
}

TEST(Blocks, ThatSeeAWindowAndThatSeeAllArePricedApart) {
  const auto counts = [](const models::Model& model, std::int64_t first, std::int64_t count) {
    std::vector<std::pair<bool, std::int64_t>> out;
    for (const BlockKind& kind : block_kinds(model, first, count))
      out.emplace_back(model.windowed(kind.index), kind.count);
    return out;
  };
  using Counts = std::vector<std::pair<bool, std::int64_t>>;
  models::Model m;
  EXPECT_EQ(counts(m, 3, 5), (Counts{{false, 5}}));
  m.window = 8;
  EXPECT_EQ(counts(m, 3, 5), (Counts{{true, 5}}));
  m.window_period = 3;  // layers 2, 5, 8 … see all
  EXPECT_EQ(counts(m, 3, 5), (Counts{{true, 4}, {false, 1}}));
  EXPECT_EQ(counts(m, 2, 1), (Counts{{false, 1}}));
  EXPECT_TRUE(counts(m, 2, 0).empty());
}

TEST(Attention, OfHeadsThatAreNotAlignedIsAsSlowAsTheDeviceSays) {
  DeviceRates r = four_processors();
  r.misaligned = 0.01;
  Op op;
  op.kind = OpKind::attention;
  op.dtype = DType::fp16;
  op.batch = op.heads = op.kv_heads = 1;
  op.sequence = op.n = 64;
  op.head_dim = 104;  // 208 bytes: a multiple of 16
  const double per_column = 2 * 2.0 * 64 * 64;
  EXPECT_NEAR(attention_time(r, op).value, per_column * 104 / 0.4e12, 1e-12);
  op.head_dim = 108;  // 216 bytes: none
  EXPECT_NEAR(attention_time(r, op).value, per_column * 108 / 0.04e12, 1e-12);
}

// Its kernel issues Ampere's instructions: measured, 370 TFLOP/s forward on H100 and 340 to 380 on B200.
TEST(Attention, OfFlashAttention2IsHardlyFasterOnBlackwellThanOnHopper) {
  const auto rate = [](const char* name, double generation) {
    const clusters::Cluster cluster = clusters::testing::catalog(name);
    Calibration c = defaults(cluster);
    c.set("stack.attention_generation", generation, "by hand");
    const DeviceRates r = device_rates(cluster, c);
    return r.flash * r.peak[static_cast<std::size_t>(DType::bf16)];
  };
  EXPECT_GT(rate("hgx-b200", 2), rate("hgx-h100", 2));
  EXPECT_LT(rate("hgx-b200", 2), 1.1 * rate("hgx-h100", 2));
  EXPECT_GT(rate("hgx-b200", 3), 2 * rate("hgx-h100", 3)) << "the newest kernel uses what is new";
  EXPECT_LT(rate("hgx-b200", 1), rate("hgx-b200", 2));
}

TEST(Attention, MovesMoreWhereItsSoftmaxIsNotOneKernel) {
  DeviceRates r = four_processors();
  r.memory = 1e9;
  r.softmax_multiple = 4;
  r.softmax_longest = 64;
  Op op;
  op.kind = OpKind::attention;
  op.dtype = DType::fp16;
  op.batch = 2;
  op.heads = op.kv_heads = 2;
  op.sequence = 64;
  op.n = 128;
  op.head_dim = 16;
  EXPECT_TRUE(softmax_is_fused(r, op)) << "four heads";
  const double fused = attention_time(r, op).value;
  r.softmax_multiple = 8;
  EXPECT_FALSE(softmax_is_fused(r, op)) << "four heads, where eight are needed";
  EXPECT_NEAR(attention_time(r, op).value - fused, 2 * 2 * 64 * 64 * 32.0 / 1e9, 1e-12);
  r.softmax_multiple = 4;
  op.sequence = 65;
  EXPECT_FALSE(softmax_is_fused(r, op)) << "too long";
  op.sequence = 64;
  op.dtype = DType::fp32;
  EXPECT_FALSE(softmax_is_fused(r, op)) << "its kernel is of 16 bits";
  const double parts = attention_time(r, op).value;
  r.softmax_multiple = 1;
  EXPECT_TRUE(softmax_is_fused(r, op)) << "a stack that states no limits has a kernel for every type";
  EXPECT_NEAR(parts - attention_time(r, op).value, 2 * 2 * 64 * 64 * 16.0 / 1e9, 1e-12);
}

TEST(Elementwise, OperatorsThatAStackComposesMoveTheirBytesAsOftenAsItSays) {
  DeviceRates r = four_processors();
  r.memory = 1e9;
  r.elementwise_passes = 1.5;
  const auto time = [&](OpKind kind) {
    Op op;
    op.kind = kind;
    op.dtype = DType::bf16;
    op.n = 64, op.m = 128;
    op.heads = op.kv_heads = 2;
    op.head_dim = 16;
    return device_time(r, op).value;
  };
  const double gate = time(OpKind::swiglu), backward = time(OpKind::swiglu_grad), rope = time(OpKind::rope);
  r.gate_passes = 2.25, r.rotary_passes = 6;
  EXPECT_NEAR(time(OpKind::swiglu), gate * 1.5, 1e-15) << "2.25 passes in place of 1.5, not on top of them";
  EXPECT_NEAR(time(OpKind::swiglu_grad), backward * 1.5, 1e-15);
  EXPECT_NEAR(time(OpKind::rope), rope * 4, 1e-15);
  r.gate_passes = 1;
  EXPECT_EQ(time(OpKind::swiglu), gate) << "never less often than other operators";
  r.elementwise_passes = 0.5;
  EXPECT_NEAR(time(OpKind::swiglu), gate / 3, 1e-15) << "a stack that says nothing composes nothing";
}

TEST(Fp8Products, GoAtTheirOwnRateAndPayForTheirCasts) {
  DeviceRates r = four_processors();
  r.matmul[3] = r.peak[3] = 8e12;
  r.memory = 1e12;
  Op forward;
  forward.kind = OpKind::matmul;
  forward.dtype = DType::bf16;
  forward.m = 1024;
  forward.n = 128;
  forward.k = 1024 - 128;
  forward.rounded = true;
  // One wave as above, at twice the rate, whose beginning and end equal twice the depth; 1024 x 896 elements read in
  // bf16, written twice in fp8.
  const double product = 2.0 * 256 * 128 * (896 + 2 * 128) / 2e12, casts = 1024 * 896 * 4.0 / 1e12;
  EXPECT_NEAR(device_time(r, forward).value, product + casts, 1e-15);
  Op weight = forward;
  weight.trans_a = true;  // both operands were cast when they were first used
  EXPECT_NEAR(device_time(r, weight).value, product, 1e-15);
}

TEST(Fp4Products, GoAtTheirOwnRateAndReadTheirInputTwice) {
  DeviceRates r = four_processors();
  r.matmul[3] = r.peak[3] = 8e12;
  r.matmul[5] = r.peak[5] = 16e12;
  r.memory = 1e12;
  Op forward;
  forward.kind = OpKind::matmul;
  forward.dtype = DType::bf16;
  forward.m = 1024, forward.n = 128, forward.k = 1024 - 128;
  forward.rounded = forward.four_bits = true;
  // The wave of an fp8 product at twice the rate and with its ends at twice the depth; elements read twice in bf16,
  // written twice in half a byte.
  const double product = 2.0 * 256 * 128 * (896 + 4 * 128) / 4e12, casts = 1024 * 896 * 5.0 / 1e12;
  EXPECT_NEAR(device_time(r, forward).value, product + casts, 1e-15);
}

TEST(Attention, OfATf32PlanIsComputedInWhatTheStackHasForIt) {
  DeviceRates r = four_processors();
  r.peak[0] = 1e12;
  r.peak[4] = 8e12;
  r.flash = r.flash_grad = 0.5;
  r.memory = 1e15;
  Op op;
  op.kind = OpKind::attention;
  op.batch = 2, op.sequence = 512, op.heads = op.kv_heads = 4, op.head_dim = 64;
  op.flash = op.rounded = true;
  const double in_tf32 = device_time(r, op).value;
  r.tf32_attention = false;
  EXPECT_NEAR(device_time(r, op).value, 8 * in_tf32, 1e-15);
  op.rounded = false;
  EXPECT_NEAR(device_time(r, op).value, 8 * in_tf32, 1e-15) << "of an fp32 plan";
}

TEST(Fp8Products, WhereEachCastsItsOwnOperandsTheyAreReadTwiceAndWrittenOnce) {
  DeviceRates r = four_processors();
  r.matmul[3] = r.peak[3] = 8e12;
  r.memory = 1e12;
  r.casts_each = true;
  for (const bool weight : {false, true}) {
    Op op;
    op.kind = OpKind::matmul;
    op.dtype = DType::bf16;
    op.m = 1024;
    op.n = 128;
    op.k = 1024 - 128;
    op.rounded = true;
    op.trans_a = op.accumulate = weight;
    // 1024 + 128 rows of 896 elements, of 2 + 2 + 1 bytes; the product as above.
    const double product = 2.0 * 256 * 128 * (896 + 2 * 128) / 2e12, casts = (1024 + 128) * 896 * 5.0 / 1e12;
    EXPECT_NEAR(device_time(r, op).value, product + casts, 1e-15);
    EXPECT_EQ(cast_kernels(r, op), 4);
    op.rounded = false;
    EXPECT_EQ(cast_kernels(r, op), 0);
  }
}

TEST(Tf32Products, KeepFp32OperandsAndTakeTf32sRate) {
  DeviceRates r = four_processors();
  r.matmul[4] = 8e12;
  Op op;
  op.kind = OpKind::matmul;
  op.dtype = DType::fp32;
  op.m = 1024;
  op.n = 128;
  op.k = 896;
  const double fp32 = device_time(r, op).value;
  op.rounded = true;
  EXPECT_DOUBLE_EQ(device_time(r, op).value, fp32 / 2 * (896 + 2 * 128) / (896 + 128)) << "its ends wait for memory";
}

TEST(WeightGradients, AreAddedUpByAKernelWhereTheProductDoesNot) {
  DeviceRates r = four_processors();
  r.memory = 1e12;
  Op op;
  op.kind = OpKind::matmul;
  op.dtype = DType::fp16;
  op.m = op.n = op.k = 256;
  op.trans_a = op.accumulate = true;
  const double fused = device_time(r, op).value;
  r.accumulation_bytes = 6;
  EXPECT_NEAR(device_time(r, op).value - fused, 256 * 256 * 6 / 1e12, 1e-15);
}

TEST(Pricing, AddsOverheadPerOpAndPerStep) {
  const Pricing pricing(testing::cpu_cluster(1), testing::cpu_stack());
  Op zero;
  zero.kind = OpKind::fill_zero;
  zero.m = 1000;
  // 4000 bytes: cache 80 GB/s and copy 400 GB/s (the defaults of a CPU core), plus 1 us.
  const double op_time = 4000 / 400e9 + 4000 / 80e9 + 1e-6;
  EXPECT_DOUBLE_EQ(pricing.op_time(zero).value, op_time);
  plan::Step step;
  step.ops = {zero, zero, zero};
  EXPECT_NEAR(pricing.compute_time(step).value, 3 * op_time + 2e-6, 1e-15);
  EXPECT_DOUBLE_EQ(pricing.step_overhead().value, 1e-4);
  EXPECT_DOUBLE_EQ(pricing.software_memory().value, 5e7);
}

TEST(Pricing, CountsAShareOfTheDevicesMemoryThatKernelsTake) {
  Stack stack = testing::cpu_stack();
  stack.parameters.push_back({"stack.workspace_share", 0.25, Unit::number, "test"});
  const double memory = testing::cpu_cluster(1)->device().memory.value;
  EXPECT_DOUBLE_EQ(Pricing(testing::cpu_cluster(1), stack).software_memory().value, 5e7 + 0.25 * memory);
  stack.parameters.push_back({"stack.workspace_most", 1e6, Unit::bytes, "test"});
  EXPECT_DOUBLE_EQ(Pricing(testing::cpu_cluster(1), stack).software_memory().value, 5e7 + 1e6);
}

TEST(Pricing, TellsOpsOfOneShapeButOtherFlagsApart) {
  const Pricing pricing(testing::cpu_cluster(1), testing::cpu_stack());
  Op grad;
  grad.kind = OpKind::layer_norm_grad;
  grad.n = 64;
  grad.m = 256;
  grad.in = {0, 1, 2, 3, 4, -1};
  Op with_addend = grad;
  with_addend.in[5] = 5;
  EXPECT_LT(pricing.op_time(grad).value, pricing.op_time(with_addend).value);
  EXPECT_DOUBLE_EQ(pricing.op_time(grad).value, pricing.op_time(grad).value);
}

// Forward 2 calls, backward 1 of half: 25 us of host at 10 us a call.
TEST(Pricing, OfAHostThatDoesNotRunAheadIsTheLongerOfTheTwo) {
  Op forward;
  forward.kind = OpKind::matmul, forward.m = forward.n = forward.k = 1, forward.trans_b = true;
  Op backward = forward;
  backward.trans_b = false;
  const std::vector<Op> ops = {forward, forward, backward};
  Stack stack = testing::cpu_stack();
  stack.parameters.push_back({"stack.host_op_time", 10e-6, Unit::seconds, "test"});
  stack.parameters.push_back({"stack.host_grad_share", 0.5, Unit::number, "test"});
  const Pricing ahead(testing::cpu_cluster(1), stack);
  EXPECT_DOUBLE_EQ(ahead.host_time(ops).value, 25e-6);
  EXPECT_LT(ahead.compute_time(ops).value, 25e-6);
  stack.parameters.push_back({"stack.host_runs_ahead", 0, Unit::number, "test"});
  const Pricing in_step(testing::cpu_cluster(1), stack);
  EXPECT_DOUBLE_EQ(in_step.host_time(ops).value, 0);
  EXPECT_DOUBLE_EQ(in_step.compute_time(ops).value, 25e-6);
  std::vector<Op> large = ops;
  for (Op& op : large) op.m = op.n = op.k = 512;
  EXPECT_DOUBLE_EQ(in_step.compute_time(large).value, ahead.compute_time(large).value);
}

TEST(Pricing, HasAPositivePriceForEveryKindOfOperator) {
  const Pricing pricing(testing::cpu_cluster(1), testing::cpu_stack());
  for (int kind = 0; kind <= static_cast<int>(models::kLastOpKind); ++kind) {
    Op op;
    op.kind = static_cast<OpKind>(kind);
    op.m = op.n = op.k = 32;
    op.batch = 2;
    op.sequence = 16;
    op.heads = op.kv_heads = 2;
    op.head_dim = 16;
    op.slots = op.experts = op.chosen = 2;
    op.capacity = 32;
    op.ssm = {.state = 8, .taps = 4, .chunk = 8, .norm_groups = 1};
    EXPECT_GT(pricing.op_time(op).value, 1e-6) << models::name_of(op.kind);
  }
}

}  // namespace operators_test
}  // namespace orrery::cost
