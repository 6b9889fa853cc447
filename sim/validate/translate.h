#pragma once
/// From a published row to what a prediction needs: model, cluster, stack and plan. What a row leaves open is filled by
/// a default, each of which is noted; docs/validation.md lists them.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/pricing.h"
#include "cost/stack.h"
#include "models/model.h"
#include "plan/plan.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// What rows may name, given by who opens files.
struct Library {
  std::vector<clusters::Cluster> clusters;  ///< the catalogue, by name; each GPU's node is found here
  std::vector<cost::Stack> stacks;
  std::vector<cost::Calibration> calibrations;
};

/// A row made ready for prediction.
struct Subject {
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const cost::Pricing> pricing;  ///< of the row's cluster and stack
  plan::Plan plan;
  cost::MemoryQuestion memory;     ///< what the figure counts: as the row says, else what the stack's users read
  std::vector<std::string> notes;  ///< defaults taken: "no node of ... in the catalogue: ... instead"
};

/// Translates rows; clusters and prices are made once for equal machines. Not thread-safe (prices memoise).
class Translator {
 public:
  explicit Translator(Library library);
  /// The reason, where a row cannot be expressed, is a diagnostic of code V01 (a key of the row), V02 (its machine) or
  /// make_plan's own.
  [[nodiscard]] base::Result<Subject> translate(const Setup& setup);

 private:
  /// The stack of this name, else the one whose name begins most alike, the shortest of such; none in an empty library.
  [[nodiscard]] const cost::Stack* stack_like(const std::string& name) const;
  [[nodiscard]] const cost::Stack* stack_of(const Setup& setup, std::vector<std::string>& notes) const;
  [[nodiscard]] base::Result<std::shared_ptr<const clusters::Cluster>> cluster_of(const Setup& setup,
                                                                                  std::vector<std::string>& notes);
  Library library_;
  std::map<std::string, std::shared_ptr<const clusters::Cluster>> made_clusters_;
  std::map<std::string, std::shared_ptr<const cost::Pricing>> made_prices_;
};

}  // namespace orrery::sim
