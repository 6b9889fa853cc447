// Collectives run on symbols: a chunk is the set of members whose data it holds.
#include <fmt/core.h>

#include <map>
#include <utility>

#include "plan/transfers/transfers.h"

namespace orrery::plan {

namespace {

using Set = std::vector<bool>;  // by member; no data when none is in it

struct Symbols {
  const CollectiveSteps& steps;
  std::vector<std::vector<Set>> held;  // by member (then by switch), chunk

  explicit Symbols(const CollectiveSteps& s)
      : steps(s),
        held(static_cast<std::size_t>(s.members + s.switches),
             std::vector<Set>(static_cast<std::size_t>(s.chunks), Set(static_cast<std::size_t>(s.members)))) {
    for (int m = 0; m < s.members; ++m) {
      for (int c = 0; c < s.chunks; ++c) {
        if (starts_with(m, c)) set(m, c)[static_cast<std::size_t>(m)] = true;
      }
    }
  }

  Set& set(int member, int chunk) { return held[static_cast<std::size_t>(member)][static_cast<std::size_t>(chunk)]; }
  [[nodiscard]] int owner(int chunk) const { return chunk * steps.members / steps.chunks; }
  [[nodiscard]] bool starts_with(int member, int chunk) const {
    switch (steps.goal) {
      case Goal::all_reduce:
      case Goal::reduce:
      case Goal::reduce_scatter: return true;
      case Goal::broadcast: return member == steps.root;
      case Goal::all_gather:
      case Goal::all_to_all: return member == owner(chunk);
    }
    return false;
  }
  /// What a member must hold of a chunk in the end; nothing when it does not matter.
  [[nodiscard]] Set goal(int member, int chunk) const {
    Set none(static_cast<std::size_t>(steps.members)), one = none;
    const Set all(static_cast<std::size_t>(steps.members), true);
    switch (steps.goal) {
      case Goal::all_reduce: return all;
      case Goal::reduce: return member == steps.root ? all : none;
      case Goal::reduce_scatter: return member == owner(chunk) ? all : none;
      case Goal::broadcast: one[static_cast<std::size_t>(steps.root)] = true; return one;
      case Goal::all_gather: one[static_cast<std::size_t>(owner(chunk))] = true; return one;
      case Goal::all_to_all:
        if (chunk % steps.members != member) return none;
        one[static_cast<std::size_t>(owner(chunk))] = true;
        return one;
    }
    return none;
  }
};

/// One round: everything is read before anything is written.
std::string play(Symbols& symbols, const Round& round, int repeat) {
  const CollectiveSteps& steps = symbols.steps;
  enum Use { sent = 1, replaced = 2, added = 4 };
  std::map<std::pair<int, int>, int> used;  // (member, chunk) in this round
  std::map<std::pair<int, int>, Set> result;
  for (const Transfer& t : round.transfers) {
    const int ends = steps.members + steps.switches;
    if (t.from < 0 || t.to < 0 || t.from >= ends || t.to >= ends || t.from == t.to || t.count < 1)
      return fmt::format("a transfer of {} chunks from {} to {}", t.count, t.from, t.to);
    for (int k = 0; k < t.count; ++k) {
      const long index = t.first + static_cast<long>(k) * t.stride + static_cast<long>(repeat) * round.shift;
      const int chunk = static_cast<int>((index % steps.chunks + steps.chunks) % steps.chunks);
      const Set& data = symbols.set(t.from, chunk);
      if (data == Set(data.size())) return fmt::format("member {} sends chunk {}, which it lacks", t.from, chunk);
      used[{t.from, chunk}] |= sent;
      int& use = used[{t.to, chunk}];
      if (use & replaced || (!t.reduce && use & added))
        return fmt::format("member {} gets chunk {} twice", t.to, chunk);
      use |= t.reduce ? added : replaced;
      auto [place, fresh] = result.try_emplace({t.to, chunk}, symbols.set(t.to, chunk));
      if (!t.reduce) {
        place->second = data;
        continue;
      }
      for (std::size_t m = 0; m < data.size(); ++m) {
        if (data[m] && place->second[m])
          return fmt::format("member {} counts data of {} twice in chunk {}", t.to, m, chunk);
        if (data[m]) place->second[m] = true;
      }
    }
  }
  for (const auto& [where, use] : used) {
    if (use & sent && use != sent)
      return fmt::format("member {} sends and receives chunk {} in one round", where.first, where.second);
  }
  for (auto& [where, data] : result) symbols.set(where.first, where.second) = std::move(data);
  return "";
}

}  // namespace

std::string check_steps(const CollectiveSteps& steps) {
  Symbols symbols(steps);
  int number = 0;
  for (const Round& round : steps.rounds) {
    for (int repeat = 0; repeat < round.repeat; ++repeat, ++number) {
      if (const std::string wrong = play(symbols, round, repeat); !wrong.empty())
        return fmt::format("round {}: {}", number, wrong);
    }
  }
  for (int m = 0; m < steps.members; ++m) {
    for (int c = 0; c < steps.chunks; ++c) {
      const Set wanted = symbols.goal(m, c);
      if (wanted != Set(wanted.size()) && symbols.set(m, c) != wanted)
        return fmt::format("in the end member {} lacks the result of chunk {}", m, c);
    }
  }
  return "";
}

}  // namespace orrery::plan
