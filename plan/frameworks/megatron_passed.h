#pragma once
/// Flags of Megatron-LM's that are known and not carried over. Private to this folder.
#include <vector>

namespace orrery::plan {

struct PassedOver {
  const char* because;
  bool matters;  ///< they may move time or memory
  std::vector<const char*> flags;
};
[[nodiscard]] const std::vector<PassedOver>& megatron_passed_over();

}  // namespace orrery::plan
