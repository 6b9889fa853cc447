// Optimizer states, gradients and parameters outside the device. In order: buffers get their memories, the optimizer's
// steps are divided between device and host, gradients get a buffer per layer, and every other access to another memory
// goes through a staged copy.
#include <algorithm>
#include <map>
#include <tuple>

#include "base/ensure.h"
#include "base/index.h"
#include "models/operators/operators.h"
#include "plan/lower/offload.h"
#include "plan/lower/offload_divide.h"
#include "plan/schedule/rewrite.h"

namespace orrery::plan {

namespace {

using base::at;

using models::Op;
using models::OpKind;

Space space_of(Purpose purpose, const Offload& offload) {
  if (purpose == Purpose::parameters) return offload.parameters;
  if (purpose == Purpose::optimizer_states) return offload.optimizer;
  return purpose == Purpose::gradients && offload.optimizer != Space::device ? Space::host : Space::device;
}

// What one step does with one buffer.
struct Use {
  int step = -1;
  bool reads = false, writes = false;
  std::vector<View> views;
};

// Copies between memories, where they come, and what they free: noted while steps are walked through, written at the
// end.
class StateCopies {
 public:
  explicit StateCopies(RankClass& rank_class) : made(rank_class), rewrite(rank_class) {
    for (const Block& block : made.blocks) runs_.push_back(runs_of(block));
  }

  RankClass& made;
  Rewrite rewrite;

  [[nodiscard]] const std::vector<Run>& runs(int block) const { return runs_[at(block)]; }
  Buffer& buffer(BufferId index) { return made.buffers[index]; }
  BufferId new_buffer(const Buffer& like, const std::string& suffix, std::int64_t elements, Space space) {
    Buffer one = like;
    one.name += suffix;
    one.elements = elements;
    one.space = space;
    one.persistent = one.per_micro_batch = false;
    return made.buffers.append(std::move(one));
  }
  int new_view(const View& view) {
    made.views.push_back(view);
    return static_cast<int>(made.views.size()) - 1;
  }
  View whole(BufferId index) const { return {index, 0, made.buffers[index].elements}; }

  void add(const Place& place, Step copy) { copies_.push_back({place, std::move(copy)}); }
  // Frees buffers at a place, before or after the copies there.
  void release(const Place& place, const std::vector<BufferId>& buffers) {
    std::vector<BufferId>& released = released_[place];
    released.insert(released.end(), buffers.begin(), buffers.end());
  }
  void release_last(const Place& place, std::vector<BufferId> buffers) { last_[place] = std::move(buffers); }

  // The source of a copy is freed after the next run; if there is none, by the copy.
  void free_behind(int block, int step, BufferId index, Step& copy) {
    const Place release = behind_next_run(runs(block), {block, step});
    if (release.step < 0)
      copy.deaths.push_back(index);
    else
      this->release(release, {index});
  }

  void apply() {
    free_at(released_);
    for (auto& [place, step] : copies_) rewrite.insert_before(place, std::move(step));
    free_at(last_);
    rewrite.apply();
  }

 private:
  using Freed = std::map<Place, std::vector<BufferId>>;
  void free_at(const Freed& freed) {
    for (const auto& [place, deaths] : freed)
      rewrite.insert_before(place, release_of(deaths, made.blocks[at(place.block)].steps.front().phase));
  }

  std::vector<std::vector<Run>> runs_;  // by block
  Freed released_, last_;
  std::vector<std::pair<Place, Step>> copies_;
};

Step state_copy(Stream stream, const View& source, const View& target, const Step& beside, const char* part) {
  Step step{.kind = StepKind::copy, .stream = stream, .phase = beside.phase, .layer = beside.layer};
  step.bucket = beside.bucket;
  step.part = part;
  step.source = source;
  step.target = target;
  step.reads = {source.buffer};
  step.writes = {target.buffer};
  return step;
}

std::vector<Stream> way(Space from, Space to) {
  if (from == Space::device) {
    if (to == Space::host) return {Stream::to_host};
    return {Stream::to_host, Stream::to_nvme};
  }
  if (from == Space::host) return {to == Space::device ? Stream::from_host : Stream::to_nvme};
  if (to == Space::host) return {Stream::from_nvme};
  return {Stream::from_nvme, Stream::from_host};
}

// The copies that a compute step was divided into free nothing while they run.
void free_late(StateCopies& to, int block) {
  std::vector<Step>& steps = to.made.blocks[at(block)].steps;
  for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
    if (steps[at(s)].kind != StepKind::copy) continue;
    for (const BufferId index : std::exchange(steps[at(s)].deaths, {})) to.free_behind(block, s, index, steps[at(s)]);
  }
}

// Passes over layers add to a sum on the host: each layer's part is made on the device and added after the layer. By
// sum: the step after which it is added last.
std::map<BufferId, int> sum_on_host(StateCopies& to, int block) {
  std::map<BufferId, int> added;
  std::vector<Step>& steps = to.made.blocks[at(block)].steps;
  for (const Run& run : to.runs(block)) {
    std::map<BufferId, int> last;  // by sum: its last step in the run
    for (int s = run.first; s <= run.last; ++s) {
      if (steps[at(s)].kind != StepKind::compute || !of_layers(steps[at(s)])) continue;
      for (const BufferId index : steps[at(s)].writes)
        if (to.buffer(index).persistent && to.buffer(index).purpose == Purpose::gradients &&
            to.buffer(index).space == Space::host)
          last[index] = s;
    }
    for (const auto& [sum, end] : last) {
      const BufferId made = to.new_buffer(to.buffer(sum), ".made", to.buffer(sum).elements, Space::device);
      bool first = true;
      for (int s = run.first; s <= end; ++s) {
        Step& step = steps[at(s)];
        if (std::find(step.writes.begin(), step.writes.end(), sum) == step.writes.end()) continue;
        to.rewrite.replace({block, s}, sum, made);
        if (!std::exchange(first, false)) continue;
        Op zero;
        zero.kind = OpKind::fill_zero;
        zero.dtype = to.buffer(made).dtype;
        zero.m = to.buffer(made).elements;
        zero.out = {to.new_view(to.whole(made))};
        step.ops.insert(step.ops.begin(), std::move(zero));
        step.births.push_back(made);
      }
      added[sum] = end;
      Step copy = to.rewrite.copy(Stream::to_host, made, sum, steps[at(end)]);
      copy.part = "add_gradients";
      copy.accumulate = true;
      to.free_behind(block, end, made, copy);
      to.add({block, end + 1}, std::move(copy));
    }
  }
  return added;
}

// What steps of a block use of another memory: copies in their own stand in for it.
class StandIns {
 public:
  StandIns(StateCopies& to, int block, int prefetch) : to_(to), block_(block), prefetch_(prefetch) {}

  /// Uses that share one staged copy: those of one run over a layer, or those until the buffer is written.
  /// `written`: by buffer, the last step so far that writes it.
  void stage(std::map<BufferId, int> written) {
    std::vector<Step>& steps = block_steps();
    std::map<std::tuple<BufferId, Space, int>, std::vector<Use>> clusters;
    std::vector<std::tuple<BufferId, Space, int>> order;
    std::map<BufferId, int> version;  // by buffer
    std::map<std::tuple<BufferId, Space, int>, int> last_write;
    find_travelling();
    for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
      const Step& step = steps[at(s)];
      if (step.kind == StepKind::copy) {
        ++version[step.target.buffer];
        written[step.target.buffer] = s;
        continue;
      }
      if (!uses_travelling(step)) continue;
      const bool layered = step.kind == StepKind::compute && of_layers(step);
      for (const auto& [index, use] : uses_of(s, step)) {
        const Space space = memory_of(step);
        if (to_.buffer(index).space != space) {
          const int part = layered ? run_at(to_.runs(block_), {block_, s}) : kVersions + version[index];
          const auto key = std::make_tuple(index, space, part);
          if (clusters[key].empty()) {
            order.push_back(key);
            last_write[key] = written.contains(index) ? written.at(index) : -1;
          }
          clusters[key].push_back(use);
        }
        if (!use.writes) continue;
        ++version[index];
        written[index] = s;
      }
    }
    for (const auto& key : order) stand_in(std::get<0>(key), std::get<1>(key), clusters.at(key), last_write.at(key));
    if (collectives_.empty() || collectives_.back().buffers.empty()) return;
    to_.release_last({block_, first_compute_behind(collectives_.back().step)}, collectives_.back().buffers);
  }

 private:
  static Space memory_of(const Step& step) { return step.on_host ? Space::host : Space::device; }
  std::vector<Step>& block_steps() const { return to_.made.blocks[at(block_)].steps; }

  // Buffers that some step of the block uses from another memory.
  void find_travelling() {
    travelling_.assign(to_.made.buffers.size(), false);
    for (const Step& step : block_steps()) {
      if (step.kind == StepKind::copy) continue;
      for (const std::vector<BufferId>* list : {&step.reads, &step.writes})
        for (const BufferId index : *list)
          if (to_.buffer(index).space != memory_of(step)) travelling_[index] = true;
    }
  }
  bool uses_travelling(const Step& step) const {
    const auto travels = [&](BufferId index) { return travelling_[index]; };
    return std::any_of(step.reads.begin(), step.reads.end(), travels) ||
           std::any_of(step.writes.begin(), step.writes.end(), travels);
  }

  // Of those buffers alone.
  std::map<BufferId, Use> uses_of(int s, const Step& step) const {
    std::map<BufferId, Use> uses;
    const auto use = [&](const View& view, bool reads, bool writes) {
      if (!travelling_[view.buffer]) return;
      Use& one = uses[view.buffer];
      one.step = s;
      one.reads |= reads;
      one.writes |= writes;
      one.views.push_back(view);
    };
    for (const Op& op : step.ops) {
      for (const int v : op.in)
        if (v >= 0) use(to_.made.views[at(v)], true, false);
      for (std::size_t i = 0; i < op.out.size(); ++i)
        if (op.out[i] >= 0) use(to_.made.views[at(op.out[i])], !models::only_writes(op, i), true);
    }
    const bool in_place = step.kind == StepKind::collective && step.collective == CollectiveKind::all_reduce;
    if (step.kind == StepKind::collective || step.kind == StepKind::send) use(step.source, true, in_place);
    if ((step.kind == StepKind::collective && !in_place) || step.kind == StepKind::recv) use(step.target, false, true);
    return uses;
  }

  // The first compute step after `step`, or the end of its block.
  int first_compute_behind(int step) const {
    const std::vector<Step>& steps = block_steps();
    int s = step + 1;
    while (s < static_cast<int>(steps.size()) && steps[at(s)].kind != StepKind::compute) ++s;
    return s;
  }

  void stand_in(BufferId index, Space space, const std::vector<Use>& uses, int written) {
    std::vector<Step>& steps = block_steps();
    bool alike = true, reads = false, writes = false;
    const View& first = uses.front().views.front();
    for (const Use& use : uses) {
      for (const View& view : use.views) alike = alike && view == first;
      reads = reads || use.reads;
      writes = writes || use.writes;
    }
    const View extent = alike ? first : to_.whole(index);
    const BufferId here =
        to_.new_buffer(to_.buffer(index), std::string(".on_") + name_of(space), extent.elements, space);
    for (const Use& use : uses) rename(steps[at(use.step)], index, here, alike);
    const int begin = uses.front().step, end = uses.back().step;
    const Place death = death_of(end);
    std::vector<BufferId> staged;  // on their way in
    if (reads || !alike) {
      const int before = in_a_row(begin) ? std::max(written + 1, collectives_.empty() ? 0 : collectives_.back().step)
                                         : come_before(begin, written);
      const Place place{block_, std::min(before, begin)};
      BufferId from = index;
      View view = extent;
      for (const Stream stream : way(to_.buffer(index).space, space)) {
        const bool there = direction_of(stream).to == space;
        const BufferId to =
            there ? here : to_.new_buffer(to_.buffer(here), ".staged", extent.elements, direction_of(stream).to);
        Step fetch = state_copy(stream, view, to_.whole(to), steps[at(begin)], "fetch");
        fetch.births = {to};
        to_.add(place, std::move(fetch));
        if (!there) staged.push_back(to);
        from = to;
        view = to_.whole(from);
      }
    } else {
      steps[at(begin)].births.push_back(here);
    }
    if (!writes) staged.push_back(here);
    for (const BufferId one : staged) {
      ENSURE(death.step >= 0, "buffer {} is fetched for nobody", to_.buffer(one).name);
      steps[at(death.step)].deaths.push_back(one);
    }
    if (writes) write_back(end, here, extent, space);
    if (!in_a_row(begin)) return;
    if (!collectives_.empty() && !collectives_.back().buffers.empty()) {
      to_.release({block_, end + 1}, std::exchange(collectives_.back().buffers, {}));
    }
    if (collectives_.empty() || collectives_.back().step != begin) collectives_.push_back({begin, {}});
    collectives_.back().buffers = std::exchange(row_, {});
  }

  void write_back(int end, BufferId here, const View& extent, Space space) {
    std::vector<Step>& steps = block_steps();
    BufferId from = here;
    for (const Stream stream : way(space, to_.buffer(extent.buffer).space)) {
      const bool there = direction_of(stream).to == to_.buffer(extent.buffer).space;
      const BufferId to =
          there ? BufferId() : to_.new_buffer(to_.buffer(here), ".leaving", extent.elements, direction_of(stream).to);
      Step step = state_copy(stream, to_.whole(from), there ? extent : to_.whole(to), steps[at(end)], "write_back");
      if (to) step.births = {to};
      if (in_a_row(end))
        row_.push_back(from);
      else
        to_.free_behind(block_, end, from, step);
      to_.add({block_, end + 1}, std::move(step));
      from = to;
    }
  }

  // If all views are alike, the copy holds only what they show.
  void rename(Step& step, BufferId from, BufferId to, bool alike) {
    const auto moved = [&](View view) {
      if (view.buffer != from) return view;
      return alike ? to_.whole(to) : View{to, view.offset, view.elements, view.dealt};
    };
    for (Op& op : step.ops)
      for (std::vector<int>* operands : {&op.in, &op.out})
        for (int& v : *operands)
          if (v >= 0 && to_.made.views[at(v)].buffer == from) v = to_.new_view(moved(to_.made.views[at(v)]));
    step.source = moved(step.source);
    step.target = moved(step.target);
    std::replace(step.reads.begin(), step.reads.end(), from, to);
    std::replace(step.writes.begin(), step.writes.end(), from, to);
  }

  // As many runs ahead as `prefetch` says, but after the last step that writes what is fetched.
  int come_before(int step, int written) const {
    const std::vector<Run>& runs = to_.runs(block_);
    const int run = run_at(runs, {block_, step});
    if (run < 0) return step;
    const int ahead = run - prefetch_;
    return std::max(written + 1, ahead <= 0 ? 0 : runs[at(ahead)].first);
  }

  // Where a value that a step only reads is no longer needed: after the step, or for a message after the first compute
  // step that reads what it brings.
  Place death_of(int step) const {
    const std::vector<Step>& steps = block_steps();
    if (steps[at(step)].kind == StepKind::compute) return {block_, step};
    const BufferId target = steps[at(step)].target.buffer;
    for (int s = step + 1; s < static_cast<int>(steps.size()); ++s)
      if (steps[at(s)].kind == StepKind::compute &&
          std::find(steps[at(s)].reads.begin(), steps[at(s)].reads.end(), target) != steps[at(s)].reads.end())
        return {block_, s};
    return {block_, step};
  }

  // Messages at the end of the step have no compute between them to wait for freed memory. Each has its own buffer only
  // until the next one's is written back, and is fetched with the one before it.
  bool in_a_row(int step) const {
    const Step& s = block_steps()[at(step)];
    return s.kind == StepKind::collective &&
           std::none_of(block_steps().begin(), block_steps().end(), of_layers_computed);
  }
  static bool of_layers_computed(const Step& step) { return step.kind == StepKind::compute && of_layers(step); }

  static constexpr int kVersions = 1 << 20;  // more than a run ever has
  StateCopies& to_;
  int block_, prefetch_;
  base::ById<BufferId, bool> travelling_;
  struct Leaving {
    int step = -1;
    std::vector<BufferId> buffers;  // freed after the next
  };
  std::vector<BufferId> row_;         // what the current collective leaves to free
  std::vector<Leaving> collectives_;  // those of the block that got a buffer in their own memory
};

}  // namespace

void offload_states(RankClass& rank_class, const Offload& offload) {
  for (Buffer& buffer : rank_class.buffers)
    if (buffer.persistent) buffer.space = space_of(buffer.purpose, offload);
  for (Block& block : rank_class.blocks) divide_steps(rank_class, block);
  StateCopies copies(rank_class);
  for (int b = 0; b < static_cast<int>(rank_class.blocks.size()); ++b) {
    free_late(copies, b);
    StandIns(copies, b, offload.prefetch).stage(sum_on_host(copies, b));
  }
  copies.apply();
}

}  // namespace orrery::plan
