// Collectives on trees, through a switch that reduces, and node by node.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/ensure.h"
#include "base/index.h"
#include "clusters/rings.h"
#include "plan/transfers/transfers.h"

namespace orrery::plan {

namespace {

using base::at;

/// Adds a transfer to a round; rounds that are missing up to it are added too.
void add(CollectiveSteps& steps, int round, const Transfer& transfer) {
  if (at(round) >= steps.rounds.size()) steps.rounds.resize(at(round) + 1);
  steps.rounds[at(round)].transfers.push_back(transfer);
}

std::vector<int> order_from_leaves(const Tree& tree) {
  std::vector<int> depth(tree.size(), 0), order;
  for (std::size_t v = 0; v < tree.size(); ++v) {
    for (int up = tree[v]; up >= 0; up = tree[at(up)])
      ENSURE(++depth[v] < static_cast<int>(tree.size()), "the tree is a circle");
    order.push_back(static_cast<int>(v));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return depth[at(a)] > depth[at(b)]; });
  return order;
}

/// One level of a hierarchy in every node, all rings in step: chunks j, j + per_node, ... belong to place j of a node.
/// A member that has sent one place's chunks sends those of the place before it next.
void within_nodes(CollectiveSteps& steps, int nodes, int per_node, bool reduce) {
  if (per_node < 2) return;
  Round round{{}, per_node - 1, -1};
  for (int member = 0; member < nodes * per_node; ++member) {
    const int place = member % per_node;
    const int part = (place + (reduce ? per_node - 1 : 0)) % per_node;
    round.transfers.push_back({member, member - place + (place + 1) % per_node, part, nodes, per_node, reduce});
  }
  steps.rounds.push_back(std::move(round));
}

/// Rings of equal places over all nodes: chunk i belongs to member i.
void across_nodes(CollectiveSteps& steps, int nodes, int per_node, bool reduce) {
  const int n = nodes * per_node;
  if (nodes < 2) return;
  Round round{{}, nodes - 1, -per_node};
  for (int member = 0; member < n; ++member) {
    const int part = (member + (reduce ? n - per_node : 0)) % n;
    round.transfers.push_back({member, (member + per_node) % n, part, 1, 1, reduce});
  }
  steps.rounds.push_back(std::move(round));
}

}  // namespace

std::vector<Tree> double_binary_tree(int n) {
  std::vector<Tree> trees;
  for (const auto& nodes : {clusters::binary_tree(n), clusters::second_binary_tree(n)}) {
    Tree& tree = trees.emplace_back();
    for (const clusters::TreeNode& node : nodes) tree.push_back(node.up);
  }
  return trees;
}

std::vector<Tree> double_binary_tree(int nodes, int per_node) {
  std::vector<Tree> result;
  for (const Tree& over_nodes : double_binary_tree(nodes)) {
    Tree tree;
    for (int v = 0; v < nodes * per_node; ++v) {
      const int up = over_nodes[at(v / per_node)];
      tree.push_back(v % per_node > 0 ? v - 1 : up < 0 ? -1 : up * per_node);
    }
    result.push_back(std::move(tree));
  }
  return result;
}

CollectiveSteps tree_all_reduce(const std::vector<Tree>& trees, int pieces) {
  ENSURE(!trees.empty(), "no trees");
  const int n = static_cast<int>(trees.front().size());
  CollectiveSteps steps = empty_steps(Goal::all_reduce, n, static_cast<int>(trees.size()) * pieces);
  for (std::size_t t = 0; t < trees.size(); ++t) {
    const Tree& tree = trees[t];
    const std::vector<int> order = order_from_leaves(tree);
    std::vector<int> up(tree.size(), 0),
        down(tree.size(), 0);  // rounds in which piece 0 goes up from, and comes down to
    for (const int v : order) {
      if (tree[at(v)] >= 0) up[at(tree[at(v)])] = std::max(up[at(tree[at(v)])], up[at(v)] + 1);
    }
    down[at(order.back())] = up[at(order.back())] - 1;
    for (auto v = order.rbegin(); v != order.rend(); ++v) {
      if (tree[at(*v)] >= 0) down[at(*v)] = down[at(tree[at(*v)])] + 1;
    }
    for (int piece = 0; piece < pieces; ++piece) {
      const int chunk = static_cast<int>(t) * pieces + piece;
      for (int v = 0; v < n; ++v) {
        if (tree[at(v)] < 0) continue;
        add(steps, piece + up[at(v)], {v, tree[at(v)], chunk, 1, 1, true});
        add(steps, piece + down[at(v)], {tree[at(v)], v, chunk, 1, 1, false});
      }
    }
  }
  return steps;
}

CollectiveSteps binomial_broadcast(int n) {
  CollectiveSteps steps = empty_steps(Goal::broadcast, n, 1);
  for (int distance = static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) / 2; distance >= 1; distance /= 2) {
    Round round;
    for (int i = 0; i + distance < n; i += 2 * distance) round.transfers.push_back({i, i + distance, 0, 1, 1, false});
    steps.rounds.push_back(std::move(round));
  }
  return steps;
}

CollectiveSteps binomial_reduce(int n) {
  CollectiveSteps steps = binomial_broadcast(n);
  steps.goal = Goal::reduce;
  std::reverse(steps.rounds.begin(), steps.rounds.end());
  for (Round& round : steps.rounds) {
    for (Transfer& t : round.transfers) {
      std::swap(t.from, t.to);
      t.reduce = true;
    }
  }
  return steps;
}

// Chunk of owner i in piece p: i pieces + p. The switch is member n.
CollectiveSteps nvls_all_reduce(int n, int pieces) {
  CollectiveSteps steps = empty_steps(Goal::all_reduce, n, n * pieces);
  steps.switches = 1;
  for (int p = 0; n > 1 && p < pieces; ++p) {
    for (int i = 0; i < n; ++i) {
      add(steps, p, {i, n, p, n, pieces, true});
      add(steps, p + 1, {n, i, i * pieces + p, 1, 1, false});
      add(steps, p + 2, {i, n, i * pieces + p, 1, 1, false});
      add(steps, p + 3, {n, i, p, n, pieces, false});
    }
  }
  return steps;
}

CollectiveSteps nvls_reduce_scatter(int n, int pieces) {
  CollectiveSteps steps = empty_steps(Goal::reduce_scatter, n, n * pieces);
  steps.switches = 1;
  for (int p = 0; n > 1 && p < pieces; ++p) {
    for (int i = 0; i < n; ++i) {
      add(steps, p, {i, n, p, n, pieces, true});
      add(steps, p + 1, {n, i, i * pieces + p, 1, 1, false});
    }
  }
  return steps;
}

CollectiveSteps nvls_all_gather(int n, int pieces) {
  CollectiveSteps steps = empty_steps(Goal::all_gather, n, n * pieces);
  steps.switches = 1;
  for (int p = 0; n > 1 && p < pieces; ++p) {
    for (int i = 0; i < n; ++i) {
      add(steps, p, {i, n, i * pieces + p, 1, 1, false});
      add(steps, p + 1, {n, i, p, n, pieces, false});
    }
  }
  return steps;
}

CollectiveSteps hierarchical_reduce_scatter(int nodes, int per_node) {
  CollectiveSteps steps = empty_steps(Goal::reduce_scatter, nodes * per_node, nodes * per_node);
  within_nodes(steps, nodes, per_node, true);
  across_nodes(steps, nodes, per_node, true);
  return steps;
}

CollectiveSteps hierarchical_all_gather(int nodes, int per_node) {
  CollectiveSteps steps = empty_steps(Goal::all_gather, nodes * per_node, nodes * per_node);
  across_nodes(steps, nodes, per_node, false);
  within_nodes(steps, nodes, per_node, false);
  return steps;
}

CollectiveSteps hierarchical_all_reduce(int nodes, int per_node) {
  CollectiveSteps steps = hierarchical_reduce_scatter(nodes, per_node);
  steps.goal = Goal::all_reduce;
  for (Round& round : hierarchical_all_gather(nodes, per_node).rounds) steps.rounds.push_back(std::move(round));
  return steps;
}

}  // namespace orrery::plan
