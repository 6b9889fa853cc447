// Moves saved activations to the host and back.
#include "plan/lower/offload.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/ensure.h"
#include "base/index.h"
#include "plan/schedule/rewrite.h"

namespace orrery::plan {

namespace {

using base::at;

class Activations {
 public:
  Activations(RankClass& rank_class, int prefetch) : class_(rank_class), prefetch_(prefetch), rewrite_(rank_class) {
    for (const Block& block : class_.blocks) runs_.push_back(runs_of(block));
  }

  void run() {
    const base::ById<BufferId, Life> lives = lives_of(class_);
    // Backward needs the last layers' first: copies at one place come back in that order.
    std::vector<std::pair<Place, BufferId>> order;
    for (const BufferId b : lives.keys())
      if (saved(b)) order.emplace_back(first_of_backward(lives[b]), b);
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [first, b] : order) move(b, lives[b]);
    // Comes before copies at the same place, which free what they copy.
    for (const auto& [place, deaths] : released_) rewrite_.insert_before(place, release_of(deaths, Phase::forward));
    for (auto& [place, step] : leaving_) rewrite_.insert_after(place, std::move(step));
    rewrite_.apply();
  }

 private:
  // Where backward first uses it; the end of all places: nowhere.
  Place first_of_backward(const Life& life) {
    const auto first =
        std::find_if(life.uses.begin(), life.uses.end(), [&](const Place& p) { return of_backward(rewrite_.step(p)); });
    return first == life.uses.end() ? Place{std::numeric_limits<int>::max(), 0} : *first;
  }

  bool saved(BufferId buffer) const {
    return class_.buffers[buffer].per_micro_batch && class_.buffers[buffer].purpose == Purpose::activations;
  }

  void move(BufferId buffer, const Life& life) {
    const auto first =
        std::find_if(life.uses.begin(), life.uses.end(), [&](const Place& p) { return of_backward(rewrite_.step(p)); });
    if (first == life.uses.begin() || first == life.uses.end()) return;
    for (auto use = first; use != life.uses.end(); ++use)
      if (!rewrite_.step(*use).layer) return;  // of the head or the embedding, or a message
    const Place out = *std::prev(first);
    if (out.block >= first->block) return;
    const int run = run_at(runs_[at(first->block)], *first);
    if (run < 0 || (run <= prefetch_ && follows_at_once(out.block, first->block))) return;
    const BufferId host = copy_of(buffer, ".host", Space::host, true);
    const BufferId back = copy_of(buffer, ".fetched", Space::device, life.death.block != first->block);
    leave(buffer, host, out, life);
    come_back(buffer, host, back, *first, life);
  }

  BufferId copy_of(BufferId buffer, const char* suffix, Space space, bool per_micro_batch) {
    Buffer copy = class_.buffers[buffer];
    copy.name += suffix;
    copy.space = space;
    copy.per_micro_batch = per_micro_batch;
    return class_.buffers.append(std::move(copy));
  }

  // Copies from device to host after step `out`. Compute waits for memory to be freed, so a separate step frees it
  // after the next layer, which hides the copy. Without a next layer the copy itself frees it, and the next pass waits.
  void leave(BufferId buffer, BufferId host, const Place& out, const Life& life) {
    Step step = rewrite_.copy(Stream::to_host, buffer, host, rewrite_.step(out));
    step.part = "offload";
    step.births = {host};
    const Place release = behind_next_run(runs_[at(out.block)], out);
    if (release.step < 0)
      step.deaths = {buffer};
    else
      released_[release].push_back(buffer);
    class_.buffers[buffer].per_micro_batch = life.birth.block != out.block;
    leaving_.push_back({out, std::move(step)});
  }

  // Copies from host to device, `prefetch` layers ahead. The host's copy dies at the first compute step that reads the
  // fetched one.
  void come_back(BufferId buffer, BufferId host, BufferId back, const Place& first, const Life& life) {
    const std::vector<Run>& runs = runs_[at(first.block)];
    const int ahead = run_at(runs, first) - prefetch_;
    Step step = rewrite_.copy(Stream::from_host, host, back, rewrite_.step(first));
    step.part = "prefetch";
    step.births = {back};
    rewrite_.insert_before({first.block, ahead <= 0 ? 0 : runs[at(ahead)].first}, std::move(step));
    Place end = first;
    while (rewrite_.step(end).kind != StepKind::compute) ++end.step;
    rewrite_.step(end).deaths.push_back(host);
    for (const Place& use : life.uses)
      if (use >= first) rewrite_.replace(use, buffer, back);
    rewrite_.replace_death(life.death, buffer, back);
  }

  // Whether every backward pass comes right after its micro-batch's forward pass.
  bool follows_at_once(int forward, int backward) {
    const auto [known, fresh] = at_once_.try_emplace({forward, backward}, true);
    if (fresh) known->second = pairs_follow(forward, backward);
    return known->second;
  }
  bool pairs_follow(int forward, int backward) const {
    for (std::size_t e = 0; e < class_.program.size(); ++e) {
      if (class_.program[e].block != backward) continue;
      std::size_t before = e;
      while (before-- > 0 && runs_[at(class_.program[before].block)].empty()) {
      }
      if (before >= class_.program.size() || class_.program[before].block != forward ||
          class_.program[before].micro_batch != class_.program[e].micro_batch)
        return false;
    }
    return true;
  }

  RankClass& class_;
  int prefetch_;
  Rewrite rewrite_;
  std::vector<std::vector<Run>> runs_;           // by block
  std::map<std::pair<int, int>, bool> at_once_;  // by blocks of forward and backward
  std::map<Place, std::vector<BufferId>> released_;
  std::vector<std::pair<Place, Step>> leaving_;
};

}  // namespace

void offload_activations(RankClass& rank_class, int prefetch) {
  Activations(rank_class, prefetch).run();
}

}  // namespace orrery::plan
