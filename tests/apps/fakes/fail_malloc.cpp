// malloc for LD_PRELOAD that refuses: the allocation number $FAIL_ALLOCATION behind the beginning of main(), and with
// $FAIL_FROM_THERE every one after it.
#include <cerrno>
#include <cstdlib>

#include <dlfcn.h>

extern "C" void* __libc_malloc(std::size_t size);

namespace {

long wanted = -1;  // of the program's own allocations, from 0
bool from_there = false;
bool counting = false;
long seen = 0;

using Main = int (*)(int, char**, char**);
Main real_main = nullptr;

int counted_main(int argc, char** argv, char** envp) {
  if (const char* number = std::getenv("FAIL_ALLOCATION")) wanted = std::atol(number);
  from_there = std::getenv("FAIL_FROM_THERE") != nullptr;
  counting = true;
  const int code = real_main(argc, argv, envp);
  counting = false;
  return code;
}

}  // namespace

extern "C" {

void* malloc(std::size_t size) {
  if (counting) {
    const long now = seen++;
    if (wanted >= 0 && (now == wanted || (from_there && now > wanted))) {
      errno = ENOMEM;
      return nullptr;
    }
  }
  return __libc_malloc(size);
}

// What glibc starts main() with: a way to know where static objects end and the program begins.
int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld)(), void* stack) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  real_main = main;
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(counted_main, argc, argv, init, fini, rtld, stack);
}

}  // extern "C"
