// Recomputes rates by progressive filling at every event.
#include "cost/network/fluid.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/ensure.h"
#include "base/index.h"

namespace orrery::cost {

namespace {

using base::at;

constexpr double kSlack = 1e-9;  // tolerance for rounding errors

double slowest(const FluidMessage& m, const std::vector<double>& bandwidths) {
  double rate = std::numeric_limits<double>::infinity();
  for (const int link : *m.links) rate = std::min(rate, bandwidths[at(link)]);
  return rate;
}

/// Links that the ends on one side of the messages could fill.
std::vector<bool> full_by(int FluidMessage::*end, const std::vector<FluidRound>& rounds,
                          const std::vector<double>& bandwidths) {
  std::map<std::pair<int, int>, double> most;  // by link and end: bytes of its busiest round
  for (const FluidRound& round : rounds) {
    std::map<std::pair<int, int>, double> now;
    for (const FluidMessage& m : round.messages) {
      for (const int link : *m.links) now[{link, m.*end}] += slowest(m, bandwidths);
    }
    for (const auto& [key, rate] : now) most[key] = std::max(most[key], rate);
  }
  std::vector<double> potential(bandwidths.size(), 0);
  for (const auto& [key, rate] : most) potential[at(key.first)] += rate;
  std::vector<bool> full(bandwidths.size(), false);
  for (std::size_t l = 0; l < full.size(); ++l) full[l] = potential[l] > bandwidths[l] * (1 + kSlack);
  return full;
}

class Fluid {
 public:
  Fluid(const std::vector<FluidRound>& rounds, int ends, const std::vector<double>& bandwidths)
      : bandwidths_(bandwidths),
        todo_(at(ends)),
        left_(bandwidths.size(), 0),
        crossing_(bandwidths.size(), 0),
        full_(bandwidths.size(), false) {
    for (const FluidRound& round : rounds) {
      for (int repeat = 0; repeat < round.repeat; ++repeat) add(round);
    }
  }

  double run() {
    for (std::size_t e = 0; e < todo_.size(); ++e) enter(e);
    while (!waiting_.empty() || !moving_.empty()) {
      fill();
      step();
    }
    for (const End& end : todo_) ENSURE(end.next == end.rounds.size(), "an end stops in round {}", end.next);
    return now_;
  }

 private:
  struct State {
    const FluidMessage* message = nullptr;
    int arrived = 0;
    double left = 0;  // s of latency, then bytes
    double rate = 0;
    bool open = false;
  };
  struct End {
    std::vector<std::vector<std::size_t>> rounds;  // indices of the messages that it sends and receives
    std::size_t next = 0, busy = 0;
  };

  void add(const FluidRound& round) {
    std::vector<bool> met(todo_.size(), false);
    for (const FluidMessage& m : round.messages) {
      for (const int e : {m.from, m.to}) {
        if (!met[at(e)]) todo_[at(e)].rounds.emplace_back();
        met[at(e)] = true;
        todo_[at(e)].rounds.back().push_back(all_.size());
      }
      all_.push_back({&m, 0, m.latency, 0, false});
    }
  }

  void enter(std::size_t e) {
    End& end = todo_[e];
    if (end.next == end.rounds.size()) return;
    end.busy = end.rounds[end.next].size();
    for (const std::size_t m : end.rounds[end.next]) {
      if (++all_[m].arrived == 2) waiting_.push_back(m);
    }
  }

  void leave(int e) {
    End& end = todo_[at(e)];
    if (--end.busy > 0) return;
    ++end.next;
    enter(at(e));
  }

  /// Max-min fair rates: repeatedly, the link with the least share per message is full and fixes its messages.
  void fill() {
    std::vector<int> links;
    for (const std::size_t m : moving_) {
      all_[m].open = true;
      for (const int link : *all_[m].message->links) {
        if (crossing_[at(link)]++ > 0) continue;
        links.push_back(link);
        left_[at(link)] = bandwidths_[at(link)];
      }
    }
    for (std::size_t open = moving_.size(); open > 0;) {
      double level = std::numeric_limits<double>::infinity();
      for (const int link : links) {
        if (crossing_[at(link)] > 0) level = std::min(level, std::max(0.0, left_[at(link)]) / crossing_[at(link)]);
      }
      // Rounding must not separate messages that are fixed together.
      for (const int link : links)
        full_[at(link)] = crossing_[at(link)] > 0 && left_[at(link)] <= level * crossing_[at(link)] * (1 + kSlack);
      for (const std::size_t m : moving_) {
        State& state = all_[m];
        const auto& own = *state.message->links;
        if (!state.open || std::none_of(own.begin(), own.end(), [&](int link) { return full_[at(link)]; })) continue;
        state.open = false;
        state.rate = level;
        --open;
        for (const int link : own) {
          left_[at(link)] -= level;
          --crossing_[at(link)];
        }
      }
    }
  }

  void step() {
    double wait = std::numeric_limits<double>::infinity();
    for (const std::size_t m : waiting_) wait = std::min(wait, all_[m].left);
    for (const std::size_t m : moving_) wait = std::min(wait, all_[m].left / all_[m].rate);
    now_ += wait;
    std::vector<std::size_t> done;
    const auto pass = [&](std::vector<std::size_t>& list, const auto& ended) {
      std::erase_if(list, [&](std::size_t m) { return ended(all_[m]) && (done.push_back(m), true); });
    };
    pass(moving_, [&](State& s) { return (s.left -= wait * s.rate) <= s.message->bytes * kSlack; });
    const std::size_t arrived = done.size();
    pass(waiting_, [&](State& s) { return (s.left -= wait) <= s.message->latency * kSlack; });
    for (std::size_t i = arrived; i < done.size(); ++i) {  // these begin to move, or have nothing to send
      State& s = all_[done[i]];
      s.left = s.message->bytes;
      if (s.left > 0 && !s.message->links->empty()) moving_.push_back(done[i]);
    }
    for (std::size_t i = 0; i < done.size(); ++i) {
      const FluidMessage& m = *all_[done[i]].message;
      if (i >= arrived && m.bytes > 0 && !m.links->empty()) continue;
      leave(m.from);
      leave(m.to);
    }
  }

  const std::vector<double>& bandwidths_;
  std::vector<State> all_;
  std::vector<End> todo_;
  std::vector<std::size_t> waiting_, moving_;
  std::vector<double> left_;   // of each link, while filling
  std::vector<int> crossing_;  // open messages on each link, while filling
  std::vector<bool> full_;     // links that stop the filling
  double now_ = 0;
};

}  // namespace

bool crowded(const std::vector<FluidRound>& rounds, const std::vector<double>& bandwidths) {
  const std::vector<bool> by_sender = full_by(&FluidMessage::from, rounds, bandwidths);
  if (std::find(by_sender.begin(), by_sender.end(), true) == by_sender.end()) return false;
  const std::vector<bool> by_receiver = full_by(&FluidMessage::to, rounds, bandwidths);
  for (std::size_t l = 0; l < bandwidths.size(); ++l) {
    if (by_sender[l] && by_receiver[l]) return true;
  }
  return false;
}

bool in_step(const std::vector<FluidRound>& rounds, int ends, const std::vector<double>& bandwidths) {
  for (const FluidRound& round : rounds) {
    std::map<int, int> crowd;
    std::vector<bool> busy(at(ends), false);
    for (const FluidMessage& m : round.messages) {
      for (const int link : *m.links) ++crowd[link];
      busy[at(m.from)] = busy[at(m.to)] = true;
    }
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (const FluidMessage& m : round.messages) {
      double time = m.latency;
      for (const int link : *m.links) time = std::max(time, m.latency + m.bytes * crowd[link] / bandwidths[at(link)]);
      least = std::min(least, time);
      most = std::max(most, time);
    }
    if (most > least * (1 + kSlack) || std::find(busy.begin(), busy.end(), false) != busy.end()) return false;
  }
  return true;
}

double fluid_time(const std::vector<FluidRound>& rounds, int ends, const std::vector<double>& bandwidths) {
  return Fluid(rounds, ends, bandwidths).run();
}

}  // namespace orrery::cost
