#pragma once
/// Notes down the expansion of a layer: tensors, parameters with their gradients, operators in parts, and messages of
/// the tensor group. Private to models/; see expand.cpp.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/expand.h"
#include "models/operators/dropout.h"

namespace orrery::models {

struct Norm {
  int weight = -1, bias = -1, mean = -1, rstd = -1;
  int weight_gradient = -1, bias_gradient = -1;
};

/// A low-rank adapter beside a product's weight (models/lora.h).
struct Adapter {
  int a = -1, b = -1, a_gradient = -1, b_gradient = -1;
  int narrow = -1;  ///< (rows, rank): scale x A^T
  [[nodiscard]] bool any() const { return a >= 0; }
};

struct Linear {
  int weight = -1, bias = -1, weight_gradient = -1, bias_gradient = -1;
  std::int64_t in = 0, out = 0;  ///< local sizes
  std::int64_t rows = 0;         ///< number of rows that it is computed for
  Adapter adapter = {};
  [[nodiscard]] bool trains() const { return weight_gradient >= 0 || adapter.any(); }
};

class LayerNotes {
 protected:
  LayerNotes(const Model& model, LayerKind kind, std::int64_t layer, const ExpandOptions& options)
      : model_(model),
        options_(options),
        layer_(layer),
        n_(options.batch * options.sequence),
        sharded_(options.sequence_parallel && options.tensor > 1),
        own_rows_(sharded_ ? n_ / options.tensor : n_) {
    program_.kind = kind;
  }

  int activation(const std::string& name, std::vector<std::int64_t> shape, DType dtype) {
    return add({.name = name, .role = TensorRole::activation, .shape = std::move(shape), .dtype = dtype});
  }
  int activation(const std::string& name, std::int64_t columns) {
    return activation(name, {n_, columns}, options_.dtype);
  }
  // This rank's rows: all of them unless there is sequence parallelism.
  int own_activation(const std::string& name, std::int64_t columns) {
    return activation(name, {own_rows_, columns}, options_.dtype);
  }
  int rows(const std::string& name, std::int64_t count) { return activation(name, {count}, DType::fp32); }

  int role(const std::string& name, TensorRole role, std::vector<std::int64_t> shape, DType dtype) {
    return add({.name = name, .role = role, .shape = std::move(shape), .dtype = dtype});
  }

  int add(Tensor tensor) {
    program_.tensors.push_back(std::move(tensor));
    return static_cast<int>(program_.tensors.size()) - 1;
  }

  // A parameter and its gradient, or -1 if adapters train in its place. `tensor` comes with its logical shape, local
  // shape and split.
  std::pair<int, int> parameter(Tensor tensor) {
    if (!model_.lora.any()) return trained(std::move(tensor));
    tensor.role = TensorRole::parameter;
    tensor.dtype = options_.dtype;
    tensor.frozen = true;
    return {add(std::move(tensor)), -1};
  }
  std::pair<int, int> trained(Tensor tensor) {
    tensor.role = TensorRole::parameter;
    tensor.dtype = options_.dtype;
    const int index = add(tensor);
    tensor.role = TensorRole::gradient;
    tensor.of = index;
    tensor.name += ".gradient";
    return {index, add(std::move(tensor))};
  }

  Tensor matrix(const std::string& name, std::int64_t out, std::int64_t in, int split_axis, double stddev) const {
    Tensor t{.name = name, .shape = {out, in}, .logical_shape = {out, in}};
    if (split_axis >= 0) t.shape[static_cast<std::size_t>(split_axis)] /= options_.tensor;
    t.split_axis = split_axis;
    t.decay = true;
    t.initial_stddev = stddev;
    return t;
  }
  Tensor vector(const std::string& name, std::int64_t size, int split_axis, double value) const {
    Tensor t{.name = name, .shape = {split_axis >= 0 ? size / options_.tensor : size}, .logical_shape = {size}};
    t.split_axis = split_axis;
    t.initial_value = value;
    return t;
  }
  // A parameter used only on this rank's rows.
  Tensor by_rows(Tensor t) const {
    t.partial_gradient = sharded_;
    return t;
  }
  // A parameter whose gradient comes, on each rank, from its own heads alone.
  Tensor by_heads(Tensor t) const {
    t.partial_gradient = options_.tensor > 1;
    return t;
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
    std::tie(result.weight, result.weight_gradient) =
        parameter(by_rows(vector(name + ".weight", model_.hidden, -1, 1)));
    if (model_.normalisation == Normalisation::layer_norm) {
      std::tie(result.bias, result.bias_gradient) = parameter(by_rows(vector(name + ".bias", model_.hidden, -1, 0)));
      result.mean = rows(name + ".mean", own_rows_);
    }
    result.rstd = rows(name + ".rstd", own_rows_);
    return result;
  }

  Op op(OpKind kind, std::vector<int> in, std::vector<int> out, std::int64_t columns) const {
    Op result;
    result.kind = kind;
    result.dtype = options_.dtype;
    result.n = n_;
    result.m = columns;
    result.batch = options_.batch;
    result.sequence = options_.sequence;
    result.context = options_.context;
    result.in = std::move(in);
    result.out = std::move(out);
    return result;
  }

  Op own_op(OpKind kind, std::vector<int> in, std::vector<int> out, std::int64_t columns) const {
    Op result = op(kind, std::move(in), std::move(out), columns);
    result.n = own_rows_;
    return result;
  }

  // An operator that draws a mask for its rows, which may be only a part of all rows.
  Op drawing(Op operation, double rate, std::int32_t site) const {
    if (!drops(rate)) return operation;
    operation.dropout = rate;
    operation.site = site;
    operation.row_shard = sharded_;
    return operation;
  }
  bool drops(double rate) const { return options_.dropout && rate > 0; }
  // `x` after dropout, as `name`; x itself if there is none. Gradients go through the same operator.
  int dropped(int x, double rate, std::int32_t site, const std::string& name) {
    if (!drops(rate)) return x;
    const int y = own_activation(name, model_.hidden);
    emit(drawing(own_op(OpKind::dropout, {x}, {y}, model_.hidden), rate, site));
    return y;
  }

  // Skips operators that only make gradients of frozen parameters.
  void emit(Op operation) {
    const std::vector<int>& out = operation.out;
    if (!out.empty() && std::all_of(out.begin(), out.end(), [](int t) { return t < 0; })) return;
    current_->back().ops.push_back(std::move(operation));
  }
  void begin(std::vector<Part>& parts) {
    current_ = &parts;
    parts.emplace_back();
  }
  // Ends the run of operators with an all-reduce over the tensor group; does nothing for a single rank.
  void all_reduce(int tensor, GroupOperation operation = GroupOperation::sum) {
    if (options_.tensor == 1) return;
    current_->push_back(Part{.ops = {}, .tensor = tensor, .reduce = operation});
    current_->emplace_back();
  }
  // Ends the run of operators without a message, where an earlier message must have arrived.
  void cut() { current_->emplace_back(); }
  void communicate(GroupCollective collective, int source, int target) {
    current_->push_back(Part{.ops = {}, .tensor = target, .collective = collective, .source = source});
    current_->emplace_back();
  }
  // All rows of `own` under the name `name`; `own` itself without sequence parallelism.
  int gathered(int own, const std::string& name) {
    if (!sharded_) return own;
    const int all = activation(name, columns_of(own));
    communicate(GroupCollective::all_gather, own, all);
    return all;
  }
  // Where a product puts its partial sums over this rank's columns, before they are summed into `own`.
  int partial(int own, const std::string& name) { return sharded_ ? activation(name, columns_of(own)) : own; }
  void add_up(int sums, int own) {
    sharded_ ? communicate(GroupCollective::reduce_scatter, sums, own) : all_reduce(own);
  }
  std::int64_t columns_of(int tensor) const { return program_.tensors[static_cast<std::size_t>(tensor)].shape[1]; }

  const Model& model_;
  const ExpandOptions& options_;
  std::int64_t layer_;
  std::int64_t n_;
  bool sharded_;           ///< sequence parallelism
  std::int64_t own_rows_;  ///< rows of norms and residuals
  LayerProgram program_;
  std::vector<Part>* current_ = nullptr;
};

}  // namespace orrery::models
