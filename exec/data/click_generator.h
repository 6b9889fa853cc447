#pragma once
/// Samples whose clicks follow a known model, so that what a run learns can be judged: the probability of a click is
/// sigmoid(bias + sum over its categories of their effect + effect of its dense features). Categories are drawn by
/// Zipf's law (exponent 1), as in real clicks; the effects of frequent ones are learned soon.
#include <cstdint>
#include <string>

#include "models/recommender.h"

namespace orrery::exec {

struct GeneratedClicks {
  std::string text;     ///< lines in Criteo's form
  double best_auc = 0;  ///< of the true probabilities: no model does better except by chance
};

/// `seed` determines the click model; samples [first, first + count) of it are the same whatever else is drawn.
[[nodiscard]] GeneratedClicks generate_clicks(const models::Recommender& model, std::int64_t first, std::int64_t count,
                                              std::uint64_t seed);

}  // namespace orrery::exec
