#pragma once
/// Sums over a step's samples that do not depend on how many ranks share the samples: blocks of samples are summed by
/// themselves, and the sums of blocks are added as a binary tree. Each of 2, 4 … ranks has a subtree, and the ranks'
/// all-reduce adds these as the rest of the tree (exec/engine/reduce.h).
#include <cstdint>

#include "exec/cpu/machine.h"

namespace orrery::exec {

/// Blocks of a step: enough for 4 ranks, few enough that each remains a matrix product worth the name.
inline constexpr std::int64_t kBlocksOfStep = 4;

/// Whether a product or a bias's gradient is one over samples of a recommendation model. Those of transformers have a
/// sequence length, too.
[[nodiscard]] inline bool is_over_samples(const models::Op& op) {
  return op.batch > 0 && op.sequence == 0;
}

struct SampleBlocks {
  std::int64_t count = 1, samples = 0;  ///< blocks of this rank, a power of two; samples of each
};

/// The blocks of a rank that has `here` of a step's `step` samples. One block if the step does not divide into equal
/// ones, or if `step` is 0: not a sum over a step's samples.
[[nodiscard]] inline SampleBlocks sample_blocks(std::int64_t step, std::int64_t here) {
  for (std::int64_t blocks = kBlocksOfStep; blocks > 1 && step > 0; blocks /= 2)
    if (step % blocks == 0 && here % (step / blocks) == 0) return {here * blocks / step, step / blocks};
  return {1, here};
}

/// Calls write(block, to) for each block, which writes `elements` sums to `to`, and adds them up as a binary tree into
/// `target`, or with `accumulate` to its contents. Uses the thread's scratch memory, which `write` therefore may not.
template <class Write>
void sum_blocks(Machine& machine, int thread, const SampleBlocks& blocks, std::int64_t elements, bool accumulate,
                float* target, Write write) {
  std::int64_t levels = accumulate ? 1 : 0;
  for (std::int64_t left = blocks.count; left > 1; left /= 2) ++levels;
  float* const scratch = levels > 0 ? machine.scratch.get(thread, levels * elements) : nullptr;
  const auto level = [&](std::int64_t i) {
    return accumulate ? scratch + i * elements : i == 0 ? target : scratch + (i - 1) * elements;
  };
  std::int64_t open = 0;  // subtrees that wait for their other halves
  for (std::int64_t block = 0; block < blocks.count; ++block) {
    write(block, level(open++));
    for (std::int64_t whole = block; (whole & 1) == 1; whole /= 2, --open)
      machine.kernels.add(level(open - 2), level(open - 1), level(open - 2), elements);
  }
  if (accumulate) machine.kernels.add(target, level(0), target, elements);
}

}  // namespace orrery::exec
