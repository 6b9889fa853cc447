// fork, exec, and two temporary files for what the child says.
#include "tests/apps/command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace orrery::tests {
namespace fs = std::filesystem;
namespace {

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

[[noreturn]] void become(const fs::path& binary, std::vector<std::string> arguments,
                         std::vector<std::string> environment, const fs::path& folder, const fs::path& in,
                         const fs::path& out, const fs::path& err) {
  const auto redirect = [](const fs::path& to, int descriptor, int flags) {
    const int file = ::open(to.c_str(), flags, 0600);
    if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(126);
  };
  redirect(in, STDIN_FILENO, O_RDONLY);
  redirect(out, STDOUT_FILENO, O_WRONLY | O_CREAT | O_TRUNC);
  redirect(err, STDERR_FILENO, O_WRONLY | O_CREAT | O_TRUNC);
  if (::chdir(folder.c_str()) != 0) ::_exit(126);
  arguments.insert(arguments.begin(), binary.string());
  auto argv = pointers(arguments);
  auto envp = pointers(environment);
  ::execve(binary.c_str(), argv.data(), envp.data());
  ::_exit(127);
}

/// As ^C on a terminal would, but at a moment that a test can name. Gives up after a minute, or when the child is gone.
void interrupt_when(pid_t child, const fs::path& file) {
  for (int tenths = 0; tenths < 600; ++tenths) {
    std::error_code error;
    if (fs::file_size(file, error) > 0 && !error) {
      ::kill(child, SIGINT);
      return;
    }
    siginfo_t gone{};
    if (::waitid(P_PID, static_cast<id_t>(child), &gone, WEXITED | WNOHANG | WNOWAIT) == 0 && gone.si_pid == child)
      return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ::kill(child, SIGKILL);
}

}  // namespace

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Ran orrery(const std::vector<std::string>& arguments, const Where& where) {
  const Scratch scratch;
  const fs::path out = where.output.empty() ? scratch.path() / "out" : where.output, err = scratch.path() / "err";
  std::vector<std::string> environment = where.environment;  // of two equal names the first counts
  environment.insert(environment.end(), {"LANG=C.UTF-8", "HOME=/nonexistent"});
  environment.push_back(std::string("PATH=") + (std::getenv("PATH") ? std::getenv("PATH") : "/usr/bin:/bin"));
  const fs::path binary = where.binary.empty() ? fs::path(ORRERY_BINARY) : where.binary;
  const fs::path folder = where.folder.empty() ? fs::path(ORRERY_SOURCE_DIR) : where.folder;
  const pid_t child = ::fork();
  if (child == 0) become(binary, arguments, environment, folder, where.input, out, err);
  if (!where.interrupt_when.empty()) interrupt_when(child, where.interrupt_when);
  int status = 0;
  rusage used{};
  ::wait4(child, &status, 0, &used);
  return Ran{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), where.output.empty() ? text_of(out) : "",
             text_of(err), used.ru_maxrss / 1024};
}

nlohmann::json Ran::envelope() const {
  const nlohmann::json parsed = nlohmann::json::parse(out, nullptr, false);
  if (!parsed.is_object()) {
    ADD_FAILURE() << "stdout is not one JSON object: " << out << "\nstderr: " << err;
    return {{"result", nullptr}, {"diagnostics", nlohmann::json::array()}};
  }
  expect_keys(parsed, {"format_version", "command", "result", "diagnostics"});
  return parsed;
}

Scratch::Scratch() {
  std::string name = (fs::temp_directory_path() / "orrery-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
  path_ = name;
}

Scratch::~Scratch() {
  std::error_code error;
  fs::remove_all(path_, error);
}

std::string Scratch::file(const std::string& name, const std::string& text) const {
  const fs::path path = path_ / name;
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path.string();
}

void expect_keys(const nlohmann::json& object, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) EXPECT_TRUE(object.contains(key)) << "lacks the key " << key;
}

}  // namespace orrery::tests
