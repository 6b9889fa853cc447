#pragma once
/// A line between the supervisor and each rank: a local socket that both ends hold for as long as they live. Either end
/// sees at once that the other is gone, whatever the launcher between them does; ranks say on it what happens, and are
/// asked on it to stop.
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
  /// Connects to the supervisor of the run that the environment names (kRunMark); none when it names none. When the
  /// supervisor is gone, or goes, the process ends at once, and the launcher's process above it. `on_stop` is called on
  /// a thread of its own. Made before anything that may block, such as MPI_Init.
  [[nodiscard]] static std::unique_ptr<Lifeline> connect(const Recorder& recorder, std::function<void()> on_stop);
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  /// A line to the supervisor; it must hold no line end. Never blocks for long: a supervisor that does not read loses
  /// lines that `may_be_lost` at once, and others after a few seconds.
  void say(const std::string& line, bool may_be_lost = false);
  /// This rank, as it is known now. Before MPI_Init the launcher's environment says it.
  void is_rank(int rank);
  /// Why this rank ends the run. `late`: because it waited too long for others, which are the ones to look at.
  void fails(const std::string& why, bool late = false);
  /// The rank has done all it had to, or gives up; its exit code is one of the worker's own.
  void done(int code);
  /// The process ends by a call of exit, with this code.
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

/// What the supervisor knows of one process that has connected.
struct RankLine {
  int rank = -1;  ///< -1: not known
  int process = 0;
  RecorderView recorder{-1};
  std::optional<int> done_with;    ///< the worker's own exit code
  std::optional<int> exited_with;  ///< it called exit, done or not
  std::string failure;             ///< its own sentence
  bool late = false;               ///< which says that it waited too long for others
  bool gone = false;
  std::chrono::steady_clock::time_point failed_at, gone_at;
};

/// The supervisor's end.
class Lifelines {
 public:
  /// Listens for ranks of this mark. Throws Failure(environment) when it cannot.
  explicit Lifelines(const std::string& mark);
  ~Lifelines();
  Lifelines(const Lifelines&) = delete;
  Lifelines& operator=(const Lifelines&) = delete;

  /// What to poll for input.
  [[nodiscard]] std::vector<int> descriptors() const;
  /// Takes in what has come, without waiting; events (lines of JSON) go to `event`.
  void serve(const std::function<void(const std::string&)>& event);
  /// Asks every rank to stop, those that connect later too.
  void stop();
  [[nodiscard]] const std::vector<std::unique_ptr<RankLine>>& ranks() const { return lines_; }

 private:
  struct End;
  void accept_all();
  void take(RankLine& line, End& end, const std::string& text, const std::function<void(const std::string&)>& event);
  int listener_ = -1;
  bool stopping_ = false;
  std::vector<std::unique_ptr<RankLine>> lines_;  ///< in the order in which they connected
  std::vector<std::unique_ptr<End>> ends_;        ///< of the same index
};

}  // namespace orrery::exec
