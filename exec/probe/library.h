#pragma once
/// A shared library that is loaded only while it is used: drivers and others that may be absent.
#include <dlfcn.h>

namespace orrery::exec {

class Library {
 public:
  explicit Library(const char* name) : handle_(::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {}
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  [[nodiscard]] bool loaded() const { return handle_ != nullptr; }
  template <class Function>
  [[nodiscard]] Function* find(const char* symbol) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle_, symbol));
  }

 private:
  void* handle_;
};

}  // namespace orrery::exec
