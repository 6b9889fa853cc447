// Draws samples and their clicks.
#include "exec/data/click_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/ensure.h"
#include "base/random.h"
#include "exec/files/checksum.h"

namespace orrery::exec {
namespace {

constexpr std::uint64_t kDraws = 1 << 20;  // at most, per sample
constexpr double kSpread = 2.5;            // of the logits: the best AUC is then near 0.9

/// Uniform in (0, 1).
double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return 0.5 * std::erfc(-base::normal(seed, stream, index) / std::sqrt(2.0));
}

struct Click {
  double chance = 0;
  bool clicked = false;
};

/// Draws one sample; hands each dense feature to `dense`, each lookup's table, row and weight to `lookup`, and each
/// table to `end` behind its last lookup, in the order of a line. Lengths of bags that differ are equally frequent;
/// weights, which only weighted tables have, are uniform between 0 and 2, in steps of 1/1000.
template <class Dense, class Lookup, class End>
Click draw(const models::Recommender& model, std::int64_t sample, std::uint64_t seed, const Dense& dense,
           const Lookup& lookup, const End& end) {
  static const std::uint64_t draws = base::stream_of("clicks.draws"), effects = base::stream_of("clicks.effects");
  const double scale = kSpread / std::sqrt(static_cast<double>(model.tables.size() + 1));
  std::uint64_t at = static_cast<std::uint64_t>(sample) * kDraws;
  double logit = 0;
  for (std::int64_t f = 0; f < model.dense_features; ++f) {
    const double value = std::floor(std::exp(1.5 * base::normal(seed, draws, at++) + 1));
    logit += scale * base::normal(seed, effects, static_cast<std::uint64_t>(f)) * (std::log1p(value) - 1.5) /
             std::sqrt(static_cast<double>(model.dense_features));
    dense(value);
  }
  for (std::size_t t = 0; t < model.tables.size(); ++t) {
    const models::Table& table = model.tables[t];
    std::int64_t length = table.multi_hot;
    if (table.varies()) {
      const std::int64_t fewest = *table.fewest, lengths = table.multi_hot - fewest + 1;
      const double drawn = uniform(seed, draws, at++) * static_cast<double>(lengths);
      length = std::min(fewest + static_cast<std::int64_t>(drawn), table.multi_hot);
    }
    for (std::int64_t j = 0; j < length; ++j) {
      // By Zipf's law with exponent 1, the logarithm of the rank is uniform.
      const double zipf = std::pow(static_cast<double>(table.rows) + 1, uniform(seed, draws, at++));
      const auto row = std::clamp<std::int64_t>(static_cast<std::int64_t>(zipf) - 1, 0, table.rows - 1);
      const bool weighted = table.pooling == models::Pooling::weighted;
      const double weight = weighted ? std::round(2000 * uniform(seed, draws, at++)) / 1000 : 1;
      logit += weight * scale * base::normal(seed, effects + 1 + t, static_cast<std::uint64_t>(row)) /
               std::sqrt(static_cast<double>(length));
      lookup(table, row, weight);
    }
    end(table);
  }
  const double chance = 1 / (1 + std::exp(-logit));
  return {chance, uniform(seed, draws, at) < chance};
}

}  // namespace

ClickGenerator::ClickGenerator(const models::Recommender& model, std::int64_t first, std::int64_t count,
                               std::uint64_t seed)
    : model_(model), first_(first), count_(count), seed_(seed) {
  ENSURE(first >= 0 && count > 0, "samples {} to {}", first, first + count);
}

void ClickGenerator::read(std::int64_t first, const ClickBatch& samples) const {
  std::size_t dense = 0;
  LookupWriter lookups(model_, samples.indices);
  for (std::size_t i = 0; i < samples.labels.size(); ++i) {
    const std::int64_t sample = first_ + (first + static_cast<std::int64_t>(i)) % count_;
    const Click click = draw(
        model_, sample, seed_, [&](double value) { samples.dense[dense++] = static_cast<float>(std::log1p(value)); },
        [&](const models::Table&, std::int64_t row, double weight) {
          lookups.add(static_cast<std::int32_t>(row), static_cast<float>(weight));
        },
        [&](const models::Table& table) { lookups.end(table); });
    samples.labels[i] = click.clicked ? 1.0F : 0.0F;
  }
}

void ClickGenerator::read_chances(std::int64_t first, std::span<float> chances, std::span<float> labels) const {
  for (std::size_t i = 0; i < chances.size(); ++i) {
    const std::int64_t sample = first_ + (first + static_cast<std::int64_t>(i)) % count_;
    const Click click = draw(
        model_, sample, seed_, [](double) {}, [](const models::Table&, std::int64_t, double) {},
        [](const models::Table&) {});
    chances[i] = static_cast<float>(click.chance);
    labels[i] = click.clicked ? 1.0F : 0.0F;
  }
}

DataMark ClickGenerator::mark() const {
  constexpr std::int64_t kMarked = 64;
  const std::string text = generate_clicks(model_, first_, std::min(count_, kMarked), seed_).text;
  return {count_, format(), crc32(std::as_bytes(std::span(text)))};
}

GeneratedClicks generate_clicks(const models::Recommender& model, std::int64_t first, std::int64_t count,
                                std::uint64_t seed) {
  GeneratedClicks out;
  std::vector<float> chances, labels;
  for (std::int64_t i = first; i < first + count; ++i) {
    std::string line;
    std::int64_t bag = 0;  // lookups of the table so far
    const Click click = draw(
        model, i, seed, [&](double value) { line += fmt::format("\t{:.0f}", value); },
        [&](const models::Table& table, std::int64_t row, double weight) {
          line += fmt::format("{}{:x}", table.varies() && bag > 0 ? "," : "\t", row);
          if (table.pooling == models::Pooling::weighted) line += fmt::format(":{:.3f}", weight);
          ++bag;
        },
        [&](const models::Table& table) {
          if (bag == 0 && table.varies()) line += "\t";
          bag = 0;
        });
    out.text += (click.clicked ? "1" : "0") + line + "\n";
    chances.push_back(static_cast<float>(click.chance));
    labels.push_back(click.clicked ? 1.0F : 0.0F);
  }
  out.best_auc = area_under_curve(chances, labels);
  return out;
}

}  // namespace orrery::exec
