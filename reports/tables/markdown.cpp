/// Markdown of tables.
#include "reports/tables/markdown.h"

namespace orrery::reports {

std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      out += ' ';
      continue;
    }
    if (std::string_view("\\`*_[]<>|#~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string markdown_of(const Table& table) {
  std::string out;
  if (!table.title.empty()) out += "**" + markdown_text(table.title) + "**\n\n";
  std::string rule = "|";
  out += "|";
  for (const Column& column : table.columns) {
    if (column.align == Align::bar) continue;  // drawn elsewhere; the number stands beside it
    out += " " + markdown_text(column.head) + " |";
    rule += column.align == Align::right ? " ---: |" : " --- |";
  }
  out += "\n" + rule + "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (std::size_t i = 0; i < row.size(); ++i)
      if (i >= table.columns.size() || table.columns[i].align != Align::bar) out += " " + markdown_text(row[i]) + " |";
    out += "\n";
  }
  if (!table.notes.empty()) out += "\n";
  for (const std::string& note : table.notes) out += "- " + markdown_text(note) + "\n";
  return out;
}

}  // namespace orrery::reports
