#pragma once
/// A serial step while a split plan's mathematics is put into it. Private to plan/.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/lower/class_builder.h"

namespace orrery::plan {

class SerialStep {
 public:
  /// The class of one rank, lowered: blocks begin, forward, backward, finish.
  explicit SerialStep(RankClass lowered);
  SerialStep(const SerialStep&) = delete;
  SerialStep& operator=(const SerialStep&) = delete;

  ClassBuilder build;
  RankClass& made = build.result();

  [[nodiscard]] Block& block(const char* name);
  BufferId persistent(const std::string& name, Purpose purpose, models::DType dtype, std::int64_t elements) {
    return build.buffer(name, purpose, dtype, elements, true);
  }
  [[nodiscard]] int whole(BufferId buffer) { return build.view(build.whole(buffer)); }
  [[nodiscard]] int part(BufferId buffer, std::int64_t offset, std::int64_t elements) {
    return build.view({buffer, offset, elements});
  }
  /// A step that is in no block yet. Moves blocks: ask for them again.
  [[nodiscard]] Step step_of(Phase phase, const char* name, std::vector<models::Op> ops);
  /// A new block of one step.
  std::int32_t block_of(const std::string& name, Phase phase, std::vector<models::Op> ops);
  /// What a step reads and writes, after its operators have changed.
  void settle(Step& step) const;

  /// The program anew: entries of a block without a micro-batch, and all passes of one.
  void enter(const char* block) { enter(places_.at(block)); }
  void enter(std::int32_t block, bool opening = false) { made.program.push_back({block, -1, 0, opening}); }
  void pass(std::int64_t micro_batch);

 private:
  std::map<std::string, std::int32_t> places_;         ///< by block name
  std::map<std::int32_t, std::vector<Entry>> passes_;  ///< by micro-batch
};

/// The place of a block's step that is called `part`.
[[nodiscard]] std::size_t place_of(const Block& block, const char* part);

}  // namespace orrery::plan
