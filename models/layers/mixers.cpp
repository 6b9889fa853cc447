// The table of mixers, and the words of a block's halves that come from it.
#include "models/layers/mixers.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/ensure.h"

namespace orrery::models {

// The row of each kind, in a source of its own.
MixerTraits attention_mixer();
MixerTraits mamba_mixer();
MixerTraits delta_mixer();
MixerTraits convolution_mixer();
MixerTraits lightning_mixer();
MixerTraits selective_mixer();
MixerTraits local_mixer();
MixerTraits compressed_mixer();
MixerTraits condensed_mixer();

namespace {

/// Attention and a state space, which read one norm and are summed (Falcon-H1).
MixerTraits attention_beside_mamba() {
  return {.mixer = Mixer::both, .word = "both", .members = {Mixer::attention, Mixer::mamba}};
}

// Kinds of feeds in the enumeration's order, with Nemotron-H's letters.
struct FeedWord {
  std::string_view word;
  char letter;
};
constexpr std::array<FeedWord, 2> kFeeds = {{{"mlp", '-'}, {"experts", 'E'}}};

template <class Is>
std::optional<Mixer> mixer_that(const Is& is) {
  for (const MixerTraits& one : mixers())
    if (is(one)) return one.mixer;
  return std::nullopt;
}
template <class Is>
std::optional<Feed> feed_that(const Is& is) {
  for (std::size_t i = 0; i < kFeeds.size(); ++i)
    if (is(kFeeds[i])) return static_cast<Feed>(i);
  return std::nullopt;
}
template <class Is>
std::optional<BlockParts> one_half(const Is& is) {
  if (const auto mixer = mixer_that(is)) return BlockParts{*mixer, Feed::none};
  if (const auto feed = feed_that(is)) return BlockParts{Mixer::none, *feed};
  return std::nullopt;
}

}  // namespace

std::span<const MixerTraits> mixers() {
  static const std::vector<MixerTraits> kTable = [] {
    std::vector<MixerTraits> all;
    for (MixerTraits (*const row)() :
         {attention_mixer, mamba_mixer, delta_mixer, convolution_mixer, lightning_mixer, selective_mixer, local_mixer,
          compressed_mixer, condensed_mixer, attention_beside_mamba}) {
      all.push_back(row());
      ENSURE(static_cast<std::size_t>(all.back().mixer) + 1 == all.size(), "{} is in another place than its kind",
             all.back().word);
    }
    return all;
  }();
  return kTable;
}

const MixerTraits& traits_of(Mixer mixer) {
  ENSURE(mixer < Mixer::none, "no mixer has no row");
  return mixers()[static_cast<std::size_t>(mixer)];
}

std::vector<Mixer> members_of(Mixer mixer) {
  if (mixer == Mixer::none) return {};
  const MixerTraits& traits = traits_of(mixer);
  return traits.members.empty() ? std::vector<Mixer>{mixer} : traits.members;
}

std::vector<const MixerTraits*> mixers_of(const Model& model) {
  std::array<bool, static_cast<std::size_t>(Mixer::none)> has = {};
  if (model.pattern.empty()) has[static_cast<std::size_t>(Mixer::attention)] = true;
  for (const BlockParts& one : model.pattern)
    for (const Mixer member : members_of(one.mixer)) has[static_cast<std::size_t>(member)] = true;
  std::vector<const MixerTraits*> out;
  for (const MixerTraits& one : mixers())
    if (has[static_cast<std::size_t>(one.mixer)]) out.push_back(&one);
  return out;
}

std::string known_mixers() {
  std::string out;
  for (const MixerTraits& one : mixers()) out += (out.empty() ? "" : ", ") + std::string(one.word);
  return out;
}

bool has_mixer(const BlockParts& parts, Mixer mixer) {
  if (parts.mixer == mixer) return true;
  const std::vector<Mixer> all = members_of(parts.mixer);
  return std::find(all.begin(), all.end(), mixer) != all.end();
}

bool Model::reads_in_order() const {
  if (pattern.empty()) return false;
  const std::vector<const MixerTraits*> all = mixers_of(*this);
  return std::any_of(all.begin(), all.end(), [](const MixerTraits* one) { return one->in_order; });
}

std::optional<BlockParts> parts_of(std::string_view word) {
  const std::size_t plus = word.find('+');
  const auto named = [](std::string_view name) { return [name](const auto& one) { return one.word == name; }; };
  if (plus == std::string_view::npos) return one_half(named(word));
  const auto mixer = mixer_that(named(word.substr(0, plus)));
  const auto feed = feed_that(named(word.substr(plus + 1)));
  if (!mixer || !feed) return std::nullopt;
  return BlockParts{*mixer, *feed};
}

std::string word_of(const BlockParts& parts) {
  std::string out;
  if (parts.mixer != Mixer::none) out += traits_of(parts.mixer).word;
  if (parts.mixer != Mixer::none && parts.feed != Feed::none) out += '+';
  if (parts.feed != Feed::none) out += kFeeds[static_cast<std::size_t>(parts.feed)].word;
  return out;
}

std::optional<BlockParts> parts_of_letter(char letter) {
  return one_half([letter](const auto& one) { return one.letter == letter; });
}

std::optional<char> letter_of(const BlockParts& parts) {
  if (parts.mixer != Mixer::none && parts.feed != Feed::none) return std::nullopt;
  if (parts.mixer != Mixer::none) return traits_of(parts.mixer).letter;
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
