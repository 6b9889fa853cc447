#pragma once
/// Notes down a RankClass: buffers, views, steps, and the lifetimes of buffers, which follow from who uses them.
/// Private to plan/: only lowering builds classes.
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

class ClassBuilder {
 public:
  [[nodiscard]] RankClass& result() { return class_; }

  BufferId buffer(std::string name, Purpose purpose, models::DType dtype, std::int64_t elements,
                  bool persistent = false);
  int view(const View& view);
  [[nodiscard]] View whole(BufferId buffer) const;
  [[nodiscard]] const View& view_at(int view) const { return class_.views[static_cast<std::size_t>(view)]; }
  [[nodiscard]] Bucket& bucket(BucketId id) { return class_.buckets[id]; }

  /// Opens a block; the steps added next go into it.
  void open(std::string name) { class_.blocks.push_back({std::move(name), {}}); }
  /// A compute step. Its operators say what it reads and writes; their operands name views.
  Step& compute(Phase phase, std::string part, std::vector<models::Op> ops, LayerId layer = {});
  Step& collective(Phase phase, Stream stream, CollectiveKind kind, GroupId group, View source, View target,
                   BucketId bucket = {}, LayerId layer = {}, Reduce reduce = Reduce::sum);
  /// An all-to-all of whole pieces, or of as much as counts say. It depends on the steps that write the counts.
  Step& exchange(Phase phase, Stream stream, GroupId group, View source, View target, LayerId layer = {},
                 const CountedRows& counted = {});
  /// A copy of rows of tables. Both views have as many elements as may move.
  void copy_rows(Phase phase, Stream stream, View source, View target, const RowMove& rows);
  void send(Phase phase, int peer, int tag, BufferId source);
  void receive(Phase phase, int peer, int tag, BufferId target);

  /// An operator over `m` elements of flat ranges.
  [[nodiscard]] static models::Op flat(models::OpKind kind, models::DType dtype, std::int64_t m, std::vector<int> in,
                                       std::vector<int> out);
  [[nodiscard]] models::Op zero_of(BufferId buffer);

  /// The latest step of the open block, if it has any, also needs `buffer`, which therefore dies there or later.
  void keep(BufferId buffer) {
    if (class_.blocks.back().steps.empty()) return;  // frozen, with nothing to pass on
    kept_.push_back(
        {buffer, static_cast<int>(class_.blocks.size()) - 1, static_cast<int>(class_.blocks.back().steps.size()) - 1});
  }

  /// A buffer is born at its first use and dies at its last; one used in two blocks lives per micro-batch. Call once,
  /// after the last step.
  void settle_lives();

 private:
  Step& push(Step step);
  Step& step_at(int block, int step);

  struct Kept {
    BufferId buffer;
    int block = -1, step = -1;
  };
  RankClass class_;
  std::vector<Kept> kept_;
};

}  // namespace orrery::plan
