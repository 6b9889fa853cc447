// Writes a subtree back as YAML text with the same keys, order and values; comments and aliases are lost.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/ensure.h"
#include "base/yaml_node.h"

namespace orrery::base {
namespace {

using Node = Cursor::Node;
using Kind = Node::Kind;

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// A plain scalar of flow style or of several lines may mean something else in block style (`[-]`), so quotes stay off
// only where a scalar is plain in every style. Numbers and booleans always are; quoting does not change other texts.
bool may_stay_plain(const std::string& s) {
  const auto allowed = [](char c) {
    return is_letter_or_digit(c) || std::string_view("-./ +:$()").find(c) != std::string_view::npos;
  };
  double ignored = 0;
  if (parse_number(s, ignored)) return true;
  if (s.empty() || !std::all_of(s.begin(), s.end(), allowed)) return false;
  const std::size_t first = (s[0] == '.' || s[0] == '/') && s.size() > 1 ? 1 : 0;
  return is_letter_or_digit(s[first]) && s.back() != ':' && s.back() != ' ' && s.find(": ") == std::string::npos;
}

std::string scalar_text(const Node& node) {
  return node.plain && may_stay_plain(node.value) ? node.value : yaml_quoted(node.value);
}

void write(const Node& node, int indent, std::string& out);

void write_child(const Node& node, int indent, std::string& out) {
  const bool nested =
      (node.kind == Kind::map && !node.entries.empty()) || (node.kind == Kind::sequence && !node.items.empty());
  if (nested) {
    out += '\n';
    write(node, indent + 2, out);
  } else {
    out += ' ';
    write(node, 0, out);
  }
}

void write(const Node& node, int indent, std::string& out) {
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  switch (node.kind) {
    case Kind::missing:
    case Kind::null: out += "null\n"; return;
    case Kind::scalar: out += scalar_text(node) + "\n"; return;
    case Kind::sequence:
      if (node.items.empty()) out += "[]\n";
      for (const auto& item : node.items) {
        out += margin + "-";
        write_child(*item, indent, out);
      }
      return;
    case Kind::map:
      if (node.entries.empty()) out += "{}\n";
      for (const auto& entry : node.entries) {
        out += margin + yaml_text(entry.key) + ":";
        write_child(*entry.value, indent, out);
      }
      return;
  }
}

}  // namespace

std::string yaml_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string yaml_text(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./ ";
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '/';
  };
  const bool plain = !text.empty() && text.find_first_not_of(kPlain) == std::string::npos && letter(text.front()) &&
                     text.back() != ' ' && text != "null" && text != "Null" && text != "NULL" && text != "..." &&
                     text != "true" && text != "false" && text.front() != '.';
  return plain ? text : yaml_quoted(text);
}

std::string yaml_row(std::string_view row, std::size_t indent) {
  constexpr std::size_t kColumns = 120;
  std::string out;
  std::size_t begin = 0, place = 0;  // of the line; the last space where it may end, if behind `begin`
  bool quoted = false;
  const auto break_line = [&] {
    out += row.substr(begin, place - begin);
    out += "\n" + std::string(indent, ' ');
    begin = place + 1;
  };
  const auto too_long = [&](std::size_t end) {
    return end - begin + (out.empty() ? 0 : indent) > kColumns && place > begin;
  };
  for (std::size_t i = 0; i < row.size(); ++i) {
    const char c = row[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && i > 0 && i + 1 < row.size()) {
      const auto in_words = [&](char other) { return other != ' ' && other != '"'; };
      if (quoted ? !in_words(row[i - 1]) || !in_words(row[i + 1]) : row[i - 1] != ',') continue;
      if (too_long(i)) break_line();
      place = i;
    }
  }
  if (too_long(row.size())) break_line();
  return out += row.substr(begin);
}

std::string Cursor::dump() const {
  ENSURE(node_ != nullptr, "a cursor of no document");
  std::string out;
  write(*node_, 0, out);
  return out;
}

}  // namespace orrery::base
