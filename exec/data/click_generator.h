#pragma once
/// Samples whose clicks follow a known model, so that what a run learns can be judged: a sample is clicked on with
/// probability sigmoid(bias + sum over its categories of their effect + effect of its dense features). Categories are
/// drawn by Zipf's law (exponent 1), as those of clicks are; a frequent one has its effect learned soon.
#include <cstdint>
#include <string>

#include "models/recommender.h"

namespace orrery::exec {

struct GeneratedClicks {
  std::string text;     ///< Criteo's lines
  double best_auc = 0;  ///< of the true probabilities: no model does better but by chance
};

/// The click model follows from `seed`; samples [first, first + count) of it are the same whatever else is drawn.
[[nodiscard]] GeneratedClicks generate_clicks(const models::Recommender& model, std::int64_t first, std::int64_t count,
                                              std::uint64_t seed);

}  // namespace orrery::exec
