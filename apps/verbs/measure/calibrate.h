#pragma once
/// `calibrate`: fits coefficients to runs (calibrate.cpp), or a stack to rows (calibrate_rows.cpp).
#include <string>
#include <vector>

#include "apps/verbs/verb.h"

namespace orrery::apps {

struct CalibrateOptions {
  std::vector<std::string> runs;
  std::vector<std::string> held_out;
  std::string output;
  std::vector<std::string> rows;  ///< files of measured rows, instead of runs
  std::string like;               ///< stack of the same family
  std::string cluster;            ///< the cluster of the rows; empty: found by their device
};

/// `calibrate --rows`.
[[nodiscard]] Outcome calibrate_to_rows(const CalibrateOptions& options, const Context& context);

}  // namespace orrery::apps
