/// Devices with other memory or power than the catalogue's.
#include "sim/validate/row_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "sim/validate/likeness.h"

namespace orrery::sim {

namespace {

/// The gigabytes of a device in its name. A superchip's are often its host's: NVIDIA's driver calls a GH200 with 96 GB
/// of its own "GH200 120GB" or "GH200 480GB". So only sizes count that its device has been made in.
std::optional<std::int64_t> gigabytes_in(const DeviceWords& name) {
  constexpr std::int64_t kOfSuperchips[] = {96, 141, 144, 186, 189, 192, 279, 288};
  const bool superchip = name.number.size() == 3 && (name.letters == "gh" || name.letters == "gb");
  if (superchip && name.gb && std::ranges::find(kOfSuperchips, *name.gb) == std::end(kOfSuperchips)) return {};
  return name.gb;
}

}  // namespace

void take_memory(const Setup& s, clusters::Cluster& machine, std::vector<std::string>& notes) {
  const auto named = gigabytes_in(device_words(s.gpu_type));
  const auto stated = named ? named : s.gpu_gb;
  const auto known = device_words(machine.device().name).gb;
  if (!stated || !known) return;
  constexpr double kAlike = 1.1, kMost = 2;  // sources round sizes, and say what the datasheet or the driver says
  const double ratio = static_cast<double>(*stated) / static_cast<double>(*known);
  const double apart = std::max(ratio, 1 / ratio);
  if (apart < kAlike || apart > kMost) return;
  machine.devices.front().memory.value *= ratio;
  notes.push_back(fmt::format("{} with {} GB of memory", machine.device().name, *stated));
}

std::optional<std::string> take_power(const Setup& s, clusters::Cluster& machine, std::vector<std::string>& notes) {
  clusters::Device& device = machine.devices.front();
  const std::optional<std::int64_t> stated = s.gpu_watts ? s.gpu_watts : device_words(s.gpu_type).watts;
  if (!stated || device.power.value <= 0) return std::nullopt;
  const auto watts = static_cast<double>(*stated);
  if (watts <= device.idle_power.value)
    return fmt::format("devices that may draw {} W draw {:.0f} W without work", *stated, device.idle_power.value);
  if (watts != device.power.value)
    notes.push_back(fmt::format("devices that may draw {} W instead of {:.0f}", *stated, device.power.value));
  device.power = base::Watts{watts};
  return std::nullopt;
}

}  // namespace orrery::sim
