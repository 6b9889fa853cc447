#pragma once
/// A pass over one layer: what lowering writes down and the closed form prices alike.
#include <algorithm>
#include <map>
#include <optional>

#include "models/layers/expand.h"
#include "plan/schedule/schedule.h"

namespace orrery::plan {

[[nodiscard]] inline CollectiveKind kind_of(models::GroupCollective collective) {
  switch (collective) {
    case models::GroupCollective::all_reduce: return CollectiveKind::all_reduce;
    case models::GroupCollective::all_gather: return CollectiveKind::all_gather;
    case models::GroupCollective::reduce_scatter: return CollectiveKind::reduce_scatter;
    case models::GroupCollective::ring_shift: return CollectiveKind::ring_shift;
    case models::GroupCollective::all_to_all: return CollectiveKind::all_to_all;
  }
  return CollectiveKind::all_reduce;
}

/// Whether backward reads any parameter. An embedding's does not, so ZeRO 3 gathers nothing for it.
[[nodiscard]] inline bool backward_reads_parameters(const models::LayerProgram& program) {
  const auto is_parameter = [&](int operand) {
    return operand >= 0 && program.tensors[models::tensor_of(operand)].role == models::TensorRole::parameter;
  };
  const auto reads = [&](const models::Op& op) { return std::ranges::any_of(op.in, is_parameter); };
  return std::ranges::any_of(program.backward,
                             [&](const models::Part& part) { return std::ranges::any_of(part.ops, reads); });
}

/// Messages around a ring of ranks, which compute on what has arrived while they send it on. What was sent in exchange
/// is freed where what has arrived is first read: earlier computation must not wait for it. `Id`: of buffers or
/// tensors.
template <class Id>
class Ring {
 public:
  struct Arrival {
    Id sent;
    int shift = 0;  ///< the message's number in the ring, from 1
  };
  void shift(Id sent, Id arrives) { arrived_[arrives] = {sent, ++shifts_}; }
  /// For the first computation that reads it, and only for that one.
  [[nodiscard]] std::optional<Arrival> first_read(Id arrived) {
    const auto found = arrived_.extract(arrived);
    return found.empty() ? std::nullopt : std::optional(found.mapped());
  }

 private:
  int shifts_ = 0;
  std::map<Id, Arrival> arrived_;
};

}  // namespace orrery::plan
