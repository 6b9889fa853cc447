#pragma once
/// What a recommendation model's step is lowered from. Private to plan/.
#include "models/recommender.h"
#include "plan/lower/pooled_travel.h"
#include "plan/spec/optimizers.h"

namespace orrery::plan {

struct RecommenderStep {
  const PlanSpec& spec;
  const models::Recommender& model;
  const TableLayout& layout;
  GroupId data;        ///< of all ranks, for what all of them have; none: alone
  TableGroups groups;  ///< of all ranks, for what they have in parts
  bool forward_only = false;
  bool exchanges_indices = true;  ///< RecommenderHabits::exchanges_indices

  [[nodiscard]] bool served() const { return spec.states.has_server() && !forward_only; }
  /// Updates of a step: a parameter server makes one for each worker.
  [[nodiscard]] int turns() const { return served() ? spec.mesh.data : 1; }
  /// The type of values between the input and the loss, and that of tables.
  [[nodiscard]] models::DType type() const {
    return models::size_of(spec.numerics.precision) == 2 ? spec.numerics.precision : models::DType::fp32;
  }
  [[nodiscard]] models::DType stored() const { return dtype_of(spec.embedding.stored); }
  /// States of tables.
  [[nodiscard]] const TableStates& kept() const { return traits_of(spec.states.optimizer).table_states; }
};

}  // namespace orrery::plan
