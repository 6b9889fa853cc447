#pragma once
/// NCCL's search for channels (2.28.9, src/graph/search.cc): backtracks over orders of GPUs at decreasing speeds until
/// the links are used up, with NCCL's limits on the number of steps. For rings.cpp.
#include <vector>

#include "clusters/nccl_system.h"

namespace orrery::clusters::nccl {

enum class Pattern { ring, balanced_tree, tree, nvls };

/// A solution; NCCL's ncclTopoGraph. Bandwidths are in GB/s per channel.
struct Found {
  Pattern pattern = Pattern::ring;
  int channels = 0;
  int least = 1, most = 32;  ///< number of channels requested
  float intra = 0, inter = 0;
  int type_intra = kLocal, type_inter = kPix;
  int cross_nic = 0;
  bool same = true;  ///< all channels visit the GPUs in the same order
  int hops = 0;
  std::vector<int> order = {};  ///< GPUs of channel c: c*gpus .. (c+1)*gpus - 1, as indices of System::gpus
  std::vector<int> nets = {};   ///< nets of channel c: 2c in, 2c+1 out, as indices of System::nets
};

/// Reads pattern, least and most of `wanted`. Leaves the system as it was.
[[nodiscard]] Found search(System& system, const Found& wanted);

}  // namespace orrery::clusters::nccl
