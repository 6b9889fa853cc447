#pragma once
/// ENSURE checks what must hold unless this program has a bug. It is always on, prints its operands and aborts.
/// Input errors are never reported this way: they are values (base/result.h).
#include <fmt/core.h>

#include <string>

namespace orrery::base {
[[noreturn]] void ensure_failed(const char* condition, const char* file, int line, const std::string& why);
}

#define ENSURE(condition, ...)                                                                                   \
  do {                                                                                                           \
    if (!(condition)) ::orrery::base::ensure_failed(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
