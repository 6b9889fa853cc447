#pragma once
/// What a transfer asks of one direction of one link.

namespace orrery::clusters {

/// While the transfer moves r bytes/s, r * share pass over `link` (a number of clusters::Paths).
struct Load {
  int link = 0;
  double share = 1;
  bool operator==(const Load&) const = default;
};

}  // namespace orrery::clusters
