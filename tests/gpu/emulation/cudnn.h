#pragma once
/// cuDNN's graph API, as far as exec/cuda uses it, on the CPU: descriptors are kept as they were set, a graph's
/// operations are then computed one by one in the order in which they were noted, in the streams' order. Nothing is
/// recognised or fused: what the graph says is what comes out. Refuses what it does not know, and sizes that real
/// kernels refuse (heads that are no multiple of 8).
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#define ORRERY_CUDNN_LINKED 1  // not opened at run time

enum cudnnStatus_t { CUDNN_STATUS_SUCCESS, CUDNN_STATUS_BAD_PARAM = 2000, CUDNN_STATUS_NOT_SUPPORTED = 3000 };
enum cudnnDataType_t { CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16, CUDNN_DATA_INT32, CUDNN_DATA_BOOLEAN };
enum cudnnReduceTensorOp_t { CUDNN_REDUCE_TENSOR_ADD, CUDNN_REDUCE_TENSOR_MAX };
enum cudnnPointwiseMode_t {
  CUDNN_POINTWISE_ADD,
  CUDNN_POINTWISE_SUB,
  CUDNN_POINTWISE_MUL,
  CUDNN_POINTWISE_DIV,
  CUDNN_POINTWISE_EXP,
  CUDNN_POINTWISE_LOG,
  CUDNN_POINTWISE_CMP_GE,
  CUDNN_POINTWISE_GEN_INDEX,
  CUDNN_POINTWISE_BINARY_SELECT,
  CUDNN_POINTWISE_IDENTITY
};
enum cudnnBackendHeurMode_t { CUDNN_HEUR_MODE_A };
enum cudnnBackendNumericalNote_t { CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC };
enum cudnnBackendDescriptorType_t {
  CUDNN_BACKEND_TENSOR_DESCRIPTOR,
  CUDNN_BACKEND_MATMUL_DESCRIPTOR,
  CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
  CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
  CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
  CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
  CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
  CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
  CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
  CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
  CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
  CUDNN_BACKEND_ENGINE_DESCRIPTOR,
  CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
  CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
  CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR
};
enum cudnnBackendAttributeType_t {
  CUDNN_TYPE_HANDLE,
  CUDNN_TYPE_DATA_TYPE,
  CUDNN_TYPE_BOOLEAN,
  CUDNN_TYPE_INT64,
  CUDNN_TYPE_VOID_PTR,
  CUDNN_TYPE_CHAR,
  CUDNN_TYPE_HEUR_MODE,
  CUDNN_TYPE_NUMERICAL_NOTE,
  CUDNN_TYPE_POINTWISE_MODE,
  CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
  CUDNN_TYPE_BACKEND_DESCRIPTOR
};
enum cudnnBackendAttributeName_t {
  CUDNN_ATTR_TENSOR_DATA_TYPE,
  CUDNN_ATTR_TENSOR_DIMENSIONS,
  CUDNN_ATTR_TENSOR_STRIDES,
  CUDNN_ATTR_TENSOR_UNIQUE_ID,
  CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT,
  CUDNN_ATTR_TENSOR_IS_VIRTUAL,
  CUDNN_ATTR_TENSOR_IS_BY_VALUE,
  CUDNN_ATTR_MATMUL_COMP_TYPE,
  CUDNN_ATTR_OPERATION_MATMUL_ADESC,
  CUDNN_ATTR_OPERATION_MATMUL_BDESC,
  CUDNN_ATTR_OPERATION_MATMUL_CDESC,
  CUDNN_ATTR_OPERATION_MATMUL_DESC,
  CUDNN_ATTR_POINTWISE_MODE,
  CUDNN_ATTR_POINTWISE_MATH_PREC,
  CUDNN_ATTR_POINTWISE_AXIS,
  CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
  CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
  CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
  CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
  CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
  CUDNN_ATTR_REDUCTION_OPERATOR,
  CUDNN_ATTR_REDUCTION_COMP_TYPE,
  CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
  CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
  CUDNN_ATTR_OPERATION_REDUCTION_DESC,
  CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
  CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
  CUDNN_ATTR_OPERATIONGRAPH_OPS,
  CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
  CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
  CUDNN_ATTR_ENGINEHEUR_MODE,
  CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
  CUDNN_ATTR_ENGINEHEUR_RESULTS,
  CUDNN_ATTR_ENGINECFG_ENGINE,
  CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
  CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
  CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
  CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
  CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
  CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
  CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
  CUDNN_ATTR_VARIANT_PACK_WORKSPACE
};

struct CudnnHandle;
using cudnnHandle_t = CudnnHandle*;
using cudnnBackendDescriptor_t = void*;

namespace emulation {
/// What the next plans' kernels are like.
struct CudnnKernels {
  std::int64_t workspace_for_each = 0;  ///< bytes, of each sequence
  std::int64_t workspace_for_head = 0;  ///< and of each head of it
  bool repeat = true;                   ///< bit by bit, as the kernels' notes say
  bool atomics = true;                  ///< there are some for graphs that add up in fp32 in memory
  std::size_t version = 91900;          ///< before 9.6 such sums start from what the memory holds
};
CudnnKernels& cudnn_kernels();
std::int64_t cudnn_executions();
/// Those of graphs with such sums.
std::int64_t cudnn_atomic_executions();
}  // namespace emulation

std::size_t cudnnGetVersion();
const char* cudnnGetErrorString(cudnnStatus_t status);
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor);
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t most, std::int64_t* count,
                                       void* values);
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack);
