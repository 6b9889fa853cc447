// A case in 16 bits: which operands are activations and weights, which are weights' gradients, and which stay in fp32.
#include <map>

#include "exec/engine/half.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

using models::DType;
using models::OpKind;

/// By operand, inputs and then outputs: t as `dtype`, g gradients of weights, f fp32, i ids.
struct Types {
  std::string in, out;
};

Types types_of(const models::Op& op) {
  const std::string saved = op.flash ? "f" : "t";
  const std::map<OpKind, Types> types = {
      {OpKind::embedding, {"it", "t"}},
      {OpKind::embedding_grad, {"it", "g"}},
      {OpKind::position_add, {"tt", "t"}},
      {OpKind::position_grad, {"t", "g"}},
      {OpKind::layer_norm, {"ttt", "tff"}},
      {OpKind::layer_norm_grad, {"tttfft", "tgg"}},
      {OpKind::rms_norm, {"tt", "tf"}},
      {OpKind::rms_norm_grad, {"tttft", "tg"}},
      {OpKind::matmul, {"ttt", op.accumulate ? "g" : "t"}},
      {OpKind::bias_grad, {"t", "g"}},
      {OpKind::attention, {"t", "t" + saved}},
      {OpKind::attention_grad, {"ttt" + saved, "t"}},
      {OpKind::ring_attention, {"tt", "tf"}},
      {OpKind::ring_attention_grad, {"tttft", "tt"}},
      {OpKind::head_norm, {"ttt", "tf"}},
      {OpKind::head_norm_grad, {"ttttf", "tgg"}},
      {OpKind::softmax_max, {"t", "f"}},
      {OpKind::softmax_sum, {"tfi", "f"}},
      {OpKind::cross_entropy_grad, {"tffif", "t"}},
      {OpKind::type_add, {"tti", "t"}},
      {OpKind::type_grad, {"ti", "g"}},
      {OpKind::gather_rows, {"ti", "t"}},
      {OpKind::scatter_rows, {"ti", "t"}},
      {OpKind::class_loss, {"ti", "f"}},
      {OpKind::class_loss_grad, {"tif", "t"}},
  };
  const auto found = types.find(op.kind);
  return found == types.end() ? Types{"tttttttt", "tttttttt"} : found->second;
}

void narrow_slot(Slot& slot, char type, DType dtype) {
  if (type == 'f' || type == 'i') return;
  slot.dtype = type == 'g' && dtype == DType::bf16 ? DType::fp32 : dtype;
  if (slot.dtype == DType::fp32) return;
  std::vector<std::byte> stored(2 * slot.floats.size());  // what the operator will read
  narrow(slot.dtype, slot.floats, stored.data());
  widen(slot.dtype, stored.data(), slot.floats);
}

}  // namespace

Case narrowed(const Case& c, DType dtype) {
  Case out = c;
  out.name = std::string(models::name_of(dtype)) + "_" + c.name;
  out.op.dtype = dtype;
  const Types types = types_of(c.op);
  for (std::size_t i = 0; i < out.in.size(); ++i) narrow_slot(out.in[i], types.in[i], dtype);
  for (std::size_t i = 0; i < out.out.size(); ++i) narrow_slot(out.out[i], types.out[i], dtype);
  out.tolerance = dtype == DType::bf16 ? bound::kRoundedOnceBf16 : bound::kRoundedOnceFp16;
  const OpKind kind = c.op.kind;
  if (kind == OpKind::attention || kind == OpKind::ring_attention || kind == OpKind::attention_grad ||
      kind == OpKind::ring_attention_grad)
    out.tolerance = dtype == DType::bf16 ? bound::kOneUnitBf16 : bound::kOneUnitFp16;
  return out;
}

}  // namespace orrery::exec::gpu_test
