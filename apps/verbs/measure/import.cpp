// import: turns dumps of real machines into a cluster file; other kinds of files go to their own sources.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/verbs/measure/import.h"
#include "base/units.h"
#include "clusters/import/import.h"
#include "cost/network/nccl_tests.h"
#include "reports/tables/table.h"

namespace orrery::apps {
namespace fs = std::filesystem;
namespace {

base::Diagnostic problem(const char* code, const std::string& file, std::string message, std::string help) {
  return {base::Severity::error, code, {file, 1, 1, 1}, std::move(message), std::move(help), {}};
}

std::optional<clusters::DumpFormat> format_called(const std::string& name) {
  using clusters::DumpFormat;
  for (const DumpFormat format :
       {DumpFormat::nccl, DumpFormat::topo_matrix, DumpFormat::hwloc, DumpFormat::ibnetdiscover})
    if (name == clusters::name_of(format)) return format;
  return std::nullopt;
}

/// The texts of all files, or an error for each that cannot be read.
base::Result<std::vector<std::string>> read_files(const std::vector<std::string>& files) {
  std::vector<std::string> texts;
  base::Diagnostics found;
  for (const std::string& file : files) {
    auto text = read_argument(file);
    if (text)
      texts.push_back(std::move(*text));
    else
      found.insert(found.end(), text.error().begin(), text.error().end());
  }
  if (!found.empty()) return base::fail(std::move(found));
  return texts;
}

/// The texts with their formats, or an error for each without one.
base::Result<std::vector<clusters::Dump>> dumps_of(const ImportOptions& options, std::vector<std::string> texts) {
  std::vector<clusters::Dump> dumps;
  base::Diagnostics found;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string& file = options.files[i];
    std::string& text = texts[i];
    const auto format = options.format.empty() ? clusters::dump_format(text) : format_called(options.format);
    if (format)
      dumps.push_back({std::move(text), file, *format});
    else if (cost::is_nccl_test(text))
      found.push_back(problem("E0310", file, "a log of nccl-tests among dumps of topologies",
                              "import the cluster first, then the logs with --cluster"));
    else
      found.push_back(problem("E0301", file, text.empty() ? "the file is empty" : "the format of this file is unknown",
                              "known are NCCL's topology XML, hwloc's XML (lstopo --of xml), and the output of "
                              "`nvidia-smi topo -m`, ibnetdiscover and nccl-tests; --format names one. Of runs: "
                              "launch scripts with Megatron-LM's flags, DeepSpeed's JSON, torchtitan's TOML, "
                              "NeMo's and GPT-NeoX's YAML"));
  }
  if (!found.empty()) return base::fail(std::move(found));
  return dumps;
}

constexpr std::size_t kLongestLine = 240;  // as shown; a dump may be one line of megabytes

/// Adds to each diagnostic the line that it points at, if it has none yet.
base::Diagnostics with_source_lines(base::Diagnostics all, const std::vector<clusters::Dump>& dumps) {
  for (base::Diagnostic& one : all) {
    if (!one.source_line.empty() || one.where.line < 1) continue;
    for (const clusters::Dump& dump : dumps)
      if (dump.file == one.where.file) {
        std::string line = clusters::source_line(dump.text, one.where.line);
        if (line.size() > kLongestLine) line = line.substr(0, kLongestLine) + "...";
        if (one.where.column <= static_cast<int>(line.size()) + 1) one.source_line = std::move(line);
      }
  }
  return all;
}

std::string summary(const clusters::Imported& imported, const std::vector<clusters::Dump>& dumps,
                    const reports::TableStyle& style) {
  const clusters::Cluster& cluster = imported.cluster;
  reports::Table table;
  table.title = cluster.name;
  table.columns = {{"", reports::Align::left}, {"", reports::Align::left}};
  const auto row = [&](const char* name, std::string value) { table.rows.push_back({name, std::move(value)}); };
  for (const clusters::Dump& dump : dumps)
    row("read", fmt::format("{} ({})", dump.file, clusters::name_of(dump.format)));
  row("device", cluster.device().name);
  row("devices", fmt::format("{} on {}", cluster.size(), base::count_of(cluster.nodes, "node")));
  row("within a node", fmt::format("{}, {} a device", cluster.intra.name, base::human(cluster.intra.bandwidth)));
  if (cluster.nodes > 1)
    row("between nodes", fmt::format("{}, {} a device", cluster.inter.name, base::human(cluster.inter.bandwidth)));
  row("written", cluster.shape ? "as a regular cluster" : "link by link");
  return reports::text_of(table, style);
}

nlohmann::json result_json(const clusters::Imported& imported, const std::vector<clusters::Dump>& dumps,
                           const std::string& path) {
  const clusters::Cluster& cluster = imported.cluster;
  nlohmann::json inputs = nlohmann::json::array();
  for (const clusters::Dump& dump : dumps)
    inputs.push_back({{"file", dump.file}, {"format", clusters::name_of(dump.format)}});
  return {{"inputs", std::move(inputs)},
          {"path", path.empty() ? nlohmann::json(nullptr) : nlohmann::json(path)},
          {"cluster", imported.yaml},
          {"name", cluster.name},
          {"device", cluster.device().name},
          {"nodes", cluster.nodes},
          {"devices_per_node", cluster.devices_per_node},
          {"nics_per_node", cluster.nics_per_node},
          {"form", cluster.shape ? "regular" : "links"},
          {"sources", cluster.sources}};
}

Outcome run_import(const ImportOptions& options, const Context& context) {
  if (!options.format.empty() && !format_called(options.format))
    return usage(fmt::format("unknown format `{}`", options.format), "known are nccl, topo, hwloc and ibnetdiscover");
  clusters::ImportOptions how;
  if (!options.nic_bandwidth.empty()) {
    std::string why;
    double value = 0;
    if (!base::parse_quantity(options.nic_bandwidth, base::UnitKind::bytes_per_second, value, why) || value <= 0)
      return usage(
          fmt::format("--nic-bandwidth `{}`: {}", options.nic_bandwidth, why.empty() ? "must be above 0" : why),
          "write it as '200 Gb/s'");
    how.nic_bandwidth = base::BytesPerSecond{value};
  }
  auto texts = read_files(options.files);
  if (!texts) return bad_input(texts.error());
  if (options.format.empty() && std::all_of(texts->begin(), texts->end(), cost::is_nccl_test))
    return import_nccl_tests(options, *texts, context);
  const bool dumps_alone = std::all_of(texts->begin(), texts->end(), [](const std::string& text) {
    return clusters::dump_format(text).has_value() || cost::is_nccl_test(text);
  });
  if (options.format.empty() && !dumps_alone)
    if (auto run = import_run(options, *texts, context)) return *std::move(run);
  const auto dumps = dumps_of(options, std::move(*texts));
  if (!dumps) return bad_input(dumps.error());
  const auto known = load_known(context.catalog);
  if (!known) return bad_input(known.error());
  const std::string& named = options.output.empty() || options.output == "-" ? options.files.front() : options.output;
  how.name = named == "-" ? "imported" : fs::path(named).stem().string();
  how.nodes = options.nodes;
  how.device = options.device;
  how.node = options.node;
  how.hosts = options.hosts;
  const clusters::Find find = [&](const std::string& name) -> std::optional<std::string> {
    if (auto entry = context.catalog.find(kClusters, name)) return std::move(entry->text);
    return std::nullopt;
  };
  auto imported = clusters::import_cluster(*dumps, how, *known, find);
  if (!imported) return bad_input(with_source_lines(imported.error(), *dumps));

  if (!options.output.empty())
    context.outputs.write(options.output, "# Written by `orrery import`.\n" + imported->yaml);
  Outcome outcome;
  outcome.diagnostics = with_source_lines(imported->notes, *dumps);
  outcome.json = result_json(*imported, *dumps, options.output).dump();
  if (options.output.empty())
    outcome.text = imported->yaml;
  else
    outcome.text = summary(*imported, *dumps, context.terminal.style) +
                   fmt::format("\n{} {}    next: name it in a job, cluster: {}\n", context.outputs.wrote(),
                               options.output, options.output);
  return outcome;
}

void add_import_flags(Flags flags, ImportOptions& o) {
  flags
      .option("FILE", o.files,
              "Launch script with Megatron-LM's flags, torchtitan's TOML, NeMo's or GPT-NeoX's YAML, or DeepSpeed's "
              "JSON with the "
              "model's config.json, for a plan; NCCL topology XML, output of `nvidia-smi topo -m`, hwloc XML, output "
              "of ibnetdiscover, for a cluster; logs of nccl-tests, for a calibration file")
      .required();
  flags.option("--format", o.format, "Format of all files; default: recognised by content")
      .value("nccl|topo|hwloc|ibnetdiscover");
  flags.option("--device", o.device, "Catalogue name of the GPUs, if the dump does not say").value("NAME");
  flags.option("--node", o.node, "Catalogue cluster whose nodes the fabric connects, if no dump describes a node")
      .value("NAME");
  flags.option("--nodes", o.nodes, "Number of nodes like the one described").range(1, 1 << 18).value("N");
  flags.option("--hosts", o.hosts, "Hosts of the fabric to use; * matches anything").value("PATTERN");
  flags.option("--nic-bandwidth", o.nic_bandwidth, "Bandwidth of one NIC, if the dump does not say")
      .value("'200 Gb/s'");
  flags.option("--cluster", o.cluster, "Cluster of the run, or on which the logs of nccl-tests were measured")
      .value("NAME|FILE");
  flags.option("--ranks", o.ranks, "GPUs of the run, if its files do not say").range(1, 1 << 24).value("N");
  flags.option("--model", o.model, "Model of the run, instead of what its files say").value("NAME|FILE");
  flags.option("--as", o.as, "What to write of a run; default: a plan").one_of({"plan", "job"}).value("plan|job");
  flags.option("--set", o.settings, "Of a run: a variable of its script, or a setting; may be repeated")
      .named_value()
      .one_each()
      .value("NAME=VALUE");
  flags.option("-o,--output", o.output, "File to write; default: stdout").value("FILE.yaml");
}

}  // namespace

Verb import_verb() {
  return verb_of<ImportOptions>({
      .name = "import",
      .says = "A plan from another framework's files, a cluster from dumps, a calibration from nccl-tests",
      .examples = "  orrery import train.sh --cluster hgx-h100 -o plan.yaml\n"
                  "  orrery import topology.xml fabric.txt -o cluster.yaml\n"
                  "  orrery import all_reduce.log --cluster hgx-h100 -o nccl.yaml",
      .flags = add_import_flags,
      .run = run_import,
      .outputs = [](const ImportOptions& o) -> std::vector<OutputFile> {
        if (is_run(o)) return run_outputs(o);
        return {{o.output, o.cluster.empty() ? FileKind::cluster : FileKind::calibration}};
      },
      .inputs = [](const ImportOptions& o) -> std::vector<std::string> {
        return all_of({o.files, {o.cluster, o.node, o.model}});
      },
  });
}

}  // namespace orrery::apps
