/// Reads one device, in full or by its catalogue name.
#include "clusters/device.h"

#include <fmt/core.h>

#include <optional>
#include <type_traits>
#include <utility>

#include "clusters/limits.h"

namespace orrery::clusters {

using base::Cursor;
using base::UnitKind;

namespace {

const std::vector<std::string> kKinds = {name_of(DeviceKind::gpu), name_of(DeviceKind::accelerator),
                                         name_of(DeviceKind::cpu)};  // in the enumeration's order
const std::vector<std::string> kDtypes = {"fp32", "tf32", "bf16", "fp16", "fp8", "fp4"};

std::map<std::string, FlopsPerSecond> read_peaks(const Cursor& at) {
  std::map<std::string, FlopsPerSecond> peaks;
  if (!at.exists()) return peaks;
  for (const std::string& dtype : kDtypes) {
    const Cursor peak = at.optional(dtype);
    if (peak.exists())
      peaks[dtype] = FlopsPerSecond{peak.quantity(UnitKind::flops_per_second, kLeastRate, kMostRate, 1)};
  }
  if (peaks.empty()) at.error("C03", "no peak is given", "give at least one of fp32, tf32, bf16, fp16, fp8");
  return peaks;
}

}  // namespace

std::vector<std::string> read_sources(const Cursor& at) {
  std::vector<std::string> sources;
  if (!at.exists()) return sources;
  for (const Cursor& source : at.one_or_many()) {
    if (source.exists()) sources.push_back(source.text());
  }
  return sources;
}

namespace {

/// Idle over rated power, for devices that do not give it: the middle of V100's, A100's, H100's and B200's.
constexpr double kIdleOfRated = 0.12;

void read_power(const Cursor& at, Device& device) {
  const Cursor power = at.optional("power"), idle = at.optional("idle_power");
  const auto watts = [](const Cursor& one) { return base::Watts{one.quantity(UnitKind::watts, 0, kMostRate, 0)}; };
  if (power.exists()) device.power = watts(power);
  if (idle.exists()) device.idle_power = watts(idle);
  if (device.idle_power.value == 0) device.idle_power = base::Watts{kIdleOfRated * device.power.value};
  if (device.power.value > 0 && device.idle_power.value >= device.power.value)
    (idle.exists() ? idle : power)
        .error("C04",
               fmt::format("a device that may draw {:.0f} W draws {:.0f} W without work", device.power.value,
                           device.idle_power.value),
               "correct 'idle_power' or 'power'");
}

/// A device that may draw another power is another one to those who look for measurements by name.
void name_by_power(const Cursor& at, const Device& base, Device& device) {
  if (const Cursor name = at.optional("name"); name.exists()) {
    name.error("C09", fmt::format("a device like {} keeps its name, by which its measured rates are found", base.name),
               "leave 'name' out, or write the device out without 'like'");
    device.name = base.name;
  }
  if (device.power != base.power) device.name += fmt::format(" at {:.0f} W", device.power.value);
}

/// Over `device`, each key that is given; all that a device must have where it is `fresh`.
Device read_over(const Cursor& at, Device device, bool fresh) {
  const auto part = [&](const char* key) { return fresh ? at.at(key) : at.optional(key); };
  const auto number = [](const Cursor& one, auto& into, UnitKind unit, double least, double most, double otherwise) {
    if (one.exists()) into = std::remove_reference_t<decltype(into)>{one.quantity(unit, least, most, otherwise)};
  };
  if (const Cursor name = part("name"); name.exists() || fresh) device.name = name.text();
  if (const Cursor kind = part("kind"); kind.exists() || fresh)
    device.kind = static_cast<DeviceKind>(kind.choice(kKinds, static_cast<int>(device.kind)));
  const Cursor architecture = at.optional("architecture");
  if (fresh) device.architecture = device.kind == DeviceKind::cpu ? Architecture::cpu : Architecture::ampere;
  if (architecture.exists() || (fresh && device.kind != DeviceKind::cpu)) {
    device.architecture = static_cast<Architecture>(
        at.at("architecture").choice(architecture_words(), static_cast<int>(device.architecture)));
  }
  if (const Cursor peak = part("peak"); peak.exists()) device.peak = read_peaks(peak);
  number(part("vector_peak"), device.vector_peak, UnitKind::flops_per_second, kLeastRate, kMostRate, 1);
  number(part("memory"), device.memory, UnitKind::bytes, kLeastBytes, kMostBytes, 1);
  number(part("memory_bandwidth"), device.memory_bandwidth, UnitKind::bytes_per_second, kLeastRate, kMostBandwidth, 1);
  number(part("cache"), device.cache, UnitKind::bytes, 0, kMostBytes, 0);
  if (const Cursor parts = part("multiprocessors"); parts.exists())
    device.multiprocessors = static_cast<int>(parts.integer(1, kMostParts, 1));
  read_power(at, device);
  number(at.optional("price"), device.price, UnitKind::dollars_per_hour, 0, kMostRate, 0);
  std::vector<std::string> sources = read_sources(at.optional("sources"));
  device.sources.insert(device.sources.end(), sources.begin(), sources.end());
  return device;
}

/// The catalogue's device of this name; nothing after an error, which is reported at `at`.
std::optional<Device> find_device(const Cursor& at, const Find& find) {
  const std::string name = at.text();
  if (name.empty()) return std::nullopt;
  const std::optional<std::string> text = find ? find("devices/" + name) : std::nullopt;
  if (!text) {
    at.error("C01", fmt::format("device '{}' is not in the catalogue", name),
             "name one of clusters/catalog/devices, or write the device out as a mapping");
    return std::nullopt;
  }
  base::Result<Device> device = base::read_document<Device>(*text, "devices/" + name + ".yaml",
                                                            std::function<Device(const Cursor&)>(read_device));
  if (device) return std::move(*device);
  for (const base::Diagnostic& d : device.error()) {
    at.error(d.code, fmt::format("{}:{}:{}: {}", d.where.file, d.where.line, d.where.column, d.message), d.help);
  }
  return std::nullopt;
}

}  // namespace

Device read_device(const Cursor& at) {
  return read_over(at, {}, true);
}

Device resolve_device(const Cursor& at, const Find& find) {
  if (!at.exists()) return {};
  if (at.is_map()) {
    if (!at.has("like")) return read_device(at);
    std::optional<Device> base = find_device(at.at("like"), find);
    if (!base) {
      at.ignore();
      return {};
    }
    Device device = read_over(at, *base, false);
    name_by_power(at, *base, device);
    return device;
  }
  if (at.is_sequence()) {
    at.error("C12", "a cluster has one kind of device, and this is a list of several",
             "plan each kind's nodes by themselves, as a cluster of their own: a step waits for its slowest rank");
    at.ignore();
    return {};
  }
  return find_device(at, find).value_or(Device{});
}

}  // namespace orrery::clusters
