// Products whose operands are rounded on the way in: fp8 in the three forms that layers have, with tiles that are whole
// and that are not, and tf32.
#include "exec/engine/half.h"
#include "models/operators/fp8.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

using models::DType;

Slot in_bf16(Slot slot) {
  std::vector<std::byte> stored(2 * slot.floats.size());
  narrow(DType::bf16, slot.floats, stored.data());
  widen(DType::bf16, stored.data(), slot.floats);
  slot.dtype = DType::bf16;
  return slot;
}

}  // namespace

std::vector<Case> rounded_cases() {
  std::mt19937 random{20260102};
  std::vector<Case> cases;
  struct Form {
    const char* name;
    bool trans_a, trans_b, bias, accumulate;
  };
  constexpr Form kForms[] = {{"forward", false, true, true, false},
                             {"forward_without_bias", false, true, false, false},
                             {"input_gradient", false, false, false, false},
                             {"weight_gradient", true, false, false, true}};
  struct Sizes {
    std::int64_t m, n, k;
  };
  for (const Sizes s : {Sizes{16, 32, 48}, Sizes{80, 64, 144}})
    for (const Form& form : kForms)
      for (const bool zeros : {false, true}) {
        if (zeros && s.m != 16) continue;
        Case c;
        c.name = std::string("fp8_") + form.name + "_" + std::to_string(s.m) + (zeros ? "_of_zeros" : "");
        c.op.kind = models::OpKind::matmul;
        c.op.dtype = DType::bf16;
        c.op.rounded = true;
        c.op.m = s.m, c.op.n = s.n, c.op.k = s.k;
        c.op.trans_a = form.trans_a, c.op.trans_b = form.trans_b, c.op.accumulate = form.accumulate;
        // Gradients are small: without a scale e5m2 would have few bits for them.
        c.in = {in_bf16(random_floats(random, s.m * s.k,
                                      zeros          ? 0.0F
                                      : form.trans_b ? 1.0F
                                                     : 1e-5F)),
                in_bf16(random_floats(random, s.k * s.n, 0.05F)),
                form.bias ? in_bf16(random_floats(random, s.n)) : Slot{}};
        Slot room;
        room.dtype = DType::uint8;
        room.floats.assign(static_cast<std::size_t>(models::Fp8Casts(s.m, s.n, s.k).bytes), 85.0F);
        c.out = {form.accumulate ? random_floats(random, s.m * s.n, 1e-5F) : in_bf16(unset(s.m * s.n)), room};
        c.tolerance = form.accumulate ? bound::kFp8IntoFp32 : bound::kFp8IntoBf16;
        cases.push_back(std::move(c));
      }
  for (const Form& form : kForms) {
    Case c;
    c.name = std::string("tf32_") + form.name;
    c.op.kind = models::OpKind::matmul;
    c.op.rounded = true;
    c.op.m = 13, c.op.n = 9, c.op.k = 21;
    c.op.trans_a = form.trans_a, c.op.trans_b = form.trans_b, c.op.accumulate = form.accumulate;
    c.in = {random_floats(random, 13 * 21), random_floats(random, 21 * 9),
            form.bias ? random_floats(random, 9) : Slot{}};
    c.out = {form.accumulate ? random_floats(random, 13 * 9) : unset(13 * 9)};
    c.tolerance = bound::kTf32;
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace orrery::exec::gpu_test
