#pragma once
/// A fuzz target: what every input must leave true of a reader. `FUZZ_TARGET(name) { … text … }`, one to a source.
/// By libFuzzer (scripts/fuzz) it is a program of its own; with ORRERY_FUZZ_REPLAY all are in one program that runs the
/// kept inputs of tests/fuzz/corpus once (tests/fuzz/replay.cpp).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace orrery::fuzz {

using Body = void (*)(std::string_view text);

/// In the replay: enters a target into its table. Defined in replay.cpp.
struct Target {
  Target(const char* name, Body body);
};

/// Ends the process unless `holds`: a finding.
inline void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// A folder in memory, for readers that open files; it and all in it goes with the process.
class Scratch {
 public:
  Scratch() {
    std::string pattern =
        std::filesystem::exists("/dev/shm") ? "/dev/shm/orrery-fuzz-XXXXXX" : "/tmp/orrery-fuzz-XXXXXX";
    must(mkdtemp(pattern.data()) != nullptr, "a scratch folder can be made");
    folder_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::filesystem::path write(const char* name, std::string_view bytes) const {
    std::filesystem::path path = folder_ / name;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return path;
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

/// What stands before the first `mark`, which is taken out of `text` with it; all of it where there is none.
inline std::string_view take_part(std::string_view& text, std::string_view mark = "\n====\n") {
  const std::size_t at = text.find(mark);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + mark.size());
  return part;
}

}  // namespace orrery::fuzz

#ifdef ORRERY_FUZZ_REPLAY
#define FUZZ_ENTRY(name) static const ::orrery::fuzz::Target kTarget_##name(#name, fuzz_##name);
#else
#define FUZZ_ENTRY(name)                                                              \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    fuzz_##name({reinterpret_cast<const char*>(data), size});                         \
    return 0;                                                                         \
  }
#endif
#define FUZZ_TARGET(name)                         \
  static void fuzz_##name(std::string_view text); \
  FUZZ_ENTRY(name)                                \
  static void fuzz_##name(std::string_view text)
