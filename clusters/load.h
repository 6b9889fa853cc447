#pragma once
/// The load that a transfer puts on one direction of one link.

namespace orrery::clusters {

/// While the transfer moves r bytes/s, r * share pass over `link` (numbered as in clusters::Paths).
struct Load {
  int link = 0;
  double share = 1;
  bool operator==(const Load&) const = default;
};

}  // namespace orrery::clusters
