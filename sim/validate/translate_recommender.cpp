// Translates rows of recommendation models into models and plans.
#include "sim/validate/translate_recommender.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>

#include "cost/parameters/habits.h"
#include "models/read/read.h"
#include "plan/spec/table_layout.h"
#include "plan/spec/words.h"
#include "sim/validate/row_words.h"
#include "sim/validate/translate.h"

namespace orrery::sim {
namespace {

using base::fail;
using base::Result;

constexpr std::size_t kCriteoTables = 26;
/// Categories of the Criteo 1TB click logs, unfiltered: NVIDIA DeepLearningExamples, DLRM, frequency threshold 0.
constexpr std::array<std::int64_t, kCriteoTables> kCriteoRows = {
    227605432, 39060, 17295, 7424, 20265, 3,  7122,      1543,     63,        130229467, 3067956, 405282, 10,
    2209,      11938, 155,   4,    976,   14, 292775614, 40790948, 187188510, 590152,    12973,   108,    36};
/// Indices per sample and table: MLPerf Training v3.0, dlrm_dcnv2, multi_hot_sizes.
constexpr std::array<std::int64_t, kCriteoTables> kCriteoHot = {3, 2, 1, 2, 6, 1, 1,  1,   1,  7,  3, 8, 1,
                                                                6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1};
constexpr double kMostRowsOfTable = 2147483647.0;  // an index is an int32
constexpr std::int64_t kUsualCut = 40'000'000;     // MLPerf's max-ind-range

std::int64_t sum_cut(std::int64_t most) {
  std::int64_t sum = 0;
  for (const std::int64_t rows : kCriteoRows) sum += std::min(rows, most);
  return sum;
}

/// The truncation that leaves this number of rows, by bisection.
std::int64_t cut_for(double rows) {
  std::int64_t low = 1, high = *std::max_element(kCriteoRows.begin(), kCriteoRows.end());
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (static_cast<double>(sum_cut(middle)) < rows)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

std::vector<std::int64_t> rows_of(const Setup::Tables& t, std::vector<std::string>& notes) {
  constexpr double kMillion = 1e6, kGiga = 1e9, kValue = 4;
  const auto count = static_cast<std::size_t>(*t.count);
  double total = t.rows_m.value_or(0) * kMillion;
  if (total == 0 && t.gigabytes) {
    total = *t.gigabytes * kGiga / kValue / static_cast<double>(*t.dim);
    notes.push_back(fmt::format("{:.4g} M rows, as {} GB of fp32 are", total / kMillion, *t.gigabytes));
  }
  if (count == kCriteoTables) {
    const std::int64_t cut = total > 0 ? cut_for(total) : kUsualCut;
    notes.push_back(fmt::format("tables of Criteo 1TB, of at most {} rows", cut));
    std::vector<std::int64_t> rows(kCriteoRows.begin(), kCriteoRows.end());
    for (std::int64_t& one : rows) one = std::min(one, cut);
    return rows;
  }
  constexpr double kUsualRows = 1e6;
  const double each = total > 0 ? total / static_cast<double>(count) : kUsualRows;
  notes.push_back(fmt::format("{} tables alike, of {:.0f} rows", count, std::max(1.0, each)));
  return std::vector<std::int64_t>(count, std::max<std::int64_t>(1, std::llround(std::min(each, kMostRowsOfTable))));
}

std::vector<std::int64_t> hot_of(const Setup::Tables& t, std::vector<std::string>& notes) {
  const auto count = static_cast<std::size_t>(*t.count);
  const std::int64_t all = std::max(t.lookups.value_or(*t.count), *t.count);
  if (count == kCriteoTables && all == std::accumulate(kCriteoHot.begin(), kCriteoHot.end(), std::int64_t{0}))
    return {kCriteoHot.begin(), kCriteoHot.end()};
  if (!t.lookups) notes.push_back("one lookup per table");
  std::vector<std::int64_t> hot(count, all / *t.count);
  for (std::size_t i = 0; i < static_cast<std::size_t>(all % *t.count); ++i) ++hot[i];
  return hot;
}

/// Turns "512-256-128" into "512, 256, 128".
std::string list_of(std::string widths) {
  std::replace(widths.begin(), widths.end(), '-', ',');
  return widths;
}

plan::PooledType pooled_of(const std::string& word, models::DType precision) {
  for (const plan::PooledType type :
       {plan::PooledType::fp32, plan::PooledType::bf16, plan::PooledType::fp16, plan::PooledType::int8})
    if (word == plan::name_of(type)) return type;
  return precision == models::DType::fp16   ? plan::PooledType::fp16
         : precision == models::DType::bf16 ? plan::PooledType::bf16
                                            : plan::PooledType::fp32;
}

}  // namespace

Result<std::shared_ptr<const models::Model>> recommender_of(const Setup& s, const std::vector<models::Model>& catalogue,
                                                            std::vector<std::string>& notes) {
  const Setup::Tables& t = s.tables;
  if (!t.model.empty()) {
    const auto found = std::find_if(catalogue.begin(), catalogue.end(),
                                    [&](const models::Model& m) { return m.name == t.model && m.recommender; });
    if (found == catalogue.end())
      return fail("V01", fmt::format("no recommendation model of the catalogue is called '{}'", t.model));
    return std::make_shared<const models::Model>(*found);
  }
  constexpr std::int64_t kMostTables = 100'000, kCriteoDense = 13;
  if (*t.count > kMostTables) return fail("V01", fmt::format("{} tables", *t.count));
  if (!t.dense) notes.push_back(fmt::format("{} dense features", kCriteoDense));
  std::string text =
      fmt::format("family: dlrm\nname: row\ndense_features: {}\nembedding_dim: {}\nbottom_mlp: [{}]\ntop_mlp: [{}]\n",
                  t.dense.value_or(kCriteoDense), *t.dim, list_of(t.bottom), list_of(t.top));
  if (t.cross_layers.value_or(0) > 0) {
    constexpr std::int64_t kUsualRank = 512;
    if (!t.cross_rank) notes.push_back(fmt::format("cross layers of rank {}", kUsualRank));
    text += fmt::format("interaction: cross\ncross_layers: {}\ncross_rank: {}\n", *t.cross_layers,
                        t.cross_rank.value_or(kUsualRank));
  }
  text += "tables:\n";
  const std::vector<std::int64_t> rows = rows_of(t, notes), hot = hot_of(t, notes);
  for (std::size_t i = 0; i < rows.size(); ++i)
    text += fmt::format("  - {{rows: {}, multi_hot: {}}}\n", rows[i], hot[i]);
  auto model = models::parse_model(text, s.id);
  if (!model) return fail("V01", model.error().front().message);
  return std::make_shared<const models::Model>(std::move(*model));
}

Result<plan::PlanSpec> recommender_spec(const Setup& s, const models::Recommender& model,
                                        const clusters::Cluster& cluster, const cost::Stack& stack,
                                        models::DType precision, std::vector<std::string>& notes) {
  plan::PlanSpec spec;
  spec.mesh.data = static_cast<int>(*s.gpus);
  spec.shape.batch = *s.batch;
  if (const std::int64_t over = spec.shape.batch % spec.mesh.data; over != 0) {
    spec.shape.batch += spec.mesh.data - over;
    notes.push_back(fmt::format("a batch of {}, divided among {} ranks", spec.shape.batch, spec.mesh.data));
  }
  spec.shape.micro_batch = spec.shape.batch / spec.mesh.data;
  spec.numerics.precision = precision;
  spec.states.optimizer = plan::OptimizerKind::sgd;
  spec.states.momentum = false;
  if (s.optimizer.find("ada") != std::string::npos) {
    spec.states.optimizer = plan::OptimizerKind::rowwise_adagrad;
    if (s.optimizer.find("adagrad") == std::string::npos)
      notes.push_back(fmt::format("optimizer '{}' is treated as row-wise Adagrad", s.optimizer));
  }
  spec.embedding.sharding = cost::number_of(stack, "stack.whole_tables", 0) != 0 ? plan::TableSharding::whole
                                                                                 : plan::TableSharding::automatic;
  bool known = s.tables.placement.empty();
  for (const plan::TableSharding one :
       {plan::TableSharding::automatic, plan::TableSharding::whole, plan::TableSharding::row,
        plan::TableSharding::column, plan::TableSharding::node_row, plan::TableSharding::grid,
        plan::TableSharding::replicated})
    if (s.tables.placement == plan::name_of(one)) {
      spec.embedding.sharding = one;
      known = true;
    }
  if (!known) return fail("V01", fmt::format("no placement of tables is called '{}'", s.tables.placement));
  spec.embedding.forward = pooled_of(s.tables.forward, precision);
  spec.embedding.backward = pooled_of(s.tables.backward, precision);
  spec.embedding.stored = s.tables.stored.empty() ? plan::PooledType::fp32 : pooled_of(s.tables.stored, precision);
  spec.embedding.skew = s.tables.skew.value_or(0);
  if (s.tables.staleness)
    spec.states.staleness = static_cast<int>(std::min<std::int64_t>(*s.tables.staleness, plan::kMostStaleness));
  // What was published ran with its tables on the devices, whatever their type was, unless these are too small; our own
  // runs may leave them.
  const double bytes = static_cast<double>(model.rows() * model.embedding_dim) *
                       static_cast<double>(models::size_of(plan::dtype_of(spec.embedding.stored)));
  const double room = cluster.devices.front().memory.value * static_cast<double>(*s.gpus);
  if (s.tables.model.empty() && bytes <= room) spec.embedding.tiers = plan::TableTiers({plan::TableTier{}});
  if (s.tables.model.empty() && bytes > room) notes.emplace_back("tables leave the devices, whose memory is too small");
  return spec;
}

Result<Subject> Translator::translate_tables(const Setup& s) {
  std::vector<std::string> notes;
  const auto [named, stands_in] = stack_of(s, notes);
  if (!named) return fail("V01", "there is no stack to treat it as");
  auto model = recommender_of(s, library_.models, notes);
  if (!model) return fail(model.error());
  auto cluster = cluster_of(s, notes);
  if (!cluster) return fail(cluster.error());
  const cost::Stack* stack = standing_for(*named, stands_in, s, **cluster, notes);
  const models::DType precision = precision_of(s, (*cluster)->device(), notes);
  auto spec = recommender_spec(s, *(*model)->recommender, **cluster, *stack, precision, notes);
  if (!spec) return fail(spec.error());
  auto plan = plan::make_plan(*model, *cluster, std::move(*spec));
  if (!plan) return fail(plan.error());
  const cost::MemoryQuestion memory{cost::memory_kind(s.memory_kind, stack->memory.reported)};
  return Subject{*model, priced(*cluster, *stack, ""), std::move(*plan), memory, stands_in, std::move(notes)};
}

}  // namespace orrery::sim
