#pragma once
/// Options of `collective`.
#include <string>
#include <vector>

namespace orrery::apps {

struct CollectiveOptions {
  std::string cluster;  ///< catalogue name or YAML
  std::string operation = "all_reduce";
  std::string algorithm;           ///< use this algorithm, if it applies
  int nodes = 0;                   ///< 0: all
  int per_node = 0;                ///< devices per node; 0: all
  std::vector<std::string> sizes;  ///< "1MiB"; empty: 1 KiB to 16 GiB
  bool replay = false;             ///< also the algorithms themselves: in closed form, and replayed on the links
  int pieces = 0;                  ///< of `replay`: parts of a message; 0: by its size
  int channels = 1, tasks = 1;     ///< of `replay`
  std::string measured;            ///< a file of measurements to compare with, instead of a cluster
  std::vector<std::string> calibrations;
};

}  // namespace orrery::apps
