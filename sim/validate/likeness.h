#pragma once
/// Names of devices as sources write them: "A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "RTX A6000", "8x MI300X".
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace orrery::sim {

/// A device's name, taken apart.
struct DeviceWords {
  std::string letters;                  ///< before the number: "a", "h", "mi", "gb"
  std::string number;                   ///< "100", "3090"
  std::string suffix;                   ///< after the number: "x", "g"
  std::set<std::string> others;         ///< further words of the model: "ada", "pro"
  std::string form;                     ///< "sxm", "pcie", "nvl"; empty: not stated
  std::optional<std::int64_t> gb{};     ///< memory; none: not stated
  std::optional<std::int64_t> watts{};  ///< that it may draw; none: not stated
};
[[nodiscard]] DeviceWords device_words(const std::string& name);

/// How alike two devices are; greater is more alike.
struct Likeness {
  /// 4: the same model; 3: but for other words; 2: the same letters and number; 1: of one generation (the first three
  /// characters are the same: "A10", "H10"); 0: none of these.
  int model = 0;
  std::int64_t words = 0;         ///< further words of the device that are wanted, less those that are not
  bool form = false;              ///< of one form, or one of both does not say
  std::int64_t memory_apart = 0;  ///< minus the GB by which both differ; 0 if one of both does not say
  std::int64_t prefix = 0;        ///< how many characters both names begin with alike
  auto operator<=>(const Likeness&) const = default;
};
/// `wanted` as a source names it; `gb`: its memory, if the source states it elsewhere.
[[nodiscard]] Likeness likeness(const std::string& wanted, const std::string& device,
                                std::optional<std::int64_t> gb = std::nullopt);

}  // namespace orrery::sim
