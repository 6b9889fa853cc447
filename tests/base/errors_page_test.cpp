// Every code that a source uses is explained in docs/errors.md, and nothing else is.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace errors_page_test {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::set<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) found.insert((*it)[1]);
  return found;
}

TEST(ErrorsPage, ListsExactlyTheCodesThatTheSourcesUse) {
  const fs::path root = ORRERY_SOURCE_DIR;
  std::set<std::string> used;
  for (const char* room : {"base", "models", "clusters", "plan", "cost", "sim", "exec", "reports", "apps"}) {
    if (!fs::exists(root / room)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / room)) {
      if (entry.path().extension() == ".cpp" || entry.path().extension() == ".h") {
        used.merge(matches(content(entry.path()), "\"([ERU][0-9]{4}|[CPS][0-9]{2,3}|[FV]0[0-9])\""));
      }
    }
  }
  const std::set<std::string> listed = matches(content(root / "docs/errors.md"), "\n\\| ([A-Z][0-9]+) \\|");
  for (const auto& code : used) EXPECT_TRUE(listed.count(code)) << code << " is used but not in docs/errors.md";
  for (const auto& code : listed) EXPECT_TRUE(used.count(code)) << code << " is in docs/errors.md but nowhere used";
  EXPECT_GE(used.size(), 40U);
}

}  // namespace errors_page_test
