// Cases of norms, loss scaling and updates: ranges that cut parameters as shards do, gaps between them, parameters with
// masters and without, steps that are skipped.
#include <cmath>

#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

using models::DType;
using models::OpKind;

struct Maker {
  std::mt19937 random{20260102};
  std::vector<Case> cases;

  Case& add(const std::string& name, OpKind kind, std::int64_t m) {
    cases.emplace_back();
    Case& c = cases.back();
    c.name = name;
    c.op.kind = kind;
    c.op.m = m;
    c.context = {.step = 6, .learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
    c.context.seed = 77;
    return c;
  }
  Slot floats(std::int64_t elements, float scale = 1) { return random_floats(random, elements, scale); }
  Slot squares(std::int64_t elements) {
    Slot slot = floats(elements, 0.1F);
    for (float& v : slot.floats) v *= v;
    return slot;
  }
  static Slot one(float value) {
    Slot slot = zeros(1);
    slot.floats[0] = value;
    return slot;
  }
  /// Loss scale, steps since it changed, steps skipped, whether this one is.
  static Slot scaling(bool skips) {
    Slot slot = zeros(4);
    slot.floats = {256, 3, 2, skips ? 1.0F : 0.0F};
    return slot;
  }

  void small() {
    Case& zero = add("fill_zero", OpKind::fill_zero, 1001);
    zero.out = {unset(1001)};
    Case& copy = add("copy", OpKind::copy, 1001);
    copy.in = {floats(1001)};
    copy.out = {unset(1001)};
    for (const DType dtype : {DType::fp32, DType::fp16}) {
      const std::string type = dtype == DType::fp32 ? "" : "_fp16";
      Case& accumulate = add("accumulate_into" + type, OpKind::accumulate_into, 1001);
      accumulate.op.dtype = dtype;
      accumulate.in = {of(floats(1001), dtype)};
      accumulate.out = {of(floats(1001), dtype)};
      if (dtype == DType::fp16) accumulate.tolerance = 2e-4;
    }
    for (const bool scaled : {false, true})
      for (const double clip : {0.0, 1.0, 1000.0}) {
        Case& c = add("clip_coefficient_" + std::to_string(static_cast<int>(clip)) + (scaled ? "_scaled" : ""),
                      OpKind::clip_coefficient, 1);
        c.context.clip_norm = clip;
        c.in = {one(123.4F)};
        if (scaled) c.in.push_back(scaling(false));
        c.out = {unset(1), unset(1)};
      }
    for (const float total : {12.5F, INFINITY}) {
      Case& c = add(std::isinf(total) ? "overflow_yes" : "overflow_no", OpKind::overflow, 1);
      c.in = {one(total)};
      c.out = {unset(1)};
    }
    for (const bool skips : {false, true})
      for (const std::int64_t interval : {4, 100}) {
        Case& c = add("loss_scale_" + std::to_string(interval) + (skips ? "_skips" : ""), OpKind::loss_scale, 4);
        c.context.scale_interval = interval;
        c.context.scale_factor = 4;
        c.out = {scaling(skips)};
      }
  }

  /// The types that plans train in: gradients, parameters that are updated, their copy.
  struct Types {
    const char* name;
    DType gradient, parameter, copy;
    bool copies, stochastic;
  };
  static const std::vector<Types>& types() {
    static const std::vector<Types> all = {
        {"fp32", DType::fp32, DType::fp32, DType::fp32, false, false},
        {"bf16", DType::fp32, DType::fp32, DType::bf16, true, false},
        {"fp16", DType::fp16, DType::fp32, DType::fp16, true, false},
        {"stochastic", DType::fp32, DType::bf16, DType::fp32, false, true},
    };
    return all;
  }

  /// An update's operands around those of its own: gradient, coefficient [, ours] [, scaling] -> param [, ours] [,
  /// copy].
  void finish(Case& c, const Types& t, std::int64_t m, const std::vector<Slot>& inputs, const std::vector<Slot>& states,
              bool with_gradient, int scaled) {
    c.name += std::string("_") + t.name + (scaled == 0 ? "" : scaled == 1 ? "_scaled" : "_skipped");
    c.op.dtype = t.gradient;
    c.op.stochastic = t.stochastic;
    if (with_gradient) c.in = {of(floats(m, 0.1F), t.gradient), one(0.37F)};
    for (const Slot& slot : inputs) c.in.push_back(slot);
    if (scaled > 0) c.in.push_back(scaling(scaled == 2));
    c.out = {of(floats(m), t.parameter)};
    for (const Slot& slot : states) c.out.push_back(slot);
    if (t.copies) c.out.push_back(of(floats(m), t.copy));
    // Rounded once from nearly equal values; at random, where a carry may come or not.
    c.tolerance = t.stochastic ? 1e-3 : t.copies ? 2e-4 : bound::kFp32;
  }

  static std::vector<ElementRange> plain_ranges() {
    std::vector<ElementRange> ranges = {
        {0, 17, false, 1}, {17, 20000, true, 0.5}, {20000, 20003, true, 0}, {20100, 39990, false, 1}};
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      ranges[i].norms = static_cast<std::int64_t>(i);
      ranges[i].share = i == 1 ? 0.5 : 1;
      ranges[i].stream = 1000 + i;
      ranges[i].logical = static_cast<std::int64_t>(5 + 3 * i);
    }
    return ranges;
  }

  void flat() {
    const std::int64_t m = 40000;  // more than two tiles
    for (const DType dtype : {DType::fp32, DType::fp16})
      for (const bool ranged : {false, true}) {
        Case& norm = add(std::string("norm_squared_") + models::name_of(dtype) + (ranged ? "_ranges" : ""),
                         OpKind::norm_squared, m);
        norm.in = {of(floats(m), dtype)};
        norm.out = {floats(1)};
        if (ranged) norm.ranges = plain_ranges();
      }
    Case& whole = add("adamw_whole", OpKind::adamw, m);
    whole.in = {floats(m, 0.1F), Slot{}};
    whole.out = {floats(m), floats(m, 0.1F), squares(m)};
    for (const Types& t : types())
      for (const int scaled : {0, 1, 2}) {
        if (scaled > 0 && t.gradient != DType::fp16) continue;
        Case& adamw = add("adamw", OpKind::adamw, m);
        adamw.ranges = plain_ranges();
        finish(adamw, t, m, {}, {floats(m, 0.1F), squares(m)}, true, scaled);
        if (!t.stochastic) {
          Case& half = add("adamw_bf16_moments", OpKind::adamw, m);
          half.ranges = plain_ranges();
          finish(half, t, m, {}, {of(floats(m, 0.1F), DType::bf16), of(squares(m), DType::bf16)}, true, scaled);
          half.tolerance = 5e-3;  // moments rounded once from nearly equal values
        }
        if (t.gradient != DType::fp16) {  // the third of three workers' updates, in the training step 6
          Case& turn = add("adamw_third_of_three", OpKind::adamw, m);
          turn.op.turn = 2, turn.op.turns = 3;
          turn.context.step = 6 * 3 + 2;
          turn.ranges = plain_ranges();
          finish(turn, t, m, {}, {floats(m, 0.1F), squares(m)}, true, scaled);
        }
        for (const int kind : {0, 1, 2}) {  // without momentum, with it, Nesterov's
          Case& sgd = add("sgd_" + std::to_string(kind), OpKind::momentum_update, m);
          sgd.ranges = plain_ranges();
          sgd.context.nesterov = kind == 2;
          finish(sgd, t, m, {}, {kind == 0 ? Slot{} : floats(m)}, true, scaled);
        }
        Case& lion = add("lion", OpKind::momentum_update, m);
        lion.op.rule = models::UpdateRule::lion;
        lion.ranges = plain_ranges();
        finish(lion, t, m, {}, {floats(m)}, true, scaled);
        Case& adagrad = add("adagrad", OpKind::momentum_update, m);
        adagrad.op.rule = models::UpdateRule::adagrad;
        adagrad.ranges = plain_ranges();
        finish(adagrad, t, m, {}, {squares(m)}, true, scaled);
        Case& moments = add("lamb_moments", OpKind::lamb_moments, m);
        moments.ranges = plain_ranges();
        finish(moments, t, m, {of(floats(m), t.parameter)}, {}, true, scaled);
        moments.op.stochastic = false;
        moments.op.n = 4;
        moments.out = {floats(m, 0.1F), squares(m), floats(8)};
        Case& lamb = add("lamb", OpKind::lamb, m);
        lamb.ranges = plain_ranges();
        lamb.op.n = 4;
        Slot norms = zeros(8);
        norms.floats = {4, 9, 2, 3, 0, 1, 7, 0.5F};
        finish(lamb, t, m, {floats(m, 0.1F), squares(m), norms}, {}, false, scaled);
        quantised(t, scaled);
      }
  }

  void quantised(const Types& t, int scaled) {
    constexpr std::int64_t block = models::kQuantisedBlock, blocks = 12;
    const std::int64_t m = blocks * block;
    Case& c = add("adamw_8bit", OpKind::adamw_8bit, m);
    c.ranges = {{0, 3 * block + 40, true, 1},
                {4 * block, 5 * block, false, 1},
                {5 * block, 5 * block + 77, false, 1},
                {7 * block, m, true, 1}};
    for (std::size_t i = 0; i < c.ranges.size(); ++i) {
      c.ranges[i].stream = 50 + i;
      c.ranges[i].logical = static_cast<std::int64_t>(9 * i);
    }
    const auto codes = [&] {
      Slot slot = zeros(m);
      slot.dtype = DType::uint8;
      std::uniform_int_distribution<int> any(0, 255);
      for (float& v : slot.floats) v = static_cast<float>(any(random));
      return slot;
    };
    const auto scales = [&] {
      Slot slot = floats(blocks);
      for (float& v : slot.floats) v = 0.01F + std::abs(v) * 0.1F;
      return slot;
    };
    finish(c, t, m, {}, {codes(), codes(), scales(), scales()}, true, scaled);
    c.tolerance = 2e-3;  // a value between two codes may have either
  }

  /// Parameters of a bucket's part: the end of one matrix, a whole one, a vector, the beginning of another matrix.
  static std::vector<ElementRange> factored_ranges() {
    std::vector<ElementRange> ranges(4);
    ranges[0] = {.begin = 0,
                 .end = 50,
                 .decay = true,
                 .norms = 0,
                 .share = 0.5,
                 .first = 25,
                 .columns = 15,
                 .all_rows = 7,
                 .all_columns = 30,
                 .factor_sum = 0,
                 .factor_rows = 1,
                 .factor_columns = 8};
    ranges[1] = {.begin = 50,
                 .end = 50 + 40 * 70,
                 .decay = true,
                 .norms = 1,
                 .first = 0,
                 .columns = 70,
                 .all_rows = 40,
                 .all_columns = 70,
                 .factor_sum = 30,
                 .factor_rows = 31,
                 .factor_columns = 71};
    ranges[2] = {.begin = 2850,
                 .end = 2950,
                 .decay = false,
                 .norms = 2,
                 .first = 6,
                 .columns = 0,
                 .all_rows = 110,
                 .all_columns = 1,
                 .factor_sum = 150};
    ranges[3] = {.begin = 2960,
                 .end = 2997,
                 .decay = false,
                 .norms = 3,
                 .first = 0,
                 .columns = 12,
                 .all_rows = 9,
                 .all_columns = 12,
                 .factor_sum = 270,
                 .factor_rows = 271,
                 .factor_columns = 280};
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      ranges[i].stream = 500 + i;
      ranges[i].logical = ranges[i].first;
    }
    return ranges;
  }

  /// Of the ranges the second is a matrix's, the others are AdamW's, whose second moments are those of what begins the
  /// bucket.
  void muon() {
    const std::int64_t m = 3000, k = 200;
    const std::vector<ElementRange> ranges = {
        {.begin = 0, .end = 199, .decay = true},
        {.begin = 200, .end = 2601, .decay = true, .orthogonal = 1.5, .logical = 5},
        {.begin = 2601, .end = 2900, .orthogonal = 1}};
    for (const Types& t : types())
      for (const int scaled : {0, 1, 2}) {
        if (scaled > 0 && t.gradient != DType::fp16) continue;
        const auto context = [&](Case& c) {
          c.ranges = ranges;
          c.context.matrix_rate = 0.02, c.context.matrix_decay = 0.05;
        };
        Case& moments = add("muon_moments", OpKind::muon_moments, m);
        context(moments);
        finish(moments, t, m, {}, {}, true, scaled);
        moments.op.stochastic = false;  // it changes no parameter
        moments.out = {floats(m), unset(m)};
        Case& step = add("muon", OpKind::muon, m);
        context(step);
        step.op.k = k;
        finish(step, t, m, {floats(m)}, {floats(m, 0.1F), squares(k)}, true, scaled);
      }
  }

  void factored() {
    const std::int64_t m = 3000, k = 300;
    for (const Types& t : types())
      for (const int scaled : {0, 1, 2}) {
        if (scaled > 0 && t.gradient != DType::fp16) continue;
        const std::string type = t.name;
        Case& sums = add("factor_sums_" + type + std::to_string(scaled), OpKind::factor_sums, m);
        sums.op.k = k;
        sums.ranges = factored_ranges();
        sums.in = {of(floats(m, 0.1F), t.gradient), one(0.37F)};
        sums.out = {squares(k)};
        Case& norms = add("factor_norms_" + type + std::to_string(scaled), OpKind::factor_norms, m);
        norms.op.k = k;
        norms.op.n = 4;
        norms.ranges = factored_ranges();
        norms.in = {of(floats(m, 0.1F), t.gradient), one(0.37F), of(floats(m), t.parameter), squares(k)};
        norms.out = {squares(8)};
        Slot of_parameters = zeros(8);
        of_parameters.floats = {30, 40, 2000, 9000, 80, 20, 0, 1000};
        Case& update = add("adafactor", OpKind::adafactor, m);
        update.op.k = k;
        update.op.n = 4;
        update.ranges = factored_ranges();
        finish(update, t, m, {squares(k), of_parameters}, {}, true, scaled);
      }
    for (const bool skips : {false, true}) {
      Case& moments = add(skips ? "factor_moments_skipped" : "factor_moments", OpKind::factor_moments, k);
      moments.in = {squares(k), scaling(skips)};
      moments.out = {squares(k)};
    }
    Case& unscaled = add("factor_moments_unscaled", OpKind::factor_moments, k);
    unscaled.in = {squares(k)};
    unscaled.out = {squares(k)};
  }
};

}  // namespace

std::vector<Case> update_cases() {
  Maker maker;
  maker.cases.reserve(1024);  // references to cases stay valid
  maker.small();
  maker.flat();
  maker.factored();
  maker.muon();
  return std::move(maker.cases);
}

}  // namespace orrery::exec::gpu_test
