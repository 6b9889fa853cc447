#pragma once
/// Values of a plan's fields in YAML. Private to plan/.
#include "base/yaml.h"
#include "plan/spec/fields.h"

namespace orrery::plan {

/// Position of a field in a map of fields.
[[nodiscard]] inline base::Cursor field_of(const base::Cursor& at, const FieldInfo& field) {
  return *field.group == '\0' ? at.optional(field.key) : at.optional(field.group).optional(field.key);
}

/// A valid value, for bounds that need one after an error.
template <class T>
[[nodiscard]] T least(const FieldInfo& field) {
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) return static_cast<T>(field.low);
  return T{};
}

/// Reads the value at `at`; `fallback` if there is none, or after an error.
template <class T>
[[nodiscard]] T read_value(const base::Cursor& at, const FieldInfo& field, const T& fallback) {
  if constexpr (kIsOptional<T>) {
    using Value = typename T::value_type;
    return at.exists() ? read_value(at, field, least<Value>(field)) : fallback;
  } else if constexpr (std::is_same_v<T, models::DType>) {
    return choose_precision(at, fallback);
  } else if constexpr (kIsRows<T>) {
    if (!at.exists()) return fallback;
    std::vector<typename T::Cell> rows;
    if ((std::is_same_v<T, TableTiers> || std::is_same_v<T, Modules>)&&at.is_scalar())
      rows.push_back({at.text(), at.where()});
    else
      for (const base::Cursor& row : at.items()) rows.push_back({row.text(), row.where()});
    if (at.findings().failed()) return fallback;
    auto order = T::parse_rows(rows);
    if (order) return std::move(*order);
    for (const base::Diagnostic& one : order.error()) at.error(one.code, one.message, one.help);
    return fallback;
  } else if constexpr (std::is_same_v<T, bool>) {
    return at.boolean(fallback);
  } else if constexpr (std::is_enum_v<T>) {
    return choose(at, *field.words, fallback);
  } else if constexpr (std::is_same_v<T, double>) {
    return at.number(field.low, field.high, fallback);
  } else if constexpr (kIsList<T>) {
    if (!at.exists()) return fallback;
    T values;
    for (const base::Cursor& item : at.items())
      values.push_back(item.integer(static_cast<std::int64_t>(field.low), static_cast<std::int64_t>(field.high), 1));
    return values;
  } else {
    return static_cast<T>(
        at.integer(static_cast<std::int64_t>(field.low), static_cast<std::int64_t>(field.high), fallback));
  }
}

}  // namespace orrery::plan
