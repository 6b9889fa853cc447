// Divides passes where they wait, and interleaves their parts.
#include "plan/lower/beside.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/ensure.h"
#include "base/index.h"
#include "plan/schedule/orders.h"
#include "plan/schedule/rewrite.h"
#include "plan/schedule/waits.h"

namespace orrery::plan {

namespace {

using base::at;

bool of_layers(const Step& step) {
  return step.kind == StepKind::collective &&
         (step.stream == Stream::tensor || step.stream == Stream::context || step.stream == Stream::exchange);
}

/// A block's parts.
class Parts {
 public:
  Parts(const RankClass& rank_class, Block block) : class_(rank_class), block_(std::move(block)) {}

  std::vector<Block> take() {
    std::vector<std::size_t> begins = {0};
    for (std::size_t s = 0; s < block_.steps.size(); ++s)
      if (waits(s)) begins.push_back(s);
    begins.push_back(block_.steps.size());
    std::vector<Block> out;
    for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
      const auto step = [&](std::size_t s) { return block_.steps.begin() + static_cast<std::ptrdiff_t>(s); };
      Block& part = out.emplace_back();
      part.name = i == 0 ? block_.name : block_.name + "/" + std::to_string(i);
      part.steps.assign(std::make_move_iterator(step(begins[i])), std::make_move_iterator(step(begins[i + 1])));
    }
    return out;
  }

 private:
  [[nodiscard]] BufferUses uses(const Step& step) const { return {&class_, &step, -1}; }

  /// Whether a compute step is the first to wait for some message of a layer. It frees in their place what they would
  /// free, or else every step of the other pass would wait for their end.
  bool waits(std::size_t s) {
    Step& step = block_.steps[s];
    if (of_layers(step)) under_way_.push_back(s);
    if (step.kind != StepKind::compute) return false;
    std::vector<BufferId> freed;
    const auto ended = [&](std::size_t m) {
      Step& message = block_.steps[m];
      if (!compute_waits(uses(step), uses(message), !message.deaths.empty())) return false;
      freed.insert(freed.end(), message.deaths.begin(), message.deaths.end());
      message.deaths.clear();
      return true;
    };
    const bool any = std::erase_if(under_way_, ended) > 0;
    for (const BufferId buffer : freed) note(step.deaths, buffer);
    return any;
  }

  const RankClass& class_;
  Block block_;
  std::vector<std::size_t> under_way_;  ///< messages
};

/// The parts of a block: their first number and how many they are.
struct Divided {
  std::int32_t first = 0, count = 1;
};

std::int32_t plain(const RankClass& rank_class, std::int32_t block) {
  const std::int32_t of = rank_class.blocks[at(block)].variant_of;
  return of < 0 ? block : of;
}

/// Divides some blocks, `divides` by number of one that is no variant. Where the parts are now, by former number.
std::vector<Divided> divide(RankClass& rank_class, const std::vector<bool>& divides) {
  std::vector<Divided> out;
  std::vector<Block> blocks;
  for (std::int32_t b = 0; b < static_cast<std::int32_t>(rank_class.blocks.size()); ++b) {
    Block& block = rank_class.blocks[at(b)];
    const std::int32_t of = block.variant_of;
    std::vector<Block> parts;
    if (divides[at(plain(rank_class, b))])
      parts = Parts(rank_class, block).take();
    else
      parts.push_back(block);
    out.push_back({static_cast<std::int32_t>(blocks.size()), static_cast<std::int32_t>(parts.size())});
    for (Block& part : parts) {
      const auto number = static_cast<std::int32_t>(&part - parts.data());
      if (of >= 0) part.variant_of = out[at(of)].first + number;
      blocks.push_back(std::move(part));
    }
    ENSURE(of < 0 || out[at(of)].count == out.back().count, "{} has {} parts, what it replaces {}", block.name,
           out.back().count, out[at(of)].count);
  }
  rank_class.blocks = std::move(blocks);
  return out;
}

/// What outlives a part of a pass lives for a micro-batch.
void live_longer(RankClass& rank_class) {
  const base::ById<BufferId, Life> lives = lives_of(rank_class);
  for (const BufferId buffer : rank_class.buffers.keys())
    if (lives[buffer].birth.block != lives[buffer].death.block) rank_class.buffers[buffer].per_micro_batch = true;
}

}  // namespace

void run_beside(RankClass& rank_class, const std::vector<std::size_t>& pairs) {
  if (pairs.empty()) return;
  const Entries before = std::exchange(rank_class.program, {});
  std::vector<bool> divides(rank_class.blocks.size(), false);
  for (const std::size_t pair : pairs)
    for (const std::size_t e : {pair, pair + 1}) divides[at(plain(rank_class, before[e].block))] = true;
  const std::vector<Divided> parts = divide(rank_class, divides);
  live_longer(rank_class);
  const auto add = [&](Entry entry, std::int32_t part) {
    entry.block = parts[at(entry.block)].first + part;
    rank_class.program.push_back(entry);
  };
  auto pair = pairs.begin();
  for (std::size_t e = 0; e < before.size(); ++e) {
    const Entry one = before[e];
    const std::int32_t count = parts[at(one.block)].count;
    if (pair == pairs.end() || *pair != e) {
      for (std::int32_t part = 0; part < count; ++part) add(one, part);
      continue;
    }
    const Entry other = before[++e];
    for (const PairPart& next : in_turn(count, parts[at(other.block)].count))
      add(next.backward ? other : one, next.part);
    ++pair;
  }
}

}  // namespace orrery::plan
