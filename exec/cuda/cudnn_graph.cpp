// Writes graphs as cuDNN's descriptors, and chooses a plan.
#include "exec/cuda/cudnn_graph.h"

#if ORRERY_HAVE_CUDNN
#include <string>

namespace orrery::exec::cuda {
namespace {

constexpr std::int64_t kAlignment = 16;  // bytes, of every address
constexpr std::int64_t kMostEngines = 16;

}  // namespace

CudnnDescriptor::CudnnDescriptor(const CudnnApi& api, cudnnBackendDescriptorType_t type) : api_(api) {
  const cudnnStatus_t status = api.create_descriptor(type, &raw_);
  if (status != CUDNN_STATUS_SUCCESS)
    throw CudnnRefused(std::string("cuDNN: making a descriptor: ") + api.error_string(status));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_) api_.destroy_descriptor(raw_);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                          const void* values) {
  const cudnnStatus_t status = api_.set_attribute(raw_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS)
    throw CudnnRefused("cuDNN: attribute " + std::to_string(static_cast<int>(name)) + ": " + api_.error_string(status));
}

void CudnnDescriptor::finalise() {
  const cudnnStatus_t status = api_.finalize(raw_);
  if (status != CUDNN_STATUS_SUCCESS)
    throw CudnnRefused(std::string("cuDNN: finishing a descriptor: ") + api_.error_string(status));
}

int CudnnGraph::add_tensor(const Dims4& dims, const Dims4& strides, cudnnDataType_t type, bool is_virtual,
                           bool by_value) {
  const auto id = static_cast<std::int64_t>(tensors_.size());
  CudnnDescriptor t(api_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
  t.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment);
  t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  t.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
  t.finalise();
  tensors_.push_back(std::move(t));
  return static_cast<int>(id);
}

int CudnnGraph::tensor(const Dims4& dims, const Dims4& strides, cudnnDataType_t type) {
  return add_tensor(dims, strides, type, false, false);
}
int CudnnGraph::between(const Dims4& dims, const Dims4& strides, cudnnDataType_t type) {
  return add_tensor(dims, strides, type, true, false);
}
int CudnnGraph::between(const Dims4& dims, cudnnDataType_t type) {
  return between(dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}, type);
}
int CudnnGraph::scalar(float value) {
  const int id = add_tensor({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, true);
  scalars_[id] = value;
  return id;
}

void CudnnGraph::matmul(int a, int b, int c) {
  CudnnDescriptor how(api_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  how.finalise();
  CudnnDescriptor o(api_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a));
  o.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b));
  o.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c));
  o.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  o.finalise();
  parameters_.push_back(std::move(how));
  operations_.push_back(std::move(o));
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, int x, int b, int y, int mask, std::int64_t axis,
                           cudnnDataType_t compute) {
  CudnnDescriptor how(api_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
  if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  how.finalise();
  CudnnDescriptor o(api_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x));
  if (b >= 0) o.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(b));
  if (mask >= 0) o.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(mask));
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y));
  o.finalise();
  parameters_.push_back(std::move(how));
  operations_.push_back(std::move(o));
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t how_to, int x, int y) {
  CudnnDescriptor how(api_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how_to);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  how.finalise();
  CudnnDescriptor o(api_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x));
  o.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y));
  o.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  o.finalise();
  parameters_.push_back(std::move(how));
  operations_.push_back(std::move(o));
}

void CudnnGraph::reshape(int x, int y) {
  CudnnDescriptor o(api_, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x));
  o.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y));
  o.finalise();
  operations_.push_back(std::move(o));
}

CudnnPlan CudnnGraph::plan(cudnnHandle_t handle, CudnnKernels kernels, const CudnnDescriptor* device) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& o : operations_) raw.push_back(o.raw());
  CudnnDescriptor graph(api_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(raw.size()),
            raw.data());
  if (!device) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph.finalise();

  CudnnDescriptor heuristics(api_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (device) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device);
  heuristics.finalise();
  std::vector<CudnnDescriptor> proposals;
  std::vector<cudnnBackendDescriptor_t> proposed;
  for (std::int64_t i = 0; i < kMostEngines; ++i) {
    proposals.emplace_back(api_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    proposed.push_back(proposals.back().raw());
  }
  std::int64_t count = 0;
  const cudnnStatus_t status = api_.get_attribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, kMostEngines, &count, proposed.data());
  if (status != CUDNN_STATUS_SUCCESS)
    throw CudnnRefused(std::string("cuDNN: asking for kernels: ") + api_.error_string(status));
  std::string why = "it proposes none";
  for (std::int64_t i = 0; i < count && i < kMostEngines; ++i) {
    const CudnnDescriptor& one = proposals[static_cast<std::size_t>(i)];
    CudnnDescriptor engine(api_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t of_one = engine.raw();
    std::int64_t found = 0, noted = 0;
    api_.get_attribute(one.raw(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found, &of_one);
    std::array<cudnnBackendNumericalNote_t, 16> notes{};
    api_.get_attribute(of_one, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                       static_cast<std::int64_t>(notes.size()), &noted, notes.data());
    bool repeats = true;
    for (std::int64_t n = 0; n < noted && n < static_cast<std::int64_t>(notes.size()); ++n)
      repeats = repeats && notes[static_cast<std::size_t>(n)] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    if (!repeats && kernels == CudnnKernels::not_noted) {
      why = "those it proposes do not repeat bit by bit";
      continue;
    }
    try {
      CudnnPlan out{CudnnDescriptor(api_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
      if (device)
        out.plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *device);
      else
        out.plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
      out.plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, one);
      out.plan.finalise();
      std::int64_t got = 0;
      api_.get_attribute(out.plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
                         &out.workspace_bytes);
      return out;
    } catch (const CudnnRefused& refusal) {
      why = refusal.what();
    }
  }
  throw CudnnRefused("cuDNN has no kernel: " + why);
}

}  // namespace orrery::exec::cuda
#endif
