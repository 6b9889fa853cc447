#pragma once
/// Arena: one allocation per memory for the whole run, handed out at the offsets that lowering chose. It keeps its own
/// books of what was really handed out, so that a reported peak is a measurement and never the plan's figure.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/engine/backend.h"
#include "exec/files/state_file.h"
#include "plan/schedule/place.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// Identifies an instance of a buffer: its training step, and the micro-batch of that step. They matter only for
/// buffers that have an instance for each.
struct Instance {
  Instance(int of_micro_batch = -1, std::int64_t of_step = 0) : micro_batch(of_micro_batch), step(of_step) {}
  int micro_batch;
  std::int64_t step;
};

/// What has been handed out, in bytes.
struct ArenaUse {
  std::int64_t current = 0;      ///< alive now
  std::int64_t peak_live = 0;    ///< most alive at once
  std::int64_t peak_extent = 0;  ///< highest end of anything handed out: how large the arena had to be
  std::int64_t births = 0;       ///< how often memory was handed out
};

class Arena {
 public:
  enum class Check { none, overlaps, overlaps_and_poison };  ///< poison: fills newborn buffers with NaN (tests)

  /// Allocates placement.arena_bytes from the backend, and the host's part too; creates `state_file` for what the plan
  /// keeps on NVMe; hands out the persistent buffers. `beside`: use the memories of another arena while its own step
  /// does not run (plan::place_beside), and leave its persistent buffers as they are.
  Arena(Backend& backend, const plan::RankClass& rank_class, const plan::Placement& placement, Check check,
        const Arena* beside = nullptr, const std::string& state_file = {});

  /// Call before the first birth of a training step.
  void begin_step();
  /// Where the coming birth of `buffer` will be; `birth` hands it out. Births come in the placement's order of steps.
  [[nodiscard]] std::byte* birthplace(plan::StepRef at, plan::BufferId buffer, const Instance& of);
  /// `may_poison`: false while a message still sends from memory that a queued step will write.
  void birth(plan::StepRef at, plan::BufferId buffer, const Instance& of, bool may_poison = true);
  void death(plan::BufferId buffer, const Instance& of);
  /// The start of a living buffer. One on NVMe is mapped from its file, for code that does not stream it.
  [[nodiscard]] std::byte* data(plan::BufferId buffer, const Instance& of) const;
  [[nodiscard]] bool alive(plan::BufferId buffer, const Instance& of) const;
  [[nodiscard]] std::int64_t bytes(plan::BufferId buffer) const;
  [[nodiscard]] const ArenaUse& use(plan::Space space = plan::Space::device) const { return uses_[index(space)]; }
  [[nodiscard]] std::byte* base(plan::Space space = plan::Space::device) const { return bases_[index(space)]; }
  [[nodiscard]] plan::Space space_of(plan::BufferId buffer) const { return class_.buffers[buffer].space; }
  /// The file behind addresses on NVMe; null if the plan has nothing there.
  [[nodiscard]] StateFile* state_file() const { return files_; }
  /// Whether only persistent buffers are alive: only then may another arena use this one's memory.
  [[nodiscard]] bool resting() const;
  /// Lengths of the rings that buffers lie in, one per kind of birth. The place in a ring is the micro-batch, counted
  /// over training steps, modulo the length.
  [[nodiscard]] std::vector<std::int64_t> rings() const;
  /// A copy of its books, for undoing births whose memory has not been used.
  struct Books;
  [[nodiscard]] Books books() const;
  void reopen(const Books& books);

 private:
  struct Held {
    std::int64_t offset = -1;  ///< -1: not alive
    std::int64_t bytes = 0;
  };
  [[nodiscard]] std::size_t slot(plan::BufferId buffer, const Instance& of) const;
  [[nodiscard]] std::int64_t offset_of(const plan::Placed& place, const Instance& of) const;
  [[nodiscard]] plan::Placed placed(plan::StepRef at, plan::BufferId buffer);
  static std::size_t index(plan::Space space) { return static_cast<std::size_t>(space); }
  void hand_out(std::size_t slot, plan::BufferId buffer, std::int64_t offset, std::int64_t bytes, bool may_poison);
  void check_overlap(plan::BufferId buffer, std::int64_t offset, std::int64_t bytes) const;
  void poison(plan::Space space, std::int64_t offset, std::int64_t bytes);

  Backend& backend_;
  const plan::RankClass& class_;
  const plan::Placement& placement_;
  Check check_;
  std::array<std::byte*, plan::kSpaces> bases_{};
  std::unique_ptr<StateFile> own_files_;
  StateFile* files_ = nullptr;
  int micro_batches_ = 1;
  int steps_in_flight_ = 1;
  std::vector<std::size_t> first_slot_;  ///< by buffer
  std::vector<Held> instances_;
  std::size_t cursor_ = 0;  ///< into placement_.births: the first one of the current step
  std::array<ArenaUse, plan::kSpaces> uses_;
};

struct Arena::Books {
  std::vector<Held> instances;
  std::size_t cursor = 0;
  std::array<ArenaUse, plan::kSpaces> uses;
};

inline Arena::Books Arena::books() const {
  return {instances_, cursor_, uses_};
}
inline void Arena::reopen(const Books& books) {
  instances_ = books.instances;
  cursor_ = books.cursor;
  uses_ = books.uses;
}

}  // namespace orrery::exec
