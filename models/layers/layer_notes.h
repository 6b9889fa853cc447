#pragma once
/// Notes down the expansion of a layer: tensors, parameters with their gradients, operators in parts, and messages of
/// the tensor group. Private to models/; see expand.cpp.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/expand.h"
#include "models/operators/dropout.h"

namespace orrery::models {

using Tensors = std::vector<TensorId>;

struct Norm {
  TensorId weight, bias, mean, rstd;
  TensorId weight_gradient, bias_gradient;
  [[nodiscard]] bool any() const { return rstd.exists(); }
};

/// A low-rank adapter beside a product's weight (models/lora.h).
struct Adapter {
  TensorId a, b, a_gradient, b_gradient;
  TensorId narrow;  ///< (rows, rank): scale x A^T
  [[nodiscard]] bool any() const { return a.exists(); }
};

struct Linear {
  TensorId weight = {}, bias = {}, weight_gradient = {}, bias_gradient = {};
  std::int64_t in = 0, out = 0;  ///< local sizes
  std::int64_t rows = 0;         ///< number of rows that it is computed for
  double scale = 1;              ///< of the product, without its bias
  Adapter adapter = {};
  [[nodiscard]] bool trains() const { return weight_gradient.exists() || adapter.any(); }
};

/// What the parts of a layer write to: tensors, operators and messages, in the order in which they are noted down.
struct LayerNotes {
  LayerNotes(const Model& of, LayerKind kind, std::int64_t at, const ExpandOptions& split)
      : model(of),
        options(split),
        layer(at),
        all_rows(options.batch * options.sequence),
        sharded(options.sequence_parallel && options.tensor > 1),
        own_rows(sharded ? all_rows / options.tensor : all_rows) {
    program.kind = kind;
  }

  TensorId activation(const std::string& name, std::vector<std::int64_t> shape, DType dtype) {
    return add({.name = name, .role = TensorRole::activation, .shape = std::move(shape), .dtype = dtype});
  }
  TensorId activation(const std::string& name, std::int64_t columns) {
    return activation(name, {all_rows, columns}, options.dtype);
  }
  // This rank's rows: all of them unless there is sequence parallelism.
  TensorId own_activation(const std::string& name, std::int64_t columns) {
    return activation(name, {own_rows, columns}, options.dtype);
  }
  TensorId rows(const std::string& name, std::int64_t count) { return activation(name, {count}, DType::fp32); }

  TensorId role(const std::string& name, TensorRole role, std::vector<std::int64_t> shape, DType dtype) {
    return add({.name = name, .role = role, .shape = std::move(shape), .dtype = dtype});
  }

  TensorId add(Tensor tensor) { return program.tensors.append(std::move(tensor)); }

  // A parameter and its gradient, or none if adapters train in its place. `tensor` comes with its logical shape, local
  // shape and split.
  std::pair<TensorId, TensorId> parameter(Tensor tensor) {
    if (!model.lora.any()) return trained(std::move(tensor));
    tensor.role = TensorRole::parameter;
    tensor.dtype = options.dtype;
    tensor.frozen = true;
    return {add(std::move(tensor)), {}};
  }
  std::pair<TensorId, TensorId> trained(Tensor tensor) {
    tensor.role = TensorRole::parameter;
    tensor.dtype = options.dtype;
    std::vector<Tensor> pieces = std::exchange(tensor.pieces, {});
    Tensor gradient = tensor;  // whole: its parts are its parameter's
    tensor.pieces = std::move(pieces);
    gradient.role = TensorRole::gradient;
    gradient.name += ".gradient";
    const TensorId index = add(std::move(tensor));
    gradient.of = index;
    return {index, add(std::move(gradient))};
  }

  Tensor matrix(std::string name, std::int64_t out, std::int64_t in, int split_axis, double stddev) const {
    return matrix(std::move(name), out, in, split_axis, stddev, options.tensor);
  }
  static Tensor matrix(std::string name, std::int64_t out, std::int64_t in, int split_axis, double stddev,
                       std::int64_t ways) {
    Tensor t{.name = std::move(name), .shape = {out, in}, .logical_shape = {out, in}};
    if (split_axis >= 0) t.shape[static_cast<std::size_t>(split_axis)] /= ways;
    t.split_axis = split_axis;
    t.decay = true;
    t.initial_stddev = stddev;
    return t;
  }
  Tensor vector(std::string name, std::int64_t size, int split_axis, double value) const {
    return vector(std::move(name), size, split_axis, value, options.tensor);
  }
  static Tensor vector(std::string name, std::int64_t size, int split_axis, double value, std::int64_t ways) {
    Tensor t{.name = std::move(name), .shape = {split_axis >= 0 ? size / ways : size}, .logical_shape = {size}};
    t.split_axis = split_axis;
    t.initial_value = value;
    return t;
  }
  // A parameter used only on this rank's rows.
  Tensor by_rows(Tensor t) const {
    t.partial_gradient = sharded;
    return t;
  }
  // A parameter whose gradient comes, on each rank, from its own heads alone.
  Tensor by_heads(Tensor t) const {
    t.partial_gradient = options.tensor > 1;
    return t;
  }
  // A causal convolution's weights: (columns, 1, taps), as files have it and no optimizer takes for a matrix. The
  // standard deviation of PyTorch's initial values of a convolution, which are uniform within 1/sqrt(taps).
  Tensor taps(std::string name, std::int64_t columns, std::int64_t count) const {
    Tensor t = matrix(std::move(name), columns, count, 0, 1 / std::sqrt(3 * static_cast<double>(count)));
    for (auto* shape : {&t.shape, &t.logical_shape}) shape->insert(shape->begin() + 1, 1);
    return t;
  }
  // Several logical tensors, which files hold as one: for each group in turn, its rows of each.
  static void in_one_file_tensor(const std::vector<Tensor*>& in_order, std::int64_t groups) {
    std::int64_t rows = 0;
    for (Tensor* one : in_order) {
      one->group_rows = one->logical_shape[0] / groups, one->group_first = rows;
      rows += one->group_rows;
    }
    for (Tensor* one : in_order) one->group_stride = rows;
  }
  static Tensor fused(const std::string& name, std::vector<Tensor> pieces) {
    Tensor t = pieces.front();
    t.name = name;
    for (std::size_t i = 1; i < pieces.size(); ++i) {
      t.shape[0] += pieces[i].shape[0];
      t.logical_shape[0] += pieces[i].logical_shape[0];
    }
    t.pieces = std::move(pieces);
    return t;
  }

  Norm norm(const std::string& name) {
    Norm result;
    if (model.norm_weight)
      std::tie(result.weight, result.weight_gradient) =
          parameter(by_rows(vector(name + ".weight", model.hidden, -1, 1)));
    if (model.normalisation == Normalisation::layer_norm) {
      if (model.norm_weight && model.norm_bias)
        std::tie(result.bias, result.bias_gradient) = parameter(by_rows(vector(name + ".bias", model.hidden, -1, 0)));
      result.mean = rows(name + ".mean", own_rows);
    }
    result.rstd = rows(name + ".rstd", own_rows);
    return result;
  }

  // Before the names of a block's parameters.
  std::string prefix() const { return "h." + std::to_string(layer) + "."; }
  // GPT-2 scales what is added to the residual by depth; BERT, with its norms after the residual, does not.
  double residual_initial_stddev() const {
    return model.pre_norm ? model.initial_stddev / std::sqrt(2.0 * static_cast<double>(model.layers))
                          : model.initial_stddev;
  }

  Op op(OpKind kind, const Tensors& in, const Tensors& out, std::int64_t columns) const {
    Op result;
    result.kind = kind;
    result.dtype = options.dtype;
    result.n = all_rows;
    result.m = columns;
    result.batch = options.batch;
    result.sequence = options.sequence;
    result.context = options.context;
    for (const TensorId t : in) result.in.push_back(operand_of(t));
    for (const TensorId t : out) result.out.push_back(operand_of(t));
    return result;
  }

  Op own_op(OpKind kind, const Tensors& in, const Tensors& out, std::int64_t columns) const {
    Op result = op(kind, in, out, columns);
    result.n = own_rows;
    return result;
  }

  // An operator that draws a mask for its rows, which may be only a part of all rows.
  Op drawing(Op operation, double rate, std::int32_t site) const {
    if (!drops(rate)) return operation;
    operation.dropout = rate;
    operation.site = site;
    operation.row_shard = sharded;
    return operation;
  }
  bool drops(double rate) const { return options.dropout && rate > 0; }
  // `x` after dropout, as `name`; x itself if there is none. Gradients go through the same operator.
  TensorId dropped(TensorId x, double rate, std::int32_t site, const std::string& name) {
    if (!drops(rate)) return x;
    const TensorId y = own_activation(name, model.hidden);
    emit(drawing(own_op(OpKind::dropout, {x}, {y}, model.hidden), rate, site));
    return y;
  }

  // Skips operators that only make gradients of frozen parameters.
  void emit(Op operation) {
    const std::vector<int>& out = operation.out;
    if (!out.empty() && std::all_of(out.begin(), out.end(), [](int operand) { return operand < 0; })) return;
    current->back().ops.push_back(std::move(operation));
  }
  void begin(std::vector<Part>& parts) {
    current = &parts;
    parts.emplace_back();
  }
  // Ends the run of operators with an all-reduce over the tensor group; does nothing for a single rank.
  void all_reduce(TensorId tensor, GroupOperation operation = GroupOperation::sum) {
    if (options.tensor == 1) return;
    current->push_back(Part{.ops = {}, .tensor = tensor, .reduce = operation});
    current->emplace_back();
  }
  // Ends the run of operators without a message, where an earlier message must have arrived.
  void cut() { current->emplace_back(); }
  void communicate(GroupCollective collective, TensorId source, TensorId target) {
    current->push_back(Part{.ops = {}, .tensor = target, .collective = collective, .source = source});
    current->emplace_back();
  }
  // All rows of `own` under the name `name`; `own` itself without sequence parallelism.
  TensorId gathered(TensorId own, const std::string& name) {
    if (!sharded) return own;
    const TensorId all = activation(name, columns_of(own));
    communicate(GroupCollective::all_gather, own, all);
    return all;
  }
  // Where a product puts its partial sums over this rank's columns, before they are summed into `own`.
  TensorId partial(TensorId own, const std::string& name) { return sharded ? activation(name, columns_of(own)) : own; }
  void add_up(TensorId sums, TensorId own) {
    sharded ? communicate(GroupCollective::reduce_scatter, sums, own) : all_reduce(own);
  }
  std::int64_t columns_of(TensorId tensor) const { return program.tensors[tensor].shape[1]; }

  const Model& model;
  const ExpandOptions& options;
  std::int64_t layer;
  std::int64_t all_rows;  ///< of the micro-batch; of a masked-language model's head, those that it predicts
  bool sharded;           ///< sequence parallelism
  std::int64_t own_rows;  ///< rows of norms and residuals
  LayerProgram program;
  std::vector<Part>* current = nullptr;
};

}  // namespace orrery::models
