// Cases of the operators that only some models and plans have: BERT's, and those of compression.
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

using models::DType;
using models::Op;
using models::OpKind;

struct Maker : CaseMaker {
  Maker() : CaseMaker{std::mt19937(20261122)} {}

  void types() {
    const std::int64_t b = 3, t = 20;
    for (const std::int64_t c : {33, 48})
      for (const int kinds : {2, 5}) {
        const std::string size = "_" + std::to_string(c) + "_of_" + std::to_string(kinds);
        Case& add_types = add("type_add" + size, OpKind::type_add, b * t, c, kinds);
        add_types.op.batch = b, add_types.op.sequence = t;
        add_types.in = {floats(b * t * c), floats(kinds * c), ids(b * t, kinds)};
        add_types.out = {c == 33 ? in_place(0) : unset(b * t * c)};
        Case& grad = add("type_grad" + size, OpKind::type_grad, b * t, c, kinds);
        grad.op = add_types.op;
        grad.op.kind = OpKind::type_grad;
        grad.in = {floats(b * t * c), ids(b * t, kinds)};
        grad.out = {floats(kinds * c)};
      }
    Case& own_rows = add("type_add_row_shard", OpKind::type_add, 30, 16, 2);  // rows 30 to 59 of 60
    own_rows.op.batch = b, own_rows.op.sequence = t;
    own_rows.op.row_shard = true;
    own_rows.context.tensor_rank = 1;
    own_rows.in = {floats(30 * 16), floats(2 * 16), ids(60, 2)};
    own_rows.out = {in_place(0)};
    Case& parts = add("type_grad_parts", OpKind::type_grad, 700, 40, 3);  // sums in several parts
    parts.op.batch = 7, parts.op.sequence = 100;
    parts.in = {floats(700 * 40), ids(700, 3)};
    parts.out = {floats(3 * 40)};
  }

  void rows() {
    const std::int64_t b = 4, t = 30, all = b * t;
    for (const std::int64_t m : {21, 40})
      for (const int rank : {-1, 0, 1}) {  // -1: it has all rows
        const bool sharded = rank >= 0;
        const std::int64_t held = sharded ? all / 2 : all;
        for (const bool listed : {true, false}) {
          const std::int64_t n = listed ? 50 : b;
          const std::string name = std::string(listed ? "" : "_first") + (sharded ? "_rank_" : "") +
                                   (sharded ? std::to_string(rank) : "") + "_" + std::to_string(m);
          Case& gather = add("gather_rows" + name, OpKind::gather_rows, n, m, held);
          gather.op.batch = b, gather.op.sequence = t;
          gather.op.row_shard = sharded;
          gather.context.tensor_rank = sharded ? rank : 0;
          const Slot chosen = listed ? ids(n, static_cast<std::int32_t>(all)) : Slot{};  // some twice
          gather.in = {floats(held * m), chosen};
          gather.out = {unset(n * m)};
          for (const bool accumulate : {false, true}) {
            Case& scatter = add("scatter_rows" + name + (accumulate ? "_accumulate" : ""), OpKind::scatter_rows, n, m);
            scatter.op = gather.op;
            scatter.op.kind = OpKind::scatter_rows;
            scatter.op.accumulate = accumulate;
            scatter.context = gather.context;
            scatter.in = {floats(n * m), chosen};
            scatter.out = {accumulate ? floats(held * m) : unset(held * m)};
          }
        }
      }
    Case& many = add("scatter_rows_many", OpKind::scatter_rows, 600, 300, 40);  // rounds of the scan, and stripes
    many.op.batch = 2, many.op.sequence = 20;
    many.in = {floats(600 * 300), ids(600, 40)};
    many.out = {unset(40 * 300)};
  }

  void elementwise() {
    for (const std::int64_t m : {45, 48}) {
      const std::int64_t n = 7, size = n * m;
      const std::string name = m == 45 ? "" : "_packs";
      Case& erf = add("gelu_erf" + name, OpKind::gelu_erf, n, m);
      erf.in = {floats(size, 3)};
      erf.out = {unset(size)};
      Case& erf_grad = add("gelu_erf_grad" + name, OpKind::gelu_erf_grad, n, m);
      erf_grad.in = {floats(size), floats(size, 3)};
      erf_grad.out = {in_place(0)};
      Case& tanh = add("tanh" + name, OpKind::tanh, n, m);
      tanh.in = {floats(size, 2)};
      tanh.out = {in_place(0)};
      Case& tanh_grad = add("tanh_grad" + name, OpKind::tanh_grad, n, m);
      tanh_grad.in = {floats(size), floats(size, 0.4F)};
      tanh_grad.out = {in_place(0)};
    }
  }

  void classes() {
    for (const auto& [n, m] : {std::pair<std::int64_t, std::int64_t>{5, 2}, {300, 3}}) {
      const std::string size = "_" + std::to_string(n);
      Case& loss = add("class_loss" + size, OpKind::class_loss, n, m);
      loss.op.scale = 1.0 / 64;
      loss.in = {floats(n * m, 3), ids(n, static_cast<std::int32_t>(m))};
      loss.out = {floats(1)};
      for (const bool scaled : {false, true}) {
        Case& grad = add("class_loss_grad" + size + (scaled ? "_scaled" : ""), OpKind::class_loss_grad, n, m);
        grad.op.scale = 1.0 / 64;
        Slot scaling = zeros(4);
        scaling.floats[0] = 512;
        grad.in = {floats(n * m, 3), ids(n, static_cast<std::int32_t>(m)), scaled ? scaling : Slot{}};
        grad.out = {scaled ? unset(n * m) : in_place(0)};
      }
    }
  }

  // -- compression ------------------------------------------------------------------------------------------------
  static constexpr DType kTypes[] = {DType::fp32, DType::bf16, DType::fp16};

  void conversions() {
    for (const DType from : kTypes)
      for (const DType to : kTypes)
        for (const std::int64_t m : {1000, 1003}) {
          const std::string name =
              std::string("_") + models::name_of(from) + "_to_" + models::name_of(to) + "_" + std::to_string(m);
          Case& convert = add("convert" + name, OpKind::convert, 0, m);
          convert.op.dtype = from == DType::fp32 ? to : from;
          convert.in = {of(floats(m), from)};
          convert.out = {of(unset(m), to)};
          convert.tolerance = 0;
          for (const bool accumulate : {false, true}) {
            Case& sum = add("sum_pieces" + name + (accumulate ? "_accumulate" : ""), OpKind::sum_pieces, 5, m);
            sum.op.dtype = from;
            sum.op.accumulate = accumulate;
            sum.in = {of(floats(5 * m), from)};
            sum.out = {of(accumulate ? floats(m) : unset(m), to)};
            sum.tolerance = 0;
          }
        }
    for (const std::int64_t m : {1000, 1003}) {
      Case& scaled = add("add_scaled_" + std::to_string(m), OpKind::add_scaled, 0, m);
      scaled.op.scale = -0.25;
      scaled.in = {floats(m)};
      scaled.out = {floats(m)};
    }
  }

  void columns() {
    for (const auto& [rows, count] : {std::pair<std::int64_t, std::int64_t>{37, 1}, {1500, 4}, {64, 11}, {20, 20}}) {
      Case& c = add("orthogonalise_" + std::to_string(rows) + "_" + std::to_string(count), OpKind::orthogonalise, count,
                    rows);
      c.out = {floats(rows * count)};
      c.tolerance = 2e-5;  // of a square matrix the last column is what rounding leaves of little
    }
    // The third column is twice the first, the fourth nothing: unit vectors take their places.
    Case& spanned = add("orthogonalise_spanned", OpKind::orthogonalise, 4, 30);
    spanned.out = {floats(30 * 4)};
    for (std::size_t r = 0; r < 30; ++r) {
      std::vector<float>& x = spanned.out[0].floats;
      x[4 * r + 2] = 2 * x[4 * r];
      x[4 * r + 3] = 0;
    }
    spanned.tolerance = 1e-5;
  }

  void encodings() {
    for (const DType dtype : kTypes)
      for (const std::int64_t bits : {8, 10, 16})
        for (const std::int64_t m : {1000, 1003}) {
          const std::string name =
              std::string("_") + models::name_of(dtype) + "_in_" + std::to_string(bits) + "_" + std::to_string(m);
          const std::int64_t bytes = bits == 10 ? (m + 2) / 3 * 4 : m * bits / 8;
          Slot codes = of(ids_as_floats(bytes), DType::uint8);
          Case& encode = add("encode" + name, OpKind::encode, 0, m, bits);
          encode.op.dtype = dtype;
          encode.in = {of(floats(m, 30), dtype)};  // some too large, some too small for 8 bits
          encode.in[0].floats[3] = 1e-9F;
          encode.in[0].floats[4] = dtype == DType::fp16 ? 6e4F : 1e9F;
          encode.out = {codes};
          encode.tolerance = 0;
          Case& decode = add("decode" + name, OpKind::decode, 0, m, bits);
          decode.op.dtype = dtype;
          decode.in = {of(valid_codes(m, bits), DType::uint8)};
          decode.out = {of(unset(m), dtype)};
          decode.tolerance = 0;
        }
  }
  Slot ids_as_floats(std::int64_t count) {
    Slot slot = zeros(count);
    for (float& v : slot.floats) v = static_cast<float>(random() % 256);
    return slot;
  }
  /// Bytes of codes that are numbers: none has all bits of its exponent.
  Slot valid_codes(std::int64_t m, std::int64_t bits) {
    const std::int64_t bytes = bits == 10 ? (m + 2) / 3 * 4 : m * bits / 8;
    Slot slot = zeros(bytes);
    const auto code = [&]() -> unsigned {
      const unsigned any = static_cast<unsigned>(random());
      return bits == 8 ? any & 0xB7U : bits == 10 ? any & 0x2EFU : any & 0xBBFFU;
    };
    const std::int64_t step = bits == 8 ? 1 : bits == 10 ? 4 : 2;
    for (std::int64_t at = 0; at < bytes; at += step) {
      unsigned word = code();
      if (bits == 10) word |= code() << 10 | code() << 20;
      for (std::int64_t i = 0; i < step; ++i)
        slot.floats[static_cast<std::size_t>(at + i)] = static_cast<float>(word >> 8 * i & 0xFFU);
    }
    return slot;
  }
};

}  // namespace

std::vector<Case> masked_cases() {
  Maker maker;
  maker.cases.reserve(256);  // references to cases stay valid
  maker.types();
  maker.rows();
  maker.elementwise();
  maker.classes();
  return maker.cases;
}

std::vector<Case> compression_cases() {
  Maker maker;
  maker.cases.reserve(256);
  maker.conversions();
  maker.columns();
  maker.encodings();
  return maker.cases;
}

}  // namespace orrery::exec::gpu_test
