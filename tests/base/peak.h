#pragma once
/// What a piece of work takes of memory, in a process of its own: a hostile input must not take the machine's.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace orrery::tests {

/// MiB that the process of `work` grows to at most, beyond what it begins with; -1 when it ended in any other way than
/// by coming back from it. It may take 2 GiB beside: a machine that runs tests survives a reader without bounds.
template <class Work>
std::int64_t peak_mib(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    rusage before{};
    ::getrusage(RUSAGE_SELF, &before);
#if !defined(ORRERY_SANITIZED)
    const rlimit bound{std::uint64_t{3} << 30, std::uint64_t{3} << 30};
    ::setrlimit(RLIMIT_AS, &bound);
#endif
    try {
      work();
    } catch (const std::exception&) {
      ::_exit(255);
    }
    rusage after{};
    ::getrusage(RUSAGE_SELF, &after);
    ::_exit(static_cast<int>(std::min<std::int64_t>(254, (after.ru_maxrss - before.ru_maxrss) / (4 << 10))));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 255) return -1;
  return 4 * static_cast<std::int64_t>(WEXITSTATUS(status));
}

}  // namespace orrery::tests
