#pragma once
/// A rank's flight recorder: its current training step, what it waits for, and its last messages. It is a nameless file
/// (memfd) that the supervisor maps too, so that it can still be read after the rank was killed or stopped.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::exec {

struct RecorderPage;

enum class RankPhase : std::int32_t { starting, loading, training, saving, ending };
[[nodiscard]] const char* name_of(RankPhase phase);

/// Written by one rank. All calls are cheap except `waits_for`, which is called once in a long wait.
class Recorder {
 public:
  Recorder();
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  /// For the supervisor to map; -1 if there is no such file, and so no other reader.
  [[nodiscard]] int descriptor() const { return file_; }

  void enter(RankPhase phase);
  void begin_step(std::int64_t step);  ///< training step, from 1
  /// Registers a kind of message; its number stands for it from now on.
  [[nodiscard]] int name_message(std::string_view what);
  void began(int message, std::int64_t micro_batch);
  void ended(int message, std::int64_t micro_batch);
  void waits_for(std::string_view what);
  void waits_no_more();
  /// Adds to the nanoseconds that this rank has waited for others.
  void add_waited(std::int64_t nanoseconds) { waited_ += nanoseconds; }
  [[nodiscard]] std::int64_t waited() const { return waited_; }

 private:
  void note(int message, std::int64_t micro_batch, bool ended);
  int file_ = -1;
  RecorderPage* page_ = nullptr;
  std::int64_t waited_ = 0;
};

/// A recorder's contents, read from outside.
struct RecordedMessage {
  std::string what;
  std::int64_t step = 0, micro_batch = 0;
  double begun_s_ago = 0;
  bool ended = false;
};
struct Recorded {
  RankPhase phase = RankPhase::starting;
  std::int64_t step = 0;              ///< training step, from 1; 0: none yet
  std::string waiting_for;            ///< empty: for nothing
  double waiting_s = 0;               ///< how long it has been waiting
  double in_step_s = 0;               ///< since the step began
  std::vector<RecordedMessage> last;  ///< oldest first
};

/// The supervisor's view of another process's recorder. Owns the descriptor.
class RecorderView {
 public:
  explicit RecorderView(int descriptor);
  ~RecorderView();
  RecorderView(RecorderView&& other) noexcept;
  RecorderView& operator=(RecorderView&& other) noexcept;
  [[nodiscard]] bool readable() const { return page_ != nullptr; }
  /// `most`: how many of the newest messages to return. The answer is well-formed whatever the file holds.
  [[nodiscard]] Recorded read(std::size_t most) const;

 private:
  const RecorderPage* page_ = nullptr;
};

}  // namespace orrery::exec
