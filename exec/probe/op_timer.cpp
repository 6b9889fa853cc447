// Puts marks between operators; takes medians over passes.
#include "exec/probe/op_timer.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ensure.h"
#include "exec/engine/half.h"
#include "exec/run/measured.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kMostOperands = 8;
constexpr std::size_t kChunk = std::size_t{1} << 20;  // bytes written at a time

/// Cheap numbers around 0, of the size of weights, never denormal in fp32, and the same on every run.
std::vector<float> random_numbers() {
  std::vector<float> out(kChunk / sizeof(float));
  std::uint32_t state = 1;
  for (float& value : out) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator: nothing here depends on its quality
    value = (static_cast<float>(state >> 8) / static_cast<float>(1 << 24) - 0.5F) * 0.1F;
  }
  return out;
}

std::vector<std::byte> random_chunk(models::DType dtype) {
  const std::vector<float> numbers = random_numbers();
  std::vector<std::byte> out(numbers.size() * static_cast<std::size_t>(models::size_of(dtype)));
  narrow(dtype, numbers, out.data());
  return out;
}

std::vector<std::int32_t> id_chunk(std::int64_t below) {
  std::vector<std::int32_t> out(kChunk / sizeof(std::int32_t));
  std::uint32_t state = 1;
  for (std::int32_t& value : out) {
    state = state * 1664525U + 1013904223U;
    value =
        static_cast<std::int32_t>((static_cast<std::uint64_t>(state >> 8) * static_cast<std::uint64_t>(below)) >> 24);
  }
  return out;
}

template <class T>
void repeat(Backend& backend, std::byte* to, std::int64_t bytes, const std::vector<T>& chunk) {
  const auto source = std::as_bytes(std::span(chunk));
  for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(source.size())) {
    const auto size = std::min(source.size(), static_cast<std::size_t>(bytes - at));
    backend.copy_to_device(to + at, source.first(size));
  }
}

/// Everything that an operator's time may depend on, except where its operands are.
auto shape_of(const models::Op& op) {
  std::uint32_t operands = 0;
  for (std::size_t i = 0; i < op.in.size(); ++i) operands |= (op.in[i] >= 0 ? 1U : 0U) << i;
  std::vector<std::int64_t> sizes;
  models::each_size(op, [&](const char*, std::int64_t size) { sizes.push_back(size); });
  return std::tuple(op.kind, op.dtype, op.trans_a, op.trans_b, op.accumulate, op.causal, op.flash, op.rounded, op.cap,
                    op.score_scale, op.function, op.joint, op.ssm.delta, operands, op.out.size(), std::move(sizes));
}

}  // namespace

LoadedWorkload::LoadedWorkload(const Workload& workload, Backend& backend)
    : workload_(workload),
      backend_(backend),
      offsets_(workload.offsets()),
      arena_(backend.allocate_arena(offsets_.back())) {}

void LoadedWorkload::fill() {
  const std::vector<float> zeros(kChunk / sizeof(float), 0.0F);
  for (std::size_t i = 0; i < workload_.buffers.size(); ++i) {
    const Workload::Buffer& b = workload_.buffers[i];
    std::byte* to = arena_ + offsets_[i];
    const std::int64_t bytes = b.elements * models::size_of(b.dtype);
    switch (b.fill) {
      case Workload::Fill::zero: repeat(backend_, to, bytes, zeros); break;
      case Workload::Fill::random: repeat(backend_, to, bytes, random_chunk(b.dtype)); break;
      case Workload::Fill::ids: repeat(backend_, to, bytes, id_chunk(b.below)); break;
    }
  }
}

Operand LoadedWorkload::operand(int view) const {
  if (view < 0) return {};
  const Workload::View& v = workload_.views[static_cast<std::size_t>(view)];
  const auto buffer = static_cast<std::size_t>(v.buffer);
  return {arena_ + offsets_[buffer] + v.offset * models::size_of(workload_.buffers[buffer].dtype), v.elements,
          workload_.buffers[buffer].dtype};
}

void LoadedWorkload::pass(std::vector<std::vector<double>>* seconds) {
  marks_.clear();
  if (seconds != nullptr) marks_.push_back(backend_.mark());
  for (const models::Op& op : workload_.ops) {
    std::array<Operand, kMostOperands> in, out;
    ENSURE(op.in.size() <= kMostOperands && op.out.size() <= kMostOperands, "{} has too many operands",
           models::name_of(op.kind));
    for (std::size_t i = 0; i < op.in.size(); ++i) in[i] = operand(op.in[i]);
    for (std::size_t i = 0; i < op.out.size(); ++i) out[i] = operand(op.out[i]);
    backend_.run(op, {in.data(), op.in.size()}, {out.data(), op.out.size()}, {}, workload_.context);
    if (seconds != nullptr) marks_.push_back(backend_.mark());
  }
  backend_.synchronise();
  if (seconds == nullptr) return;
  seconds->resize(workload_.ops.size());
  for (std::size_t i = 0; i < workload_.ops.size(); ++i)
    (*seconds)[i].push_back(backend_.seconds_between(marks_[i], marks_[i + 1]));
}

float LoadedWorkload::value_of(const std::string& kind) const {
  float value = 0;
  for (const models::Op& op : workload_.ops) {
    if (kind != models::name_of(op.kind)) continue;
    backend_.copy_to_host(std::as_writable_bytes(std::span(&value, 1)), operand(op.out.at(0)).data);
    break;
  }
  return value;
}

std::vector<OpTime> summarise(const Workload& workload, const std::vector<std::vector<double>>& samples) {
  std::map<decltype(shape_of(models::Op{})), std::size_t> known;
  std::vector<OpTime> out;
  for (std::size_t i = 0; i < workload.ops.size() && i < samples.size(); ++i) {
    const models::Op& op = workload.ops[i];
    const auto [place, is_new] = known.try_emplace(shape_of(op), out.size());
    if (is_new) out.push_back({op, 0, 0});
    OpTime& entry = out[place->second];
    entry.count += 1;
    entry.seconds += median(samples[i]);
  }
  for (OpTime& entry : out) entry.seconds /= entry.count;
  return out;
}

}  // namespace orrery::exec
