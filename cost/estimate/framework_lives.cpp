/// Masks, scores, logits, rows and rounded tensors that frameworks keep.
#include "cost/estimate/framework_lives.h"

#include <algorithm>
#include <set>
#include <vector>

#include "models/operators/fp8.h"
#include "models/operators/operators.h"
#include "plan/lower/repeated_modules.h"

namespace orrery::cost {

using models::TensorId;

namespace {

/// What a framework keeps of a layer in addition to its program's tensors: dropout masks, copies of scores and of
/// logits.
class FrameworkLives {
 public:
  FrameworkLives(LayerCosts& costs, const models::LayerProgram& program, const base::ById<TensorId, LifeId>& life_of,
                 const MemoryRecipe& recipe)
      : costs_(costs), program_(program), life_of_(life_of), recipe_(recipe) {}

  /// `backward`: with what it recomputes.
  void add(const std::vector<models::Part>& backward) {
    fill_slots();
    for (const models::Part& part : backward)
      for (const models::Op& op : part.ops) forget(op);
    if (recipe_.saves_rounded) round_saved(backward);
    std::vector<const models::Op*> forward;
    bool biased = false;  // or the model says that it drops
    for (const models::Part& part : program_.forward)
      for (const models::Op& op : part.ops) {
        forward.push_back(&op);
        biased = biased || op.dropout > 0;
        biased = biased || (op.kind == models::OpKind::add_bias && op.in.at(2) >= 0);
        biased = biased || op.kind == models::OpKind::position_add;
      }
    const bool dropout = recipe_.dropout && biased;
    if (recipe_.wide_sums) widen_sums();
    if (recipe_.keeps_gathered)
      for (const models::Part& part : program_.forward)
        if (part.is_communication() && part.collective == models::GroupCollective::all_gather) gathered(part.tensor);
    for (const models::Op* op : forward) {
      if (op->kind == models::OpKind::attention) scores(*op, dropout);
      composed(*op);
      const bool branch = op->kind == models::OpKind::attention || models::traits_of(*op).activation;
      if (dropout && branch && program_.kind == models::LayerKind::block) mask(life_made(*op, 0));
    }
    if (dropout && program_.kind == models::LayerKind::embedding) {
      Life whole;
      whole.forward.add(std::max(0, costs_.forward.steps - 1));
      whole.backward.add(0);
      mask(whole);
    }
    std::set<TensorId> known;  // chunks share memory
    for (const auto* pass : {&program_.forward, &program_.backward})
      for (const models::Part& part : *pass)
        for (const models::Op& op : part.ops)
          if (op.kind == models::OpKind::cross_entropy_grad && known.insert(models::tensor_of(op.out[0])).second)
            logits(models::tensor_of(op.out[0]));
  }

 private:
  [[nodiscard]] Life life(TensorId tensor) const { return costs_.lives[life_of_[tensor]]; }
  /// Of the i-th tensor that an operator reads, or makes.
  [[nodiscard]] Life life_read(const models::Op& op, std::size_t i) const { return life(models::tensor_of(op.in[i])); }
  [[nodiscard]] Life life_made(const models::Op& op, std::size_t i) const { return life(models::tensor_of(op.out[i])); }
  [[nodiscard]] const models::Tensor& tensor(TensorId id) const { return program_.tensors[id]; }
  void keep(Life life, double bytes) {
    life.bytes = bytes;
    if (bytes > 0) costs_.lives.push_back(life);
  }

  /// One byte per element of the residual, for as long as the branch's last product keeps its input.
  void mask(const Life& as) {
    keep(as, static_cast<double>(
                 tensor(program_.kind == models::LayerKind::embedding ? program_.y : program_.x).elements()));
  }

  [[nodiscard]] Life& life_at(TensorId t) { return costs_.lives[life_of_[t]]; }
  static void leave_backward(Life& life) { life.backward = life.weights = {}; }

  /// A framework allocates rows that came, not what a slot has room for.
  void fill_slots() {
    const auto sent = std::ranges::find_if(
        program_.forward, [](const models::Part& part) { return part.sent.exists() && part.expected < 1; });
    if (sent == program_.forward.end()) return;
    for (const TensorId t : in_slots())
      if (life_of_[t]) life_at(t).bytes *= sent->expected;
  }
  /// Tensors of rows in slots. Others may have as many rows.
  [[nodiscard]] std::set<TensorId> in_slots() const {
    std::set<TensorId> out;
    for (const auto* pass : {&program_.forward, &program_.backward})
      for (const models::Part& part : *pass) {
        if (part.sent.exists()) out.insert({part.source, part.tensor});
        for (const models::Op& op : part.ops) add_in_slots(op, out);
      }
    return out;
  }
  void add_in_slots(const models::Op& op, std::set<TensorId>& out) const {
    using K = models::OpKind;
    const auto add = [&](int operand) {
      const TensorId id = models::tensor_of(operand);
      if (!id) return;
      const models::Tensor& t = tensor(id);
      const bool of_model = t.role == models::TensorRole::parameter || t.role == models::TensorRole::gradient;
      if (!of_model && t.shape.size() == 2 && t.shape[0] == op.slots * op.capacity) out.insert(id);
    };
    if (op.slots == 0 || op.kind == K::place_rows) return;
    if (op.kind == K::dispatch) return add(op.out[0]);
    if (op.kind == K::combine) return add(op.in[0]);
    if (op.kind == K::combine_weight_grad) return add(op.in[1]);
    for (const int operand : op.in) add(operand);
    for (const int operand : op.out) add(operand);
  }

  /// What this software's backward pass does not read.
  void forget(const models::Op& op) {
    if (recipe_.weighs_in_experts && op.kind == models::OpKind::combine_weight_grad) {
      Life& rows = life_at(models::tensor_of(op.in[1]));
      if (rows.forward.any()) leave_backward(rows);  // not gradients of weights that multiply inputs
    }
    if (!recipe_.narrow_values || !reads_padded(op)) return;
    for (const models::Part& part : program_.forward)
      for (const models::Op& forward : part.ops) {
        if (forward.kind == models::OpKind::latent_pack) {
          const double keys = 2 * static_cast<double>(forward.head_dim);
          Life& packed = life_at(models::tensor_of(forward.out[0]));
          packed.bytes *= (keys + static_cast<double>(forward.k)) / (keys + static_cast<double>(forward.head_dim));
        }
        if (forward.kind != models::OpKind::head_values) continue;
        Life &padded = life_at(models::tensor_of(forward.in[0])), &values = life_at(models::tensor_of(forward.out[0]));
        values.backward.last = std::max(values.backward.last, padded.backward.last);
        if (!values.backward.any()) values.backward.first = padded.backward.first;
        padded.bytes = 0;
      }
  }
  [[nodiscard]] bool reads_padded(const models::Op& op) const {
    return op.kind == models::OpKind::attention_grad && program_.kind == models::LayerKind::block;
  }

  /// The residual before, between and behind a block's branches, in fp32.
  void widen_sums() {
    std::set<TensorId> sums = {program_.x, program_.y};
    for (const models::Part& part : program_.forward)
      for (const models::Op& op : part.ops)
        if (op.kind == models::OpKind::add_bias) sums.insert(models::owner_of(program_, models::tensor_of(op.out[0])));
    const auto single = static_cast<double>(models::size_of(models::DType::fp32));
    for (const TensorId sum : sums)
      if (sum && life_of_[sum]) life_at(sum).bytes *= single / static_cast<double>(models::size_of(tensor(sum).dtype));
  }

  /// Kept from its product in the forward pass until its weights' gradient; with full recomputation nothing is kept.
  void gathered(TensorId id) {
    Life whole = life(id);
    if (costs_.recomputation == plan::Recompute::full) return;
    whole.forward.last = std::max(0, costs_.forward.steps - 1);
    whole.backward.first = whole.backward.last = std::max(0, costs_.backward.steps - 1);
    keep(whole, static_cast<double>(tensor(id).bytes()));
  }

  /// What an operator keeps that the stack composes of several kernels (cost/parameters/memory_recipe.h).
  void composed(const models::Op& op) {
    using K = models::OpKind;
    const bool gated = op.kind == K::swiglu || op.kind == K::gate;
    const auto share = [&](double columns) {  // of q, k and v
      const Life qkv = life_read(op, 0);
      keep(qkv, qkv.bytes * columns / static_cast<double>(models::packed_columns(op)));
    };
    if (recipe_.composes_gates && gated) {  // within the kernel: gone and made again with what it makes
      Life gate = life_read(op, 0);
      gate.dropped = gate.dropped || life_made(op, 0).dropped;
      keep(gate, life_made(op, 0).bytes);
    }
    if (recipe_.composes_norms && op.kind == K::rms_norm) norm(op);
    if (recipe_.repeats_keys && op.kind == K::attention)
      share(static_cast<double>((op.heads / op.kv_heads - 1) * models::key_value_columns(op)));
    if (!recipe_.gathers_rows || op.kind != K::dispatch) return;
    const Life rows = life_made(op, 0);
    keep(rows, rows.bytes);
    const TensorId sent = models::tensor_of(op.in[0]);
    for (const models::Part& part : program_.forward)
      if (part.is_communication() && part.tensor == sent) keep(rows, static_cast<double>(tensor(sent).bytes()));
  }

  /// x in fp32 for its square and its product with the deviation's reciprocal; that product in 16 bits for the weight's
  /// gradient.
  void norm(const models::Op& op) {
    const models::Tensor& y = tensor(models::tensor_of(op.out[0]));
    const auto width = static_cast<double>(models::size_of(y.dtype)), elements = static_cast<double>(y.elements());
    const bool trains = op.in.size() > 1 && op.in[1] >= 0 && !tensor(models::tensor_of(op.in[1])).frozen;
    const double single = static_cast<double>(models::size_of(models::DType::fp32)) - width;
    keep(life_made(op, 0), elements * (single + (trains && single > 0 ? width : 0)));
  }

  /// Bytes of a value as an operator of backward reads its i-th operand; 2: as it is.
  [[nodiscard]] double bytes_read(const models::Op& op, std::size_t i) const {
    constexpr double kFour = 0.5 + 1.0 / 16;  // nvfp4: a scale of 8 bits for each 16 values
    const KeptInFp8& kept = recipe_.kept_in_fp8;
    if (op.kind == models::OpKind::matmul && i == plan::kKeptRead) return 2;
    const bool grouped = op.kind == models::OpKind::grouped_weight_grad || op.kind == models::OpKind::grouped_matmul;
    if (models::is_fp8_product(op) || (grouped && op.rounded)) return op.four_bits ? kFour : kept.products;
    if (models::traits_of(op).activation) return kept.gates;
    return op.kind == models::OpKind::attention_grad && i == 2 ? kept.attention : 2;
  }
  /// Tensors that wait for backward as it reads them: rounded, and as they are where something reads that, too. In a
  /// split backward gradients wait for the products of weights' gradients, which alone read them then.
  void round_saved(const std::vector<models::Part>& backward) {
    base::ById<TensorId, double> rounded(program_.tensors.size(), 0);  // bytes of a value
    base::ById<TensorId, bool> as_is(program_.tensors.size(), false);
    bool rounds = false;
    const auto note = [&](TensorId read, double bytes) {
      const TensorId id = models::owner_of(program_, read);
      if (bytes < 2)
        rounded[id] = std::max(rounded[id], bytes);
      else
        as_is[id] = true;
    };
    for (const models::Part& part : backward) {
      if (part.is_communication() && part.source.exists())
        note(part.source, part.for_fp8 ? recipe_.kept_in_fp8.products : 2);
      for (const models::Op& op : part.ops) {
        rounds = rounds || op.rounded;
        for (std::size_t i = 0; i < op.in.size(); ++i)
          if (op.in[i] >= 0) note(models::tensor_of(op.in[i]), bytes_read(op, i));
      }
    }
    if (!rounds) return;
    if (recipe_.narrow_values)  // attention's gradient reads the values where they are
      for (const models::Part& part : program_.forward)
        for (const models::Op& op : part.ops)
          if (op.kind == models::OpKind::head_values) {
            const TensorId from = models::owner_of(program_, models::tensor_of(op.in[0]));
            const TensorId to = models::owner_of(program_, models::tensor_of(op.out[0]));
            rounded[to] = std::max(rounded[to], rounded[from]);
            as_is[to] = as_is[to] || as_is[from];
          }
    for (const TensorId id : program_.tensors.keys()) {
      const LifeId place = life_of_[id];
      if (!place || rounded[id] == 0 || id == program_.x || id == program_.y) continue;
      Life& whole = costs_.lives[place];
      if (!whole.backward.any() && !whole.weights.any()) continue;
      const double bytes = whole.bytes * rounded[id] / static_cast<double>(models::size_of(tensor(id).dtype));
      if (!whole.forward.any())
        whole.encoded = whole.weights.any() ? bytes : 0;
      else if (as_is[id])
        keep(whole, bytes);
      else
        whole.bytes = bytes;
    }
  }

  /// Unfused: scores before the softmax while it runs; with dropout its mask and output; the gradients of both.
  void scores(const models::Op& op, bool dropout) {
    if (op.flash) return;
    const Life saved = life_made(op, 1);
    const auto elements = static_cast<double>(tensor(models::tensor_of(op.out[1])).elements());
    if (dropout) keep(saved, elements + saved.bytes);
    Life before = saved;
    before.backward = {};
    before.forward.last = before.forward.first;
    before.recompute.last = before.recompute.first;
    keep(before, saved.bytes);
    Life gradient = saved;
    gradient.dropped = false;
    gradient.forward = gradient.recompute = {};
    gradient.backward.first = gradient.backward.last;
    keep(gradient, (dropout ? 2 : 1) * saved.bytes);
  }

  /// Logits cast to fp32 for the loss; backward adds the copies, and the gradient cast back.
  void logits(TensorId id) {
    const Life half = life(id);
    const models::Tensor& t = tensor(id);
    if (t.dtype == models::DType::fp32) return;
    Life gradient = half;
    gradient.forward = {};
    if (recipe_.loss_copies == 0) return keep(gradient, recipe_.loss_apart ? half.bytes : 0);
    const auto single = static_cast<double>(t.elements() * models::size_of(models::DType::fp32));
    keep(half, single);
    keep(gradient, half.bytes + (recipe_.loss_copies - 1) * single);
  }

  LayerCosts& costs_;
  const models::LayerProgram& program_;
  const base::ById<TensorId, LifeId>& life_of_;
  const MemoryRecipe& recipe_;
};

}  // namespace

void add_framework_lives(LayerCosts& costs, const models::LayerProgram& program,
                         const base::ById<models::TensorId, LifeId>& life_of, const std::vector<models::Part>& backward,
                         const MemoryRecipe& recipe) {
  FrameworkLives(costs, program, life_of, recipe).add(backward);
}

}  // namespace orrery::cost
