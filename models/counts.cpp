// Parameters are counted from the very expansion that cost and exec use, so they cannot drift apart.
#include "models/counts.h"

#include <map>
#include <string>
#include <utility>

#include "models/expand.h"

namespace orrery::models {

namespace {

std::int64_t logical_elements(const Tensor& tensor) {
  std::int64_t count = 1;
  for (std::int64_t extent : tensor.logical_shape) count *= extent;
  return count;
}

struct Counts {
  std::int64_t all = 0, active = 0;
};

/// What the bias of a choice moves by is no gradient.
bool trained(const Tensor& tensor) {
  return tensor.role == TensorRole::parameter;
}

Counts parameters_of(const LayerProgram& program, bool count_shared) {
  Counts total;
  for (const Tensor& tensor : program.tensors)
    if (trained(tensor) && (count_shared || !tensor.shared)) {
      total.all += logical_elements(tensor);
      total.active += logical_elements(tensor);
    }
  return total;
}

Counts of_block(const Model& model, std::int64_t layer) {
  const Experts& e = model.experts;
  Counts total;
  for (const Tensor& tensor : expand(model, LayerKind::block, layer, {}).tensors) {
    if (!trained(tensor)) continue;
    const std::int64_t count = logical_elements(tensor);
    total.all += count;
    total.active += tensor.expert >= 0 ? count / e.count * e.chosen : count;
  }
  return total;
}

/// One block of each kind, and how many of it there are.
template <class Add>
void each_kind(const Model& model, Add&& add) {
  std::map<std::pair<bool, bool>, std::pair<std::int64_t, std::int64_t>> kinds;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    auto& [layer, count] = kinds[{model.windowed(i), model.experts.in_layer(i)}];
    layer = i;
    ++count;
  }
  for (const auto& [kind, of_kind] : kinds) add(of_kind.first, of_kind.second);
}

Counts of_model(const Model& model) {
  Counts total = parameters_of(expand(model, LayerKind::embedding, 0, {}), true);
  const Counts head = parameters_of(expand(model, LayerKind::head, 0, {}), false);
  total.all += head.all, total.active += head.active;
  each_kind(model, [&](std::int64_t layer, std::int64_t count) {
    const Counts block = of_block(model, layer);
    total.all += count * block.all, total.active += count * block.active;
  });
  return total;
}

/// FLOPs of a block's forward pass over one sequence: products, and the full attention matrix.
double flops_of_block(const Model& model, std::int64_t layer, const ExpandOptions& options) {
  const LatentAttention& latent = model.latent;
  const auto tokens = static_cast<double>(options.sequence);
  const LayerProgram program = expand(model, LayerKind::block, layer, options);
  double total = 0;
  for (const Part& part : program.forward)
    for (const Op& op : part.ops)
      if (op.kind == OpKind::attention) {
        // Scores are of nope + rope columns, which is head_dim; of what they weigh all behind `value` is zeros.
        const double width = static_cast<double>(model.head_dim);
        total += flops_of(op, true) * (latent.any() ? (width + static_cast<double>(latent.value)) / (2 * width) : 1.0);
      } else if (op.kind == OpKind::grouped_matmul) {
        // A token's own experts, whether there is room for it or not.
        total += 2 * tokens * static_cast<double>(model.experts.chosen) * static_cast<double>(op.n * op.k) *
                 (op.in.size() > 3 ? 2 : 1);
      } else if (op.kind == OpKind::matmul) {
        total += flops_of(op);
      }
  return total;
}

}  // namespace

std::int64_t parameters_of_block(const Model& model, std::int64_t layer) {
  return of_block(model, layer).all;
}

std::int64_t parameters(const Model& model) {
  if (const auto& r = model.recommender) return dense_parameters(*r) + table_parameters(*r);
  return of_model(model).all;
}

std::int64_t parameters_active(const Model& model) {
  if (const auto& r = model.recommender) return dense_parameters(*r) + r->indices() * r->embedding_dim;
  return of_model(model).active;
}

double flops_per_token_forward(const Model& model, std::int64_t sequence) {
  if (model.recommender) return flops_per_sample_forward(*model.recommender);
  ExpandOptions options;
  options.sequence = sequence;
  double total = 0;
  each_kind(model, [&](std::int64_t layer, std::int64_t count) {
    total += static_cast<double>(count) * flops_of_block(model, layer, options);
  });
  for (const Part& part : expand(model, LayerKind::head, 0, options).forward)
    for (const Op& op : part.ops)
      if (op.kind == OpKind::matmul) {
        // The head's padded columns are not the model's work.
        const bool head = op.n == padded_vocab(model, 1, options.vocab_multiple);
        total += flops_of(op) * (head ? static_cast<double>(model.vocab) / static_cast<double>(op.n) : 1.0);
      }
  return total / static_cast<double>(sequence);
}

double flops_per_step(const Model& model, std::int64_t sequences, std::int64_t sequence) {
  return 3 * flops_per_token_forward(model, sequence) * static_cast<double>(sequences * sequence);
}

}  // namespace orrery::models
