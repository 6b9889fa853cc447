#pragma once
/// A message that is written only when somebody reads it: most rules hold, and a search asks for them hundreds of
/// thousands of times.
#include <fmt/core.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace orrery::plan {

/// `message`: a text, or what writes one.
template <class Message>
[[nodiscard]] std::string written(const Message& message) {
  if constexpr (std::is_invocable_v<const Message&>)
    return message();
  else
    return std::string(message);
}

/// Writes a format and its values. It refers to these, so it lives no longer than the call that it is made for.
template <class... Values>
class Text {
 public:
  Text(fmt::format_string<Values...> format, Values&&... values) : format_(format), values_(values...) {}
  [[nodiscard]] std::string operator()() const {
    return std::apply([&](auto&... values) { return fmt::vformat(format_, fmt::make_format_args(values...)); },
                      values_);
  }

 private:
  fmt::string_view format_;
  std::tuple<std::remove_reference_t<Values>&...> values_;
};
template <class... Values>
[[nodiscard]] Text<Values...> text(fmt::format_string<std::type_identity_t<Values>...> format, Values&&... values) {
  return Text<Values...>(format, std::forward<Values>(values)...);
}

}  // namespace orrery::plan
