#pragma once
/// Graphs of cuDNN's backend API, as far as attention needs them: tensors, operations, and the plan that runs them.
#include "exec/cuda/cudnn_api.h"

#if ORRERY_HAVE_CUDNN
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "exec/failure.h"

namespace orrery::exec::cuda {

/// cuDNN has no kernel for this, or will not run it here. Not an error of the run: the caller has another way.
class CudnnRefused : public Failure {
 public:
  using Failure::Failure;
};

/// A descriptor: its attributes are set, then it is finalised.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnApi& api, cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : api_(other.api_), raw_(other.raw_) { other.raw_ = nullptr; }
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.raw_);
  }
  void finalise();
  [[nodiscard]] cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  const CudnnApi& api_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

using Dims4 = std::array<std::int64_t, 4>;

/// A plan and what it runs on: addresses by tensor id.
struct CudnnPlan {
  CudnnDescriptor plan;
  std::int64_t workspace_bytes = 0;
};

/// Which kernels may be chosen: any, or only those without cuDNN's note that they do not repeat bit by bit. The lack of
/// a note is not enough: the graph itself may ask for a sum in any order (QueryGradient::atomics), and 9.19 notes
/// nothing about the kernels of either of attention's backward graphs.
enum class CudnnKernels { not_noted, any };

class CudnnGraph {
 public:
  explicit CudnnGraph(const CudnnApi& api) : api_(api) {}

  /// A tensor in memory; its id is the returned index.
  int tensor(const Dims4& dims, const Dims4& strides, cudnnDataType_t type);
  /// A tensor between two operations, packed and never in memory.
  int between(const Dims4& dims, cudnnDataType_t type);
  int between(const Dims4& dims, const Dims4& strides, cudnnDataType_t type);
  /// A single fp32 number, passed by value.
  int scalar(float value);

  void matmul(int a, int b, int c);
  /// `b`, `mask` -1: none. `axis`: for an index.
  void pointwise(cudnnPointwiseMode_t mode, int x, int b, int y, int mask = -1, std::int64_t axis = -1,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  void reduce(cudnnReduceTensorOp_t how, int x, int y);
  void reshape(int x, int y);

  /// The best kernel that cuDNN proposes among those that may be chosen. `device`: a device's properties, in place of a
  /// handle (null), to ask without a GPU.
  [[nodiscard]] CudnnPlan plan(cudnnHandle_t handle, CudnnKernels kernels, const CudnnDescriptor* device = nullptr);
  [[nodiscard]] const std::map<std::int64_t, float>& scalars() const { return scalars_; }

 private:
  int add_tensor(const Dims4& dims, const Dims4& strides, cudnnDataType_t type, bool is_virtual, bool by_value);
  [[nodiscard]] const CudnnDescriptor& at(int tensor) const { return tensors_[static_cast<std::size_t>(tensor)]; }

  const CudnnApi& api_;
  std::vector<CudnnDescriptor> tensors_, operations_, parameters_;
  std::map<std::int64_t, float> scalars_;  ///< by id
};

}  // namespace orrery::exec::cuda
#endif
