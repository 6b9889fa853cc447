/// Coefficients for a cluster that nobody has measured with Orrery: public measurements of its kind of device. Those of
/// CPU ranks are placeholders that say so; `orrery calibrate` replaces them.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "cost/parameters/calibration.h"
#include "cost/parameters/device_power.h"

namespace orrery::cost {

std::string network_of(const clusters::Cluster& cluster) {
  if (cluster.nodes <= 1 || cluster.inter.name.empty()) return cluster.intra.name;
  return cluster.intra.name + "/" + cluster.inter.name;
}

namespace {

/// A device that lowers its clocks in large products at its rated power; the shares of its peak that they reach are its
/// own row's.
struct AtPower {
  const char* device;
  ProductsMeasured measured;
  double peak_tflops;  ///< in 16 bits
};
constexpr base::Watts kA100Idle{50}, kH100Idle{70}, kB200Idle{140};
constexpr AtPower kA100 = {"A100", {base::Watts{400}, kA100Idle, 108}, 312};
constexpr AtPower kA100Pcie = {"A100-PCIe", {base::Watts{300}, kA100Idle, 108}, 312};
constexpr AtPower kH100 = {"H100", {base::Watts{700}, kH100Idle, 132}, 989.4};
constexpr AtPower kH200 = {"H200", {base::Watts{700}, kH100Idle, 132}, 989.4};
constexpr AtPower kB200 = {"B200", {base::Watts{1000}, kB200Idle, 148}, 2250};

/// A public measurement: the best matrix product of a shape search relative to the datasheet's dense peak, and the
/// share of that peak that attention kernels reach.
struct Known {
  const char* device;  ///< what the device's name contains
  double matmul, fp8;
  double tile_rows, tile_columns;
  double flash, flash_grad;
  double generation_1, generation_2;  ///< share of these reached by FlashAttention and FlashAttention-2
  const char* source;                 ///< of the products
  const char* attention;              ///< of the newest kernel's shares
  const char* second;                 ///< of FlashAttention-2's
  double untuned = 1;                 ///< share of the best product that a library's own choice of kernel reaches
  const AtPower* power = nullptr;     ///< what of its family is measured, where power bounds products
};

constexpr const char* kMamf = "ml-engineering (stas00), maximum achievable matmul FLOPS: ";
constexpr const char* kFlash2 =
    "FlashAttention-2 (Dao 2023), section 4.1: forward up to 73 %, backward up to 63 % of A100's peak";
constexpr const char* kFlash3 =
    "FlashAttention-3 (Shah et al. 2024), figure 5: forward 550-650, backward 450-550 TFLOP/s on H100";
constexpr const char* kSecond =
    "FlashAttention-3 (Shah et al. 2024), section 1: the second reaches 35 % of H100's peak";
/// It issues Ampere's instructions, which Blackwell's tensor cores run hardly faster than Hopper's.
constexpr const char* kSecondOnBlackwell =
    "flash-attention issue 1589, tritonbench pull request 171: the second reaches 340 to 380 TFLOP/s forward on B200, "
    "300 to 334 backward; one digit";
constexpr const char* kLikeHopper = "assumption, uncalibrated: a little below what FlashAttention-3 reaches on H100";
constexpr const char* kBelowProducts =
    "assumption, uncalibrated: as much below the best product as FlashAttention-3 on H100";
constexpr const char* kNoSecond = "assumption, uncalibrated: this device's kernels have one generation";
constexpr const char* kAsA100 = "assumption, uncalibrated: as on A100";
constexpr const char* kTiles =
    "NVIDIA Matrix Multiplication Background User's Guide: 256x128 tiles are the most efficient";

/// GB200's best product is 1822 TFLOPS in bf16 and 3616 in fp8, a twentieth above B200's, but published runs on it are
/// no faster than B200's rate makes them.
constexpr const char* kAsB200 = "taken as B200's 1745 and 3433 TFLOPS, of 2500 and 5000";
/// No shape search on GB300 is published.
constexpr const char* kGb300 =
    "no measurement; 1.12 times B200's, from three dense runs (tests/validation/published/megatron_bridge.yaml)";
constexpr const char* kMi350 = "MI355X bf16 1565 TFLOPS of 2517; MI350X and fp8 taken alike";
/// The share of their peak that products in fp4 reach, over the share that products in fp8 reach of theirs.
constexpr double kFp4 = 0.85;
constexpr const char* kFp4Source =
    "no measurement; 0.85 of the share that fp8 reaches of its peak, from four dense runs "
    "(tests/validation/published/megatron_bridge.yaml)";
/// AMD's best products are found by trying a library's kernels for each shape, which its own submissions do and others
/// seldom. On NVIDIA's devices the same rows show no difference.
constexpr double kAmdUntuned = 0.6;
constexpr const char* kUntuned =
    "strangers' runs of llm-foundry on MI250, of torchtitan and Transformer Engine on MI300X; one digit";
constexpr const char* kTuned = "no row shows a library's own choice to be slower than the best product here";
constexpr double kMi250 = 0.768, kMi300 = 0.511, kMi325 = 0.6, kMi355 = 0.622, kAttention = 0.72, kAttentionGrad = 0.6;

constexpr Known kKnown[] = {
    {"V100", 0.90, 0.90, 128, 128, 0.40, 0.35, 1, 1,
     "NVIDIA developer forum: about 101 of 112 TFLOPS, fp16, 8192 cubed", kFlash2, kFlash2},
    {"A100-PCIe", 0.811, 0.811, 256, 128, 0.62, 0.55, 0.55, 1, "A100 PCIe bf16 253 of 312 TFLOPS", kFlash2, kFlash2, 1,
     &kA100Pcie},
    {"A100", 0.869, 0.869, 256, 128, 0.62, 0.55, 0.55, 1, "A100 SXM bf16 271 of 312 TFLOPS", kFlash2, kFlash2, 1,
     &kA100},
    {"A800", 0.869, 0.869, 256, 128, 0.62, 0.55, 0.55, 1, "A100 SXM bf16 271 of 312 TFLOPS", kFlash2, kFlash2, 1,
     &kA100},
    {"GH200", 0.838, 0.776, 256, 128, 0.58, 0.48, 0.35, 0.62, "GH200 SXM bf16 829 of 989, fp8 1535 of 1979 TFLOPS",
     kFlash3, kSecond, 1, &kH100},
    {"H100", 0.803, 0.709, 256, 128, 0.58, 0.48, 0.35, 0.62, "H100 SXM bf16 794 of 989, fp8 1403 of 1979 TFLOPS",
     kFlash3, kSecond, 1, &kH100},
    {"H800", 0.803, 0.709, 256, 128, 0.58, 0.48, 0.35, 0.62, "H100 SXM bf16 794 of 989, fp8 1403 of 1979 TFLOPS",
     kFlash3, kSecond, 1, &kH100},
    {"H200", 0.803, 0.734, 256, 128, 0.58, 0.48, 0.35, 0.62, "H200 SXM bf16 794 of 989, fp8 1453 of 1979 TFLOPS",
     kFlash3, kSecond, 1, &kH200},
    {"GB200", 0.698, 0.687, 256, 128, 0.55, 0.45, 0.15, 0.3, kAsB200, kLikeHopper, kSecondOnBlackwell, 1, &kB200},
    {"GB300", 0.782, 0.769, 256, 128, 0.55, 0.45, 0.15, 0.3, kGb300, kLikeHopper, kSecondOnBlackwell, 1, &kB200},
    {"B200", 0.776, 0.763, 256, 128, 0.55, 0.45, 0.15, 0.3, "B200 bf16 1745 of 2250, fp8 3433 of 4500 TFLOPS",
     kLikeHopper, kSecondOnBlackwell, 1, &kB200},
    {"B300", 0.786, 0.745, 256, 128, 0.55, 0.45, 0.15, 0.3, "B300 bf16 1769 of 2250, fp8 3353 of 4500 TFLOPS",
     kLikeHopper, kSecondOnBlackwell, 1, &kB200},
    {"MI250X", kMi250, kMi250, 256, 128, kMi250* kAttention, kMi250* kAttentionGrad, 0.5, 1,
     "MI250X, one of two dies, bf16 147 of 191.5 TFLOPS", kBelowProducts, kNoSecond, kAmdUntuned},
    {"MI300X", kMi300, 0.443, 256, 128, kMi300* kAttention, kMi300* kAttentionGrad, 0.5, 1,
     "MI300X bf16 668 of 1307 TFLOPS; fp8: Azure's AI benchmarking guide, ND MI300X v5, hipBLASLt: 1159 of 2615",
     kBelowProducts, kNoSecond, kAmdUntuned},
    {"MI325X", kMi325, kMi325, 256, 128, kMi325* kAttention, kMi325* kAttentionGrad, 0.5, 1,
     "MI325X bf16 785 of 1307 TFLOPS; fp8 taken alike", kBelowProducts, kNoSecond, kAmdUntuned},
    {"MI35", kMi355, kMi355, 256, 128, kMi355* kAttention, kMi355* kAttentionGrad, 0.5, 1, kMi350, kBelowProducts,
     kNoSecond, kAmdUntuned},
};

/// A GPU in no table is assumed to perform as an A100.
constexpr Known kUnknown = {"", 0.869, 0.869, 256, 128, 0.62, 0.55, 0.55, 1, nullptr, kAsA100, kAsA100};

/// The row of this name.
const Known& named(std::string_view device) {
  return *std::ranges::find_if(kKnown, [&](const Known& k) { return device == k.device; });
}

const Known& known(const std::string& device) {
  for (const Known& k : kKnown)
    if (device.find(k.device) != std::string::npos) return k;
  return kUnknown;
}

/// Exponentials over FLOPs of the vector units: a multiprocessor of NVIDIA's has 16 a clock beside 128 fp32 units, or
/// 64 in what was built for data centres up to 2020; 32 in Blackwell Ultra.
double exponentials(const clusters::Device& device) {
  constexpr double kEach = 16, kUnits = 128, kFewer = 64, kFlops = 2;
  if (device.architecture == clusters::Architecture::generic) return 0;
  for (const char* name : {"V100", "T4", "A100", "A800", "A30"})
    if (device.name.find(name) != std::string::npos) return kEach / (kFlops * kFewer);
  if (device.name.find("B300") != std::string::npos) return 2 * kEach / (kFlops * kUnits);
  return kEach / (kFlops * kUnits);
}

/// Shares of their peak that products in 16 bits and in 8 reach: those of shape searches, or what its power lets a
/// device of their family reach. A kind that no search was made for, or that power does not bound, has the first.
std::pair<double, double> shares_of(const Known& k, const clusters::Cluster& cluster) {
  const double peak = cluster.peak("bf16").value;
  if (k.power == nullptr || peak <= 0) return {k.matmul, k.fp8};
  const Known& best = named(k.power->device);
  const double at_its_power =
      products_beside(k.power->measured, cluster.device()) * (k.power->peak_tflops / (peak / 1e12));
  return {std::min(k.matmul, best.matmul * at_its_power), std::min(k.fp8, best.fp8 * at_its_power)};
}

void gpu(Calibration& c, const clusters::Cluster& cluster) {
  const clusters::Device& device = cluster.device();
  const Known& k = known(device.name);
  const std::string source =
      k.source == nullptr ? "assumption, uncalibrated: no shape search on this device is known; as A100's 271 of "
                            "312 TFLOPS"
                          : std::string(kMamf) + k.source;
  const auto [matmul, fp8] = shares_of(k, cluster);
  const auto by_power = [&](const std::string& from, bool bound) {
    return bound ? fmt::format("{}; at this device's {:.0f} W", from, device.power.value) : from;
  };
  for (const char* dtype : {"fp32", "bf16", "fp16", "tf32"})
    c.set(fmt::format("device.matmul.{}.efficiency", dtype), matmul, by_power(source, matmul < k.matmul));
  c.set("device.matmul.fp8.efficiency", fp8, by_power(source, fp8 < k.fp8));
  c.set("device.matmul.fp4.efficiency", fp8 * kFp4, by_power(kFp4Source, fp8 < k.fp8));
  c.set("device.matmul.untuned_share", k.untuned, k.untuned < 1 ? kUntuned : kTuned);
  c.set("device.matmul.tile_rows", k.tile_rows, kTiles);
  c.set("device.matmul.tile_columns", k.tile_columns, kTiles);
  c.set("device.matmul.halving_loss", 0.1,
        "assumption, uncalibrated: the guide above shows smaller tiles slower, without a number");
  c.set("device.matmul.k_half", 128,
        "assumption: prologue and epilogue of two 64-deep tile steps; OpenXLA's table of H100's products agrees "
        "(tests/cost/operators_test.cpp)");
  c.set("device.matmul.narrow_load_loss", 0.3,
        "vTrain's layer times: products with 50,257 columns at a third of their rate; nanoGPT (Karpathy 2023) steps a "
        "quarter faster with 50,304, which makes it half at most; one digit");
  c.set("device.memory.efficiency", 0.9, "nvbandwidth device-to-device: H100 87 %, GB200 92 % of the datasheet");
  c.set("device.attention.efficiency", k.flash, k.attention);
  c.set("device.attention.grad_efficiency", k.flash_grad, k.attention);
  c.set("device.attention.generation_1", k.generation_1,
        "FlashAttention-2 (Dao 2023), section 1: the first reaches 25 to 40 % of A100's peak; other devices: "
        "assumption, uncalibrated: about half of the second's");
  c.set("device.attention.generation_2", k.generation_2, k.second);
  c.set("device.attention.exponentials", exponentials(device),
        "NVIDIA, CUDA C++ Programming Guide, throughput of arithmetic instructions; of Blackwell Ultra NVIDIA's blog, "
        "Inside NVIDIA Blackwell Ultra (2025); other makers: assumption, uncalibrated: heads of all widths are as "
        "fast");
  c.set(
      "device.attention.misaligned_efficiency", 0.06,
      "BigScience, chronicles of the 176B model: heads 108 and 150 wide make steps of 13,824 and 14,400 wide models a "
      "third longer; one digit");
  c.set("device.host.efficiency", 0.43,
        "ZeRO-Offload (Ren et al. 2021), table 4: CPU-Adam updates 10 billion parameters in 2.57 s on a DGX-2, whose "
        "memory has 256 GB/s; 28 bytes each");
  c.set("device.attention.unfused_efficiency", 0.4,
        "assumption, uncalibrated: batched products with an inner dimension of one head");
  c.set("device.checkpoint.copy_bandwidth", 4e9,
        "assumption, uncalibrated: one core of the host widens to fp32 into fresh memory");
}

/// One core of a server CPU; a fit should replace every number.
void cpu(Calibration& c, const clusters::Device& device) {
  const std::string source = "placeholder, uncalibrated: one core of a server CPU; run `orrery calibrate`";
  for (const char* dtype : {"fp32", "bf16", "fp16", "fp8"})
    c.set(fmt::format("device.matmul.{}.efficiency", dtype), 0.8, source);
  c.set("device.matmul.operand_bandwidth", 20e9, source);
  c.set("device.memory.efficiency", 0.8, source);
  c.set("device.cache.size", device.cache.value, "datasheet: last-level cache");
  c.set("device.neighbour_slowdown", 0.03, source);
  c.set("device.attention.efficiency", 0.2, source);
  c.set("device.attention.grad_efficiency", 0.2, source);
  c.set("device.attention.unfused_efficiency", 0.2, source);
  c.set("device.attention.head_overhead", 1e-6, source);
  // What exec/cpu's operators achieve alone, less the time of their bytes from the cache: ratios between them carry
  // over to other machines better than round numbers, and a fit to whole blocks cannot separate them.
  const std::string kernels = "exec/cpu's kernels timed one by one on one AVX-512 core, operands in cache, 2026-11-20";
  const std::string chosen = "round figure near fits on one AVX-512 core, not timed alone, uncalibrated";
  const auto rate = [&](PriceFamily family, double bytes_per_second, const std::string& from) {
    c.set(fmt::format("device.vector.{}.rate", name_of(family)), bytes_per_second, from);
  };
  c.set("device.checkpoint.copy_bandwidth", 1.5e9, source);
  c.set("device.cache.bandwidth", 80e9, kernels);
  c.set("device.conversion.bandwidth", 60e9, kernels);
  rate(PriceFamily::copy, 400e9, kernels);
  rate(PriceFamily::reduction, 200e9, kernels);
  rate(PriceFamily::activation, 27e9, kernels);
  rate(PriceFamily::activation_grad, 37e9, kernels);
  rate(PriceFamily::normalisation, 60e9, kernels);
  rate(PriceFamily::normalisation_grad, 52e9, kernels);
  rate(PriceFamily::softmax, 20e9, chosen);
  rate(PriceFamily::scores, 10e9, chosen);
  rate(PriceFamily::optimizer, 100e9, chosen);
  rate(PriceFamily::norm_squared, 15e9, chosen);
  rate(PriceFamily::factored, 5.8e9, kernels);
  rate(PriceFamily::quantised, 1.3e9, kernels);
  rate(PriceFamily::embedding, 200e9, kernels);
}

/// A rate per architecture, as used by NCCL's search, over a link's datasheet rate.
struct LinkRate {
  clusters::Architecture architecture;
  double intra, send_channel, size_half;
  const char* intra_source;
  const char* send_source;
  const char* size_source;
};

constexpr const char* kTopo = "NCCL 2.28.9 src/graph/topo.h: ";
constexpr const char* kSimAi =
    "SimAI inputs/ratio, one-node all-reduce: least squares on log of the loss, 16 MiB to 4 GiB";
constexpr const char* kStasSend = "ml-engineering (stas00), network: 8 x A100 sendrecv, 128 MiB over eight channels";
constexpr const char* kB200Sweep =
    "nccl-tests sweep of an HGX B200 (NCCL 2.30, 2026-05): sendrecv 84.6 GB/s over four channels";
constexpr const char* kB200Sizes =
    "nccl-tests sweeps of 8 x B200 (2026-05) and 2 x 8 B200 (GCP A4): all-reduces of 16 to 256 MiB";

constexpr LinkRate kLinks[] = {
    {clusters::Architecture::volta, 0.8, 13.85e9, 8.7e6, "20 of an NVLink's 25 GB/s", "as A100, not measured", kSimAi},
    {clusters::Architecture::ampere, 0.8, 13.85e9, 8.7e6, "20 of an NVLink's 25 GB/s", kStasSend, kSimAi},
    {clusters::Architecture::hopper, 0.824, 17e9, 8.7e6, "20.6 of an NVLink's 25 GB/s",
     "assumption, uncalibrated: between A100 and B200", kSimAi},
    {clusters::Architecture::blackwell, 0.802, 21.2e9, 25e6, "40.1 of an NVLink's 50 GB/s", kB200Sweep, kB200Sizes},
};

const LinkRate& links_of(clusters::Architecture architecture) {
  for (const LinkRate& rate : kLinks)
    if (rate.architecture == architecture) return rate;
  return kLinks[1];
}

void gpu_network(Calibration& c, const clusters::Cluster& cluster) {
  const LinkRate& link = links_of(cluster.device().architecture);
  const double own = cluster.shape ? cluster.shape->node.link_efficiency : 0;
  if (own > 0) {
    c.set("network.intra.efficiency", own, "the cluster file's efficiency");
  } else if (cluster.intra.name == "pcie") {
    c.set("network.intra.efficiency", 12.0 / 15.75, std::string(kTopo) + "12 of PCIe 3 x16's 15.75 GB/s");
  } else {
    c.set("network.intra.efficiency", link.intra, std::string(kTopo) + link.intra_source);
  }
  c.set("network.inter.efficiency", 0.96, "NVIDIA staff, nccl#412: HDR 24 of 25, NDR 48.5 of 50 GB/s");
  c.set("network.inter.hop_latency", 0, "NCCL 2.28.9 src/graph/tuning.cc: hwLatencies hold InfiniBand's");
  c.set("network.inter.simple_hop_latency", 0, "NCCL 2.28.9 src/graph/tuning.cc: hwLatencies hold InfiniBand's");
  const std::string kind = cluster.shape ? cluster.shape->network.kind : "";
  const bool unordered = kind == "tcp" || kind == "tcpxo";
  c.set("network.inter.ll128", unordered ? 0 : 1,
        unordered ? "TCP through host memory does not keep the order of 128 bytes"
                  : "NCCL 2.28.9 src/graph/tuning.cc: where the NIC is near the GPU");
  const bool newer =
      link.architecture == clusters::Architecture::hopper || link.architecture == clusters::Architecture::blackwell;
  c.set("network.ll128.ramps", newer ? 0 : 1,
        "nccl-tests sweeps of 8 A100 (Hetu-Galvatron's profiler test) and 8 H20 (Mooncake#3484), 1 to 32 MiB");
  c.set("network.collnet", 0, "NCCL: off unless NCCL_COLLNET_ENABLE is set");
  const bool staged = cluster.shape && cluster.shape->network.staged;
  c.set("network.hierarchical", staged ? 1 : 0,
        staged ? "messages pass through the hosts' memory, as on Zion: two levels are tried"
               : "NCCL has no such algorithm");
  c.set("network.copy.latency", 10e-6, "assumption, uncalibrated: launch and completion of an asynchronous copy");
  c.set("network.copy.efficiency", 12.0 / 15.75, std::string(kTopo) + "12 of PCIe 3 x16's 15.75 GB/s");
  c.set("network.copy.nvme_efficiency", 0.9,
        "ZeRO-Infinity (Rajbhandari et al. 2021), section 6.3: near peak sequential read and write; round figure");
  c.set("network.send.efficiency", 0.65, "Calculon systems/a100_80g.json: NVLink processor efficiency");
  c.set("network.send.channel_bandwidth", link.send_channel, link.send_source);
  c.set("network.all_to_all.efficiency", 0.9, "SimAI inputs/ratio, all-to-all of 16 GiB: mean over 2 to 16 nodes");
  c.set("network.size_half", link.size_half, link.size_source);
  c.set("network.size_exponent", 0.61, kSimAi);
}

/// The disks behind checkpoints.
void storage(Calibration& c, const clusters::Cluster& cluster) {
  if (cluster.device().kind != clusters::DeviceKind::cpu) {
    c.set("network.storage.write_latency", 0.1,
          "assumption, uncalibrated: files created and synced on a shared system");
    c.set("network.storage.write_bandwidth", 2e12 / 2048,
          "Llama 3 (Grattafiori et al. 2024), section 3.3.1: 2 TB/s sustained, for 16,384 GPUs in 2,048 nodes");
    c.set("network.storage.commit_time", 0.1, "assumption, uncalibrated: a small file, a rename and their syncs");
    return;
  }
  const std::string source = "placeholder, uncalibrated: this machine's disk; run `orrery calibrate`";
  c.set("network.storage.write_latency", 10e-3, source);
  c.set("network.storage.write_bandwidth", 0.5e9, source);
  c.set("network.storage.commit_time", 10e-3, source);
}

/// Links: the share of the datasheet's bandwidth that large messages achieve.
void network(Calibration& c, const clusters::Cluster& cluster) {
  if (cluster.device().kind != clusters::DeviceKind::cpu) {
    gpu_network(c, cluster);
    return;
  }
  const std::string source = "placeholder, uncalibrated: MPI between ranks of one machine; run `orrery calibrate`";
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter", "send"}) {
    c.set(fmt::format("network.{}.latency", operation), 3e-6, source);
    c.set(fmt::format("network.{}.bandwidth", operation), 3e9, source);
  }
  const std::string copies = "placeholder, uncalibrated: a thread that copies; run `orrery calibrate`";
  c.set("network.copy.latency", 20e-6, copies);
  c.set("network.copy.bandwidth", 5e9, copies);
  c.set("network.copy.file_bandwidth", 1e9, copies);
}

}  // namespace

Calibration defaults(const clusters::Cluster& cluster) {
  Calibration c;
  c.name = cluster.name + " (defaults)";
  c.device = cluster.device().name;
  c.network = network_of(cluster);
  if (cluster.device().kind != clusters::DeviceKind::cpu) {
    gpu(c, cluster);
  } else {
    cpu(c, cluster.device());
  }
  network(c, cluster);
  storage(c, cluster);
  return c;
}

}  // namespace orrery::cost
