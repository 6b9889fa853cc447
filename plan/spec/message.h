#pragma once
/// A message that is written only when somebody reads it: most rules hold, and a search asks for them hundreds of
/// thousands of times.
#include <string>
#include <type_traits>

namespace orrery::plan {

/// `message`: a text, or what writes one.
template <class Message>
[[nodiscard]] std::string written(const Message& message) {
  if constexpr (std::is_invocable_v<const Message&>)
    return message();
  else
    return std::string(message);
}

}  // namespace orrery::plan
