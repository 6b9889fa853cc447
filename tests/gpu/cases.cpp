// The cases: every operator, with sizes that are no multiple of a warp, a tile or a block, and in place where op.h
// allows it.
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

using models::Op;
using models::OpKind;

struct Maker {
  std::mt19937 random{20260101};
  std::vector<Case> cases;

  Case& add(const std::string& name, OpKind kind, std::int64_t n, std::int64_t m, std::int64_t k = 0) {
    cases.emplace_back();
    Case& c = cases.back();
    c.name = name;
    c.op.kind = kind;
    c.op.n = n;
    c.op.m = m;
    c.op.k = k;
    return c;
  }
  Slot floats(std::int64_t elements, float scale = 1) { return random_floats(random, elements, scale); }
  Slot ids(std::int64_t elements, std::int32_t bound) { return random_ids(random, elements, bound); }
  static Slot in_place(int input) {
    Slot slot;
    slot.same_as_input = input;
    return slot;
  }

  void embeddings() {
    for (const int rank : {0, 1}) {
      const std::string shard = rank == 0 ? "_first_shard" : "_second_shard";
      for (const std::int64_t columns : {5, 300}) {
        const std::string name = shard + "_" + std::to_string(columns);
        const std::int64_t n = 70, rows = 20;  // ids repeat, and half of them are elsewhere
        Case& forward = add("embedding" + name, OpKind::embedding, n, rows, columns);
        forward.op.vocab = 37;
        forward.context.tensor_rank = rank;
        forward.context.tensor_ways = 2;
        forward.in = {ids(n, 37), floats(rows * columns)};
        forward.out = {unset(n * columns)};
        Case& backward = add("embedding_grad" + name, OpKind::embedding_grad, n, rows, columns);
        backward.op.vocab = 37;
        backward.context = cases[cases.size() - 2].context;
        backward.in = {ids(n, 37), floats(n * columns)};
        backward.out = {floats(rows * columns)};
      }
    }
    // More tokens than a block has threads, few ids: places of one token in several rounds of the scan.
    Case& many = add("embedding_grad_many", OpKind::embedding_grad, 700, 3, 40);
    many.op.vocab = 3;
    many.in = {ids(700, 3), floats(700 * 40)};
    many.out = {floats(3 * 40)};
    const std::int64_t b = 3, t = 7, c = 33;
    Case& add_positions = add("position_add", OpKind::position_add, b * t, c);
    add_positions.op.batch = b;
    add_positions.op.sequence = t;
    add_positions.in = {floats(b * t * c), floats((t + 2) * c)};
    add_positions.out = {in_place(0)};
    Case& own_rows = add("position_add_row_shard", OpKind::position_add, 10, c);  // rows 10 to 19 of 3 x 7
    own_rows.op.batch = b;
    own_rows.op.sequence = t;
    own_rows.op.row_shard = true;
    own_rows.context.tensor_rank = 1;
    own_rows.in = {floats(10 * c), floats((t + 2) * c)};
    own_rows.out = {in_place(0)};
    Case& grad = add("position_grad", OpKind::position_grad, b * t, c);
    grad.op.batch = b;
    grad.op.sequence = t;
    grad.in = {floats(b * t * c)};
    grad.out = {floats(t * c)};
  }

  void norms() {
    for (const std::int64_t columns : {1, 65, 768}) {
      for (const bool addend : {false, true}) {
        const std::int64_t n = columns == 65 ? 70 : 5, size = n * columns;
        const std::string name = "_" + std::to_string(columns) + (addend ? "_addend" : "");
        const Slot extra = addend ? floats(size) : Slot{};
        if (!addend) {
          Case& layer = add("layer_norm" + name, OpKind::layer_norm, n, columns);
          layer.op.epsilon = 1e-5;
          layer.in = {floats(size, 2), floats(columns), floats(columns)};
          layer.out = {unset(size), unset(n), unset(n)};
          Case& rms = add("rms_norm" + name, OpKind::rms_norm, n, columns);
          rms.op.epsilon = 1e-5;
          rms.in = {floats(size, 2), floats(columns)};
          rms.out = {unset(size), unset(n)};
        }
        Case& layer = add("layer_norm_grad" + name, OpKind::layer_norm_grad, n, columns);
        layer.in = {floats(size), floats(size), floats(columns), floats(n, 0.1F), floats(n), extra};
        layer.out = {unset(size), floats(columns), floats(columns)};
        // The weight's gradient is one number then: a few terms that may cancel all but a tenth of themselves.
        constexpr double kCancelled = 1e-5;
        if (columns == 1) layer.tolerance = kCancelled;
        Case& rms = add("rms_norm_grad" + name, OpKind::rms_norm_grad, n, columns);
        rms.in = {floats(size), floats(size), floats(columns), floats(n), extra};
        rms.out = {unset(size), floats(columns)};
        if (columns == 1) rms.tolerance = kCancelled;
      }
    }
    Case& bias = add("bias_grad", OpKind::bias_grad, 77, 45);
    bias.in = {floats(77 * 45)};
    bias.out = {floats(45)};
  }

  void matmuls() {
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const bool accumulate : {false, true}) {
          const std::int64_t m = 13, n = 9, k = 21;
          const std::string name = std::string("matmul") + (ta ? "_trans_a" : "") + (tb ? "_trans_b" : "") +
                                   (accumulate ? "_accumulate" : "_bias");
          Case& c = add(name, OpKind::matmul, n, m, k);
          c.op.trans_a = ta;
          c.op.trans_b = tb;
          c.op.accumulate = accumulate;
          c.in = {floats(m * k), floats(k * n), accumulate ? Slot{} : floats(n)};
          c.out = {accumulate ? floats(m * n) : unset(m * n)};
        }
  }

  void attention_case(const std::string& name, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t g,
                      std::int64_t d, bool causal, bool flash) {
    const std::int64_t n = b * t, packed = n * (h + 2 * g) * d, y = n * h * d;
    const std::int64_t saved = n * h * (flash ? 1 : t);
    Op op;
    op.n = n;
    op.batch = b;
    op.sequence = t;
    op.heads = h;
    op.kv_heads = g;
    op.head_dim = d;
    op.causal = causal;
    op.flash = flash;
    Case forward;
    forward.name = "attention" + name;
    forward.op = op;
    forward.op.kind = OpKind::attention;
    forward.in = {floats(packed)};
    forward.out = {unset(y), unset(saved)};
    cases.push_back(forward);
    Case backward;
    backward.name = "attention_grad" + name;
    backward.op = op;
    backward.op.kind = OpKind::attention_grad;
    backward.in = {floats(y), forward.in[0], unset(y), unset(saved)};  // y and saved are filled in by the test
    backward.out = {unset(packed)};
    backward.tolerance = 5e-6;
    cases.push_back(backward);
  }

  void attentions() {
    for (const bool causal : {false, true})
      for (const bool flash : {false, true}) {
        const std::string name = std::string(causal ? "_causal" : "_full") + (flash ? "_flash" : "_unfused");
        attention_case(name + "_small", 2, 5, 2, 2, 8, causal, flash);
        attention_case(name + "_shared_heads", 2, 33, 4, 2, 20, causal, flash);
        attention_case(name + "_tiles", 1, 70, 2, 1, 64, causal, flash);
      }
    attention_case("_wide", 1, 35, 1, 1, 100, true, true);
    attention_case("_widest", 1, 34, 1, 1, 256, true, true);
    const std::int64_t b = 2, t = 9, h = 3, g = 1, d = 10, packed = b * t * (h + 2 * g) * d;
    for (const OpKind kind : {OpKind::rope, OpKind::rope_grad})
      for (const bool same : {false, true}) {
        Case& c = add(std::string(models::name_of(kind)) + (same ? "_in_place" : ""), kind, b * t, 0);
        c.op.batch = b;
        c.op.sequence = t;
        c.op.heads = h;
        c.op.kv_heads = g;
        c.op.head_dim = d;
        c.op.epsilon = 10000;
        c.in = {floats(packed)};
        c.out = {same ? in_place(0) : unset(packed)};
      }
  }

  void elementwise() {
    const std::int64_t n = 7, f = 45;
    Case& gelu = add("gelu", OpKind::gelu, n, f);
    gelu.in = {floats(n * f, 3)};
    gelu.out = {unset(n * f)};
    Case& gelu_grad = add("gelu_grad", OpKind::gelu_grad, n, f);
    gelu_grad.in = {floats(n * f), floats(n * f, 3)};
    gelu_grad.out = {in_place(0)};
    Case& swiglu = add("swiglu", OpKind::swiglu, n, f);
    swiglu.in = {floats(n * 2 * f, 3)};
    swiglu.out = {unset(n * f)};
    Case& swiglu_grad = add("swiglu_grad", OpKind::swiglu_grad, n, f);
    swiglu_grad.in = {floats(n * f), floats(n * 2 * f, 3)};
    swiglu_grad.out = {unset(n * 2 * f)};
    for (const bool bias : {false, true}) {
      Case& c = add(bias ? "add_bias" : "add_bias_without", OpKind::add_bias, n, f);
      c.in = {floats(n * f), floats(n * f), bias ? floats(f) : Slot{}};
      c.out = {in_place(bias ? 0 : 1)};
    }
    Case& sum = add("add", OpKind::add, n, f);
    sum.in = {floats(n * f), floats(n * f)};
    sum.out = {in_place(0)};
  }

  void losses() {
    const std::int64_t n = 40, m = 300;
    for (const int rank : {0, 1}) {
      const std::string name = rank == 0 ? "" : "_padded_shard";
      const auto shard = [&](OpKind kind) -> Case& {
        Case& c = add(models::name_of(kind) + name, kind, n, m);
        c.op.vocab = 555;  // the second shard has 255 real columns and 45 of padding
        c.op.scale = 1.0 / 80;
        c.context.tensor_rank = rank;
        c.context.tensor_ways = 2;
        return c;
      };
      Case& max = shard(OpKind::softmax_max);
      max.in = {floats(n * m, 3)};
      max.out = {unset(n)};
      Case& sum = shard(OpKind::softmax_sum);
      sum.in = {floats(n * m, 3), floats(n), ids(n, 555)};
      sum.out = {unset(2 * n)};
      Case& grad = shard(OpKind::cross_entropy_grad);
      Slot sums = floats(2 * n);
      for (float& v : sums.floats) v = 300 + 10 * v;
      grad.in = {floats(n * m, 3), floats(n), sums, ids(n, 555)};
      grad.out = {in_place(0)};
      if (rank == 1) continue;
      Case& loss = shard(OpKind::cross_entropy);
      loss.in = {floats(n), sums};
      loss.out = {floats(1)};
    }
    Case& nothing = add("softmax_max_only_padding", OpKind::softmax_max, n, m);
    nothing.op.vocab = 300;
    nothing.context.tensor_rank = 1;
    nothing.context.tensor_ways = 2;
    nothing.in = {floats(n * m)};
    nothing.out = {unset(n)};
  }

  void optimizer() {
    const std::int64_t m = 40000;  // more than two tiles
    const std::vector<ElementRange> ranges = {
        {0, 17, false, 1}, {17, 20000, true, 0.5}, {20000, 20003, true, 0}, {20100, 39990, false, 1}};
    Case& zero = add("fill_zero", OpKind::fill_zero, 0, 1001);
    zero.out = {unset(1001)};
    Case& copy = add("copy", OpKind::copy, 0, 1001);
    copy.in = {floats(1001)};
    copy.out = {unset(1001)};
    Case& accumulate = add("accumulate_into", OpKind::accumulate_into, 0, 1001);
    accumulate.in = {floats(1001)};
    accumulate.out = {floats(1001)};
    for (const bool ranged : {false, true}) {
      Case& norm = add(ranged ? "norm_squared_ranges" : "norm_squared", OpKind::norm_squared, 0, m);
      norm.in = {floats(m)};
      norm.out = {floats(1)};
      if (ranged) norm.ranges = ranges;
      Case& adamw = add(ranged ? "adamw_ranges" : "adamw", OpKind::adamw, 0, m);
      Slot coefficient = zeros(1), second = floats(m, 0.1F);
      coefficient.floats[0] = 0.37F;
      for (float& v : second.floats) v *= v;
      adamw.in = {floats(m, 0.1F), ranged ? coefficient : Slot{}};
      adamw.out = {floats(m), floats(m, 0.1F), second};
      adamw.context = {.step = 6, .learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
      if (ranged) adamw.ranges = ranges;
    }
    for (const double clip : {0.0, 1.0, 1000.0}) {
      Case& c = add("clip_coefficient_" + std::to_string(static_cast<int>(clip)), OpKind::clip_coefficient, 0, 1);
      c.context.clip_norm = clip;
      Slot total = zeros(1);
      total.floats[0] = 123.4F;
      c.in = {total};
      c.out = {unset(1), unset(1)};
    }
  }
};

}  // namespace

std::vector<Case> all_cases() {
  Maker maker;
  maker.cases.reserve(256);  // references to cases stay valid
  maker.embeddings();
  maker.norms();
  maker.matmuls();
  maker.attentions();
  maker.elementwise();
  maker.losses();
  maker.optimizer();
  return std::move(maker.cases);
}

}  // namespace orrery::exec::gpu_test
