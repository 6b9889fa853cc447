/// Layout of panels.
#include "reports/html/panels.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace orrery::reports::html {
namespace {

constexpr int kBetweenRows = 78, kLeast = 76;  // pixels
constexpr std::size_t kTwoUpTo = 4;            // up to this many panels, two stand side by side

std::string shortened(const std::string& title, std::size_t columns) {
  const std::size_t most = columns > 2 ? 42 : 64;
  return title.size() <= most ? title : title.substr(0, most - 4) + " ...";
}

}  // namespace

Panels::Panels(std::size_t panels, int of_height, int labels)
    : count(panels),
      columns(panels <= 1          ? 1
              : panels <= kTwoUpTo ? 2
                                   : 3),
      height(of_height),
      left(std::max(kLeast, labels)) {}

json panels_spec(const Panels& panels) {
  const auto rows = static_cast<int>((panels.count + panels.columns - 1) / panels.columns);
  json spec = base_spec(rows * panels.height + (rows - 1) * kBetweenRows, {panels.left, 20, 34, 48});
  spec["signals"].push_back({{"name", "gap"}, {"value", panels.left}});
  spec["signals"].push_back(
      {{"name", "panel"}, {"update", fmt::format("(width - gap * {}) / {}", panels.columns - 1, panels.columns)}});
  return spec;
}

json& add_panel(json& spec, const Panels& panels, const std::string& title) {
  const std::size_t place = spec["marks"].size();
  const auto row = static_cast<int>(place / panels.columns);
  json group = {{"type", "group"}, {"scales", json::array()}, {"axes", json::array()}, {"marks", json::array()}};
  group["title"] = {
      {"text", shortened(title, panels.columns)}, {"frame", "group"}, {"fontSize", panels.columns > 2 ? 12 : 13}};
  group["encode"]["update"] = {{"x", {{"signal", fmt::format("(panel + gap) * {}", place % panels.columns)}}},
                               {"y", {{"value", row * (panels.height + kBetweenRows)}}},
                               {"width", {{"signal", "panel"}}},
                               {"height", {{"value", panels.height}}}};
  spec["marks"].push_back(std::move(group));
  return spec["marks"].back();
}

std::string text_of_spec(const json& spec) {
  return spec.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace orrery::reports::html
