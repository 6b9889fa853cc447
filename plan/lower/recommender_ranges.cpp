/// The parameters of a recommendation model as ranges.
#include "plan/lower/recommender_ranges.h"

#include "plan/lower/lower_recommender.h"

namespace orrery::plan {

std::vector<ParameterRange> dense_ranges(const std::vector<models::DenseParameter>& parameters) {
  std::vector<ParameterRange> ranges;
  for (const models::DenseParameter& one : parameters)
    ranges.push_back(range_of_parameter(one.name, one.shape, one.initial_stddev));
  return ranges;
}

std::vector<ParameterRange> replicated_ranges(const TableLayout& layout, const models::Recommender& model) {
  std::vector<ParameterRange> ranges;
  for (const TableShard& shard : layout.replicated)
    ranges.push_back(range_of_parameter(models::table_name(shard.table), {shard.rows(), model.embedding_dim},
                                        models::table_stddev(model.tables[static_cast<std::size_t>(shard.table)])));
  return ranges;
}

}  // namespace orrery::plan
