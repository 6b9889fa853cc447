#pragma once
/// Runs the real binary and takes what it says apart: exit code, stdout, stderr, and the JSON envelope.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace orrery::tests {

struct Ran {
  int exit_code = -1;
  std::string out, err;
  std::int64_t peak_mib = 0;  ///< of memory that was in use
  /// stdout as the envelope; fails the test when it is not one JSON object of the promised form.
  [[nodiscard]] nlohmann::json envelope() const;
  [[nodiscard]] nlohmann::json result() const { return envelope().at("result"); }
};

struct Where {
  std::filesystem::path folder{};            ///< working directory; empty: the source tree
  std::vector<std::string> environment{};    ///< "NAME=value" on top of a clean one
  std::filesystem::path binary{};            ///< empty: the one just built
  std::filesystem::path interrupt_when{};    ///< SIGINT goes to the command once this file has something in it
  std::filesystem::path input{"/dev/null"};  ///< standard input
  std::filesystem::path output{};            ///< standard output, instead of `Ran::out`
};

[[nodiscard]] Ran orrery(const std::vector<std::string>& arguments, const Where& where = {});

/// A folder of this test that is empty at first and gone at the end.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Writes a file below the folder and returns its path.
  std::string file(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

[[nodiscard]] std::string text_of(const std::filesystem::path& path);

/// Fails the test for each of `keys` that `object` lacks.
void expect_keys(const nlohmann::json& object, const std::vector<std::string>& keys);

}  // namespace orrery::tests
