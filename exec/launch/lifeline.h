#pragma once
/// A line between the supervisor and each rank: a local socket that both hold for as long as they live. Each end sees
/// at once when the other is gone, whatever the launcher between them does. Ranks use it to report events, and the
/// supervisor to ask them to stop.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exec/engine/recorder.h"

namespace orrery::exec {

/// The rank's end.
class Lifeline {
 public:
  /// Connects to the supervisor of the run that the environment names (kRunMark); null if it names none. If the
  /// supervisor is gone, now or later, the process ends at once, and with it the launcher's process above it. `on_stop`
  /// is called on a thread of its own. Connect before anything that may block, such as MPI_Init.
  [[nodiscard]] static std::unique_ptr<Lifeline> connect(const Recorder& recorder, std::function<void()> on_stop);
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  /// Sends a line to the supervisor; it must contain no line end. Never blocks for long: if the supervisor does not
  /// read, lines that `may_be_lost` are dropped at once, and others after a few seconds.
  void say(const std::string& line, bool may_be_lost = false);
  /// Sets this process's rank. Before MPI_Init it is taken from the launcher's environment.
  void is_rank(int rank);
  /// Why this rank ends the run. `late`: it waited too long for other ranks, which are to blame.
  void fails(const std::string& why, bool late = false);
  /// The rank has finished or gives up; the exit code is one of the worker's own.
  void done(int code);
  /// The process calls exit with this code.
  void exits(int code);

 private:
  Lifeline(int socket, std::function<void()> on_stop);
  void listen();
  int socket_;
  int launcher_;  ///< the process that started this one
  std::function<void()> on_stop_;
  std::atomic<bool> ending_{false};
  std::mutex writing_;
  std::thread listener_;
};

/// What the supervisor knows about one process that has connected.
struct RankLine {
  std::optional<int> rank;  ///< none: unknown
  int process = 0;
  RecorderView recorder{-1};
  std::optional<int> done_with;    ///< the worker's own exit code
  std::optional<int> exited_with;  ///< set if it called exit, whether done or not
  std::string failure;             ///< its own sentence about the failure
  bool late = false;               ///< the failure is that it waited too long for others
  bool gone = false;
  std::chrono::steady_clock::time_point failed_at, gone_at;
};

/// The supervisor's end.
class Lifelines {
 public:
  /// Listens for ranks with this mark. Throws Failure(environment) if it cannot.
  explicit Lifelines(const std::string& mark);
  ~Lifelines();
  Lifelines(const Lifelines&) = delete;
  Lifelines& operator=(const Lifelines&) = delete;

  /// Descriptors to poll for input.
  [[nodiscard]] std::vector<int> descriptors() const;
  /// Handles what has arrived, without waiting; passes events (lines of JSON) to `event`.
  void serve(const std::function<void(const std::string&)>& event);
  /// Asks every rank to stop, including those that connect later.
  void stop();
  [[nodiscard]] const std::vector<std::unique_ptr<RankLine>>& ranks() const { return lines_; }

 private:
  struct End;
  void accept_all();
  void take(RankLine& line, End& end, const std::string& text, const std::function<void(const std::string&)>& event);
  int listener_ = -1;
  bool stopping_ = false;
  std::vector<std::unique_ptr<RankLine>> lines_;  ///< in the order in which they connected
  std::vector<std::unique_ptr<End>> ends_;        ///< by the same index
};

}  // namespace orrery::exec
