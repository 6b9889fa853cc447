// Keeps descriptors, and computes graphs of attention plainly: see cudnn.h.
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "exec/engine/half.h"

struct CudnnHandle {
  cudaStream_t stream = nullptr;
};

namespace {

using Dims = std::array<std::int64_t, 4>;

/// Attributes as bytes; those that name a descriptor hold its address, which must not have gone by then.
struct Descriptor {
  cudnnBackendDescriptorType_t type{};
  bool finished = false;
  std::map<cudnnBackendAttributeName_t, std::vector<std::byte>> attributes;

  template <class T>
  [[nodiscard]] std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> out(found->second.size() / sizeof(T));
    std::memcpy(out.data(), found->second.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T>
  [[nodiscard]] T one(cudnnBackendAttributeName_t name, T otherwise = {}) const {
    const std::vector<T> values = all<T>(name);
    return values.empty() ? otherwise : values.front();
  }
  [[nodiscard]] const Descriptor* at(cudnnBackendAttributeName_t name) const {
    return static_cast<const Descriptor*>(one<void*>(name, nullptr));
  }
};

struct TensorCopy {
  std::int64_t id = -1;
  cudnnDataType_t type{};
  Dims dims{}, strides{};
  bool is_virtual = false;
  [[nodiscard]] std::int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

struct Operation {
  cudnnBackendDescriptorType_t type{};
  cudnnPointwiseMode_t mode{};
  cudnnReduceTensorOp_t reduction{};
  std::int64_t axis = -1;
  int a = -1, b = -1, mask = -1, out = -1;  // into the plan's tensors
};

struct Graph {
  std::vector<TensorCopy> tensors;
  std::vector<Operation> operations;

  int take(const Descriptor* d) {
    if (!d) return -1;
    TensorCopy t;
    t.id = d->one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, -1);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].id == t.id) return static_cast<int>(i);
    t.type = d->one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    const auto dims = d->all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    const auto strides = d->all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    std::copy_n(dims.begin(), 4, t.dims.begin());
    std::copy_n(strides.begin(), 4, t.strides.begin());
    t.is_virtual = d->one<unsigned char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
    tensors.push_back(t);
    return static_cast<int>(tensors.size()) - 1;
  }
};

/// Copies of graphs, for descriptors that outlive those that they were made of.
struct Plan : Descriptor {
  std::shared_ptr<const Graph> graph;
};

emulation::CudnnKernels kernels;
std::int64_t executions = 0, atomic_executions = 0;

Descriptor& of(cudnnBackendDescriptor_t raw) {
  return *static_cast<Descriptor*>(raw);
}

std::shared_ptr<const Graph> graph_of(const Descriptor& graph) {
  auto out = std::make_shared<Graph>();
  for (void* raw : graph.all<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const Descriptor& o = of(raw);
    Operation operation;
    operation.type = o.type;
    if (o.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
      operation.a = out->take(o.at(CUDNN_ATTR_OPERATION_MATMUL_ADESC));
      operation.b = out->take(o.at(CUDNN_ATTR_OPERATION_MATMUL_BDESC));
      operation.out = out->take(o.at(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    } else if (o.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
      const Descriptor* how = o.at(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
      operation.mode = how->one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
      operation.axis = how->one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1);
      operation.a = out->take(o.at(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
      operation.b = out->take(o.at(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
      operation.mask = out->take(o.at(CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
      operation.out = out->take(o.at(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    } else if (o.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
      const Descriptor* how = o.at(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
      operation.reduction = how->one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
      operation.a = out->take(o.at(CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
      operation.out = out->take(o.at(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    } else {
      operation.a = out->take(o.at(CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
      operation.out = out->take(o.at(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    }
    out->operations.push_back(operation);
  }
  return out;
}

/// A product that goes to memory in fp32: real kernels add up its pieces there, in any order.
bool sums_in_memory(const TensorCopy& t) {
  return !t.is_virtual && t.type == CUDNN_DATA_FLOAT;
}
bool has_atomics(const Graph& graph) {
  return std::any_of(graph.operations.begin(), graph.operations.end(), [&](const Operation& o) {
    return o.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR &&
           sums_in_memory(graph.tensors[static_cast<std::size_t>(o.out)]);
  });
}

/// Whether real kernels would take it: every tensor known before it is read, heads of a multiple of 8.
bool supported(const Graph& graph) {
  if (has_atomics(graph) && !kernels.atomics) return false;
  std::vector<bool> known;
  for (const TensorCopy& t : graph.tensors) known.push_back(!t.is_virtual);
  for (const Operation& o : graph.operations) {
    for (const int in : {o.a, o.b, o.mask})
      if (in >= 0 && !known[static_cast<std::size_t>(in)]) return false;
    known[static_cast<std::size_t>(o.out)] = true;
  }
  for (const TensorCopy& t : graph.tensors)
    if (!t.is_virtual && t.dims[3] > 1 && t.strides[3] == 1 && t.dims[3] % 8 != 0) return false;
  return true;
}

/// Values of a tensor in the order of its dimensions, in fp32 rounded to its type.
using Values = std::vector<float>;

float rounded(float value, cudnnDataType_t type) {
  using namespace orrery::exec;
  if (type == CUDNN_DATA_BFLOAT16) return from_bf16(to_bf16(value));
  if (type == CUDNN_DATA_HALF) return from_fp16(to_fp16(value));
  return value;
}

template <class Body>
void each(const Dims& dims, const Body& body) {
  Dims at{};
  for (at[0] = 0; at[0] < dims[0]; ++at[0])
    for (at[1] = 0; at[1] < dims[1]; ++at[1])
      for (at[2] = 0; at[2] < dims[2]; ++at[2])
        for (at[3] = 0; at[3] < dims[3]; ++at[3]) body(at);
}
std::int64_t offset(const Dims& at, const Dims& strides) {
  return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3];
}
/// Of `at` in a tensor of `dims`: where it has fewer, heads are shared by neighbours and the rest is repeated.
std::size_t index(const Dims& at, const Dims& dims, const Dims& of) {
  std::int64_t out = 0;
  for (std::size_t i = 0; i < 4; ++i) out = out * dims[i] + at[i] * dims[i] / of[i];
  return static_cast<std::size_t>(out);
}

Values read(const TensorCopy& t, const void* data) {
  using namespace orrery::exec;
  Values out;
  each(t.dims, [&](const Dims& at) {
    const std::int64_t i = offset(at, t.strides);
    if (t.type == CUDNN_DATA_FLOAT)
      out.push_back(static_cast<const float*>(data)[i]);
    else if (t.type == CUDNN_DATA_BFLOAT16)
      out.push_back(from_bf16(static_cast<const std::uint16_t*>(data)[i]));
    else
      out.push_back(from_fp16(static_cast<const std::uint16_t*>(data)[i]));
  });
  return out;
}
void write(const TensorCopy& t, const Values& values, void* data) {
  using namespace orrery::exec;
  std::size_t next = 0;
  each(t.dims, [&](const Dims& at) {
    const std::int64_t i = offset(at, t.strides);
    const float v = values[next++];
    if (t.type == CUDNN_DATA_FLOAT)
      static_cast<float*>(data)[i] = v;
    else
      static_cast<std::uint16_t*>(data)[i] = t.type == CUDNN_DATA_BFLOAT16 ? to_bf16(v) : to_fp16(v);
  });
}

float pointwise(const Operation& o, float a, float b, float mask, const Dims& at) {
  switch (o.mode) {
    case CUDNN_POINTWISE_ADD: return a + b;
    case CUDNN_POINTWISE_SUB: return a - b;
    case CUDNN_POINTWISE_MUL: return a * b;
    case CUDNN_POINTWISE_DIV: return a / b;
    case CUDNN_POINTWISE_EXP: return std::exp(a);
    case CUDNN_POINTWISE_LOG: return std::log(a);
    case CUDNN_POINTWISE_CMP_GE: return a >= b ? 1.0F : 0.0F;
    case CUDNN_POINTWISE_GEN_INDEX: return static_cast<float>(at[static_cast<std::size_t>(o.axis)]);
    case CUDNN_POINTWISE_BINARY_SELECT: return mask != 0 ? a : b;
    case CUDNN_POINTWISE_IDENTITY: return a;
  }
  return std::numeric_limits<float>::quiet_NaN();
}

void compute(const Graph& graph, const std::map<std::int64_t, void*>& memory, bool clears) {
  std::vector<Values> values(graph.tensors.size());
  for (std::size_t i = 0; i < graph.tensors.size(); ++i)
    if (!graph.tensors[i].is_virtual) values[i] = read(graph.tensors[i], memory.at(graph.tensors[i].id));
  const auto tensor = [&](int i) -> const TensorCopy& { return graph.tensors[static_cast<std::size_t>(i)]; };
  for (const Operation& o : graph.operations) {
    const TensorCopy& out = tensor(o.out);
    const Values& a = values[static_cast<std::size_t>(o.a)];
    const TensorCopy& ta = tensor(o.a);
    Values result(static_cast<std::size_t>(out.elements()), 0.0F);
    if (o.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
      const Values& b = values[static_cast<std::size_t>(o.b)];
      const TensorCopy& tb = tensor(o.b);
      const Values* held = sums_in_memory(out) && !clears ? &values[static_cast<std::size_t>(o.out)] : nullptr;
      std::size_t next = 0;
      each(out.dims, [&](const Dims& at) {
        double sum = held ? static_cast<double>((*held)[next]) : 0.0;
        const Dims of_a = {out.dims[0], out.dims[1], out.dims[2], ta.dims[3]};
        const Dims of_b = {out.dims[0], out.dims[1], tb.dims[2], out.dims[3]};
        const float* const row = &a[index({at[0], at[1], at[2], 0}, ta.dims, of_a)];
        const float* const column = &b[index({at[0], at[1], 0, at[3]}, tb.dims, of_b)];
        for (std::int64_t k = 0; k < ta.dims[3]; ++k)
          sum += static_cast<double>(row[k]) * static_cast<double>(column[k * tb.dims[3]]);
        result[next++] = static_cast<float>(sum);
      });
    } else if (o.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
      std::size_t next = 0;
      each(out.dims, [&](const Dims& at) {
        const auto value = [&](int i) {
          return i < 0 ? 0.0F : values[static_cast<std::size_t>(i)][index(at, tensor(i).dims, out.dims)];
        };
        result[next++] = pointwise(o, value(o.a), value(o.b), value(o.mask), at);
      });
    } else if (o.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
      const bool most = o.reduction == CUDNN_REDUCE_TENSOR_MAX;
      std::fill(result.begin(), result.end(), most ? -std::numeric_limits<float>::infinity() : 0.0F);
      std::size_t next = 0;
      each(ta.dims, [&](const Dims& at) {
        float& into = result[index(at, out.dims, ta.dims)];
        into = most ? std::max(into, a[next]) : into + a[next];
        ++next;
      });
    } else {  // the same memory under other dimensions: the last two change places
      std::size_t next = 0;
      each(ta.dims, [&](const Dims& at) {
        result[index({at[0], at[1], at[3], at[2]}, out.dims, out.dims)] = a[next++];
      });
    }
    for (float& v : result) v = rounded(v, out.type);
    if (!out.is_virtual) write(out, result, memory.at(out.id));
    values[static_cast<std::size_t>(o.out)] = std::move(result);
  }
}

}  // namespace

namespace emulation {
CudnnKernels& cudnn_kernels() {
  return kernels;
}
std::int64_t cudnn_executions() {
  return executions;
}
std::int64_t cudnn_atomic_executions() {
  return atomic_executions;
}
}  // namespace emulation

std::size_t cudnnGetVersion() {
  return kernels.version;
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS         ? "CUDNN_STATUS_SUCCESS"
         : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                : "CUDNN_STATUS_BAD_PARAM";
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new CudnnHandle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  auto made = std::make_unique<Plan>();
  made->type = type;
  *descriptor = static_cast<Descriptor*>(made.release());
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Plan*>(&of(descriptor));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  Descriptor& d = of(descriptor);
  if (d.finished || count < 1) return CUDNN_STATUS_BAD_PARAM;
  std::size_t size = sizeof(std::int64_t);
  if (type == CUDNN_TYPE_BOOLEAN) size = sizeof(bool);
  if (type == CUDNN_TYPE_CHAR) size = 1;
  if (type == CUDNN_TYPE_DATA_TYPE || type == CUDNN_TYPE_HEUR_MODE || type == CUDNN_TYPE_POINTWISE_MODE ||
      type == CUDNN_TYPE_REDUCTION_OPERATOR_TYPE)
    size = sizeof(int);
  std::vector<std::byte>& into = d.attributes[name];
  into.resize(size * static_cast<std::size_t>(count));
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (std::int64_t i = 0; i < count; ++i)
      if (!of(static_cast<void* const*>(values)[i]).finished && name != CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
        return CUDNN_STATUS_BAD_PARAM;
  std::memcpy(into.data(), values, into.size());
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, std::int64_t, std::int64_t* count, void* values) {
  auto& d = static_cast<Plan&>(of(descriptor));
  *count = 1;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {  // one proposal, where there is a kernel
    if (!supported(*d.graph)) *count = 0;
    if (*count == 1) static_cast<Plan&>(of(*static_cast<void**>(values))).graph = d.graph;
  } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    *static_cast<cudnnBackendNumericalNote_t*>(values) =
        kernels.repeat ? CUDNN_NUMERICAL_NOTE_TENSOR_CORE : CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    const Dims& queries = d.graph->tensors.front().dims;
    *static_cast<std::int64_t*>(values) =
        queries[0] * (kernels.workspace_for_each + queries[1] * kernels.workspace_for_head);
  } else if (name != CUDNN_ATTR_ENGINECFG_ENGINE) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  auto& d = static_cast<Plan&>(of(descriptor));
  if (d.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) d.graph = graph_of(d);
  const auto inherit = [&](cudnnBackendAttributeName_t name) { d.graph = static_cast<const Plan&>(*d.at(name)).graph; };
  if (d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) inherit(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) inherit(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  d.finished = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  const Descriptor& p = of(pack);
  const auto ids = p.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = p.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != addresses.size()) return CUDNN_STATUS_BAD_PARAM;
  std::map<std::int64_t, void*> memory;
  for (std::size_t i = 0; i < ids.size(); ++i) memory[ids[i]] = addresses[i];
  const std::shared_ptr<const Graph> graph = static_cast<Plan&>(of(plan)).graph;
  for (const TensorCopy& t : graph->tensors)
    if (!t.is_virtual && memory.count(t.id) == 0) return CUDNN_STATUS_BAD_PARAM;
  ++executions;
  if (has_atomics(*graph)) ++atomic_executions;
  emulation::enqueue(handle->stream, [graph, memory, clears = kernels.version >= 90600] {
    compute(*graph, memory, clears);
    return true;
  });
  return CUDNN_STATUS_SUCCESS;
}
