#pragma once
/// Rows of measured runs and everything they may name, for the verbs that read them.
#include <string>
#include <vector>

#include "apps/catalog.h"
#include "base/result.h"
#include "sim/validate/rows.h"
#include "sim/validate/translate.h"

namespace orrery::apps {

/// The catalogue's clusters, stacks and calibrations. `stack`: for rows whose stack is not in the catalogue; `cluster`:
/// the one on which all rows ran; empty: none. Reports what cannot be read in the catalogue, which is a bug of the
/// catalogue.
[[nodiscard]] base::Result<sim::Library> load_library(const Catalog& catalog,
                                                      const std::vector<std::string>& calibrations,
                                                      const std::string& stack, const std::string& cluster);

/// Rows of these files, with all errors at once; without files, the rows that come with the project. `warnings`: what
/// of one's own rows is not read.
[[nodiscard]] base::Result<std::vector<sim::Row>> load_rows(const Catalog& catalog,
                                                            const std::vector<std::string>& files, sim::Origin origin,
                                                            base::Diagnostics* warnings = nullptr);

}  // namespace orrery::apps
