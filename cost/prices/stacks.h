#pragma once
/// Which stack's prices apply to a plan. Published runs under one name come from several programs: "Megatron-LM with
/// ZeRO 3" was DeepSpeed's. So a stack may name others that replace it for certain plans. Every prediction, of a
/// published row and of a job's plan, gets its prices here.
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/parameters/calibration.h"
#include "cost/parameters/intervals.h"
#include "cost/parameters/stack.h"
#include "cost/prices/pricing.h"
#include "plan/spec/plan.h"
#include "plan/spec/software.h"

namespace orrery::cost {

/// A stack and those that replace it.
class Stacks {
 public:
  /// Finds a stack by name; null if there is none.
  using Find = std::function<const Stack*(const std::string&)>;
  Stacks(Stack alone);  // NOLINT(google-explicit-constructor): a stack that nothing replaces
  /// `find` is called for the names that the stack and its replacements mention. A name that it does not find replaces
  /// nothing. `software`: how the run's was set up; all of them are as it says (cost/parameters/as_run.h).
  Stacks(Stack named, const Find& find, const plan::Software& software = {});

  /// The stack as the user named it.
  [[nodiscard]] const Stack& named() const { return all_.front(); }
  [[nodiscard]] const std::vector<Stack>& all() const { return all_; }
  /// Index in all() of the stack for a plan of this ZeRO stage, on a cluster of one node or of several.
  [[nodiscard]] std::size_t place_of(int zero_stage, bool several_nodes) const;
  [[nodiscard]] const Stack& of(int zero_stage, const clusters::Cluster& cluster) const;

 private:
  std::size_t add(const Stack& stack);
  static constexpr std::size_t kStages = 4;
  std::vector<Stack> all_;
  std::array<std::array<std::size_t, kStages>, 2> places_{};  ///< [several nodes][ZeRO stage]
};

/// Prices for all plans on one cluster. Copies have their own memos. Not thread-safe, like Pricing.
class Prices {
 public:
  /// `intervals`: how far the predictions of these stacks are from measurements; none: as if they were exact.
  Prices(const std::shared_ptr<const clusters::Cluster>& cluster, Stacks stacks,
         const std::vector<Calibration>& calibrations = {}, Intervals intervals = {});
  Prices(const Pricing& alone);  // NOLINT(google-explicit-constructor): one stack for all plans
  [[nodiscard]] const Pricing& of(const plan::PlanSpec& spec) const { return all_[place_of(spec)]; }
  [[nodiscard]] std::size_t place_of(const plan::PlanSpec& spec) const;
  [[nodiscard]] const std::vector<Pricing>& all() const { return all_; }
  [[nodiscard]] const Stacks& stacks() const { return stacks_; }
  [[nodiscard]] const Intervals& intervals() const { return intervals_; }
  /// The prices of the stack as the user named it.
  [[nodiscard]] const Pricing& named() const { return all_.front(); }

 private:
  Stacks stacks_;
  Intervals intervals_;
  std::vector<Pricing> all_;  ///< in the order of stacks_.all()
};

/// The default stack for a model on a cluster: the Megatron of the device's years, of which published runs are known;
/// Megatron Bridge's recipes for a mixture on a rack of Blackwells; Orrery's own executor on CPU ranks; a generic
/// PyTorch on other vendors' devices; a generic stack for models with embedding tables. `orders`: those that the job
/// names. If all are DualPipe's, a mixture on NVIDIA's devices is taken to be trained by DeepSeek's own software, which
/// the order comes from: no Megatron has it.
[[nodiscard]] std::string usual_stack(const clusters::Cluster& cluster, const models::Model& model,
                                      const std::vector<plan::Order>& orders = {});

/// A feature that software lacks, in words ("ZeRO 3", "sequence parallelism"), and the key of `plan` that asks for it.
struct Lacking {
  std::string what;
  const char* key;
  bool operator==(const Lacking&) const = default;
};
/// Whether a mesh has replicas and splits them in other ways too. Without ZeRO, some software has no such plans
/// (`Capabilities::replicas_beside`).
[[nodiscard]] bool has_replicas_beside(const plan::Mesh& mesh);
/// Features of a plan that the software does not support; such a plan is priced as if the software supported them.
/// Empty if another stack replaces it.
[[nodiscard]] std::vector<Lacking> beyond(const Stacks& stacks, const plan::PlanSpec& spec);

}  // namespace orrery::cost
