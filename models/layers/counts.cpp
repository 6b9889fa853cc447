// Counts parameters in the same expansion that cost and exec use, so that they cannot drift apart.
#include "models/layers/counts.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "models/layers/expand.h"
#include "models/operators/operators.h"

namespace orrery::models {

namespace {

std::int64_t logical_elements(const Tensor& tensor) {
  std::int64_t count = 1;
  for (std::int64_t extent : tensor.logical_shape) count *= extent;
  return count;
}

struct Counts {
  std::int64_t all = 0, active = 0, trained = 0;
};

/// The balance bias moves after a step, but not by a gradient.
bool is_parameter(const Tensor& tensor) {
  return tensor.role == TensorRole::parameter;
}

Counts parameters_of(const Model& model, LayerKind kind, std::int64_t layer, bool count_shared = true) {
  const Experts& e = model.experts;
  Counts total;
  for (const Tensor& tensor : expand(model, kind, layer, {}).tensors) {
    if (!is_parameter(tensor) || (!count_shared && tensor.shared)) continue;
    const std::int64_t count = logical_elements(tensor);
    total.all += count;
    total.trained += tensor.frozen ? 0 : count;
    total.active += tensor.expert >= 0 ? count / e.count * e.chosen : count;
  }
  return total;
}

/// Adds one block of each kind, with how many there are.
template <class Add>
void each_kind(const Model& model, Add&& add) {
  std::map<BlockVariant, std::pair<std::int64_t, std::int64_t>> kinds;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    auto& [layer, count] = kinds[model.variant(i)];
    layer = i;
    ++count;
  }
  for (const auto& [kind, of_kind] : kinds) add(of_kind.first, of_kind.second);
}

Counts of_model(const Model& model) {
  Counts total = parameters_of(model, LayerKind::embedding, 0);
  const Counts head = parameters_of(model, LayerKind::head, 0, false);
  total.all += head.all, total.active += head.active, total.trained += head.trained;
  each_kind(model, [&](std::int64_t layer, std::int64_t count) {
    const Counts block = parameters_of(model, LayerKind::block, layer);
    total.all += count * block.all, total.active += count * block.active, total.trained += count * block.trained;
  });
  return total;
}

/// The model that inference runs.
Model next_token_alone(Model model) {
  model.further = {};
  return model;
}

/// Flops of a forward pass over one sequence, and what backward has less than twice as many: a product of frozen
/// weights once.
struct Flops {
  double all = 0, spared = 0;
  void add(double flops, bool is_frozen) {
    all += flops;
    if (is_frozen) spared += flops;
  }
};

bool has_frozen_weight(const LayerProgram& program, const Op& op) {
  return op.in.size() > 1 && op.in[1] >= 0 && program.tensors[tensor_of(op.in[1])].frozen;
}

/// Products, the full attention matrix, and whole chunks of state spaces.
Flops flops_of_layer(const Model& model, LayerKind kind, std::int64_t layer, const ExpandOptions& options) {
  const LatentAttention& latent = model.latent;
  const auto tokens = static_cast<double>(options.sequence);
  const LayerProgram program = expand(model, kind, layer, options);
  Flops total;
  for (const Part& part : program.forward)
    for (const Op& op : part.ops)
      if (op.kind == OpKind::attention || op.kind == OpKind::run_attention) {
        // Scores take nope + rope columns, which is head_dim. Values have fewer columns; those beyond `value` are
        // zeros.
        const double width = static_cast<double>(model.head_dim);
        total.add(flops_of(op, true) * (latent.any() ? (width + static_cast<double>(latent.value)) / (2 * width) : 1.0),
                  false);
      } else if (op.kind == OpKind::grouped_matmul) {
        // Counts the experts that a token chose, whether or not they have room for it.
        total.add(2 * tokens * static_cast<double>(model.experts.chosen) * static_cast<double>(op.n * op.k) *
                      (op.in.size() > 3 ? 2 : 1),
                  has_frozen_weight(program, op));
      } else if (op.kind == OpKind::choose_tokens) {
        // Scores all tokens, and learns from those that it chose: twice their part in backward.
        const double all = flops_of(op, true);
        const double chosen = static_cast<double>(op.chosen) / static_cast<double>(op.sequence);
        total.all += all;
        total.spared += 2 * all * (1 - std::min(1.0, chosen));
      } else if (traits_of(op).form == PriceForm::scanned) {
        total.add(flops_of(op, true), false);
      } else if (op.kind == OpKind::matmul) {
        // The head's padded columns are not the model's work.
        const bool words = kind == LayerKind::head && op.n == padded_vocab(model, 1, options.vocab_multiple);
        total.add(flops_of(op) * (words ? static_cast<double>(model.vocab) / static_cast<double>(op.n) : 1.0),
                  has_frozen_weight(program, op));
      }
  return total;
}

/// Flops of a whole model, per token.
Flops flops_per_token(const Model& model, std::int64_t sequence) {
  ExpandOptions options;
  options.sequence = sequence;
  Flops total;
  each_kind(model, [&](std::int64_t layer, std::int64_t count) {
    const Flops block = flops_of_layer(model, LayerKind::block, layer, options);
    total.all += static_cast<double>(count) * block.all;
    total.spared += static_cast<double>(count) * block.spared;
  });
  for (const LayerKind end : {LayerKind::embedding, LayerKind::head}) {
    const Flops of_end = flops_of_layer(model, end, 0, options);
    total.all += of_end.all, total.spared += of_end.spared;
  }
  total.all /= static_cast<double>(sequence);
  total.spared /= static_cast<double>(sequence);
  return total;
}

}  // namespace

std::int64_t parameters_of_block(const Model& model, std::int64_t layer) {
  return parameters_of(model, LayerKind::block, layer).all;
}

std::int64_t parameters(const Model& model) {
  if (const auto& r = model.recommender) return dense_parameters(*r) + table_parameters(*r);
  return of_model(next_token_alone(model)).all;
}

std::int64_t parameters_further(const Model& model) {
  return model.further.any() ? of_model(model).all - parameters(model) : 0;
}

std::int64_t parameters_trained(const Model& model) {
  return model.lora.any() ? of_model(model).trained : parameters(model);
}

std::int64_t parameters_active(const Model& model) {
  if (const auto& r = model.recommender)
    return dense_parameters(*r) + std::llround(r->mean_indices()) * r->embedding_dim;
  return of_model(next_token_alone(model)).active;
}

double flops_per_token_forward(const Model& model, std::int64_t sequence) {
  if (model.recommender) return flops_per_sample_forward(*model.recommender);
  return flops_per_token(model, sequence).all;
}

double flops_per_step(const Model& model, std::int64_t sequences, std::int64_t sequence) {
  const auto tokens = static_cast<double>(sequences * sequence);
  if (model.recommender) return 3 * flops_per_sample_forward(*model.recommender) * tokens;
  const Flops a_token = flops_per_token(model, sequence);
  return (3 * a_token.all - a_token.spared) * tokens;
}

}  // namespace orrery::models
