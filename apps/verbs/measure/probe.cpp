// probe: describes this machine, measures it on request, and writes cluster and calibration files.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/interrupt.h"
#include "apps/verbs/measure/probe_output.h"
#include "apps/verbs/verb.h"
#include "base/ensure.h"
#include "base/units.h"
#include "clusters/import/known.h"
#include "clusters/read.h"
#include "cost/fit/probe_fit.h"
#include "exec/probe/capabilities.h"
#include "exec/probe/cluster_file.h"
#include "exec/probe/measure.h"
#include "exec/run/measured.h"

namespace orrery::apps {
namespace {

struct ProbeOptions {
  std::string output;  ///< cluster file to write
  bool measure = false;
  int ranks = 0;                ///< 0: one per core
  std::string calibration;      ///< calibration file to write
  std::string backend = "cpu";  ///< or "cuda": what to measure
  std::string cluster;          ///< of a measurement of GPUs: the machine, by name or file
  std::string events;           ///< output of a worker's probe, to use instead of measuring here
};

std::string today() {
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
}

/// Share of a rank's memory that a measurement may use.
constexpr double kMemoryShare = 0.25;

exec::MeasureCommand command_for(const exec::MachineDescription& machine, int ranks) {
  constexpr double kMostWorkload = 1 << 30, kMostStream = 512 << 20, kLeastStream = 16 << 20;
  exec::MeasureCommand command;
  command.worker = program_folder() / "orrery-worker";
  command.ranks = ranks;
  const double share = kMemoryShare * machine.memory_bytes.value / machine.processor.cores;
  command.most_bytes = static_cast<std::int64_t>(std::min(kMostWorkload, share));
  // Two arrays, together twice what the last cache gives each rank, if the memory allows it.
  const double cache = machine.caches.empty() ? 0 : static_cast<double>(machine.caches.back().bytes);
  const double wanted = std::clamp(cache, kLeastStream, kMostStream);
  command.stream_bytes = static_cast<std::int64_t>(std::min(wanted, share / 2));
  return command;
}

double bandwidth_of(const exec::Measured& measured, bool all) {
  const int ranks = all ? measured.ranks : 1;
  for (const exec::StreamTime& one : measured.streams)
    if (one.operation == "accumulate_into" && one.ranks == ranks) return one.bytes_per_s;
  return 0;
}

exec::MeasuredMemory memory_of(const exec::Measured& measured) {
  exec::MeasuredMemory out;
  out.date = today();
  out.one_core_bytes_per_s = bandwidth_of(measured, false);
  out.all_cores_bytes_per_s = bandwidth_of(measured, true);
  for (const exec::MessageTime& one : measured.messages) {
    if (one.at.kind != exec::MessageKind::send || one.seconds <= 0) continue;
    if (out.message_latency_s == 0) out.message_latency_s = one.seconds;  // the smallest message comes first
    out.message_bytes_per_s = static_cast<double>(one.at.bytes) / one.seconds;
  }
  return out;
}

plan::CollectiveKind collective_of(exec::MessageKind kind) {
  switch (kind) {
    case exec::MessageKind::all_reduce: return plan::CollectiveKind::all_reduce;
    case exec::MessageKind::all_gather: return plan::CollectiveKind::all_gather;
    case exec::MessageKind::reduce_scatter: return plan::CollectiveKind::reduce_scatter;
    case exec::MessageKind::send: break;
  }
  return plan::CollectiveKind::all_reduce;
}

/// Converts exec's records to cost's.
cost::Probed probed_of(const exec::Measured& measured) {
  cost::Probed out;
  std::vector<double> neighbours, jitters;
  for (std::size_t i = 0; i < measured.workloads.size(); ++i) {
    const exec::WorkloadTimes& w = measured.workloads[i];
    for (const exec::OpTime& one : w.ops)
      out.operators.push_back({static_cast<int>(i), one.op, one.count, one.seconds});
    constexpr std::size_t kLayers = 8;  // workloads of whole layers, as training runs them, have more operators
    if (w.ops.size() <= kLayers || w.pass_together_s <= 0 || w.pass_s <= 0) continue;
    neighbours.push_back(w.pass_together_s / w.pass_s - 1);
    jitters.push_back(w.pass_slowest_s / w.pass_together_s - 1);
  }
  if (!neighbours.empty()) {
    out.neighbour_slowdown = std::max(0.0, exec::median(neighbours));
    out.rank_jitter = std::max(0.0, exec::median(jitters));
  }
  for (const exec::MessageTime& one : measured.messages)
    out.messages.push_back({one.at.kind == exec::MessageKind::send, collective_of(one.at.kind), one.at.ranks,
                            static_cast<double>(one.at.bytes), one.seconds});
  for (const exec::CopyTime& one : measured.copies)
    out.copies.push_back({one.to_host, static_cast<double>(one.bytes), one.seconds});
  return out;
}

/// GPUs: all workloads together take a share of the smallest GPU memory; arrays are far larger than its cache.
exec::MeasureCommand command_for(const exec::GpuReport& gpus, int ranks) {
  constexpr double kMostWorkload = 4.0 * (1 << 30), kShare = 1.0 / 16;
  constexpr std::int64_t kStream = std::int64_t{512} << 20;
  exec::MeasureCommand command;
  command.worker = program_folder() / "orrery-worker";
  command.backend = "cuda";
  command.ranks = ranks;
  double least = kMostWorkload / kShare;
  for (const exec::Gpu& gpu : gpus.gpus) least = std::min(least, static_cast<double>(gpu.memory_bytes));
  command.most_bytes = static_cast<std::int64_t>(kShare * least);
  command.stream_bytes = kStream;
  return command;
}

/// Why nothing was measured.
Outcome not_measured(const exec::MeasureOutcome& outcome) {
  Outcome out;
  out.exit_code = outcome.end == exec::MeasureEnd::stopped       ? kInterrupted
                  : outcome.end == exec::MeasureEnd::not_started ? kMissing
                                                                 : kFailure;
  if (out.exit_code != kInterrupted)
    out.diagnostics.push_back({base::Severity::error, "R0007", {}, outcome.reason, outcome.error_tail, {}});
  return out;
}

struct Fit {
  cost::FitResult result;
  std::string calibration;  ///< contents of the file
};

base::Result<Fit> fitted(const exec::Measured& measured, const clusters::Cluster& cluster, const Context& context,
                         const std::string& file) {
  // A measurement of GPUs is one of this executor, whatever other stack such machines run.
  const auto stack = load_stack(context.catalog, measured.backend == "cuda" ? "orrery-cuda" : cluster.stack, {});
  if (!stack) return base::fail(stack.error());
  const cost::Pricing before(std::make_shared<const clusters::Cluster>(cluster), *stack);
  cost::FitOptions options;
  options.date = today();
  options.name = file.empty() ? cluster.name : std::filesystem::path(file).stem().string();
  auto fit = cost::fit_probe(probed_of(measured), before, options);
  if (!fit) return base::fail(fit.error());
  return Fit{std::move(fit->result), cost::write_calibration(fit->calibration)};
}

/// What the flags ask for but cannot have. At most `most` ranks: cores, or GPUs.
std::optional<Outcome> refused(const ProbeOptions& options, int most) {
  const bool gpu = options.backend == "cuda", fits = options.measure || !options.events.empty();
  if (!options.calibration.empty() && !fits)
    return usage("--calibration needs --measure or --events: without them there is nothing to calibrate from",
                 "add --measure");
  if (!options.cluster.empty() && !fits)
    return usage("--cluster says what was measured: it needs --measure or --events", "add --measure");
  if (fits && (gpu || !options.events.empty()) && options.cluster.empty())
    return usage("--cluster is needed: only this machine's CPU ranks can be measured without it",
                 "give --cluster hgx-h200, say, or the file that `orrery import` makes from the machine's topology");
  if (!options.output.empty() && !options.cluster.empty())
    return usage("-o writes a cluster of this machine's CPU ranks, but --cluster names another",
                 "leave one of them out; `orrery import` makes cluster files of GPU machines");
  if (options.events.empty() && options.ranks > most)
    return usage(
        fmt::format("--ranks {}: this process may use only {}, and ranks that share one would measure how it is shared",
                    options.ranks, base::count_of(most, gpu ? "GPU" : "core")),
        fmt::format("give at most --ranks {}", most));
  return std::nullopt;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Why `measured` cannot come from `cluster`.
std::optional<Outcome> mistaken(const exec::Measured& measured, const clusters::Cluster& cluster,
                                const Context& context) {
  const bool gpu = measured.backend == "cuda";
  const clusters::DeviceKind kind = cluster.device().kind;
  if (gpu != (kind != clusters::DeviceKind::cpu))
    return usage(fmt::format("the measurement ran on the {} backend, but {} is a cluster of {}s", measured.backend,
                             cluster.name, gpu ? "CPU rank" : clusters::word_for(kind)),
                 "name the machine that was measured with --cluster");
  if (!gpu) return std::nullopt;
  const auto known = load_known(context.catalog);
  if (!known) return bad_input(known.error());
  const clusters::KnownGpu* found = clusters::gpu_called(*known, measured.device);
  if (found != nullptr && lower(found->device) != lower(cluster.device().name))
    return usage(fmt::format("the measured device is a {} ({}), but {} has {}", measured.device, found->device,
                             cluster.name, cluster.device().name),
                 "name the machine that was measured with --cluster");
  return std::nullopt;
}

/// Fails before a minute is spent measuring.
void check_writable(const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  const std::filesystem::path target(path), folder = target.has_parent_path() ? target.parent_path() : ".";
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::exists(target, error)) {
    write_file(path, "");
    std::filesystem::remove(target, error);
  } else if (std::filesystem::is_directory(target, error)) {
    write_file(path, "");
  }
}

Outcome run_probe(const ProbeOptions& options, const Context& context) {
  const exec::MachineDescription machine = exec::describe_machine();
  const exec::GpuReport gpus = exec::find_gpus();
  const bool gpu = options.backend == "cuda";
  const int cores = std::min(machine.processor.cores, exec::usable_cores());
  const int most = gpu ? static_cast<int>(gpus.gpus.size()) : cores;
  if (gpu && options.measure && most == 0)
    return not_measured({exec::MeasureEnd::not_started, "there is no GPU to measure: " + gpus.reason, {}, {}});
  if (auto refusal = refused(options, most)) return *refusal;
  std::optional<clusters::Cluster> cluster;
  if (!options.cluster.empty()) {
    auto named = load_cluster(context.catalog, options.cluster, {}, ".");
    if (!named) return bad_input(named.error());
    cluster = std::move(*named);
  }
  exec::ClusterFileOptions file;
  file.ranks = options.ranks > 0 ? options.ranks : most;
  file.name = options.output.empty() ? machine.host : std::filesystem::path(options.output).stem().string();
  if (!context.outputs.dry_run()) {
    check_writable(options.output);
    check_writable(options.calibration);
  }

  Outcome outcome;
  nlohmann::ordered_json result = {{"machine", machine_json(machine, gpus)}, {"measured", nullptr}};
  if (options.events.empty()) outcome.text = machine_text(machine, gpus, context.terminal.style);
  exec::MeasureOutcome measured;
  if (!options.events.empty()) {
    const auto text = read_argument(options.events);
    if (!text) return bad_input(text.error());
    measured = exec::read_measurement(*text);
  } else if (options.measure && context.outputs.dry_run()) {
    outcome.text += fmt::format("\nWould measure on {}, for under a minute.\n", base::count_of(file.ranks, "rank"));
  } else if (options.measure) {
    Progress progress(context.terminal.progress);
    const Interrupt interrupt;
    measured = exec::measure(
        gpu ? command_for(gpus, file.ranks) : command_for(machine, file.ranks),
        [&](const std::string& what, double share) { progress.line(fmt::format("{} {}", bar(share, 24), what)); },
        &Interrupt::requested());
    progress.clear();
  }
  const bool fits = (options.measure && !context.outputs.dry_run()) || !options.events.empty();
  if (fits && measured.end != exec::MeasureEnd::completed) return not_measured(measured);
  if (!cluster) {
    if (fits && options.measure) file.measured = memory_of(measured.measured);
    const std::string text = exec::cluster_file(machine, file);
    auto written = clusters::parse_cluster(text, "cluster", {});
    ENSURE(written.has_value(), "the cluster file of this machine does not read back:\n{}",
           base::render(written.error(), false));
    cluster = std::move(*written);
    if (!options.output.empty()) context.outputs.write(options.output, text);
  }
  if (fits) {
    if (auto mistake = mistaken(measured.measured, *cluster, context)) return *mistake;
    const auto fit = fitted(measured.measured, *cluster, context, options.calibration);
    if (!fit) return bad_input(fit.error());
    result["measured"] = measured_json(measured.measured, fit->result);
    outcome.text += measured_text(measured.measured, fit->result, context.terminal.style);
    if (!options.calibration.empty()) context.outputs.write(options.calibration, fit->calibration);
  }
  result["ranks"] = fits ? measured.measured.ranks : file.ranks;
  result["cluster"] = options.output.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(options.output);
  result["calibration"] =
      options.calibration.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(options.calibration);
  outcome.json = result.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (!options.output.empty())
    outcome.text += fmt::format("\n{} {}    next: `cluster: {}` in a job\n", context.outputs.wrote(), options.output,
                                options.output);
  if (!options.calibration.empty())
    outcome.text += fmt::format("{} {}    next: orrery simulate PLAN --calibration {}\n", context.outputs.wrote(),
                                options.calibration, options.calibration);
  return outcome;
}

void add_probe_flags(Flags flags, ProbeOptions& o) {
  flags.option("-o,--output", o.output, "File to write, with a cluster of this machine's CPU ranks")
      .value("CLUSTER.yaml");
  const Flag measure = flags.flag("--measure", o.measure, "Time operators, memory and messages; takes under a minute");
  flags.option("--ranks", o.ranks, "Ranks, one core each; default: every core").range(1, 1 << 16).value("N");
  flags.option("--calibration", o.calibration, "Calibration file to write; needs --measure or --events").value("FILE");
  flags.option("--backend", o.backend, "What to measure: cpu (default) or cuda").one_of({"cpu", "cuda"}).value("NAME");
  flags.option("--cluster", o.cluster, "The machine that is measured, unless it is this machine's CPU ranks")
      .value("NAME|FILE");
  flags.option("--events", o.events, "Fit what a worker's --probe has printed on another machine")
      .excludes(measure)
      .value("FILE");
}

}  // namespace

Verb probe_verb() {
  return verb_of<ProbeOptions>({
      .name = "probe",
      .says = "Describe this machine, and measure it",
      .examples = "  orrery probe --measure -o here.yaml --calibration here-calibration.yaml",
      .flags = add_probe_flags,
      .run = run_probe,
      .outputs = [](const ProbeOptions& o) -> std::vector<OutputFile> {
        return {{o.output, FileKind::cluster}, {o.calibration, FileKind::calibration}};
      },
      .inputs = [](const ProbeOptions& o) -> std::vector<std::string> {
        return {o.events, o.cluster};
      },
  });
}

}  // namespace orrery::apps
