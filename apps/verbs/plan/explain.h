#pragma once
/// `explain`: of a plan (explain.cpp), or of a cluster (explain_cluster.cpp).
#include <string>
#include <vector>

#include "apps/verbs/verb.h"

namespace orrery::apps {

struct ExplainOptions {
  std::string plan;
  std::string versus;  ///< a second plan file
  std::vector<std::string> calibrations;
  std::string cluster;    ///< instead of a plan: a cluster by name or file
  bool clusters = false;  ///< or the catalogue
};

/// `explain --cluster` and `--clusters`.
[[nodiscard]] Outcome explain_cluster(const ExplainOptions& options, const Context& context);

}  // namespace orrery::apps
