#pragma once
/// Decides whether a product and the operators beside it run as one kernel, with one of cuBLASLt's epilogues, or as
/// separate kernels. Timed once per shape on the actual operands, and kept in the plan file.
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "exec/cuda/products.h"
#include "exec/engine/backend.h"

namespace orrery::exec::cuda {

/// Two ways to compute the same values; each can be queued repeatedly.
struct Ways {
  std::function<bool()> as_one;  ///< false, with nothing queued, if cuBLASLt has no kernel for it
  std::function<void()> apart;
};

class Epilogues {
 public:
  /// `capability`: of the device, ten times the major number plus the minor.
  Epilogues(Products& products, int capability) : products_(products), capability_(capability) {}

  /// Whether a product of this shape, which has an epilogue, should be one kernel. The answer never changes for this
  /// object: a forward pass that is repeated, or replayed by a graph, is the same to the last bit. `alone`: no other
  /// rank computes the same values and must get the same bits. If false, nothing is timed and the file is not read,
  /// because ranks may have timed differently. `rehearsal` makes the two ways for timing; they may overwrite only what
  /// they write anyway. Throws Failure if timing is needed while `stream` is captured.
  [[nodiscard]] bool as_one(const ProductShape& shape, bool alone, const std::function<Ways()>& rehearsal,
                            cudaStream_t stream);
  /// The choice without timing. A bias is added by the product's own kernel. GELU runs in the epilogue from sm_90 on
  /// (before that, cuBLASLt's epilogues of 16-bit products cost more than they save: karpathy/llm.c, pull request 338).
  /// A bias gradient's sums are a kernel of their own (at some shapes the epilogue slows the product down:
  /// NVIDIA/CUDALibrarySamples, issue 90).
  [[nodiscard]] bool by_rule(Epilogue epilogue) const;
  /// What was chosen, and the reason: both times, or the rule.
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
