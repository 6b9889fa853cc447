#pragma once
/// Matrix products by cuBLASLt: operands in fp32, bf16 or fp16, sums in fp32, results in the operands' type or in fp32.
/// With fp8 operands, A is (m,k) and B is (n,k), transposed; results are in bf16 or fp32. Kernels are chosen by timing
/// some dozens of cuBLASLt's proposals once per shape (exec/cuda/plan_cache.h), with no operand in a cache, as in a
/// training step.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exec/cuda/handles.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/plan_cache.h"

namespace orrery::exec::cuda {

/// One product: shape and addresses.
struct Product {
  ProductShape shape;  ///< `run` fills in `alignment`
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  ///< in `shape.in`, or bf16 for fp8 operands
  void* aux = nullptr;         ///< as large as the output, in `shape.in`
  void* bias_grad = nullptr;   ///< m sums, in `shape.out`
  float scale = 1;             ///< factor of A B
  /// fp8: two floats in device memory, the factors that undo A's and B's scales.
  const float* descales = nullptr;
};

/// The shape, with its addresses' alignment, under which plans are kept.
[[nodiscard]] ProductShape key_of(const Product& product);

/// When products have epilogues: where timing says they are faster, wherever there is a kernel, or never.
enum class EpilogueUse : std::uint8_t { timed, always, never };
/// $ORRERY_EPILOGUES: "on", "off", or anything else for `timed`.
[[nodiscard]] EpilogueUse epilogues_wanted();

class Products {
 public:
  struct Options {
    std::string plan_file = default_plan_file();
    /// Smaller products use the first proposal: timing them all would cost more than it could ever save.
    double tune_above_flops = 1e8;
    EpilogueUse epilogues = epilogues_wanted();
  };
  Products(std::string device, std::size_t workspace_bytes, Options options);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Queues the product. False, with nothing queued, if cuBLASLt has no kernel for its epilogue (odd sizes). Throws
  /// Failure if it has none for a product without an epilogue.
  [[nodiscard]] bool run(Product product, cudaStream_t stream);
  [[nodiscard]] std::int64_t workspace_bytes() const { return static_cast<std::int64_t>(workspace_.bytes()); }
  [[nodiscard]] KernelScratch scratch() const { return {workspace_.data(), workspace_.bytes()}; }
  [[nodiscard]] int tuned() const { return tuned_; }  ///< shapes that this object has timed
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] const PlanCache& plans() const { return plans_; }
  [[nodiscard]] PlanCache& plans() { return plans_; }
  /// Whether timing pays for a product of this size.
  [[nodiscard]] bool worth_timing(const ProductShape& shape) const;
  /// Throws Failure while `stream` is captured, because the host waits for what it times.
  static void may_be_timed(cudaStream_t stream);

 private:
  struct Prepared;  // a shape's descriptors and its chosen kernel
  [[nodiscard]] Prepared& prepare(const Product& product, cudaStream_t stream);
  static void point(Prepared& prepared, const Product& product);
  void choose(Prepared& prepared, const Product& product, cudaStream_t stream);
  [[nodiscard]] cublasStatus_t launch(Prepared& prepared, const Product& product, void* c,
                                      const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream);
  struct Proposal {
    cublasLtMatmulAlgo_t algorithm;
    std::size_t workspace_bytes;
  };
  [[nodiscard]] std::vector<Proposal> propose(const Prepared& prepared, const ProductShape& shape);
  /// Index and seconds of the fastest one; infinity if none runs.
  [[nodiscard]] static std::pair<std::size_t, double> fastest_of(const std::vector<Proposal>& proposals,
                                                                 const std::function<bool(const Proposal&)>& run,
                                                                 cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  DeviceMemory workspace_;
  Options options_;
  PlanCache plans_;
  std::map<ProductShape, std::unique_ptr<Prepared>> prepared_;
  int tuned_ = 0;
};

}  // namespace orrery::exec::cuda
