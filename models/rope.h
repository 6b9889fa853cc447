#pragma once
/// Rotary positions (Su et al., "RoFormer", arXiv:2104.09864), and how models rotate more slowly, so that they take
/// sequences longer than those that they were first trained on.
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::base {
class Cursor;
}

namespace orrery::models {

enum class RopeKind : std::uint8_t {
  none,
  linear,    ///< all pairs by the factor: Chen et al., "Position Interpolation" (arXiv:2306.15595), eq. 4
  llama3,    ///< slow pairs by the factor, fast ones not, those in between in proportion: as in Llama 3.1's published
             ///< code
  yarn,      ///< Peng et al., "YaRN" (arXiv:2309.00071), section 3.2 ("NTK-by-parts") and eq. 21, 22
  longrope,  ///< each pair by a number of its own: Ding et al., "LongRoPE" (arXiv:2402.13753), as in Phi-3's published
             ///< code, with other numbers for sequences longer than `original`
  proportional,  ///< the first pairs alone turn, `share` of all, each at the rate that it has among all (Gemma 4)
};

struct RopeScaling {
  RopeKind kind = RopeKind::none;
  double factor = 1;
  std::int64_t original = 0;  ///< sequence length, in tokens, before; linear: unused
  /// The number of turns within `original` tokens up to which a pair is slow, and from which on it is fast. If they are
  /// the same, no pair is in between.
  double low = 1, high = 4;
  bool whole_pairs = true;                 ///< yarn: bounds are rounded outwards to whole pairs
  double share = 1;                        ///< proportional
  double attention = 1;                    ///< yarn, longrope: factor on cosines and sines
  std::vector<double> divisors = {};       ///< longrope: of each pair's rate, in sequences of up to `original` tokens,
  std::vector<double> long_divisors = {};  ///< and in longer ones, which have
  double long_attention = 1;               ///< this factor on cosines and sines
  /// yarn: attention's scores are multiplied by the square of yarn_attention(factor, score_weight) (DeepSeek's
  /// mscale_all_dim); 0: they are not.
  double score_weight = 0;
  [[nodiscard]] double scores() const;
  /// What holds for sequences of that length: longrope with `divisors` and `attention` alone, the others as they are.
  [[nodiscard]] RopeScaling within(std::int64_t tokens) const;
  bool operator==(const RopeScaling&) const = default;
};

/// Radians by which each of the `columns` / 2 pairs of a head rotates from one position to the next.
[[nodiscard]] std::vector<double> rope_rates(double theta, const RopeScaling& scaling, std::int64_t columns);

/// Phi-3's factor on cosines and sines for a context `factor` times as long as `original` tokens (its published code;
/// Ding et al. say only that attention's temperature changes).
[[nodiscard]] double longrope_attention(double factor, std::int64_t original);

/// YaRN's factor for a context `factor` times as long (eq. 22), with DeepSeek's weight of the logarithm.
[[nodiscard]] double yarn_attention(double factor, double weight = 1);

/// A list of longrope's divisors.
[[nodiscard]] std::vector<double> read_divisors(const base::Cursor& at);
/// A model file's `rope_scaling: {type: llama3, factor: 8, original: 8192, low: 1, high: 4}`.
[[nodiscard]] RopeScaling read_rope_scaling(const base::Cursor& at);
[[nodiscard]] std::string rope_scaling_text(const RopeScaling& scaling);

}  // namespace orrery::models
