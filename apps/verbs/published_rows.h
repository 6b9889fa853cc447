#pragma once
/// Rows of measured runs and all that they may name, for the verbs that read them.
#include <string>
#include <vector>

#include "apps/catalog.h"
#include "base/result.h"
#include "sim/validate/rows.h"
#include "sim/validate/translate.h"

namespace orrery::apps {

/// The catalogue's clusters, stacks and calibrations. `stack`: for rows whose stack is not among them; `cluster`: what
/// all rows ran on; empty: none. What cannot be read of the catalogue is a bug of the catalogue, and said.
[[nodiscard]] base::Result<sim::Library> load_library(const Catalog& catalog,
                                                      const std::vector<std::string>& calibrations,
                                                      const std::string& stack, const std::string& cluster);

/// Rows of these files, all errors at once; without files those that the project carries.
[[nodiscard]] base::Result<std::vector<sim::Row>> load_rows(const Catalog& catalog,
                                                            const std::vector<std::string>& files, sim::Origin origin);

}  // namespace orrery::apps
