// A power cut at any moment of a run that saves checkpoints: of what was not synced any part is lost, torn or comes
// before what was written earlier. In each image of the disk the newest checkpoint that was acknowledged, or a newer
// one, loads as it was saved.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <random>

#include "exec/failure.h"
#include "exec/files/file_system.h"
#include "tests/durability/tiny_run.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;
using testing::Scratch;
using testing::TinyRun;

struct Logged {
  enum Kind { open, write, sync, rename, make_folder, remove, sync_folder, acknowledged } kind{};
  std::string path, to;  ///< of a file that is open: its name when it was opened
  int file = -1;         ///< of open, write and sync: the file, counted from 0
  bool truncate = false;
  std::string data;
  std::int64_t step = 0;
};

/// Does everything, and remembers it.
class LoggedFiles final : public FileSystem {
 public:
  int open(const Path& path, int flags) override {
    const std::lock_guard lock(mutex_);
    const int file = FileSystem::open(path, flags);
    if (file >= 0) {
      numbers_[file] = next_;
      log_.push_back({Logged::open, path.string(), {}, next_++, (flags & O_TRUNC) != 0, {}, 0});
    }
    return file;
  }
  std::int64_t write(int file, const void* data, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    const std::int64_t n = FileSystem::write(file, data, bytes);
    if (n > 0)
      log_.push_back({Logged::write,
                      {},
                      {},
                      numbers_[file],
                      false,
                      std::string(static_cast<const char*>(data), static_cast<std::size_t>(n)),
                      0});
    return n;
  }
  int sync(int file) override {
    const std::lock_guard lock(mutex_);
    log_.push_back({Logged::sync, {}, {}, numbers_[file], false, {}, 0});
    return 0;
  }
  int rename(const Path& from, const Path& to) override {
    const std::lock_guard lock(mutex_);
    const int result = FileSystem::rename(from, to);
    if (result == 0) log_.push_back({Logged::rename, from.string(), to.string(), -1, false, {}, 0});
    return result;
  }
  int make_folder(const Path& path) override {
    const std::lock_guard lock(mutex_);
    const int result = FileSystem::make_folder(path);
    if (result == 0) log_.push_back({Logged::make_folder, path.string(), {}, -1, false, {}, 0});
    return result;
  }
  int remove_file(const Path& path) override {
    const std::lock_guard lock(mutex_);
    const int result = FileSystem::remove_file(path);
    if (result == 0) log_.push_back({Logged::remove, path.string(), {}, -1, false, {}, 0});
    return result;
  }
  int remove_folder(const Path& path) override {
    const std::lock_guard lock(mutex_);
    const int result = FileSystem::remove_folder(path);
    if (result == 0) log_.push_back({Logged::remove, path.string(), {}, -1, false, {}, 0});
    return result;
  }
  int sync_folder(const Path& path) override {
    const std::lock_guard lock(mutex_);
    log_.push_back({Logged::sync_folder, path.string(), {}, -1, false, {}, 0});
    return 0;
  }
  /// The run was told that this step's checkpoint is saved.
  void acknowledge(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    log_.push_back({Logged::acknowledged, {}, {}, -1, false, {}, step});
  }
  [[nodiscard]] const std::vector<Logged>& log() const { return log_; }

 private:
  std::mutex mutex_;
  std::vector<Logged> log_;
  std::map<int, int> numbers_;  ///< by descriptor
  int next_ = 0;
};

/// Which of the syncs the disk obeys: all, unless the test shows what they are for.
struct Obeys {
  bool files = true, folders = true;
};

/// What the disk has for sure, and what is under way to it.
class Disk {
 public:
  Disk(fs::path root, Obeys obeys) : root_(std::move(root)), obeys_(obeys) {
    nodes_.push_back({true, {}, {}, {}, {}});
    live_[root_.string()] = 0;
  }

  void apply(const Logged& one) {
    switch (one.kind) {
      case Logged::open: return opened(one);
      case Logged::write: return node_of(one.file).writes.push_back(one.data);
      case Logged::sync: {
        Node& node = node_of(one.file);
        if (!obeys_.files) return;
        for (const std::string& data : node.writes) node.durable += data;
        return node.writes.clear();
      }
      case Logged::rename: return renamed(one.path, one.to);
      case Logged::make_folder: return link(one.path, add({true, {}, {}, {}, {}}));
      case Logged::remove: return unlink(one.path);
      case Logged::sync_folder: {
        const auto found = live_.find(one.path);
        if (found == live_.end() || !obeys_.folders) return;
        Node& node = nodes_[static_cast<std::size_t>(found->second)];
        for (const Change& change : node.changes) change_entries(node.entries, change);
        return node.changes.clear();
      }
      case Logged::acknowledged: return;
    }
  }

  /// The disk as it may be found after a cut now, below `folder`.
  void image(const fs::path& folder, std::mt19937& random) const { write_folder(0, folder, random); }

 private:
  struct Change {
    std::string removed, added;  ///< either may be empty
    int node = -1;
  };
  struct Node {
    bool folder = false;
    std::string durable;
    std::vector<std::string> writes;     ///< behind it, not synced
    std::map<std::string, int> entries;  ///< for sure
    std::vector<Change> changes;         ///< not synced
  };

  int add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }
  Node& node_of(int file) { return nodes_[static_cast<std::size_t>(files_.at(file))]; }
  Node& parent_of(const std::string& path) {
    return nodes_[static_cast<std::size_t>(live_.at(fs::path(path).parent_path().string()))];
  }
  static std::string name_of(const std::string& path) { return fs::path(path).filename().string(); }
  void link(const std::string& path, int node) {
    live_[path] = node;
    parent_of(path).changes.push_back({{}, name_of(path), node});
  }
  void unlink(const std::string& path) {
    parent_of(path).changes.push_back({name_of(path), {}, -1});
    live_.erase(path);
  }
  void opened(const Logged& one) {
    const auto found = live_.find(one.path);
    if (found == live_.end()) {
      files_[one.file] = add({false, {}, {}, {}, {}});
      return link(one.path, files_[one.file]);
    }
    ASSERT_FALSE(one.truncate) << one.path << " is written in its place";
    files_[one.file] = found->second;
  }
  void renamed(const std::string& from, const std::string& to) {
    const int node = live_.at(from);
    ASSERT_EQ(fs::path(from).parent_path(), fs::path(to).parent_path());
    parent_of(to).changes.push_back({name_of(from), name_of(to), node});
    std::map<std::string, int> moved;
    for (auto it = live_.begin(); it != live_.end();) {
      if (it->first == from || it->first.rfind(from + "/", 0) == 0) {
        moved[to + it->first.substr(from.size())] = it->second;
        it = live_.erase(it);
      } else {
        ++it;
      }
    }
    for (const auto& [path, one] : moved) live_[path] = one;
  }
  static void change_entries(std::map<std::string, int>& entries, const Change& change) {
    if (!change.removed.empty()) entries.erase(change.removed);
    if (!change.added.empty()) entries[change.added] = change.node;
  }

  /// Which of so many things that were under way have arrived: none, all, the first ones, or any of them.
  static std::vector<bool> arrived(std::size_t count, std::mt19937& random) {
    std::vector<bool> out(count);
    const auto way = random() % 4;
    const std::size_t first = count > 0 ? random() % (count + 1) : 0;
    for (std::size_t i = 0; i < count; ++i)
      out[i] = way == 1 || (way == 2 && i < first) || (way == 3 && random() % 2 == 0);
    return out;
  }

  void write_folder(int number, const fs::path& path, std::mt19937& random) const {
    const Node& node = nodes_[static_cast<std::size_t>(number)];
    fs::create_directories(path);
    std::map<std::string, int> entries = node.entries;
    const std::vector<bool> here = arrived(node.changes.size(), random);
    for (std::size_t i = 0; i < here.size(); ++i)
      if (here[i]) change_entries(entries, node.changes[i]);
    for (const auto& [name, inside] : entries) {
      if (nodes_[static_cast<std::size_t>(inside)].folder)
        write_folder(inside, path / name, random);
      else
        write_file(inside, path / name, random);
    }
  }

  void write_file(int number, const fs::path& path, std::mt19937& random) const {
    const Node& node = nodes_[static_cast<std::size_t>(number)];
    std::string content = node.durable;
    std::size_t at = content.size();
    const std::vector<bool> here = arrived(node.writes.size(), random);
    for (std::size_t i = 0; i < here.size(); ++i) {
      const std::string& data = node.writes[i];
      if (here[i]) {
        const std::size_t length = random() % 4 == 0 ? random() % (data.size() + 1) : data.size();  // torn
        if (content.size() < at + length) content.resize(at + length, '\0');                        // holes are zeros
        content.replace(at, length, data, 0, length);
      }
      at += data.size();
    }
    std::ofstream(path, std::ios::binary) << content;
  }

  fs::path root_;
  Obeys obeys_;
  std::vector<Node> nodes_;
  std::map<std::string, int> live_;  ///< by path, as the program sees it
  std::map<int, int> files_;         ///< node of each file that was opened
};

struct Counts {
  int images = 0, lost = 0, damaged = 0, wrong = 0, before_the_first = 0;
};

/// A run that saves step after step, and `images` cuts of the power during it.
Counts cut(int images, int keep, unsigned seed, Obeys obeys) {
  TinyRun run;
  const Scratch scratch;
  LoggedFiles files;
  {
    const WithFileSystem with(files);
    for (std::int64_t step = 1; step <= 5; ++step) {
      EXPECT_TRUE(run.save(scratch.path() / "run/checkpoints", step, keep).empty());
      files.acknowledge(step);
    }
  }
  Counts counts;
  std::mt19937 random(seed);
  std::vector<std::size_t> moments;
  for (int i = 0; i < images; ++i) moments.push_back(random() % (files.log().size() + 1));
  std::sort(moments.begin(), moments.end());
  Disk disk(scratch.path(), obeys);
  std::size_t at = 0;
  std::int64_t acknowledged = 0;
  for (const std::size_t moment : moments) {
    for (; at < moment; ++at) {
      disk.apply(files.log()[at]);
      if (files.log()[at].kind == Logged::acknowledged) acknowledged = files.log()[at].step;
    }
    const Scratch image;
    disk.image(image.path(), random);
    ++counts.images;
    if (acknowledged == 0) ++counts.before_the_first;
    const Resumed resumed = run.resume(image.path() / "run/checkpoints");
    const std::int64_t loaded = resumed.from ? resumed.manifest.step : 0;
    if (loaded < acknowledged) ++counts.lost;
    if (!resumed.damaged.empty()) ++counts.damaged;
    if (loaded > 0 && !run.holds(loaded)) ++counts.wrong;
  }
  return counts;
}

void print(const char* what, const Counts& c) {
  std::printf(
      "[ cuts     ] %s: %d images, %d before the first checkpoint: %d acknowledged lost, %d with a damaged one, "
      "%d with other values\n",
      what, c.images, c.before_the_first, c.lost, c.damaged, c.wrong);
}

TEST(PowerCut, LeavesTheNewestAcknowledgedCheckpointWhole) {
  for (const int keep : {1, 2}) {
    const Counts counts = cut(testing::cases(600) / 2, keep, 7 + static_cast<unsigned>(keep), {});
    print(keep == 1 ? "one kept" : "two kept", counts);
    EXPECT_EQ(counts.lost, 0);
    EXPECT_EQ(counts.damaged, 0) << "what has the name is whole";
    EXPECT_EQ(counts.wrong, 0);
    EXPECT_LT(counts.before_the_first, counts.images / 2);
  }
}

// What the syncs are for, and that this test sees it.
TEST(PowerCut, LosesCheckpointsOnADiskThatDoesNotSyncFiles) {
  const Counts counts = cut(200, 2, 3, {.files = false});
  print("files not synced", counts);
  EXPECT_GT(counts.damaged, 0);
  EXPECT_GT(counts.lost, 0);
  EXPECT_EQ(counts.wrong, 0) << "what is damaged is never loaded";
}

TEST(PowerCut, LosesCheckpointsOnADiskThatDoesNotSyncFolders) {
  const Counts counts = cut(200, 2, 5, {.folders = false});
  print("folders not synced", counts);
  EXPECT_GT(counts.lost, 0);
  EXPECT_EQ(counts.wrong, 0);
}

}  // namespace
}  // namespace orrery::exec

int main(int count, char** arguments) {
  return orrery::exec::testing::run_tests(count, arguments);
}
