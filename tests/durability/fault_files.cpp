// Every file operation of a checkpoint fails, one after the other and in every way: the old checkpoint loads, the
// message names path and cause and, of a full disk, what is needed and what is there, and nothing unfinished stays.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "exec/failure.h"
#include "exec/files/file_system.h"
#include "exec/files/files.h"
#include "tests/durability/tiny_run.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;
using testing::Scratch;
using testing::TinyRun;

enum class Fault { io_error, full_once, full_from_then_on, short_write, interrupted };

/// The N-th operation fails; those before and, mostly, behind it are the system's.
class FaultyFiles final : public FileSystem {
 public:
  FaultyFiles(int which, Fault fault) : which_(which), fault_(fault) {}
  [[nodiscard]] bool fired() const { return fired_; }
  [[nodiscard]] const std::string& operation() const { return operation_; }
  [[nodiscard]] const fs::path& path() const { return path_; }
  /// Whether it is of this operation, or of a later one of a disk that stays full: ranks write at once.
  [[nodiscard]] bool named_by(const std::string& message) const {
    for (const std::string& one : failed_)
      if (message.find(one) != std::string::npos) return true;
    return false;
  }

  int open(const Path& path, int flags) override {
    if (fails("open", path, true)) return -1;
    const int file = FileSystem::open(path, flags);
    const std::lock_guard lock(mutex_);
    names_[file] = path;
    return file;
  }
  std::int64_t write(int file, const void* data, std::size_t bytes) override {
    if (fault_ == Fault::short_write) {
      if (here("write", name_of(file)) && bytes > 1) bytes /= 2;
      return FileSystem::write(file, data, bytes);
    }
    return fails("write", name_of(file), true) ? -1 : FileSystem::write(file, data, bytes);
  }
  int sync(int file) override { return fails("sync", name_of(file), true) ? -1 : FileSystem::sync(file); }
  int close(int file) override {
    const bool bad = fails("close", name_of(file), false);
    const int result = FileSystem::close(file);  // the descriptor is gone either way
    if (!bad) return result;
    errno = error();
    return -1;
  }
  int rename(const Path& from, const Path& to) override {
    return fails("rename", to, false) ? -1 : FileSystem::rename(from, to);
  }
  int make_folder(const Path& path) override {
    return fails("make_folder", path, true) ? -1 : FileSystem::make_folder(path);
  }
  int remove_file(const Path& path) override {
    return fails("remove_file", path, false) ? -1 : FileSystem::remove_file(path);
  }
  int remove_folder(const Path& path) override {
    return fails("remove_folder", path, false) ? -1 : FileSystem::remove_folder(path);
  }
  int sync_folder(const Path& path) override {
    return fails("sync_folder", path, false) ? -1 : FileSystem::sync_folder(path);
  }
  std::int64_t free_bytes(const Path&) override { return 1234; }

 private:
  [[nodiscard]] int error() const {
    return fault_ == Fault::interrupted ? EINTR : fault_ == Fault::io_error ? EIO : ENOSPC;
  }
  Path name_of(int file) {
    const std::lock_guard lock(mutex_);
    return names_[file];
  }
  /// Whether this is the operation.
  bool here(const char* operation, const Path& path) {
    const std::lock_guard lock(mutex_);
    if (++count_ != which_) return false;
    fired_ = true;
    operation_ = operation;
    path_ = path;
    return true;
  }
  /// `takes_room`: a disk that has become full fails it from then on.
  bool fails(const char* operation, const Path& path, bool takes_room) {
    if (fault_ == Fault::short_write) return false;
    const bool now = here(operation, path) || (fired_ && takes_room && fault_ == Fault::full_from_then_on);
    if (!now) return false;
    const std::lock_guard lock(mutex_);
    failed_.insert(path.string());
    errno = error();
    return true;
  }

  const int which_;
  const Fault fault_;
  std::mutex mutex_;
  int count_ = 0;
  bool fired_ = false;
  std::string operation_;
  Path path_;
  std::map<int, Path> names_;
  std::set<std::string> failed_;
};

const char* name_of(Fault fault) {
  switch (fault) {
    case Fault::io_error: return "EIO";
    case Fault::full_once: return "ENOSPC";
    case Fault::full_from_then_on: return "ENOSPC from then on";
    case Fault::short_write: return "short write";
    case Fault::interrupted: return "EINTR";
  }
  return "?";
}

class FaultyDisk : public ::testing::TestWithParam<Fault> {
 protected:
  void expect_message(const std::string& message, const FaultyFiles& files) const {
    const bool full = GetParam() == Fault::full_once || GetParam() == Fault::full_from_then_on;
    EXPECT_TRUE(files.named_by(message)) << message;
    EXPECT_NE(message.find(std::strerror(full ? ENOSPC : EIO)), std::string::npos) << message;
    if (!full || files.operation().find("remove") == 0) return;
    EXPECT_NE(message.find("1234 are free"), std::string::npos) << message;
    if (files.operation() == "write" && GetParam() == Fault::full_once) {
      EXPECT_NE(message.find("more bytes are needed"), std::string::npos) << message;
    }
  }
};

// One checkpoint stands, a second one is saved and takes its place: every operation of that.
TEST_P(FaultyDisk, NeverTakesTheOldCheckpointAndNamesPathAndCause) {
  TinyRun run;
  const bool harmless = GetParam() == Fault::short_write || GetParam() == Fault::interrupted;
  int tried = 0, failed = 0, warned = 0, unharmed = 0;
  std::map<std::string, int> operations;
  for (int which = 1; which <= testing::cases(1'000'000); ++which) {
    const Scratch scratch;
    const fs::path folder = scratch.path() / "checkpoints";
    run.save(folder, 1, 1);
    FaultyFiles files(which, GetParam());
    SCOPED_TRACE(std::string(name_of(GetParam())) + " at operation " + std::to_string(which));
    std::string message;
    std::vector<std::string> warnings;
    {
      const WithFileSystem with(files);
      try {
        warnings = run.save(folder, 2, 1);
      } catch (const Failure& failure) {
        message = failure.what();
      }
    }
    if (!files.fired()) break;
    ++tried;
    ++operations[files.operation()];
    SCOPED_TRACE(files.operation() + " " + files.path().string());
    const Resumed resumed = run.resume(folder);
    ASSERT_TRUE(resumed.from);
    EXPECT_TRUE(resumed.damaged.empty());
    const std::int64_t step = resumed.manifest.step;
    EXPECT_TRUE(run.holds(step)) << step;
    EXPECT_EQ(testing::debris_in(folder), std::vector<std::string>());
    if (!message.empty()) {
      ++failed;
      EXPECT_FALSE(harmless) << message;
      expect_message(message, files);
      // Only where the new one has its name already, and it is not sure that the disk knows.
      EXPECT_EQ(step, files.operation() == "sync_folder" && files.path() == folder && fs::exists(folder / "step-000002")
                          ? 2
                          : 1);
    } else {
      EXPECT_EQ(step, 2);
      EXPECT_EQ(warnings.empty(), harmless) << "what went wrong is said";
      harmless ? ++unharmed : ++warned;
      for (const std::string& one : warnings) expect_message(one, files);
    }
    EXPECT_EQ(run.save(folder, 3, 1), std::vector<std::string>()) << "and the disk works again";
    EXPECT_EQ(run.resume(folder).manifest.step, 3);
    EXPECT_TRUE(run.holds(3));
    if (HasFailure()) break;
  }
  std::printf("[ faults   ] %s: %d operations failed: %d saves refused, %d warned of, %d unharmed (",
              name_of(GetParam()), tried, failed, warned, unharmed);
  for (const auto& [name, count] : operations) std::printf(" %s %d", name.c_str(), count);
  std::printf(" )\n");
  EXPECT_GE(tried, harmless ? 10 : 30);
  if (harmless) return;
  EXPECT_GT(failed, 10);
  EXPECT_GT(warned, 0);
}

INSTANTIATE_TEST_SUITE_P(Each, FaultyDisk,
                         ::testing::Values(Fault::io_error, Fault::full_once, Fault::full_from_then_on,
                                           Fault::short_write, Fault::interrupted));

// The guard that is tested: a writer that does not look at what a system call returns.
TEST(FaultyFiles, FailWhatTheyAreToldTo) {
  const Scratch scratch;
  FaultyFiles files(2, Fault::full_once);
  const WithFileSystem with(files);
  try {
    write_atomically(scratch.path() / "a", "text");
    FAIL() << "the second operation was to fail";
  } catch (const Failure& failure) {
    EXPECT_EQ(std::string(failure.what()), "cannot write " + (scratch.path() / "a.tmp").string() +
                                               ": No space left on device: 4 more bytes are needed, 1234 are free");
  }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

}  // namespace
}  // namespace orrery::exec

int main(int count, char** arguments) {
  return orrery::exec::testing::run_tests(count, arguments);
}
