// Cases of dropout, ReLU and of the storage of what it leaves: sequences whose draws begin within a draw and at its
// beginning, rows and heads of other ranks, blocks of a ring; values that have room and those that have not.
#include <cmath>
#include <tuple>

#include "exec/engine/half.h"
#include "models/encoding.h"
#include "models/operators/fp8.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

using models::DType;
using models::Op;
using models::OpKind;

constexpr double kRate = 0.3;

struct Maker {
  std::mt19937 random{20261123};
  std::vector<Case> cases;

  Case& add(const std::string& name, const Op& op, OpKind kind) {
    cases.emplace_back();
    Case& c = cases.back();
    c.name = name;
    c.op = op;
    c.op.kind = kind;
    if (op.dropout <= 0) return c;
    c.context.step = 3;
    c.context.sample_step = 5;  // of a pipeline that runs ahead
    c.context.seed = 0x123456789abcdefULL;
    c.context.first_sequence = 6;
    return c;
  }
  Slot floats(std::int64_t elements, float scale = 1) { return random_floats(random, elements, scale); }

  void rows() {
    struct Shape {
      const char* name;
      std::int64_t context;
      int part, tensor_rank;  // rank -1: all rows
    };
    for (const std::int64_t columns : {45, 48, 44})
      for (const Shape& shape : {Shape{"", 1, 0, -1}, {"_part", 3, 1, -1}, {"_row_shard", 1, 0, 1}}) {
        Op op;
        op.batch = 3, op.sequence = 10, op.context = shape.context;
        op.n = shape.tensor_rank >= 0 ? 15 : 30, op.m = columns;
        op.row_shard = shape.tensor_rank >= 0;
        op.dropout = kRate, op.site = 7;
        const std::int64_t size = op.n * columns;
        const std::string name = std::string(shape.name) + "_" + std::to_string(columns);
        const auto here = [&](Case& c) -> Case& {
          c.context.part = shape.part;
          c.context.tensor_rank = std::max(0, shape.tensor_rank);
          return c;
        };
        Case& alone = here(add("dropout" + name, op, OpKind::dropout));
        alone.in = {floats(size)};
        alone.out = {columns == 45 ? unset(size) : in_place(0)};
        for (const bool bias : {false, true}) {
          Case& sum = here(add((bias ? "add_dropped" : "add_dropped_without_bias") + name, op, OpKind::add_bias));
          sum.in = {floats(size), floats(size), bias ? floats(columns) : Slot{}};
          sum.out = {in_place(bias ? 0 : 1)};
        }
      }
  }

  void attention(const std::string& name, std::int64_t t, std::int64_t h, std::int64_t g, std::int64_t d, bool causal,
                 bool flash) {
    Op op;
    op.batch = 2, op.sequence = t, op.n = 2 * t;
    op.heads = h, op.kv_heads = g, op.head_dim = d;
    op.causal = causal, op.flash = flash;
    op.dropout = kRate, op.site = 5;
    const std::int64_t packed = op.n * (h + 2 * g) * d, y = op.n * h * d, saved = op.n * h * (flash ? 1 : t);
    Case& forward = add("attention_dropped" + name, op, OpKind::attention);
    forward.context.tensor_rank = 1;  // heads count on
    forward.in = {floats(packed)};
    forward.out = {unset(y), unset(saved)};
    const Slot qkv = forward.in[0];
    Case& backward = add("attention_grad_dropped" + name, op, OpKind::attention_grad);
    backward.context.tensor_rank = 1;
    backward.in = {floats(y), qkv, unset(y), unset(saved)};  // y and saved are filled in by the test
    backward.out = {unset(packed)};
    backward.tolerance = 5e-6;
  }
  void attentions() {
    for (const bool causal : {false, true})
      for (const bool flash : {false, true}) {
        const std::string name = std::string(causal ? "_causal" : "_full") + (flash ? "_flash" : "_unfused");
        attention(name + "_33", 33, 4, 2, 20, causal, flash);
        attention(name + "_72", 72, 2, 1, 32, causal, flash);
      }
    attention("_strips", 130, 2, 2, 16, true, true);
    attention("_wide", 67, 1, 1, 128, false, true);
    attention("_widest", 40, 1, 1, 256, true, true);
  }

  /// Every block that the rule of masks tells apart, in chunks whose keys begin within a draw and at its beginning.
  void rings() {
    const std::int64_t b = 2, h = 4, g = 2;
    for (const auto& [t, d] : {std::pair<std::int64_t, std::int64_t>{70, 20}, {70, 32}, {80, 16}})
      for (const bool causal : {false, true})
        for (const std::int64_t step : {0, 1, 2}) {
          Op op;
          op.batch = b, op.sequence = t, op.n = b * t, op.context = 3;
          op.heads = h, op.kv_heads = g, op.head_dim = d;
          op.causal = causal, op.flash = true;
          op.ring_step = step, op.accumulate = step > 0;
          op.dropout = kRate, op.site = 9;
          const std::int64_t n = op.n;
          const std::string name = std::string("_dropped") + (causal ? "_causal" : "_full") + "_step_" +
                                   std::to_string(step) + "_" + std::to_string(t) + "_width_" + std::to_string(d);
          Case& forward = add("ring_attention" + name, op, OpKind::ring_attention);
          forward.context.part = 1;
          forward.in = {floats(n * (h + 2 * g) * d), floats(n * 2 * g * d)};
          forward.out = {step > 0 ? floats(n * h * d) : unset(n * h * d), step > 0 ? floats(n * h) : unset(n * h)};
          const std::vector<Slot> in = forward.in;
          Case& backward = add("ring_attention_grad" + name, op, OpKind::ring_attention_grad);
          backward.context.part = 1;
          Slot lse = floats(n * h);
          for (float& v : lse.floats) v += 6;  // about what scores of this size sum up to
          backward.in = {floats(n * h * d), in[0], floats(n * h * d), lse, in[1]};
          backward.out = {floats(n * (h + 2 * g) * d), unset(n * 2 * g * d)};
          backward.tolerance = 5e-6;
        }
  }

  void rectified() {
    for (const std::int64_t f : {45, 48}) {
      Op op;
      op.n = 7, op.m = f;
      const std::int64_t size = 7 * f;
      const std::string name = f == 45 ? "" : "_packs";
      Case& forward = add("relu" + name, op, OpKind::relu);
      forward.in = {floats(size)};
      forward.in[0].floats[3] = -0.0F;
      forward.out = {in_place(0)};
      Case& backward = add("relu_grad" + name, op, OpKind::relu_grad);
      backward.in = {floats(size), floats(size)};
      for (float& v : backward.in[1].floats) v = std::max(v, 0.0F);
      backward.out = {f == 45 ? unset(size) : in_place(0)};
    }
  }

  // -- what a ReLU leaves -------------------------------------------------------------------------------------------
  /// Its bytes with room for `capacity` values, as models/encoding.h has them; what is not said is 0.
  static Slot stored(const std::vector<float>& x, DType dtype, std::int64_t capacity) {
    const auto count = static_cast<std::int64_t>(x.size());
    const std::int64_t size = models::size_of(dtype);
    std::vector<std::byte> values(static_cast<std::size_t>(count * size));
    if (dtype == DType::fp32)
      std::memcpy(values.data(), x.data(), values.size());
    else
      narrow(dtype, x, values.data());
    std::vector<unsigned char> bytes(static_cast<std::size_t>(models::sparse_bytes(count, capacity, size)), 0);
    std::int64_t kept = 0;
    for (const float v : x) kept += v != 0 ? 1 : 0;
    std::memcpy(bytes.data(), &kept, sizeof(kept));
    unsigned char* to = bytes.data() + models::kSparseHeader + models::sparse_bits_bytes(count);
    for (std::int64_t i = 0; i < count; ++i) {
      if (x[static_cast<std::size_t>(i)] == 0) continue;
      bytes[static_cast<std::size_t>(models::kSparseHeader + i / 8)] |= static_cast<unsigned char>(1U << (i % 8));
      if (kept > capacity) continue;
      std::memcpy(to, values.data() + i * size, static_cast<std::size_t>(size));
      to += size;
    }
    Slot slot;
    slot.dtype = DType::uint8;
    for (const unsigned char byte : bytes) slot.floats.push_back(static_cast<float>(byte));
    return slot;
  }
  static Slot in_type(Slot slot, DType dtype) {
    slot.dtype = dtype;
    if (dtype == DType::fp32) return slot;
    std::vector<std::byte> narrowed(2 * slot.floats.size());
    narrow(dtype, slot.floats, narrowed.data());
    widen(dtype, narrowed.data(), slot.floats);
    return slot;
  }

  void sparse() {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16})
      for (const auto& [n, m] : {std::pair<std::int64_t, std::int64_t>{1, 5}, {7, 61}, {70, 304}})
        for (const auto& [share, tf32, biased] : {std::tuple{0.1, false, true},
                                                  {1.0, false, true},
                                                  {0.1, true, true},
                                                  {0.1, false, false},
                                                  {0.1, true, false}}) {
          if ((tf32 && dtype != DType::fp32) || (!biased && n != 7)) continue;
          const std::int64_t size = n * m, k = 37;
          const std::string name = std::string("_") + models::name_of(tf32 ? DType::tf32 : dtype) + "_" +
                                   std::to_string(size) + (share < 1 ? "_without_room" : "") +
                                   (biased ? "" : "_without_bias");
          const auto factor = [tf32 = tf32](float v) { return static_cast<double>(tf32 ? models::tf32_value(v) : v); };
          Op op;
          op.dtype = dtype;
          op.rounded = tf32;  // as the product that made x
          op.n = n, op.m = m;
          op.capacity = static_cast<std::int64_t>(share * static_cast<double>(size));
          const Slot a = in_type(floats(n * k), dtype), weight = in_type(floats(m * k), dtype);
          const Slot bias = in_type(biased ? floats(m) : zeros(m), dtype);
          Slot x = zeros(size);
          for (std::int64_t i = 0; i < size; ++i) {
            double sum = static_cast<double>(bias.floats[static_cast<std::size_t>(i % m)]);
            for (std::int64_t l = 0; l < k; ++l)
              sum += factor(a.floats[static_cast<std::size_t>(i / m * k + l)]) *
                     factor(weight.floats[static_cast<std::size_t>(i % m * k + l)]);
            x.floats[static_cast<std::size_t>(i)] = static_cast<float>(std::max(sum, 0.0));
          }
          x = in_type(x, dtype);
          Case& encode = add("sparse_encode" + name, op, OpKind::sparse_encode);
          encode.in = {x};
          encode.out = {of(zeros(models::sparse_bytes(size, op.capacity, models::size_of(dtype))), DType::uint8)};
          encode.tolerance = 0;
          op.k = k;
          Case& decode = add("sparse_decode" + name, op, OpKind::sparse_decode);
          decode.in = {stored(x.floats, dtype, op.capacity), a, weight, biased ? bias : Slot{}};
          decode.out = {of(unset(size), dtype)};
          // Of what had no room the sums' order is another: of five values one may round to its neighbour.
          decode.tolerance = share == 1             ? 0
                             : dtype == DType::fp32 ? bound::kFp32
                             : dtype == DType::bf16 ? bound::kOneUnitBf16
                                                    : bound::kOneUnitFp16;
        }
  }
};

}  // namespace

std::vector<Case> dropout_cases() {
  Maker maker;
  maker.cases.reserve(512);  // references to cases stay valid
  maker.rows();
  maker.attentions();
  maker.rings();
  maker.rectified();
  return std::move(maker.cases);
}

std::vector<Case> sparse_cases() {
  Maker maker;
  maker.cases.reserve(128);
  maker.sparse();
  return std::move(maker.cases);
}

}  // namespace orrery::exec::gpu_test
