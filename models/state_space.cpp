// The words for a block's halves.
#include "models/state_space.h"

#include <array>

namespace orrery::models {
namespace {

// In the enumerations' order, with Nemotron-H's letters.
struct HalfWord {
  std::string_view word;
  std::optional<char> letter;
};
constexpr std::array<HalfWord, 5> kMixers = {
    {{"attention", '*'}, {"mamba", 'M'}, {"delta", {}}, {"conv", {}}, {"both", {}}}};
constexpr std::array<HalfWord, 2> kFeeds = {{{"mlp", '-'}, {"experts", 'E'}}};

template <class Half, std::size_t kWords, class Is>
std::optional<Half> half_of(const std::array<HalfWord, kWords>& words, const Is& is) {
  for (std::size_t i = 0; i < words.size(); ++i)
    if (is(words[i])) return static_cast<Half>(i);
  return std::nullopt;
}

template <class Is>
std::optional<BlockParts> one_half(const Is& is) {
  if (const auto mixer = half_of<Mixer>(kMixers, is)) return BlockParts{*mixer, Feed::none};
  if (const auto feed = half_of<Feed>(kFeeds, is)) return BlockParts{Mixer::none, *feed};
  return std::nullopt;
}

}  // namespace

std::optional<BlockParts> parts_of(std::string_view word) {
  const std::size_t plus = word.find('+');
  const auto named = [](std::string_view name) { return [name](const HalfWord& one) { return one.word == name; }; };
  if (plus == std::string_view::npos) return one_half(named(word));
  const auto mixer = half_of<Mixer>(kMixers, named(word.substr(0, plus)));
  const auto feed = half_of<Feed>(kFeeds, named(word.substr(plus + 1)));
  if (!mixer || !feed) return std::nullopt;
  return BlockParts{*mixer, *feed};
}

std::string word_of(const BlockParts& parts) {
  std::string out;
  if (parts.mixer != Mixer::none) out += kMixers[static_cast<std::size_t>(parts.mixer)].word;
  if (parts.mixer != Mixer::none && parts.feed != Feed::none) out += '+';
  if (parts.feed != Feed::none) out += kFeeds[static_cast<std::size_t>(parts.feed)].word;
  return out;
}

std::optional<BlockParts> parts_of_letter(char letter) {
  return one_half([letter](const HalfWord& one) { return one.letter == letter; });
}

std::optional<char> letter_of(const BlockParts& parts) {
  if (parts.mixer != Mixer::none && parts.feed != Feed::none) return std::nullopt;
  if (parts.mixer != Mixer::none) return kMixers[static_cast<std::size_t>(parts.mixer)].letter;
  return kFeeds[static_cast<std::size_t>(parts.feed)].letter;
}

std::vector<BlockParts> shortest_period(std::vector<BlockParts> blocks) {
  for (std::size_t period = 1; period < blocks.size(); ++period) {
    if (blocks.size() % period != 0) continue;
    bool repeats = true;
    for (std::size_t i = period; repeats && i < blocks.size(); ++i) repeats = blocks[i] == blocks[i - period];
    if (!repeats) continue;
    blocks.resize(period);
    break;
  }
  return blocks;
}

}  // namespace orrery::models
