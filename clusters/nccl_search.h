#pragma once
/// NCCL's search for channels (2.28.9, src/graph/search.cc): backtracking over orders of GPUs at falling speeds until
/// the links are used up, with its limits on the number of steps. For rings.cpp.
#include <vector>

#include "clusters/nccl_system.h"

namespace orrery::clusters::nccl {

enum class Pattern { ring, balanced_tree, tree, nvls };

/// A solution; the library's ncclTopoGraph. GB/s of one channel.
struct Found {
  Pattern pattern = Pattern::ring;
  int channels = 0;
  int least = 1, most = 32;  ///< channels that are asked for
  float intra = 0, inter = 0;
  int type_intra = kLocal, type_inter = kPix;
  int cross_nic = 0;
  bool same = true;  ///< all channels go through the GPUs in one order
  int hops = 0;
  std::vector<int> order = {};  ///< of channel c: GPUs c*gpus .. (c+1)*gpus - 1, indices of System::gpus
  std::vector<int> nets = {};   ///< of channel c: 2c in, 2c+1 out, indices of System::nets
};

/// `wanted`: pattern, least and most. The system is left as it was.
[[nodiscard]] Found search(System& system, const Found& wanted);

}  // namespace orrery::clusters::nccl
