// A checkpoint with any manifest is refused, or its files can be checked and its parts read or refused; with the
// checksum that belongs to it, too, which mutation alone would never find.
#include <algorithm>
#include <string>
#include <vector>

#include "exec/failure.h"
#include "exec/state/checkpoint_files.h"
#include "exec/state/checkpoint_manifest.h"
#include "tests/fuzz/target.h"

namespace exec = orrery::exec;

static void read_checkpoint_with(const orrery::fuzz::Scratch& scratch, std::string_view manifest) {
  scratch.write("manifest.json", manifest);
  try {
    const exec::CheckpointReader reader(scratch.folder());
    orrery::fuzz::must(reader.step() >= 0 && reader.sequences().value_or(0) >= 0, "a step is not negative");
    for (const exec::State state : exec::kStates)
      for (const exec::CheckpointPart* part : reader.parts(state, "wte"))
        orrery::fuzz::must(part->begin >= 0 && part->end >= part->begin, "a part has a length");
    reader.check_files();
    (void)reader.tensor(exec::State::weight, "wte", {2, 2});
  } catch (const exec::Failure& failure) {
    orrery::fuzz::must(*failure.what() != '\0', "a refusal says why");
  }
}

FUZZ_TARGET(manifest) {
  static const orrery::fuzz::Scratch scratch;
  read_checkpoint_with(scratch, text);
  const std::size_t end = text.rfind('}');
  if (end == std::string_view::npos) return;
  read_checkpoint_with(scratch, exec::seal_manifest(std::string(text.substr(0, end)) + "\n}\n"));
}
