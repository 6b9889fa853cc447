// Checked by the compiler: there are as many fields as members in the parts of a plan, and of Bounds.
#include "plan/spec/fields.h"

namespace orrery::plan {
namespace {

/// Converts to whatever a member is.
struct Anything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): it stands for a member's value
};

/// Number of an aggregate's members: as many values as it can be made from.
template <class T, class... Values>
consteval std::size_t members_of() {
  if constexpr (requires { T{Values{}..., Anything{}}; })
    return members_of<T, Values..., Anything>();
  else
    return sizeof...(Values);
}

template <class... Parts>
std::integral_constant<std::size_t, (members_of<Parts>() + ...)> members_in(const Parts&...) {
  return {};
}

/// Number of members of all parts of a plan, or of its bounds. A new part does not compile until it is named here.
template <class Whole>
consteval std::size_t members_of_parts() {
  const auto count = [](const Whole& whole) {
    const auto& [mesh, stages, shape, states, recomputation, offload, compression, numerics, embedding, tokens] = whole;
    return members_in(mesh, stages, shape, states, recomputation, offload, compression, numerics, embedding, tokens);
  };
  return decltype(count(std::declval<const Whole&>()))::value;
}

static_assert(members_of_parts<PlanSpec>() == std::tuple_size_v<decltype(kFields)>,
              "a new member of a plan needs a row in plan/spec/fields.h");
static_assert(members_of_parts<Bounds>() == std::tuple_size_v<decltype(kChosenFields)> + 1,  // and order_file
              "a new member of Bounds needs a row in plan/spec/fields.h");

}  // namespace
}  // namespace orrery::plan
