// Cells of CSV.
#include "reports/tables/csv_line.h"

#include <fmt/format.h>

#include <cmath>

namespace orrery::reports {
namespace {

std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace

void CsvLine::text(const std::string& key, const std::string& value) {
  add(key, field(value));
}

void CsvLine::count(const std::string& key, std::int64_t value) {
  add(key, fmt::format("{}", value));
}

void CsvLine::value(const std::string& key, double number, bool is_known) {
  add(key, is_known && std::isfinite(number) ? fmt::format("{:.9g}", number) : "");
}

void CsvLine::interval(const std::string& key, const std::optional<cost::Interval>& interval, const char* unit) {
  value(key + "_low" + unit, interval ? interval->low : 0, interval.has_value());
  value(key + "_high" + unit, interval ? interval->high : 0, interval.has_value());
}

void CsvLine::add(const std::string& key, const std::string& cell) {
  const char* between = head.empty() ? "" : ",";
  head += between + key;
  cells += between + cell;
}

}  // namespace orrery::reports
