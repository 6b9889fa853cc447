// Steps on a graph. Ends are members and switches of all collectives, numbered through; transfers of one round between
// the same ends are one.
#include "sim/replay_transfers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/ensure.h"
#include "base/index.h"
#include "sim/max_min.h"
#include "sim/symmetry.h"

namespace orrery::sim {

namespace {

using base::at;

struct Move {  // a transfer on the graph
  int from = 0, to = 0;
  double bytes = 0;
  const clusters::Paths::Path* path = nullptr;
  Picoseconds latency = 0, alone = 0;  // alone: of the bytes, at the bottleneck's pace
};

struct Turn {
  std::vector<Move> moves;
  int repeat = 1;
};

struct Program {
  std::vector<Turn> turns;
  int first_end = 0, ends = 0;
  Picoseconds start = 0;
};

Picoseconds ticks(double seconds) {
  return static_cast<Picoseconds>(std::llround(seconds / 1e-12));
}

Program make_program(const Placed& placed, clusters::Paths& paths, int first_end) {
  const plan::Steps& steps = *placed.steps;
  ENSURE(placed.vertices.size() == at(steps.members + steps.switches), "{} places for {} members and {} switches",
         placed.vertices.size(), steps.members, steps.switches);
  Program program{{}, first_end, steps.members + steps.switches, placed.start};
  std::unordered_map<std::int64_t, std::size_t> met;  // only looked up
  for (const plan::Round& round : steps.rounds) {
    ENSURE(round.repeat == 1 || steps.share.empty(), "a repeated round of unequal chunks");
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
                            &paths.route(placed.vertices[at(t.from)], placed.vertices[at(t.to)]), 0, 0});
    }
    for (Move& move : turn.moves) {
      move.latency = ticks(move.path->latency.value);
      move.alone = move.path->links.empty() ? 0 : ticks(move.bytes / steady_rate(move.path->bandwidth.value));
    }
  }
  return program;
}

/// Whether some link could be full: transfers of one end follow each other from round to round, so of each sender (or
/// of each receiver) its busiest round counts.
class Crowding {
 public:
  Crowding(const std::vector<Program>& programs, const std::vector<double>& bandwidths) : bandwidths_(bandwidths) {
    // Most links would not be full if everything met on them at once.
    std::vector<double> together(bandwidths.size(), 0);
    std::vector<int> count(bandwidths.size(), 0);
    for_each_use(programs, [&](const Use& use, int link) {
      together[at(link)] += use.bandwidth;
      ++count[at(link)];
    });
    first_.assign(1, 0);
    for (std::size_t l = 0; l < bandwidths.size(); ++l) {
      if (together[l] <= bandwidths[l] * (1 + kRounding)) count[l] = 0;
      first_.push_back(first_.back() + at(count[l]));
    }
    uses_.resize(first_.back());
    std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
    for_each_use(programs, [&](const Use& use, int link) {
      if (first_[at(link)] < first_[at(link) + 1]) uses_[next[at(link)]++] = use;
    });
    most_.resize(programs.empty() ? 0 : at(programs.back().first_end + programs.back().ends));
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
  struct Most {  // of an end on the link under inspection
    std::int64_t inspection = 0;
    int round = 0;
    double now = 0, most = 0;
  };

  template <class Do>
  static void for_each_use(const std::vector<Program>& programs, const Do& act) {
    int round = 0;
    for (const Program& program : programs) {
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
      Most& own = most_[at(uses_[u].*end)];
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
  std::vector<Use> uses_;  // of links that could be full if everything met, link by link, in the order of rounds
  std::vector<std::size_t> first_;  // of each link, in uses_
  std::vector<Most> most_;          // by end
  std::int64_t inspection_ = 0;
};

/// Every transfer at its own pace: when each end has finished each round.
Picoseconds recur(const Program& program, std::int64_t& transfers) {
  const std::size_t first = at(program.first_end);
  std::vector<Picoseconds> ready(at(program.ends), program.start), next = ready;
  for (const Turn& turn : program.turns) {
    std::vector<std::tuple<std::size_t, std::size_t, Picoseconds>> moves;
    for (const Move& m : turn.moves) moves.emplace_back(at(m.from) - first, at(m.to) - first, m.latency + m.alone);
    transfers += static_cast<std::int64_t>(moves.size()) * turn.repeat;
    for (int repeat = 0; repeat < turn.repeat; ++repeat) {
      for (const auto& [from, to, duration] : moves) {
        const Picoseconds end = std::max(ready[from], ready[to]) + duration;
        next[from] = std::max(next[from], end);
        next[to] = std::max(next[to], end);
      }
      // If this round only moved everybody's time by the same, so will all that follow.
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

/// What a route asks of links. Of those that can never be full nothing; and of several that the same routes cross only
/// the narrowest can be full. Neither changes a rate.
class Narrowed {
 public:
  Narrowed(const std::vector<Program>& programs, const std::vector<double>& bandwidths, std::vector<bool> can_be_full)
      : bandwidths_(bandwidths), can_be_full_(std::move(can_be_full)), crossed_(bandwidths.size()) {
    std::unordered_set<const clusters::Paths::Path*> met;  // only looked up
    for (const Program& program : programs) {
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
      if (!can_be_full_[at(link)]) continue;
      const auto same = std::find_if(result.begin(), result.end(),
                                     [&](const Load& other) { return crossed_[at(other.link)] == crossed_[at(link)]; });
      if (same == result.end()) {
        result.push_back({link, 1});
      } else if (std::tie(bandwidths_[at(link)], link) < std::tie(bandwidths_[at(same->link)], same->link)) {
        same->link = link;
      }
    }
    return result;
  }

 private:
  void cross(const clusters::Paths::Path& path, std::uint64_t number) {
    for (const int link : path.links) {
      if (!can_be_full_[at(link)]) continue;
      crossed_[at(link)].first += mix(0, number);
      crossed_[at(link)].second += mix(1, number);
    }
  }

  const std::vector<double>& bandwidths_;
  std::vector<bool> can_be_full_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> crossed_;  // by link: of the routes that cross it
};

std::vector<Load> all_links(const clusters::Paths::Path& path) {
  std::vector<Load> loads;
  for (const int link : path.links) loads.push_back({link, 1});
  return loads;
}

class Playing {
 public:
  template <class LoadsOf>
  Playing(const std::vector<Program>& programs, const std::vector<double>& bandwidths, const LoadsOf& loads_of)
      : network_(bandwidths) {
    for (std::size_t p = 0; p < programs.size(); ++p) add(programs[p], static_cast<int>(p), loads_of);
    result_.ends.assign(programs.size(), 0);
    for (std::size_t p = 0; p < programs.size(); ++p) result_.ends[p] = programs[p].start;
  }

  TransferReplay run(const std::vector<Program>& programs) {
    // Programs begin in the order of their starts.
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
  void add(const Program& program, int number, const LoadsOf& loads_of) {
    ends_.resize(at(program.first_end + program.ends));
    std::vector<int> last(at(program.ends), -1);  // the turn that an end's last list belongs to
    int index = 0;
    for (const Turn& turn : program.turns) {
      for (const Move& move : turn.moves) {
        const int job = static_cast<int>(jobs_.size());
        const auto [path, fresh] = paths_.try_emplace(move.path, -1);
        if (fresh) path->second = network_.path(loads_of(*move.path), move.path->bandwidth.value);
        jobs_.push_back({&move, number, path->second, turn.repeat, 0});
        for (const int e : {move.from, move.to}) {
          End& end = ends_[at(e)];
          if (last[at(e - program.first_end)] != index) end.turns.emplace_back();
          last[at(e - program.first_end)] = index;
          end.turns.back().push_back(job);
        }
      }
      ++index;
    }
  }

  /// An end begins the round that it stands at: it is ready for all its transfers there.
  void enter(int index, Picoseconds now) {
    End& end = ends_[at(index)];
    if (end.turn == end.turns.size()) return;
    const std::vector<int>& jobs = end.turns[end.turn];
    end.open = static_cast<int>(jobs.size());
    for (const int j : jobs) {
      Job& job = jobs_[at(j)];
      if (++job.arrived < 2) continue;
      job.arrived = 0;
      const int flow = network_.start(now, job.path, job.move->bytes, job.move->latency);
      if (at(flow) >= job_of_.size()) job_of_.resize(at(flow) + 1);
      job_of_[at(flow)] = j;
    }
  }

  void leave(int index, Picoseconds now, int repeats) {
    End& end = ends_[at(index)];
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
      for (const auto& completion : network_.advance(*next)) done_.push_back(job_of_[at(completion.flow)]);
      result_.transfers += static_cast<std::int64_t>(done_.size());
      for (const int j : done_) {
        const Job& job = jobs_[at(j)];
        Picoseconds& last = result_.ends[at(job.program)];
        last = std::max(last, *next);
        leave(job.move->from, *next, job.repeat);
        leave(job.move->to, *next, job.repeat);
      }
    }
  }

  FlowNetwork network_;
  std::unordered_map<const clusters::Paths::Path*, int> paths_;  // only looked up
  std::vector<Job> jobs_;
  std::vector<End> ends_;
  std::vector<int> job_of_;  // by flow
  std::vector<int> done_;
  TransferReplay result_;
};

}  // namespace

Placed placed(const plan::Steps& steps, const clusters::Paths& paths, const std::vector<int>& devices,
              base::Bytes message, const std::vector<int>& switches) {
  Placed result{&steps, {}, message, 0};
  for (const int device : devices) result.vertices.push_back(paths.vertex_of(device));
  result.vertices.insert(result.vertices.end(), switches.begin(), switches.end());
  return result;
}

TransferReplay replay_transfers(const std::vector<Placed>& collectives, clusters::Paths& paths, ReplayBy by) {
  std::vector<Program> programs;
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
    for (const Program& program : programs) result.ends.push_back(recur(program, result.transfers));
  }
  result.shared = shared;
  return result;
}

}  // namespace orrery::sim
