// oneDNN by dlopen. Its C interface for a single product has not changed since version 1 (dnnl.h, "BLAS functions").
#include "exec/cpu/onednn.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <cstring>

#include "base/ensure.h"

namespace orrery::exec {
namespace {

struct Version {  // the beginning of dnnl_version_t
  int major, minor, patch;
};

struct OneDnn {
  int (*sgemm)(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*, std::int64_t, const float*,
               std::int64_t, float, float*, std::int64_t) = nullptr;
  void (*set_threads)(int) = nullptr;
  const Version* version = nullptr;

  OneDnn() {
    const char* const wanted = std::getenv("ORRERY_PRODUCTS");
    if (wanted != nullptr && std::strcmp(wanted, "cblas") == 0) return;
    for (const char* name : {"libdnnl.so.3", "libdnnl.so.2"}) {
      void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);  // stays open until the process ends
      if (library == nullptr) continue;
      const auto ask = reinterpret_cast<const Version* (*)()>(::dlsym(library, "dnnl_version"));
      const auto found = reinterpret_cast<decltype(sgemm)>(::dlsym(library, "dnnl_sgemm"));
      if (ask == nullptr || found == nullptr) continue;
      version = ask();
      sgemm = found;
      // OpenMP's. A build on another threading library lacks it, and then cannot be held to one thread.
      set_threads = reinterpret_cast<void (*)(int)>(::dlsym(library, "omp_set_num_threads"));
      if (set_threads == nullptr) sgemm = nullptr;
      return;
    }
  }
};

const OneDnn& library() {
  static const OneDnn opened;
  return opened;
}

}  // namespace

std::string onednn_version() {
  const OneDnn& it = library();
  if (it.sgemm == nullptr) return {};
  return fmt::format("{}.{}.{}", it.version->major, it.version->minor, it.version->patch);
}

bool onednn_gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                 const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
                 std::int64_t ldc) {
  const OneDnn& it = library();
  if (it.sgemm == nullptr) return false;
  // The backend's own threads divide products. OpenMP keeps this setting per calling thread.
  thread_local const bool alone = (it.set_threads(1), true);
  static_cast<void>(alone);
  const int status = it.sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  ENSURE(status == 0, "oneDNN refused a product of {} x {} x {}: status {}", m, n, k, status);
  return true;
}

}  // namespace orrery::exec
