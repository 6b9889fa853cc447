#pragma once
/// From a published row to what a prediction needs: model, cluster, stack and plan. What a row leaves open is filled by
/// a default, each of which is noted; docs/validation.md lists them.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/parameters/stack.h"
#include "cost/prices/pricing.h"
#include "cost/prices/stacks.h"
#include "models/model.h"
#include "plan/spec/plan.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// What rows may name, given by who opens files.
struct Library {
  std::vector<clusters::Cluster> clusters;  ///< the catalogue, by name; each GPU's node is found here
  std::vector<cost::Stack> stacks;
  std::vector<cost::Calibration> calibrations;
  std::optional<cost::Stack> stand_in = {};       ///< for rows whose stack the catalogue lacks (`--stack`)
  std::optional<clusters::Cluster> machine = {};  ///< what all rows ran on (`--cluster`); else found by their device
  std::vector<models::Model> models = {};         ///< the catalogue's, that rows may name
};

/// The stacks that stand for software that nobody named: eager PyTorch, and what a compiler has fused.
inline constexpr const char* kGenericEager = "generic-eager";
inline constexpr const char* kGenericCompiled = "generic-compiled";
inline constexpr const char* kGenericRecommender = "generic-recommender";  ///< of whatever trains a DLRM

/// Whether what a row says of its software (`stack`, `framework`) names a compiler.
[[nodiscard]] bool is_compiled(const Setup& setup);

/// A row made ready for prediction.
struct Subject {
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const cost::Pricing> pricing;  ///< of the row's cluster and stack
  plan::Plan plan;
  cost::MemoryQuestion memory;     ///< what the figure counts: as the row says, else what the stack's users read
  bool stands_in = false;          ///< the stack is another version of the software than the row's, or its kind alone
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
  /// A row of a recommendation model.
  [[nodiscard]] base::Result<Subject> translate_tables(const Setup& setup);
  /// The prices of a cluster and a stack, made once for equal ones; of a stack whose numbers the row changes, `own`.
  [[nodiscard]] std::shared_ptr<const cost::Pricing> priced(const std::shared_ptr<const clusters::Cluster>& cluster,
                                                            cost::Stack own, const std::string& variant);
  /// The stack of this name; nothing where there is none.
  [[nodiscard]] const cost::Stack* stack_named(const std::string& name) const;
  /// The same framework's stack of the nearest year, where names end in one.
  [[nodiscard]] const cost::Stack* stack_of_family(const std::string& name) const;
  /// The stack, and whether it stands in for the row's; none in a library that lacks the generic ones.
  [[nodiscard]] std::pair<const cost::Stack*, bool> stack_of(const Setup& setup, std::vector<std::string>& notes) const;
  [[nodiscard]] const cost::Stack* standing_for(const cost::Stack& named, bool stands_in, const Setup& setup,
                                                const clusters::Cluster& cluster,
                                                std::vector<std::string>& notes) const;
  [[nodiscard]] base::Result<std::shared_ptr<const clusters::Cluster>> cluster_of(const Setup& setup,
                                                                                  std::vector<std::string>& notes);
  /// The machine at the row's size, with the row's network between nodes.
  [[nodiscard]] base::Result<std::shared_ptr<const clusters::Cluster>> sized_cluster(const clusters::Cluster& machine,
                                                                                     const Setup& setup);
  Library library_;
  std::map<std::string, std::shared_ptr<const clusters::Cluster>> made_clusters_;
  std::map<std::string, std::shared_ptr<const cost::Pricing>> made_prices_;
};

}  // namespace orrery::sim
