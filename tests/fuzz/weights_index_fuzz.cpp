// An index of weight files (model.safetensors.index.json), whatever it names, opens files beside it or is refused.
#include "exec/failure.h"
#include "exec/state/weight_names.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(weights_index) {
  static const orrery::fuzz::Scratch scratch;
  static const auto kShard = scratch.write("a.safetensors", std::string("\x02\0\0\0\0\0\0\0{}", 10));
  const auto index = scratch.write("model.safetensors.index.json", text);
  try {
    const auto files = orrery::exec::open_weights(index);
    if (!files) {
      orrery::fuzz::must(!files.error().empty(), "a refusal says why");
      (void)orrery::base::render(files.error(), true);
      return;
    }
    for (const auto& file : *files)
      orrery::fuzz::must(file.name().find("orrery-fuzz-") != std::string::npos,
                         "only files beside the index are opened");
  } catch (const orrery::exec::Failure& failure) {
    orrery::fuzz::must(*failure.what() != '\0', "a refusal says why");
  }
}
