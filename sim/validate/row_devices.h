#pragma once
/// What a row says of its devices, where that is not what the catalogue's have.
#include <optional>
#include <string>
#include <vector>

#include "clusters/cluster.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// Gives the devices the memory that the row states, where the catalogue has them in no such size ("A100 40GB PCIe").
/// More than twice as much is something else.
void take_memory(const Setup& s, clusters::Cluster& machine, std::vector<std::string>& notes);

/// Gives the devices the power that the row says they may draw. Why it cannot be, if it cannot.
[[nodiscard]] std::optional<std::string> take_power(const Setup& s, clusters::Cluster& machine,
                                                    std::vector<std::string>& notes);

}  // namespace orrery::sim
