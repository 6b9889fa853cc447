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
    c.op.accumulate = kind == OpKind::layer_norm_grad || kind == OpKind::rms_norm_grad || kind == OpKind::bias_grad;
    c.op.n = n;
    c.op.m = m;
    c.op.k = k;
    return c;
  }
  Slot floats(std::int64_t elements, float scale = 1) { return random_floats(random, elements, scale); }
  Slot ids(std::int64_t elements, std::int32_t bound) { return random_ids(random, elements, bound); }

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
    // More tokens than a block looks at at once, few ids: places of one token in several rounds of the scan.
    Case& many = add("embedding_grad_many", OpKind::embedding_grad, 2600, 3, 40);
    many.op.vocab = 3;
    many.in = {ids(2600, 3), floats(2600 * 40)};
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
    for (const int part : {0, 1}) {  // two ranks with two chunks each of sequences of 12
      Case& ring = add("position_add_part_" + std::to_string(part), OpKind::position_add, b * 6, c);
      ring.op.batch = b;
      ring.op.sequence = 6;
      ring.op.context = 2;
      ring.context.part = part;
      ring.in = {floats(b * 6 * c), floats(12 * c)};
      ring.out = {unset(b * 6 * c)};
      Case& back = add("position_grad_part_" + std::to_string(part), OpKind::position_grad, b * 6, c);
      back.op = ring.op;
      back.op.kind = OpKind::position_grad;
      back.context.part = part;
      back.in = {floats(b * 6 * c)};
      back.out = {floats(12 * c)};
    }
    Case& grad = add("position_grad", OpKind::position_grad, b * t, c);
    grad.op.batch = b;
    grad.op.sequence = t;
    grad.in = {floats(b * t * c)};
    grad.out = {floats(t * c)};
  }

  /// Of the first micro-batch: what is there is overwritten.
  void write_sums() {
    const std::size_t count = cases.size();
    for (std::size_t i = 0; i < count; ++i) {
      if (!cases[i].op.accumulate) continue;
      Case writes = cases[i];
      writes.name += "_writes";
      writes.op.accumulate = false;
      for (Slot& slot : writes.out)
        if (slot.same_as_input < 0) slot = unset(slot.elements());
      cases.push_back(std::move(writes));
    }
  }

  // Rows of each length that the backward pass in one goes about in a way of its own, and beyond; several blocks, the
  // last of which has fewer rows than the others, and not as many as its groups.
  void one_pass_norms() {
    for (const std::int64_t columns : {384, 1000, 1600, 2048, 3072, 4096, 6144, 6160}) {
      const std::int64_t n = columns < 1000 ? 70 : 21, size = n * columns;
      const std::string name = "_" + std::to_string(columns) + "_one_pass";
      Case& layer = add("layer_norm_grad" + name, OpKind::layer_norm_grad, n, columns);
      layer.in = {floats(size), floats(size), floats(columns), floats(n, 0.1F), floats(n), floats(size)};
      layer.out = {columns % 2048 == 0 ? in_place(1) : in_place(5), floats(columns), floats(columns)};
      Case& rms = add("rms_norm_grad" + name, OpKind::rms_norm_grad, n, columns);
      rms.in = {floats(size), floats(size), floats(columns), floats(n), floats(size)};
      rms.out = {in_place(0), floats(columns)};
    }
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
    for (const std::int64_t columns : {4104, 4999}) {  // more than a warp takes
      Case& layer = add("layer_norm_wide_" + std::to_string(columns), OpKind::layer_norm, 3, columns);
      layer.op.epsilon = 1e-5;
      layer.in = {floats(3 * columns, 2), floats(columns), floats(columns)};
      layer.out = {unset(3 * columns), unset(3), unset(3)};
      Case& rms = add("rms_norm_grad_wide_" + std::to_string(columns), OpKind::rms_norm_grad, 3, columns);
      rms.in = {floats(3 * columns), floats(3 * columns), floats(columns), floats(3), floats(3 * columns)};
      rms.out = {in_place(4), floats(columns)};
    }
    one_pass_norms();
    Case& parts = add("layer_norm_grad_parts", OpKind::layer_norm_grad, 700, 40);  // sums in several parts
    parts.in = {floats(700 * 40), floats(700 * 40), floats(40), floats(700, 0.1F), floats(700), Slot{}};
    parts.out = {in_place(0), floats(40), floats(40)};
    // Single elements; packs, of which the last stripe has a few; several parts; fewer rows than warps; many parts.
    for (const auto& [rows, columns] :
         {std::pair<std::int64_t, std::int64_t>{77, 45}, {100, 264}, {2000, 48}, {5, 8}, {3300, 16}}) {
      Case& bias =
          add("bias_grad_" + std::to_string(rows) + "_" + std::to_string(columns), OpKind::bias_grad, rows, columns);
      bias.in = {floats(rows * columns)};
      bias.out = {floats(columns)};
    }
    write_sums();
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
    attention_case("_strips", 2, 130, 4, 2, 32, true, true);
    attention_case("_strips_full", 1, 66, 2, 1, 16, false, true);
    attention_case("_strips_wide", 1, 70, 1, 1, 128, true, true);
    attention_case("_wide", 1, 35, 1, 1, 100, true, true);
    attention_case("_widest", 1, 34, 1, 1, 256, true, true);
    const std::int64_t b = 2, t = 9, h = 3, g = 1;
    for (const OpKind kind : {OpKind::rope, OpKind::rope_grad})
      for (const std::int64_t d : {10, 32})  // half of 32 is whole packs, of every type
        for (const bool same : {false, true}) {
          const std::int64_t packed = b * t * (h + 2 * g) * d;
          Case& c = add(std::string(models::name_of(kind)) + (d == 32 ? "_packs" : "") + (same ? "_in_place" : ""),
                        kind, b * t, 0);
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

  /// Every block that the rule of masks tells apart: the own one, an earlier rank's, a later one's.
  void rings() {
    rings_of(20);
    rings_of(32);  // which tensor cores take
    packed_parts();
  }
  void rings_of(std::int64_t d) {
    const std::int64_t b = 2, t = 70, h = 4, g = 2, n = b * t;
    for (const bool causal : {false, true})
      for (const int part : {0, 1, 2})
        for (const std::int64_t step : {0, 1, 2}) {
          if ((!causal || d == 32) && part != 1) continue;
          Op op;
          op.n = n;
          op.batch = b;
          op.sequence = t;
          op.heads = h;
          op.kv_heads = g;
          op.head_dim = d;
          op.causal = causal;
          op.flash = true;
          op.context = 3;
          op.ring_step = step;
          op.accumulate = step > 0;
          const std::string name = std::string(causal ? "_causal" : "_full") + "_part_" + std::to_string(part) +
                                   "_step_" + std::to_string(step) + "_width_" + std::to_string(d);
          Case forward;
          forward.name = "ring_attention" + name;
          forward.op = op;
          forward.op.kind = OpKind::ring_attention;
          forward.context.part = part;
          forward.in = {floats(n * (h + 2 * g) * d), floats(n * 2 * g * d)};
          forward.out = {step > 0 ? floats(n * h * d) : unset(n * h * d), step > 0 ? floats(n * h) : unset(n * h)};
          cases.push_back(forward);
          Case backward = forward;
          backward.name = "ring_attention_grad" + name;
          backward.op.kind = OpKind::ring_attention_grad;
          Slot lse = floats(n * h);
          for (float& v : lse.floats) v += 6;  // about what scores of this size sum up to
          backward.in = {floats(n * h * d), forward.in[0], floats(n * h * d), lse, forward.in[1]};
          backward.out = {floats(n * (h + 2 * g) * d), unset(n * 2 * g * d)};
          backward.tolerance = 5e-6;
          cases.push_back(backward);
        }
  }

  void packed_parts() {
    for (const OpKind kind : {OpKind::split_kv, OpKind::merge_kv})
      for (const std::int64_t width : {5, 16}) {
        Case& c = add(std::string(models::name_of(kind)) + "_" + std::to_string(width), kind, 14, 0);
        c.op.batch = 2;
        c.op.sequence = 7;
        c.op.heads = 3;
        c.op.kv_heads = 1;
        c.op.head_dim = width;
        const std::int64_t packed = 14 * 5 * width, kv = 14 * 2 * width;
        c.in = {floats(kind == OpKind::split_kv ? packed : kv)};
        c.out = {kind == OpKind::split_kv ? unset(kv) : floats(packed)};
      }
    Case& rope = add("rope_part", OpKind::rope, 12, 0);
    rope.op.batch = 2;
    rope.op.sequence = 6;
    rope.op.context = 2;
    rope.op.heads = 2;
    rope.op.kv_heads = 1;
    rope.op.head_dim = 8;
    rope.op.epsilon = 10000;
    rope.context.part = 1;
    rope.in = {floats(12 * 4 * 8)};
    rope.out = {unset(12 * 4 * 8)};
  }

  void elementwise() {
    for (const std::int64_t f : {45, 48}) elementwise_of(7, f);
  }
  void elementwise_of(std::int64_t n, std::int64_t f) {
    const std::string size = f == 45 ? "" : "_packs";
    Case& gelu = add("gelu" + size, OpKind::gelu, n, f);
    gelu.in = {floats(n * f, 3)};
    gelu.out = {unset(n * f)};
    Case& gelu_grad = add("gelu_grad" + size, OpKind::gelu_grad, n, f);
    gelu_grad.in = {floats(n * f), floats(n * f, 3)};
    gelu_grad.out = {in_place(0)};
    gelu_grad.tolerance = bound::kGeluGradient;
    Case& swiglu = add("swiglu" + size, OpKind::swiglu, n, f);
    swiglu.in = {floats(n * 2 * f, 3)};
    swiglu.out = {unset(n * f)};
    Case& swiglu_grad = add("swiglu_grad" + size, OpKind::swiglu_grad, n, f);
    swiglu_grad.in = {floats(n * f), floats(n * 2 * f, 3)};
    swiglu_grad.out = {unset(n * 2 * f)};
    for (const bool bias : {false, true}) {
      Case& c = add((bias ? "add_bias" : "add_bias_without") + size, OpKind::add_bias, n, f);
      c.in = {floats(n * f), floats(n * f), bias ? floats(f) : Slot{}};
      c.out = {in_place(bias ? 0 : 1)};
    }
    Case& sum = add("add" + size, OpKind::add, n, f);
    sum.in = {floats(n * f), floats(n * f)};
    sum.out = {in_place(0)};
  }

  void losses() {
    losses_of(40, 300, "");
    losses_of(9, 304, "_packs");
  }
  void losses_of(std::int64_t n, std::int64_t m, const std::string& size) {
    for (const int rank : {0, 1}) {
      const std::string name = (rank == 0 ? "" : "_padded_shard") + size;
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
      Case& scaled = shard(OpKind::cross_entropy_grad);
      scaled.name += "_scaled";
      Slot scaling = zeros(4);
      scaling.floats[0] = 1024;
      scaled.in = {grad.in[0], grad.in[1], sums, ids(n, 555), scaling};
      scaled.out = {unset(n * m)};
      if (rank == 1) continue;
      Case& loss = shard(OpKind::cross_entropy);
      loss.in = {floats(n), sums};
      loss.out = {floats(1)};
    }
    Case& nothing = add("softmax_max_only_padding" + size, OpKind::softmax_max, n, m);
    nothing.op.vocab = m;
    nothing.context.tensor_rank = 1;
    nothing.context.tensor_ways = 2;
    nothing.in = {floats(n * m)};
    nothing.out = {unset(n)};
  }
};

}  // namespace

std::vector<Case> all_cases() {
  Maker maker;
  maker.cases.reserve(1024);  // references to cases stay valid
  maker.embeddings();
  maker.norms();
  maker.matmuls();
  maker.attentions();
  maker.rings();
  maker.elementwise();
  maker.losses();
  for (Case& c : masked_cases()) maker.cases.push_back(std::move(c));
  for (Case& c : feature_cases()) maker.cases.push_back(std::move(c));
  for (Case& c : dropout_cases()) maker.cases.push_back(std::move(c));
  std::vector<Case> all = maker.cases;
  for (const Case& c : maker.cases)
    for (const models::DType dtype : {models::DType::bf16, models::DType::fp16}) {
      const bool nothing_to_narrow = c.op.kind == OpKind::cross_entropy;
      if (!nothing_to_narrow) all.push_back(narrowed(c, dtype));
    }
  for (Case& c : update_cases()) all.push_back(std::move(c));
  for (Case& c : compression_cases()) all.push_back(std::move(c));
  for (Case& c : sparse_cases()) all.push_back(std::move(c));
  for (Case& c : rounded_cases()) all.push_back(std::move(c));
  for (Case& c : table_cases()) all.push_back(std::move(c));
  for (Case& c : expert_cases()) all.push_back(std::move(c));
  return all;
}

}  // namespace orrery::exec::gpu_test
