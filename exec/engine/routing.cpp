// Texts of failures.
#include "exec/engine/routing.h"

#include <fmt/core.h>

namespace orrery::exec {

namespace {

std::string text_of(const RoutedAt& at) {
  const std::string step = fmt::format("step {}", at.step + 1);
  return at.layer ? fmt::format("{}, layer {}", step, at.layer) : step;
}

}  // namespace

std::string scores_not_finite(const RoutedAt& at, std::int64_t token) {
  return fmt::format("{}: the router's scores of token {} of the micro-batch are no finite numbers", text_of(at),
                     token);
}

std::string slot_overflow(const RoutedAt& at, std::int64_t slot, std::int64_t experts, std::int64_t rows,
                          std::int64_t capacity) {
  return fmt::format(
      "{}: experts {} to {} are chosen by {} rows of a micro-batch, but slot {} has room for {}: raise "
      "expert_bound, or give the model a capacity_factor",
      text_of(at), slot * experts, (slot + 1) * experts - 1, rows, slot, capacity);
}

}  // namespace orrery::exec
