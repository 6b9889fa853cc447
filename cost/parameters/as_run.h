#pragma once
/// A stack as a run had it. Its file says what most of its runs have; plan::Software says how one of them was set up.
/// This is the only place where such words become numbers: `validate` comes here with a row's, every other verb with a
/// job's (cost/prices/stacks.h), so that what is proved of one is what the other tells.
#include <functional>
#include <string>
#include <vector>

#include "cost/parameters/stack.h"
#include "plan/spec/software.h"

namespace orrery::cost {

/// Finds a stack by name; null if there is none.
using FindStack = std::function<const Stack*(const std::string&)>;

/// A word that changes nothing in a stack, because nobody says what it would change.
struct RefusedWord {
  std::string key;  ///< under `software:`
  std::string why, help;
};
/// The words that this stack does not know.
[[nodiscard]] std::vector<RefusedWord> refused_words(const Stack& stack, const plan::Software& software,
                                                     const FindStack& find);
/// The words that it knows.
[[nodiscard]] plan::Software known_words(const Stack& stack, plan::Software software, const FindStack& find);

/// The stack with the numbers and the memory of such a run. Words that it does not know change nothing; without words
/// it is itself. What a word sets has the word as its source.
[[nodiscard]] Stack as_run(const Stack& stack, const plan::Software& software, const FindStack& find);

/// Stacks whose models are written as Hugging Face's Transformers writes them, and as kernels that replace theirs.
inline constexpr const char* kTransformers = "huggingface";

}  // namespace orrery::cost
