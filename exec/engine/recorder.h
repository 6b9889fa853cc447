#pragma once
/// A rank's flight recorder: which training step it is in, what it waits for, and its last messages. It lies in a file
/// without a name (memfd) that the supervisor maps too, so that a rank that was killed or stopped can still be read.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::exec {

struct RecorderPage;

enum class RankPhase : std::int32_t { starting, loading, training, saving, ending };
[[nodiscard]] const char* name_of(RankPhase phase);

/// Written by one rank. All calls are cheap but `waits_for`, which comes once in a long wait.
class Recorder {
 public:
  Recorder();
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  /// For the supervisor to map; -1 where there is no such file: then nobody else reads it.
  [[nodiscard]] int descriptor() const { return file_; }

  void enter(RankPhase phase);
  void begin_step(std::int64_t step);  ///< training step, from 1
  /// Remembers a kind of message by what it is; the number stands for it from now on.
  [[nodiscard]] int name_message(std::string_view what);
  void began(int message, std::int64_t micro_batch);
  void ended(int message, std::int64_t micro_batch);
  void waits_for(std::string_view what);
  void waits_no_more();
  /// Nanoseconds that this rank has waited for others, so far.
  void add_waited(std::int64_t nanoseconds) { waited_ += nanoseconds; }
  [[nodiscard]] std::int64_t waited() const { return waited_; }

 private:
  void note(int message, std::int64_t micro_batch, bool ended);
  int file_ = -1;
  RecorderPage* page_ = nullptr;
  std::int64_t waited_ = 0;
};

/// What a recorder says, read from the outside.
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
  double waiting_s = 0;               ///< for so long
  double in_step_s = 0;               ///< since the step began
  std::vector<RecordedMessage> last;  ///< oldest first
};

/// The supervisor's view of another process' recorder. Owns the descriptor.
class RecorderView {
 public:
  explicit RecorderView(int descriptor);
  ~RecorderView();
  RecorderView(RecorderView&& other) noexcept;
  RecorderView& operator=(RecorderView&& other) noexcept;
  [[nodiscard]] bool readable() const { return page_ != nullptr; }
  /// `most`: newest messages to return. Whatever the file holds, the answer is well-formed.
  [[nodiscard]] Recorded read(std::size_t most) const;

 private:
  const RecorderPage* page_ = nullptr;
};

}  // namespace orrery::exec
