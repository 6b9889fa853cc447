#pragma once
/// Threads of execution that take turns on one host thread. Included by emulation.cpp alone.
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace emulation {
namespace {

/// Where a suspended thread of execution continues. swapcontext of the C library makes two system calls a switch, and a
/// block of 256 threads switches thousands of times, so x86-64 has its own: registers that a call preserves, and the
/// stack.
#if defined(__x86_64__)
struct Context {
  void* stack_pointer = nullptr;
};

extern "C" void orrery_emulation_switch(void** save, void* load);
asm(R"(
.text
.globl orrery_emulation_switch
.type orrery_emulation_switch, @function
orrery_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size orrery_emulation_switch, .-orrery_emulation_switch
)");

void switch_to(Context& from, Context& to) {
  orrery_emulation_switch(&from.stack_pointer, to.stack_pointer);
}

void start(Context& context, char* stack, std::size_t bytes, void (*entry)()) {
  const auto top = reinterpret_cast<std::uintptr_t>(stack + bytes) & ~std::uintptr_t{15};
  void** slots = reinterpret_cast<void**>(top) - 8;  // six registers, the entry, and where it would return to
  std::fill(slots, slots + 8, nullptr);
  slots[6] = reinterpret_cast<void*>(entry);
  context.stack_pointer = slots;
}
#else
using Context = ucontext_t;
void switch_to(Context& from, Context& to) {
  swapcontext(&from, &to);
}
void start(Context& context, char* stack, std::size_t bytes, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}
#endif

}  // namespace
}  // namespace emulation
