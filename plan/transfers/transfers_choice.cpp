// The algorithms, one row each: its name, and how it reaches each goal.
#include <array>
#include <bit>

#include "base/ensure.h"
#include "plan/transfers/transfers.h"

namespace orrery::plan {

namespace {

using Shape = const GroupShape&;

/// How an algorithm reaches one goal.
struct Way {
  CollectiveSteps (*steps)(Shape) = nullptr;  ///< none: it does not
  bool power_of_two = false;                  ///< of members alone
  bool in_pieces = false;                     ///< the message is cut, and its pieces follow each other
};

struct AlgorithmRow {
  Algorithm algorithm{};
  const char* name = "";
  Way all_reduce = {}, all_gather = {}, reduce_scatter = {}, broadcast = {}, reduce = {}, all_to_all = {};
};

int nodes(Shape s) {
  return s.members / s.per_node;
}

template <CollectiveSteps (*kSteps)(int)>
constexpr Way of_members(bool power_of_two = false) {
  return {.steps = [](Shape s) { return kSteps(s.members); }, .power_of_two = power_of_two};
}
template <CollectiveSteps (*kSteps)(int, int)>
constexpr Way of_pieces() {
  return {.steps = [](Shape s) { return kSteps(s.members, s.pieces); }, .in_pieces = true};
}
template <CollectiveSteps (*kSteps)(int, int)>
constexpr Way of_nodes() {
  return {.steps = [](Shape s) { return kSteps(nodes(s), s.per_node); }};
}

constexpr std::array<AlgorithmRow, kAlgorithms> kRows = {{
    {.algorithm = Algorithm::ring,
     .name = "ring",
     .all_reduce = of_members<ring_all_reduce>(),
     .all_gather = of_members<ring_all_gather>(),
     .reduce_scatter = of_members<ring_reduce_scatter>(),
     .broadcast = of_pieces<ring_broadcast>(),
     .reduce = of_pieces<ring_reduce>()},
    {.algorithm = Algorithm::tree,
     .name = "tree",
     .all_reduce = {.steps =
                        [](Shape s) { return tree_all_reduce(double_binary_tree(nodes(s), s.per_node), s.pieces); },
                    .in_pieces = true}},
    {.algorithm = Algorithm::binomial,
     .name = "binomial",
     .broadcast = of_members<binomial_broadcast>(),
     .reduce = of_members<binomial_reduce>()},
    {.algorithm = Algorithm::halving_doubling,
     .name = "halving-doubling",
     .all_reduce = of_members<halving_doubling_all_reduce>(),
     .all_gather = of_members<doubling_all_gather>(true),
     .reduce_scatter = of_members<halving_reduce_scatter>(true)},
    {.algorithm = Algorithm::pat,
     .name = "pat",
     .all_gather = of_members<pat_all_gather>(),
     .reduce_scatter = of_members<pat_reduce_scatter>()},
    {.algorithm = Algorithm::nvls,
     .name = "nvls",
     .all_reduce = of_pieces<nvls_all_reduce>(),
     .all_gather = of_pieces<nvls_all_gather>(),
     .reduce_scatter = of_pieces<nvls_reduce_scatter>()},
    {.algorithm = Algorithm::direct,
     .name = "direct",
     .all_gather = of_members<direct_all_gather>(),
     .reduce_scatter = of_members<direct_reduce_scatter>(),
     .all_to_all = of_members<direct_all_to_all>()},
    {.algorithm = Algorithm::pairwise, .name = "pairwise", .all_to_all = of_members<pairwise_all_to_all>()},
    {.algorithm = Algorithm::hierarchical,
     .name = "hierarchical",
     .all_reduce = of_nodes<hierarchical_all_reduce>(),
     .all_gather = of_nodes<hierarchical_all_gather>(),
     .reduce_scatter = of_nodes<hierarchical_reduce_scatter>()},
}};

static_assert([] {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<std::size_t>(kRows[i].algorithm) != i) return false;
  return true;
}());

const AlgorithmRow& row_of(Algorithm algorithm) {
  return kRows[static_cast<std::size_t>(algorithm)];
}

const Way& way_of(Algorithm algorithm, Goal goal) {
  const AlgorithmRow& row = row_of(algorithm);
  switch (goal) {
    case Goal::all_reduce: return row.all_reduce;
    case Goal::all_gather: return row.all_gather;
    case Goal::reduce_scatter: return row.reduce_scatter;
    case Goal::broadcast: return row.broadcast;
    case Goal::reduce: return row.reduce;
    case Goal::all_to_all: return row.all_to_all;
  }
  return row.all_reduce;
}

}  // namespace

bool can(Algorithm algorithm, Goal goal, const GroupShape& shape) {
  const Way& way = way_of(algorithm, goal);
  return way.steps && (!way.power_of_two || std::has_single_bit(static_cast<unsigned>(shape.members)));
}

bool in_pieces(Algorithm algorithm, Goal goal) {
  return way_of(algorithm, goal).in_pieces;
}

CollectiveSteps steps_of(Algorithm algorithm, Goal goal, const GroupShape& shape) {
  ENSURE(can(algorithm, goal, shape), "{} over {} members by {}", name_of(goal), shape.members, name_of(algorithm));
  ENSURE(shape.members % shape.per_node == 0, "{} members, {} in a node", shape.members, shape.per_node);
  return way_of(algorithm, goal).steps(shape);
}

const char* name_of(Algorithm algorithm) {
  return row_of(algorithm).name;
}

}  // namespace orrery::plan
