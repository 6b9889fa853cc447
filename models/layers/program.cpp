// What a layer's program says of its tensors.
#include "models/layers/expand.h"

namespace orrery::models {

std::int64_t Tensor::elements() const {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;
  return count;
}

TensorId owner_of(const LayerProgram& program, TensorId tensor) {
  while (tensor.exists() && program.tensors[tensor].part_of.exists()) tensor = program.tensors[tensor].part_of;
  return tensor;
}

std::int64_t padded_vocab(const Model& model, std::int64_t tensor, std::int64_t multiple) {
  const std::int64_t unit = multiple * tensor;
  return (model.vocab + unit - 1) / unit * unit;
}

}  // namespace orrery::models
