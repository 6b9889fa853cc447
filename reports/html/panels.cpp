/// Layout of panels.
#include "reports/html/panels.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace orrery::reports::html {
namespace {

constexpr int kBetweenRows = 78, kLeast = 76;  // pixels
constexpr int kNarrowest = 190;                // pixels of a panel: below, fewer stand side by side
constexpr int kTop = 34, kTopUntitled = 12;
constexpr std::size_t kMostColumns = 3;

std::string shortened(const std::string& title, std::size_t columns) {
  const std::size_t most = columns > 2 ? 42 : 64;
  return title.size() <= most ? title : title.substr(0, most - 4) + " ...";
}

}  // namespace

Panels::Panels(std::size_t panels, int of_height, int labels)
    : count(panels),
      columns(panels == 4 ? 2 : std::clamp(panels, std::size_t{1}, kMostColumns)),
      height(of_height),
      left(std::max(kLeast, labels)) {}

json panels_spec(const Panels& panels) {
  json spec = base_spec(panels.height, {panels.left, 20, kTop, 48});
  spec.erase("height");
  const auto signal = [&](const char* name, const std::string& update) {
    spec["signals"].push_back({{"name", name}, {"update", update}});
  };
  signal("gap", fmt::format("{}", panels.left));
  signal("columns", fmt::format("clamp(floor((width + gap) / (gap + {})), 1, {})", kNarrowest, panels.columns));
  signal("panel", "(width - gap * (columns - 1)) / columns");
  signal("height",
         fmt::format("ceil({} / columns) * {} - {}", panels.count, panels.height + kBetweenRows, kBetweenRows));
  return spec;
}

json& add_panel(json& spec, const Panels& panels, const std::string& title) {
  const std::size_t place = spec["marks"].size();
  if (title.empty()) spec["padding"]["top"] = kTopUntitled;
  json group = {{"type", "group"}, {"scales", json::array()}, {"axes", json::array()}, {"marks", json::array()}};
  group["title"] = {
      {"text", shortened(title, panels.columns)}, {"frame", "group"}, {"fontSize", panels.columns > 2 ? 12 : 13}};
  group["encode"]["update"] = {
      {"x", {{"signal", fmt::format("(panel + gap) * ({} % columns)", place)}}},
      {"y", {{"signal", fmt::format("floor({} / columns) * {}", place, panels.height + kBetweenRows)}}},
      {"width", {{"signal", "panel"}}},
      {"height", {{"value", panels.height}}}};
  spec["marks"].push_back(std::move(group));
  return spec["marks"].back();
}

}  // namespace orrery::reports::html
