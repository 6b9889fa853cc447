/// Pieces of the page that do not depend on what they show.
#include "reports/html/page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

namespace orrery::reports::html {
namespace {

/// A legend's key, drawn as the marks are.
std::string swatch(const LegendEntry& entry) {
  const std::string open = R"(<svg width="16" height="12" viewBox="0 0 16 12" aria-hidden="true">)";
  std::string shape;
  if (entry.shape == "dot") {
    shape = fmt::format(R"(<circle cx="8" cy="6" r="4.5" fill="{}"/>)", entry.colour);
  } else if (entry.shape == "ring") {
    shape = fmt::format(R"(<circle cx="8" cy="6" r="4" fill="none" stroke="{}" stroke-width="2"/>)", entry.colour);
  } else if (entry.shape == "band") {
    shape = fmt::format(R"(<rect x="1" y="0" width="14" height="12" rx="2" fill="{}" fill-opacity="{}"/>)",
                        entry.colour, kBandOpacity);
  } else if (entry.shape == "diamond") {
    shape = fmt::format(R"(<path d="M8 1L12.5 6L8 11L3.5 6Z" fill="{}"/>)", entry.colour);
  } else if (entry.shape == "tick") {
    shape = fmt::format(R"(<rect x="6.5" y="0" width="3" height="12" fill="{}"/>)", entry.colour);
  } else if (entry.shape == "dashed") {
    shape = fmt::format(R"(<path d="M0 6H16" stroke="{}" stroke-width="1.5" stroke-dasharray="5 3"/>)", entry.colour);
  } else {
    shape = fmt::format(R"(<rect x="1" y="0" width="14" height="12" rx="2" fill="{}"/>)", entry.colour);
  }
  return open + shape + "</svg>";
}

const char* class_of(Align align) {
  switch (align) {
    case Align::left: return "";
    case Align::right: return " class=\"n\"";
    case Align::bar: return " class=\"b\"";
  }
  return "";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

namespace {

/// Text with what stands between backticks as code; the rest is shown as `plain` makes it.
template <class Plain>
std::string with_code(std::string_view text, const Plain& plain) {
  std::string out;
  for (;;) {
    const std::size_t open = text.find('`');
    const std::size_t close = open == text.npos ? text.npos : text.find('`', open + 1);
    if (close == text.npos) return out + escaped(plain(text));
    out +=
        escaped(plain(text.substr(0, open))) + "<code>" + escaped(text.substr(open + 1, close - open - 1)) + "</code>";
    text.remove_prefix(close + 1);
  }
}

}  // namespace

std::string marked(std::string_view text) {
  return with_code(text, [](std::string_view part) { return part; });
}

std::string prose(std::string_view text) {
  return with_code(text, [](std::string_view part) { return unbroken(part); });
}

std::string embedded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      out += "\\u003c";  // "<" occurs only inside strings
    } else {
      out += c;
    }
  }
  return out;
}

std::string tile(const std::string& name, const std::string& value, const std::string& note) {
  return fmt::format(
      "<li><span class=\"name\">{}</span><span class=\"value\">{}</span><span class=\"note\">{}</span></li>\n",
      escaped(name), escaped(value), escaped(unbroken(note)));
}

namespace {

/// Whether the last column has text that must be broken into lines: then it gets a width that needs few lines.
bool has_long_end(const Table& table) {
  constexpr std::size_t kLong = 32;  // columns; a plan in letters is shorter
  return !table.columns.empty() && table.columns.back().align == Align::left &&
         std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) {
           return row.size() == table.columns.size() && display_width(row.back()) > kLong;
         });
}

/// `pins`: adds a first column of boxes that pin rows to the plot of that number; 0: none.
std::string table_with_pins(const Table& table, int pins) {
  std::string out = "<div class=\"scroll\"><table>";
  if (!table.title.empty()) out += "<caption>" + escaped(table.title) + "</caption>";
  const bool headed =
      std::any_of(table.columns.begin(), table.columns.end(), [](const Column& c) { return !c.head.empty(); });
  if (headed) {
    out += pins > 0 ? "<thead><tr><th scope=\"col\">pin</th>" : "<thead><tr>";
    for (const Column& column : table.columns)
      out += fmt::format("<th scope=\"col\"{}>{}</th>", class_of(column.align), escaped(column.head));
    out += "</tr></thead>";
  }
  out += "<tbody>\n";
  const bool broken = has_long_end(table);
  std::size_t number = 0;
  for (const auto& row : table.rows) {
    out += "<tr>";
    if (pins > 0) {
      out += fmt::format("<td><input type=\"checkbox\" class=\"pin\" value=\"{}\" aria-label=\"pin row {}\"></td>",
                         number, number + 1);
      ++number;
    }
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Align align = table.columns[i].align;
      if (align == Align::bar) {
        const double fraction = std::clamp(std::strtod(row[i].c_str(), nullptr), 0.0, 1.0);
        out += fmt::format("<td class=\"b\"><span style=\"width:{:.1f}%\"></span></td>", 100 * fraction);
      } else if (broken && i + 1 == row.size()) {
        out += fmt::format("<td><span class=\"w\">{}</span></td>", prose(row[i]));
      } else {
        out += fmt::format("<td{}>{}</td>", class_of(align), marked(row[i]));
      }
    }
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n";
  for (const std::string& note : table.notes) out += "<p class=\"note\">" + prose(note) + "</p>\n";
  return out;
}

}  // namespace

std::string table_html(const Table& table) {
  return table_with_pins(table, 0);
}

namespace {

/// Text for a data: address (RFC 3986, section 2.1).
std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~,:[]{}").find(c) != std::string_view::npos;
    if (plain)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace

std::string figure_html(const Chart& chart, int number, bool drawn) {
  std::string out = fmt::format("<figure aria-labelledby=\"figure-{0}\">\n<h2 id=\"figure-{0}\">{1}</h2>\n", number,
                                escaped(chart.title));
  if (!chart.text.empty()) out += "<p>" + prose(chart.text) + "</p>\n";
  if (drawn) {
    if (!chart.legend.empty()) {
      out += "<ul class=\"legend\">";
      for (const LegendEntry& entry : chart.legend) out += "<li>" + swatch(entry) + escaped(entry.name) + "</li>";
      out += "</ul>\n";
    }
    out += fmt::format("<div class=\"plot\" id=\"plot-{0}\" role=\"img\" aria-label=\"{1}\"></div>\n", number,
                       escaped(chart.title + ". " + chart.description));
    out += fmt::format("<script type=\"application/json\" class=\"spec\" data-plot=\"plot-{}\">", number);
    out += embedded(chart.spec) + "</script>\n";
  }
  if (!chart.save.first.empty())
    out += fmt::format("<p><a class=\"save\" download=\"{0}\" href=\"data:application/json,{1}\">save {0}</a></p>\n",
                       escaped(chart.save.first), percent_encoded(chart.save.second));
  std::size_t shown = 0;
  if (chart.pins && drawn && !chart.data.empty()) {
    out += fmt::format("<div class=\"pins\" data-plot=\"plot-{}\">\n", number);
    out += "<label><input type=\"checkbox\" class=\"only\"> pinned rows alone</label>\n";
    out += table_with_pins(chart.data[shown++], number) + "</div>\n";
  }
  if (chart.data.size() == shown) return out + "</figure>\n";
  out += drawn ? "<details><summary>Data</summary>\n" : "<details open><summary>Data</summary>\n";
  for (; shown < chart.data.size(); ++shown) out += table_html(chart.data[shown]);
  return out + "</details>\n</figure>\n";
}

namespace {

std::string comment(std::string text) {
  for (std::size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at)) text.replace(at, 2, "- -");
  return "<!--\n" + text + "\n-->\n";
}

}  // namespace

std::string page_html(const std::string& title, const std::string& lead, const std::string& body,
                      const ChartLibrary& library) {
  const bool drawn = !library.parts.empty();
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
      "style-src "
      "'unsafe-inline'; img-src data:\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out += "<link rel=\"icon\" href=\"data:,\">\n";
  out += "<title>" + escaped(title) + " · Orrery</title>\n<style>" + style() + "</style>\n</head>\n<body>\n<main>\n";
  out += "<header>\n<p class=\"eyebrow\">Orrery report</p>\n<h1>" + escaped(title) + "</h1>\n";
  if (!lead.empty()) out += "<p class=\"lead\">" + prose(lead) + "</p>\n";
  out += "</header>\n" + body;
  if (!drawn)
    out += "<p class=\"note\">The charting library was not found where this report was made: tables only.</p>\n";
  out += "</main>\n";
  if (drawn) {
    if (!library.licence.empty()) out += comment(library.licence);
    out += script(library);
  }
  return out + "</body>\n</html>\n";
}

}  // namespace orrery::reports::html
