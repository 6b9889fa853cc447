#pragma once
/// ZeRO-2 and 3: what a layer's reduce-scatters leave is added to the shards one layer later, so that a backend that
/// overlaps can hide them. Private to plan/.
#include <vector>

#include "plan/lower/class_builder.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

class ShardSums {
 public:
  /// `keeps`: full gradients stay until they are added up, so that the next layer does not wait for their memory.
  ShardSums(ClassBuilder& build, const PlanSpec& spec, bool keeps) : build_(build), spec_(spec), keeps_(keeps) {}
  /// `reduced`: buffer of the sum, or the full gradients themselves where nobody shares them.
  void add(int reduced, int gradients, int bucket) { pending_.push_back({reduced, gradients, bucket}); }
  void flush();

 private:
  struct Sum {
    int reduced = -1, gradients = -1, bucket = -1;
  };
  ClassBuilder& build_;
  const PlanSpec& spec_;
  bool keeps_;
  std::vector<Sum> pending_;
};

}  // namespace orrery::plan
