// The small pieces that durable saving is made of: agreeing on failures, checksums of parts, folders, removal.
#include "exec/files/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "exec/engine/thread_transport.h"
#include "exec/files/checksum.h"
#include "exec/state/agreement.h"
#include "exec/state/checkpoint_manifest.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace files_test {

namespace fs = std::filesystem;

/// What each of three ranks throws when `body` is run together.
std::vector<std::string> thrown(const std::function<void(int)>& body, int& damaged) {
  ThreadWorld world(3);
  std::vector<std::string> said(3);
  std::atomic<int> count{0};
  testing::in_threads(
      3,
      [&](int rank) {
        const auto transport = world.transport(rank);
        std::string& mine = said[static_cast<std::size_t>(rank)];
        try {
          together(*transport, [&] { body(rank); });
        } catch (const DamagedCheckpoint& one) {
          mine = one.what();
          ++count;
        } catch (const Failure& one) {
          mine = std::string(one.what()) + " " + std::to_string(static_cast<int>(one.kind()));
        }
        transport->barrier();  // nobody is left in an exchange
      },
      [&](const std::string& why) { world.abort(why); });
  damaged = count;
  return said;
}

TEST(Together, AllRanksThrowWhatTheLowestThatFailedThrew) {
  int damaged = 0;
  EXPECT_EQ(thrown([](int) {}, damaged), (std::vector<std::string>(3)));
  const std::string text = "cannot write ä: " + std::string(500, 'x') + "\xff";
  const auto failing = [&](int rank) {
    if (rank == 1) throw Failure(text, FailureKind::environment);
    if (rank == 2) throw Failure("another", FailureKind::input);
  };
  EXPECT_EQ(thrown(failing, damaged), (std::vector<std::string>(3, text + " 1")));
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(thrown(
                [](int rank) {
                  if (rank == 2) throw DamagedCheckpoint("cut");
                },
                damaged),
            (std::vector<std::string>(3, "cut")));
  EXPECT_EQ(damaged, 3);
  EXPECT_EQ(thrown(
                [](int rank) {
                  if (rank == 0) throw std::runtime_error("");
                },
                damaged),
            (std::vector<std::string>(3, " 0")));
}

TEST(Checksum, OfTwoRunsIsThatOfBothTogether) {
  std::string text(5000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i + i / 7);
  const auto crc = [](std::string_view bytes) { return crc32(std::as_bytes(std::span(bytes))); };
  const std::string_view all = text;
  for (const std::size_t at : {0, 1, 7, 8, 4096, 4999, 5000})
    EXPECT_EQ(crc32_of_both(crc(all.substr(0, at)), crc(all.substr(at)), static_cast<std::int64_t>(5000 - at)),
              crc(all))
        << at;
  EXPECT_EQ(crc("123456789"), 0xcbf43926U);
  EXPECT_EQ(crc32({}, 0xcbf43926U), 0xcbf43926U);
}

TEST(Files, RemovingATreeTakesLinksAndNotWhatTheyPointTo) {
  const fs::path base = fs::temp_directory_path() / ("orrery-files-" + std::to_string(getpid()));
  fs::remove_all(base);
  make_folders(base / "a/b/c");
  make_folders(base / "a/b/c");
  EXPECT_TRUE(fs::is_directory(base / "a/b/c"));
  make_folders(base / "other");
  write_atomically(base / "other/kept", "x");
  fs::create_directory_symlink(base / "other", base / "a/b/link");
  fs::create_symlink(base / "nowhere", base / "a/broken");
  remove_tree(base / "a");
  EXPECT_FALSE(fs::exists(base / "a"));
  EXPECT_EQ(read_file(base / "other/kept", 10), "x");
  remove_tree(base / "a");
  {
    NewFile file(base / "unfinished", 3);
    file.write(std::as_bytes(std::span("ab", 2)));
  }
  EXPECT_FALSE(fs::exists(base / "unfinished"));
  EXPECT_THROW(make_folders(base / "other/kept/below"), Failure);
  remove_tree(base);
}

TEST(Files, ALockIsHeldByOneAloneUntilItLetsGo) {
  const fs::path path = fs::temp_directory_path() / ("orrery-lock-" + std::to_string(getpid()));
  {
    const FileLock first = lock_file(path);
    EXPECT_TRUE(first.held());
    EXPECT_FALSE(lock_file(path).held());
  }
  EXPECT_TRUE(lock_file(path).held());
  fs::remove(path);
}

}  // namespace files_test
}  // namespace orrery::exec
