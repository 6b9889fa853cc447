// Inserts steps and renames operands in a lowered class.
#include "plan/schedule/rewrite.h"

#include <algorithm>

#include "base/ensure.h"
#include "base/index.h"

namespace orrery::plan {

namespace {

using base::at;

void rename(std::vector<BufferId>& list, BufferId from, BufferId to) {
  std::replace(list.begin(), list.end(), from, to);
}

}  // namespace

base::ById<BufferId, Life> lives_of(const RankClass& rank_class) {
  base::ById<BufferId, Life> lives(rank_class.buffers.size());
  for (int b = 0; b < static_cast<int>(rank_class.blocks.size()); ++b)
    for (int s = 0; s < static_cast<int>(rank_class.blocks[at(b)].steps.size()); ++s) {
      const Step& step = rank_class.blocks[at(b)].steps[at(s)];
      const Place here{b, s};
      const auto use = [&](BufferId buffer) {
        std::vector<Place>& uses = lives[buffer].uses;
        if (uses.empty() || uses.back() != here) uses.push_back(here);
      };
      for (const BufferId buffer : step.reads) use(buffer);
      for (const BufferId buffer : step.writes) use(buffer);
      for (const BufferId buffer : step.births) lives[buffer].birth = here;
      for (const BufferId buffer : step.deaths) lives[buffer].death = here;
    }
  return lives;
}

std::vector<Run> runs_of(const Block& block) {
  const auto of_layers = [](const Step& step) {
    return step.kind == StepKind::compute &&
           (step.phase == Phase::forward || step.phase == Phase::backward || step.phase == Phase::recompute);
  };
  const bool layers = std::any_of(block.steps.begin(), block.steps.end(), of_layers);
  std::vector<Run> runs;
  for (int s = 0; s < static_cast<int>(block.steps.size()); ++s) {
    const Step& step = block.steps[at(s)];
    if (step.kind != StepKind::compute || step.ops.empty() || (layers && !of_layers(step))) continue;
    if (runs.empty() || !layers || runs.back().layer != step.layer) runs.push_back({step.layer, s, s});
    runs.back().last = s;
  }
  return runs;
}

int run_at(const std::vector<Run>& runs, const Place& place) {
  for (std::size_t r = 0; r < runs.size(); ++r)
    if (place.step <= runs[r].last) return static_cast<int>(r);
  return -1;
}

Place behind_next_run(const std::vector<Run>& runs, const Place& place) {
  for (std::size_t r = 0; r < runs.size(); ++r)
    if (runs[r].first > place.step) return {place.block, r + 1 < runs.size() ? runs[r + 1].first : runs[r].last + 1};
  return {place.block, -1};
}

Step release_of(std::vector<BufferId> buffers, Phase phase) {
  Step step{.kind = StepKind::compute, .stream = Stream::compute, .phase = phase, .part = "release"};
  step.deaths = std::move(buffers);
  return step;
}

Step Rewrite::copy(Stream stream, BufferId source, BufferId target, const Step& beside) const {
  Step step{.kind = StepKind::copy, .stream = stream, .phase = beside.phase, .layer = beside.layer};
  step.source = {source, 0, class_.buffers[source].elements};
  step.target = {target, 0, class_.buffers[target].elements};
  step.reads = {source};
  step.writes = {target};
  return step;
}

void Rewrite::replace(const Place& place, BufferId from, BufferId to) {
  Step& changed = step(place);
  const auto renamed = [&](int& v) {
    if (v < 0 || class_.views[at(v)].buffer != from) return;
    View view = class_.views[at(v)];
    view.buffer = to;
    class_.views.push_back(view);
    v = static_cast<int>(class_.views.size()) - 1;
  };
  for (models::Op& op : changed.ops) {
    for (int& v : op.in) renamed(v);
    for (int& v : op.out) renamed(v);
  }
  for (int* v : {&changed.counted.sent, &changed.counted.received, &changed.rows.list}) renamed(*v);
  for (View* view : {&changed.source, &changed.target})
    if (view->buffer == from) view->buffer = to;
  rename(changed.reads, from, to);
  rename(changed.writes, from, to);
}

void Rewrite::replace_death(const Place& place, BufferId from, BufferId to) {
  rename(step(place).deaths, from, to);
}

void Rewrite::apply() {
  std::vector<std::pair<Place, Step>*> sorted;
  sorted.reserve(insertions_.size());
  for (std::pair<Place, Step>& one : insertions_) sorted.push_back(&one);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  for (auto next = sorted.begin(); next != sorted.end();) {
    const int block = (*next)->first.block;
    std::vector<Step>& before = class_.blocks[at(block)].steps;
    std::vector<Step> steps;
    steps.reserve(before.size() + static_cast<std::size_t>(sorted.end() - next));
    for (int s = 0; s <= static_cast<int>(before.size()); ++s) {
      for (; next != sorted.end() && (*next)->first == Place{block, s}; ++next)
        steps.push_back(std::move((*next)->second));
      if (s < static_cast<int>(before.size())) steps.push_back(std::move(before[at(s)]));
    }
    ENSURE(next == sorted.end() || (*next)->first.block > block, "no place {} among {} steps", (*next)->first.step,
           before.size());
    before = std::move(steps);
  }
  insertions_.clear();
}

}  // namespace orrery::plan
