#pragma once
/// Keys for which no reader asked, for readers that warn of them where Cursor::finish() would refuse them.
#include <string>
#include <vector>

#include "base/yaml.h"

namespace orrery::base {

struct UnreadKey {
  std::string key;
  std::string value;  ///< of a scalar
  std::string path;   ///< with the maps that hold it, "rope_scaling.facto"
  Location where;     ///< of the key, not of its value
  std::string near;   ///< a key that readers asked for, that the map lacks and that resembles it; empty: there is none
};

/// Of this map, be it ignored or not, and of every map below it in which a reader looked and that is not ignored; in
/// the file's order, without keys that are null.
[[nodiscard]] std::vector<UnreadKey> unread_keys(const Cursor& at);

}  // namespace orrery::base
