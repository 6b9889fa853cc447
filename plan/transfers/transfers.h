#pragma once
/// Collectives as steps: which member sends which part of the data to whom, in which round. Pure data, no seconds;
/// cost/network/algorithms.h prices the same algorithms in closed form, sim/collectives/replay_transfers.h replays them
/// on a graph.
///
/// Order. A transfer starts when both of its ends have finished all their transfers of earlier rounds; there is no
/// barrier beyond that. Within a round a member sends what it held when the round began, so it may not send and receive
/// the same chunk in one round. check_steps() proves both that this is kept and that the collective is computed.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::plan {

enum class Goal : std::uint8_t { all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all };

/// Chunks (first + k stride) mod CollectiveSteps::chunks, 0 <= k < count, from one member to another.
struct Transfer {
  std::int32_t from = 0, to = 0;  ///< members; members, members + 1 ... are switches that reduce and multicast
  std::int32_t first = 0, count = 1, stride = 1;
  bool reduce = false;  ///< the receiver adds it to what it holds; else it replaces that
  bool operator==(const Transfer&) const = default;
};

struct Round {
  std::vector<Transfer> transfers;
  int repeat = 1;  ///< this many times, with `shift` added to every `first` each time
  int shift = 0;
};

struct CollectiveSteps {
  Goal goal = Goal::all_reduce;
  int members = 1;
  int switches = 0;
  int root = 0;    ///< of broadcast and reduce
  int chunks = 1;  ///< equal pieces of the message. All-gather, reduce-scatter: member i has chunks from i
                   ///< chunks/members on. All-to-all: chunk i members + j goes from i to j.
  std::vector<Round> rounds = {};
  [[nodiscard]] int rounds_in_all() const;  ///< repeats counted
  /// Of the message; of an all-to-all that is all that one member sends, including its own part.
  [[nodiscard]] double share_of(const Transfer& transfer) const;
};

/// Members 0, 1, ... n-1 in a ring, n-1 rounds of 1/n (all-reduce: twice that). Patarasuk and Yuan 2009.
[[nodiscard]] CollectiveSteps ring_all_reduce(int members);
[[nodiscard]] CollectiveSteps ring_all_gather(int members);
[[nodiscard]] CollectiveSteps ring_reduce_scatter(int members);
/// Along the chain 0, 1, ... n-1 from (to) member 0, in `pieces` pieces that follow each other: n-2+pieces rounds.
[[nodiscard]] CollectiveSteps ring_broadcast(int members, int pieces);
[[nodiscard]] CollectiveSteps ring_reduce(int members, int pieces);

/// parent of each member; -1: the root.
using Tree = std::vector<int>;
/// The two trees of clusters/rings.h over 0..n-1: almost no member is inner in both. Sanders, Speck and Traeff 2009.
[[nodiscard]] std::vector<Tree> double_binary_tree(int members);
/// The same over the first members of `nodes` nodes with `per_node` members each; the rest of a node hangs from its
/// first member as a chain. Members of a node follow each other.
[[nodiscard]] std::vector<Tree> double_binary_tree(int nodes, int per_node);
/// Up every tree to its root and down again; each tree has its part of the message, in `pieces` pieces that follow each
/// other. A member sends a piece on when it has that piece from all its children.
[[nodiscard]] CollectiveSteps tree_all_reduce(const std::vector<Tree>& trees, int pieces);
/// Binomial trees from (to) member 0, the whole message at once: ceil(log2 n) rounds.
[[nodiscard]] CollectiveSteps binomial_broadcast(int members);
[[nodiscard]] CollectiveSteps binomial_reduce(int members);

/// Recursive halving, then doubling (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005). Members beyond the
/// largest power of two first give their data to a neighbour, and get the result back from it.
[[nodiscard]] CollectiveSteps halving_doubling_all_reduce(int members);
/// `members` is a power of two.
[[nodiscard]] CollectiveSteps doubling_all_gather(int members);
[[nodiscard]] CollectiveSteps halving_reduce_scatter(int members);

/// Parallel aggregated trees (NCCL 2.23, "PAT"): every member's binomial tree at once, the farthest neighbour first,
/// ceil(log2 n) rounds for any n; Bruck's algorithm (1997) with its distances reversed.
[[nodiscard]] CollectiveSteps pat_all_gather(int members);
[[nodiscard]] CollectiveSteps pat_reduce_scatter(int members);

/// Through one switch that reduces and multicasts (NVLink SHARP): all send up, the switch gives each sum to the member
/// that owns it, which sends it up again to be copied to all. In `pieces` pieces that follow each other.
[[nodiscard]] CollectiveSteps nvls_all_reduce(int members, int pieces);
[[nodiscard]] CollectiveSteps nvls_all_gather(int members, int pieces);
[[nodiscard]] CollectiveSteps nvls_reduce_scatter(int members, int pieces);

/// Every member to every other at once, in one round.
[[nodiscard]] CollectiveSteps direct_all_gather(int members);
[[nodiscard]] CollectiveSteps direct_reduce_scatter(int members);
/// A member's own part does not move.
[[nodiscard]] CollectiveSteps direct_all_to_all(int members);
/// n-1 rounds: in round r member i sends to i+r.
[[nodiscard]] CollectiveSteps pairwise_all_to_all(int members);

/// Reduce-scatter on a ring in every node, all-reduce on rings of counterparts across nodes, all-gather on a ring in
/// every node (BlueConnect; Cho et al. 2019). Members of a node follow each other.
[[nodiscard]] CollectiveSteps hierarchical_all_reduce(int nodes, int per_node);
[[nodiscard]] CollectiveSteps hierarchical_all_gather(int nodes, int per_node);
[[nodiscard]] CollectiveSteps hierarchical_reduce_scatter(int nodes, int per_node);

enum class Algorithm : std::uint8_t {
  ring,              ///< broadcast and reduce: a chain in pieces
  tree,              ///< double binary tree, in pieces
  binomial,          ///< broadcast and reduce
  halving_doubling,  ///< all-gather and reduce-scatter: powers of two
  pat,
  nvls,  ///< in pieces
  direct,
  pairwise,
  hierarchical
};
inline constexpr std::size_t kAlgorithms = static_cast<std::size_t>(Algorithm::hierarchical) + 1;

/// What an algorithm asks of a group besides its size. Members of a node follow each other.
struct GroupShape {
  int members = 1;
  int per_node = 1;  ///< for trees and hierarchies; divides members
  int pieces = 1;
};

/// Steps without rounds. At least one member and one chunk.
[[nodiscard]] CollectiveSteps empty_steps(Goal goal, int members, int chunks);

/// Whether the algorithm can reach the goal with such a group; and its steps, if it can.
[[nodiscard]] bool can(Algorithm algorithm, Goal goal, const GroupShape& shape);
[[nodiscard]] CollectiveSteps steps_of(Algorithm algorithm, Goal goal, const GroupShape& shape);
/// Whether it cuts the message into pieces that follow each other.
[[nodiscard]] bool in_pieces(Algorithm algorithm, Goal goal);

/// Runs the steps on symbols, where a chunk is the set of members whose data is in it. Empty when the goal is reached;
/// else what is wrong: a chunk sent that is not there, data counted twice, a chunk sent and received in one round, a
/// result that a member lacks. For tests: members x chunks x members bits.
[[nodiscard]] std::string check_steps(const CollectiveSteps& steps);

[[nodiscard]] const char* name_of(Goal goal);            ///< "all-reduce"
[[nodiscard]] const char* name_of(Algorithm algorithm);  ///< "halving-doubling"

}  // namespace orrery::plan
