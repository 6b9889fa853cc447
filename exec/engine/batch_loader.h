#pragma once
/// Reads micro-batches into the buffers of the operators that load them: tokens, masked sentences, or clicks.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "exec/engine/operands.h"
#include "exec/engine/step_input.h"

namespace orrery::exec {

class BatchLoader {
 public:
  /// `tables`: of a recommendation model, else null. All references must outlive this.
  BatchLoader(Backend& backend, const Operands& operands, const plan::TableLayout* tables)
      : backend_(backend), operands_(operands), tables_(tables) {}

  /// From now on batches of tokens wait in slots of their own, whose addresses do not change: steps may be graphs.
  void keep_slots() { slots_kept_ = true; }

  void load_tokens(const models::Op& op, const Instance& of, const StepInput& input);
  void load_clicks(const models::Op& op, const Instance& of, const StepInput& input);
  /// The slot of a batch, with the batch in it.
  std::span<std::byte> filled_slot(const models::Op& op, const Instance& of, const StepInput& input);
  /// Reads what the operator will load in the next training step, if there is one. If it cannot be read, the step that
  /// wants it fails.
  void read_ahead(const models::Op& op, const Instance& of, const StepInput& input);

 private:
  /// Reads the micro-batch into tokens_ and the vectors beside it; returns the contents of the operator's outputs, in
  /// their order.
  [[nodiscard]] std::array<const std::vector<std::int32_t>*, 6> read(const models::Op& op, const Instance& of,
                                                                     const StepInput& input);
  void keep_part(const models::Op& op, int part);
  /// The outputs of load_tokens, one after another.
  [[nodiscard]] std::vector<std::byte> batch_bytes(const models::Op& op, const Instance& of, const StepInput& input);
  [[nodiscard]] std::size_t bytes_of_ids(int view) const;

  Backend& backend_;
  const Operands& operands_;
  const plan::TableLayout* tables_;
  bool slots_kept_ = false;
  /// By operator, micro-batch, and number of training steps ahead.
  using BatchPlace = std::tuple<const models::Op*, std::int32_t, std::int64_t>;
  std::map<BatchPlace, std::span<std::byte>> slots_;
  /// A slot's next contents: read and masked while the device computes.
  struct ReadAhead {
    std::int64_t step = -1;  ///< the step of its batch
    std::vector<std::byte> bytes;
  };
  std::map<BatchPlace, ReadAhead> ahead_;
  std::vector<float> dense_, labels_;
  std::vector<std::int32_t> tokens_, targets_, token_types_, masked_rows_, next_sentence_, further_targets_;
};

}  // namespace orrery::exec
