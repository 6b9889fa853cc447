#pragma once
/// `import`: cluster files from dumps (import.cpp), calibration files from nccl-tests (import_nccl_tests.cpp), plans
/// and jobs from other frameworks' files (import_run.cpp).
#include <optional>
#include <string>
#include <vector>

#include "apps/verbs/verb.h"

namespace orrery::apps {

struct ImportOptions {
  std::vector<std::string> files;
  std::string format;                 ///< of all files; empty: detected by content
  std::string device;                 ///< catalogue name of the GPU
  std::string node;                   ///< catalogue cluster to take the node from
  std::string hosts;                  ///< of a fabric: names to take, with * as wildcard
  std::string nic_bandwidth;          ///< with its unit
  int nodes = 0;                      ///< 0: as the dumps say
  std::string cluster;                ///< on which nccl-tests' logs were measured; of a run, on which it runs
  std::string model;                  ///< of a run, instead of what its files say
  std::string as;                     ///< of a run: "plan" or "job"
  int ranks = 0;                      ///< of a run; 0: as its files say
  std::vector<std::string> settings;  ///< of a run: variables of its script, and settings
  std::string output;                 ///< empty: stdout
};

/// Turns logs of nccl-tests into a calibration file; `texts` are those of options.files.
[[nodiscard]] Outcome import_nccl_tests(const ImportOptions& options, const std::vector<std::string>& texts,
                                        const Context& context);

/// Turns what a run is launched with into a plan or a job. None: `texts`, those of options.files, are not such files.
[[nodiscard]] std::optional<Outcome> import_run(const ImportOptions& options, const std::vector<std::string>& texts,
                                                const Context& context);
/// Whether the first file is one of those, by its content.
[[nodiscard]] bool is_run(const ImportOptions& options);
[[nodiscard]] std::vector<OutputFile> run_outputs(const ImportOptions& options);

}  // namespace orrery::apps
