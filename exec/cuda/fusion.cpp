// A peephole over neighbouring operators: pairs, and the loss.
#include "exec/cuda/fusion.h"

#include "models/operators/fp8.h"

namespace orrery::exec::cuda {
namespace {

using models::OpKind;

const std::byte* at(std::span<const Operand> operands, std::size_t index) {
  return index < operands.size() ? operands[index].data : nullptr;
}

bool same_place(std::span<const Operand> a, std::size_t i, std::span<const Operand> b, std::size_t j) {
  return at(a, i) != nullptr && at(a, i) == at(b, j);
}

/// A product that writes a new result in its operands' type, as large as the other operator's rows, so that GELU may
/// follow in an epilogue. Not in fp32: the library's tanh is less precise than that (off by some 2^-11, as
/// tanh.approx.f32 of the PTX ISA, which 16-bit results hide). For 8-bit operands no epilogue writes both.
bool plain_product(const OpCall& product, const OpCall& other) {
  const models::Op& op = *product.op;
  const auto wide = [](std::span<const Operand> in) { return !in.empty() && models::size_of(in[0].dtype) > 2; };
  return op.kind == OpKind::matmul && !models::is_fp8_product(op) && !wide(product.in) && !op.accumulate &&
         op.m == other.op->n && op.n == other.op->m && product.in.size() >= 2 && !product.out.empty() &&
         product.out[0].dtype == product.in[0].dtype && other.out[0].dtype == product.out[0].dtype;
}

/// Outputs do not overlap what is still read or written meanwhile.
bool apart(std::span<const Operand> written, std::span<const Operand> used) {
  const auto end = [](const Operand& o) { return o.data + o.elements * models::size_of(o.dtype); };
  for (const Operand& a : written)
    for (const Operand& b : used)
      if (a.data && b.data && a.data < end(b) && b.data < end(a)) return false;
  return true;
}

/// The first sums the rows whose products the second sums: the gradients of one layer's bias and weight. Not for
/// rounded operands, since the sums are over values that are not rounded.
bool is_bias_grad(const OpCall& sums, const OpCall& product) {
  const models::Op& op = *product.op;
  const auto type = [](std::span<const Operand> operands, std::size_t i) { return operands[i].dtype; };
  if (op.kind != OpKind::matmul || op.rounded || !op.trans_a || op.m != sums.op->m || op.k != sums.op->n) return false;
  if (op.m == 0 || op.n == 0 || op.k == 0) return false;
  if (sums.in.empty() || sums.out.empty() || product.in.size() < 2 || product.out.empty() || at(product.in, 2))
    return false;
  return same_place(sums.in, 0, product.in, 0) && type(sums.in, 0) == type(product.in, 0) &&
         type(product.in, 1) == type(product.in, 0) && type(sums.out, 0) == type(product.out, 0) &&
         at(sums.out, 0) != at(product.out, 0) && apart(sums.out.first(1), product.in);
}

Fused kind_of(const OpCall& a, const OpCall& b, const FusionOptions& options) {
  const OpKind first = a.op->kind, second = b.op->kind;
  const bool same_size = a.op->n == b.op->n && a.op->m == b.op->m;
  const bool elsewhere = apart(b.out, a.out) && apart(b.out, a.in);
  if (second == OpKind::gelu && options.epilogues && plain_product(a, b) && same_place(b.in, 0, a.out, 0) && elsewhere)
    return Fused::product_gelu;
  if (first == OpKind::bias_grad && options.epilogues && is_bias_grad(a, b)) return Fused::product_bias_grad;
  if (second == OpKind::gelu_grad && options.epilogues && plain_product(a, b) && at(a.in, 2) == nullptr &&
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

constexpr std::size_t kLoss = 4;

/// Maximum, sum, loss and gradient of the same rows, without another rank's contribution in between. The gradient
/// replaces the logits; the other outputs are elsewhere.
bool is_whole_loss(std::span<const OpCall> calls) {
  if (calls.size() < kLoss) return false;
  const OpCall &max = calls[0], &sum = calls[1], &loss = calls[2], &gradient = calls[3];
  if (loss.op->kind != OpKind::cross_entropy || gradient.op->kind != OpKind::cross_entropy_grad) return false;
  const bool same_size = loss.op->n == max.op->n && gradient.op->n == max.op->n && gradient.op->m == max.op->m &&
                         gradient.op->vocab == max.op->vocab && max.op->vocab <= max.op->m;
  const bool of_these = same_place(loss.in, 0, max.out, 0) && same_place(loss.in, 1, sum.out, 0) &&
                        same_place(gradient.in, 0, max.in, 0) && same_place(gradient.in, 1, max.out, 0) &&
                        same_place(gradient.in, 2, sum.out, 0) && same_place(gradient.in, 3, sum.in, 2) &&
                        same_place(gradient.out, 0, max.in, 0);
  const std::byte* const places[] = {at(max.in, 0), at(max.out, 0), at(sum.out, 0), at(loss.out, 0), at(sum.in, 2)};
  for (const std::byte* const& one : places)
    for (const std::byte* const& other : places)
      if (&one != &other && one == other) return false;
  return same_size && of_these && max.in[0].dtype == gradient.out[0].dtype;
}

}  // namespace

bool may_wait(const OpCall& call) {
  return call.op->kind == OpKind::add_bias;
}

std::vector<FusedGroup> fuse(std::span<const OpCall> calls, const FusionOptions& options) {
  std::vector<FusedGroup> groups;
  for (std::size_t i = 0; i < calls.size();) {
    FusedGroup group{i, 1, Fused::no};
    if (i + 1 < calls.size()) group.kind = kind_of(calls[i], calls[i + 1], options);
    if (group.kind != Fused::no) group.count = 2;
    if (group.kind == Fused::softmax_pair && is_whole_loss(calls.subspan(i))) group = {i, kLoss, Fused::whole_loss};
    groups.push_back(group);
    i += group.count;
  }
  return groups;
}

}  // namespace orrery::exec::cuda
