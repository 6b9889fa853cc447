#pragma once
/// Charts as Vega specifications in files of their own, reports/html/charts/NAME.vg.json: what is drawn, and how,
/// stands there with a sample; C++ gives the rows of data sets and the values of signals, each by its name.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::reports::html {

/// A file of reports/html/charts/ as it was when this program was built.
struct ChartFile {
  std::string_view name;  ///< within the folder
  std::string_view text;
};
/// All of them, ordered by name (written by cmake/charts.cmake).
[[nodiscard]] const std::vector<ChartFile>& chart_files();

/// The specification of template `name` with the page's fonts and axes (charts/config.json), as text_of_spec has it.
/// `data`: rows by the name of a data set; `signals`: values by the name of a signal; both objects. Aborts if there is
/// no such template, if a name is not one of those with a sample (`values` of data, `value` of a signal), or if a
/// sample would stay: a template and its user cannot drift apart.
[[nodiscard]] std::string chart_spec(std::string_view name, const nlohmann::json& data, const nlohmann::json& signals);

}  // namespace orrery::reports::html
