#pragma once
/// A row's values by key, independent of the file format.
#include <cstddef>
#include <string>

#include "base/result.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

inline constexpr std::size_t kMostRows = 200'000;

class RowFields {
 public:
  RowFields() = default;
  virtual ~RowFields() = default;
  RowFields(const RowFields&) = delete;
  RowFields& operator=(const RowFields&) = delete;
  /// The text as written; empty if the row lacks the key.
  [[nodiscard]] virtual std::string text(const char* key) const = 0;
  virtual void error(const char* key, const char* code, std::string message, std::string help) const = 0;
  [[nodiscard]] virtual int line() const = 0;  ///< in the file, from 1
  /// The text; also empty if it says that nothing is known.
  [[nodiscard]] std::string stated(const char* key) const;
};

[[nodiscard]] Row row_of(const RowFields& fields, Origin origin);
[[nodiscard]] tl::unexpected<base::Diagnostics> too_many_rows(const std::string& file);

/// Keys in the first line, then one row per line; quoting as in RFC 4180. A row without `id` is named after its line.
/// V05: unclosed quotes, more cells than keys, a repeated key, no line of keys.
[[nodiscard]] base::Result<std::vector<Row>> parse_csv_rows(std::string_view text, const std::string& file,
                                                            Origin origin);

}  // namespace orrery::sim
