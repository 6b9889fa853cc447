// Cases of what families ask of operators beyond GPT-2's and Llama's: activations by formula, norms of heads, caps,
// windows, slopes and scales of attention, partial rotation, scaled embeddings, positions behind an offset.
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

using models::Function;
using models::Op;
using models::OpKind;

struct FeatureMaker : CaseMaker {
  FeatureMaker() : CaseMaker{std::mt19937(20261123)} {}

  void activations() {
    for (const auto& [function, name] : {std::pair{Function::squared_relu, "squared_relu"}, {Function::gelu, "gelu"}})
      for (const std::int64_t f : {45, 48}) {
        const std::int64_t n = 7;
        const std::string end = std::string("_") + name + (f == 48 ? "_packs" : "");
        Case& forward = add("activate" + end, OpKind::activate, n, f);
        forward.in = {floats(n * f, 3)};
        forward.out = {unset(n * f)};
        Case& backward = add("activate_grad" + end, OpKind::activate_grad, n, f);
        backward.in = {floats(n * f), floats(n * f, 3)};
        backward.out = {in_place(0)};
        Case& gate = add("gate" + end, OpKind::gate, n, f);
        gate.in = {floats(n * 2 * f, 3)};
        gate.out = {unset(n * f)};
        Case& gate_grad = add("gate_grad" + end, OpKind::gate_grad, n, f);
        gate_grad.in = {floats(n * f), floats(n * 2 * f, 3)};
        gate_grad.out = {unset(n * 2 * f)};
        for (std::size_t i = cases.size() - 4; i < cases.size(); ++i) {
          cases[i].op.function = function;
          if (function == Function::gelu) cases[i].tolerance = bound::kGeluGradient;
        }
      }
  }

  void head_norms() {
    for (const bool joint : {false, true})
      for (const std::int64_t d : {20, 64})
        for (const std::int64_t t : {5, 300}) {  // of many rows sums are made in parts
          const std::int64_t b = 2, h = 4, g = 2, n = b * t, packed = n * (h + 2 * g) * d;
          const std::string size = std::string(joint ? "_joint_" : "_") + std::to_string(d) + "_" + std::to_string(t);
          Op op;
          op.n = n, op.batch = b, op.sequence = t, op.heads = h, op.kv_heads = g, op.head_dim = d;
          op.epsilon = 1e-6, op.joint = joint;
          const models::NormedRuns runs = models::normed_runs(op);
          Case& forward = add("head_norm" + size, OpKind::head_norm, n, 0);
          forward.op = op;
          forward.op.kind = OpKind::head_norm;
          forward.in = {floats(packed), floats(runs.q_width), floats(runs.k_width)};
          forward.out = {unset(packed), unset(n * runs.count())};
          Case& backward = add("head_norm_grad" + size, OpKind::head_norm_grad, n, 0);
          backward.op = op;
          backward.op.kind = OpKind::head_norm_grad;
          Slot rstd = floats(n * runs.count());
          for (float& v : rstd.floats) v = 0.5F + v * v;
          backward.in = {floats(packed), floats(packed), floats(runs.q_width), floats(runs.k_width), rstd};
          backward.out = {t == 5 ? in_place(0) : unset(packed), floats(runs.q_width), floats(runs.k_width)};
          backward.tolerance = 5e-6;
        }
  }

  struct Score {
    const char* name;
    std::int64_t window;
    double cap, scale;
    std::int64_t alibi;
  };
  void attention(const Score& s, std::int64_t t, std::int64_t h, std::int64_t g, std::int64_t d, bool flash) {
    const std::int64_t b = 2, n = b * t, packed = n * (h + 2 * g) * d, y = n * h * d;
    const std::int64_t saved = n * h * (flash ? 1 : t);
    Case forward;
    forward.name = std::string("attention_") + s.name + "_" + std::to_string(t) + "_wide_" + std::to_string(d) +
                   (flash ? "" : "_unfused");
    Op& op = forward.op;
    op.kind = OpKind::attention;
    op.n = n, op.batch = b, op.sequence = t, op.heads = h, op.kv_heads = g, op.head_dim = d;
    op.causal = true, op.flash = flash;
    op.window = s.window, op.cap = s.cap, op.score_scale = s.scale, op.alibi_heads = s.alibi;
    forward.context.tensor_rank = s.alibi > h ? 1 : 0;
    forward.in = {floats(packed)};
    forward.out = {unset(y), unset(saved)};
    forward.tolerance = 5e-6;
    cases.push_back(forward);
    Case backward = forward;
    backward.name.replace(0, std::string("attention").size(), "attention_grad");
    backward.op.kind = OpKind::attention_grad;
    backward.in = {floats(y), forward.in[0], unset(y), unset(saved)};  // y and saved are filled in by the test
    backward.out = {unset(packed)};
    cases.push_back(backward);
  }
  void attentions() {
    for (const bool flash : {true, false})
      for (const Score& s : {Score{"window", 40, 0, 0, 0}, Score{"capped", 0, 0.8, 0, 0}, Score{"scaled", 0, 0, 0.3, 0},
                             Score{"slopes", 0, 0, 0, 12}, Score{"all", 7, 1.5, 0.4, 4}})
        attention(s, 70, 4, 2, 20, flash);
    // On tensor cores in 16 bits; tiles are 64 wide, and 32 without.
    for (const std::int64_t window : {1, 31, 32, 33, 64, 65, 100})
      attention({("window_of_" + std::to_string(window)).c_str(), window, 0, 0, 0}, 150, 2, 1, 32, true);
    attention({"tensor_cores_all", 40, 1.5, 0.4, 4}, 130, 4, 2, 32, true);
    attention({"tensor_cores_capped", 0, 0.8, 0, 0}, 66, 2, 1, 64, true);
  }

  void ring() {
    const std::int64_t b = 1, t = 34, h = 2, g = 1, d = 32, n = b * t;
    for (const std::int64_t step : {0, 1}) {
      Case& forward = add("ring_attention_capped_step_" + std::to_string(step), OpKind::ring_attention, n, 0);
      Op& op = forward.op;
      op.batch = b, op.sequence = t, op.heads = h, op.kv_heads = g, op.head_dim = d;
      op.causal = op.flash = true, op.context = 2, op.ring_step = step, op.accumulate = step > 0;
      op.cap = 0.9, op.score_scale = 0.3;
      forward.in = {floats(n * (h + 2 * g) * d), floats(n * 2 * g * d)};
      forward.out = {step > 0 ? floats(n * h * d) : unset(n * h * d), step > 0 ? floats(n * h) : unset(n * h)};
      Case backward = forward;
      backward.name = "ring_attention_grad_capped_step_" + std::to_string(step);
      backward.op.kind = OpKind::ring_attention_grad;
      Slot lse = floats(n * h);
      for (float& v : lse.floats) v += 4;
      backward.in = {floats(n * h * d), forward.in[0], floats(n * h * d), lse, forward.in[1]};
      backward.out = {floats(n * (h + 2 * g) * d), unset(n * 2 * g * d)};
      backward.tolerance = 5e-6;
      cases.push_back(backward);
    }
  }

  void rotations() {
    const std::int64_t b = 2, t = 9, h = 3, g = 1;
    for (const OpKind kind : {OpKind::rope, OpKind::rope_grad})
      for (const auto& [d, turned] : {std::pair<std::int64_t, std::int64_t>{10, 4}, {64, 16}})
        for (const bool same : {false, true}) {
          const std::int64_t packed = b * t * (h + 2 * g) * d;
          Case& c = add(
              std::string(models::name_of(kind)) + "_of_" + std::to_string(turned) + (same ? "_scaled_in_place" : ""),
              kind, b * t, 0);
          c.op.batch = b, c.op.sequence = t, c.op.heads = h, c.op.kv_heads = g, c.op.head_dim = d;
          c.op.rotary = turned;
          c.op.epsilon = 10000;
          if (same)
            c.op.rope_scaling = {
                .kind = models::RopeKind::yarn, .factor = 8, .original = 64, .high = 32, .attention = 1.2};
          c.in = {floats(packed)};
          c.out = {same ? in_place(0) : unset(packed)};
        }
  }

  void embeddings() {
    const std::int64_t n = 60, vocab = 17;
    for (const std::int64_t c : {33, 48}) {
      Case& look = add("embedding_scaled_" + std::to_string(c), OpKind::embedding, n, vocab);
      look.op.k = c, look.op.vocab = vocab, look.op.scale = 6.5;
      look.in = {ids(n, vocab), floats(vocab * c)};
      look.out = {unset(n * c)};
      Case& grad = add("embedding_grad_scaled_" + std::to_string(c), OpKind::embedding_grad, n, vocab);
      grad.op = look.op;
      grad.op.kind = OpKind::embedding_grad;
      grad.in = {look.in[0], floats(n * c)};
      grad.out = {floats(vocab * c)};
      const std::int64_t t = 20;
      Case& places = add("position_add_offset_" + std::to_string(c), OpKind::position_add, n, c);
      places.op.batch = n / t, places.op.sequence = t, places.op.k = 2;
      places.in = {floats(n * c), floats((t + 2) * c)};
      places.out = {unset(n * c)};
      Case& back = add("position_grad_offset_" + std::to_string(c), OpKind::position_grad, n, c);
      back.op = places.op;
      back.op.kind = OpKind::position_grad;
      back.in = {floats(n * c)};
      back.out = {floats((t + 2) * c)};
    }
  }

  void caps() {
    for (const std::int64_t m : {45, 48}) {
      const std::int64_t n = 9;
      const std::string name = m == 45 ? "" : "_packs";
      Case& cap = add("soft_cap" + name, OpKind::soft_cap, n, m);
      cap.op.cap = 2;
      cap.in = {floats(n * m, 4)};
      cap.out = {in_place(0)};
      Case& grad = add("cross_entropy_grad_capped" + name, OpKind::cross_entropy_grad, n, m);
      grad.op.vocab = 41, grad.op.cap = 2, grad.op.scale = 0.1;
      Slot max = floats(n), sums = floats(n);
      for (float& v : max.floats) v = 2;
      for (float& v : sums.floats) v = 9 + v;
      grad.in = {floats(n * m, 0.5F), max, sums, ids(n, 41), Slot{}};
      grad.out = {unset(n * m)};
    }
  }
};

}  // namespace

std::vector<Case> feature_cases() {
  FeatureMaker maker;
  maker.cases.reserve(1024);  // references to cases stay valid
  maker.activations();
  maker.head_norms();
  maker.attentions();
  maker.ring();
  maker.rotations();
  maker.embeddings();
  maker.caps();
  return maker.cases;
}

}  // namespace orrery::exec::gpu_test
