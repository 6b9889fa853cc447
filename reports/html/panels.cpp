/// Rows of the data of panels.
#include "reports/html/panels.h"

#include <nlohmann/json.hpp>

namespace orrery::reports::html {

json panel_row(std::size_t place, std::size_t count, const std::string& title) {
  const std::size_t most = count == 3 || count > 4 ? 42 : 64;  // three stand side by side, or two
  return {{"place", place}, {"title", title.size() <= most ? title : title.substr(0, most - 4) + " ..."}};
}

}  // namespace orrery::reports::html
