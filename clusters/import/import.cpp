/// Combines the dumps of one machine.
#include "clusters/import/import.h"

#include <utility>

#include "clusters/import/machine.h"
#include "clusters/import/xml.h"

namespace orrery::clusters {
namespace {

/// Reads the written text back, so that a cluster that cannot be used is refused here, not by the next command.
bool verify(Imported& out, const Machine& machine, const ImportContext& context) {
  out.yaml = write_cluster(out.cluster);
  auto again = parse_cluster(out.yaml, context.options.name + ".yaml", context.find);
  if (!again) {
    for (const base::Diagnostic& one : again.error())
      if (one.severity == base::Severity::error)
        context.findings.error(one.code.c_str(), machine.nodes.empty() ? base::Location{} : machine.nodes.front().where,
                               one.message, one.help);
    return false;
  }
  out.cluster = std::move(*again);
  return true;
}

}  // namespace

const char* name_of(DumpFormat format) {
  switch (format) {
    case DumpFormat::nccl: return "nccl";
    case DumpFormat::topo_matrix: return "topo";
    case DumpFormat::hwloc: return "hwloc";
    case DumpFormat::ibnetdiscover: return "ibnetdiscover";
  }
  return "?";
}

std::string source_line(std::string_view text, int line) {
  constexpr std::size_t kLongest = 240;
  const Lines lines(text, {});
  if (line < 1 || line > lines.count()) return {};
  return std::string(lines.line(line).substr(0, kLongest));
}

std::optional<DumpFormat> dump_format(std::string_view text) {
  const std::string_view root = xml_root(text);
  if (root == "system" || root == "graphs") return DumpFormat::nccl;
  if (root == "topology") return DumpFormat::hwloc;
  if (text.find("switchguid=") != std::string_view::npos || text.find("caguid=") != std::string_view::npos ||
      text.find("# Initiated from node") != std::string_view::npos)
    return DumpFormat::ibnetdiscover;
  if (text.find("GPU0") != std::string_view::npos) return DumpFormat::topo_matrix;
  return std::nullopt;
}

base::Result<Imported> import_cluster(const std::vector<Dump>& dumps, const ImportOptions& options, const Known& known,
                                      const Find& find) {
  ImportFindings findings;
  const ImportContext context{options, known, find, findings};
  Machine machine{read_evidence(dumps), {}};
  findings.begin(std::move(machine.evidence.found));
  Imported out;
  const bool made = !machine.evidence.failed && choose_node(machine, context) && choose_network(machine, context) &&
                    make_cluster(machine, context, out.cluster) && verify(out, machine, context);
  if (!made) return base::fail(findings.take());
  out.notes = findings.take();
  return out;
}

}  // namespace orrery::clusters
