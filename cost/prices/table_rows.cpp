// The cost of each table at its place.
#include "cost/prices/table_rows.h"

#include <algorithm>

#include "plan/spec/table_hits.h"
#include "plan/spec/table_layout.h"
#include "plan/spec/table_planner.h"
#include "plan/spec/table_tiers.h"

namespace orrery::cost {
namespace {

// The operators of one part of a table: its lookups, and their update.
double compute_of(const plan::TableReport& report, const plan::Plan& plan, const Pricing& pricing) {
  const models::Recommender& model = *plan.model().recommender;
  const models::Table& table = model.tables[static_cast<std::size_t>(report.table)];
  const bool replicated = report.place.replicated;
  const int rows = replicated ? plan.spec().mesh.data : report.place.row_parts();
  models::Op op;
  op.kind = models::OpKind::embedding_bag;
  op.n = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(plan.spec().shape.batch) * table.mean_hot()) / rows);
  op.m = std::max<std::int64_t>(1, model.embedding_dim / report.place.columns);
  op.k = (replicated ? plan.spec().shape.batch / plan.spec().mesh.data : plan.spec().shape.batch) * op.m;
  double seconds = pricing.op_time(op).value;
  op.kind = models::OpKind::embedding_bag_update;
  op.rule = plan::traits_of(plan.spec().states.optimizer).rule;
  op.out = {0, 1, 2};
  seconds += pricing.op_time(op).value;
  return seconds;
}

double seconds_on(const clusters::LinkClass& link, double bytes) {
  return link.bandwidth.value > 0 ? bytes / link.bandwidth.value : 0;
}

// Where a part's bytes are, and what its cache is expected to do.
void describe_memory(TableRow& row, const plan::TableReport& report, const models::Recommender& model,
                     const plan::PlanSpec& spec) {
  const models::Table& table = model.tables[static_cast<std::size_t>(report.table)];
  const int columns = report.place.columns, parts = report.place.row_parts();
  const std::int64_t bytes = plan::row_bytes(model, spec, columns), rows = (table.rows + parts - 1) / parts;
  row.bytes = static_cast<double>(rows * bytes);
  const plan::TableTier tier = spec.embedding.tiers.of(static_cast<std::size_t>(report.table));
  if (tier.space == plan::Space::device) return;
  row.tier = plan::name_of(tier.space);
  const std::int64_t slots = plan::slots_of(model, spec, tier, rows, columns);
  row.cache_bytes = static_cast<double>(slots * bytes);
  const plan::CacheExpectation expected =
      plan::expect_hits(table.rows, spec.embedding.skew, static_cast<double>(spec.shape.batch) * table.mean_hot(),
                        static_cast<double>(slots) * parts);
  row.hit_rate = expected.hit_rate;
  row.fetched_bytes = expected.fetched / parts * static_cast<double>(bytes);
}

}  // namespace

void describe_tables(Prediction& prediction, const plan::Plan& plan, const Pricing& pricing) {
  const auto& model = plan.model().recommender;
  if (!model) return;
  const plan::PlanSpec& spec = plan.spec();
  const clusters::Cluster& cluster = pricing.cluster();
  const clusters::LinkClass& link =
      cluster.nodes > 1 && cluster.inter.bandwidth.value > 0 ? cluster.inter : cluster.intra;
  std::vector<double> loads(static_cast<std::size_t>(spec.mesh.data), 0);
  double everywhere = 0;
  for (const plan::TableReport& report : plan::describe_tables(*model, cluster, spec)) {
    TableRow row;
    row.table = models::table_name(report.table);
    row.rows = report.rows;
    row.sharding = plan::name_of(report.option.sharding);
    row.place = plan::text_of(report.place);
    row.compute_s = compute_of(report, plan, pricing);
    row.communication_s = seconds_on(link, report.option.network) + seconds_on(cluster.intra, report.option.within);
    row.bytes = report.option.memory;
    if (!report.place.replicated) describe_memory(row, report, *model, spec);
    prediction.tables.push_back(std::move(row));
    if (report.place.replicated)
      everywhere += report.option.load;
    else
      for (const int rank : report.place.ranks) loads[static_cast<std::size_t>(rank)] += report.option.load;
  }
  const double most = everywhere + *std::max_element(loads.begin(), loads.end());
  plan::PlanSpec free = spec;
  free.embedding.sharding = plan::TableSharding::automatic;
  const plan::TablePlan best = plan::plan_tables(plan::table_problem(*model, cluster, free), 0);
  if (best.lower_bound > 0) prediction.placement_gap = most / best.lower_bound - 1;
}

}  // namespace orrery::cost
