// Texts of failures.
#include "exec/engine/routing.h"

#include <fmt/core.h>

namespace orrery::exec {

std::string scores_not_finite(std::int64_t token) {
  return fmt::format("a router's scores of token {} of the micro-batch are no finite numbers", token);
}

std::string slot_overflow(std::int64_t slot, std::int64_t experts, std::int64_t rows, std::int64_t capacity) {
  return fmt::format(
      "experts {} to {} are chosen by {} rows of a micro-batch, but slot {} has room for {}: raise "
      "expert_bound, or give the model a capacity_factor",
      slot * experts, (slot + 1) * experts - 1, rows, slot, capacity);
}

}  // namespace orrery::exec
