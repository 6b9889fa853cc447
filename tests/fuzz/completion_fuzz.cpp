// A completed.json is no record, or reads the same after writing.
#include <cmath>

#include "exec/launch/supervise.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(completion) {
  namespace exec = orrery::exec;
  static const orrery::fuzz::Scratch scratch;
  scratch.write("completed.json", text);
  const auto record = exec::read_completion(scratch.folder());
  if (!record) return;
  const std::string written = exec::write_completion(*record);
  scratch.write("completed.json", written);
  const auto again = exec::read_completion(scratch.folder());
  orrery::fuzz::must(again && exec::write_completion(*again) == written, "a record reads the same after writing");
}
