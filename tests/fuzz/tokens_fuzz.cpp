// Token files: a Megatron .idx and, behind the mark, its .bin; without a mark llm.c's .bin alone. One that is accepted
// is read from its first token to its last, or refused at a place.
#include <algorithm>
#include <vector>

#include "exec/data/data.h"
#include "exec/failure.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(tokens) {
  namespace exec = orrery::exec;
  static const orrery::fuzz::Scratch pair, single;
  const bool indexed = text.find("\n====\n") != std::string_view::npos;
  const auto first = indexed ? pair.write("fuzz.idx", orrery::fuzz::take_part(text)) : single.write("fuzz.bin", text);
  if (indexed) pair.write("fuzz.bin", text);
  const auto stream = exec::TokenStream::open(first);
  if (!stream) {
    orrery::fuzz::must(!stream.error().empty(), "a refusal says why");
    (void)orrery::base::render(stream.error(), true);
    return;
  }
  orrery::fuzz::must(stream->size() >= 2, "a stream has tokens");
  for (const std::int64_t at : {std::int64_t{0}, stream->size() / 2, stream->size() - 1}) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min<std::int64_t>(stream->size(), 64)));
    try {
      stream->read(at, ids, 50'000);
      for (const std::int32_t id : ids) orrery::fuzz::must(id >= 0 && id < 50'000, "an id is below the vocabulary's");
    } catch (const exec::Failure& failure) {
      orrery::fuzz::must(*failure.what() != '\0', "a refusal says why");
    }
  }
}
