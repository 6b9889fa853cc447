/// The network as tiers, with links as wide as their load.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "reports/html/chart_template.h"
#include "reports/html/plan_charts.h"

namespace orrery::reports::html {
namespace {

using clusters::VertexKind;

/// Position of a tier: across as a share of the width, and its level above the devices.
struct Place {
  double across = 0.5;
  int level = 0;
};
Place place_of(VertexKind kind) {
  switch (kind) {
    case VertexKind::device: return {0.5, 0};
    case VertexKind::nvswitch: return {0.18, 1};
    case VertexKind::pcie_switch: return {0.5, 1};
    case VertexKind::cpu: return {0.82, 2};
    case VertexKind::nic: return {0.5, 3};
    case VertexKind::leaf: return {0.5, 4};
    case VertexKind::spine: return {0.5, 5};
    case VertexKind::core: return {0.5, 6};
    case VertexKind::host_memory:
    case VertexKind::nvme: return {0.82, 1};
  }
  return {};
}

std::string use_text(const TierLinks& one) {
  if (!one.load) return one.name;
  return fmt::format("{} {}", one.name, percent(one.load->peak_utilisation));
}

}  // namespace

Chart topology_chart(const Topology& topology, const std::string& cluster) {
  constexpr int kPitch = 62;
  constexpr double kWidest = 14;  // pixels, of a fully loaded link
  Chart chart;
  chart.title = "Topology with the load of its links";
  chart.text = fmt::format(
      "{}: equal parts are one box, equal links one line, whose width is the load of the busiest link of its kind. "
      "Figures for a kind cover all its links together. Grey lines carry nothing.",
      cluster);
  std::map<int, int> levels;  // without gaps between the levels that occur
  for (const auto& [kind, count] : topology.tiers) levels[place_of(kind).level] = 0;
  int next = 0;
  for (auto& [level, row] : levels) row = next++;
  const int height = kPitch * std::max(1, next);
  const auto y_of = [&](VertexKind kind) { return height - kPitch / 2 - kPitch * levels[place_of(kind).level]; };
  json boxes = json::array(), lines = json::array();
  for (const auto& [kind, count] : topology.tiers) {
    std::string within;
    for (const TierLinks& one : topology.links)
      if (one.from == kind && one.to == kind) within += (within.empty() ? "" : ", ") + use_text(one);
    boxes.push_back({{"x", place_of(kind).across},
                     {"y", y_of(kind)},
                     {"text", fmt::format("{} {}", number(static_cast<double>(count)), clusters::name_of(kind))},
                     {"within", within}});
    chart.description += fmt::format("{} {}. ", number(static_cast<double>(count)), clusters::name_of(kind));
  }
  for (const TierLinks& one : topology.links) {
    const std::string load = one.load ? fmt::format("mean {}, busiest {}", percent(one.load->mean_utilisation),
                                                    percent(one.load->peak_utilisation))
                                      : "no load";
    chart.description +=
        fmt::format("{} to {} by {}: {}. ", clusters::name_of(one.from), clusters::name_of(one.to), one.name, load);
    if (one.from == one.to) continue;
    // Beside the middle of an upright line, on that of a slanted one; of one that passes a tier, above the tier's box.
    const double slant = place_of(one.to).across - place_of(one.from).across;
    const double along = levels[place_of(one.to).level] - levels[place_of(one.from).level] > 1 ? 0.75 : 0.5;
    const double share = one.load ? std::min(1.0, one.load->peak_utilisation) : 0;
    lines.push_back({{"x", place_of(one.from).across},
                     {"y", y_of(one.from)},
                     {"x2", place_of(one.to).across},
                     {"y2", y_of(one.to)},
                     {"w", 1.5 + kWidest * share},
                     {"c", one.load ? "var(--communication)" : "var(--axis)"},
                     {"text", use_text(one)},
                     {"tw", label_width({use_text(one)}) - 8},
                     {"ty", y_of(one.from) + along * (y_of(one.to) - y_of(one.from))},
                     {"at", along},
                     {"dx", slant == 0 ? 10 : 0},
                     {"align", slant == 0 ? "left" : "center"},
                     {"tip", fmt::format("{} x {}, {} each\n{}", number(static_cast<double>(one.count)), one.name,
                                         base::human(base::BytesPerSecond{one.bandwidth}), load)}});
  }
  chart.spec = chart_spec("topology", {{"lines", std::move(lines)}, {"boxes", std::move(boxes)}}, {{"height", height}});
  chart.data = {topology_table(topology)};
  return chart;
}

}  // namespace orrery::reports::html
