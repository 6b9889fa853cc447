#pragma once
/// Samples whose clicks follow a known model, so that what a run learns can be judged: the probability of a click is
/// sigmoid(sum over its categories of their effect + effect of its dense features). Categories are drawn by Zipf's law
/// (exponent 1), as in real clicks; the effects of frequent ones are learned soon. Each effect is a counter-based
/// normal number, so that the model of any number of rows needs no memory.
#include <cstdint>
#include <string>

#include "exec/data/clicks.h"
#include "models/recommender.h"

namespace orrery::exec {

/// Draws samples when they are read. Sample i of a seed is the same whatever else is drawn, on any rank.
class ClickGenerator final : public ClickSource {
 public:
  /// Samples [first, first + count) of the click model that `seed` determines; 0 <= first, 1 <= count, and together
  /// less than 2^63.
  ClickGenerator(const models::Recommender& model, std::int64_t first, std::int64_t count, std::uint64_t seed);
  [[nodiscard]] std::int64_t size() const override { return count_; }
  [[nodiscard]] const models::Recommender& model() const override { return model_; }
  void read(std::int64_t first, const ClickBatch& samples) const override;
  /// The checksum is over the first samples, which tell models and seeds apart.
  [[nodiscard]] DataFormat format() const override { return DataFormat::generated; }
  [[nodiscard]] DataMark mark() const override;
  [[nodiscard]] bool knows_chances() const override { return true; }
  void read_chances(std::int64_t first, std::span<float> chances, std::span<float> labels) const override;

 private:
  models::Recommender model_;
  std::int64_t first_, count_;
  std::uint64_t seed_;
};

struct GeneratedClicks {
  std::string text;     ///< lines in Criteo's form
  double best_auc = 0;  ///< of the true probabilities: no model does better except by chance
};

/// Samples [first, first + count) as a file has them.
[[nodiscard]] GeneratedClicks generate_clicks(const models::Recommender& model, std::int64_t first, std::int64_t count,
                                              std::uint64_t seed);

}  // namespace orrery::exec
