// Opens cuDNN.
#include "exec/cuda/cudnn_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

namespace orrery::exec::cuda {

#if !ORRERY_HAVE_CUDNN
const CudnnApi* find_cudnn(std::string& why) {
  why = "built without cuDNN's headers";
  return nullptr;
}
#else
namespace {

/// The deterministic backward of the graph below, and statistics in fp32, need version 9.
constexpr std::size_t kLeastVersion = 90000;

struct Opened {
  CudnnApi api{};
  std::string why;
};

#ifdef ORRERY_CUDNN_LINKED  // by the emulation, if a test asks for it
Opened open_cudnn(const char*) {
  return {{&cudnnGetVersion, &cudnnGetErrorString, &cudnnCreate, &cudnnDestroy, &cudnnSetStream,
           &cudnnBackendCreateDescriptor, &cudnnBackendDestroyDescriptor, &cudnnBackendSetAttribute,
           &cudnnBackendGetAttribute, &cudnnBackendFinalize, &cudnnBackendExecute},
          {}};
}
#else
Opened open_cudnn(const char* wish) {
  Opened out;
  void* library = dlopen(wish && std::strchr(wish, '/') ? wish : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    out.why = dlerror();
    return out;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)> >(dlsym(library, name));
    if (!function) out.why = std::string("libcudnn.so.9 has no ") + name;
  };
  find(out.api.version, "cudnnGetVersion");
  find(out.api.error_string, "cudnnGetErrorString");
  find(out.api.create, "cudnnCreate");
  find(out.api.destroy, "cudnnDestroy");
  find(out.api.set_stream, "cudnnSetStream");
  find(out.api.create_descriptor, "cudnnBackendCreateDescriptor");
  find(out.api.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  find(out.api.set_attribute, "cudnnBackendSetAttribute");
  find(out.api.get_attribute, "cudnnBackendGetAttribute");
  find(out.api.finalize, "cudnnBackendFinalize");
  find(out.api.execute, "cudnnBackendExecute");
  if (out.why.empty() && out.api.version() < kLeastVersion) out.why = "cuDNN is older than 9.0";
  return out;
}
#endif

}  // namespace

const CudnnApi* find_cudnn(std::string& why) {
  const char* wish = std::getenv("ORRERY_CUDNN");
  if (wish && std::strcmp(wish, "off") == 0) {
    why = "ORRERY_CUDNN is off";
    return nullptr;
  }
#ifdef ORRERY_CUDNN_LINKED
  if (!wish || std::strcmp(wish, "emulated") != 0) {
    why = "ORRERY_CUDNN is not \"emulated\"";
    return nullptr;
  }
#endif
  static const Opened opened = open_cudnn(wish);
  why = opened.why;
  return why.empty() ? &opened.api : nullptr;
}
#endif

}  // namespace orrery::exec::cuda
