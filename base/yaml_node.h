#pragma once
/// The tree behind Cursor, private to base/yaml*.cpp: values, their places, and which of them were read.
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
  /// A Location without the file, which the whole document shares.
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
  std::weak_ptr<Node> parent;   ///< the map or list that contains this
  std::uint32_t at = 0;         ///< position in the parent
  std::shared_ptr<Node> above;  ///< replaces `parent` for a missing node: the map that lacks it
  std::string known_path;       ///< path(), once it was asked for
  std::string absent;           ///< the key that the map lacks
  std::shared_ptr<Findings> findings;
  std::string value;   ///< scalar
  bool plain = false;  ///< scalar without quotes: may be a number, a boolean
  std::vector<std::shared_ptr<Node>> items;
  std::vector<Entry> entries;
  std::map<std::string, std::size_t, std::less<>> index;  ///< key -> place in entries
  std::vector<std::string> asked;                         ///< keys that a reader knows, in the order of its calls
  bool opened = false;                                    ///< a reader looked inside
  bool ignored = false;                                   ///< belongs to another reader
  // With `records`, for Document::schema(): what readers asked for here.
  bool records = false;
  struct Wanted {
    std::string key;
    std::shared_ptr<Node> value;
    bool required = false;
  };
  std::vector<Wanted> wanted;         ///< keys of a map, in the order of the calls
  std::vector<std::string> expected;  ///< types of a scalar, as JSON Schemas
  bool as_list = false;               ///< a list is accepted too
  bool any_key = false;               ///< the reader accepts any key

  /// What a cursor stands on.
  [[nodiscard]] static const std::shared_ptr<Node>& of(const Cursor& at) { return at.node_; }
  [[nodiscard]] Entry* find(std::string_view key) {
    const auto it = index.find(key);
    return it == index.end() ? nullptr : &entries[it->second];
  }
  [[nodiscard]] Location location(const Place& place) const {
    return {findings->file(), place.line, place.column, place.length};
  }
  /// Computed on demand: stored for every node, the paths would be the largest part of an alias bomb.
  [[nodiscard]] std::string path() const;
};

/// Records which type a reader expects here.
void expect(Cursor::Node& node, std::string schema);

/// Builds the tree of the one document in `text`, or reports why there is none and returns null.
[[nodiscard]] std::shared_ptr<Cursor::Node> parse_yaml(std::string_view text,
                                                       const std::shared_ptr<Findings>& findings);

}  // namespace orrery::base
