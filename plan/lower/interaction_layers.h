#pragma once
/// How the vectors of a sample interact: products of all pairs, or cross
/// layers. Private to plan/.
#include <vector>

#include "plan/lower/dense_layers.h"

namespace orrery::plan {

class InteractionLayers {
 public:
  /// All references must outlive this.
  InteractionLayers(ClassBuilder& build, const RecommenderStep& step, DenseLayers& dense)
      : build_(build), step_(step), dense_(dense) {}

  /// Joins the vectors (`in`: operands of models::OpKind::pooled_join) and lets
  /// them interact; returns what the top MLP reads.
  [[nodiscard]] BufferId forward(std::vector<int> in, DenseLayers::Ops& ops);
  /// From the gradient of what it returned, in whose memory it works, to that
  /// of the joined vectors.
  [[nodiscard]] BufferId backward(BufferId dtop, DenseLayers::Ops& ops);

 private:
  struct Cross {
    BufferId x, v, u;
  };
  [[nodiscard]] BufferId cross_forward(DenseLayers::Ops& ops);
  [[nodiscard]] BufferId cross_backward(BufferId dtop, DenseLayers::Ops& ops);
  [[nodiscard]] bool crosses() const { return step_.model.interaction == models::Interaction::cross; }
  [[nodiscard]] int view(BufferId buffer) { return dense_.view(buffer); }

  ClassBuilder& build_;
  const RecommenderStep& step_;
  DenseLayers& dense_;
  BufferId features_;  ///< the joined vectors
  std::vector<Cross> crosses_;
};

}  // namespace orrery::plan
