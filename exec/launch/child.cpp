// fork, exec, pipes and poll.
#include "exec/launch/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "exec/failure.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kMostOfChild = 1 << 20;     // longer lines are cut: none of ours is that long
constexpr std::chrono::milliseconds kDrain{500};  // for output of grandchildren that outlive the child

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Failure(fmt::format("cannot make a pipe: {}", std::strerror(errno)), FailureKind::environment);
  return ends;
}

/// Runs in the child after fork: only calls that are safe there.
[[noreturn]] void become(char* const* arguments, char* const* environment, int out, int error, int report, int parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a stopped child would not handle another signal
  const int nothing = open("/dev/null", O_RDONLY);
  if (getppid() == parent && nothing >= 0 && dup2(nothing, 0) >= 0 && dup2(out, 1) >= 0 && dup2(error, 2) >= 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_DFL);  // as from a shell, whatever the command itself ignores
    execvpe(arguments[0], arguments, environment);
  }
  const int code = errno;
  if (write(report, &code, sizeof code) < 0) _exit(126);
  _exit(127);
}

}  // namespace

Child::Child(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  std::vector<char*> pointers, variables;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  for (const std::string& variable : environment) variables.push_back(const_cast<char*>(variable.c_str()));
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view name(*one, static_cast<std::size_t>(std::strcspn(*one, "=") + 1));
    const bool replaced = std::any_of(environment.begin(), environment.end(),
                                      [&](const std::string& other) { return other.rfind(name, 0) == 0; });
    if (!replaced) variables.push_back(*one);
  }
  variables.push_back(nullptr);
  const auto out = make_pipe(), error = make_pipe(), report = make_pipe();
  const int parent = getpid();
  process_ = fork();
  if (process_ == 0) become(pointers.data(), variables.data(), out[1], error[1], report[1], parent);
  for (const int end : {out[1], error[1], report[1]}) close(end);
  out_.descriptor = out[0];
  error_.descriptor = error[0];
  int code = process_ < 0 ? errno : 0;
  const bool failed = process_ < 0 || read(report[0], &code, sizeof code) == sizeof code;
  close(report[0]);
  if (!failed) return;
  if (process_ > 0) waitpid(process_, nullptr, 0);
  close(out_.descriptor);
  close(error_.descriptor);
  throw Failure(fmt::format("cannot start {}: {}", arguments.front(), std::strerror(code)), FailureKind::environment);
}

Child::~Child() {
  if (!ended_) {
    kill_group();
    waitpid(process_, nullptr, 0);
  }
  for (const Pipe* pipe : {&out_, &error_})
    if (pipe->descriptor >= 0) close(pipe->descriptor);
}

void Child::signal(int number) {
  if (!ended_) ::kill(process_, number);
}

void Child::kill_group() {
  if (!ended_) ::kill(-process_, SIGKILL);
}

bool Child::reap() {
  if (ended_) return true;
  int status = 0;
  const pid_t found = waitpid(process_, &status, WNOHANG);
  if (found < 0 && errno == ECHILD) {  // the process that killed it has already waited for it
    status = SIGKILL;
  } else if (found != process_) {
    return false;
  }
  ended_ = true;
  ended_at_ = std::chrono::steady_clock::now();
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

void Child::read_from(Pipe& pipe, const std::function<void(const std::string&)>& line) {
  std::array<char, 65536> chunk;
  const ssize_t n = read(pipe.descriptor, chunk.data(), chunk.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) {
    close(pipe.descriptor);
    pipe.descriptor = -1;
    if (!pipe.rest.empty()) line(pipe.rest);
    pipe.rest.clear();
    return;
  }
  pipe.rest.append(chunk.data(), static_cast<std::size_t>(n));
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = pipe.rest.find('\n', begin)) != std::string::npos; begin = end + 1)
    line(pipe.rest.substr(begin, end - begin));
  pipe.rest.erase(0, begin);
  if (pipe.rest.size() > kMostOfChild) pipe.rest.resize(kMostOfChild);
}

bool Child::pump(std::chrono::milliseconds wait, const std::function<void(const std::string&)>& out_line,
                 const std::function<void(const std::string&)>& error_line, const std::vector<int>& others) {
  std::vector<pollfd> watched{{out_.descriptor, POLLIN, 0}, {error_.descriptor, POLLIN, 0}};
  for (const int other : others) watched.push_back({other, POLLIN, 0});
  poll(watched.data(), watched.size(), static_cast<int>(wait.count()));
  if (watched[0].revents != 0) read_from(out_, out_line);
  if (watched[1].revents != 0) read_from(error_, error_line);
  const bool open = out_.descriptor >= 0 || error_.descriptor >= 0;
  if (!reap()) return true;
  return open && std::chrono::steady_clock::now() - ended_at_ < kDrain;
}

}  // namespace orrery::exec
