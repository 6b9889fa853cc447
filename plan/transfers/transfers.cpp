// Collectives on rings, on chains, by recursive halving, and with messages from each member to each. Trees, switches
// and hierarchies: transfers_tree.cpp.
#include "plan/transfers/transfers.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/ensure.h"

namespace orrery::plan {

namespace {

int modulo(int a, int n) {
  return ((a % n) + n) % n;
}

/// n-1 times: member i sends chunk i + offset on, then the one before it.
Round ring_round(int n, int offset, bool reduce) {
  Round round{{}, n - 1, -1};
  for (int i = 0; i < n; ++i) round.transfers.push_back({i, (i + 1) % n, modulo(i + offset, n), 1, 1, reduce});
  return round;
}

bool is_power_of_two(int n) {
  return std::has_single_bit(static_cast<unsigned>(n));
}

/// Rounds of recursive halving over 2^k blocks of the chunks; `member(i)` is the member that has part i.
template <class Member>
void halve(CollectiveSteps& steps, int parts, const Member& member) {
  const int block = steps.chunks / parts;
  for (int distance = parts / 2; distance >= 1; distance /= 2) {
    Round round;
    for (int i = 0; i < parts; ++i) {
      const int partner = i ^ distance;
      // The blocks that the partner will own, out of the range that both still share.
      const int first = partner / distance * distance;
      round.transfers.push_back({member(i), member(partner), first * block, distance * block, 1, true});
    }
    steps.rounds.push_back(std::move(round));
  }
}

template <class Member>
void redouble(CollectiveSteps& steps, int parts, const Member& member) {
  const int block = steps.chunks / parts;
  for (int distance = 1; distance < parts; distance *= 2) {
    Round round;
    for (int i = 0; i < parts; ++i) {
      const int first = i / distance * distance;
      round.transfers.push_back({member(i), member(i ^ distance), first * block, distance * block, 1, false});
    }
    steps.rounds.push_back(std::move(round));
  }
}

void exchange(Round& round, int members, int from, int to) {
  round.transfers.push_back({from, to, from * members + to, 1, 1, false});
}

}  // namespace

CollectiveSteps empty_steps(Goal goal, int members, int chunks) {
  ENSURE(members >= 1 && chunks >= 1, "{} members, {} chunks", members, chunks);
  CollectiveSteps steps;
  steps.goal = goal;
  steps.members = members;
  steps.chunks = chunks;
  return steps;
}

int CollectiveSteps::rounds_in_all() const {
  int count = 0;
  for (const Round& round : rounds) count += round.repeat;
  return count;
}

double CollectiveSteps::share_of(const Transfer& transfer) const {
  return static_cast<double>(transfer.count) / (goal == Goal::all_to_all ? members : chunks);
}

CollectiveSteps ring_reduce_scatter(int n) {
  CollectiveSteps steps = empty_steps(Goal::reduce_scatter, n, n);
  if (n > 1) steps.rounds = {ring_round(n, -1, true)};  // what comes last is one's own
  return steps;
}

CollectiveSteps ring_all_gather(int n) {
  CollectiveSteps steps = empty_steps(Goal::all_gather, n, n);
  if (n > 1) steps.rounds = {ring_round(n, 0, false)};
  return steps;
}

CollectiveSteps ring_all_reduce(int n) {
  CollectiveSteps steps = empty_steps(Goal::all_reduce, n, n);
  if (n > 1) steps.rounds = {ring_round(n, -1, true), ring_round(n, 0, false)};
  return steps;
}

CollectiveSteps ring_broadcast(int n, int pieces) {
  CollectiveSteps steps = empty_steps(Goal::broadcast, n, pieces);
  for (int r = 0; n > 1 && r < n - 2 + pieces; ++r) {
    Round round;
    for (int i = std::max(0, r - pieces + 1); i <= std::min(r, n - 2); ++i) {
      round.transfers.push_back({i, i + 1, r - i, 1, 1, false});
    }
    steps.rounds.push_back(std::move(round));
  }
  return steps;
}

CollectiveSteps ring_reduce(int n, int pieces) {
  CollectiveSteps steps = empty_steps(Goal::reduce, n, pieces);
  for (int r = 0; n > 1 && r < n - 2 + pieces; ++r) {
    Round round;
    for (int i = std::max(0, r - pieces + 1); i <= std::min(r, n - 2); ++i) {  // i hops from the far end
      round.transfers.push_back({n - 1 - i, n - 2 - i, r - i, 1, 1, true});
    }
    steps.rounds.push_back(std::move(round));
  }
  return steps;
}

CollectiveSteps halving_reduce_scatter(int n) {
  ENSURE(is_power_of_two(n), "recursive halving over {} members", n);
  CollectiveSteps steps = empty_steps(Goal::reduce_scatter, n, n);
  halve(steps, n, [](int i) { return i; });
  return steps;
}

CollectiveSteps doubling_all_gather(int n) {
  ENSURE(is_power_of_two(n), "recursive doubling over {} members", n);
  CollectiveSteps steps = empty_steps(Goal::all_gather, n, n);
  redouble(steps, n, [](int i) { return i; });
  return steps;
}

CollectiveSteps halving_doubling_all_reduce(int n) {
  const int parts = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  const int folded = n - parts;  // pairs (2i, 2i + 1), i < folded: the odd member sits out
  CollectiveSteps steps = empty_steps(Goal::all_reduce, n, parts);
  const auto member = [folded](int part) { return part < folded ? 2 * part : part + folded; };
  Round in, out;
  for (int i = 0; i < folded; ++i) {
    in.transfers.push_back({2 * i + 1, 2 * i, 0, parts, 1, true});
    out.transfers.push_back({2 * i, 2 * i + 1, 0, parts, 1, false});
  }
  if (folded > 0) steps.rounds.push_back(std::move(in));
  halve(steps, parts, member);
  redouble(steps, parts, member);
  if (folded > 0) steps.rounds.push_back(std::move(out));
  return steps;
}

// In the tree of a block, the member o after its owner (o a multiple of 2 distance) hands it to the one at o +
// distance.
CollectiveSteps pat_all_gather(int n) {
  CollectiveSteps steps = empty_steps(Goal::all_gather, n, n);
  for (int distance = static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) / 2; distance >= 1; distance /= 2) {
    const int count = (n - distance + 2 * distance - 1) / (2 * distance);
    Round round;
    for (int i = 0; i < n; ++i) round.transfers.push_back({i, (i + distance) % n, i, count, -2 * distance, false});
    steps.rounds.push_back(std::move(round));
  }
  return steps;
}

// The same trees backwards: a member that got a block in the gathering now gives its sum to where the block came from.
CollectiveSteps pat_reduce_scatter(int n) {
  CollectiveSteps steps = pat_all_gather(n);
  steps.goal = Goal::reduce_scatter;
  std::reverse(steps.rounds.begin(), steps.rounds.end());
  for (Round& round : steps.rounds) {
    for (Transfer& t : round.transfers) {
      std::swap(t.from, t.to);
      t.reduce = true;
    }
  }
  return steps;
}

CollectiveSteps direct_all_gather(int n) {
  CollectiveSteps steps = empty_steps(Goal::all_gather, n, n);
  Round round;
  for (int i = 0; i < n; ++i) {
    for (int r = 1; r < n; ++r) round.transfers.push_back({i, (i + r) % n, i, 1, 1, false});
  }
  if (n > 1) steps.rounds.push_back(std::move(round));
  return steps;
}

CollectiveSteps direct_reduce_scatter(int n) {
  CollectiveSteps steps = empty_steps(Goal::reduce_scatter, n, n);
  Round round;
  for (int i = 0; i < n; ++i) {
    for (int r = 1; r < n; ++r) round.transfers.push_back({i, (i + r) % n, (i + r) % n, 1, 1, true});
  }
  if (n > 1) steps.rounds.push_back(std::move(round));
  return steps;
}

CollectiveSteps direct_all_to_all(int n) {
  CollectiveSteps steps = empty_steps(Goal::all_to_all, n, n * n);
  Round round;
  for (int i = 0; i < n; ++i) {
    for (int r = 1; r < n; ++r) exchange(round, n, i, (i + r) % n);
  }
  if (n > 1) steps.rounds.push_back(std::move(round));
  return steps;
}

CollectiveSteps pairwise_all_to_all(int n) {
  CollectiveSteps steps = empty_steps(Goal::all_to_all, n, n * n);
  for (int r = 1; r < n; ++r) {
    Round& round = steps.rounds.emplace_back();
    for (int i = 0; i < n; ++i) exchange(round, n, i, (i + r) % n);
  }
  return steps;
}

const char* name_of(Goal goal) {
  switch (goal) {
    case Goal::all_reduce: return "all-reduce";
    case Goal::all_gather: return "all-gather";
    case Goal::reduce_scatter: return "reduce-scatter";
    case Goal::broadcast: return "broadcast";
    case Goal::reduce: return "reduce";
    case Goal::all_to_all: return "all-to-all";
  }
  return "";
}

}  // namespace orrery::plan
