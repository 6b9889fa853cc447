// The peephole: pairs of neighbours.
#include "exec/cuda/fusion.h"

#include "models/fp8.h"

namespace orrery::exec::cuda {
namespace {

using models::OpKind;

const std::byte* at(std::span<const Operand> operands, std::size_t index) {
  return index < operands.size() ? operands[index].data : nullptr;
}

bool same_place(std::span<const Operand> a, std::size_t i, std::span<const Operand> b, std::size_t j) {
  return at(a, i) != nullptr && at(a, i) == at(b, j);
}

/// A product that writes its result anew, in the type of its operands, of the size of the other's rows. Of 8-bit
/// operands cuBLASLt has no epilogue that writes both.
bool plain_product(const OpCall& product, const OpCall& other) {
  const models::Op& op = *product.op;
  return op.kind == OpKind::matmul && !models::is_fp8_product(op) && !op.accumulate && op.m == other.op->n &&
         op.n == other.op->m && product.in.size() >= 2 && !product.out.empty() &&
         product.out[0].dtype == product.in[0].dtype && other.out[0].dtype == product.out[0].dtype;
}

/// An output of the second is none of the inputs that the first still reads.
bool apart(const std::byte* written, std::span<const Operand> read) {
  for (const Operand& operand : read)
    if (operand.data == written) return false;
  return true;
}

Fused kind_of(const OpCall& a, const OpCall& b, const FusionOptions& options) {
  const OpKind first = a.op->kind, second = b.op->kind;
  const bool same_size = a.op->n == b.op->n && a.op->m == b.op->m;
  const bool elsewhere = at(b.out, 0) != at(a.out, 0) && apart(at(b.out, 0), a.in);
  if (second == OpKind::gelu && options.gelu && plain_product(a, b) && same_place(b.in, 0, a.out, 0) && elsewhere)
    return Fused::product_gelu;
  if (second == OpKind::gelu_grad && options.gelu && plain_product(a, b) && at(a.in, 2) == nullptr &&
      same_place(b.in, 0, a.out, 0) && same_place(b.out, 0, a.out, 0) && at(b.in, 1) != at(a.out, 0))
    return Fused::product_gelu_grad;
  if ((second == OpKind::layer_norm || second == OpKind::rms_norm) && first == OpKind::add_bias && same_size &&
      same_place(b.in, 0, a.out, 0) && elsewhere)
    return Fused::add_norm;
  if (second == OpKind::softmax_sum && first == OpKind::softmax_max && same_size && a.op->vocab == b.op->vocab &&
      same_place(b.in, 0, a.in, 0) && same_place(b.in, 1, a.out, 0))
    return Fused::softmax_pair;
  return Fused::no;
}

}  // namespace

std::vector<FusedGroup> fuse(std::span<const OpCall> calls, const FusionOptions& options) {
  std::vector<FusedGroup> groups;
  for (std::size_t i = 0; i < calls.size();) {
    FusedGroup group{i, 1, Fused::no};
    if (i + 1 < calls.size()) group.kind = kind_of(calls[i], calls[i + 1], options);
    if (group.kind != Fused::no) group.count = 2;
    groups.push_back(group);
    i += group.count;
  }
  return groups;
}

}  // namespace orrery::exec::cuda
