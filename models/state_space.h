#pragma once
/// Mixers that keep a state, and what the halves of a block are. A block has a mixer, which lets tokens see those
/// before them, and then an MLP; each has a norm of its own before it and is added to the residual. A pattern may leave
/// either out.
#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

/// Kinds of mixers; each has its row (models/layers/mixers.h), in this order.
enum class Mixer : std::uint8_t {
  attention,
  mamba,       ///< a state space (Dao and Gu 2024)
  delta,       ///< a gated delta network (Yang, Kautz and Hatamizadeh 2024)
  conv,        ///< a gated short convolution (Liquid AI 2025, LFM2)
  lightning,   ///< linear attention with fixed decays (MiniMax 2025, MiniMax-01)
  selective,   ///< a state space of each column (Gu and Dao 2023, Mamba's first form)
  local,       ///< attention of one shared key to a window (DeepSeek-AI 2026, DeepSeek-V4)
  compressed,  ///< that, and to chosen runs of tokens, each in one key
  condensed,   ///< that, and to all long runs of tokens
  both,        ///< attention and a state space, which read one norm and are summed (Falcon-H1)
  none,        ///< the last: no mixer
};
enum class Feed : std::uint8_t { mlp, experts, none };

/// One block of a pattern.
struct BlockParts {
  Mixer mixer = Mixer::attention;
  Feed feed = Feed::mlp;
  auto operator<=>(const BlockParts&) const = default;
};

/// Whether it has this mixer, alone or beside another (models/layers/mixers.h, where all that holds of a kind is).
[[nodiscard]] bool has_mixer(const BlockParts& parts, Mixer mixer);
[[nodiscard]] inline bool attends(const BlockParts& parts) {
  return has_mixer(parts, Mixer::attention);
}
/// A mixer's word, "mlp", "experts", or a mixer and what follows it: "mamba+mlp". Nothing for other words.
[[nodiscard]] std::optional<BlockParts> parts_of(std::string_view word);
[[nodiscard]] std::string word_of(const BlockParts& parts);
/// The letters of Nemotron-H's patterns: M, *, -, E.
[[nodiscard]] std::optional<BlockParts> parts_of_letter(char letter);
[[nodiscard]] std::optional<char> letter_of(const BlockParts& parts);  ///< nothing if it has none
/// The shortest pattern whose repetition gives all of `blocks`.
[[nodiscard]] std::vector<BlockParts> shortest_period(std::vector<BlockParts> blocks);

/// The norms of the raw step, B and C in Mamba's first form: with weights (Jamba), without them (Falcon Mamba), or none
/// (Mamba).
enum class PartNorms : std::uint8_t { weighted, plain, none };

/// The sizes of mixers that keep a state. In Mamba-2's (Dao and Gu 2024, "Transformers are SSMs", section 7.1) a token
/// becomes a gate z and values x of heads * width columns each, keys B and queries C of `state` columns for each of
/// `groups` groups of heads, and a step width dt for each head. A gated delta network (Yang, Kautz and Hatamizadeh
/// 2024, "Gated Delta Networks", section 3.4) has the same, called z, v, k, q and a, and for each head also how much of
/// a value is written, b; its norm takes each head by itself.
struct StateSpace {
  std::int64_t heads = 0;        ///< 0: no layer is a state space
  std::int64_t width = 0;        ///< columns of a head
  std::int64_t groups = 1;       ///< of neighbouring heads that share B and C
  std::int64_t state = 0;        ///< columns of B and C
  std::int64_t taps = 4;         ///< of the causal convolution over x, B and C
  std::int64_t chunk = 256;      ///< tokens of a chunk of the chunked form
  std::int64_t rank = 0;         ///< of Mamba's first form: columns in which the step is made
  std::int64_t norm_groups = 0;  ///< of Mamba-2: runs of columns that the norm takes by themselves; 0: `groups`
  bool conv_bias = true;
  PartNorms part_norms = PartNorms::weighted;
  double part_epsilon = 0;  ///< of those norms; 0: the model's
  bool normed = true;       ///< of Mamba-2: a norm behind the gate; false: the gate alone (Falcon-H1)
  double out_scale = 1;     ///< the mixer's result times this (Falcon-H1)
  std::array<double, 5> scales = {1, 1, 1, 1, 1};  ///< of Mamba-2's z, x, B, C and dt, before all else (Falcon-H1)
  bool operator==(const StateSpace&) const = default;
  [[nodiscard]] bool any() const { return heads > 0; }
  [[nodiscard]] bool scaled() const {
    return std::any_of(scales.begin(), scales.end(), [](double one) { return one != 1; });
  }
  [[nodiscard]] std::int64_t inner() const { return heads * width; }
  [[nodiscard]] std::int64_t normed_runs() const { return norm_groups > 0 ? norm_groups : groups; }
};

}  // namespace orrery::models
