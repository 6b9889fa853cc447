// Steps on a graph. Ends are members and switches of all collectives, numbered through; transfers of one round between
// the same ends are one.
#include "sim/replay_transfers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "base/ensure.h"
#include "sim/max_min.h"

namespace orrery::sim {

namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

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
  explicit Crowding(const std::vector<double>& bandwidths) : bandwidths_(bandwidths) {}

  void add(const Program& program) {
    for (const Turn& turn : program.turns) {
      ++round_;
      for (const Move& move : turn.moves) {
        for (const int link : move.path->links)
          uses_.push_back({link, move.from, move.to, round_, move.path->bandwidth.value});
      }
    }
  }

  [[nodiscard]] bool possible() {
    std::vector<bool> full_by_sender = over<&Use::from>();
    if (std::find(full_by_sender.begin(), full_by_sender.end(), true) == full_by_sender.end()) return false;
    const std::vector<bool> full_by_receiver = over<&Use::to>();
    for (std::size_t l = 0; l < bandwidths_.size(); ++l) {
      if (full_by_sender[l] && full_by_receiver[l]) return true;
    }
    return false;
  }

 private:
  struct Use {
    int link = 0, from = 0, to = 0, round = 0;
    double bandwidth = 0;
  };

  template <int Use::*end>
  std::vector<bool> over() {
    std::sort(uses_.begin(), uses_.end(), [](const Use& a, const Use& b) {
      return std::tie(a.link, a.*end, a.round) < std::tie(b.link, b.*end, b.round);
    });
    std::vector<bool> full(bandwidths_.size(), false);
    for (std::size_t i = 0; i < uses_.size();) {
      const int link = uses_[i].link;
      double potential = 0;
      while (i < uses_.size() && uses_[i].link == link) {
        const int who = uses_[i].*end;
        double most = 0;
        while (i < uses_.size() && uses_[i].link == link && uses_[i].*end == who) {
          double in_round = 0;
          for (const int round = uses_[i].round;
               i < uses_.size() && uses_[i].link == link && uses_[i].*end == who && uses_[i].round == round; ++i) {
            in_round += uses_[i].bandwidth;
          }
          most = std::max(most, in_round);
        }
        potential += most;
      }
      full[at(link)] = potential > bandwidths_[at(link)] * (1 + 1e-9);
    }
    return full;
  }

  const std::vector<double>& bandwidths_;
  std::vector<Use> uses_;
  int round_ = 0;
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

class Simulation {
 public:
  Simulation(const std::vector<Program>& programs, const std::vector<double>& bandwidths) : network_(bandwidths) {
    for (std::size_t p = 0; p < programs.size(); ++p) add(programs[p], static_cast<int>(p));
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

  void add(const Program& program, int number) {
    ends_.resize(at(program.first_end + program.ends));
    std::vector<int> last(at(program.ends), -1);  // the turn that an end's last list belongs to
    int index = 0;
    for (const Turn& turn : program.turns) {
      for (const Move& move : turn.moves) {
        const int job = static_cast<int>(jobs_.size());
        std::vector<Load> loads;
        for (const int link : move.path->links) loads.push_back({link, 1});
        jobs_.push_back({&move, number, network_.path(std::move(loads)), turn.repeat, 0});
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
  Crowding crowding(paths.bandwidths());
  for (const Placed& collective : collectives) {
    programs.push_back(make_program(collective, paths, ends));
    ends += programs.back().ends;
    crowding.add(programs.back());
  }
  const bool shared = crowding.possible();
  TransferReplay result;
  if (shared || by == ReplayBy::simulation) {
    result = Simulation(programs, paths.bandwidths()).run(programs);
  } else {
    for (const Program& program : programs) result.ends.push_back(recur(program, result.transfers));
  }
  result.shared = shared;
  return result;
}

}  // namespace orrery::sim
