/// Names of devices as sources write them, and which of the catalogue's is meant.
#include "sim/validate/likeness.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace orrery::sim {
namespace likeness_test {

/// The most alike of these; "none" if no one is alike.
std::string meant(const std::string& wanted, std::optional<std::int64_t> gb = std::nullopt) {
  const std::vector<std::string> known = {
      "A100-SXM4-40GB", "A100-SXM4-80GB",  "A100-PCIe-80GB", "A100-SXM-64GB",     "A10G-24GB",      "A40-48GB",
      "A800-SXM4-80GB", "B200-SXM-180GB",  "GB200-186GB",    "H100-SXM5-80GB",    "H100-SXM-64GB",  "H100-PCIe-80GB",
      "H100-NVL-94GB",  "H200-SXM5-141GB", "H20-SXM5-96GB",  "L4-24GB",           "L40S-48GB",      "MI300X-192GB",
      "MI250X-64GB",    "RTX-3090-24GB",   "RTX-4090-24GB",  "RTX-6000-Ada-48GB", "RTX-A6000-48GB", "RTX-PRO-6000-96GB",
      "T4-16GB",        "TPU-v4",          "TPU-v5e",        "TPU-v5p",           "TPU-v6e",        "Trainium-32GB",
      "Trainium2-96GB", "V100-PCIe-32GB",  "V100-SXM2-16GB", "V100-SXM2-32GB",    "V100-SXM3-32GB", "Gaudi2-96GB",
      "Gaudi3-128GB"};
  Likeness best;
  std::string name = "none";
  for (const std::string& one : known)
    if (const Likeness now = likeness(wanted, one, gb); now.model > 0 && (name == "none" || now > best))
      best = now, name = one;
  return name;
}

TEST(Likeness, ReadsWhatDriversAndSellersCallADevice) {
  EXPECT_EQ(meant("NVIDIA H100 80GB HBM3"), "H100-SXM5-80GB") << "torch.cuda.get_device_name";
  EXPECT_EQ(meant("NVIDIA A100-SXM4-40GB"), "A100-SXM4-40GB");
  EXPECT_EQ(meant("8x NVIDIA H200 141 GB"), "H200-SXM5-141GB");
  EXPECT_EQ(meant("Tesla V100-SXM2-16GB"), "V100-SXM2-16GB");
  EXPECT_EQ(meant("AMD Instinct MI300X"), "MI300X-192GB");
  EXPECT_EQ(meant("NVIDIA GeForce RTX 3090"), "RTX-3090-24GB");
  EXPECT_EQ(meant("RTX4090"), "RTX-4090-24GB");
  EXPECT_EQ(meant("NVIDIA RTX A6000"), "RTX-A6000-48GB");
  EXPECT_EQ(meant("A6000 48GB"), "RTX-A6000-48GB");
  EXPECT_EQ(meant("NVIDIA RTX 6000 Ada Generation"), "RTX-6000-Ada-48GB");
  EXPECT_EQ(meant("NVIDIA RTX PRO 6000"), "RTX-PRO-6000-96GB");
  EXPECT_EQ(meant("NVIDIA RTX PRO 6000 Blackwell Server Edition"), "RTX-PRO-6000-96GB");
  EXPECT_EQ(meant("TPUv4"), "TPU-v4");
  EXPECT_EQ(meant("Trainium"), "Trainium-32GB");
  EXPECT_EQ(meant("Trainium2"), "Trainium2-96GB");
  EXPECT_EQ(meant("Trainium1"), "Trainium-32GB");
  EXPECT_EQ(meant("TPU v5 lite"), "TPU-v5e") << "jax.devices()[0].device_kind";
  EXPECT_EQ(meant("TPU v6e (Trillium)"), "TPU-v6e");
  EXPECT_EQ(meant("Trillium"), "TPU-v6e");
  EXPECT_EQ(meant("Gaudi2"), "Gaudi2-96GB");
  EXPECT_EQ(meant("Intel Gaudi 3 HPU"), "Gaudi3-128GB");
  EXPECT_EQ(meant("V100 16GB"), "V100-SXM2-16GB");
  EXPECT_EQ(meant("First-gen Gaudi"), "none");
}

TEST(Likeness, TakesTheFormAndTheMemoryThatANameStates) {
  EXPECT_EQ(meant("A100 PCIe 80GB"), "A100-PCIe-80GB");
  EXPECT_EQ(meant("A100 64GB"), "A100-SXM-64GB");
  EXPECT_EQ(meant("H100-SXM-96GB-500W"), "H100-SXM5-80GB") << "the nearest memory of its form";
  EXPECT_EQ(meant("H100 NVL"), "H100-NVL-94GB");
  EXPECT_EQ(meant("A100-SXM", 40), "A100-SXM4-40GB") << "stated elsewhere in the row";
}

TEST(Likeness, ReadsTheWattsThatANameStates) {
  EXPECT_EQ(device_words("H100-SXM-96GB-500W").watts, 500);
  EXPECT_EQ(device_words("B200 (limited to 750 W)").watts, 750);
  EXPECT_EQ(device_words("8x NVIDIA H100 80GB HBM3").watts, std::nullopt);
  EXPECT_EQ(meant("H100 SXM 500 W"), "H100-SXM5-80GB");
}

TEST(Likeness, NumbersAreWholeSoThatA10IsNoA100) {
  EXPECT_EQ(meant("A10"), "A10G-24GB");
  EXPECT_EQ(meant("B200"), "B200-SXM-180GB");
  EXPECT_EQ(meant("GB200"), "GB200-186GB");
  EXPECT_EQ(meant("L4"), "L4-24GB");
  EXPECT_EQ(meant("H20"), "H20-SXM5-96GB");
  EXPECT_EQ(meant("A100X"), "A100-SXM4-40GB") << "the same letters and number";
}

TEST(Likeness, RefusesWhatIsNoneOfThese) {
  EXPECT_EQ(meant("Ascend 910B"), "none");
  EXPECT_EQ(meant("RTX 2080 Ti"), "none") << "not a 4090 because both are RTX";
  EXPECT_EQ(meant("GPU"), "none");
  EXPECT_EQ(meant(""), "none");
}

}  // namespace likeness_test
}  // namespace orrery::sim
