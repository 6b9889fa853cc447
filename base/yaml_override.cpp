// Values from the command line replace those of a text.
#include <fmt/format.h>

#include "base/yaml_node.h"

namespace orrery::base {
namespace {

using Node = Cursor::Node;
using Kind = Node::Kind;

/// Makes a tree that was parsed separately part of another: its places move to `line`, `columns` to the right.
void adopt(Node& node, const std::shared_ptr<Findings>& findings, int line, int columns) {
  const auto move = [&](Node::Place& place) { place.line = line, place.column += columns; };
  move(node.where);
  node.findings = findings;
  for (const auto& item : node.items) adopt(*item, findings, line, columns);
  for (Node::Entry& entry : node.entries) {
    move(entry.where);
    adopt(*entry.value, findings, line, columns);
  }
}

/// "", "null" and "~" mean that the key is not given.
bool is_nothing(std::string_view value) {
  const std::size_t first = value.find_first_not_of(" \t");
  if (first == value.npos) return true;
  value = value.substr(first, value.find_last_not_of(" \t") + 1 - first);
  return value == "null" || value == "~";
}

/// The entry of a map for a key; added if missing.
Node::Entry& entry_of(const std::shared_ptr<Node>& map, const std::string& key, const Node::Place& place) {
  if (Node::Entry* entry = map->find(key)) return *entry;
  map->index[key] = map->entries.size();
  map->entries.push_back({key, place, nullptr, false});
  return map->entries.back();
}

void hang(const std::shared_ptr<Node>& map, Node::Entry& entry, std::shared_ptr<Node> value) {
  value->parent = map;
  value->at = static_cast<std::uint32_t>(map->index.at(entry.key));
  entry.value = std::move(value);
}

}  // namespace

Document Document::parse(std::string_view text, std::string file, const std::vector<Override>& overrides) {
  Document document = parse(text, std::move(file));
  if (!document.root_.is_map()) return document;  // there are no keys to set; reported already, or by the reader
  for (const Override& one : overrides) document.put(one);
  document.findings_->sort();
  return document;
}

void Document::put(const Override& one) {
  const int line = findings_->add_line(one.key + "=" + one.value);
  const Node::Place whole{line, 1, static_cast<int>(one.key.size())};
  const auto wrong = [&](const char* code, const std::string& message, const std::string& help) {
    findings_->error(code, {findings_->file(), line, 1, static_cast<int>(one.key.size())}, message, help);
  };
  const bool nothing = is_nothing(one.value);
  const Document value = parse(nothing ? "0" : one.value, "--set");
  const auto columns = static_cast<int>(one.key.size()) + 1;
  for (const Diagnostic& found : value.findings_->all())
    findings_->error(found.code, {findings_->file(), line, found.where.column + columns, found.where.length},
                     found.message, found.help);
  if (value.findings_->failed()) return;
  if (one.value.find('\n') != std::string::npos)
    return wrong("E0101", "the value of --set has several lines", "write it like `{a: 1, b: [1, 2]}`");

  std::shared_ptr<Node> at = root_.node_;
  std::size_t begin = 0;
  for (std::size_t dot = one.key.find('.'); dot != std::string::npos; dot = one.key.find('.', begin)) {
    Node::Entry& entry = entry_of(at, one.key.substr(begin, dot - begin), whole);
    begin = dot + 1;
    if (!entry.value || entry.value->kind == Kind::null || entry.value->kind == Kind::missing) {
      auto map = std::make_shared<Node>();
      map->kind = Kind::map;
      map->where = whole;
      map->findings = findings_;
      hang(at, entry, std::move(map));
    }
    if (entry.value->kind != Kind::map)
      return wrong("E0104", fmt::format("{} is not a map of keys", quoted(one.key.substr(0, dot))),
                   "--set replaces a whole value; name the key that holds it");
    at = entry.value;
  }
  Node::Entry& entry = entry_of(at, one.key.substr(begin), whole);
  entry.where = whole;
  const std::shared_ptr<Node>& node = value.root_.node_;
  adopt(*node, findings_, line, columns);
  if (nothing) node->kind = Kind::null;
  hang(at, entry, node);
}

}  // namespace orrery::base
