// Finds what would make a job feasible.
#include "apps/verbs/plan/plan_advice.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <thread>

#include "apps/interrupt.h"
#include "clusters/read.h"
#include "models/layers/counts.h"
#include "sim/search/search.h"

namespace orrery::apps {
namespace {

constexpr const char* kMemory = "memory: does not fit the device";  // sim/search/search.cpp
constexpr const char* kTooLong = "P10 ";                            // plan/spec/rules.h: longer than the positions
constexpr int kMostTimes = 64;                                      // the number of devices
constexpr int kTries = 4;                                           // sizes to search

/// The reason that ruled out most candidates.
std::string most_frequent(const cost::SearchResult& result) {
  std::string out;
  std::int64_t most = 0;
  for (const auto& [reason, count] : result.rejected)
    if (count > most) most = count, out = reason;
  return out;
}

/// The key that a hint names ("leaving plan.tensor free …"), else that of the most frequent reason.
std::string key_of(const cost::SearchResult& result) {
  if (most_frequent(result).starts_with(kTooLong)) return "sequence";
  constexpr std::string_view kFreed = "leaving ";
  for (const std::string& hint : result.nearest)
    if (const std::size_t at = hint.find("leaving plan."); at != hint.npos) {
      const std::size_t begin = at + kFreed.size();
      return hint.substr(begin, hint.find(' ', begin) - begin);
    }
  if (result.rejected.empty()) return "plan";
  return most_frequent(result) == kMemory ? "cluster" : "batch";
}

}  // namespace

int add_devices_that_do(cost::SearchResult& result, const LoadedJob& job,
                        const std::vector<cost::Calibration>& calibrations, const cost::Intervals& intervals,
                        double memory_fraction, Progress& progress) {
  if (result.rejected.count(kMemory) == 0) return 0;
  sim::SearchOptions options;
  options.top = 1;
  options.replay = 1;
  options.memory_fraction = memory_fraction;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.stop = &Interrupt::requested();
  // Weights and gradients in 16 bits and one moment are the least that a step needs, however it is split.
  constexpr double kLeastBytes = 6;
  const double least = kLeastBytes * static_cast<double>(models::parameters(*job.model)) /
                       (job.cluster->device().memory.value * job.cluster->size());
  int times = 2;
  while (times < least && times < kMostTimes) times *= 2;
  for (int tries = 0; tries < kTries && times <= kMostTimes; ++tries, times *= 2) {
    if (Interrupt::requested()) return 0;
    auto larger = clusters::resized(*job.cluster, times * job.cluster->size());
    if (!larger) return 0;
    progress.line(fmt::format("trying {} devices", larger->size()));
    const auto cluster = std::make_shared<const clusters::Cluster>(std::move(*larger));
    const cost::SearchResult found =
        sim::search(job.model, cluster, job.job, cost::Prices(cluster, job.stacks, calibrations, intervals), options);
    if (found.plans.empty()) continue;
    result.nearest.push_back(fmt::format("{} such devices would do, with {} (`--gpus {}` plans for them)",
                                         cluster->size(), plan::describe(found.plans.front().spec), cluster->size()));
    return cluster->size();
  }
  return 0;
}

base::Diagnostic nothing_fits(const cost::SearchResult& result, const LoadedJob& job) {
  std::string help, why;
  for (const std::string& way : result.nearest) help += (help.empty() ? "" : "; ") + way;
  for (const auto& [reason, count] : result.rejected)
    why += fmt::format("{}{} {}", why.empty() ? "" : ", ", count, reason);
  if (!result.obstacle.empty())
    why = result.candidates == 0 ? result.obstacle : fmt::format("{} ({})", why, result.obstacle);
  std::string none = "the job leaves no plan";
  if (result.candidates > 0) none = fmt::format("none of {} candidate plans is feasible", result.candidates);
  if (result.interrupted) none = "no feasible plan was found before the search was stopped";
  return job.at(key_of(result),
                base::Diagnostic{
                    base::Severity::error, "P90", {}, why.empty() ? none : fmt::format("{}: {}", none, why), help, {}});
}

}  // namespace orrery::apps
