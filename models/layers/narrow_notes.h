#pragma once
/// The products that make a narrower copy of each token for a mixture's experts, and lead the sums of what they made
/// back to its width (NVIDIA 2025, Nemotron 3's "LatentMoE"). Router and shared experts read the token itself. Private
/// to models/; see mixture_notes.h.
#include <string>
#include <tuple>

#include "models/layers/linear_notes.h"
#include "models/layers/mixture_sizes.h"

namespace orrery::models {

class NarrowCopies {
 public:
  /// `at`: before the names of their parameters.
  NarrowCopies(LinearNotes& to, const MixtureSizes& sizes, const std::string& at) : to_(to), sizes_(sizes) {
    const std::int64_t c = to_.model.hidden, narrow = to_.model.experts.narrow;
    in_ = {.in = c, .out = narrow, .rows = sizes_.routed};
    out_ = {.in = narrow, .out = c, .rows = sizes_.routed};
    make(in_, at + "narrow.weight", to_.model.initial_stddev);
    make(out_, at + "widen.weight", to_.residual_initial_stddev());
    copies_ = of_rows("experts.copies");
    sums_ = of_rows("experts.copies.sums");
  }

  /// Something as large as the copies.
  TensorId of_rows(const std::string& name) {
    return to_.activation(name, {sizes_.routed, to_.model.experts.narrow}, to_.options.dtype);
  }
  [[nodiscard]] TensorId copies() const { return copies_; }
  [[nodiscard]] TensorId sums() const { return sums_; }

  void narrow(TensorId x) { to_.linear_forward(in_, x, copies_, false); }
  void widen(TensorId h) { to_.linear_forward(out_, sums_, h, false); }
  /// From dh to the gradient of the sums.
  TensorId widen_backward(TensorId dh) {
    const TensorId dsums = of_rows("d_experts.copies.sums");
    to_.linear_backward(out_, dh, sums_, dsums);
    return dsums;
  }
  /// From the gradient of the copies to dx.
  void narrow_backward(TensorId dcopies, TensorId x, TensorId dx) { to_.linear_backward(in_, dcopies, x, dx); }

 private:
  // Each tensor rank has sums over its own columns of the experts, or over its own rows.
  void make(Linear& linear, const std::string& name, double stddev) {
    Tensor weight = to_.matrix(name, linear.out, linear.in, -1, stddev);
    weight.partial_gradient = sizes_.own_routes ? to_.sharded : to_.options.tensor > 1;
    std::tie(linear.weight, linear.weight_gradient) = to_.parameter(std::move(weight));
  }

  LinearNotes& to_;
  MixtureSizes sizes_;
  Linear in_, out_;
  TensorId copies_, sums_;
};

}  // namespace orrery::models
