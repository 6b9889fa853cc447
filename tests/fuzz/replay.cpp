// Runs what fuzzing kept, and what it once found, through every reader; the ordinary compiler's turn.
// Usage: test_fuzz CORPUS_FOLDER [TARGET...]
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

#include "tests/fuzz/target.h"

namespace orrery::fuzz {
namespace {

namespace fs = std::filesystem;

std::map<std::string, Body>& targets() {
  static std::map<std::string, Body> all;
  return all;
}

char now_reading[4096];  // for the handler, which may not allocate

void name_the_input(int signal) {
  constexpr char kSaid[] = "\nthe reader ended the program at ";
  (void)!write(STDERR_FILENO, kSaid, sizeof kSaid - 1);
  (void)!write(STDERR_FILENO, now_reading, std::strlen(now_reading));
  (void)!write(STDERR_FILENO, "\n", 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// How many inputs of `folder` went through.
int replay(Body body, const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::snprintf(now_reading, sizeof now_reading, "%s", file.c_str());
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    body(text);
  }
  return static_cast<int>(files.size());
}

int run(const fs::path& corpus, const std::vector<std::string>& wanted) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, name_the_input);
  int bad = 0;
  for (const auto& entry : fs::directory_iterator(corpus))
    if (targets().count(entry.path().filename().string()) == 0) {
      std::fprintf(stderr, "%s: no target of this name\n", entry.path().c_str());
      bad = 1;
    }
  for (const auto& [name, body] : targets()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
    const int inputs = fs::is_directory(corpus / name) ? replay(body, corpus / name) : 0;
    std::printf("%-18s %5d inputs\n", name.c_str(), inputs);
    if (inputs == 0) {
      std::fprintf(stderr, "%s has no inputs in %s\n", name.c_str(), corpus.c_str());
      bad = 1;
    }
  }
  return bad;
}

}  // namespace

Target::Target(const char* name, Body body) {
  targets().emplace(name, body);
}

}  // namespace orrery::fuzz

int main(int count, char** words) {
  if (count < 2) {
    std::fprintf(stderr, "usage: test_fuzz CORPUS_FOLDER [TARGET...]\n");
    return 2;
  }
  return orrery::fuzz::run(words[1], {words + 2, words + count});
}
