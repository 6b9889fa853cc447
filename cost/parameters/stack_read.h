#pragma once
/// A stack's file as its reader sees it, for whoever wants to know its keys (`orrery schema stack`).
#include "base/yaml.h"
#include "cost/parameters/stack.h"

namespace orrery::cost {

[[nodiscard]] Stack read_stack(const base::Cursor& root);

}  // namespace orrery::cost
