// Replaces malloc and its family in the worker, to count every allocation outside the arenas: our own, and those of
// MPI, BLAS and the C++ library. Each call goes on to glibc. Left out under sanitizers, which replace malloc
// themselves.
#include <malloc.h>

#include <cerrno>
#include <cstddef>

#include "exec/engine/allocation_hook.h"

#ifdef __has_feature  // clang says by this what g++ says by a macro
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ORRERY_SANITIZED
#endif
#endif
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(ORRERY_SANITIZED)

extern "C" {
void* __libc_malloc(std::size_t);
void __libc_free(void*);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

void* count(void* block) noexcept {
  auto& counters = orrery::exec::allocation_counters();
  counters.hooked.store(true, std::memory_order_relaxed);
  if (block) counters.allocated(malloc_usable_size(block));
  return block;
}

bool power_of_two(std::size_t n) {
  return n != 0 && (n & (n - 1)) == 0;
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) {
  return count(__libc_malloc(bytes));
}

void free(void* block) {
  if (!block) return;
  orrery::exec::allocation_counters().released(malloc_usable_size(block));
  __libc_free(block);
}

void* calloc(std::size_t n, std::size_t bytes) {
  return count(__libc_calloc(n, bytes));
}

void* realloc(void* block, std::size_t bytes) {
  const std::size_t before = block ? malloc_usable_size(block) : 0;
  void* moved = __libc_realloc(block, bytes);
  if (moved || bytes == 0) orrery::exec::allocation_counters().released(before);
  return count(moved);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  return count(__libc_memalign(alignment, bytes));
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return count(__libc_memalign(alignment, bytes));
}

int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  if (!power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  void* block = count(__libc_memalign(alignment, bytes));
  if (!block) return ENOMEM;
  *out = block;
  return 0;
}

}  // extern "C"

#endif
