// Reads /proc: which processes carry the mark, and in what state a process is.
#include "exec/launch/process_tree.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <set>
#include <thread>

namespace orrery::exec {
namespace fs = std::filesystem;

namespace {

/// A file of /proc; empty if it cannot be read. A process that ends between open and read gives ESRCH, which a stream's
/// iterators throw: to the caller it is a process that is gone.
std::string text_of(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t count = read(file, part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) text.clear();
    if (count <= 0) break;
    text.append(part, static_cast<std::size_t>(count));
  }
  close(file);
  return text;
}

bool has_entry(const std::string& environment, const std::string& entry) {
  for (std::size_t begin = 0; begin < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', begin), environment.size());
    if (environment.compare(begin, end - begin, entry) == 0) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

ProcessTree::ProcessTree(std::string mark) : mark_(std::move(mark)) {
  int before = 0;
  was_subreaper_ = prctl(PR_GET_CHILD_SUBREAPER, &before) == 0 && before != 0;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

ProcessTree::~ProcessTree() {
  end();
  if (!was_subreaper_) prctl(PR_SET_CHILD_SUBREAPER, 0);
}

std::vector<int> ProcessTree::members() const {
  const std::string entry = std::string(kRunMark) + "=" + mark_;
  std::vector<int> out;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const int process = std::stoi(name);
    if (process != getpid() && has_entry(text_of(it->path() / "environ"), entry)) out.push_back(process);
  }
  return out;
}

bool ProcessTree::end(std::chrono::milliseconds patience) const {
  const auto begin = std::chrono::steady_clock::now();
  std::set<int> ours;
  for (;;) {
    const std::vector<int> left = members();
    for (const int process : left) {
      ours.insert(process);
      kill(process, SIGKILL);
    }
    // Orphans are children of this process now. Its other children are not waited for.
    for (auto it = ours.begin(); it != ours.end();)
      it = waitpid(*it, nullptr, WNOHANG) == *it || state_of_process(*it) == '\0' ? ours.erase(it) : std::next(it);
    if (left.empty() && ours.empty()) return true;
    if (std::chrono::steady_clock::now() - begin > patience) return left.empty();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

char state_of_process(int process) {
  const std::string stat = text_of(fs::path("/proc") / std::to_string(process) / "stat");
  const std::size_t name_end = stat.rfind(')');  // the name may contain anything
  return name_end == std::string::npos || name_end + 2 >= stat.size() ? '\0' : stat[name_end + 2];
}

}  // namespace orrery::exec
