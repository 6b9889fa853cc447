// Variants of blocks in which reductions stand right after the last step that writes what they reduce.
#include "plan/lower/reduce_early.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "base/ensure.h"
#include "plan/lower/compress.h"
#include "plan/lower/lower_finish.h"

namespace orrery::plan {

namespace {

// The last step of a block that writes `buffer`; -1: none.
int last_writer(const Block& block, BufferId buffer) {
  for (int s = static_cast<int>(block.steps.size()); s-- > 0;) {
    const std::vector<BufferId>& writes = block.steps[static_cast<std::size_t>(s)].writes;
    if (std::find(writes.begin(), writes.end(), buffer) != writes.end()) return s;
  }
  return -1;
}

StepRef last_writer(const RankClass& c, BufferId buffer) {
  for (int e = static_cast<int>(c.program.size()); e-- > 0;) {
    const Entry entry = c.program[static_cast<std::size_t>(e)];
    if (entry.micro_batch < 0) continue;
    const int s = last_writer(c.blocks[static_cast<std::size_t>(entry.block)], buffer);
    if (s >= 0) return {e, s};
  }
  ENSURE(false, "stage {}: no pass writes the gradients in {}", c.stage, c.buffers[buffer].name);
}

// Steps that `note` notes down, taken out again.
template <class Note>
std::vector<Step> steps_of(ClassBuilder& build, const Note& note) {
  build.open("reduction");
  note();
  std::vector<Step> steps = std::move(build.result().blocks.back().steps);
  build.result().blocks.pop_back();
  return steps;
}

void append(std::vector<Step>& to, std::vector<Step> steps) {
  to.insert(to.end(), std::make_move_iterator(steps.begin()), std::make_move_iterator(steps.end()));
}

// By place of their last gradient, buckets' reductions.
using Behind = std::map<StepRef, std::vector<Step>>;
Behind whole(ClassBuilder& build, const Groups& groups, const PlanSpec& spec, int zero) {
  Behind behind;
  RankClass& c = build.result();
  for (const BucketId b : reduction_order(spec, c.buckets)) {
    std::vector<Step> steps = steps_of(build, [&] {
      Reducing{build, groups, spec, Reduces::in_the_last_pass, false}.write(b);
    });
    const Bucket& bucket = build.bucket(b);
    append(behind[last_writer(c, zero >= 2 ? bucket.gradient_shard : bucket.gradients)], std::move(steps));
  }
  return behind;
}

// The same for compressed reductions; what is not reduced by the end of an entry's block is reduced there.
Behind compressed(ClassBuilder& build, const Groups& groups, const PlanSpec& spec) {
  std::map<StepRef, std::vector<BucketId>> buckets;
  RankClass& c = build.result();
  for (const BucketId b : c.buckets.keys()) buckets[last_writer(c, c.buckets[b].gradients)].push_back(b);
  Behind behind;
  for (auto at = buckets.begin(); at != buckets.end();) {
    const std::int32_t e = at->first.entry;
    CompressedReduction reduction(build, groups, spec, Reduces::in_the_last_pass);
    for (; at != buckets.end() && at->first.entry == e; ++at)
      behind[at->first] = steps_of(build, [&] {
        for (const BucketId b : at->second) reduction.add(b, build.bucket(b).gradients);
      });
    const std::int32_t block = c.program[static_cast<std::size_t>(e)].block;
    const auto last = static_cast<std::int32_t>(c.blocks[static_cast<std::size_t>(block)].steps.size()) - 1;
    std::vector<Step> rest = steps_of(build, [&] { reduction.flush(); });
    append(behind[{e, last}], std::move(rest));
  }
  return behind;
}

// Buffers from `first` on live from the first step of the block that uses them to the last.
void settle(Block& block, BufferId first) {
  std::map<BufferId, std::pair<std::size_t, std::size_t>> uses;
  for (std::size_t s = 0; s < block.steps.size(); ++s)
    for (const std::vector<BufferId>* list : {&block.steps[s].reads, &block.steps[s].writes})
      for (const BufferId b : *list)
        if (b >= first) uses.try_emplace(b, s, s).first->second.second = s;
  for (const auto& [b, life] : uses) {
    block.steps[life.first].births.push_back(b);
    block.steps[life.second].deaths.push_back(b);
  }
}

}  // namespace

void reduce_early(ClassBuilder& build, const Groups& groups, const PlanSpec& spec, int zero) {
  RankClass& c = build.result();
  const BufferId first_new(c.buffers.size());
  Behind behind;
  if (!spec.compresses() || spec.plain_steps() > 0) behind = whole(build, groups, spec, zero);
  if (spec.compresses()) {
    for (auto& [at, steps] : behind) run_before(spec.plain_steps(), steps);
    for (auto& [at, steps] : compressed(build, groups, spec)) {
      run_from(spec.plain_steps(), steps);
      append(behind[at], std::move(steps));
    }
  }
  for (auto at = behind.begin(); at != behind.end();) {
    const std::int32_t e = at->first.entry;
    Entry entry = c.program[static_cast<std::size_t>(e)];
    Block variant = c.blocks[static_cast<std::size_t>(entry.block)];
    if (variant.variant_of < 0) variant.variant_of = entry.block;
    variant.name += ".last";
    std::ptrdiff_t shift = 1;  // after the step, and after what has been inserted before
    for (; at != behind.end() && at->first.entry == e; ++at) {
      std::vector<Step>& steps = at->second;
      const auto count = static_cast<std::ptrdiff_t>(steps.size());
      variant.steps.insert(variant.steps.begin() + at->first.step + shift, std::make_move_iterator(steps.begin()),
                           std::make_move_iterator(steps.end()));
      shift += count;
    }
    settle(variant, first_new);
    entry.block = static_cast<std::int32_t>(c.blocks.size());
    c.program.set(static_cast<std::size_t>(e), entry);
    c.blocks.push_back(std::move(variant));
  }
}

}  // namespace orrery::plan
