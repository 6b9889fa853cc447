// Masked sequences of two segments, with counter-based draws.
#include "exec/data/masked_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/ensure.h"
#include "base/random.h"
#include "exec/data/data.h"
#include "exec/data/tokenizer.h"
#include "models/layers/inputs.h"

namespace orrery::exec {
namespace {

constexpr double kMasked = 0.8, kReplaced = 0.9;  // cumulative
constexpr double kFollows = 0.5;

/// The draws of one sequence of the run.
class Draws {
 public:
  Draws(std::uint64_t seed, std::int64_t sequence, std::int64_t length)
      : seed_(seed), sequence_(static_cast<std::uint64_t>(sequence)), length_(static_cast<std::uint64_t>(length)) {}
  [[nodiscard]] bool follows() const { return base::uniform(seed_, kNext, sequence_) < kFollows; }
  /// Length of the first segment, if both together have `text` tokens.
  [[nodiscard]] std::int64_t first(std::int64_t text) const {
    return 1 + static_cast<std::int64_t>(base::below(static_cast<std::uint64_t>(text - 1), seed_, kSplit, sequence_));
  }
  [[nodiscard]] std::int64_t elsewhere(std::int64_t tokens) const {
    return static_cast<std::int64_t>(base::below(static_cast<std::uint64_t>(tokens), seed_, kOther, sequence_));
  }
  [[nodiscard]] double order(std::int64_t position) const { return base::uniform(seed_, kOrder, at(position)); }
  [[nodiscard]] double fate(std::int64_t position) const { return base::uniform(seed_, kFate, at(position)); }
  [[nodiscard]] std::int32_t word(std::int64_t position, std::int64_t words) const {
    return static_cast<std::int32_t>(base::below(static_cast<std::uint64_t>(words), seed_, kWord, at(position)));
  }

 private:
  [[nodiscard]] std::uint64_t at(std::int64_t position) const {
    return sequence_ * length_ + static_cast<std::uint64_t>(position);
  }
  inline static const std::uint64_t kNext = base::stream_of("masked.next"), kSplit = base::stream_of("masked.split"),
                                    kOther = base::stream_of("masked.elsewhere"),
                                    kOrder = base::stream_of("masked.order"), kFate = base::stream_of("masked.fate"),
                                    kWord = base::stream_of("masked.word");
  std::uint64_t seed_, sequence_, length_;
};

base::Diagnostics wrong(const char* code, const std::string& file, const std::string& message,
                        const std::string& help) {
  return {{base::Severity::error, code, {file, 0, 0, 1}, message, help, {}}};
}

}  // namespace

void Batches::mask(const Masking& masking) {
  masking_ = masking;
  stride_ = sequence_ - (masking.pairs ? 3 : 2);
  ENSURE(stride_ >= 2 && masking.predictions >= 1 && masking.predictions <= stride_,
         "{} predictions in a sequence of {}", masking.predictions, sequence_);
}

void Batches::load_masked(std::int64_t step, std::int64_t first, std::int64_t count, const MaskedBatch& out) const {
  ENSURE(masking_.has_value(), "the data is not masked");
  const Masking& m = *masking_;
  const auto sequences = static_cast<std::size_t>(count), length = static_cast<std::size_t>(sequence_);
  const auto predictions = static_cast<std::size_t>(m.predictions);
  ENSURE(out.tokens.size() == sequences * length && out.targets.size() == sequences * predictions &&
             out.rows.size() == out.targets.size() &&
             (out.token_types.empty() || out.token_types.size() == out.tokens.size()) &&
             (out.next_sentence.empty() || out.next_sentence.size() == sequences),
         "{} sequences of {} with {} predictions into {} ids", count, sequence_, m.predictions, out.tokens.size());
  std::vector<std::int32_t> text(static_cast<std::size_t>(stride_));
  std::vector<std::pair<double, std::int64_t>> places;
  for (std::size_t i = 0; i < sequences; ++i) {
    const std::int64_t number = first + static_cast<std::int64_t>(i);
    const Draws draws(seed_, sequences_before(step) + number, sequence_);
    const std::int64_t begin = position(step, number);
    const std::int64_t split = m.pairs ? draws.first(stride_) : stride_;
    const bool follows = !m.pairs || draws.follows();
    stream_.read(begin, text, vocab_);
    if (!follows)  // anywhere but right after the first segment
      stream_.read(begin + split + 1 + draws.elsewhere(stream_.size() - 1),
                   std::span(text).subspan(static_cast<std::size_t>(split)), vocab_);
    const std::span<std::int32_t> tokens = out.tokens.subspan(i * length, length);
    tokens[0] = m.special.begin;
    std::copy_n(text.begin(), split, tokens.begin() + 1);
    tokens[static_cast<std::size_t>(split) + 1] = m.special.separator;
    std::copy(text.begin() + split, text.end(), tokens.begin() + split + 2);
    tokens.back() = m.special.separator;
    if (!out.next_sentence.empty()) out.next_sentence[i] = follows ? 0 : 1;
    if (!out.token_types.empty())
      for (std::size_t t = 0; t < length; ++t)
        out.token_types[i * length + t] = static_cast<std::int64_t>(t) > split + 1 ? 1 : 0;
    places.clear();
    for (std::int64_t t = 1; t + 1 < sequence_; ++t) {
      if (t == split + 1) continue;
      const std::int32_t id = tokens[static_cast<std::size_t>(t)];
      const bool special = id == m.special.begin || id == m.special.separator || id == m.special.mask;
      places.emplace_back(draws.order(t) + (special ? 1 : 0), t);  // tokens between documents are chosen last
    }
    std::nth_element(places.begin(), places.begin() + m.predictions - 1, places.end());
    std::sort(places.begin(), places.begin() + m.predictions,
              [](const auto& a, const auto& b) { return a.second < b.second; });
    for (std::size_t p = 0; p < predictions; ++p) {
      const std::int64_t t = places[p].second;
      std::int32_t& token = tokens[static_cast<std::size_t>(t)];
      out.targets[i * predictions + p] = token;
      out.rows[i * predictions + p] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * sequence_ + t);
      if (const double fate = draws.fate(t); fate < kMasked)
        token = m.special.mask;
      else if (fate < kReplaced)
        token = draws.word(t, m.words);
    }
  }
}

base::Result<Masking> masking_of(const models::Model& model, std::int64_t sequence, const plan::Training& training,
                                 const TokenStream& stream) {
  Masking out;
  out.predictions = models::predictions_per_sequence(model, sequence);
  out.pairs = model.next_sentence;
  if (!training.tokenizer.empty()) {
    const auto words = Tokenizer::open(training.tokenizer);
    if (!words) return base::fail(words.error());
    const auto special = words->special();
    if (!special)
      return base::fail(wrong("E0617", training.tokenizer, "the vocabulary has no [CLS], [SEP] and [MASK]",
                              "training on masked words needs a vocabulary with them, such as BERT's vocab.txt"));
    out.special = *special;
    out.words = words->vocab();
  } else if (stream.format() == DataFormat::bytes) {
    out.special = kSpecialBeyondBytes;
    out.words = kBytes;
  } else {
    return base::fail(wrong("E0617", training.data, "nothing says which tokens are [CLS], [SEP] and [MASK]",
                            "name the vocabulary that the file was made with: training.tokenizer"));
  }
  const std::int64_t most = std::max({out.special.begin, out.special.separator, out.special.mask});
  if (most >= model.vocab)
    return base::fail(
        wrong("E0618", training.tokenizer.empty() ? training.data : training.tokenizer,
              fmt::format("[CLS], [SEP] and [MASK] are tokens up to {}, but the model's vocabulary has {}", most,
                          model.vocab),
              fmt::format("use a vocabulary of at least {}", most + 1)));
  return out;
}

}  // namespace orrery::exec
