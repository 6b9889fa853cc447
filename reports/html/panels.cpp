/// Rows of the data of panels.
#include "reports/html/panels.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace orrery::reports::html {

json panel_row(std::size_t place, std::size_t count, const std::string& title) {
  const std::size_t most = count == 3 || count > 4 ? 42 : 64;  // three stand side by side, or two
  const std::string shown = title.size() <= most ? title : title.substr(0, most - 4) + " ...";
  constexpr std::size_t kOneLine = 44;  // of a narrow page
  const std::size_t half = title.size() > kOneLine ? title.find(' ', title.size() / 2) : title.npos;
  json lines = half == title.npos ? json::array({title}) : json::array({title.substr(0, half), title.substr(half + 1)});
  return {{"place", place}, {"title", shown}, {"lines", std::move(lines)}};
}

}  // namespace orrery::reports::html
