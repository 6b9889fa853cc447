#pragma once
/// Names of training software that users write for `stack:` although the catalogue does not have them.
#include <optional>
#include <string>

namespace orrery::apps {

/// The catalogue's stack whose kernels and overlap are nearest to a software that goes by another name.
struct NearestStack {
  const char* stack;
  const char* why;  ///< completes "`torchtitan` is priced as `torchtitan-2024`: …"
};

/// By name, whatever its case; absent if the name is not known.
[[nodiscard]] std::optional<NearestStack> nearest_stack(std::string name);

}  // namespace orrery::apps
