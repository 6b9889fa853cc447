#pragma once
/// What checkpoints cost a run, and how much of it failures leave as useful, as text and as JSON.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost/run/goodput_forecast.h"
#include "reports/tables/table.h"

namespace orrery::reports {

/// A plan's checkpoints as predicted.
struct CheckpointForecast {
  std::vector<double> bytes_by_rank;
  cost::CheckpointSize size;
  cost::CheckpointPrice price;
};
[[nodiscard]] nlohmann::json checkpoint_json(const CheckpointForecast& checkpoint);
[[nodiscard]] std::string checkpoint_text(const CheckpointForecast& checkpoint, const TableStyle& style);

/// Of numbers of failures, whose rates differ between fleets by factors.
constexpr int kDigitsOfFailures = 2;
/// Hours and days as such; "for ever" if infinite.
[[nodiscard]] std::string long_time(double seconds);
[[nodiscard]] nlohmann::json goodput_json(const cost::Forecast& forecast);
[[nodiscard]] std::string goodput_text(const cost::Forecast& forecast, const TableStyle& style);

}  // namespace orrery::reports
