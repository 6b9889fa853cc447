// Steps by the name of their algorithm.
#include <bit>

#include "base/ensure.h"
#include "plan/transfers/transfers.h"

namespace orrery::plan {

bool can(Algorithm algorithm, Goal goal, const GroupShape& shape) {
  const bool scatters = goal == Goal::all_gather || goal == Goal::reduce_scatter;
  const bool rooted = goal == Goal::broadcast || goal == Goal::reduce;
  switch (algorithm) {
    case Algorithm::ring: return goal != Goal::all_to_all;
    case Algorithm::tree: return goal == Goal::all_reduce;
    case Algorithm::binomial: return rooted;
    case Algorithm::halving_doubling:
      return goal == Goal::all_reduce || (scatters && std::has_single_bit(static_cast<unsigned>(shape.members)));
    case Algorithm::pat: return scatters;
    case Algorithm::nvls:
    case Algorithm::hierarchical: return scatters || goal == Goal::all_reduce;
    case Algorithm::direct: return scatters || goal == Goal::all_to_all;
    case Algorithm::pairwise: return goal == Goal::all_to_all;
  }
  return false;
}

namespace {

Steps gather_or(Goal goal, Steps (*gather)(int), Steps (*scatter)(int), int n) {
  return goal == Goal::all_gather ? gather(n) : scatter(n);
}

}  // namespace

Steps steps_of(Algorithm algorithm, Goal goal, const GroupShape& shape) {
  const int n = shape.members;
  ENSURE(can(algorithm, goal, shape), "{} over {} members by {}", name_of(goal), n, name_of(algorithm));
  ENSURE(n % shape.per_node == 0, "{} members, {} in a node", n, shape.per_node);
  const int nodes = n / shape.per_node;
  switch (algorithm) {
    case Algorithm::ring:
      if (goal == Goal::all_reduce) return ring_all_reduce(n);
      if (goal == Goal::broadcast) return ring_broadcast(n, shape.pieces);
      if (goal == Goal::reduce) return ring_reduce(n, shape.pieces);
      return gather_or(goal, ring_all_gather, ring_reduce_scatter, n);
    case Algorithm::tree: return tree_all_reduce(double_binary_tree(nodes, shape.per_node), shape.pieces);
    case Algorithm::binomial: return goal == Goal::broadcast ? binomial_broadcast(n) : binomial_reduce(n);
    case Algorithm::halving_doubling:
      if (goal == Goal::all_reduce) return halving_doubling_all_reduce(n);
      return gather_or(goal, doubling_all_gather, halving_reduce_scatter, n);
    case Algorithm::pat: return gather_or(goal, pat_all_gather, pat_reduce_scatter, n);
    case Algorithm::nvls:
      if (goal == Goal::all_reduce) return nvls_all_reduce(n, shape.pieces);
      return goal == Goal::all_gather ? nvls_all_gather(n, shape.pieces) : nvls_reduce_scatter(n, shape.pieces);
    case Algorithm::direct:
      if (goal == Goal::all_to_all) return direct_all_to_all(n);
      return gather_or(goal, direct_all_gather, direct_reduce_scatter, n);
    case Algorithm::pairwise: return pairwise_all_to_all(n);
    case Algorithm::hierarchical:
      if (goal == Goal::all_reduce) return hierarchical_all_reduce(nodes, shape.per_node);
      return goal == Goal::all_gather ? hierarchical_all_gather(nodes, shape.per_node)
                                      : hierarchical_reduce_scatter(nodes, shape.per_node);
  }
  return {};
}

const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::ring: return "ring";
    case Algorithm::tree: return "tree";
    case Algorithm::binomial: return "binomial";
    case Algorithm::halving_doubling: return "halving-doubling";
    case Algorithm::pat: return "pat";
    case Algorithm::nvls: return "nvls";
    case Algorithm::direct: return "direct";
    case Algorithm::pairwise: return "pairwise";
    case Algorithm::hierarchical: return "hierarchical";
  }
  return "";
}

}  // namespace orrery::plan
