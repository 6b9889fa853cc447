#pragma once
/// Translates a published row into the inputs of a prediction: model, cluster, stack and plan. What a row leaves open
/// is filled by a default, each of which is noted; docs/validation.md lists them.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
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

/// The catalogues that rows may name, provided by the part that opens files.
struct Library {
  std::vector<clusters::Cluster> clusters;  ///< the catalogue, by name; provides each GPU's node
  std::vector<cost::Stack> stacks;
  std::vector<cost::Calibration> calibrations;
  std::optional<cost::Stack> stand_in = {};       ///< for rows whose stack is not in the catalogue (`--stack`)
  bool for_all = false;                           ///< `stand_in` is the stack of every row, whatever it names
  std::optional<clusters::Cluster> machine = {};  ///< the machine of all rows (`--cluster`); else found by device
  std::vector<models::Model> models = {};         ///< the catalogue's models, which rows may name
};

/// A row prepared for prediction.
struct Subject {
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const cost::Pricing> pricing;  ///< for the row's cluster and stack
  plan::Plan plan;
  cost::MemoryQuestion memory;     ///< what the figure counts: as the row says, or else what the stack's users report
  bool stands_in = false;          ///< the stack is another version of the row's software, or only of its kind
  std::vector<std::string> notes;  ///< defaults used: "no node of ... in the catalogue: ... instead"
  /// The same run as it is predicted to fit, where this is not and the row leaves open how it did (made_to_fit.h).
  std::shared_ptr<const Subject> fitting = {};
  std::shared_ptr<const Subject> smallest = {};  ///< the same run with the least memory that the row leaves open
  std::set<std::string> stated = {};             ///< numbers of the stack that the row's own words give
  plan::Software software = {};                  ///< how it was set up, as a job says it
};

/// Translates rows; equal machines share clusters and prices. Not thread-safe (prices memoise).
class Translator {
 public:
  explicit Translator(Library library);
  /// If a row cannot be expressed, the reason is a diagnostic with code V01 (a key of the row), V02 (its machine) or
  /// make_plan's own.
  [[nodiscard]] base::Result<Subject> translate(const Setup& setup);
  /// The row with the shape that its model's name gives it (unstated.h).
  [[nodiscard]] Setup completed(const Setup& row) const;

 private:
  /// What the row leaves open about memory is off.
  [[nodiscard]] base::Result<Subject> translate_as_stated(const Setup& setup);
  /// The same with the largest micro-batch that fits, where it is open; `given` then has it.
  [[nodiscard]] base::Result<Subject> translate_halving(Setup& given);
  /// A row of a recommendation model.
  [[nodiscard]] base::Result<Subject> translate_tables(const Setup& setup);
  /// The prices of a cluster and a stack, made once for equal ones; `own`: the stack with the row's numbers.
  [[nodiscard]] std::shared_ptr<const cost::Pricing> priced(const std::shared_ptr<const clusters::Cluster>& cluster,
                                                            cost::Stack own, const std::string& variant);
  /// The stack of this name; null if there is none.
  [[nodiscard]] const cost::Stack* stack_named(const std::string& name) const;
  /// The stack of the same framework with the nearest year, if names end in one.
  [[nodiscard]] const cost::Stack* stack_of_family(const std::string& name) const;
  /// The stack, and whether it stands in for the row's; null if the library lacks the generic ones.
  [[nodiscard]] std::pair<const cost::Stack*, bool> stack_of(const Setup& setup, std::vector<std::string>& notes) const;
  [[nodiscard]] const cost::Stack* standing_for(const cost::Stack& named, bool stands_in, const Setup& setup,
                                                const clusters::Cluster& cluster,
                                                std::vector<std::string>& notes) const;
  [[nodiscard]] base::Result<std::shared_ptr<const clusters::Cluster>> cluster_of(const Setup& setup,
                                                                                  std::vector<std::string>& notes);
  [[nodiscard]] std::optional<std::int64_t> larger_memory(const Setup& setup, const Subject& subject) const;
  /// The machine at the row's size, with the row's network between nodes, and its devices' memory and power.
  [[nodiscard]] base::Result<std::shared_ptr<const clusters::Cluster>> sized_cluster(const clusters::Cluster& machine,
                                                                                     const Setup& setup,
                                                                                     std::vector<std::string>& notes);
  Library library_;
  std::map<std::string, std::shared_ptr<const clusters::Cluster>> made_clusters_;
  std::map<std::string, std::shared_ptr<const cost::Pricing>> made_prices_;
};

}  // namespace orrery::sim
