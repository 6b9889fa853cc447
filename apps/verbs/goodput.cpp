// Forecasts a run from flags and a plan.
#include "apps/verbs/goodput.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"

namespace orrery::apps {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

/// Parses times from flags and keeps the first error.
class Times {
 public:
  /// Seconds; `otherwise` if the flag is not given. `zero`: whether 0 is allowed.
  double of(const char* option, const std::string& text, double otherwise, bool zero = true) {
    if (text.empty()) return otherwise;
    double value = 0;
    std::string why;
    if (!base::parse_quantity(text, base::UnitKind::seconds, value, why))
      refuse(fmt::format("{} `{}`: {}", option, text, why));
    else if (!std::isfinite(value) || value < 0 || (value == 0 && !zero))
      refuse(fmt::format("{} `{}`: must be {}", option, text, zero ? "0 s or more" : "above 0 s"));
    return value;
  }
  [[nodiscard]] const std::string& wrong() const { return wrong_; }

 private:
  void refuse(std::string message) {
    if (wrong_.empty()) wrong_ = std::move(message);
  }
  std::string wrong_;
};

cost::FailureModel failures_of(const FailureOptions& options, const clusters::Cluster& cluster, Times& times) {
  cost::FailureModel model{{kForever, "none is expected"}, 0, std::nullopt};
  if (!options.period.empty()) {
    model.period = times.of("--fault-period", options.period, 0, false);
  } else if (!options.mtbf.empty()) {
    model.mtbf = {options.mtbf == "inf" ? kForever : times.of("--mtbf", options.mtbf, 0, false), "--mtbf"};
  } else if (options.per_gpu_hour > 0) {
    model = cost::failures_at(options.per_gpu_hour, cluster.size(), "--failures-per-gpu-hour");
  } else if (!options.fleet.empty() || cluster.device().kind != clusters::DeviceKind::cpu) {
    const cost::Fleet& fleet = *cost::fleet_named(options.fleet.empty() ? cost::fleets().front().name : options.fleet);
    model = cost::failures_at(1 / fleet.gpu_hours, cluster.size(), fleet.source);
  }
  return model;
}

}  // namespace

base::Result<RunForecast> forecast_of(const FailureOptions& options, const LoadedPlan& loaded,
                                      const plan::Schedule& schedule, const cost::Pricing& pricing,
                                      double step_time_s) {
  for (const auto& [flag, value] :
       {std::pair{"--failures-per-gpu-hour", options.per_gpu_hour}, {"--run-tokens", options.tokens}})
    if (!(value >= 0)) return base::fail("U0001", fmt::format("{}: not a number", flag), "write it like 2e-5");
  const clusters::Cluster& cluster = loaded.file.cluster;
  RunForecast out;
  reports::CheckpointForecast& checkpoint = out.checkpoint;
  checkpoint.bytes_by_rank = cost::checkpoint_bytes_by_rank(schedule);
  checkpoint.size = cost::checkpoint_size(checkpoint.bytes_by_rank, cluster.devices_per_node);
  checkpoint.price = cost::checkpoint_price(checkpoint.size, pricing);
  if (!options.any() && cluster.device().kind == clusters::DeviceKind::cpu) return out;

  Times times;
  const plan::PlanSpec& spec = loaded.plan.spec();
  cost::ForecastRequest asked;
  asked.failures = failures_of(options, cluster, times);
  asked.restart = cost::usual_restart(cluster.device().kind);
  if (!options.restart_time.empty())
    asked.restart = {times.of("--restart-time", options.restart_time, 0), "--restart-time"};
  asked.step = times.of("--step-time", options.step_time, step_time_s, false);
  asked.checkpoint = checkpoint.price;
  if (!options.checkpoint_pause.empty())
    asked.checkpoint = {times.of("--checkpoint-pause", options.checkpoint_pause, 0), checkpoint.price.write, 0};
  asked.checkpoint.write = times.of("--checkpoint-write", options.checkpoint_write, checkpoint.price.write);
  asked.every = options.checkpoint_every;
  asked.tokens_per_step = static_cast<double>(spec.shape.batch * spec.shape.sequence);
  asked.steps = options.tokens > 0 ? static_cast<std::int64_t>(std::ceil(options.tokens / asked.tokens_per_step))
                                   : loaded.file.job.training.steps;
  if (!times.wrong().empty())
    return base::fail("U0001", times.wrong(), "write times with their units: '30 s', '1.5 min', '3 h'");
  out.forecast = cost::forecast(asked);
  return out;
}

base::Result<bool> add_goodput(const FailureOptions& options, const LoadedPlan& loaded, const plan::Schedule& schedule,
                               const cost::Pricing& pricing, double step_time_s, const reports::TableStyle& style,
                               nlohmann::json& json, std::string& text) {
  const auto run = forecast_of(options, loaded, schedule, pricing, step_time_s);
  if (!run) return tl::unexpected(run.error());
  json["checkpoint"] = reports::checkpoint_json(run->checkpoint);
  json["goodput"] = nullptr;
  text += "\n" + reports::checkpoint_text(run->checkpoint, style);
  if (!run->forecast) return true;
  json["goodput"] = reports::goodput_json(*run->forecast);
  text += reports::goodput_text(*run->forecast, style);
  return true;
}

void add_failures(Flags flags, FailureOptions& o, const char* tokens) {
  Flag ways[] = {
      flags.option("--mtbf", o.mtbf, "Mean time between failures of all devices together").value("'3.1 h'|inf"),
      flags.option("--failures-per-gpu-hour", o.per_gpu_hour, "Of one device").range(1e-12, 1e6).value("RATE"),
      flags.option("--fleet", o.fleet, "Failure rate of a published fleet: good (default for GPUs), young, pessimistic")
          .one_of({"good", "young", "pessimistic"})
          .value("NAME"),
      flags.option("--fault-period", o.period, "Instead, a fault at this fixed interval").value("'30 s'")};
  for (Flag& one : ways)
    for (const Flag& other : ways)
      if (&one != &other) one.excludes(other);
  flags.option("--restart-time", o.restart_time, "From a failure until steps continue").value("'11 min'");
  const Flag every =
      flags.option("--checkpoint-every", o.checkpoint_every, "Steps between checkpoints; default: the best")
          .range(std::int64_t{1}, std::int64_t{1} << 40)
          .value("N");
  ways[std::size(ways) - 1].needs(every);
  flags.option("--step-time", o.step_time, "Of a step, in place of the predicted one").value("'150 ms'");
  flags.option("--checkpoint-pause", o.checkpoint_pause, "In place of the predicted one").value("'80 ms'");
  flags.option("--checkpoint-write", o.checkpoint_write, "In place of the predicted one").value("'2 s'");
  flags.option(tokens, o.tokens, "Tokens of the run; default: those of the job's steps").count().value("300B|300e9");
}

}  // namespace orrery::apps
