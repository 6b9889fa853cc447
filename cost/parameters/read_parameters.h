#pragma once
/// Reads the `parameters:` map that calibration and stack files share.
#include <map>
#include <string>

#include "base/yaml.h"
#include "cost/parameters/calibration.h"

namespace orrery::cost {

/// Entries `NAME: {value: 12 us, source: "…"}`; names must be known and begin with `prefix`.
[[nodiscard]] std::map<std::string, Parameter> read_parameters(const base::Cursor& at, const std::string& prefix);

}  // namespace orrery::cost
