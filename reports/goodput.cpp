/// Checkpoints and goodput for people and for scripts.
#include "reports/goodput.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "reports/json.h"

namespace orrery::reports {

using nlohmann::json;

namespace {

constexpr std::size_t kMostRanksListed = 1024;

std::string styled(const std::string& text, const TableStyle& style) {
  return style.unicode ? text : to_ascii(text);
}

std::string every_text(std::int64_t steps, double interval) {
  return steps > 0 ? fmt::format("every {} ({})", count_text(steps, "step"), long_time(interval)) : "never";
}

json steps_or_null(std::int64_t steps) {
  return steps > 0 ? json(steps) : json(nullptr);
}

json shares_json(const cost::Goodput& g) {
  return {{"useful", g.useful}, {"checkpoint", g.checkpoint}, {"lost_work", g.lost}, {"restart", g.restart}};
}

std::string failures_text(const cost::FailureModel& failures) {
  if (failures.period) return fmt::format("A fault every {}", long_time(*failures.period));
  if (std::isinf(failures.mtbf.value)) return "No failure";
  return fmt::format("A failure every {} ({})", long_time(failures.mtbf.value), failures.mtbf.source);
}

}  // namespace

std::string long_time(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 86400;
  if (!std::isfinite(seconds)) return "for ever";
  if (seconds < 2 * kMinute) return time_text(seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.3g} min", seconds / kMinute);
  if (seconds < 2 * kDay) return fmt::format("{:.3g} h", seconds / kHour);
  return estimate_text(seconds / kDay) + " days";
}

json checkpoint_json(const CheckpointForecast& c) {
  json ranks = nullptr;
  if (c.bytes_by_rank.size() <= kMostRanksListed) {
    ranks = json::array();
    for (const double bytes : c.bytes_by_rank) ranks.push_back(whole(bytes));
  }
  return {{"bytes", whole(c.size.bytes)}, {"largest_rank_bytes", whole(c.size.largest_rank)},
          {"bytes_by_rank", ranks},       {"pause_s", c.price.pause()},
          {"copy_s", c.price.copy},       {"commit_s", c.price.commit},
          {"write_s", c.price.write}};
}

std::string checkpoint_text(const CheckpointForecast& c, const TableStyle& style) {
  return wrapped(styled(fmt::format(
                            "A checkpoint is {}, at most {} per rank: it holds up the steps for {} and is written in "
                            "the background in {}.",
                            base::human(base::Bytes{c.size.bytes}), base::human(base::Bytes{c.size.largest_rank}),
                            time_text(c.price.pause()), time_text(c.price.write)),
                        style),
                 style.width) +
         "\n";
}

json goodput_json(const cost::Forecast& f) {
  const cost::ForecastRequest& asked = f.asked;
  json out = {{"goodput", f.now.useful},
              {"shares", shares_json(f.now)},
              {"lost_work_per_failure_s", f.now.lost_per_failure},
              {"checkpoint_every_steps", steps_or_null(f.every)},
              {"checkpoint_every_s", f.now.interval},
              {"restart_time_s", f.system.restart},
              {"restart_source", asked.restart.source},
              {"step_time_s", asked.step},
              {"checkpoint_pause_s", f.system.pause},
              {"checkpoint_persist_s", f.system.persist},
              {"steps", asked.steps},
              {"tokens", whole(static_cast<double>(asked.steps) * asked.tokens_per_step)},
              {"run_time_s", f.run},
              {"run_time_without_failures_s", f.run_without},
              {"failures", f.failures},
              {"tokens_per_s", asked.step > 0 ? asked.tokens_per_step / asked.step * f.now.useful : 0}};
  out["mtbf_s"] = out["failure_source"] = out["failures_per_device_hour"] = out["best"] = nullptr;
  out["young_every_s"] = out["first_order_goodput"] = out["periodic"] = nullptr;
  if (f.periodic) {
    out["periodic"] = {{"period_s", *asked.failures.period},
                       {"regular_goodput", f.periodic->regular},
                       {"steps_per_fault", f.periodic->steps_per_fault},
                       {"checkpoints_per_fault", f.periodic->checkpoints_per_fault}};
    return out;
  }
  out["mtbf_s"] = f.system.mtbf;
  out["failure_source"] = asked.failures.mtbf.source;
  if (asked.failures.per_device_hour > 0) out["failures_per_device_hour"] = asked.failures.per_device_hour;
  out["best"] = {{"checkpoint_every_steps", steps_or_null(f.best_every)},
                 {"checkpoint_every_s", f.best.interval},
                 {"goodput", f.best.useful}};
  out["young_every_s"] = f.young;
  out["first_order_goodput"] = f.first_order;
  return out;
}

std::string goodput_text(const cost::Forecast& f, const TableStyle& style) {
  std::string out =
      failures_text(f.asked.failures) + fmt::format(", {} until steps continue, a checkpoint {}: goodput {}.\n",
                                                    long_time(f.system.restart), every_text(f.every, f.now.interval),
                                                    percent(f.now.useful));
  out += fmt::format("Lost: {} to checkpoints, {} to repeated work ({} per failure), {} to restarts.\n",
                     percent(f.now.checkpoint), percent(f.now.lost), long_time(f.now.lost_per_failure),
                     percent(f.now.restart));
  if (!f.periodic && f.best_every > 0 && f.best_every != f.every)
    out += fmt::format("Best: a checkpoint {}: goodput {}.\n", every_text(f.best_every, f.best.interval),
                       percent(f.best.useful));
  if (f.asked.steps > 0)
    out += fmt::format("{} {} {} with {} failures, {} without.\n", count_text(f.asked.steps, "step"),
                       f.asked.steps == 1 ? "takes" : "take", long_time(f.run),
                       estimate_text(f.failures, kDigitsOfFailures), long_time(f.run_without));
  std::string lines;
  for (std::size_t at = 0; at < out.size();) {
    const std::size_t end = std::min(out.find('\n', at), out.size());
    lines += wrapped(styled(out.substr(at, end - at), style), style.width) + "\n";
    at = end + 1;
  }
  return lines;
}

}  // namespace orrery::reports
