// Builds a JSON Schema from what readers asked of a document.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/yaml_node.h"

namespace orrery::base {
namespace {

using Node = Cursor::Node;
using nlohmann::ordered_json;

void record(Node& node) {
  node.records = true;
  for (const auto& item : node.items) record(*item);
  for (const Node::Entry& entry : node.entries) record(*entry.value);
}

/// One schema for a place that was read in several ways.
ordered_json any_of(std::vector<ordered_json> ways) {
  ordered_json out = ordered_json::array();
  for (ordered_json& one : ways)
    if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(std::move(one));
  if (out.empty()) return ordered_json::object();
  return out.size() == 1 ? out.front() : ordered_json{{"anyOf", std::move(out)}};
}

ordered_json schema_of(const Node& node) {
  if (node.ignored && node.wanted.empty() && node.expected.empty()) return ordered_json::object();
  std::vector<ordered_json> ways;
  for (const std::string& one : node.expected) ways.push_back(ordered_json::parse(one));
  if (node.as_list || node.kind == Node::Kind::sequence) {
    std::vector<ordered_json> items;
    for (const auto& item : node.items) items.push_back(schema_of(*item));
    ways.push_back({{"type", "array"}, {"items", any_of(std::move(items))}});
  }
  if (!node.wanted.empty()) {
    ordered_json properties = ordered_json::object(), required = ordered_json::array();
    for (const Node::Wanted& one : node.wanted) {
      properties[one.key] = schema_of(*one.value);
      if (one.required) required.push_back(one.key);
    }
    ordered_json map = {{"type", "object"}, {"properties", std::move(properties)}};
    if (!required.empty()) map["required"] = std::move(required);
    if (!node.any_key) map["additionalProperties"] = false;
    ways.push_back(std::move(map));
  }
  return any_of(std::move(ways));
}

struct WantedMap {
  std::string path;
  const Node* map;
};

}  // namespace

void expect(Cursor::Node& node, std::string schema) {
  if (!node.records) return;
  if (std::find(node.expected.begin(), node.expected.end(), schema) == node.expected.end())
    node.expected.push_back(std::move(schema));
}

Document Document::recording(std::string_view text, std::string file) {
  Document document = parse(text, std::move(file));
  record(*document.root_.node_);
  return document;
}

std::string Document::schema() const {
  return schema_of(*root_.node_).dump();
}

std::vector<std::string> Document::maps_with(std::string_view key) const {
  std::vector<std::string> found;
  std::vector<WantedMap> maps = {{"", root_.node_.get()}};  // level by level
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const WantedMap here = maps[i];
    for (const Node::Wanted& one : here.map->wanted) {
      if (one.key == key) found.push_back(here.path);
      maps.push_back({here.path.empty() ? one.key : here.path + "." + one.key, one.value.get()});
    }
  }
  return found;
}

}  // namespace orrery::base
