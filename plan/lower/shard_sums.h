#pragma once
/// ZeRO-2 and 3: results of a layer's reduce-scatters are added to the shards one layer later, so that a backend that
/// overlaps can hide them. Private to plan/.
#include <utility>
#include <vector>

#include "plan/lower/write_outline.h"

namespace orrery::plan {

class ShardSums {
 public:
  /// `keeps`: full gradients stay until they are added to the shard, so that the next layer does not wait for their
  /// memory.
  ShardSums(ClassBuilder& build, bool keeps) : build_(build), keeps_(keeps) {}
  /// `reduction`: all but its last part has been written. `gradients`: the buffer of the full gradients.
  void add(OutlineWriter reduction, BufferId gradients) { pending_.push_back({std::move(reduction), gradients}); }
  void flush();

 private:
  struct Sum {
    OutlineWriter reduction;
    BufferId gradients;
  };
  ClassBuilder& build_;
  bool keeps_;
  std::vector<Sum> pending_;
};

}  // namespace orrery::plan
