// Scratch memory, the rotation table, and operands of checked sizes.
#include "exec/cpu/machine.h"

#include <cmath>
#include <new>

#include "base/ensure.h"

namespace orrery::exec {
namespace {

constexpr std::align_val_t cache_line{64};

std::byte* checked(const Call& call, std::span<const Operand> operands, const char* side, std::size_t index,
                   std::int64_t elements) {
  const char* name = models::name_of(call.op.kind);
  ENSURE(index < operands.size() && operands[index].data != nullptr, "{}: {} operand {} is absent", name, side, index);
  ENSURE(operands[index].elements >= elements, "{}: {} operand {} has {} elements, needs {}", name, side, index,
         operands[index].elements, elements);
  return operands[index].data;
}

}  // namespace

void Scratch::Free::operator()(float* p) const {
  ::operator delete[](p, cache_line);
}

float* Scratch::get(int thread, std::int64_t floats) {
  Piece& piece = pieces_[static_cast<std::size_t>(thread)];
  if (piece.floats < floats) {
    piece.data.reset();
    piece.data.reset(new (cache_line) float[static_cast<std::size_t>(floats)]);
    piece.floats = floats;
  }
  return piece.data.get();
}

std::int64_t Scratch::bytes() const {
  std::int64_t total = 0;
  for (const Piece& piece : pieces_) total += piece.floats * static_cast<std::int64_t>(sizeof(float));
  return total;
}

void RopeTable::prepare(std::int64_t t, std::int64_t d, double base, const models::RopeScaling& scaled) {
  if (t == sequence && d == head_dim && base == theta && scaled == scaling) return;
  sequence = t;
  head_dim = d;
  theta = base;
  scaling = scaled;
  const std::vector<double> rates = models::rope_rates(theta, scaling, head_dim);
  cosines.resize(static_cast<std::size_t>(t * d / 2));
  sines.resize(cosines.size());
  std::size_t at = 0;
  for (std::int64_t position = 0; position < t; ++position)
    for (const double rate : rates) {
      const double angle = static_cast<double>(position) * rate;
      cosines[at] = static_cast<float>(scaling.attention * std::cos(angle));
      sines[at++] = static_cast<float>(scaling.attention * std::sin(angle));
    }
}

const float* Call::input(std::size_t index, std::int64_t elements) const {
  return reinterpret_cast<const float*>(checked(*this, in, "input", index, elements));
}
const float* Call::optional_input(std::size_t index, std::int64_t elements) const {
  if (index >= in.size() || in[index].data == nullptr) return nullptr;
  return input(index, elements);
}
const std::int32_t* Call::ids(std::size_t index, std::int64_t elements) const {
  return reinterpret_cast<const std::int32_t*>(checked(*this, in, "input", index, elements));
}
float* Call::output(std::size_t index, std::int64_t elements) const {
  return reinterpret_cast<float*>(checked(*this, out, "output", index, elements));
}
const plan::TableLayout& Call::tables() const {
  ENSURE(context.tables != nullptr, "{} without a layout of tables", models::name_of(op.kind));
  return *context.tables;
}

}  // namespace orrery::exec
