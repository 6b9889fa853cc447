// A checkpoint with any manifest is refused, or its files can be checked and its parts read or refused.
#include <algorithm>
#include <vector>

#include "exec/checkpoint_files.h"
#include "exec/failure.h"
#include "tests/fuzz/target.h"

namespace exec = orrery::exec;

FUZZ_TARGET(manifest) {
  static const orrery::fuzz::Scratch scratch;
  scratch.write("manifest.json", text);
  try {
    const exec::CheckpointReader reader(scratch.folder());
    orrery::fuzz::must(reader.step() >= 0 && reader.sequences() >= -1, "a step is not negative");
    for (const exec::State state : exec::kStates)
      for (const exec::CheckpointPart* part : reader.parts(state, "wte"))
        orrery::fuzz::must(part->begin >= 0 && part->end >= part->begin, "a part has a length");
    reader.check_files();
    (void)reader.tensor(exec::State::weight, "wte", {2, 2});
  } catch (const exec::Failure& failure) {
    orrery::fuzz::must(*failure.what() != '\0', "a refusal says why");
  }
}
