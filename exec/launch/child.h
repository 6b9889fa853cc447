#pragma once
/// A child process whose two outputs are read line by line while it runs.
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace orrery::exec {

class Child {
 public:
  /// Starts `arguments` (the first is the program, looked up on PATH) with an empty standard input, in its own process
  /// group; it is killed when this process dies. `environment`: NAME=VALUE, added to this process's own. Throws
  /// Failure(environment) if it cannot be started.
  explicit Child(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});
  ~Child();  ///< kills what is still running
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Waits up to `wait` for output, or for input on one of `others`, and passes on whole lines. False once the child
  /// has ended and everything has been read.
  bool pump(std::chrono::milliseconds wait, const std::function<void(const std::string&)>& out_line,
            const std::function<void(const std::string&)>& error_line, const std::vector<int>& others = {});
  void signal(int number);  ///< only to the child
  void kill_group();        ///< SIGKILL to its group
  [[nodiscard]] bool ended() const { return ended_; }
  /// After pump() has returned false: the exit code, 128 + signal if it was killed.
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  struct Pipe {
    int descriptor = -1;
    std::string rest;  ///< a line not yet ended
  };
  void read_from(Pipe& pipe, const std::function<void(const std::string&)>& line);
  bool reap();
  int process_ = -1;
  bool ended_ = false;
  int exit_code_ = 0;
  std::chrono::steady_clock::time_point ended_at_;
  Pipe out_, error_;
};

}  // namespace orrery::exec
