#pragma once
/// The tree behind Cursor, private to base/yaml*.cpp: values with their places, and what was read of them.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml.h"

namespace orrery::base {

struct Cursor::Node {
  enum class Kind { missing, null, scalar, sequence, map };
  /// A Location without its file, which all of a document share.
  struct Place {
    int line = 0, column = 0, length = 1;
  };
  struct Entry {
    std::string key;
    Place where;  ///< of the key
    std::shared_ptr<Node> value;
    bool read = false;
  };

  Kind kind = Kind::missing;
  Place where;
  std::weak_ptr<Node> parent;   ///< the map or list that this stands in
  std::uint32_t at = 0;         ///< its place in there
  std::shared_ptr<Node> above;  ///< instead of `parent`, of what stands on nothing: the map that lacks it
  std::string known_path;       ///< once it was asked for
  std::string absent;           ///< the key that it lacks
  std::shared_ptr<Findings> findings;
  std::string value;   ///< scalar
  bool plain = false;  ///< scalar without quotes: may be a number, a boolean
  std::vector<std::shared_ptr<Node>> items;
  std::vector<Entry> entries;
  std::map<std::string, std::size_t, std::less<>> index;  ///< key -> place in entries
  std::vector<std::string> asked;                         ///< keys that a reader knows, in the order it asked
  bool opened = false;                                    ///< a reader looked inside
  bool ignored = false;                                   ///< another reader's
  // Where `records`, for Document::schema(): what readers asked of this place.
  bool records = false;
  struct Wanted {
    std::string key;
    std::shared_ptr<Node> value;
    bool required = false;
  };
  std::vector<Wanted> wanted;         ///< of a map, in the order in which they asked
  std::vector<std::string> expected;  ///< of a scalar: JSON Schemas
  bool as_list = false;               ///< a list would do
  bool any_key = false;               ///< the reader takes whatever keys there are

  [[nodiscard]] Entry* find(std::string_view key) {
    const auto it = index.find(key);
    return it == index.end() ? nullptr : &entries[it->second];
  }
  [[nodiscard]] Location location(const Place& place) const {
    return {findings->file(), place.line, place.column, place.length};
  }
  /// Made when it is asked for: written out, the paths of a bomb would be its largest part.
  [[nodiscard]] std::string path() const;
};

/// Notes what a reader takes here.
void expect(Cursor::Node& node, std::string schema);

/// Builds the tree of the one document in `text`, or reports why there is none and returns null.
[[nodiscard]] std::shared_ptr<Cursor::Node> parse_yaml(std::string_view text,
                                                       const std::shared_ptr<Findings>& findings);

}  // namespace orrery::base
