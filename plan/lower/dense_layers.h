#pragma once
/// Products and MLPs of a recommendation model, and the parameters that they
/// read by name. Private to plan/.
#include <map>
#include <string>
#include <vector>

#include "plan/lower/recommender_step.h"

namespace orrery::plan {

class DenseLayers {
 public:
  using Ops = std::vector<models::Op>;

  /// All references must outlive this.
  DenseLayers(ClassBuilder& build, const RecommenderStep& step) : build_(build), step_(step) {}

  /// From now on its ranges are known by name. The bucket has its buffers when
  /// they are first used.
  void know(BucketId bucket);

  /// A value of the MLPs or the interaction, in the plan's precision; tables,
  /// masters and gradients of parameters are fp32.
  [[nodiscard]] BufferId value(const std::string& name, std::int64_t elements);
  [[nodiscard]] models::Op value_op(models::OpKind kind, std::int64_t n, std::int64_t m, std::int64_t k,
                                    std::vector<int> in, std::vector<int> out) const;
  /// y (n, outputs) = x W^T + b; dW = dz^T x; dx = dz W.
  [[nodiscard]] models::Op product(std::int64_t m, std::int64_t n, std::int64_t k, std::vector<int> in, int out,
                                   bool trans_a, bool trans_b) const;
  [[nodiscard]] models::Op bias_gradient(std::int64_t width, BufferId dy, const std::string& name);
  [[nodiscard]] int parameter(const std::string& name) { return place(name, false); }
  /// Products in 16 bits read a copy of their weight, made where it is first
  /// needed; its gradient is widened after them.
  [[nodiscard]] int weight(const std::string& name, Ops& ops);
  void weight_gradient(const std::string& name, models::Op op, Ops& ops);
  [[nodiscard]] int view(BufferId buffer) { return build_.view(build_.whole(buffer)); }

  /// Layers "PREFIX0", "PREFIX2" … ReLU works in place after each, except the
  /// last one's where that is linear.
  struct Mlp {
    const char* prefix = "";
    std::vector<std::int64_t> widths = {};
    bool last_is_linear = false;
  };
  /// Outputs of each layer.
  [[nodiscard]] std::vector<BufferId> forward(const Mlp& mlp, BufferId x, Ops& ops);
  /// From the gradient of the last output to the gradient of the input, which
  /// is left out if it is not needed.
  BufferId backward(const Mlp& mlp, BufferId x, const std::vector<BufferId>& outputs, BufferId dy, bool wants_dx,
                    Ops& ops);

 private:
  struct InBucket {
    BucketId bucket = {};
    std::int64_t offset = 0, elements = 0;
  };
  [[nodiscard]] int place(const std::string& name, bool gradients);

  ClassBuilder& build_;
  const RecommenderStep& step_;
  std::map<std::string, InBucket> places_;
  std::map<std::string, BufferId> copies_;  ///< of weights, in 16 bits
};

}  // namespace orrery::plan
