#pragma once
/// Whether a product and what is done beside it are one kernel, with one of cuBLASLt's epilogues, or kernels of their
/// own. Timed once for each shape on the operands at hand, and kept in the plan file.
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "exec/cuda/products.h"
#include "exec/engine/backend.h"

namespace orrery::exec::cuda {

/// Two ways to the same values, each of which can be queued again and again.
struct Ways {
  std::function<bool()> as_one;  ///< false, with nothing queued: cuBLASLt has no kernel for it
  std::function<void()> apart;
};

class Epilogues {
 public:
  /// `capability`: ten times the major number of the device's, and the minor.
  Epilogues(Products& products, int capability) : products_(products), capability_(capability) {}

  /// Whether the product of this shape, which has an epilogue, shall be one kernel. It stays so for the life of this
  /// object: a forward pass that is computed again, or replayed by a graph, is the same to the last bit.
  /// `alone`: no other rank computes the same values and must come to the same bits; without it nothing is timed and
  /// the file is not asked, because ranks may have timed differently. `rehearsal` makes the ways that are timed, of
  /// which nothing but what they write is lost. Throws Failure where timing is needed within a capture of `stream`.
  [[nodiscard]] bool as_one(const ProductShape& shape, bool alone, const std::function<Ways()>& rehearsal,
                            cudaStream_t stream);
  /// Without times: a bias is added by the product's own kernel; GELU from sm_90 on (before, cuBLASLt's epilogues of
  /// 16-bit products cost more than they save: karpathy/llm.c, pull request 338); sums of a bias gradient are a kernel
  /// of their own (there are shapes at which the epilogue slows the product down: NVIDIA/CUDALibrarySamples, issue 90).
  [[nodiscard]] bool by_rule(Epilogue epilogue) const;
  /// What has been chosen, and why: both times, or the rule.
  [[nodiscard]] const std::set<KernelChoice>& choices() const { return choices_; }

 private:
  [[nodiscard]] bool decide(const ProductShape& shape, bool alone, const std::function<Ways()>& rehearsal,
                            cudaStream_t stream);
  [[nodiscard]] bool chosen(const ProductShape& shape, bool as_one, const std::string& reason);

  Products& products_;
  int capability_;
  std::map<std::pair<ProductShape, bool>, bool> decided_;
  std::set<KernelChoice> choices_;
};

}  // namespace orrery::exec::cuda
