#pragma once
/// Compares what a run needs with what this machine has, before anything is launched.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/inputs.h"
#include "reports/tables/table.h"

namespace orrery::apps {

struct Need {
  std::string what;          ///< "devices", "cores", "memory", "disk", "driver", "worker"
  std::string needs, found;  ///< for people
  enum class Verdict { ok, poor, missing } verdict = Verdict::ok;
};

struct Preflight {
  std::vector<Need> needs;
  base::Diagnostics findings;  ///< R0010 to R0015
  [[nodiscard]] bool missing() const;
};

/// `run` is the directory to be written. `oversubscribe` allows what would be slow or might run out of memory.
[[nodiscard]] Preflight preflight(const LoadedPlan& loaded, const std::string& file, const std::string& run,
                                  bool oversubscribe);

[[nodiscard]] reports::Table preflight_table(const Preflight& found);
[[nodiscard]] nlohmann::json preflight_json(const Preflight& found);

}  // namespace orrery::apps
