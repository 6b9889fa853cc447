// Writes a cluster file, with a source beside each number.
#include "exec/probe/cluster_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/units.h"

namespace orrery::exec {
namespace {

using base::quantity_text;
using base::UnitKind;

constexpr const char* kNotMeasured = "not measured: nominal; `orrery probe --measure` measures it";

/// As a YAML double-quoted scalar, since names of processors and hosts may contain anything.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= ' ') out += c;
  }
  return out + '"';
}

/// Rounded to kDigits significant digits: a measured 13,412,345,678 B/s claims more than is known.
double rounded(double value) {
  constexpr int kDigits = 4;
  return std::stod(fmt::format("{:.{}g}", value, kDigits));
}

const char* vendor_word(const std::string& vendor) {
  if (vendor == "GenuineIntel") return "intel";
  if (vendor == "AuthenticAMD") return "amd";
  return "other";
}

class Lines {
 public:
  void add(const std::string& text, const std::string& source = {}) {
    text_ += text;
    if (!source.empty()) text_ += "   # " + source;
    text_ += '\n';
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string device_name(const Processor& processor) {
  std::string out;
  for (const char c : processor.model)
    if (!(std::isspace(static_cast<unsigned char>(c)) && (out.empty() || out.back() == ' '))) out += c;
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out + " core";
}

double core_peak(const Processor& processor) {
  return processor.clock_hz.value * processor.flop_per_cycle.value;
}

Sourced own_cache(const MachineDescription& machine) {
  const CacheLevel* best = nullptr;
  for (const CacheLevel& level : machine.caches)
    if (level.cores <= 1) best = &level;
  if (best != nullptr)
    return {static_cast<double>(best->bytes), fmt::format("{}: L{} of a core", machine.tool, best->level)};
  if (machine.caches.empty()) return {0, machine.tool + " sees no cache"};
  const CacheLevel& shared = machine.caches.front();
  return {static_cast<double>(shared.bytes) / shared.cores,
          fmt::format("{}: L{} over the {} cores that share it", machine.tool, shared.level, shared.cores)};
}

std::string cluster_file(const MachineDescription& machine, const ClusterFileOptions& options) {
  constexpr double kNominalCore = 10e9, kNominalHost = 25.6e9, kNominalFabric = 4e9, kNominalLatency = 1e-6,
                   kNominalSocket = 16e9, kNominalSocketLatency = 1e-7, kFusedParts = 2;
  const Processor& p = machine.processor;
  const MeasuredMemory* m = options.measured ? &*options.measured : nullptr;
  const std::string measured = m ? "measured " + m->date : "";
  const double peak = core_peak(p);
  const Sourced cache = own_cache(machine);
  const auto bytes = [](double value) { return quantity_text(value, UnitKind::bytes); };
  const auto rate = [](double value) { return quantity_text(rounded(value), UnitKind::bytes_per_second); };
  const auto flops = [](double value) { return quantity_text(rounded(value), UnitKind::flops_per_second); };
  const auto seconds = [](double value) { return quantity_text(rounded(value), UnitKind::seconds); };
  const bool messages = m && m->message_bytes_per_s > 0;

  Lines out;
  out.add(
      fmt::format("# CPU ranks on this machine, one core each; written by `orrery probe{}`.", m ? " --measure" : ""));
  out.add("name: " + quoted(options.name));
  out.add("device:");
  out.add("  name: " + quoted(device_name(p)), "calibrations made here are bound to this name");
  out.add("  kind: cpu");
  out.add(fmt::format("  peak: {{fp32: {}}}", flops(peak)),
          fmt::format("{:.4g} GHz ({}) x {:.0f} FLOP a cycle ({}: {})", p.clock_hz.value * 1e-9, p.clock_hz.source,
                      p.flop_per_cycle.value, p.vector, p.flop_per_cycle.source));
  out.add("  vector_peak: " + flops(peak / kFusedParts), "half of it: no fused multiply-add");
  out.add("  memory: " + bytes(std::max(1.0, std::floor(machine.memory_bytes.value / p.cores))),
          fmt::format("{} ({}) over {} cores", base::human(base::Bytes{machine.memory_bytes.value}),
                      machine.memory_bytes.source, p.cores));
  out.add("  memory_bandwidth: " + rate(m ? m->one_core_bytes_per_s : kNominalCore),
          m ? measured + ": one core streaming" : kNotMeasured);
  out.add("  cache: " + bytes(cache.value), cache.source);
  out.add("  multiprocessors: 1");
  out.add("node:");
  out.add(fmt::format("  devices: {}", options.ranks),
          fmt::format("{} sees {}", machine.tool, base::count_of(p.cores, "core")));
  out.add("  fabric:");
  out.add("    kind: shared-memory");
  out.add("    bandwidth: " + rate(messages ? m->message_bytes_per_s : kNominalFabric),
          messages ? measured + ": one large message between two ranks" : kNotMeasured);
  out.add("    latency: " + seconds(messages ? m->message_latency_s : kNominalLatency),
          messages ? measured + ": one small message between two ranks" : kNotMeasured);
  out.add("  host:");
  out.add(fmt::format("    cpu: {}", vendor_word(p.vendor)));
  out.add(fmt::format("    sockets: {}", p.packages), machine.tool);
  if (p.packages > 1) {
    out.add("    link_bandwidth: " + rate(kNominalSocket), "nominal, not measured");
    out.add("    latency: " + seconds(kNominalSocketLatency), "nominal, not measured");
  }
  out.add("    memory_bandwidth: " + rate((m ? m->all_cores_bytes_per_s : kNominalHost) / p.packages),
          m ? measured + ": all ranks streaming at once, of one socket" : kNotMeasured);
  out.add("nodes: 1");
  out.add("stack: orrery-cpu");
  out.add("sources:");
  out.add("  - " + quoted(fmt::format("{} on {} ({})", machine.tool, machine.host, machine.system)));
  if (m)
    out.add("  - " +
            quoted(fmt::format("orrery probe --measure, {}, {}", m->date, base::count_of(options.ranks, "rank"))));
  return out.take();
}

}  // namespace orrery::exec
