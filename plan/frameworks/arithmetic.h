#pragma once
/// Whole-number arithmetic of `$(( ))` and of Python's list layouts: what can be told without running anything.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::plan {

/// The value of an expression of + - * / % ** comparisons && || ! ? : and parentheses. `text_of` has the variables,
/// which may hold expressions themselves. None: it cannot be told (an unknown variable, a division by zero, a number
/// beyond 64 bits, another character).
[[nodiscard]] std::optional<std::int64_t> arithmetic(
    std::string_view expression, const std::function<std::optional<std::string>(const std::string&)>& text_of);

}  // namespace orrery::plan
