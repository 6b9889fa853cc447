// Parameters are counted from the very expansion that cost and exec use, so they cannot drift apart.
#include "models/counts.h"

#include "models/expand.h"

namespace orrery::models {

namespace {

std::int64_t logical_elements(const Tensor& tensor) {
  std::int64_t count = 1;
  for (std::int64_t extent : tensor.logical_shape) count *= extent;
  return count;
}

std::int64_t parameters_of(const LayerProgram& program, bool count_shared) {
  std::int64_t total = 0;
  for (const Tensor& tensor : program.tensors)
    if (tensor.role == TensorRole::parameter && (count_shared || !tensor.shared)) total += logical_elements(tensor);
  return total;
}

}  // namespace

std::int64_t parameters_of_block(const Model& model) {
  return parameters_of(expand(model, LayerKind::block, 0, {}), true);
}

std::int64_t parameters(const Model& model) {
  if (const auto& r = model.recommender) return dense_parameters(*r) + table_parameters(*r);
  return parameters_of(expand(model, LayerKind::embedding, 0, {}), true) + model.layers * parameters_of_block(model) +
         parameters_of(expand(model, LayerKind::head, 0, {}), false);
}

std::int64_t parameters_active(const Model& model) {
  if (const auto& r = model.recommender) return dense_parameters(*r) + r->indices() * r->embedding_dim;
  return parameters(model);
}

double flops_per_token_forward(const Model& model, std::int64_t sequence) {
  if (model.recommender) return flops_per_sample_forward(*model.recommender);
  ExpandOptions options;
  options.sequence = sequence;
  double total = 0;
  const auto add = [&](LayerKind kind, double times, std::int64_t layer) {
    for (const Part& part : expand(model, kind, layer, options).forward)
      for (const Op& op : part.ops)
        if (op.kind == OpKind::attention) {
          total += times * flops_of(op, true);
        } else if (op.kind == OpKind::matmul) {
          // The head's padded columns are not the model's work.
          const bool head = kind == LayerKind::head && op.n == padded_vocab(model, 1, options.vocab_multiple);
          total += times * flops_of(op) * (head ? static_cast<double>(model.vocab) / static_cast<double>(op.n) : 1.0);
        }
  };
  // Where one layer in so many sees all, the first sees its window and the last of the period all.
  const std::int64_t global = model.window_period > 0 ? model.layers / model.window_period : 0;
  add(LayerKind::block, static_cast<double>(model.layers - global), 0);
  if (global > 0) add(LayerKind::block, static_cast<double>(global), model.window_period - 1);
  add(LayerKind::head, 1, 0);
  return total / static_cast<double>(sequence);
}

double flops_per_step(const Model& model, std::int64_t sequences, std::int64_t sequence) {
  return 3 * flops_per_token_forward(model, sequence) * static_cast<double>(sequences * sequence);
}

}  // namespace orrery::models
