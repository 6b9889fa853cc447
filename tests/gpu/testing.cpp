// Operands between guard bands, so that a kernel that writes outside its operands is caught; comparisons.
#include "tests/gpu/testing.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "exec/engine/half.h"

namespace orrery::exec::gpu_test {
namespace {

constexpr std::int64_t kGuard = 256;  // bytes on each side of an operand
constexpr std::byte kGuardByte{0x5a};

std::int64_t stored_bytes(const Slot& slot) {
  return slot.elements() * (slot.ids.empty() ? models::size_of(slot.dtype) : 4);
}
std::int64_t padded(const Slot& slot) {
  return (stored_bytes(slot) + 2 * kGuard + 255) / 256 * 256;
}

void write_to(std::byte* to, const Slot& slot) {
  const auto bytes = static_cast<std::size_t>(stored_bytes(slot));
  if (!slot.ids.empty()) {
    std::memcpy(to, slot.ids.data(), bytes);
  } else if (slot.dtype == models::DType::uint8) {
    for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(slot.floats[i]);
  } else {
    narrow(slot.dtype, slot.floats, to);
  }
}

std::vector<float> read_from(const std::byte* from, const Slot& slot) {
  std::vector<float> values(static_cast<std::size_t>(slot.elements()));
  if (!slot.ids.empty())
    std::memcpy(values.data(), from, values.size() * sizeof(float));
  else if (slot.dtype == models::DType::uint8)
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(from[i]);
  else
    widen(slot.dtype, from, values);
  return values;
}

/// Slots between guards in an arena: offsets in bytes, -1 where there is nothing.
struct Image {
  std::vector<const Slot*> slots;
  std::vector<std::int64_t> offsets;
  std::vector<std::byte> bytes;

  void add(const Slot& slot) {
    slots.push_back(&slot);
    offsets.push_back(slot.elements() == 0 ? -1 : static_cast<std::int64_t>(bytes.size()) + kGuard);
    if (slot.elements() == 0) return;
    bytes.resize(bytes.size() + static_cast<std::size_t>(padded(slot)), kGuardByte);
    write_to(bytes.data() + offsets.back(), slot);
  }
  void add_same(std::size_t as, const Slot& slot) {
    static_cast<void>(slot);
    slots.push_back(slots[as]);
    offsets.push_back(offsets[as]);
  }
  [[nodiscard]] Operand operand(std::byte* arena, std::size_t i) const {
    if (offsets[i] < 0) return {};
    return {arena + offsets[i], slots[i]->elements(), slots[i]->ids.empty() ? slots[i]->dtype : models::DType::int32};
  }
  /// What is in the arena afterwards; the guards must be as they were.
  [[nodiscard]] std::vector<std::vector<float>> take_back(Backend& backend, std::byte* arena, const std::string& name) {
    backend.synchronise();
    backend.copy_to_host(std::span(bytes), arena);
    std::vector<std::vector<float>> values;
    std::vector<bool> inside(bytes.size(), false);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (offsets[i] < 0) {
        values.emplace_back();
        continue;
      }
      values.push_back(read_from(bytes.data() + offsets[i], *slots[i]));
      std::fill_n(inside.begin() + offsets[i], stored_bytes(*slots[i]), true);
    }
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (!inside[i] && bytes[i] != kGuardByte) {
        ADD_FAILURE() << name << ": " << backend.name() << " wrote outside its operands, at byte " << i;
        break;
      }
    return values;
  }
};

}  // namespace

std::int64_t arena_bytes(const Case& c) {
  std::int64_t bytes = 0;
  for (const auto* side : {&c.in, &c.out})
    for (const Slot& slot : *side) bytes += padded(slot);
  return bytes;
}

std::vector<std::vector<float>> run_on(Backend& backend, std::byte* arena, const Case& c) {
  Image image;
  for (const Slot& slot : c.in) image.add(slot);
  for (const Slot& slot : c.out)
    slot.same_as_input >= 0 ? image.add_same(static_cast<std::size_t>(slot.same_as_input), slot) : image.add(slot);
  backend.copy_to_device(arena, image.bytes);
  std::vector<Operand> in, out;
  for (std::size_t i = 0; i < image.slots.size(); ++i) (i < c.in.size() ? in : out).push_back(image.operand(arena, i));
  backend.run(c.op, in, out, c.ranges, c.context);
  return image.take_back(backend, arena, c.name);
}

std::vector<std::vector<float>> run_on(Backend& backend, std::byte* arena, const Chain& chain) {
  Image image;
  for (const Slot& slot : chain.slots) image.add(slot);
  backend.copy_to_device(arena, image.bytes);
  std::vector<std::vector<Operand>> operands;
  operands.reserve(2 * chain.links.size());
  std::vector<OpCall> calls;
  const auto operands_of = [&](const std::vector<int>& slots) -> std::span<const Operand> {
    std::vector<Operand>& all = operands.emplace_back();
    for (const int slot : slots)
      all.push_back(slot < 0 ? Operand{} : image.operand(arena, static_cast<std::size_t>(slot)));
    return all;
  };
  for (const Chain::Link& link : chain.links) {
    const auto in = operands_of(link.in);
    calls.push_back({&link.op, in, operands_of(link.out), {}});
  }
  backend.run_all(calls, chain.context);
  return image.take_back(backend, arena, chain.name);
}

Slot random_floats(std::mt19937& random, std::int64_t elements, float scale) {
  std::normal_distribution<float> normal;  // scaled here: the library takes no width of 0
  Slot slot;
  slot.floats.resize(static_cast<std::size_t>(elements));
  for (float& v : slot.floats) v = scale * normal(random);
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

Slot in_place(int input) {
  Slot slot;
  slot.same_as_input = input;
  return slot;
}

Slot of(Slot slot, models::DType dtype) {
  slot.dtype = dtype;
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
