// Cases of mixtures of experts, latent attention and Newton-Schulz: slots that are not full, experts without a row,
// tokens that are dropped. What is not there is huge, so that whoever reads it is seen.
#include <algorithm>
#include <numeric>

#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

using models::DType;
using models::Function;
using models::Op;
using models::OpKind;
using models::Routing;
using models::Scores;
using models::TokenCodec;

constexpr DType kTypes[] = {DType::fp32, DType::bf16, DType::fp16};

/// How many rows of each expert stand in each slot.
struct Filled {
  const char* name;
  std::int64_t slots, experts, capacity;
  std::vector<std::int32_t> counts;
  [[nodiscard]] std::int64_t rows() const { return slots * capacity; }
  [[nodiscard]] std::int64_t there(std::int64_t slot) const {
    const auto first = counts.begin() + slot * experts;
    return std::accumulate(first, first + experts, std::int64_t{0});
  }
};
const Filled kAlone{"", 1, 4, 92, {20, 0, 70, 2}}, kTwo{"_two_slots", 2, 3, 40, {7, 0, 5, 0, 33, 1}};

struct Maker : CaseMaker {
  Maker() : CaseMaker{std::mt19937(20261123)} {}

  static Slot listed(std::vector<std::int32_t> ids) {
    Slot slot;
    slot.ids = std::move(ids);
    return slot;
  }
  static Slot unset_ids(std::int64_t count) {
    return listed(std::vector<std::int32_t>(static_cast<std::size_t>(count), -7));
  }
  static Slot counts_of(const Filled& f) { return listed(f.counts); }
  /// Rows of slots; those that are not there are huge.
  Slot rows_of(const Filled& f, std::int64_t columns, float scale = 1) {
    Slot slot = floats(f.rows() * columns, scale);
    for (std::int64_t row = 0; row < f.rows(); ++row)
      if (row % f.capacity >= f.there(row / f.capacity))
        std::fill_n(slot.floats.begin() + row * columns, columns, 3e4F);
    return slot;
  }
  Case& in_slots(const std::string& name, OpKind kind, const Filled& f, std::int64_t m) {
    Case& c = add(name + f.name, kind, f.rows(), m);
    c.op.slots = f.slots, c.op.experts = f.experts, c.op.capacity = f.capacity;
    return c;
  }

  /// The last case, and the same in 16 bits: of `in` and `out` each t as the type says, g a gradient of weights, f
  /// fp32.
  void in_all_types(const std::string& in, const std::string& out) {
    const Case c = cases.back();
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      Case narrow = c;
      narrow.name = std::string(models::name_of(dtype)) + "_" + c.name;
      narrow.op.dtype = dtype;
      narrow.tolerance = dtype == DType::bf16 ? bound::kRoundedOnceBf16 : bound::kRoundedOnceFp16;
      const auto side = [&](std::vector<Slot>& slots, const std::string& types) {
        for (std::size_t i = 0; i < slots.size(); ++i) {
          const bool gradient = types.at(i) == 'g' && dtype == DType::bf16;
          if (types.at(i) != 'f' && slots[i].ids.empty() && !gradient) slots[i].dtype = dtype;
        }
      };
      side(narrow.in, in);
      side(narrow.out, out);
      cases.push_back(std::move(narrow));
    }
  }

  // -- routers ----------------------------------------------------------------------------------------------------
  struct Router {
    const char* name;
    Routing routing;
    bool bias = false;
    std::int64_t tokens = 13, experts = 12, chosen = 3;
  };
  static std::vector<Router> routers() {
    Router softmax{"softmax", {}}, mixtral{"normalised", {}}, chosen{"of_the_chosen", {}}, one{"one_of_all", {}};
    mixtral.routing.normalised = true;
    chosen.routing.scores = Scores::softmax_chosen, chosen.bias = true;
    one.chosen = 1;
    Router v2{"groups_by_best", {}}, v3{"sigmoid_in_groups", {}}, wide{"wide", {}}, plain{"sigmoid", {}};
    v2.routing.groups = 4, v2.routing.groups_chosen = 2, v2.routing.groups_by_two = false, v2.routing.weight_scale = 16;
    v3.routing.scores = Scores::sigmoid, v3.routing.normalised = true, v3.routing.weight_scale = 2.5, v3.bias = true;
    v3.routing.groups = 4, v3.routing.groups_chosen = 2;
    wide.experts = 70, wide.chosen = 8, wide.tokens = 9, wide.bias = true;
    plain.routing.scores = Scores::sigmoid, plain.chosen = 1;
    return {softmax, mixtral, chosen, one, v2, v3, wide, plain};
  }
  /// Every token's choice, none twice.
  Slot choices(const Router& r, bool some_dropped = false) {
    std::vector<std::int32_t> out;
    for (std::int64_t t = 0; t < r.tokens; ++t)
      for (std::int64_t i = 0; i < r.chosen; ++i)
        out.push_back(static_cast<std::int32_t>((t * t + 5 * i) % (r.experts - (some_dropped ? 2 : 0))));
    return listed(std::move(out));
  }
  Slot positive(std::int64_t count) {
    Slot slot = floats(count);
    for (float& v : slot.floats) v = 0.1F + std::abs(v);
    return slot;
  }
  Case& of_router(const std::string& name, OpKind kind, const Router& r) {
    Case& c = add(r.name[0] == 0 ? name : name + "_" + r.name, kind, r.tokens, r.experts);
    c.op.chosen = r.chosen;
    c.op.routing = r.routing;
    c.op.scale = 1.0 / 26;
    return c;
  }

  void routing() {
    for (const Router& r : routers()) {
      const std::int64_t all = r.tokens * r.experts, chosen = r.tokens * r.chosen;
      Case& forward = of_router("route", OpKind::route, r);
      forward.in = {floats(all, 2), r.bias ? floats(r.experts, 0.3F) : Slot{}};
      forward.out = {unset(all), unset_ids(chosen), unset(chosen)};
      for (const bool balances : {false, true}) {
        Case& back = of_router(balances ? "route_grad_balanced" : "route_grad", OpKind::route_grad, r);
        if (balances) back.op.routing.aux = 0.3, back.op.routing.z = 0.2;
        back.in = {floats(chosen), floats(all, 2), positive(all), choices(r), positive(chosen)};
        if (balances) back.in.push_back(positive(r.experts));
        back.out = {unset(all)};
        if (!balances) continue;
        Case& scaled = of_router("route_grad_scaled", OpKind::route_grad, r);
        scaled.op.routing.aux = 0.3, scaled.op.routing.z = 0.2;
        scaled.in = {floats(chosen),   floats(all, 2),      positive(all), choices(r),
                     positive(chosen), positive(r.experts), positive(1)};
        scaled.out = {unset(all)};
      }
    }
    Router many = routers().front();
    for (const std::int64_t tokens : {13, 700}) {  // one part and several
      many.tokens = tokens;
      Case& counts = of_router("count_choices_" + std::to_string(tokens), OpKind::count_choices, many);
      counts.in = {floats(tokens * many.experts, 2), choices(many)};
      counts.out = {positive(2 * many.experts + 1)};
    }
    Case& losses = add("balance_losses", OpKind::balance_losses, 96, 300);
    losses.in = {positive(601)};
    losses.out = {unset(2)};
    Case& bias = add("balance_bias", OpKind::balance_bias, 0, 300);
    bias.op.scale = 0.01;
    bias.in = {positive(601)};
    bias.in[0].floats[7] = std::accumulate(bias.in[0].floats.begin(), bias.in[0].floats.begin() + 300, 0.0F) / 300;
    bias.out = {floats(300)};
  }

  void placing() {
    for (const std::int64_t slots : {1, 3})
      for (const std::int64_t limit : {0, 4}) {
        Router r{"", {}};
        r.tokens = 420, r.experts = 12;  // more choices than a block looks at at a time
        Case& c =
            of_router("place_rows_" + std::to_string(slots) + "_limit_" + std::to_string(limit), OpKind::place_rows, r);
        c.op.batch = 20, c.op.sequence = 21;
        c.op.slots = slots, c.op.experts = r.experts / slots, c.op.capacity = r.tokens * r.chosen;
        c.op.routing.token_limit = limit;
        c.in = {choices(r, true)};
        c.out = {unset_ids(r.tokens * r.chosen), unset_ids(r.experts)};
      }
  }

  // -- rows on their way ------------------------------------------------------------------------------------------
  /// Where each token's rows are: all of those that are there but one, in a mixed order, and -1 for what is dropped.
  Slot places(const Filled& f, std::int64_t tokens, std::int64_t chosen) {
    std::vector<std::int32_t> rows;
    for (std::int64_t slot = 0; slot < f.slots; ++slot)
      for (std::int64_t i = 0; i < f.there(slot); ++i) rows.push_back(static_cast<std::int32_t>(slot * f.capacity + i));
    std::shuffle(rows.begin(), rows.end(), random);
    rows.resize(static_cast<std::size_t>(tokens * chosen), -1);
    std::swap(rows.front(), rows.back());
    return listed(std::move(rows));
  }
  void ways() {
    for (const Filled& f : {kAlone, kTwo})
      for (const std::int64_t columns : {33, 48})
        for (const bool weighted : {false, true}) {
          const std::int64_t tokens = 25, chosen = 3;
          const std::string name = "_" + std::to_string(columns) + (weighted ? "_weighted" : "");
          const Slot place = places(f, tokens, chosen), weights = weighted ? floats(tokens * chosen) : Slot{};
          const auto one = [&](const char* what, OpKind kind) -> Case& {
            Case& c = in_slots(what + name, kind, f, columns);
            c.op.n = tokens;
            c.op.chosen = chosen;
            return c;
          };
          Case& out = one("dispatch", OpKind::dispatch);
          out.in = {floats(tokens * columns), place, weights};
          out.out = {zeros(f.rows() * columns)};
          in_all_types("tff", "t");
          Case& back = one("combine", OpKind::combine);
          back.in = {rows_of(f, columns), place, weights};
          back.out = {unset(tokens * columns)};
          in_all_types("tff", "t");
          if (weighted) continue;
          Case& grad = one("combine_weight_grad", OpKind::combine_weight_grad);
          grad.in = {floats(tokens * columns), rows_of(f, columns), place};
          grad.out = {unset(tokens * chosen)};
          in_all_types("ttf", "f");
        }
  }

  void codecs() {
    for (const Filled& f : {kAlone, kTwo})
      for (const TokenCodec codec : {TokenCodec::bf16, TokenCodec::fp8, TokenCodec::int8})
        for (const DType dtype : kTypes) {
          const DType coded = models::dtype_of(codec);
          if (coded == dtype) continue;
          const std::int64_t columns = 150,
                             width = models::elements_of_row(codec, columns);  // a block and a part of one
          const std::string name = std::string("_") + models::name_of(dtype) + "_as_" +
                                   (codec == TokenCodec::bf16  ? "bf16"
                                    : codec == TokenCodec::fp8 ? "fp8"
                                                               : "int8");
          Case& encode = in_slots("encode_rows" + name, OpKind::encode_rows, f, columns);
          encode.op.k = width, encode.op.codec = codec, encode.op.dtype = dtype;
          encode.in = {of(rows_of(f, columns), dtype), counts_of(f)};
          encode.in[0].floats[3] = 0;
          encode.out = {of(zeros(f.rows() * width), coded)};
          encode.tolerance = 0;
          Case& decode = in_slots("decode_rows" + name, OpKind::decode_rows, f, columns);
          decode.op.k = width, decode.op.codec = codec, decode.op.dtype = dtype;
          decode.in = {of(codec == TokenCodec::bf16 ? rows_of(f, width) : coded_rows(f, columns, codec), coded),
                       counts_of(f)};
          decode.out = {of(zeros(f.rows() * columns), dtype)};
          decode.tolerance = 0;
        }
  }
  /// Scales that are powers of two, then codes that are numbers.
  Slot coded_rows(const Filled& f, std::int64_t columns, TokenCodec codec) {
    const std::int64_t scales = models::scales_of_row(codec, columns);
    Slot slot;
    for (std::int64_t row = 0; row < f.rows(); ++row) {
      for (std::int64_t s = 0; s < scales; ++s)
        for (const unsigned byte : {0x00U, 0x00U, 0x80U, 0x3EU}) slot.floats.push_back(static_cast<float>(byte));
      for (std::int64_t i = 0; i < columns; ++i) slot.floats.push_back(static_cast<float>(random() % 256 & 0xBFU));
    }
    return slot;
  }

  // -- in slots ---------------------------------------------------------------------------------------------------
  void products() {
    for (const Filled& f : {kAlone, kTwo})
      for (const std::int64_t n : {70, 48})  // single elements, and packs of every type
        for (const bool two : {false, true})
          for (const bool tf32 : {false, true}) {
            if (tf32 && n == 48) continue;
            const std::int64_t k = n == 70 ? 45 : 64, sides = two ? 2 : 1, weight = f.experts * n * k;
            const std::string name = "_" + std::to_string(n) + (two ? "_two" : "") + (tf32 ? "_tf32" : "");
            const auto one = [&](const char* what, OpKind kind) -> Case& {
              Case& c = in_slots(what + name, kind, f, f.rows());
              c.op.n = n, c.op.k = k;
              c.op.rounded = tf32;
              if (tf32) c.tolerance = bound::kTf32;
              return c;
            };
            Case& forward = one("grouped_matmul", OpKind::grouped_matmul);
            forward.op.trans_b = true;
            forward.in = {rows_of(f, k), floats(weight), counts_of(f)};
            if (two) forward.in.push_back(floats(weight));
            forward.out = {zeros(f.rows() * sides * n)};
            if (!tf32) in_all_types("ttft", "t");
            Case& back = one("grouped_matmul_back", OpKind::grouped_matmul);
            back.in = {rows_of(f, sides * k), floats(weight), counts_of(f)};
            if (two) back.in.push_back(floats(weight));
            back.out = {zeros(f.rows() * n)};
            if (!tf32) in_all_types("ttft", "t");
            for (const bool accumulates : {false, true}) {
              Case& grad =
                  one(accumulates ? "grouped_weight_grad_adds" : "grouped_weight_grad", OpKind::grouped_weight_grad);
              grad.op.m = k, grad.op.k = 0;
              grad.op.accumulate = accumulates;
              grad.in = {rows_of(f, sides * k), rows_of(f, n), counts_of(f)};
              for (std::int64_t side = 0; side < sides; ++side)
                grad.out.push_back(accumulates ? floats(weight) : unset(weight));
              if (!tf32) in_all_types("ttf", "gg");
            }
          }
  }

  void biases() {
    for (const Filled& f : {kAlone, kTwo})
      for (const std::int64_t m : {35, 40})
        for (const bool two : {false, true}) {
          const std::int64_t sides = two ? 2 : 1;
          const std::string name = "_" + std::to_string(m) + (two ? "_two" : "");
          Case& bias = in_slots("expert_bias" + name, OpKind::expert_bias, f, m);
          bias.op.scale = 0.5;
          bias.in = {rows_of(f, sides * m), floats(f.experts * m), counts_of(f)};
          if (two) bias.in.push_back(floats(f.experts * m));
          bias.out = {in_place(0)};
          in_all_types("ttft", "t");
          Case& grad = in_slots("expert_bias_grad" + name, OpKind::expert_bias_grad, f, m);
          grad.in = {rows_of(f, sides * m), counts_of(f)};
          for (std::int64_t side = 0; side < sides; ++side) grad.out.push_back(floats(f.experts * m));
          in_all_types("tf", "gg");
        }
  }

  void activations() {
    struct One {
      const char* name;
      OpKind forward, backward;
      Function function;
      std::int64_t wide;
    };
    const One all[] = {{"gate_silu", OpKind::gate, OpKind::gate_grad, Function::silu, 2},
                       {"gate_clamped", OpKind::gate, OpKind::gate_grad, Function::clamped, 2},
                       {"swiglu", OpKind::swiglu, OpKind::swiglu_grad, Function::none, 2},
                       {"activate", OpKind::activate, OpKind::activate_grad, Function::squared_relu, 1},
                       {"gelu", OpKind::gelu, OpKind::gelu_grad, Function::none, 1},
                       {"relu", OpKind::relu, OpKind::relu_grad, Function::none, 1}};
    for (const One& one : all)
      for (const std::int64_t m : {21, 24}) {
        const std::string name = std::string(one.name) + "_in_slots_" + std::to_string(m);
        Case& forward = in_slots(name, one.forward, kTwo, m);
        forward.op.function = one.function;
        forward.in = {rows_of(kTwo, one.wide * m, 3), counts_of(kTwo)};
        forward.out = {zeros(kTwo.rows() * m)};
        in_all_types("tf", "t");
        Case& back = in_slots(name + "_grad", one.backward, kTwo, m);
        back.op.function = one.function;
        back.in = {rows_of(kTwo, m), rows_of(kTwo, one.wide * m, 3), counts_of(kTwo)};
        back.out = {zeros(kTwo.rows() * one.wide * m)};
        if (one.backward == OpKind::gelu_grad) back.tolerance = bound::kGeluGradient;
        in_all_types("ttf", "t");
      }
  }

  void gates() {
    for (const std::int64_t m : {37, 48}) {
      const std::string name = "_" + std::to_string(m);
      Case& gate = add("row_gate" + name, OpKind::row_gate, 11, m);
      gate.in = {floats(11 * m), floats(11)};
      gate.out = {in_place(0)};
      in_all_types("tf", "t");
      Case& grad = add("row_gate_grad" + name, OpKind::row_gate_grad, 11, m);
      grad.in = {floats(11 * m), floats(11 * m), floats(11)};
      grad.out = {in_place(0), unset(11)};
      in_all_types("ttf", "tf");
    }
  }

  /// Logits' gradients in fp32 beside activations and weights in 16 bits.
  void mixed() {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      const std::string name = std::string("_of_fp32_and_") + models::name_of(dtype);
      const auto product = [&](const std::string& what, std::int64_t m, std::int64_t n, std::int64_t k) -> Case& {
        Case& c = add("matmul" + name + what, OpKind::matmul, n, m, k);
        c.op.dtype = dtype;
        c.tolerance = dtype == DType::bf16 ? bound::kRoundedOnceBf16 : bound::kRoundedOnceFp16;
        return c;
      };
      Case& weight = product("_weight", 8, 70, 90);
      weight.op.trans_a = weight.op.accumulate = true;
      weight.in = {floats(90 * 8), of(floats(90 * 70), dtype), Slot{}};
      weight.out = {of(floats(8 * 70), dtype == DType::bf16 ? DType::fp32 : dtype)};
      Case& input = product("_input", 90, 70, 8);
      input.op.accumulate = true;
      input.in = {floats(90 * 8), of(floats(8 * 70), dtype), Slot{}};
      input.out = {of(floats(90 * 70), dtype)};
      Case& turned = product("_turned", 20, 9, 33);
      turned.op.trans_b = true, turned.op.scale = 0.5;
      turned.in = {of(floats(20 * 33), dtype), floats(9 * 33), Slot{}};
      turned.out = {of(unset(20 * 9), dtype)};
    }
  }

  // -- latent attention -------------------------------------------------------------------------------------------
  void latent() {
    const std::int64_t n = 7, h = 3, d = 10, turned = 4, value = 8, made = d - turned + value;
    const auto heads = [&](const char* name, OpKind kind) -> Case& {
      Case& c = add(name, kind, n, 0, value);
      c.op.heads = h, c.op.head_dim = d, c.op.rotary = turned;
      return c;
    };
    for (const std::int64_t m : {5, 24}) {
      const std::int64_t k = m == 5 ? 3 : 8;
      Case& split = add("split_columns_" + std::to_string(m), OpKind::split_columns, n, m, k);
      split.in = {floats(n * (m + k))};
      split.out = {unset(n * m), unset(n * k)};
      in_all_types("t", "tt");
      Case& join = add("join_columns_" + std::to_string(m), OpKind::join_columns, n, m, k);
      join.in = {floats(n * m), floats(n * k)};
      join.out = {unset(n * (m + k))};
      in_all_types("tt", "t");
    }
    Case& pack = heads("latent_pack", OpKind::latent_pack);
    pack.in = {floats(n * h * d), floats(n * h * made), floats(n * turned)};
    pack.out = {unset(n * 3 * h * d)};
    in_all_types("ttt", "t");
    Case& unpack = heads("latent_pack_grad", OpKind::latent_pack_grad);
    unpack.in = {floats(n * 3 * h * d)};
    unpack.out = {unset(n * h * d), unset(n * h * made), unset(n * turned)};
    in_all_types("t", "ttt");
    Case& values = heads("head_values", OpKind::head_values);
    values.in = {floats(n * h * d)};
    values.out = {unset(n * h * value)};
    in_all_types("t", "t");
    Case& back = heads("head_values_grad", OpKind::head_values_grad);
    back.in = {floats(n * h * value)};
    back.out = {unset(n * h * d)};
    in_all_types("t", "t");
  }

  // -- Newton-Schulz ----------------------------------------------------------------------------------------------
  Case& matrix(const std::string& name, std::int64_t m, std::int64_t n) {
    Case& c = add("newton_schulz" + name, OpKind::newton_schulz, n, m);
    c.tolerance = 2e-5;  // fifteen products, which stretch what is small
    c.op.parts.shard = m * n;
    const std::int64_t shorter = std::min(m, n);
    c.in = {floats(m * n, 0.01F)};
    c.out = {zeros(m * n), zeros(2 * m * n + 2 * shorter * shorter)};
    return c;
  }
  void newton_schulz() {
    matrix("_wide", 9, 30);
    matrix("_tall", 30, 9);
    // A bucket of three pieces, of which the matrix begins in the first and ends in the third; rows or columns over two
    // tensor ranks.
    for (const bool rows : {false, true}) {
      Case& c = matrix(rows ? "_rows_in_pieces" : "_columns_in_pieces", 12, 20);
      c.op.parts = {.offset = 30, .shard = 60, .shards = 3, .row_ways = rows ? 2 : 1, .column_ways = rows ? 1 : 2};
      c.context.shard = 1, c.context.tensor_rank = 1, c.context.tensor_ways = 2;
      c.in = {floats(2 * 3 * 60, 0.01F)};
      c.out[0] = floats(60);
    }
    Case& elsewhere = matrix("_elsewhere", 4, 6);
    elsewhere.op.parts = {.offset = 0, .shard = 30, .shards = 2, .row_ways = 1, .column_ways = 1};
    elsewhere.context.shard = 1;
    elsewhere.in = {floats(60)};
    elsewhere.out[0] = floats(30);
  }
};

}  // namespace

std::vector<Case> expert_cases() {
  Maker maker;
  maker.cases.reserve(1024);  // references to cases stay valid
  maker.routing();
  maker.placing();
  maker.ways();
  maker.codecs();
  maker.products();
  maker.biases();
  maker.activations();
  maker.gates();
  maker.mixed();
  maker.latent();
  maker.newton_schulz();
  return maker.cases;
}

}  // namespace orrery::exec::gpu_test
