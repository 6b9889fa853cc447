#pragma once
/// The tree behind Cursor, private to base/yaml*.cpp: values with their places, and what was read of them.
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml.h"

namespace orrery::base {

struct Cursor::Node {
  enum class Kind { missing, null, scalar, sequence, map };
  struct Entry {
    std::string key;
    Location where;  ///< of the key
    std::shared_ptr<Node> value;
    bool read = false;
  };

  Kind kind = Kind::missing;
  Location where;
  std::string path;
  std::shared_ptr<Findings> findings;
  std::string value;   ///< scalar
  bool plain = false;  ///< scalar without quotes: may be a number, a boolean
  std::vector<std::shared_ptr<Node>> items;
  std::vector<Entry> entries;
  std::map<std::string, std::size_t, std::less<>> index;  ///< key -> place in entries
  std::vector<std::string> asked;                         ///< keys that a reader knows, in the order it asked
  bool opened = false;                                    ///< a reader looked inside
  bool ignored = false;                                   ///< another reader's

  [[nodiscard]] Entry* find(std::string_view key) {
    const auto it = index.find(key);
    return it == index.end() ? nullptr : &entries[it->second];
  }
};

/// Builds the tree of the one document in `text`, or reports why there is none and returns null.
[[nodiscard]] std::shared_ptr<Cursor::Node> parse_yaml(std::string_view text,
                                                       const std::shared_ptr<Findings>& findings);

}  // namespace orrery::base
