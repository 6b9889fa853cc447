// Steps on a graph. Ends are members and switches of all collectives, numbered consecutively; transfers of one round
// between the same ends are merged.
#include "sim/collectives/replay_transfers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/ensure.h"
#include "sim/links/max_min.h"
#include "sim/links/symmetry.h"

namespace orrery::sim {

namespace {

std::size_t nth(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

struct Move {  // a transfer on the graph
  int from = 0, to = 0;
  double bytes = 0;
  const clusters::Paths::Path* path = nullptr;
  Picoseconds latency = 0, alone = 0;  // alone: time of the bytes at the bottleneck's rate
};

struct Turn {
  std::vector<Move> moves;
  int repeat = 1;
};

struct TransferProgram {
  std::vector<Turn> turns;
  int first_end = 0, ends = 0;
  Picoseconds start = 0;
};

Picoseconds ticks(double seconds) {
  return static_cast<Picoseconds>(std::llround(seconds / 1e-12));
}

TransferProgram make_program(const Placed& placed, clusters::Paths& paths, int first_end) {
  const plan::CollectiveSteps& steps = *placed.steps;
  ENSURE(placed.vertices.size() == nth(steps.members + steps.switches), "{} places for {} members and {} switches",
         placed.vertices.size(), steps.members, steps.switches);
  TransferProgram program{{}, first_end, steps.members + steps.switches, placed.start};
  std::unordered_map<std::int64_t, std::size_t> met;  // lookups only, never iterated
  for (const plan::Round& round : steps.rounds) {
    Turn& turn = program.turns.emplace_back();
    turn.repeat = round.repeat;
    turn.moves.reserve(round.transfers.size());
    met.clear();
    for (const plan::Transfer& t : round.transfers) {
      const double bytes = steps.share_of(t) * placed.message.value;
      const auto [place, fresh] =
          met.try_emplace(static_cast<std::int64_t>(t.from) * program.ends + t.to, turn.moves.size());
      if (!fresh) {
        turn.moves[place->second].bytes += bytes;
        continue;
      }
      turn.moves.push_back({first_end + t.from, first_end + t.to, bytes,
                            &paths.route(placed.vertices[nth(t.from)], placed.vertices[nth(t.to)]), 0, 0});
    }
    for (Move& move : turn.moves) {
      move.latency = ticks(move.path->latency.value);
      move.alone = move.path->links.empty() ? 0 : ticks(move.bytes / steady_rate(move.path->bandwidth.value));
    }
  }
  return program;
}

/// Whether any link could be full. Transfers of one end follow each other from round to round, so each sender (or
/// receiver) counts with its busiest round.
class Crowding {
 public:
  Crowding(const std::vector<TransferProgram>& programs, const std::vector<double>& bandwidths)
      : bandwidths_(bandwidths) {
    // Most links would not be full even if all their uses met at once.
    std::vector<double> together(bandwidths.size(), 0);
    std::vector<int> count(bandwidths.size(), 0);
    for_each_use(programs, [&](const Use& use, int link) {
      together[nth(link)] += use.bandwidth;
      ++count[nth(link)];
    });
    first_.assign(1, 0);
    for (std::size_t l = 0; l < bandwidths.size(); ++l) {
      if (together[l] <= bandwidths[l] * (1 + kRounding)) count[l] = 0;
      first_.push_back(first_.back() + nth(count[l]));
    }
    uses_.resize(first_.back());
    std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
    for_each_use(programs, [&](const Use& use, int link) {
      if (first_[nth(link)] < first_[nth(link) + 1]) uses_[next[nth(link)]++] = use;
    });
    most_.resize(programs.empty() ? 0 : nth(programs.back().first_end + programs.back().ends));
  }

  /// By link.
  [[nodiscard]] std::vector<bool> possible() {
    std::vector<bool> result(bandwidths_.size());
    for (std::size_t l = 0; l < bandwidths_.size(); ++l) result[l] = full<&Use::from>(l) && full<&Use::to>(l);
    return result;
  }

 private:
  static constexpr double kRounding = 1e-9;
  struct Use {
    int from = 0, to = 0, round = 0;
    double bandwidth = 0;
  };
  struct Most {  // the busiest round of an end on the link being checked
    std::int64_t inspection = 0;
    int round = 0;
    double now = 0, most = 0;
  };

  template <class Do>
  static void for_each_use(const std::vector<TransferProgram>& programs, const Do& act) {
    int round = 0;
    for (const TransferProgram& program : programs) {
      for (const Turn& turn : program.turns) {
        ++round;
        for (const Move& move : turn.moves) {
          const Use use{move.from, move.to, round, move.path->bandwidth.value};
          for (const int link : move.path->links) act(use, link);
        }
      }
    }
  }

  template <int Use::*end>
  bool full(std::size_t link) {
    double potential = 0;
    ++inspection_;
    for (std::size_t u = first_[link]; u < first_[link + 1]; ++u) {
      Most& own = most_[nth(uses_[u].*end)];
      if (own.inspection != inspection_) own = {inspection_, 0, 0, 0};
      if (own.round != uses_[u].round) own.now = 0;
      own.round = uses_[u].round;
      own.now += uses_[u].bandwidth;
      potential += std::max(0.0, own.now - own.most);
      own.most = std::max(own.most, own.now);
    }
    return potential > bandwidths_[link] * (1 + kRounding);
  }

  const std::vector<double>& bandwidths_;
  std::vector<Use> uses_;           // uses of links that could be full if all met, link by link, in the order of rounds
  std::vector<std::size_t> first_;  // start of each link in uses_
  std::vector<Most> most_;          // by end
  std::int64_t inspection_ = 0;
};

/// Each transfer at its own rate: when each end has finished each round.
Picoseconds recur(const TransferProgram& program, std::int64_t& transfers) {
  const std::size_t first = nth(program.first_end);
  std::vector<Picoseconds> ready(nth(program.ends), program.start), next = ready;
  for (const Turn& turn : program.turns) {
    std::vector<std::tuple<std::size_t, std::size_t, Picoseconds>> moves;
    for (const Move& m : turn.moves) moves.emplace_back(nth(m.from) - first, nth(m.to) - first, m.latency + m.alone);
    transfers += static_cast<std::int64_t>(moves.size()) * turn.repeat;
    for (int repeat = 0; repeat < turn.repeat; ++repeat) {
      for (const auto& [from, to, duration] : moves) {
        const Picoseconds end = std::max(ready[from], ready[to]) + duration;
        next[from] = std::max(next[from], end);
        next[to] = std::max(next[to], end);
      }
      // If this round shifted every end's time by the same amount, all following rounds will too.
      const Picoseconds shift = next.front() - ready.front();
      bool same = true;
      for (std::size_t e = 0; e < ready.size() && same; ++e) same = next[e] - ready[e] == shift;
      if (same) {
        for (Picoseconds& time : next) time += shift * (turn.repeat - 1 - repeat);
        repeat = turn.repeat;
      }
      ready = next;
    }
  }
  return *std::max_element(ready.begin(), ready.end());
}

/// The loads of a route. Links that can never be full are omitted; of several links crossed by the same routes only the
/// narrowest can be full. Neither changes a rate.
class Narrowed {
 public:
  Narrowed(const std::vector<TransferProgram>& programs, const std::vector<double>& bandwidths,
           std::vector<bool> can_be_full)
      : bandwidths_(bandwidths), can_be_full_(std::move(can_be_full)), crossed_(bandwidths.size()) {
    std::unordered_set<const clusters::Paths::Path*> met;  // lookups only, never iterated
    for (const TransferProgram& program : programs) {
      for (const Turn& turn : program.turns) {
        for (const Move& move : turn.moves) {
          if (met.insert(move.path).second) cross(*move.path, met.size());
        }
      }
    }
  }

  [[nodiscard]] std::vector<Load> loads(const clusters::Paths::Path& path) const {
    std::vector<Load> result;
    for (const int link : path.links) {
      if (!can_be_full_[nth(link)]) continue;
      const auto same = std::find_if(result.begin(), result.end(), [&](const Load& other) {
        return crossed_[nth(other.link)] == crossed_[nth(link)];
      });
      if (same == result.end()) {
        result.push_back({link, 1});
      } else if (std::tie(bandwidths_[nth(link)], link) < std::tie(bandwidths_[nth(same->link)], same->link)) {
        same->link = link;
      }
    }
    return result;
  }

 private:
  void cross(const clusters::Paths::Path& path, std::uint64_t number) {
    for (const int link : path.links) {
      if (!can_be_full_[nth(link)]) continue;
      crossed_[nth(link)].first += mix(0, number);
      crossed_[nth(link)].second += mix(1, number);
    }
  }

  const std::vector<double>& bandwidths_;
  std::vector<bool> can_be_full_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> crossed_;  // by link: hash of the routes that cross it
};

std::vector<Load> all_links(const clusters::Paths::Path& path) {
  std::vector<Load> loads;
  for (const int link : path.links) loads.push_back({link, 1});
  return loads;
}

class Playing {
 public:
  template <class LoadsOf>
  Playing(const std::vector<TransferProgram>& programs, const std::vector<double>& bandwidths, const LoadsOf& loads_of)
      : network_(bandwidths) {
    for (std::size_t p = 0; p < programs.size(); ++p) add(programs[p], static_cast<int>(p), loads_of);
    result_.ends.assign(programs.size(), 0);
    for (std::size_t p = 0; p < programs.size(); ++p) result_.ends[p] = programs[p].start;
  }

  TransferReplay run(const std::vector<TransferProgram>& programs) {
    // Programs are in the order of their starts.
    std::vector<std::size_t> order(programs.size());
    for (std::size_t p = 0; p < order.size(); ++p) order[p] = p;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return programs[a].start < programs[b].start; });
    for (const std::size_t p : order) {
      run_until(programs[p].start);
      for (int e = 0; e < programs[p].ends; ++e) enter(programs[p].first_end + e, programs[p].start);
    }
    run_until(std::numeric_limits<Picoseconds>::max());
    for (const End& end : ends_) ENSURE(end.turn == end.turns.size(), "an end stops in round {}", end.turn);
    return std::move(result_);
  }

 private:
  struct Job {
    const Move* move = nullptr;
    int program = 0;
    int path = 0;
    int repeat = 1;
    int arrived = 0;
  };
  struct End {
    std::vector<std::vector<int>> turns;  // jobs
    std::size_t turn = 0;
    int repeat = 0, open = 0;
  };

  template <class LoadsOf>
  void add(const TransferProgram& program, int number, const LoadsOf& loads_of) {
    ends_.resize(nth(program.first_end + program.ends));
    std::vector<int> last(nth(program.ends), -1);  // by end: the turn of its latest list
    int index = 0;
    for (const Turn& turn : program.turns) {
      for (const Move& move : turn.moves) {
        const int job = static_cast<int>(jobs_.size());
        const auto [path, fresh] = paths_.try_emplace(move.path, -1);
        if (fresh) path->second = network_.path(loads_of(*move.path), move.path->bandwidth.value);
        jobs_.push_back({&move, number, path->second, turn.repeat, 0});
        for (const int e : {move.from, move.to}) {
          End& end = ends_[nth(e)];
          if (last[nth(e - program.first_end)] != index) end.turns.emplace_back();
          last[nth(e - program.first_end)] = index;
          end.turns.back().push_back(job);
        }
      }
      ++index;
    }
  }

  /// An end begins its current round: it is ready for all its transfers in it.
  void enter(int index, Picoseconds now) {
    End& end = ends_[nth(index)];
    if (end.turn == end.turns.size()) return;
    const std::vector<int>& jobs = end.turns[end.turn];
    end.open = static_cast<int>(jobs.size());
    for (const int j : jobs) {
      Job& job = jobs_[nth(j)];
      if (++job.arrived < 2) continue;
      job.arrived = 0;
      const int flow = network_.start(now, job.path, job.move->bytes, job.move->latency);
      if (nth(flow) >= job_of_.size()) job_of_.resize(nth(flow) + 1);
      job_of_[nth(flow)] = j;
    }
  }

  void leave(int index, Picoseconds now, int repeats) {
    End& end = ends_[nth(index)];
    if (--end.open > 0) return;
    if (++end.repeat == repeats) {
      end.repeat = 0;
      ++end.turn;
    }
    enter(index, now);
  }

  void run_until(Picoseconds time) {
    for (auto next = network_.next(); next && *next <= time; next = network_.next()) {
      done_.clear();
      for (const auto& completion : network_.advance(*next)) done_.push_back(job_of_[nth(completion.flow)]);
      result_.transfers += static_cast<std::int64_t>(done_.size());
      for (const int j : done_) {
        const Job& job = jobs_[nth(j)];
        Picoseconds& last = result_.ends[nth(job.program)];
        last = std::max(last, *next);
        leave(job.move->from, *next, job.repeat);
        leave(job.move->to, *next, job.repeat);
      }
    }
  }

  FlowNetwork network_;
  std::unordered_map<const clusters::Paths::Path*, int> paths_;  // lookups only, never iterated
  std::vector<Job> jobs_;
  std::vector<End> ends_;
  std::vector<int> job_of_;  // by flow
  std::vector<int> done_;
  TransferReplay result_;
};

}  // namespace

Placed placed(const plan::CollectiveSteps& steps, const clusters::Paths& paths, const std::vector<int>& devices,
              base::Bytes message, const std::vector<int>& switches) {
  Placed result{&steps, {}, message, 0};
  for (const int device : devices) result.vertices.push_back(paths.vertex_of(device));
  result.vertices.insert(result.vertices.end(), switches.begin(), switches.end());
  return result;
}

TransferReplay replay_transfers(const std::vector<Placed>& collectives, clusters::Paths& paths, ReplayBy by) {
  std::vector<TransferProgram> programs;
  int ends = 0;
  for (const Placed& collective : collectives) {
    programs.push_back(make_program(collective, paths, ends));
    ends += programs.back().ends;
  }
  const std::vector<double>& bandwidths = paths.bandwidths();
  std::vector<bool> can_be_full = Crowding(programs, bandwidths).possible();
  const bool shared = std::find(can_be_full.begin(), can_be_full.end(), true) != can_be_full.end();
  TransferReplay result;
  if (by == ReplayBy::simulation) {
    result = Playing(programs, bandwidths, all_links).run(programs);
  } else if (shared) {
    const Narrowed narrowed(programs, bandwidths, std::move(can_be_full));
    const auto loads = [&](const clusters::Paths::Path& path) { return narrowed.loads(path); };
    result = Playing(programs, bandwidths, loads).run(programs);
  } else {
    for (const TransferProgram& program : programs) result.ends.push_back(recur(program, result.transfers));
  }
  result.shared = shared;
  return result;
}

}  // namespace orrery::sim
