// The command's side of a measurement: a child process and its events.
#include "exec/probe/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "base/json_tree.h"
#include "exec/events.h"
#include "exec/failure.h"
#include "exec/launch/child.h"

namespace orrery::exec {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPoll{50};
constexpr std::chrono::seconds kGrace{3};  ///< from SIGTERM to SIGKILL
constexpr std::size_t kTail = 4096;

std::vector<std::string> words_of(const MeasureCommand& c) {
  std::vector<std::string> out = {c.launcher, "-n",       std::to_string(c.ranks),           c.worker.string(),
                                  "--probe",  "--budget", fmt::format("{:.0f}", c.budget_s), "--backend",
                                  c.backend};
  const auto add = [&](const char* flag, std::int64_t value) {
    if (value <= 0) return;
    out.emplace_back(flag);
    out.push_back(std::to_string(value));
  };
  add("--most-bytes", c.most_bytes);
  add("--stream-bytes", c.stream_bytes);
  return out;
}

}  // namespace

MeasureOutcome read_measurement(std::string_view text) {
  MeasureOutcome outcome;
  bool whole = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const nlohmann::json event = base::parse_json_line(text.substr(begin, end - begin));
    if (event.is_object()) whole = take_event(event, outcome.measured) || whole;
    begin = end + 1;
  }
  if (whole)
    outcome.end = MeasureEnd::completed;
  else
    outcome.reason = "the measurement is incomplete: its last event is missing";
  return outcome;
}

MeasureOutcome measure(const MeasureCommand& command, const std::function<void(const std::string&, double)>& progress,
                       const std::atomic<bool>* stop) {
  MeasureOutcome outcome;
  bool whole = false;
  Clock::time_point heard = Clock::now();
  const auto error_line = [&](const std::string& line) {
    outcome.error_tail += line + "\n";
    if (outcome.error_tail.size() > kTail) outcome.error_tail.erase(0, outcome.error_tail.size() - kTail);
  };
  const auto out_line = [&](const std::string& line) {
    const nlohmann::json event = event_of_line(line);
    if (event.is_null()) return error_line(line);
    heard = Clock::now();
    whole = take_event(event, outcome.measured) || whole;
    if (progress && event["event"] == "progress") {
      const auto what = event.find("what"), share = event.find("share");
      progress(what != event.end() && what->is_string() ? what->get<std::string>() : "",
               share != event.end() && share->is_number() ? share->get<double>() : 0.0);
    }
  };
  try {
    if (!std::filesystem::exists(command.worker))
      throw Failure(
          fmt::format("the worker {} does not exist: building it needs MPI and a BLAS", command.worker.string()),
          FailureKind::environment);
    Child child(words_of(command));
    std::optional<Clock::time_point> asked;
    bool silent = false;
    while (child.pump(kPoll, out_line, error_line)) {
      if (!asked && stop && stop->load()) {
        asked = Clock::now();
        child.signal(SIGTERM);  // mpiexec passes it on
      }
      silent = silent || Clock::now() - heard > command.silence;
      if (silent || (asked && Clock::now() - *asked > kGrace)) child.kill_group();
    }
    if (asked) {
      outcome.end = MeasureEnd::stopped;
      outcome.reason = "stopped before everything was measured";
    } else if (whole && child.exit_code() == 0) {
      outcome.end = MeasureEnd::completed;
    } else {
      outcome.reason = silent ? fmt::format("the ranks said nothing for {} s", command.silence.count())
                              : fmt::format("the ranks ended before everything was measured (mpiexec returned {})",
                                            child.exit_code());
    }
  } catch (const Failure& failure) {
    outcome.end = MeasureEnd::not_started;
    outcome.reason = failure.what();
  }
  return outcome;
}

}  // namespace orrery::exec
