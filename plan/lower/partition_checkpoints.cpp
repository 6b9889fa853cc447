// Divides checkpoints over the tensor group while they wait.
#include "plan/lower/partition_checkpoints.h"

#include <algorithm>

#include "base/index.h"
#include "plan/schedule/rewrite.h"

namespace orrery::plan {

namespace {

using base::at;
using models::Op;
using models::OpKind;

class Partition {
 public:
  Partition(RankClass& rank_class, int tensor, GroupId group)
      : class_(rank_class), tensor_(tensor), group_(group), rewrite_(rank_class) {}

  void run() {
    const base::ById<BufferId, Life> lives = lives_of(class_);
    for (const BufferId b : lives.keys()) divide(b, lives[b]);
    rewrite_.apply();
  }

 private:
  void divide(BufferId buffer, const Life& life) {
    const Buffer known = class_.buffers[buffer];
    if (!known.per_micro_batch || known.purpose != Purpose::activations || known.elements % tensor_ != 0) return;
    const auto first =
        std::find_if(life.uses.begin(), life.uses.end(), [&](const Place& p) { return of_backward(rewrite_.step(p)); });
    if (first == life.uses.begin() || first == life.uses.end()) return;
    // A block's input is what recomputation reads first. That of the head has no layer.
    const Step& reader = rewrite_.step(*first);
    if (reader.phase != Phase::recompute || !reader.layer) return;
    // A received buffer has a place that no message under way uses. Anywhere else, two stages that send to each other
    // could wait for each other's memory.
    if (rewrite_.step(life.birth).kind == StepKind::recv) return;
    const Place out = *std::prev(first);
    if (out.block >= first->block) return;

    const BufferId part = add(known, ".part", known.elements / tensor_, true);
    const BufferId whole = add(known, ".gathered", known.elements, life.death.block != first->block);
    class_.buffers[whole].purpose = Purpose::workspace;
    class_.buffers[buffer].per_micro_batch = life.birth.block != out.block;
    if (!class_.buffers[buffer].per_micro_batch) class_.buffers[buffer].purpose = Purpose::workspace;
    rewrite_.insert_after(out, keep(buffer, part, rewrite_.step(out)));
    rewrite_.insert_before(*first, gather(part, whole, reader));
    // Compute waits for the message that wrote what it reads; only then its source may go.
    rewrite_.step(*first).deaths.push_back(part);
    for (auto use = first; use != life.uses.end(); ++use) rewrite_.replace(*use, buffer, whole);
    rewrite_.replace_death(life.death, buffer, whole);
  }

  BufferId add(const Buffer& like, const char* suffix, std::int64_t elements, bool per_micro_batch) {
    Buffer made = like;
    made.name += suffix;
    made.elements = elements;
    made.per_micro_batch = per_micro_batch;
    return class_.buffers.append(std::move(made));
  }

  int view(const View& shown) {
    class_.views.push_back(shown);
    return static_cast<int>(class_.views.size()) - 1;
  }

  Step keep(BufferId buffer, BufferId part, const Step& beside) {
    const Buffer& kept = class_.buffers[part];
    Op op;
    op.kind = OpKind::copy;
    op.dtype = kept.dtype;
    op.m = kept.elements;
    op.in = {view({buffer, 0, kept.elements, DealtOver::tensor})};
    op.out = {view({part, 0, kept.elements})};
    Step made{.kind = StepKind::compute, .stream = Stream::compute, .phase = beside.phase, .layer = beside.layer};
    made.part = "partition";
    made.ops = {std::move(op)};
    made.reads = {buffer};
    made.writes = {part};
    made.births = {part};
    made.deaths = {buffer};
    return made;
  }

  Step gather(BufferId part, BufferId whole, const Step& beside) {
    Step made{.kind = StepKind::collective, .stream = Stream::tensor, .phase = beside.phase, .layer = beside.layer};
    made.part = "all_gather";
    made.collective = CollectiveKind::all_gather;
    made.group = group_;
    made.source = {part, 0, class_.buffers[part].elements};
    made.target = {whole, 0, class_.buffers[whole].elements};
    made.reads = {part};
    made.writes = {whole};
    made.births = {whole};
    return made;
  }

  RankClass& class_;
  int tensor_;
  GroupId group_;
  Rewrite rewrite_;
};

}  // namespace

void partition_checkpoints(RankClass& rank_class, int tensor, GroupId group) {
  Partition(rank_class, tensor, group).run();
}

}  // namespace orrery::plan
