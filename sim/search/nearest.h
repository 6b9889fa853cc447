#pragma once
/// What a job whose space has no plan that fits may be told: what would make one possible. Private to sim/search/.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cost/prices/room.h"
#include "plan/spec/job.h"
#include "sim/search/estimators.h"

namespace orrery::sim {

/// The plan that exceeds a capacity by the least.
struct NearMiss {
  double memory = std::numeric_limits<double>::infinity();
  std::size_t index = 0;  ///< in the space; ties go to the first
  plan::PlanSpec spec;
  void consider(double bytes, std::size_t at, const plan::PlanSpec& one) {
    if (bytes < memory || (bytes == memory && at < index)) *this = {bytes, at, one};
  }
  void consider(const NearMiss& other) { consider(other.memory, other.index, other.spec); }
};

/// Plans that exceed one capacity alone.
struct NearMisses {
  NearMiss device, host, nvme;  ///< bytes of a device; of a node's host memory; of its drives
  NearMiss both;                ///< bytes of a device, of plans that exceed another capacity as well
  void consider(const NearMisses& other) {
    device.consider(other.device);
    both.consider(other.both);
    host.consider(other.host);
    nvme.consider(other.nvme);
  }
};

/// The reason with the highest count; the first of equals.
[[nodiscard]] std::optional<std::string> most_frequent(const std::map<std::string, std::int64_t>& rejected);

/// Sentences that say, by trying it, which change of the job lets some plan fit into `capacity` bytes of a device; else
/// what stands most in the way. `asked`: the room of plans that fit as surely as the job requires. `rejected`: how many
/// points of the space, by reason.
[[nodiscard]] std::vector<std::string> nearest(const Model& model, const Cluster& cluster, const plan::Job& job,
                                               const cost::Prices& prices, double capacity, const cost::Room& asked,
                                               const NearMisses& misses,
                                               const std::map<std::string, std::int64_t>& rejected);

}  // namespace orrery::sim
