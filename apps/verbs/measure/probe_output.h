#pragma once
/// Output of `probe`, for scripts and for people.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cost/results.h"
#include "exec/probe/description.h"
#include "exec/probe/gpus.h"
#include "exec/probe/measured.h"
#include "reports/tables/table.h"

namespace orrery::apps {

[[nodiscard]] nlohmann::ordered_json machine_json(const exec::MachineDescription& machine, const exec::GpuReport& gpus);
[[nodiscard]] std::string machine_text(const exec::MachineDescription& machine, const exec::GpuReport& gpus,
                                       const reports::TableStyle& style);

/// Measured curves, and the coefficients fitted to them.
[[nodiscard]] nlohmann::ordered_json measured_json(const exec::Measured& measured, const cost::FitResult& fit);
[[nodiscard]] std::string measured_text(const exec::Measured& measured, const cost::FitResult& fit,
                                        const reports::TableStyle& style);

}  // namespace orrery::apps
