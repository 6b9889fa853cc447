// Tables and JSON of `probe`.
#include "apps/verbs/measure/probe_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "exec/probe/cluster_file.h"
#include "reports/tables/text.h"

namespace orrery::apps {
namespace {

using nlohmann::ordered_json;
using reports::Align;

std::string bytes_text(double bytes) {
  return base::human(base::Bytes{bytes});
}
std::string rate_text(double rate) {
  return rate > 0 ? base::human(base::BytesPerSecond{rate}) : std::string("unknown");
}

ordered_json processor_json(const exec::Processor& p) {
  return {{"model", p.model},
          {"vendor", p.vendor},
          {"packages", p.packages},
          {"cores", p.cores},
          {"threads", p.threads},
          {"vector", p.vector},
          {"clock_hz", p.clock_hz.value},
          {"clock_source", p.clock_hz.source},
          {"core_peak_flop_per_s", exec::core_peak(p)}};
}

ordered_json gpu_json(const exec::Gpu& g) {
  return {{"index", g.index},
          {"name", g.name},
          {"pci", g.pci},
          {"uuid", g.uuid},
          {"compute_capability", g.compute_capability},
          {"multiprocessors", g.multiprocessors},
          {"memory_bytes", g.memory_bytes},
          {"l2_bytes", g.l2_bytes},
          {"clock_hz", g.clock_hz},
          {"memory_bandwidth_bytes_per_s", g.memory_bandwidth_bytes_per_s},
          {"power_limit_w", g.power_limit_w},
          {"pcie_generation", g.pcie_generation},
          {"pcie_width", g.pcie_width},
          {"nvlinks", g.nvlinks}};
}

double rate_of(const exec::OpTime& one) {
  return one.seconds > 0 ? models::flops_of(one.op) / one.seconds : 0;
}

/// The type it computes in; with rounded operands, that of the operands.
const char* dtype_of(const models::Op& op) {
  if (!op.rounded) return models::name_of(op.dtype);
  return models::name_of(op.dtype == models::DType::fp32 ? models::DType::tf32 : models::DType::fp8);
}

ordered_json op_json(const exec::OpTime& one, const std::string& workload) {
  const models::Op& op = one.op;
  ordered_json out = {{"operator", models::name_of(op.kind)}, {"workload", workload}};
  const auto number = [&](const char* key, std::int64_t value) {
    if (value != 0) out[key] = value;
  };
  number("m", op.m), number("n", op.n), number("k", op.k);
  if (op.heads > 0) {
    number("batch", op.batch), number("sequence", op.sequence);
    number("heads", op.heads), number("head_dim", op.head_dim);
  }
  out["dtype"] = dtype_of(op);
  if (op.kind == models::OpKind::matmul) {
    out["trans_a"] = op.trans_a;
    out["trans_b"] = op.trans_b;
  }
  out["seconds"] = one.seconds;
  out["flop_per_s"] = rate_of(one);
  out["bytes_per_s"] = one.seconds > 0 ? models::bytes_of(op) / one.seconds : 0;
  return out;
}

/// The best matrix product at each size of the curve, largest last.
reports::Table matmul_table(const exec::Measured& measured) {
  reports::Table table;
  table.title = fmt::format("Matrix products on one {}", measured.backend == "cuda" ? "GPU" : "core");
  table.columns = {{"rows x columns x inner", Align::left},
                   {"in", Align::left},
                   {"A", Align::left},
                   {"B", Align::left},
                   {"time"},
                   {"rate"}};
  for (const exec::WorkloadTimes& w : measured.workloads)
    for (const exec::OpTime& one : w.ops) {
      if (one.op.kind != models::OpKind::matmul || w.ops.size() > 1) continue;
      table.rows.push_back({fmt::format("{} x {} x {}", one.op.m, one.op.n, one.op.k), dtype_of(one.op),
                            one.op.trans_a ? "transposed" : "as is", one.op.trans_b ? "transposed" : "as is",
                            reports::time_text(one.seconds), base::human(base::FlopsPerSecond{rate_of(one)})});
    }
  return table;
}

reports::Table streams_table(const exec::Measured& measured) {
  reports::Table table;
  table.title = "Memory";
  table.columns = {{"operation", Align::left},
                   {"touches"},
                   {measured.backend == "cuda" ? "GPUs at once" : "cores at once"},
                   {"bandwidth"}};
  for (const exec::StreamTime& one : measured.streams)
    table.rows.push_back({one.operation, bytes_text(static_cast<double>(one.bytes)), std::to_string(one.ranks),
                          rate_text(one.bytes_per_s)});
  return table;
}

reports::Table messages_table(const exec::Measured& measured) {
  reports::Table table;
  table.title = "Messages between ranks";
  table.columns = {{"operation", Align::left}, {"ranks"}, {"bytes"}, {"time"}, {"bytes / time"}};
  for (const exec::MessageTime& one : measured.messages) {
    const auto bytes = static_cast<double>(one.at.bytes);
    table.rows.push_back({std::string(exec::name_of(one.at.kind)) + (one.at.in_place ? ", in place" : ""),
                          std::to_string(one.at.ranks), bytes_text(bytes), reports::time_text(one.seconds),
                          rate_text(one.seconds > 0 ? bytes / one.seconds : 0)});
  }
  return table;
}

reports::Table copies_table(const exec::Measured& measured) {
  reports::Table table;
  table.title = "Copies between a rank's memory and the host's";
  table.columns = {{"direction", Align::left}, {"ranks at once"}, {"bytes"}, {"time"}, {"bytes / time"}};
  for (const exec::CopyTime& one : measured.copies) {
    const auto bytes = static_cast<double>(one.bytes);
    table.rows.push_back({one.to_host ? "to the host" : "from the host", std::to_string(one.ranks), bytes_text(bytes),
                          reports::time_text(one.seconds), rate_text(one.seconds > 0 ? bytes / one.seconds : 0)});
  }
  return table;
}

}  // namespace

ordered_json machine_json(const exec::MachineDescription& machine, const exec::GpuReport& gpus) {
  ordered_json caches = ordered_json::array(), numa = ordered_json::array(), networks = ordered_json::array(),
               accelerators = ordered_json::array(), cards = ordered_json::array();
  for (const exec::CacheLevel& c : machine.caches)
    caches.push_back({{"level", c.level}, {"bytes", c.bytes}, {"count", c.count}, {"shared_by_cores", c.cores}});
  for (const exec::NumaNode& n : machine.numa) numa.push_back({{"memory_bytes", n.memory_bytes}, {"cores", n.cores}});
  for (const exec::NetworkInterface& n : machine.networks)
    networks.push_back({{"name", n.name},
                        {"kind", n.kind},
                        {"pci", n.pci},
                        {"bandwidth_bytes_per_s",
                         n.bandwidth_bytes_per_s > 0 ? ordered_json(n.bandwidth_bytes_per_s) : ordered_json()}});
  for (const exec::PciDevice& d : machine.accelerators)
    accelerators.push_back({{"pci", d.address},
                            {"vendor", d.vendor},
                            {"name", d.name},
                            {"vendor_id", d.vendor_id},
                            {"device_id", d.device_id}});
  for (const exec::Gpu& g : gpus.gpus) cards.push_back(gpu_json(g));
  return {{"host", machine.host},
          {"system", machine.system},
          {"source", machine.tool},
          {"processor", processor_json(machine.processor)},
          {"caches", std::move(caches)},
          {"numa", std::move(numa)},
          {"memory_bytes", machine.memory_bytes.value},
          {"memory_source", machine.memory_bytes.source},
          {"networks", std::move(networks)},
          {"pci_accelerators", std::move(accelerators)},
          {"gpus", std::move(cards)},
          {"gpu_reason", gpus.reason},
          {"cuda_driver", gpus.cuda_driver},
          {"nvml_driver", gpus.nvml_driver}};
}

std::string machine_text(const exec::MachineDescription& machine, const exec::GpuReport& gpus,
                         const reports::TableStyle& style) {
  const exec::Processor& p = machine.processor;
  reports::Table table;
  table.title = machine.host + ", " + machine.system;
  table.columns = {{"what", Align::left}, {"found", Align::left}, {"from", Align::left}};
  const auto row = [&](const std::string& what, const std::string& found, const std::string& from) {
    table.rows.push_back({what, found, from});
  };
  row("processor",
      fmt::format("{}: {}, {}, {}", p.model, base::count_of(p.packages, "package"), base::count_of(p.cores, "core"),
                  base::count_of(p.threads, "thread")),
      machine.tool);
  row("clock", fmt::format("{:.4g} GHz", p.clock_hz.value * 1e-9), p.clock_hz.source);
  row("peak of a core", base::human(base::FlopsPerSecond{exec::core_peak(p)}) + " fp32",
      fmt::format("clock x {:.0f} ({}: {})", p.flop_per_cycle.value, p.vector, p.flop_per_cycle.source));
  for (const exec::CacheLevel& c : machine.caches)
    row(fmt::format("L{} cache", c.level),
        fmt::format("{} x {}, one for {}", c.count, bytes_text(static_cast<double>(c.bytes)),
                    base::count_of(c.cores, "core")),
        machine.tool);
  row("memory",
      fmt::format("{}, {}", bytes_text(machine.memory_bytes.value),
                  base::count_of(std::ssize(machine.numa), "NUMA node")),
      machine.memory_bytes.source);
  for (const exec::NetworkInterface& n : machine.networks)
    row("network", fmt::format("{} ({}), {}", n.name, n.kind, rate_text(n.bandwidth_bytes_per_s)), machine.tool);
  for (const exec::PciDevice& d : machine.accelerators)
    row("PCI accelerator", fmt::format("{} {} {}", d.address, d.vendor, d.name), machine.tool);
  for (const exec::Gpu& g : gpus.gpus)
    row(fmt::format("GPU {}", g.index),
        fmt::format("{}, {}, {} multiprocessors", g.name, bytes_text(static_cast<double>(g.memory_bytes)),
                    g.multiprocessors),
        "CUDA driver " + gpus.cuda_driver);
  if (gpus.gpus.empty()) row("GPUs", "none", gpus.reason);
  return reports::text_of(table, style);
}

ordered_json measured_json(const exec::Measured& measured, const cost::FitResult& fit) {
  ordered_json operators = ordered_json::array(), workloads = ordered_json::array(), memory = ordered_json::array(),
               messages = ordered_json::array(), copies = ordered_json::array(), parameters = ordered_json::array();
  for (const exec::WorkloadTimes& w : measured.workloads) {
    const auto known = [](double seconds) { return seconds > 0 ? ordered_json(seconds) : ordered_json(); };
    workloads.push_back({{"name", w.name},
                         {"pass_s", w.pass_s},
                         {"pass_together_s", known(w.pass_together_s)},
                         {"pass_slowest_s", known(w.pass_slowest_s)}});
    for (const exec::OpTime& one : w.ops) operators.push_back(op_json(one, w.name));
  }
  for (const exec::StreamTime& one : measured.streams)
    memory.push_back({{"operation", one.operation},
                      {"bytes", one.bytes},
                      {"cores", one.ranks},
                      {"bandwidth_bytes_per_s", one.bytes_per_s}});
  for (const exec::MessageTime& one : measured.messages)
    messages.push_back({{"operation", exec::name_of(one.at.kind)},
                        {"ranks", one.at.ranks},
                        {"bytes", one.at.bytes},
                        {"in_place", one.at.in_place},
                        {"seconds", one.seconds}});
  for (const exec::CopyTime& one : measured.copies)
    copies.push_back({{"to_host", one.to_host}, {"ranks", one.ranks}, {"bytes", one.bytes}, {"seconds", one.seconds}});
  for (const cost::FittedParameter& p : fit.parameters)
    parameters.push_back(
        {{"name", p.name}, {"before", p.before}, {"after", p.after}, {"unit", p.unit}, {"source", p.source}});
  return {{"backend", measured.backend},
          {"device", measured.device},
          {"ranks", measured.ranks},
          {"threads", measured.threads},
          {"oversubscribed", measured.oversubscribed},
          {"seconds", measured.seconds},
          {"workloads", std::move(workloads)},
          {"operators", std::move(operators)},
          {"memory", std::move(memory)},
          {"messages", std::move(messages)},
          {"copies", std::move(copies)},
          {"parameters", std::move(parameters)},
          {"error_before", fit.error_before},
          {"error_after", fit.error_after}};
}

std::string measured_text(const exec::Measured& measured, const cost::FitResult& fit,
                          const reports::TableStyle& style) {
  std::string out = fmt::format("\nMeasured in {:.0f} s on {}: {}\n\n", measured.seconds,
                                base::count_of(measured.ranks, "rank"), measured.device);
  for (const reports::Table& table :
       {matmul_table(measured), streams_table(measured), messages_table(measured), copies_table(measured)})
    if (!table.rows.empty()) out += reports::text_of(table, style) + "\n";
  return out + reports::fit_text(fit, style);
}

}  // namespace orrery::apps
