// Which keys of a tree no reader asked for.
#include "base/unread_keys.h"
#include "base/yaml_node.h"

namespace orrery::base {
namespace {

using Node = Cursor::Node;

std::string near_missing(const Node& map, const std::string& key) {
  std::vector<std::string> missing;
  for (const std::string& one : map.asked)
    if (!map.index.contains(one)) missing.push_back(one);
  return did_you_mean(key, missing);
}

void add_unread(const Node& map, const std::string& path, std::vector<UnreadKey>& out) {
  if (!map.opened) return;
  for (const Node::Entry& entry : map.entries) {
    const std::string whole = path.empty() ? entry.key : path + "." + entry.key;
    if (entry.read && !entry.value->ignored)
      add_unread(*entry.value, whole, out);
    else if (!entry.read && entry.value->kind != Node::Kind::null)
      out.push_back({entry.key, entry.value->value, whole, map.location(entry.where), near_missing(map, entry.key)});
  }
}

}  // namespace

std::vector<UnreadKey> unread_keys(const Cursor& at) {
  std::vector<UnreadKey> out;
  if (at.is_map()) add_unread(*Node::of(at), {}, out);
  return out;
}

}  // namespace orrery::base
