// Sizes and names of recommendation models.
#include "models/recommender.h"

#include <algorithm>
#include <cmath>

namespace orrery::models {
namespace {

// In a torch.nn.Sequential, layers have the even positions and activations the odd ones.
void add_mlp(std::vector<DenseParameter>& out, const char* prefix, const std::vector<std::int64_t>& widths) {
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const auto in = static_cast<double>(widths[i]), wide = static_cast<double>(widths[i + 1]);
    const std::string name = prefix + std::to_string(2 * i);
    out.push_back({name + ".weight", {widths[i + 1], widths[i]}, std::sqrt(2 / (in + wide))});
    out.push_back({name + ".bias", {widths[i + 1]}, std::sqrt(1 / wide)});
  }
}

double mlp_flops(const std::vector<std::int64_t>& widths) {
  double flops = 0;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i)
    flops += 2 * static_cast<double>(widths[i]) * static_cast<double>(widths[i + 1]);
  return flops;
}

std::int64_t elements_of(const std::vector<DenseParameter>& parameters) {
  std::int64_t sum = 0;
  for (const DenseParameter& one : parameters) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : one.shape) elements *= extent;
    sum += elements;
  }
  return sum;
}

}  // namespace

std::int64_t Recommender::indices() const {
  std::int64_t sum = 0;
  for (const Table& table : tables) sum += table.multi_hot;
  return sum;
}

double Recommender::mean_indices() const {
  double sum = 0;
  for (const Table& table : tables) sum += table.mean_hot();
  return sum;
}

std::int64_t Recommender::lookup_words() const {
  return std::any_of(tables.begin(), tables.end(), [](const Table& one) { return one.weighs(); }) ? 2 : 1;
}

std::int64_t Recommender::rows() const {
  std::int64_t sum = 0;
  for (const Table& table : tables) sum += table.rows;
  return sum;
}

std::int64_t Recommender::top_input() const {
  const std::int64_t f = vectors();
  return interaction == Interaction::dot ? embedding_dim + f * (f - 1) / 2 : f * embedding_dim;
}

std::vector<std::int64_t> Recommender::bottom_widths() const {
  std::vector<std::int64_t> widths = {dense_features};
  widths.insert(widths.end(), bottom_mlp.begin(), bottom_mlp.end());
  return widths;
}

std::vector<std::int64_t> Recommender::top_widths() const {
  std::vector<std::int64_t> widths = {top_input()};
  widths.insert(widths.end(), top_mlp.begin(), top_mlp.end());
  return widths;
}

std::vector<DenseParameter> bottom_parameters(const Recommender& r) {
  std::vector<DenseParameter> out;
  add_mlp(out, "bot_l.", r.bottom_widths());
  return out;
}

std::vector<DenseParameter> top_parameters(const Recommender& r) {
  std::vector<DenseParameter> out;
  if (r.interaction == Interaction::cross)
    for (std::int64_t i = 0; i < r.cross_layers; ++i) {
      const std::string name = "cross_l." + std::to_string(i);
      const std::int64_t width = r.top_input();
      const double stddev = std::sqrt(2 / static_cast<double>(width + r.cross_rank));
      out.push_back({name + ".v.weight", {r.cross_rank, width}, stddev});
      out.push_back({name + ".w.weight", {width, r.cross_rank}, stddev});
      out.push_back({name + ".w.bias", {width}, 0});
    }
  add_mlp(out, "top_l.", r.top_widths());
  return out;
}

std::string table_name(std::int64_t table) {
  return "emb_l." + std::to_string(table) + ".weight";
}

double table_stddev(const Table& table) {
  return 1 / std::sqrt(3 * static_cast<double>(table.rows));
}

std::int64_t dense_parameters(const Recommender& r) {
  return elements_of(bottom_parameters(r)) + elements_of(top_parameters(r));
}

std::int64_t table_parameters(const Recommender& r) {
  return r.rows() * r.embedding_dim;
}

double flops_per_sample_forward(const Recommender& r) {
  const auto f = static_cast<double>(r.vectors()), d = static_cast<double>(r.embedding_dim);
  double flops = mlp_flops(r.bottom_widths()) + mlp_flops(r.top_widths());
  for (const Table& table : r.tables) flops += d * table.mean_hot() * (table.weighs() ? 2 : 1);
  if (r.interaction == Interaction::dot) return flops + f * (f - 1) * d;
  // Two products of rank r each, then x0 * (.) + x.
  return flops + static_cast<double>(r.cross_layers) * f * d * (4 * static_cast<double>(r.cross_rank) + 3);
}

}  // namespace orrery::models
