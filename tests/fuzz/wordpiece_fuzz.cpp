// A vocab.txt of word pieces, and, behind the mark, a text for it: ids are of the vocabulary.
#include <vector>

#include "exec/data/tokenizer.h"
#include "exec/failure.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(wordpiece) {
  static const orrery::fuzz::Scratch scratch;
  const auto words = scratch.write("vocab.txt", orrery::fuzz::take_part(text));
  const auto tokenizer = orrery::exec::Tokenizer::open(words);
  if (!tokenizer) {
    orrery::fuzz::must(!tokenizer.error().empty(), "a refusal says why");
    (void)orrery::base::render(tokenizer.error(), true);
    return;
  }
  std::vector<std::int32_t> ids;
  tokenizer->encode(text, ids);
  for (const std::int32_t id : ids)
    orrery::fuzz::must(id >= 0 && id < tokenizer->vocab(), "an id is of the vocabulary");
  (void)tokenizer->decode(ids);
  (void)tokenizer->special();
}
