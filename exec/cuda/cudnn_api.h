#pragma once
/// The part of cuDNN that exec/cuda uses: a few functions of the graph API, opened at run time, so that the module
/// loads without cuDNN. Compiled without cuDNN's headers, this is all there is, and it says so.
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

/// The functions of libcudnn.so.9, or of the file that $ORRERY_CUDNN names. Null, with the reason in `why`, if there is
/// none or $ORRERY_CUDNN is "off". Opened once.
[[nodiscard]] const CudnnApi* find_cudnn(std::string& why);

}  // namespace orrery::exec::cuda
