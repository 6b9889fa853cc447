// Findings, Cursor and Document: walking the tree that yaml_parse.cpp builds.
#include "base/yaml.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <system_error>

#include "base/ensure.h"
#include "base/findings.h"
#include "base/printable.h"
#include "base/units.h"
#include "base/yaml_node.h"

namespace orrery::base {
namespace {

constexpr std::size_t kMostErrors = 20;        // per file, and as many warnings; more do not help
constexpr std::size_t kLongestLine = 240;      // bytes of a source line shown
constexpr std::size_t kMostLines = 1'000'000;  // more lines are not kept for messages
using Kind = Cursor::Node::Kind;

/// Records a key once, if the document records.
void want(Cursor::Node& map, const std::string& key, const std::shared_ptr<Cursor::Node>& value) {
  if (!map.records) return;
  value->records = true;
  for (Cursor::Node::Wanted& one : map.wanted)
    if (one.key == key) {
      // Every request for a missing key makes a new node: keep what was learnt from the earlier ones.
      if (one.value != value && value->kind == Kind::missing) {
        value->wanted.swap(one.value->wanted);
        value->expected.swap(one.value->expected);
        value->as_list = value->as_list || one.value->as_list;
        one.value = value;
      }
      return;
    }
  map.wanted.push_back({key, value, false});
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::missing: return "nothing";
    case Kind::null: return "nothing";
    case Kind::scalar: return "a single value";
    case Kind::sequence: return "a list";
    case Kind::map: return "a map of keys";
  }
  return "?";
}

std::string backticked(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

bool is_integer(std::string_view s) {
  const std::size_t first = (!s.empty() && s[0] == '-') ? 1 : 0;
  if (first == s.size() || (s[first] == '0' && s.size() > first + 1)) return false;
  return std::all_of(s.begin() + static_cast<std::ptrdiff_t>(first), s.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

std::string number_hint(const std::string& value) {
  double ignored = 0;
  if (value.size() > 1 && value[0] == '0' && is_integer(value.substr(1)))
    return "remove the leading zero; octal numbers are not supported";
  if (value.rfind("0x", 0) == 0 || value.rfind("0o", 0) == 0) return "write the number in decimal";
  if (value.find('_') != std::string::npos || value.find(',') != std::string::npos)
    return "write the digits without separators";
  if (value.find("nan") != std::string::npos || value.find("inf") != std::string::npos)
    return "only finite numbers are supported";
  if (parse_number(value, ignored)) return "write a whole number without point or exponent";
  return {};
}

}  // namespace

// ---- Findings

Findings::Findings(std::string file, std::string_view text) : file_(std::move(file)) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // a byte-order mark has no column
  const auto ends = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  lines_.reserve(std::min(ends + 1, kMostLines));
  std::size_t begin = 0;
  while (begin <= text.size() && lines_.size() < kMostLines) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines_.emplace_back(line.substr(0, kLongestLine));
    cut_.push_back(line.size() > kLongestLine);
    begin = end + 1;
  }
  own_ = lines_.size();
}

int Findings::add_line(std::string_view line) {
  lines_.emplace_back(line.substr(0, kLongestLine));
  cut_.push_back(line.size() > kLongestLine);
  return static_cast<int>(lines_.size());
}

Location Findings::location(int line, int byte, int length) const {
  int column = 1;
  if (line >= 1 && static_cast<std::size_t>(line) <= lines_.size()) {
    const std::string& text = lines_[static_cast<std::size_t>(line - 1)];
    const auto bytes = static_cast<std::size_t>(std::max(0, byte));
    for (std::size_t i = 0; i < std::min(bytes, text.size()); ++i) {
      if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++column;
    }
    if (bytes > text.size()) column += static_cast<int>(bytes - text.size());
  }
  return {file_, line, column, length};
}

int Findings::quoted_length(const Location& where) const {
  if (where.line < 1 || static_cast<std::size_t>(where.line) > lines_.size()) return 1;
  const std::string& text = lines_[static_cast<std::size_t>(where.line - 1)];
  int column = 1;
  std::size_t i = 0;
  for (; i < text.size() && column < where.column; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++column;
  }
  while (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) ++i;
  if (i >= text.size() || (text[i] != '"' && text[i] != '\'')) return 1;
  const char quote = text[i];
  int length = 1;
  for (std::size_t k = i + 1; k < text.size(); ++k) {
    if ((static_cast<unsigned char>(text[k]) & 0xC0) != 0x80) ++length;
    if (quote == '"' && text[k] == '\\') {
      ++length;
      ++k;
    } else if (text[k] == quote) {
      return length;
    }
  }
  return length;
}

void Findings::error(std::string code, Location where, std::string message, std::string help) {
  ++errors_;
  if (errors_ > kMostErrors) return;
  add(Severity::error, std::move(code), std::move(where), std::move(message), std::move(help));
  if (errors_ == kMostErrors) {
    add(Severity::note, "", {file_}, fmt::format("after {} errors the rest of the file is not reported", kMostErrors),
        {});
  }
}

void Findings::warning(std::string code, Location where, std::string message, std::string help) {
  if (++warnings_ <= kMostErrors)
    return add(Severity::warning, std::move(code), std::move(where), std::move(message), std::move(help));
  const auto note = [](std::size_t more) {
    return fmt::format("{} of this file {} not shown", count_of(static_cast<std::int64_t>(more), "more warning"),
                       more == 1 ? "is" : "are");
  };
  const std::size_t more = warnings_ - kMostErrors;
  if (more == 1) return add(Severity::note, "", {file_}, note(more), {});
  const auto said = std::find_if(all_.begin(), all_.end(), [&](const auto& d) { return d.message == note(more - 1); });
  if (said != all_.end()) said->message = note(more);
}

bool is_full(const Findings& findings) {
  const Diagnostics& all = findings.all();
  return kMostErrors <= static_cast<std::size_t>(std::count_if(
                            all.begin(), all.end(), [](const auto& d) { return d.severity == Severity::error; }));
}

bool Findings::failed() const {
  return errors_ > 0;
}

void Findings::sort() {
  const auto key = [](const Diagnostic& d) {
    const int line = d.where.line == 0 ? std::numeric_limits<int>::max() : d.where.line;
    return std::pair{line, d.where.column};
  };
  std::stable_sort(all_.begin(), all_.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

void Findings::add(Severity severity, std::string code, Location where, std::string message, std::string help) {
  std::string line;
  if (where.line >= 1 && static_cast<std::size_t>(where.line) <= lines_.size()) {
    const auto row = static_cast<std::size_t>(where.line - 1);
    const auto last = static_cast<int>(lines_[row].size());
    if (where.column <= last + 1) {
      line = lines_[row] + (cut_[row] ? "..." : "");
      where.length = std::clamp(where.length, 1, std::max(1, last + 1 - where.column));
    }
    if (row >= own_) {
      where.file = "--set";
      where.line = static_cast<int>(row - own_) + 1;
    }
  }
  all_.push_back({severity, std::move(code), std::move(where), std::move(message), std::move(help), std::move(line)});
}

// ---- Cursor: what stands here

bool Cursor::exists() const {
  return node_ && node_->kind != Kind::missing && node_->kind != Kind::null;
}
bool Cursor::is_map() const {
  return node_ && node_->kind == Kind::map;
}
bool Cursor::is_sequence() const {
  return node_ && node_->kind == Kind::sequence;
}
bool Cursor::is_scalar() const {
  return node_ && node_->kind == Kind::scalar;
}

Location Cursor::where() const {
  ENSURE(node_ != nullptr, "a cursor of no document");
  return node_->location(node_->where);
}

Location Cursor::where_key() const {
  ENSURE(node_ != nullptr, "a cursor of no document");
  const auto map = node_->parent.lock();
  return map && map->kind == Kind::map ? node_->location(map->entries[node_->at].where) : where();
}

const std::string& Cursor::path() const {
  ENSURE(node_ != nullptr, "a cursor of no document");
  if (node_->known_path.empty()) node_->known_path = node_->path();
  return node_->known_path;
}

std::string Cursor::Node::path() const {
  constexpr std::size_t kLongestKey = 120;
  const auto cut = [](const std::string& key) {
    return key.size() > kLongestKey ? key.substr(0, kLongestKey) + "..." : key;
  };
  std::vector<std::string> parts;  // innermost first
  const auto add = [&](const Node& one, const Node& holder) {
    if (holder.kind == Kind::sequence)
      parts.push_back(fmt::format("[{}]", one.at));
    else
      parts.push_back(cut(one.above ? one.absent : holder.entries[one.at].key));
  };
  std::shared_ptr<const Node> node = above ? above : parent.lock();
  if (node) add(*this, *node);
  while (node) {
    std::shared_ptr<const Node> next = node->above ? node->above : node->parent.lock();
    if (next) add(*node, *next);
    node = std::move(next);
  }
  std::string out;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (!out.empty() && !part->starts_with('[')) out += '.';
    out += *part;
  }
  return out;
}

Findings& Cursor::findings() const {
  ENSURE(node_ != nullptr, "a cursor of no document");
  return *node_->findings;
}

void Cursor::error(std::string code, std::string message, std::string help) const {
  findings().error(std::move(code), where(), std::move(message), std::move(help));
}

void Cursor::warning(std::string code, std::string message, std::string help) const {
  findings().warning(std::move(code), where(), std::move(message), std::move(help));
}

// ---- Cursor: maps and lists

Cursor Cursor::optional(const std::string& key) const {
  ENSURE(node_ != nullptr, "a cursor of no document");
  Cursor child;
  if (exists() && !is_map() && !node_->opened) {
    error("E0104", fmt::format("{} must be a map of keys, found {}", path().empty() ? "the file" : quoted(path()),
                               base::name_of(node_->kind)));
  }
  node_->opened = true;
  if (std::find(node_->asked.begin(), node_->asked.end(), key) == node_->asked.end()) node_->asked.push_back(key);
  if (Node::Entry* entry = node_->find(key)) {
    entry->read = true;
    child.node_ = entry->value;
    want(*node_, key, child.node_);
    return child;
  }
  child.node_ = std::make_shared<Node>();
  child.node_->where = node_->where;
  child.node_->findings = node_->findings;
  child.node_->above = node_;
  child.node_->absent = key;
  want(*node_, key, child.node_);
  return child;
}

Cursor Cursor::at(const std::string& key) const {
  Cursor child = optional(key);
  for (Node::Wanted& one : node_->wanted) one.required = one.required || one.key == key;
  if (child.exists() || !is_map()) return child;
  const std::string in = path().empty() ? "" : fmt::format(" in {}", quoted(path()));
  if (child.node_->kind == Kind::null) {
    child.error("E0102", fmt::format("key {}{} has no value", quoted(key), in));
  } else {
    const std::string message = fmt::format("key {} is missing{}", quoted(key), in);
    Location here = where();
    here.length = 1;
    const std::string near = misspelt(key);
    for (auto& entry : node_->entries)
      if (!near.empty() && entry.key == near) {
        entry.read = true;  // one error says it, not one for each of the two names
        here = node_->location(entry.where);
      }
    findings().error("E0102", here, message,
                     near.empty() ? "" : fmt::format("{} looks like it; write {}", quoted(near), quoted(key)));
  }
  return child;
}

// The key of the map that resembles the missing one and that has not been read; empty: there is none.
std::string Cursor::misspelt(const std::string& key) const {
  std::vector<std::string> unread;
  for (const auto& entry : node_->entries) {
    if (!entry.read) unread.push_back(entry.key);
  }
  return did_you_mean(key, unread);
}

bool Cursor::has(const std::string& key) const {
  return node_ && node_->find(key) != nullptr;
}

std::vector<std::string> Cursor::keys() const {
  std::vector<std::string> all;
  if (!node_) return all;
  node_->any_key = true;
  for (const auto& entry : node_->entries) all.push_back(entry.key);
  return all;
}

std::vector<std::string> Cursor::unread() const {
  std::vector<std::string> all;
  if (!is_map()) return all;
  for (const auto& entry : node_->entries)
    if (!entry.read) all.push_back(entry.key);
  return all;
}

std::vector<Cursor> Cursor::items() const {
  std::vector<Cursor> all;
  if (node_) node_->as_list = true;
  if (!exists()) return all;
  if (!is_sequence()) {
    error("E0104", fmt::format("{} must be a list, found {}", quoted(path()), base::name_of(node_->kind)),
          "write it like `[1, 2]`");
    node_->ignored = true;
    return all;
  }
  node_->opened = true;
  for (const auto& item : node_->items) {
    Cursor child;
    child.node_ = item;
    all.push_back(child);
  }
  return all;
}

std::vector<Cursor> Cursor::one_or_many() const {
  if (is_scalar()) return {*this};
  return items();
}

void Cursor::ignore() const {
  if (node_) node_->ignored = true;
}

void Cursor::finish() const {
  if (!node_ || node_->ignored || is_full(findings())) return;
  for (const auto& item : node_->items) {
    Cursor child;
    child.node_ = item;
    child.finish();
  }
  bool listed = false;
  for (const auto& entry : node_->entries) {
    Cursor child;
    child.node_ = entry.value;
    if (entry.read) {
      child.finish();
    } else if (node_->opened && !is_full(findings())) {
      const std::string near = did_you_mean(entry.key, node_->asked);
      std::vector<std::string> help;
      if (!near.empty()) help.push_back(fmt::format("did you mean {}?", quoted(near)));
      if (!listed) help.push_back(fmt::format("known keys: {}", backticked(node_->asked)));
      if (help.empty()) help.emplace_back("known keys: those named above");
      constexpr std::size_t kMany = 12;  // a file in other tools' words has many unknown keys: they are listed once
      listed = listed || node_->asked.size() > kMany;
      refuse(entry.key, fmt::format("{}", fmt::join(help, " ")));
    }
  }
  node_->ignored = true;  // so that a second finish() does not repeat itself
}

void Cursor::refuse(const std::string& key, const std::string& help) const {
  if (!node_) return;
  std::erase(node_->asked, key);
  const std::string in = path().empty() ? "" : fmt::format(" in {}", quoted(path()));
  for (auto& entry : node_->entries) {
    if (entry.key != key) continue;
    entry.read = true;
    entry.value->ignored = true;
    findings().error("E0103", node_->location(entry.where), fmt::format("unknown key {}{}", quoted(key), in), help);
  }
}

// ---- Cursor: scalars

const std::string* Cursor::scalar(const std::string& expected) const {
  if (!exists()) return nullptr;
  if (is_scalar()) return &node_->value;
  error("E0105", fmt::format("{} must be {}, found {}", quoted(path()), expected, base::name_of(node_->kind)));
  node_->ignored = true;
  return nullptr;
}

std::string Cursor::text(std::string fallback) const {
  if (node_) expect(*node_, R"({"type": ["string", "number"]})");
  const std::string* value = scalar("text");
  if (value == nullptr) return fallback;
  const bool one_line = is_one_line(*value);
  if (!value->empty() && one_line) return *value;
  error("E0105", fmt::format("{} {}", quoted(path()), one_line ? "is empty text" : "holds control characters"),
        one_line ? "" : "write it on one line; `>-` joins the lines of a block");
  return fallback;
}

std::string Cursor::scalar_text() const {
  return is_scalar() ? printable(node_->value) : std::string{};
}

std::int64_t Cursor::integer(std::int64_t low, std::int64_t high, std::int64_t fallback) const {
  if (node_ && node_->records)
    expect(*node_, fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", low, high));
  const std::string* value = scalar("a whole number");
  if (value == nullptr) return fallback;
  if (!node_->plain || !is_integer(*value)) {
    error("E0105", fmt::format("{} must be a whole number, found {}", quoted(path()), quoted(*value)),
          node_->plain ? number_hint(*value) : "remove the quotes");
    return fallback;
  }
  std::int64_t out = 0;
  const auto [end, failure] = std::from_chars(value->data(), value->data() + value->size(), out);
  if (failure == std::errc{} && out >= low && out <= high) return out;
  error("E0105", high == std::numeric_limits<std::int64_t>::max()
                     ? fmt::format("{} must be at least {}, found {}", quoted(path()), low, quoted(*value))
                     : fmt::format("{} must be from {} to {}, found {}", quoted(path()), low, high, quoted(*value)));
  return fallback;
}

double Cursor::number(double low, double high, double fallback) const {
  if (node_ && node_->records)
    expect(*node_, fmt::format(R"({{"type": "number", "minimum": {}, "maximum": {}}})", low, high));
  const std::string* value = scalar("a number");
  if (value == nullptr) return fallback;
  double out = 0;
  if (!node_->plain || !parse_number(*value, out)) {
    error("E0105", fmt::format("{} must be a finite number, found {}", quoted(path()), quoted(*value)),
          node_->plain ? number_hint(*value) : "remove the quotes");
    return fallback;
  }
  if (out >= low && out <= high) return out;
  error("E0105", fmt::format("{} must be from {:g} to {:g}, found {}", quoted(path()), low, high, quoted(*value)));
  return fallback;
}

bool Cursor::boolean(bool fallback) const {
  if (node_) expect(*node_, R"({"type": "boolean"})");
  const std::string* value = scalar("true or false");
  if (value == nullptr) return fallback;
  if (node_->plain && *value == "true") return true;
  if (node_->plain && *value == "false") return false;
  error("E0105", fmt::format("{} must be true or false, found {}", quoted(path()), quoted(*value)),
        node_->plain ? "" : "remove the quotes");
  return fallback;
}

double Cursor::quantity(UnitKind kind, double low, double high, double fallback) const {
  if (node_) expect(*node_, R"({"type": "string", "pattern": "^ *[-+0-9.eE]+ *[A-Za-z/$\\u00b5]+ *$"})");
  const std::string* value = scalar("a number with its unit");
  if (value == nullptr) return fallback;
  double out = 0;
  std::string why;
  if (!parse_quantity(*value, kind, out, why)) {
    error("E0105", fmt::format("{}: {}", quoted(path()), why));
    return fallback;
  }
  if (out >= low && out <= high) return out;
  error("E0105", fmt::format("{} must be from {} to {}, found {}", quoted(path()), quantity_text(low, kind),
                             quantity_text(high, kind), quoted(*value)));
  return fallback;
}

int Cursor::choice(const std::vector<std::string>& choices, int fallback) const {
  if (node_ && node_->records) expect(*node_, fmt::format(R"({{"enum": ["{}"]}})", fmt::join(choices, "\", \"")));
  const std::string* value = scalar(fmt::format("one of {}", fmt::join(choices, ", ")));
  if (value == nullptr) return fallback;
  const auto it = std::find(choices.begin(), choices.end(), *value);
  if (it != choices.end()) return static_cast<int>(it - choices.begin());
  std::string lower = *value;  // "BF16" means bf16
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool by_case = std::find(choices.begin(), choices.end(), lower) != choices.end();
  const std::string near = by_case ? lower : did_you_mean(*value, choices);
  error("E0106",
        fmt::format("{} must be one of {}, found {}", quoted(path()), fmt::join(choices, ", "), quoted(*value)),
        near.empty() ? "" : fmt::format("did you mean {}?", quoted(near)));
  return fallback;
}

// ---- Document

Document Document::parse(std::string_view text, std::string file) {
  Document document;
  document.findings_ = std::make_shared<Findings>(std::move(file), text);
  document.root_.node_ = parse_yaml(text, document.findings_);
  if (!document.root_.node_) {
    document.root_.node_ = std::make_shared<Cursor::Node>();
    document.root_.node_->findings = document.findings_;
  }
  document.findings_->sort();
  return document;
}

Diagnostics Document::close() const {
  root_.finish();
  findings_->sort();
  return findings_->all();
}

}  // namespace orrery::base
