#pragma once
/// Recommendation models (Naumov et al. 2019, "Deep Learning Recommendation Model for Personalization and
/// Recommendation Systems"): dense features pass through a bottom MLP, categorical features through embedding tables.
/// Both results interact, and a top MLP turns that into a logit. A sample plays the part of a token: sequences have
/// length one. Letters: n samples, D embedding_dim, f = tables + 1 vectors that interact.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::models {

enum class Pooling : std::uint8_t {
  sum,
  mean,     ///< over the indices that a sample has
  weighted  ///< the sum, each row times a weight that the sample gives (EmbeddingBag's per_sample_weights)
};
enum class Interaction : std::uint8_t {
  dot,   ///< products of all pairs of the f vectors (Naumov et al. 2019, section 2.1)
  cross  ///< low-rank cross layers over all f D values: DCN-v2 (Wang et al. 2021, section 3.2 and equation 2)
};

struct Table {
  std::int64_t rows = 0;
  Pooling pooling = Pooling::sum;
  std::int64_t multi_hot = 1;               ///< indices per sample: of bags that differ in length, of the longest
  std::optional<std::int64_t> fewest = {};  ///< of the shortest bag; none: all bags have `multi_hot`
  bool operator==(const Table&) const = default;

  [[nodiscard]] bool varies() const { return fewest && *fewest < multi_hot; }
  /// Indices that a sample is expected to have: lengths from `fewest` to `multi_hot` are taken to be equally frequent.
  [[nodiscard]] double mean_hot() const { return static_cast<double>(fewest.value_or(multi_hot) + multi_hot) / 2; }
  /// Whether its lookups have weights of their own. A mean over bags of several lengths is a weighted sum.
  [[nodiscard]] bool weighs() const { return pooling == Pooling::weighted || (pooling == Pooling::mean && varies()); }
};

struct Recommender {
  std::int64_t dense_features = 0;
  std::int64_t embedding_dim = 0;
  std::vector<Table> tables;
  std::vector<std::int64_t> bottom_mlp, top_mlp;  ///< output widths; ReLU after each but the last of the top
  Interaction interaction = Interaction::dot;
  std::int64_t cross_layers = 0, cross_rank = 0;  ///< for `cross`
  bool operator==(const Recommender&) const = default;

  [[nodiscard]] std::int64_t vectors() const { return static_cast<std::int64_t>(tables.size()) + 1; }
  [[nodiscard]] std::int64_t indices() const;  ///< per sample, over all tables: room for the longest bags
  [[nodiscard]] double mean_indices() const;   ///< expected
  /// Words of int32 that a lookup takes in memory and in messages: its index, and behind it, if any table's lookups
  /// have weights, the bits of an fp32 weight.
  [[nodiscard]] std::int64_t lookup_words() const;
  [[nodiscard]] std::int64_t top_input() const;  ///< D + f(f-1)/2, or f D
  [[nodiscard]] std::int64_t rows() const;       ///< over all tables
  /// Widths of an MLP, from its input to its output.
  [[nodiscard]] std::vector<std::int64_t> bottom_widths() const;
  [[nodiscard]] std::vector<std::int64_t> top_widths() const;
};

/// A matrix or vector outside the tables.
struct DenseParameter {
  std::string name;  ///< as in the public DLRM's PyTorch state dict; cross layers "cross_l.0.v.weight"
  std::vector<std::int64_t> shape;
  double initial_stddev = 0;  ///< 0: zeros
};
/// In the order of the forward pass: bottom MLP, cross layers, top MLP. The MLPs' initial values are as in the public
/// DLRM: normal with variance 2/(in + out), biases with variance 1/out.
[[nodiscard]] std::vector<DenseParameter> bottom_parameters(const Recommender& r);
[[nodiscard]] std::vector<DenseParameter> top_parameters(const Recommender& r);
/// "emb_l.3.weight"
[[nodiscard]] std::string table_name(std::int64_t table);
/// For normal initial values. The public DLRM draws uniformly within +-1/sqrt(rows), which has variance 1/(3 rows).
[[nodiscard]] double table_stddev(const Table& table);

[[nodiscard]] std::int64_t dense_parameters(const Recommender& r);
[[nodiscard]] std::int64_t table_parameters(const Recommender& r);
/// A multiply-add counts 2. Counts MLPs, cross layers, the f(f-1)/2 products of the interaction, and additions of
/// pooled rows, of weighted ones also the products.
[[nodiscard]] double flops_per_sample_forward(const Recommender& r);

}  // namespace orrery::models
