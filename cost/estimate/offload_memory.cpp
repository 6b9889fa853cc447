/// States of the optimizer, gradients and parameters outside the device, and the part of them that comes to the device
/// at the end of a step (plan/lower/offload_states.cpp).
#include <algorithm>
#include <map>

#include "cost/estimate/block_lives.h"
#include "cost/estimate/fold.h"
#include "cost/estimate/offload.h"
#include "plan/outline/reduction.h"

namespace orrery::cost {

namespace {

/// Gradients that are summed on the host and reduced after the passes. The gradients of a message come to the device
/// during the message before it. Those that it has changed leave and are freed after the message that follows.
class Coming {
 public:
  void reduce(const plan::Outline& outline) {
    std::map<int, int> left;  // by slot: where what a message changed is on the host again
    for (const plan::Item& item : outline.items) {
      if (!item.is_message()) continue;  // a copy to the host
      const plan::Slot &source = outline.slot_of(item.source), &target = outline.slot_of(item.target);
      const plan::Operand& from = outline.operands[static_cast<std::size_t>(item.source)];
      if (source.memory != plan::Memory::temporary)
        message(arena_bytes(from.elements, source.dtype), item.source == item.target, left[from.slot]);
      else
        block_.step(false);
      // Its copy to the host has no pass after it: it stays until the norm has been taken.
      if (target.memory == plan::Memory::temporary && item.source != item.target)
        staying_.push_back({block_.last(), arena_bytes(target.elements, target.dtype)});
    }
  }
  /// A message over the bytes of a buffer on the host, which it changes or only reads. `left`: the place where an
  /// earlier message has brought them back; set to the place where this one does.
  void message(double bytes, bool changes, int& left) {
    const int here = block_.step(false);
    const int from = std::max(left, before_ < 0 ? 0 : BlockLives::ahead(before_));
    if (changed_ > 0) {
      block_.live(changed_from_, BlockLives::behind(here), changed_);
      block_.compute(BlockLives::behind(here));  // the step that frees it
    }
    changed_ = changes ? bytes : 0;
    changed_from_ = from;
    if (changes)
      left = BlockLives::behind(here);
    else
      block_.live(from, here, bytes);
    before_ = here;
  }
  [[nodiscard]] std::vector<plan::ScratchBuffer> take() {
    const int end = block_.step(true);
    if (changed_ > 0) block_.live(changed_from_, BlockLives::ahead(end), changed_);
    for (const auto& [from, bytes] : staying_) block_.live(from, end, bytes);
    return block_.take();
  }

 private:
  BlockLives block_;
  int before_ = -1;     ///< the last message
  double changed_ = 0;  ///< bytes that it changed, and when they came
  int changed_from_ = 0;
  std::vector<std::pair<int, double>> staying_;
};

std::vector<plan::ScratchBuffer> gradients_come(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec,
                                                bool shares_table) {
  Coming coming;
  for (auto b = buckets.begin(), next = b; b != buckets.end(); b = next) {
    std::vector<plan::Outline> of_layer;  // whose buckets come in turn
    for (next = b; next == b || (next != buckets.end() && next->alternates); ++next)
      of_layer.push_back(plan::reduction_of(*next, spec, plan::Reduces::at_the_end));
    for (std::int64_t k = 0; k < b->count; ++k)
      for (const plan::Outline& outline : of_layer) coming.reduce(outline);
  }
  for (const BucketSize& b : buckets) {
    int left = 0;
    if (b.tied && shares_table)
      coming.message(arena_bytes(plan::optimized_of(b, spec), plan::gradient_dtype(spec.numerics.precision)), true,
                     left);
  }
  return coming.take();
}

}  // namespace

StatesElsewhere states_elsewhere(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec,
                                 bool shares_table) {
  const int zero = zero_of(spec);
  const models::DType compute = plan::compute_dtype(spec.numerics.precision),
                      gradient = plan::gradient_dtype(spec.numerics.precision);
  StatesElsewhere out;
  const plan::Offload& o = spec.offload;
  if (o.optimizer == plan::Space::device && o.parameters == plan::Space::device) return out;
  double staging = 0;                  // host bytes for data in transit to and from files and to the device
  std::vector<double> states, copies;  // by bucket, in order; of equal buckets as many as are in use at a time
  for (const BucketSize& b : buckets) {
    const auto count = static_cast<double>(b.count);
    const std::int64_t optimized = zero >= 1 ? b.shard : b.elements;
    if (o.optimizer != plan::Space::device) {
      constexpr double kStates = 3;  // master and both moments
      constexpr std::int64_t kAtATime = 3;
      (o.optimizer == plan::Space::nvme ? out.nvme : out.host) +=
          count * kStates * arena_bytes(optimized, models::DType::fp32);
      out.host += count * arena_bytes(zero >= 2 ? b.shard : b.elements, gradient);
      // Compute copies are made beside the masters if their dtype differs, or if they go to files.
      const bool made =
          (compute != models::DType::fp32 && o.parameters != plan::Space::host) || o.parameters == plan::Space::nvme;
      for (std::int64_t i = 0; i < std::min(b.count, kAtATime); ++i) {
        states.push_back(o.optimizer == plan::Space::nvme ? kStates * arena_bytes(optimized, models::DType::fp32) : 0);
        copies.push_back(made ? arena_bytes(optimized, compute) : 0);
      }
    }
    if (o.parameters == plan::Space::device) continue;
    const double values = arena_bytes(zero == 3 ? b.shard : b.elements, compute);
    (o.parameters == plan::Space::nvme ? out.nvme : out.host) += count * values;
    if (o.parameters == plan::Space::nvme) staging = std::max(staging, 2 * values);
  }
  // At any time two buckets' states are fetched and one bucket's are written back, or the other way round; the compute
  // copies of two buckets leave.
  for (std::size_t i = 0; i < states.size(); ++i) {
    double together = 0;
    for (std::size_t k = i; k < std::min(states.size(), i + 3); ++k) together += states[k];
    for (std::size_t k = i; k < std::min(states.size(), i + 2); ++k) together += copies[k];
    staging = std::max(staging, together);
  }
  out.host += staging;
  if (o.optimizer != plan::Space::device) out.finish = gradients_come(buckets, spec, shares_table);
  return out;
}

}  // namespace orrery::cost
