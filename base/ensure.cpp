// What ENSURE does on failure: say where and why, then abort so that a core dump and a debugger see the place.
#include "base/ensure.h"

#include <cstdio>
#include <cstdlib>

namespace orrery::base {

void ensure_failed(const char* condition, const char* file, int line, const std::string& why) {
  std::fprintf(stderr, "%s:%d: this is a bug in orrery: `%s` does not hold: %s\n", file, line, condition, why.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace orrery::base
