#pragma once
/// Options that every verb takes.
#include <string>
#include <vector>

namespace orrery::apps {

enum class Colour { automatic, always, never };

struct CommonOptions {
  bool json = false;
  bool quiet = false;
  Colour colour = Colour::automatic;
  std::vector<std::string> catalogs;  ///< roots searched before all others
  bool force = false;                 ///< overwrite files that Orrery did not write
  bool dry_run = false;               ///< write nothing, launch nothing
};

}  // namespace orrery::apps
