#pragma once
/// Reads a stack's file key by key, for `orrery schema stack`.
#include "base/yaml.h"
#include "cost/parameters/stack.h"

namespace orrery::cost {

[[nodiscard]] Stack read_stack(const base::Cursor& root);

}  // namespace orrery::cost
