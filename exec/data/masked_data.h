#pragma once
/// What BERT is trained on (Devlin et al. 2019, section 3.1 and appendix A), made of a stream of tokens as it is read:
/// [CLS] A [SEP] B [SEP], where B follows A in half of the sequences and is from elsewhere in the others; of the words
/// as many of every sequence are predicted, of which 80 % stand as [MASK], 10 % as another word, 10 % as they are.
/// A and B are runs of text, not sentences of a grammar, which is what the paper means by the word; a sequence is
/// always full, so that nothing is padded. Every draw is by (seed, sequence of the run, position): the same for any
/// sharding, and another in the next epoch.
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

/// Where text is bytes, the ids behind them.
inline constexpr std::int32_t kBytes = 256;
inline constexpr SpecialTokens kSpecialBeyondBytes = {kBytes, kBytes + 1, kBytes + 2};

struct Masking {
  SpecialTokens special;
  std::int64_t words = 0;        ///< ids below are what a word may be replaced by
  std::int64_t predictions = 0;  ///< of a sequence
  bool pairs = true;             ///< two segments; without, [CLS] text [SEP]
};

/// Sequences of a micro-batch: B*T tokens, of which B*k are predicted. Empty spans are left out.
struct MaskedBatch {
  std::span<std::int32_t> tokens, targets, token_types;
  std::span<std::int32_t> rows;           ///< sequence * T + position, ascending
  std::span<std::int32_t> next_sentence;  ///< 0: the second segment follows the first; 1: it does not
};

/// By the job's vocabulary, or behind bytes. E0617 where nothing says which ids are special, E0618 where the model has
/// no room for them.
[[nodiscard]] base::Result<Masking> masking_of(const models::Model& model, std::int64_t sequence,
                                               const plan::Training& training, const TokenStream& stream);

}  // namespace orrery::exec
