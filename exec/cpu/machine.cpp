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

void KernelScratch::Free::operator()(float* p) const {
  ::operator delete[](p, cache_line);
}

float* KernelScratch::get(int thread, std::int64_t floats) {
  Piece& piece = pieces_[static_cast<std::size_t>(thread)];
  if (piece.floats < floats) {
    piece.data.reset();
    piece.data.reset(new (cache_line) float[static_cast<std::size_t>(floats)]);
    piece.floats = floats;
  }
  return piece.data.get();
}

std::int64_t KernelScratch::bytes() const {
  std::int64_t total = 0;
  for (const Piece& piece : pieces_) total += piece.floats * static_cast<std::int64_t>(sizeof(float));
  return total;
}

const RopeTable& RopeTables::get(std::int64_t sequence, std::int64_t head_dim, double theta,
                                 const models::RopeScaling& scaling) {
  for (const RopeTable& one : tables_)
    if (one.sequence == sequence && one.head_dim == head_dim && one.theta == theta && one.scaling == scaling)
      return one;
  RopeTable& made = tables_[oldest_];
  oldest_ = 1 - oldest_;
  made = {sequence, head_dim, theta, scaling, {}, {}};
  const std::vector<double> rates = models::rope_rates(theta, scaling, head_dim);
  made.cosines.resize(static_cast<std::size_t>(sequence * head_dim / 2));
  made.sines.resize(made.cosines.size());
  std::size_t at = 0;
  for (std::int64_t position = 0; position < sequence; ++position)
    for (const double rate : rates) {
      const double angle = static_cast<double>(position) * rate;
      made.cosines[at] = static_cast<float>(scaling.attention * std::cos(angle));
      made.sines[at++] = static_cast<float>(scaling.attention * std::sin(angle));
    }
  return made;
}

std::int64_t RopeTables::bytes() const {
  std::size_t values = 0;
  for (const RopeTable& one : tables_) values += one.cosines.size() + one.sines.size();
  return static_cast<std::int64_t>(values * sizeof(float));
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
float* Call::optional_output(std::size_t index, std::int64_t elements) const {
  if (index >= out.size() || out[index].data == nullptr) return nullptr;
  return output(index, elements);
}
const plan::TableLayout& Call::tables() const {
  ENSURE(context.tables != nullptr, "{} without a layout of tables", models::name_of(op.kind));
  return *context.tables;
}

}  // namespace orrery::exec
