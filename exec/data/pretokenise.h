#pragma once
/// Splits text into the pieces within which byte-level BPE merges, by a regular expression over Unicode classes
/// (Radford et al. 2019; GPT-2's encoder.py). PCRE2 matches it; its version decides which Unicode.
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace orrery::exec {

class Pretokeniser {
 public:
  /// GPT-2's expression: contractions, and runs of letters, of numbers and of other characters, each with the space
  /// before it; the last blank of a run belongs to what follows.
  [[nodiscard]] static Pretokeniser gpt2();
  /// Another vocabulary's expression, in PCRE2's syntax. Code E0616 if it is not valid.
  [[nodiscard]] static base::Result<Pretokeniser> of(const std::string& expression);
  Pretokeniser(Pretokeniser&&) noexcept;
  Pretokeniser& operator=(Pretokeniser&&) noexcept;
  ~Pretokeniser();

  /// Passes all of `text` in order: matches, what lies between them, and runs of bytes that are not UTF-8.
  void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  struct Compiled;
  explicit Pretokeniser(std::unique_ptr<Compiled> compiled);
  void split_valid(std::string_view text, const std::function<void(std::string_view)>& piece) const;
  std::unique_ptr<Compiled> compiled_;
};

/// Length in bytes of the UTF-8 sequence at the beginning of `text`; 0 if there is none (RFC 3629).
[[nodiscard]] std::size_t sequence_at(std::string_view text);

}  // namespace orrery::exec
