#pragma once
/// Replicas of a split plan that take turns on one rank, so that each one's gradients are made apart. Private to plan/.
#include <string>
#include <vector>

#include "plan/lower/serial_step.h"

namespace orrery::plan {

/// A bucket's gradients as one sender makes them, apart from their sum.
struct OwnGradients {
  BucketId bucket = {};
  BufferId gradients;
  bool of_head = false;  ///< a tied table may have two: as input, and as head
  int together = 1;      ///< replicas whose gradients are one sender's
};

class ReplicaTurns {
 public:
  /// Passes now write gradients of their own. `apart`: the tied table's (`shared`) gradients as input and as head are
  /// separate.
  ReplicaTurns(SerialStep& to, const Plan& split, BucketId shared, bool apart);

  [[nodiscard]] const std::vector<OwnGradients>& own() const { return own_; }
  [[nodiscard]] int senders(const OwnGradients& one) const { return workers_ / one.together; }

  /// Gradients of as many replicas together, and what takes those of each sender: blocks that the caller makes.
  struct Turn {
    std::string of;  ///< suffix of the blocks' names
    int together = 1;
    std::int32_t zero = -1;               ///< before the first of a sender's replicas
    std::vector<std::int32_t> take = {};  ///< by sender, after the last
  };
  [[nodiscard]] std::vector<Turn>& turns() { return turns_; }
  /// Calls `body` with the gradients that such a turn makes, and their place in own().
  template <class Body>
  void each(const Turn& turn, const Body& body) const {
    for (std::size_t i = 0; i < own_.size(); ++i)
      if (own_[i].together == turn.together) body(own_[i], i);
  }

  /// Runs micro-batches [first, last) of every replica in turn. After each replica, or as many as are one sender, the
  /// gradients are taken.
  void run(std::int64_t first, std::int64_t last);

 private:
  [[nodiscard]] int replicas_together(const Bucket& bucket) const;
  void make_own(BucketId shared, bool apart);
  void redirect(BucketId shared, bool apart);

  SerialStep& to_;
  const Plan& split_;
  int workers_;
  std::vector<OwnGradients> own_;
  std::vector<Turn> turns_;
};

}  // namespace orrery::plan
