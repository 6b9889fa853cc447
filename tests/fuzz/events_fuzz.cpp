// Diagnostics that one rank sends another: anything is read or refused, and what was read reads the same after writing.
#include <nlohmann/json.hpp>

#include "exec/events.h"
#include "exec/failure.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(events) {
  namespace exec = orrery::exec;
  try {
    const auto read = exec::unpack_diagnostics(std::string(text));
    const std::string written = exec::pack_diagnostics(read);
    orrery::fuzz::must(exec::pack_diagnostics(exec::unpack_diagnostics(written)) == written,
                       "what was read reads the same");
  } catch (const exec::Failure&) {
  } catch (const nlohmann::json::exception&) {
  }
}
