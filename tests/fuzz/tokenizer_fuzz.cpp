// Vocabularies of byte-pair encoding: a tokenizer.json alone, or a vocab.json and, behind the mark, its merges.txt. One
// that is accepted encodes a text into ids that it has, and decodes them to the same bytes.
#include <vector>

#include "exec/data/tokenizer.h"
#include "exec/failure.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(tokenizer) {
  static const orrery::fuzz::Scratch pair, single;
  const bool has_merges = text.find("\n====\n") != std::string_view::npos;
  const auto& scratch = has_merges ? pair : single;
  const auto words = scratch.write(has_merges ? "vocab.json" : "tokenizer.json", orrery::fuzz::take_part(text));
  if (has_merges) scratch.write("merges.txt", text);
  const auto tokenizer = orrery::exec::Tokenizer::open(words);
  if (!tokenizer) {
    orrery::fuzz::must(!tokenizer.error().empty(), "a refusal says why");
    (void)orrery::base::render(tokenizer.error(), true);
    return;
  }
  const std::string sample =
      "It's 1234 words,\n\n  aren't \xc3\xa9\xe2\x82\xac\xff they? aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";
  std::vector<std::int32_t> ids;
  try {
    tokenizer->encode(sample, ids);
  } catch (const orrery::exec::Failure&) {  // an expression that takes too long
    return;
  }
  for (const std::int32_t id : ids)
    orrery::fuzz::must(id >= 0 && id < tokenizer->vocab(), "an id is of the vocabulary");
  (void)tokenizer->decode(ids);
}
