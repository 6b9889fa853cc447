#pragma once
/// Pieces of the page: escaping, tables, style and the script that joins the charting library.
#include <string>
#include <string_view>

#include "reports/html/chart.h"
#include "reports/report.h"

namespace orrery::reports::html {

/// Text for an element or a quoted attribute.
[[nodiscard]] std::string escaped(std::string_view text);
/// Text for an element: escaped, and what stands between backticks as code.
[[nodiscard]] std::string marked(std::string_view text);
/// The same of sentences, in which numbers are kept beside their units.
[[nodiscard]] std::string prose(std::string_view text);
/// JSON that is safe inside a <script> element: no "<".
[[nodiscard]] std::string embedded(std::string_view text);
/// One figure of the row at the top of a page.
[[nodiscard]] std::string tile(const std::string& name, const std::string& value, const std::string& note);
[[nodiscard]] std::string table_html(const Table& table);
/// A <figure>: heading, text, legend, place of the drawing, specification and the tables behind it. `number` makes ids
/// unique. Without the library only the tables are shown, opened.
[[nodiscard]] std::string figure_html(const Chart& chart, int number, bool drawn);
[[nodiscard]] const char* style();
/// The library's modules joined (they are CommonJS modules that name each other), then one View per specification.
[[nodiscard]] std::string script(const ChartLibrary& library);

/// The whole page around a body: head, heading, a leading sentence, and with the library the script that draws.
[[nodiscard]] std::string page_html(const std::string& title, const std::string& lead, const std::string& body,
                                    const ChartLibrary& library);

}  // namespace orrery::reports::html
