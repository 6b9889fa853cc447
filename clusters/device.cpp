/// Reads one device, in full or by its catalogue name.
#include "clusters/device.h"

#include <fmt/core.h>

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

Device read_device(const Cursor& at) {
  Device device;
  device.name = at.at("name").text();
  device.kind = static_cast<DeviceKind>(at.at("kind").choice(kKinds));
  const Cursor architecture = at.optional("architecture");
  device.architecture = device.kind == DeviceKind::cpu ? Architecture::cpu : Architecture::ampere;
  if (architecture.exists() || device.kind != DeviceKind::cpu) {
    device.architecture = static_cast<Architecture>(
        at.at("architecture").choice(architecture_words(), static_cast<int>(device.architecture)));
  }
  device.peak = read_peaks(at.at("peak"));
  device.vector_peak =
      FlopsPerSecond{at.at("vector_peak").quantity(UnitKind::flops_per_second, kLeastRate, kMostRate, 1)};
  device.memory = Bytes{at.at("memory").quantity(UnitKind::bytes, kLeastBytes, kMostBytes, 1)};
  device.memory_bandwidth =
      BytesPerSecond{at.at("memory_bandwidth").quantity(UnitKind::bytes_per_second, kLeastRate, kMostBandwidth, 1)};
  device.cache = Bytes{at.at("cache").quantity(UnitKind::bytes, 0, kMostBytes, 0)};
  device.multiprocessors = static_cast<int>(at.at("multiprocessors").integer(1, kMostParts, 1));
  const Cursor power = at.optional("power");
  if (power.exists()) device.power = base::Watts{power.quantity(UnitKind::watts, 0, kMostRate, 0)};
  const Cursor idle = at.optional("idle_power");
  if (idle.exists()) device.idle_power = base::Watts{idle.quantity(UnitKind::watts, 0, kMostRate, 0)};
  if (device.power.value > 0 && device.idle_power.value > device.power.value)
    idle.error("C04", "a device draws more without work than it is rated for", "correct 'idle_power' or 'power'");
  const Cursor price = at.optional("price");
  if (price.exists()) device.price = base::DollarsPerHour{price.quantity(UnitKind::dollars_per_hour, 0, kMostRate, 0)};
  device.sources = read_sources(at.optional("sources"));
  return device;
}

Device resolve_device(const Cursor& at, const Find& find) {
  if (!at.exists()) return {};
  if (at.is_map()) return read_device(at);
  if (at.is_sequence()) {
    at.error("C12", "a cluster has one kind of device, and this is a list of several",
             "plan each kind's nodes by themselves, as a cluster of their own: a step waits for its slowest rank");
    at.ignore();
    return {};
  }
  const std::string name = at.text();
  if (name.empty()) return {};
  const std::optional<std::string> text = name.empty() || !find ? std::nullopt : find("devices/" + name);
  if (!text) {
    at.error("C01", fmt::format("device '{}' is not in the catalogue", name),
             "name one of clusters/catalog/devices, or write the device out as a mapping");
    return {};
  }
  const base::Result<Device> device = base::read_document<Device>(*text, "devices/" + name + ".yaml",
                                                                  std::function<Device(const Cursor&)>(read_device));
  if (device) return *device;
  for (const base::Diagnostic& d : device.error()) {
    at.error(d.code, fmt::format("{}:{}:{}: {}", d.where.file, d.where.line, d.where.column, d.message), d.help);
  }
  return {};
}

}  // namespace orrery::clusters
