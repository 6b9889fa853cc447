// Ends the process from a thread of its own.
#include "exec/run/leave.h"

#include <unistd.h>

#include <system_error>
#include <thread>

namespace orrery::exec {

void leave_within(std::chrono::milliseconds patience, int code) try {
  std::thread([patience, code] {
    std::this_thread::sleep_for(patience);
    _exit(code);
  }).detach();
} catch (const std::system_error&) {  // no thread available: then there is no time to give either
  _exit(code);
}

}  // namespace orrery::exec
