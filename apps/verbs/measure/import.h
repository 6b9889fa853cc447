#pragma once
/// `import`: cluster files from dumps (import.cpp), calibration files from nccl-tests (import_nccl_tests.cpp).
#include <string>
#include <vector>

#include "apps/verbs/verb.h"

namespace orrery::apps {

struct ImportOptions {
  std::vector<std::string> files;
  std::string format;         ///< of all files; empty: detected by content
  std::string device;         ///< catalogue name of the GPU
  std::string node;           ///< catalogue cluster to take the node from
  std::string hosts;          ///< of a fabric: names to take, with * as wildcard
  std::string nic_bandwidth;  ///< with its unit
  int nodes = 0;              ///< 0: as the dumps say
  std::string cluster;        ///< on which nccl-tests' logs were measured
  std::string output;         ///< cluster file; empty: stdout
};

/// Turns logs of nccl-tests into a calibration file; `texts` are those of options.files.
[[nodiscard]] Outcome import_nccl_tests(const ImportOptions& options, const std::vector<std::string>& texts,
                                        const Context& context);

}  // namespace orrery::apps
