// Words of a script, with what stands in for variables and commands.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "plan/frameworks/arithmetic.h"
#include "plan/frameworks/shell_parts.h"
#include "plan/frameworks/shell_walk.h"

namespace orrery::plan {

std::optional<std::string> ShellWalk::text_of(const std::string& name) const {
  const auto at = s_.variables.find(name);
  if (at == s_.variables.end() || at->second.items.empty()) return std::nullopt;
  return at->second.items.front().text;
}

void ShellWalk::hole(TracedText& into, const std::string& name, std::size_t at) {
  const std::uint32_t from = offset(at);
  s_.out.missing.emplace(name, from);
  into.add(kHole, from);
  for (const char c : name) into.add(c, from);
  into.add(kHole, from);
}

bool ShellWalk::take_hole(TracedText& into) {
  if (peek() != kHole) return false;
  const std::size_t end = std::min(t_.text.find(kHole, at_ + 1), size() - 1);
  into.add(t_.part(at_, end + 1));
  at_ = end + 1;
  return true;
}

TracedText ShellWalk::expanded(const TracedText& text) {
  if (depth_ > 8) return text;
  ShellWalk inner(s_, text, depth_ + 1);
  TracedText out;
  while (inner.at_ < inner.size() && !s_.ended) {
    if (inner.take_hole(out)) continue;
    const char c = inner.peek();
    if (c == '\\' && (inner.peek(1) == '$' || inner.peek(1) == '`' || inner.peek(1) == '\\')) {
      out.add(inner.peek(1), inner.offset(inner.at_ + 1));
      inner.at_ += 2;
    } else if (c == '$' || c == '`') {
      Words parts = inner.dollar(true, true);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i > 0) out.add(' ', inner.offset(inner.at_));
        out.add(parts[i]);
      }
    } else {
      out.add(c, inner.offset(inner.at_++));
    }
    if (!spend(1)) break;
  }
  return out;
}

ShellWalk::Words ShellWalk::word_at(bool active, bool whole) {
  if (++nested_ > 4 * kMostShellDepth) error(at_, "the script nests too deeply");
  Words out;
  TracedText word;
  bool open = false;
  const auto finish = [&] {
    if (open) out.push_back(std::move(word));
    word = {};
    open = false;
  };
  const auto put = [&](Words parts, bool quoted) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) finish();
      if (quoted || whole) {
        word.add(parts[i]);
        open = true;
        continue;
      }
      bool inside = false;
      for (std::size_t k = 0; k < parts[i].text.size(); ++k) {
        const char c = parts[i].text[k];
        inside ^= c == kHole;
        if (!inside && is_shell_space(c)) {
          finish();
        } else {
          word.add(c, parts[i].from[k]);
          open = true;
        }
      }
      if (!spend(parts[i].text.size())) return;
    }
  };
  while (at_ < size() && !s_.ended) {
    if (take_hole(word)) {
      open = true;
      continue;
    }
    const char c = peek();
    if (is_shell_space(c) || c == ';' || c == '|' || c == '&' || c == '(' || c == ')' || c == '<' || c == '>') break;
    if (c == '\\') {
      if (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n')) break;
      if (at_ + 1 < size()) word.add(peek(1), offset(at_ + 1)), open = true;
      at_ += 2;
    } else if (c == '\'') {
      const std::size_t end = t_.text.find('\'', at_ + 1);
      if (end == std::string::npos) {
        error(at_, "a quote that does not end");
        break;
      }
      word.add(t_.part(at_ + 1, end));
      open = true;
      at_ = end + 1;
    } else if (c == '"') {
      open = true;
      quoted(active, [&](Words parts) { put(std::move(parts), true); });
    } else if (c == '$' || c == '`') {
      put(dollar(active, false), false);
    } else {
      word.add(c, offset(at_++));
      open = true;
    }
  }
  at_ = std::min(at_, size());
  finish();
  --nested_;
  return out;
}

void ShellWalk::quoted(bool active, const std::function<void(Words)>& put) {
  const std::size_t opened = at_++;
  TracedText literal;
  while (at_ < size() && peek() != '"' && !s_.ended) {
    if (take_hole(literal)) continue;
    const char c = peek();
    if (c == '\\' && at_ + 1 < size()) {
      const char next = peek(1);
      if (next == '\n') {
        at_ += 2;
      } else if (next == '\r' && peek(2) == '\n') {
        at_ += 3;
      } else if (next == '"' || next == '\\' || next == '$' || next == '`') {
        literal.add(next, offset(at_ + 1));
        at_ += 2;
      } else {
        literal.add(c, offset(at_++));
      }
    } else if (c == '$' || c == '`') {
      put({std::exchange(literal, {})});
      Words parts = dollar(active, true);
      if (!parts.empty()) put(std::move(parts));
    } else {
      literal.add(c, offset(at_++));
    }
  }
  if (peek() != '"') return error(opened, "a quote that does not end");
  ++at_;
  put({std::move(literal)});
}

void ShellWalk::parenthesis() {
  const std::size_t opened = at_;
  int open = 0;
  char quote = 0;
  for (; at_ < size(); ++at_) {
    const char c = peek();
    if (c == '\\') {
      ++at_;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(') {
      ++open;
    } else if (c == ')' && --open == 0) {
      ++at_;
      return;
    }
  }
  error(opened, "`(` without `)`");
}

ShellWalk::Words ShellWalk::dollar(bool active, bool in_quotes) {
  const std::size_t begin = at_;
  TracedText out;
  if (peek() == '`') {
    const std::size_t end = t_.text.find('`', at_ + 1);
    if (end == std::string::npos) {
      error(at_, "a backtick that does not end");
      return {};
    }
    at_ = end + 1;
    hole(out, t_.text.substr(begin, std::min<std::size_t>(at_ - begin, 40)), begin);
    return {out};
  }
  const char next = peek(1);
  if (next == '(' && peek(2) == '(') return arithmetic_at(begin);
  if (next == '(') {
    ++at_;
    parenthesis();
    hole(out, t_.text.substr(begin, std::min<std::size_t>(at_ - begin, 40)), begin);
    return {out};
  }
  if (next == '{') return braces(active, in_quotes);
  if (is_shell_name_start(next)) {
    ++at_;
    std::string name;
    while (is_shell_name(peek())) name += t_.text[at_++];
    return value_of(name, begin, false, in_quotes);
  }
  if (next == '@' || next == '*') {  // the script's own arguments: it is read as called without any
    at_ += 2;
    return s_.arguments.value_or(Words());
  }
  if (std::isdigit(static_cast<unsigned char>(next)) != 0) {
    at_ += 2;
    if (s_.arguments && next != '0') {
      const auto place = static_cast<std::size_t>(next - '1');
      return place < s_.arguments->size() ? Words{(*s_.arguments)[place]} : in_quotes ? Words{out} : Words{};
    }
    hole(out, std::string("$") + next, begin);
    return {out};
  }
  if (next == '#') {
    at_ += 2;
    for (const char c : std::to_string(s_.arguments ? s_.arguments->size() : 0)) out.add(c, offset(begin));
    return {out};
  }
  if (next == '?' || next == '$' || next == '!' || next == '-') {
    at_ += 2;
    hole(out, std::string("$") + next, begin);
    return {out};
  }
  if (next == '\'') {  // $'…'
    ++at_;
    return {};
  }
  out.add('$', offset(at_++));
  return {out};
}

ShellWalk::Words ShellWalk::arithmetic_at(std::size_t begin) {
  std::size_t end = begin + 3;
  for (int open = 2; end < size(); ++end) {
    open += t_.text[end] == '(' ? 1 : t_.text[end] == ')' ? -1 : 0;
    if (open == 0) break;
  }
  if (end >= size()) {
    error(begin, "`$((` without `))`");
    return {};
  }
  const TracedText inner = expanded(t_.part(begin + 3, end - 1));
  at_ = end + 1;
  TracedText out;
  std::string missing = hole_in(inner.text);
  const auto value = arithmetic(inner.text, [&](const std::string& name) {
    auto text = text_of(name);
    if (missing.empty()) missing = text ? hole_in(*text) : "$" + name;
    return text;
  });
  if (value)
    for (const char c : std::to_string(*value)) out.add(c, offset(begin));
  else
    hole(out, missing.empty() ? t_.text.substr(begin, std::min<std::size_t>(at_ - begin, 40)) : missing, begin);
  return {out};
}

ShellWalk::Words ShellWalk::value_of(const std::string& name, std::size_t begin, bool all, bool in_quotes) {
  const auto at = s_.variables.find(name);
  TracedText out;
  if (at == s_.variables.end()) {
    hole(out, "$" + name, begin);
    return {out};
  }
  const ShellVariable& v = at->second;
  std::size_t bytes = 0;
  for (const TracedText& one : v.items) bytes += one.text.size() + 1;
  if (!spend(bytes)) return {};
  if (all) return v.items;
  if (v.items.empty()) return in_quotes ? Words{out} : Words{};
  return {v.items.front()};
}

ShellWalk::Words ShellWalk::braces(bool active, bool in_quotes) {
  const std::size_t begin = at_;
  at_ += 2;
  TracedText out;
  const auto unknown = [&]() -> Words {
    int open = 1;
    while (at_ < size() && open > 0) {
      if (peek() == '\\') ++at_;
      open += peek() == '{' ? 1 : peek() == '}' ? -1 : 0;
      ++at_;
    }
    at_ = std::min(at_, size());
    if (open > 0) {
      error(begin, "`${` without `}`");
      return {};
    }
    hole(out, t_.text.substr(begin, std::min<std::size_t>(at_ - begin, 40)), begin);
    return {out};
  };
  std::string name;
  if (peek() == '#' || peek() == '!') return unknown();
  while (is_shell_name(peek())) name += t_.text[at_++];
  bool all = false;
  if (name.empty() && (peek() == '@' || peek() == '*')) {
    ++at_;
    if (peek() != '}') return unknown();
    ++at_;
    return {};
  }
  if (name.empty()) return unknown();
  std::optional<std::size_t> index;
  if (peek() == '[') {
    const std::size_t end = t_.text.find(']', at_);
    if (end == std::string::npos) return unknown();
    const std::string key = t_.text.substr(at_ + 1, end - at_ - 1);
    all = key == "@" || key == "*";
    std::size_t number = 0;
    const auto [stop, failed] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (!all && (failed != std::errc() || stop != key.data() + key.size())) return unknown();
    if (!all) index = number;
    at_ = end + 1;
  }
  const bool positional = std::isdigit(static_cast<unsigned char>(name[0])) != 0;
  const auto held = s_.variables.find(name);
  const bool set = !positional && held != s_.variables.end();
  if (peek() == '}') {
    ++at_;
    if (index) {
      if (set && *index < held->second.items.size()) return {held->second.items[*index]};
      hole(out, fmt::format("${{{}[{}]}}", name, *index), begin);
      return {out};
    }
    return value_of(name, begin, all, in_quotes);
  }
  const bool colon = peek() == ':';
  const char op = peek(colon ? 1 : 0);
  if (op != '-' && op != '=' && op != '?' && op != '+') return unknown();
  at_ += colon ? 2 : 1;
  TracedText other = brace_word(active, begin);
  const bool empty = !set || (colon && (held->second.items.empty() || held->second.items.front().text.empty()));
  if (op == '+') return empty ? Words{} : Words{other};
  if (!empty) return value_of(name, begin, all, in_quotes);
  if (op == '?') {
    hole(out, "$" + name, begin);
    return {out};
  }
  if (op == '=' && active) s_.variables[name] = {{other}, false};
  if (all && other.text.empty()) return {};
  return {other};
}

TracedText ShellWalk::brace_word(bool active, std::size_t begin) {
  TracedText out;
  if (++nested_ > 4 * kMostShellDepth) error(at_, "the script nests too deeply");
  while (at_ < size() && peek() != '}' && !s_.ended) {
    if (take_hole(out)) continue;
    const char c = peek();
    const auto put = [&](const Words& parts) {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i > 0) out.add(' ', offset(at_));
        out.add(parts[i]);
      }
    };
    if (c == '"') {
      quoted(active, put);
    } else if (c == '\'') {
      const std::size_t end = t_.text.find('\'', at_ + 1);
      if (end == std::string::npos) {
        error(at_, "a quote that does not end");
        break;
      }
      out.add(t_.part(at_ + 1, end));
      at_ = end + 1;
    } else if (c == '$' || c == '`') {
      put(dollar(active, false));
    } else {
      if (c == '\\' && at_ + 1 < size()) ++at_;
      out.add(peek(), offset(at_));
      ++at_;
    }
  }
  --nested_;
  if (at_ >= size())
    error(begin, "`${` without `}`");
  else
    ++at_;
  return out;
}

}  // namespace orrery::plan
