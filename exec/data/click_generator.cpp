// Draws samples and their clicks.
#include "exec/data/click_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "exec/data/clicks.h"

namespace orrery::exec {
namespace {

constexpr std::uint64_t kDraws = 1 << 20;  // at most, per sample
constexpr double kSpread = 2.5;            // of the logits: the best AUC is then near 0.9

/// Uniform in (0, 1).
double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return 0.5 * std::erfc(-base::normal(seed, stream, index) / std::sqrt(2.0));
}

}  // namespace

GeneratedClicks generate_clicks(const models::Recommender& model, std::int64_t first, std::int64_t count,
                                std::uint64_t seed) {
  const std::uint64_t draws = base::stream_of("clicks.draws"), effects = base::stream_of("clicks.effects");
  const double scale = kSpread / std::sqrt(static_cast<double>(model.tables.size() + 1));
  GeneratedClicks out;
  std::vector<float> chances, labels;
  for (std::int64_t i = first; i < first + count; ++i) {
    std::uint64_t at = static_cast<std::uint64_t>(i) * kDraws;
    std::string line;
    double logit = 0;
    for (std::int64_t f = 0; f < model.dense_features; ++f) {
      const double value = std::floor(std::exp(1.5 * base::normal(seed, draws, at++) + 1));
      logit += scale * base::normal(seed, effects, static_cast<std::uint64_t>(f)) * (std::log1p(value) - 1.5) /
               std::sqrt(static_cast<double>(model.dense_features));
      line += fmt::format("\t{:.0f}", value);
    }
    for (std::size_t t = 0; t < model.tables.size(); ++t) {
      const models::Table& table = model.tables[t];
      for (std::int64_t j = 0; j < table.multi_hot; ++j) {
        // By Zipf's law with exponent 1, the logarithm of the rank is uniform.
        const double zipf = std::pow(static_cast<double>(table.rows) + 1, uniform(seed, draws, at++));
        const auto row = std::clamp<std::int64_t>(static_cast<std::int64_t>(zipf) - 1, 0, table.rows - 1);
        logit += scale * base::normal(seed, effects + 1 + t, static_cast<std::uint64_t>(row)) /
                 std::sqrt(static_cast<double>(table.multi_hot));
        line += fmt::format("\t{:x}", row);
      }
    }
    const double chance = 1 / (1 + std::exp(-logit));
    const bool clicked = uniform(seed, draws, at) < chance;
    out.text += (clicked ? "1" : "0") + line + "\n";
    chances.push_back(static_cast<float>(chance));
    labels.push_back(clicked ? 1.0F : 0.0F);
  }
  out.best_auc = area_under_curve(chances, labels);
  return out;
}

}  // namespace orrery::exec
