#pragma once
/// Which stack's prices a plan takes. Published runs of one name are of several softwares: who measured Megatron-LM
/// with ZeRO 3 ran DeepSpeed's. So a stack may name others that stand for it under some plans; every prediction, of a
/// published row as of a job's plan, takes its prices here.
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/parameters/calibration.h"
#include "cost/parameters/stack.h"
#include "cost/prices/pricing.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// A stack, and those that stand for it.
class Stacks {
 public:
  /// The stack of a name; null where there is none.
  using Find = std::function<const Stack*(const std::string&)>;
  Stacks(Stack alone);  // NOLINT(google-explicit-constructor): a stack that nothing stands for
  /// `find` is asked for the names that the stack, and those that stand for it, mention. What it does not have stands
  /// for nothing.
  Stacks(Stack named, const Find& find);

  /// The stack as the user named it.
  [[nodiscard]] const Stack& named() const { return all_.front(); }
  [[nodiscard]] const std::vector<Stack>& all() const { return all_; }
  /// Place in all() of the one for a plan of this ZeRO stage, on a cluster of one node or of several.
  [[nodiscard]] std::size_t place_of(int zero_stage, bool several_nodes) const;
  [[nodiscard]] const Stack& of(int zero_stage, const clusters::Cluster& cluster) const;

 private:
  std::size_t add(const Stack& stack);
  static constexpr std::size_t kStages = 4;
  std::vector<Stack> all_;
  std::array<std::array<std::size_t, kStages>, 2> places_{};  ///< [several nodes][ZeRO stage]
};

/// Prices of all plans of one cluster. Copies have memories of their own. Not thread-safe, as Pricing is not.
class Prices {
 public:
  Prices(const std::shared_ptr<const clusters::Cluster>& cluster, Stacks stacks,
         const std::vector<Calibration>& calibrations = {});
  Prices(const Pricing& alone);  // NOLINT(google-explicit-constructor): one stack for all plans
  [[nodiscard]] const Pricing& of(const plan::PlanSpec& spec) const { return all_[place_of(spec)]; }
  [[nodiscard]] std::size_t place_of(const plan::PlanSpec& spec) const;
  [[nodiscard]] const std::vector<Pricing>& all() const { return all_; }
  [[nodiscard]] const Stacks& stacks() const { return stacks_; }
  /// Those of the stack as the user named it.
  [[nodiscard]] const Pricing& named() const { return all_.front(); }

 private:
  Stacks stacks_;
  std::vector<Pricing> all_;  ///< as stacks_.all()
};

/// The stack that runs on a device where nobody names one: Megatron of the device's years, whose published runs are
/// known; Orrery's own executor on CPU ranks; of other makers' devices PyTorch that nobody named, and of models with
/// embedding tables whatever trains those.
[[nodiscard]] std::string usual_stack(const clusters::Device& device, bool has_tables = false);

/// What of a plan the software cannot do, in words ("ZeRO 3", "sequence parallelism"); such a plan is priced as if it
/// could. Nothing where another stack stands for it.
[[nodiscard]] std::vector<std::string> beyond(const Stacks& stacks, const plan::PlanSpec& spec);

}  // namespace orrery::cost
