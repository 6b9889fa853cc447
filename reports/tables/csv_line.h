#pragma once
/// A line of a CSV file together with the line of heads above it.
#include <cstdint>
#include <optional>
#include <string>

#include "cost/interval.h"

namespace orrery::reports {

/// Head and cells grow together. Text is quoted where RFC 4180 asks for it.
class CsvLine {
 public:
  void text(const std::string& key, const std::string& value);
  void count(const std::string& key, std::int64_t value);
  /// Empty if unknown or not finite.
  void value(const std::string& key, double number, bool is_known = true);
  /// `key`_low`unit` and `key`_high`unit`.
  void interval(const std::string& key, const std::optional<cost::Interval>& interval, const char* unit);
  std::string head, cells;

 private:
  void add(const std::string& key, const std::string& cell);
};

}  // namespace orrery::reports
