// Operands between guard bands, so that a kernel that writes outside its operands is caught; comparisons.
#include "tests/gpu/testing.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace orrery::exec::gpu_test {
namespace {

constexpr std::int64_t kGuard = 64;  // elements on each side of an operand
constexpr float kGuardValue = 12345.5F;

std::int64_t padded(const Slot& slot) {
  return (slot.elements() + 2 * kGuard + 63) / 64 * 64;
}

struct Laid {
  std::int64_t offset = -1;  // elements from the arena's start; -1: absent
  const Slot* slot = nullptr;
};

std::vector<Laid> lay_out(const Case& c) {
  std::vector<Laid> laid;
  std::int64_t at = 0;
  const auto place = [&](const Slot& slot) {
    if (slot.same_as_input >= 0) {
      laid.push_back({laid[static_cast<std::size_t>(slot.same_as_input)].offset, &slot});
      return;
    }
    if (slot.elements() == 0) {
      laid.push_back({-1, &slot});
      return;
    }
    laid.push_back({at + kGuard, &slot});
    at += padded(slot);
  };
  for (const Slot& slot : c.in) place(slot);
  for (const Slot& slot : c.out) place(slot);
  return laid;
}

}  // namespace

std::int64_t arena_bytes(const Case& c) {
  std::int64_t elements = 0;
  for (const auto* side : {&c.in, &c.out})
    for (const Slot& slot : *side) elements += padded(slot);
  return elements * 4;
}

std::vector<std::vector<float>> run_on(Backend& backend, std::byte* arena, const Case& c) {
  const std::vector<Laid> laid = lay_out(c);
  std::vector<float> image(static_cast<std::size_t>(arena_bytes(c) / 4), kGuardValue);
  for (const Laid& l : laid) {
    if (l.offset < 0 || l.slot->same_as_input >= 0) continue;
    const void* from = l.slot->ids.empty() ? static_cast<const void*>(l.slot->floats.data()) : l.slot->ids.data();
    std::memcpy(image.data() + l.offset, from, static_cast<std::size_t>(l.slot->elements()) * 4);
  }
  backend.copy_to_device(arena, std::as_bytes(std::span(image)));
  std::vector<Operand> in, out;
  for (std::size_t i = 0; i < laid.size(); ++i) {
    const Laid& l = laid[i];
    const Slot& sized = l.slot->same_as_input >= 0 ? c.in[static_cast<std::size_t>(l.slot->same_as_input)] : *l.slot;
    const Operand operand = l.offset < 0 ? Operand{} : Operand{arena + l.offset * 4, sized.elements()};
    (i < c.in.size() ? in : out).push_back(operand);
  }
  backend.run(c.op, in, out, c.ranges, c.context);
  backend.synchronise();
  backend.copy_to_host(std::as_writable_bytes(std::span(image)), arena);
  std::vector<std::vector<float>> values;
  std::vector<bool> inside(image.size(), false);
  for (std::size_t i = 0; i < laid.size(); ++i) {
    const Operand& operand = i < c.in.size() ? in[i] : out[i - c.in.size()];
    if (!operand.data) {
      values.emplace_back();
      continue;
    }
    const auto first = image.begin() + laid[i].offset;
    values.emplace_back(first, first + operand.elements);
    std::fill_n(inside.begin() + laid[i].offset, operand.elements, true);
  }
  for (std::size_t i = 0; i < image.size(); ++i)
    if (!inside[i] && image[i] != kGuardValue) {
      ADD_FAILURE() << c.name << ": " << backend.name() << " wrote outside its operands, at element " << i;
      break;
    }
  return values;
}

Slot random_floats(std::mt19937& random, std::int64_t elements, float scale) {
  std::normal_distribution<float> normal(0, scale);
  Slot slot;
  slot.floats.resize(static_cast<std::size_t>(elements));
  for (float& v : slot.floats) v = normal(random);
  return slot;
}

Slot random_ids(std::mt19937& random, std::int64_t elements, std::int32_t bound) {
  std::uniform_int_distribution<std::int32_t> uniform(0, bound - 1);
  Slot slot;
  slot.ids.resize(static_cast<std::size_t>(elements));
  for (std::int32_t& v : slot.ids) v = uniform(random);
  return slot;
}

Slot zeros(std::int64_t elements) {
  Slot slot;
  slot.floats.assign(static_cast<std::size_t>(elements), 0.0F);
  return slot;
}

Slot unset(std::int64_t elements) {
  Slot slot;
  slot.floats.assign(static_cast<std::size_t>(elements), std::numeric_limits<float>::quiet_NaN());
  return slot;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) {  // also -inf, the maximum of a shard of padding
      if (std::isfinite(b[i])) size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
      continue;
    }
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

}  // namespace orrery::exec::gpu_test
