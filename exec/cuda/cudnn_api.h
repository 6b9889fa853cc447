#pragma once
/// cuDNN as far as exec/cuda uses it: the graph API's few functions, opened at run time, so that the module loads where
/// cuDNN is absent. Without its headers this is all there is, and says so.
#include <string>

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define ORRERY_HAVE_CUDNN 1
#else
#define ORRERY_HAVE_CUDNN 0
#endif

namespace orrery::exec::cuda {

#if ORRERY_HAVE_CUDNN
struct CudnnApi {
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};
#else
struct CudnnApi {};
#endif

/// The functions of libcudnn.so.9, or of the file that $ORRERY_CUDNN names; null, and why, where there is none or
/// $ORRERY_CUDNN is "off". Opened once.
[[nodiscard]] const CudnnApi* find_cudnn(std::string& why);

}  // namespace orrery::exec::cuda
