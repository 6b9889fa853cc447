#pragma once
/// A row's values by key, independent of the file format.
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/yaml.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

inline constexpr std::size_t kMostRows = 200'000;

class RowFields {
 public:
  /// `own`: the rows are somebody's own, who wants to know which of them is not read.
  RowFields(base::Findings& findings, bool own) : findings_(&findings), own_(own) {}
  virtual ~RowFields() = default;
  RowFields(const RowFields&) = delete;
  RowFields& operator=(const RowFields&) = delete;
  /// The text as written; empty if the row lacks the key.
  [[nodiscard]] virtual std::string text(const char* key) const = 0;
  /// Of the key's value; of the row if it lacks the key.
  [[nodiscard]] virtual base::Location where(const char* key) const = 0;
  [[nodiscard]] virtual int line() const = 0;  ///< in the file, from 1
  /// The text; also empty if it says that nothing is known.
  [[nodiscard]] std::string stated(const char* key) const;
  void error(const char* key, const char* code, std::string message, std::string help) const;
  /// V06, a warning in one's own rows: the key's value is not `wanted` ("a number"), and counts as not stated.
  void unread(const char* key, const std::string& wanted) const;

 private:
  base::Findings* findings_;
  bool own_;
  mutable std::set<std::string> told_;  ///< keys that were warned of
};

/// Every key that a row may have.
[[nodiscard]] const std::vector<std::string>& keys_of_rows();
/// V06, a warning: a key of one's own rows that is not read; `keys`: all that the row has. Nothing if the key is
/// read, or if it is none that somebody may take for one that is and `any` is false.
void warn_of_key(const std::string& key, const std::vector<std::string>& keys, const base::Location& where, bool any,
                 base::Findings& findings);

[[nodiscard]] Row row_of(const RowFields& fields, Origin origin);
[[nodiscard]] tl::unexpected<base::Diagnostics> too_many_rows(const std::string& file);

/// Keys in the first line, then one row per line; quoting as in RFC 4180. A row without `id` is named after its line.
/// V05: unclosed quotes, more cells than keys, a repeated key, no line of keys.
[[nodiscard]] base::Result<std::vector<Row>> parse_csv_rows(std::string_view text, const std::string& file,
                                                            Origin origin, base::Diagnostics* warnings = nullptr);

}  // namespace orrery::sim
