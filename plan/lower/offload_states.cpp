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
#include "plan/schedule/rewrite.h"

namespace orrery::plan {

namespace {

using base::at;

using models::Op;
using models::OpKind;

bool of_layers(const Step& step) {
  return step.phase == Phase::forward || step.phase == Phase::backward || step.phase == Phase::recompute;
}

// What one step does with one buffer.
struct Use {
  int step = -1;
  bool reads = false, writes = false;
  std::vector<View> views;
};

class MovedStates {
 public:
  MovedStates(RankClass& rank_class, const Offload& offload)
      : class_(rank_class), offload_(offload), rewrite_(rank_class) {}

  void run() {
    for (Buffer& buffer : class_.buffers)
      if (buffer.persistent) buffer.space = space_of(buffer.purpose);
    for (Block& block : class_.blocks) divide(block);
    for (const Block& block : class_.blocks) runs_.push_back(runs_of(block));
    for (int b = 0; b < static_cast<int>(class_.blocks.size()); ++b) {
      free_late(b);
      sum_on_host(b);
      stage(b);
    }
    for (const auto& [place, deaths] : released_)
      rewrite_.insert_before(place, release_of(deaths, class_.blocks[at(place.block)].steps.front().phase));
    for (auto& [place, step] : copies_) rewrite_.insert_before(place, std::move(step));
    for (const auto& [place, deaths] : last_)
      rewrite_.insert_before(place, release_of(deaths, class_.blocks[at(place.block)].steps.front().phase));
    rewrite_.apply();
  }

 private:
  Space space_of(Purpose purpose) const {
    if (purpose == Purpose::parameters) return offload_.parameters;
    if (purpose == Purpose::optimizer_states) return offload_.optimizer;
    return purpose == Purpose::gradients && offload_.optimizer != Space::device ? Space::host : Space::device;
  }
  Buffer& buffer(BufferId index) { return class_.buffers[index]; }
  const Buffer& buffer_of(int view) const { return class_.buffers[class_.views[at(view)].buffer]; }
  static Space memory_of(const Step& step) { return step.on_host ? Space::host : Space::device; }

  BufferId new_buffer(const Buffer& like, const std::string& suffix, std::int64_t elements, Space space) {
    Buffer made = like;
    made.name += suffix;
    made.elements = elements;
    made.space = space;
    made.persistent = made.per_micro_batch = false;
    return class_.buffers.append(std::move(made));
  }
  int new_view(const View& view) {
    class_.views.push_back(view);
    return static_cast<int>(class_.views.size()) - 1;
  }
  View whole(BufferId index) const { return {index, 0, class_.buffers[index].elements}; }

  // -- steps of the device and of the host --------------------------------------------------------------------------
  // Operators on the optimizer's states and gradients run on the host if these live there.
  bool on_host(const Op& op) const {
    const auto moved = [&](int view) {
      if (view < 0) return false;
      const Buffer& b = buffer_of(view);
      return b.space != Space::device && (b.purpose == Purpose::optimizer_states || b.purpose == Purpose::gradients);
    };
    return std::any_of(op.in.begin(), op.in.end(), moved) || std::any_of(op.out.begin(), op.out.end(), moved);
  }

  void divide(Block& block) {
    std::vector<Step> out;
    for (Step& step : block.steps) {
      const bool hosts = step.kind == StepKind::compute && !of_layers(step) &&
                         std::any_of(step.ops.begin(), step.ops.end(), [&](const Op& op) { return on_host(op); });
      if (!hosts) {
        out.push_back(std::move(step));
        continue;
      }
      std::vector<Step> parts;
      for (const Op& op : step.ops)
        for (Op& one : written_apart(op)) add_part(parts, step, std::move(one));
      parts.front().births = std::move(step.births);
      parts.back().deaths = std::move(step.deaths);
      std::move(parts.begin(), parts.end(), std::back_inserter(out));
    }
    block.steps = std::move(out);
  }

  // A compute copy in the same type as the values gets an operator of its own.
  std::vector<Op> written_apart(const Op& op) const {
    constexpr std::size_t kComputeCopy = 3;
    if (op.kind != OpKind::adamw || op.out.size() <= kComputeCopy ||
        buffer_of(op.out.front()).dtype != buffer_of(op.out[kComputeCopy]).dtype)
      return {op};
    Op update = op, copy;
    update.out.resize(kComputeCopy);
    copy.kind = OpKind::copy;
    copy.dtype = buffer_of(op.out.front()).dtype;
    copy.m = op.m;
    copy.in = {op.out.front()};
    copy.out = {op.out[kComputeCopy]};
    return {update, copy};
  }

  void add_part(std::vector<Step>& parts, const Step& whole_step, Op op) const {
    const bool host = on_host(op);
    const bool moves = (op.kind == OpKind::copy || op.kind == OpKind::accumulate_into) && host &&
                       buffer_of(op.in.front()).space == Space::device;
    if (moves) {
      const View &source = class_.views[at(op.in.front())], &target = class_.views[at(op.out.front())];
      Step copy{.kind = StepKind::copy, .stream = Stream::to_host, .phase = whole_step.phase};
      copy.layer = whole_step.layer;
      copy.bucket = whole_step.bucket;
      copy.part = whole_step.part;
      copy.accumulate = op.kind == OpKind::accumulate_into;
      copy.source = source;
      copy.target = target;
      copy.reads = {source.buffer};
      copy.writes = {target.buffer};
      parts.push_back(std::move(copy));
      return;
    }
    if (parts.empty() || parts.back().kind != StepKind::compute || parts.back().on_host != host) {
      Step part{.kind = StepKind::compute, .stream = Stream::compute, .phase = whole_step.phase};
      part.layer = whole_step.layer;
      part.bucket = whole_step.bucket;
      part.part = whole_step.part;
      part.on_host = host;
      parts.push_back(std::move(part));
    }
    Step& part = parts.back();
    for (const int view : op.in)
      if (view >= 0) note(part.reads, class_.views[at(view)].buffer);
    for (const int view : op.out)
      if (view >= 0) note(part.writes, class_.views[at(view)].buffer);
    part.ops.push_back(std::move(op));
  }

  // -- lifetimes ------------------------------------------------------------------------------------------------------
  // The source of a copy is freed after the next run; if there is none, by the copy.
  void free_behind(int block, int step, BufferId index, Step& copy) {
    const Place release = behind_next_run(runs_[at(block)], {block, step});
    if (release.step < 0)
      copy.deaths.push_back(index);
    else
      released_[release].push_back(index);
  }

  // The copies that a compute step was divided into free nothing while they run.
  void free_late(int block) {
    std::vector<Step>& steps = class_.blocks[at(block)].steps;
    for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
      if (steps[at(s)].kind != StepKind::copy) continue;
      for (const BufferId index : std::exchange(steps[at(s)].deaths, {})) free_behind(block, s, index, steps[at(s)]);
    }
  }

  // -- gradients -----------------------------------------------------------------------------------------------------
  // Passes over layers add to a sum on the host: each layer's part is made on the device and added after the layer.
  void sum_on_host(int block) {
    std::vector<Step>& steps = class_.blocks[at(block)].steps;
    for (const Run& run : runs_[at(block)]) {
      std::map<BufferId, int> last;  // by sum: its last step in the run
      for (int s = run.first; s <= run.last; ++s) {
        if (steps[at(s)].kind != StepKind::compute || !of_layers(steps[at(s)])) continue;
        for (const BufferId index : steps[at(s)].writes)
          if (buffer(index).persistent && buffer(index).purpose == Purpose::gradients &&
              buffer(index).space == Space::host)
            last[index] = s;
      }
      for (const auto& [sum, end] : last) {
        const BufferId made = new_buffer(buffer(sum), ".made", buffer(sum).elements, Space::device);
        bool first = true;
        for (int s = run.first; s <= end; ++s) {
          Step& step = steps[at(s)];
          if (std::find(step.writes.begin(), step.writes.end(), sum) == step.writes.end()) continue;
          rewrite_.replace({block, s}, sum, made);
          if (!std::exchange(first, false)) continue;
          Op zero;
          zero.kind = OpKind::fill_zero;
          zero.dtype = buffer(made).dtype;
          zero.m = buffer(made).elements;
          zero.out = {new_view(whole(made))};
          step.ops.insert(step.ops.begin(), std::move(zero));
          step.births.push_back(made);
        }
        sums_[{block, sum}] = end;
        Step copy = rewrite_.copy(Stream::to_host, made, sum, steps[at(end)]);
        copy.part = "add_gradients";
        copy.accumulate = true;
        free_behind(block, end, made, copy);
        copies_.push_back({{block, end + 1}, std::move(copy)});
      }
    }
  }

  // -- everything else -----------------------------------------------------------------------------------------------
  std::map<BufferId, Use> uses_of(int s, const Step& step) const {
    std::map<BufferId, Use> uses;
    const auto use = [&](const View& view, bool reads, bool writes) {
      Use& one = uses[view.buffer];
      one.step = s;
      one.reads |= reads;
      one.writes |= writes;
      one.views.push_back(view);
    };
    for (const Op& op : step.ops) {
      for (const int v : op.in)
        if (v >= 0) use(class_.views[at(v)], true, false);
      for (std::size_t i = 0; i < op.out.size(); ++i)
        if (op.out[i] >= 0) use(class_.views[at(op.out[i])], !models::only_writes(op, i), true);
    }
    const bool in_place = step.kind == StepKind::collective && step.collective == CollectiveKind::all_reduce;
    if (step.kind == StepKind::collective || step.kind == StepKind::send) use(step.source, true, in_place);
    if ((step.kind == StepKind::collective && !in_place) || step.kind == StepKind::recv) use(step.target, false, true);
    return uses;
  }

  // Uses that share one staged copy: those of one run over a layer, or those until the buffer is written.
  void stage(int block) {
    std::vector<Step>& steps = class_.blocks[at(block)].steps;
    std::map<std::tuple<BufferId, Space, int>, std::vector<Use>> clusters;
    std::vector<std::tuple<BufferId, Space, int>> order;
    std::map<BufferId, int> version, written;  // by buffer
    std::map<std::tuple<BufferId, Space, int>, int> last_write;
    collectives_.clear();
    for (const auto& [key, end] : sums_)
      if (key.first == block) written[key.second] = end;
    for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
      const Step& step = steps[at(s)];
      if (step.kind == StepKind::copy) {
        ++version[step.target.buffer];
        written[step.target.buffer] = s;
        continue;
      }
      const bool layered = step.kind == StepKind::compute && of_layers(step);
      for (const auto& [index, use] : uses_of(s, step)) {
        const Space space = memory_of(step);
        if (buffer(index).space != space) {
          const int part = layered ? run_at(runs_[at(block)], {block, s}) : kVersions + version[index];
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
    for (const auto& key : order)
      stand_in(block, std::get<0>(key), std::get<1>(key), clusters.at(key), last_write.at(key));
    if (collectives_.empty() || collectives_.back().buffers.empty()) return;
    last_[{block, first_compute_behind(block, collectives_.back().step)}] = collectives_.back().buffers;
  }

  // The first compute step after `step`, or the end of its block.
  int first_compute_behind(int block, int step) const {
    const std::vector<Step>& steps = class_.blocks[at(block)].steps;
    int s = step + 1;
    while (s < static_cast<int>(steps.size()) && steps[at(s)].kind != StepKind::compute) ++s;
    return s;
  }

  void stand_in(int block, BufferId index, Space space, const std::vector<Use>& uses, int written) {
    std::vector<Step>& steps = class_.blocks[at(block)].steps;
    bool alike = true, reads = false, writes = false;
    const View& first = uses.front().views.front();
    for (const Use& use : uses) {
      for (const View& view : use.views) alike = alike && view == first;
      reads = reads || use.reads;
      writes = writes || use.writes;
    }
    const View extent = alike ? first : whole(index);
    const BufferId here = new_buffer(buffer(index), std::string(".on_") + name_of(space), extent.elements, space);
    for (const Use& use : uses) rename(steps[at(use.step)], index, here, alike);
    const int begin = uses.front().step, end = uses.back().step;
    const Place death = death_of(block, end);
    std::vector<BufferId> staged;  // on their way in
    if (reads || !alike) {
      const int before = in_a_row(block, begin)
                             ? std::max(written + 1, collectives_.empty() ? 0 : collectives_.back().step)
                             : come_before(block, begin, written);
      const Place place{block, std::min(before, begin)};
      BufferId from = index;
      View view = extent;
      for (const Stream stream : way(buffer(index).space, space)) {
        const bool there = direction_of(stream).to == space;
        const BufferId to =
            there ? here : new_buffer(buffer(here), ".staged", extent.elements, direction_of(stream).to);
        copies_.push_back({place, copy(stream, view, whole(to), steps[at(begin)], "fetch")});
        copies_.back().second.births = {to};
        if (!there) staged.push_back(to);
        from = to;
        view = whole(from);
      }
    } else {
      steps[at(begin)].births.push_back(here);
    }
    if (!writes) staged.push_back(here);
    for (const BufferId one : staged) {
      ENSURE(death.step >= 0, "buffer {} is fetched for nobody", buffer(one).name);
      steps[at(death.step)].deaths.push_back(one);
    }
    if (writes) write_back(block, end, here, extent, space);
    if (!in_a_row(block, begin)) return;
    if (!collectives_.empty() && !collectives_.back().buffers.empty()) {
      std::vector<BufferId>& released = released_[{block, end + 1}];
      released.insert(released.end(), collectives_.back().buffers.begin(), collectives_.back().buffers.end());
      collectives_.back().buffers.clear();
    }
    if (collectives_.empty() || collectives_.back().step != begin) collectives_.push_back({begin, {}});
    collectives_.back().buffers = std::exchange(row_, {});
  }

  void write_back(int block, int end, BufferId here, const View& extent, Space space) {
    std::vector<Step>& steps = class_.blocks[at(block)].steps;
    BufferId from = here;
    for (const Stream stream : way(space, buffer(extent.buffer).space)) {
      const bool there = direction_of(stream).to == buffer(extent.buffer).space;
      const BufferId to =
          there ? BufferId() : new_buffer(buffer(here), ".leaving", extent.elements, direction_of(stream).to);
      Step step = copy(stream, whole(from), there ? extent : whole(to), steps[at(end)], "write_back");
      if (to) step.births = {to};
      if (in_a_row(block, end))
        row_.push_back(from);
      else
        free_behind(block, end, from, step);
      copies_.push_back({{block, end + 1}, std::move(step)});
      from = to;
    }
  }

  // If all views are alike, the copy holds only what they show.
  void rename(Step& step, BufferId from, BufferId to, bool alike) {
    const auto moved = [&](View view) {
      if (view.buffer != from) return view;
      return alike ? whole(to) : View{to, view.offset, view.elements, view.dealt};
    };
    for (Op& op : step.ops)
      for (std::vector<int>* operands : {&op.in, &op.out})
        for (int& v : *operands)
          if (v >= 0 && class_.views[at(v)].buffer == from) v = new_view(moved(class_.views[at(v)]));
    step.source = moved(step.source);
    step.target = moved(step.target);
    std::replace(step.reads.begin(), step.reads.end(), from, to);
    std::replace(step.writes.begin(), step.writes.end(), from, to);
  }

  Step copy(Stream stream, const View& source, const View& target, const Step& beside, const char* part) const {
    Step step{.kind = StepKind::copy, .stream = stream, .phase = beside.phase, .layer = beside.layer};
    step.bucket = beside.bucket;
    step.part = part;
    step.source = source;
    step.target = target;
    step.reads = {source.buffer};
    step.writes = {target.buffer};
    return step;
  }

  static std::vector<Stream> way(Space from, Space to) {
    if (from == Space::device) {
      if (to == Space::host) return {Stream::to_host};
      return {Stream::to_host, Stream::to_nvme};
    }
    if (from == Space::host) return {to == Space::device ? Stream::from_host : Stream::to_nvme};
    if (to == Space::host) return {Stream::from_nvme};
    return {Stream::from_nvme, Stream::from_host};
  }

  // As many runs ahead as `prefetch` says, but after the last step that writes what is fetched.
  int come_before(int block, int step, int written) const {
    const std::vector<Run>& runs = runs_[at(block)];
    const int run = run_at(runs, {block, step});
    if (run < 0) return step;
    const int ahead = run - offload_.prefetch;
    return std::max(written + 1, ahead <= 0 ? 0 : runs[at(ahead)].first);
  }

  // Where a value that a step only reads is no longer needed: after the step, or for a message after the first compute
  // step that reads what it brings.
  Place death_of(int block, int step) const {
    const std::vector<Step>& steps = class_.blocks[at(block)].steps;
    if (steps[at(step)].kind == StepKind::compute) return {block, step};
    const BufferId target = steps[at(step)].target.buffer;
    for (int s = step + 1; s < static_cast<int>(steps.size()); ++s)
      if (steps[at(s)].kind == StepKind::compute &&
          std::find(steps[at(s)].reads.begin(), steps[at(s)].reads.end(), target) != steps[at(s)].reads.end())
        return {block, s};
    return {block, step};
  }

  // Messages at the end of the step have no compute between them to wait for freed memory. Each has its own buffer only
  // until the next one's is written back, and is fetched with the one before it.
  bool in_a_row(int block, int step) const {
    const Step& s = class_.blocks[at(block)].steps[at(step)];
    return s.kind == StepKind::collective && std::none_of(class_.blocks[at(block)].steps.begin(),
                                                          class_.blocks[at(block)].steps.end(), of_layers_computed);
  }
  static bool of_layers_computed(const Step& step) { return step.kind == StepKind::compute && of_layers(step); }

  static constexpr int kVersions = 1 << 20;  // more than a run ever has
  RankClass& class_;
  Offload offload_;
  Rewrite rewrite_;
  std::vector<std::vector<Run>> runs_;                      // by block
  std::map<Place, std::vector<BufferId>> released_, last_;  ///< last_: after copies at the same place
  std::vector<std::pair<Place, Step>> copies_;
  std::map<std::pair<int, BufferId>, int> sums_;  // by block and sum on the host: the step after which it is added
  struct Leaving {
    int step = -1;
    std::vector<BufferId> buffers;  // freed after the next
  };
  std::vector<BufferId> row_;         // what the current collective leaves to free
  std::vector<Leaving> collectives_;  // those of the block that got a buffer in their own memory
};

}  // namespace

void offload_states(RankClass& rank_class, const Offload& offload) {
  MovedStates(rank_class, offload).run();
}

}  // namespace orrery::plan
