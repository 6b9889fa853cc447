// Arithmetic statements: `(( … ))`, `let`, and the head of a counting loop.
#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "plan/frameworks/arithmetic.h"
#include "plan/frameworks/shell_walk.h"

namespace orrery::plan {

std::optional<std::int64_t> ShellWalk::double_parentheses(bool active) {
  const std::size_t opened = at_, end = t_.text.find("))", at_);
  if (end == std::string::npos) {
    error(opened, "`((` without `))`");
    return std::nullopt;
  }
  const TracedText inner = t_.part(at_ + 2, end);
  at_ = end + 2;
  return calculated(inner, active);
}

std::optional<std::int64_t> ShellWalk::calculated(const TracedText& text, bool active) {
  if (!active) return std::nullopt;
  const TracedText all = expanded(text);
  const std::size_t at = at_;
  std::optional<std::int64_t> value;
  for (std::size_t begin = 0; begin <= all.text.size();) {
    const std::size_t end = std::min(all.text.find(',', begin), all.text.size());
    value = calculated_once(std::string_view(all.text).substr(begin, end - begin), at > 0 ? at - 1 : 0, active);
    begin = end + 1;
  }
  return value;
}

std::optional<std::int64_t> ShellWalk::calculated_once(std::string_view text, std::size_t at, bool active) {
  const auto trimmed = [](std::string_view one) {
    while (!one.empty() && is_shell_space(one.front())) one.remove_prefix(1);
    while (!one.empty() && is_shell_space(one.back())) one.remove_suffix(1);
    return one;
  };
  const auto value_of_text = [&](std::string_view one) {
    return arithmetic(one, [&](const std::string& name) { return text_of(name); });
  };
  text = trimmed(text);
  for (const char* sign : {"++", "--"})
    if (text.size() > 2 && (text.starts_with(sign) || text.ends_with(sign))) {
      const std::string name(trimmed(text.starts_with(sign) ? text.substr(2) : text.substr(0, text.size() - 2)));
      if (name.empty() || !std::all_of(name.begin(), name.end(), is_shell_name) || !is_shell_name_start(name[0])) break;
      const auto before = text_of(name) ? value_of_text(name) : 0;
      const auto after = before ? value_of_text(fmt::format("{} {} 1", *before, sign[0])) : std::nullopt;
      set_number(name, after, at);
      return text.starts_with(sign) ? after : before;
    }
  std::size_t end = 0;
  while (end < text.size() && is_shell_name(text[end])) ++end;
  const std::string name(text.substr(0, end));
  while (end < text.size() && is_shell_space(text[end])) ++end;
  const char sign = end < text.size() ? text[end] : '\0', next = end + 1 < text.size() ? text[end + 1] : '\0';
  const bool plain = sign == '=' && next != '=', with = std::string_view("+-*/%").find(sign) != std::string_view::npos;
  if (name.empty() || !is_shell_name_start(name[0]) || (!plain && !(with && next == '='))) return value_of_text(text);
  const std::string right(trimmed(text.substr(end + (plain ? 1 : 2))));
  const auto value = value_of_text(plain ? right : fmt::format("{} {} ({})", name, sign, right));
  if (active) set_number(name, value, at);
  return value;
}

void ShellWalk::set_number(const std::string& name, std::optional<std::int64_t> value, std::size_t at) {
  TracedText text;
  if (value)
    for (const char c : std::to_string(*value)) text.add(c, offset(at));
  else
    hole(text, "$" + name, at);
  s_.variables[name] = {{std::move(text)}, false};
}

}  // namespace orrery::plan
