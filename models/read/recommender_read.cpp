// Reading and writing `family: dlrm`.
#include "models/read/recommender_read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/limits.h"

namespace orrery::models {
namespace {

using base::Cursor;

const std::vector<std::string> kPoolings = {"sum", "mean", "weighted"};
const std::vector<std::string> kInteractions = {"dot", "cross"};

constexpr std::int64_t kMostRows = std::int64_t{1} << 31;  // an index is an int32
constexpr std::int64_t kMostTables = 100'000;
constexpr std::int64_t kMostHot = 1 << 16;
constexpr std::int64_t kMostVectorWidth = 1 << 14;
constexpr std::int64_t kMostFeatures = 1 << 16;
constexpr std::int64_t kMostMlpLayers = 1000;

Table read_table(const Cursor& at, std::int64_t& count) {
  Table t;
  const Cursor rows = at.at("rows");
  t.rows = rows.integer(1, kMostRows, 1);
  t.pooling = static_cast<Pooling>(at.optional("pooling").choice(kPoolings, 0));
  t.multi_hot = at.optional("multi_hot").integer(1, kMostHot, 1);
  if (const Cursor fewest = at.optional("fewest"); fewest.exists()) t.fewest = fewest.integer(0, t.multi_hot, 0);
  count = at.optional("count").integer(1, kMostTables, 1);
  return t;
}

std::vector<std::int64_t> widths(const Cursor& at) {
  std::vector<std::int64_t> out;
  for (const Cursor& item : at.items()) out.push_back(item.integer(1, kMostWidth, 1));
  if (at.exists() && at.is_sequence() && (out.empty() || static_cast<std::int64_t>(out.size()) > kMostMlpLayers))
    at.error("E0112", out.empty() ? "an MLP without layers" : "more layers than an MLP may have",
             "give the output width of each layer: [512, 256, 64]");
  return out;
}

}  // namespace

void read_recommender(const Cursor& at, Model& m) {
  Recommender r;
  r.dense_features = at.at("dense_features").integer(1, kMostFeatures, 1);
  r.embedding_dim = at.at("embedding_dim").integer(1, kMostVectorWidth, 1);
  const Cursor tables = at.at("tables");
  for (const Cursor& item : tables.items()) {
    std::int64_t count = 1;
    const Table table = read_table(item, count);
    if (static_cast<std::int64_t>(r.tables.size()) + count > kMostTables) {
      item.error("E0112", fmt::format("more than {} tables", kMostTables), "");
      break;
    }
    r.tables.insert(r.tables.end(), static_cast<std::size_t>(count), table);
  }
  if (tables.is_sequence() && r.tables.empty())
    tables.error("E0112", "a recommendation model without tables",
                 "give tables: [{rows: 1000, pooling: sum, multi_hot: 1}], one per categorical feature");
  const Cursor bottom = at.at("bottom_mlp"), top = at.at("top_mlp");
  r.bottom_mlp = widths(bottom);
  r.top_mlp = widths(top);
  const Cursor interaction = at.optional("interaction");
  r.interaction = static_cast<Interaction>(interaction.choice(kInteractions, 0));
  const Cursor layers = at.optional("cross_layers"), rank = at.optional("cross_rank");
  const bool crosses = r.interaction == Interaction::cross;
  r.cross_layers = layers.integer(1, kMostMlpLayers, crosses ? 3 : 0);
  r.cross_rank = rank.integer(1, kMostWidth, crosses ? 512 : 0);
  for (const Cursor& one : {layers, rank})
    if (one.exists() && !crosses)
      one.error("E0112", "cross layers belong to another interaction", "interaction: cross");
  for (const Cursor& source : at.optional("sources").one_or_many())
    if (source.exists()) m.sources.push_back(source.text());
  if (at.findings().failed()) return;
  // The dense features' vector interacts with the tables' vectors, so it must be as wide.
  if (r.bottom_mlp.back() != r.embedding_dim)
    bottom.error("E0112",
                 fmt::format("the bottom MLP ends in {} values, but interacts with vectors of embedding_dim {}",
                             r.bottom_mlp.back(), r.embedding_dim),
                 fmt::format("end bottom_mlp in {}", r.embedding_dim));
  if (r.top_mlp.back() != 1)
    top.error("E0112", fmt::format("the top MLP ends in {} values, but a click is one logit", r.top_mlp.back()),
              "end top_mlp in 1");
  // Keeps the bytes of all tables, gradients and states within 64 bits.
  constexpr double kMostValues = 1e16;
  if (static_cast<double>(r.rows()) * static_cast<double>(r.embedding_dim) > kMostValues)
    tables.error("E0112", "the tables have more values than can be counted", "");
  m.layers = static_cast<std::int64_t>(r.bottom_mlp.size() + r.top_mlp.size()) + r.cross_layers;
  m.hidden = r.embedding_dim;
  m.heads = m.kv_heads = m.head_dim = m.ffn_hidden = m.vocab = 1;
  m.max_sequence = 1;
  m.recommender = std::move(r);
}

std::string recommender_text(const Recommender& r, const std::string& margin) {
  std::string out;
  const auto line = [&](const char* key, const auto& value) { out += fmt::format("{}{}: {}\n", margin, key, value); };
  line("dense_features", r.dense_features);
  line("embedding_dim", r.embedding_dim);
  out += margin + "tables:\n";
  for (std::size_t i = 0; i < r.tables.size();) {
    const Table& table = r.tables[i];
    std::size_t count = 1;
    while (i + count < r.tables.size() && r.tables[i + count] == table) ++count;
    out += fmt::format("{}  - {{rows: {}, pooling: {}, multi_hot: {}", margin, table.rows,
                       kPoolings[static_cast<std::size_t>(table.pooling)], table.multi_hot);
    if (table.fewest) out += fmt::format(", fewest: {}", *table.fewest);
    out += count > 1 ? fmt::format(", count: {}}}\n", count) : "}\n";
    i += count;
  }
  line("bottom_mlp", fmt::format("[{}]", fmt::join(r.bottom_mlp, ", ")));
  line("top_mlp", fmt::format("[{}]", fmt::join(r.top_mlp, ", ")));
  line("interaction", kInteractions[static_cast<std::size_t>(r.interaction)]);
  if (r.interaction == Interaction::cross) {
    line("cross_layers", r.cross_layers);
    line("cross_rank", r.cross_rank);
  }
  return out;
}

}  // namespace orrery::models
