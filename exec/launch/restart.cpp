// Decides when to start again, and when to give up.
#include "exec/launch/restart.h"

#include <fmt/format.h>

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace orrery::exec {
namespace {

using Clock = std::chrono::steady_clock;

bool may_help(const RunOutcome& outcome) {
  const bool asked_wrongly = outcome.worker_code > 1;
  return (outcome.end == RunEnd::failed || outcome.end == RunEnd::timed_out) && !asked_wrongly;
}

/// False if a stop request cut it short.
bool pause(std::chrono::milliseconds length, const std::atomic<bool>* stop) {
  constexpr std::chrono::milliseconds kLook{20};
  const auto end = Clock::now() + length;
  while (Clock::now() < end) {
    if (stop && stop->load()) return false;
    std::this_thread::sleep_for(std::min<Clock::duration>(kLook, end - Clock::now()));
  }
  return true;
}

/// Writes a line of restarts.jsonl: what this start cost the run. Only for a start that trained: until then the
/// directory is as it was found.
void record(const std::filesystem::path& run, const RunOutcome& failed, double ran_s, double pause_s) {
  if (!failed.trained || !std::filesystem::is_directory(run)) return;
  const nlohmann::json line = {{"reason", failed.reason},
                               {"from_step", failed.resumed_from},
                               {"checkpoint_step", failed.checkpoint.value_or(failed.resumed_from)},
                               {"ran_s", ran_s},
                               {"pause_s", pause_s}};
  // The disk may be what failed: the run continues without the line.
  std::ofstream(run / "restarts.jsonl", std::ios::app)
      << line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) << std::endl;
}

}  // namespace

RestartedOutcome supervise_with_restarts(TrainCommand command, const RestartPolicy& policy, const RunWatchers& watchers,
                                         const std::atomic<bool>* stop) {
  RestartedOutcome out;
  int in_vain = 0;
  for (;;) {
    const Clock::time_point began = Clock::now();
    out.last = supervise(command, watchers, stop);
    const double ran_s = std::chrono::duration<double>(Clock::now() - began).count();
    ::malloc_trim(0);  // returns memory of failure reports: a run may be restarted for months
    if (stop && stop->load()) return out;
    if (!may_help(out.last) || static_cast<int>(out.failures.size()) >= policy.most) return out;
    in_vain = out.last.checkpoint ? 1 : in_vain + 1;
    if (in_vain >= policy.without_progress && !out.last.checkpoint) {
      out.last.reason += fmt::format("; not restarted: {} starts in a row made no new checkpoint", in_vain);
      return out;
    }
    // Until a start reaches its first step, the directory is as it was found, and the original request still applies.
    if (out.last.trained) command.resume = true;
    out.failures.push_back(out.last.reason);
    const auto doubled = policy.first_pause * (1 << std::min(in_vain - 1, 16));
    const auto wait = std::min<std::chrono::milliseconds>(doubled, policy.longest_pause);
    record(command.run, out.last, ran_s, std::chrono::duration<double>(wait).count());
    if (watchers.message)
      watchers.message(fmt::format("{}\nrestart {} of {} in {:.0f} s", out.last.reason, out.failures.size(),
                                   policy.most, std::chrono::duration<double>(wait).count()));
    if (!pause(wait, stop)) {
      out.last.end = RunEnd::stopped;
      out.last.reason = "stopped between two starts; --resume continues from the newest checkpoint";
      return out;
    }
  }
}

}  // namespace orrery::exec
