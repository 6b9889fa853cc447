#pragma once
/// BERT's training data (Devlin et al. 2019, section 3.1 and appendix A), made from a stream of tokens as it is read:
/// [CLS] A [SEP] B [SEP], where B follows A in half of the sequences and comes from elsewhere in the others. The same
/// number of words is predicted in every sequence; of these 80 % become [MASK], 10 % another word, 10 % stay as they
/// are. A and B are runs of text, not grammatical sentences, which is what the paper means by the word; a sequence is
/// always full, so there is no padding. Every draw depends on (seed, sequence of the run, position): it is the same for
/// any sharding, and different in the next epoch.
#include <cstdint>
#include <span>

#include "base/result.h"
#include "models/model.h"
#include "plan/spec/job.h"

namespace orrery::exec {

class TokenStream;

struct SpecialTokens {
  std::int32_t begin = 0, separator = 0, mask = 0;  ///< [CLS], [SEP], [MASK]
};

/// Where text is bytes, the special ids follow them.
inline constexpr std::int32_t kBytes = 256;
inline constexpr SpecialTokens kSpecialBeyondBytes = {kBytes, kBytes + 1, kBytes + 2};

struct Masking {
  SpecialTokens special;
  std::int64_t words = 0;        ///< a word may be replaced by ids below this
  std::int64_t predictions = 0;  ///< per sequence
  bool pairs = true;             ///< two segments; otherwise [CLS] text [SEP]
};

/// Sequences of a micro-batch: B*T tokens, of which B*k are predicted. Empty spans are not filled.
struct MaskedBatch {
  std::span<std::int32_t> tokens, targets, token_types;
  std::span<std::int32_t> rows;           ///< sequence * T + position, ascending
  std::span<std::int32_t> next_sentence;  ///< 0: the second segment follows the first; 1: it does not
};

/// From the job's vocabulary, or for bytes. E0617 if nothing says which ids are special, E0618 if the model has no
/// room for them.
[[nodiscard]] base::Result<Masking> masking_of(const models::Model& model, std::int64_t sequence,
                                               const plan::Training& training, const TokenStream& stream);

}  // namespace orrery::exec
