#pragma once
/// The results of a probe, and their form as lines of JSON between the worker and the command.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "exec/probe/message_timer.h"
#include "exec/probe/op_timer.h"

namespace orrery::exec {

/// One workload: its operators' times on one rank alone, and the time of a whole pass when all ranks run it at once.
struct WorkloadTimes {
  std::string name;
  std::vector<OpTime> ops;
  double pass_s = 0;           ///< one rank alone
  double pass_together_s = 0;  ///< mean over all ranks at once; 0: not measured
  double pass_slowest_s = 0;   ///< of the slowest of them; 0: not measured
};

struct StreamTime {
  std::string operation;   ///< "copy", "accumulate_into" …
  std::int64_t bytes = 0;  ///< touched by the operation
  int ranks = 1;           ///< running at once
  double bytes_per_s = 0;  ///< sum over the ranks
};

/// A copy between the device's memory and the host's.
struct CopyTime {
  bool to_host = false;
  std::int64_t bytes = 0;
  int ranks = 1;       ///< running at once
  double seconds = 0;  ///< of the slowest of them
};

struct Measured {
  std::string device;  ///< as the backend names it
  std::string backend;
  int ranks = 1, threads = 1;
  bool oversubscribed = false;
  double seconds = 0;  ///< that the measurement took
  std::vector<WorkloadTimes> workloads;
  std::vector<StreamTime> streams;
  std::vector<MessageTime> messages;
  std::vector<CopyTime> copies;
};

[[nodiscard]] nlohmann::ordered_json event_of(const WorkloadTimes& times);
[[nodiscard]] nlohmann::ordered_json event_of(const StreamTime& time);
[[nodiscard]] nlohmann::ordered_json event_of(const MessageTime& time);
[[nodiscard]] nlohmann::ordered_json event_of(const CopyTime& time);
/// Everything but the lists, as the last line: a probe is whole only with it.
[[nodiscard]] nlohmann::ordered_json end_event_of(const Measured& measured);

/// Adds an event's contents; true if it was the last one. Events of other kinds and malformed ones are ignored.
bool take_event(const nlohmann::json& event, Measured& into);

}  // namespace orrery::exec
