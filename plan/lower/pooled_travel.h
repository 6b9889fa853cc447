#pragma once
/// The messages of pooled vectors and of their gradients, separately for each way (plan/spec/pooled_way.h). Private to
/// plan/.
#include <vector>

#include "plan/lower/class_builder.h"
#include "plan/spec/table_layout.h"

namespace orrery::plan {

/// Groups of a schedule, by index: all ranks; the ranks of a node; the ranks with the same place in their nodes. -1:
/// none.
struct TableGroups {
  GroupId all, node, places;
};
/// Adds the groups that the layout needs, after the group of all ranks.
[[nodiscard]] TableGroups add_table_groups(base::ById<GroupId, Group>& groups, const TableLayout& layout);

/// Forward from the tables to the samples' owners, backward the other way.
class PooledTravel {
 public:
  /// `computed`: the type of the computations beside the tables. Vectors of that type are sent as they are.
  PooledTravel(ClassBuilder& build, const TableLayout& layout, const TableGroups& groups, models::DType computed);

  [[nodiscard]] bool native(PooledType type) const { return dtype_of(type) == computed_; }
  /// A buffer of vectors in the form in which lookups or the interaction write them.
  BufferId values(const char* name, Phase phase);
  /// Views of counts, as `bucketise_indices` writes them.
  [[nodiscard]] std::vector<int> counts();
  [[nodiscard]] BufferId counts_buffer() const { return counts_; }
  /// With a parameter server: from now on, what is sent is an all-to-all on this stream and over this group, with
  /// `counts` instead of the counts of the pass, into a buffer that lives across steps.
  void push_by(Stream stream, GroupId group, BufferId counts) {
    stream_ = stream, groups_.all = group, counts_ = counts, lasts_ = true;
  }
  /// `values` in the form in which they are sent: encoded by an operator that is added to `ops`, or unchanged.
  BufferId encoded(Phase phase, BufferId values, std::vector<models::Op>& ops);
  /// Sends them; returns the buffer that receives them. Buffers that must stay until a step has waited for the message
  /// are added to `sent`.
  BufferId send(Phase phase, BufferId buffer, std::vector<BufferId>& sent);
  /// The received values in the form in which the tables' updates or the interaction read them.
  BufferId decoded(Phase phase, BufferId received, std::vector<models::Op>& ops);

 private:
  [[nodiscard]] PooledType type_of(Phase phase) const {
    return phase == Phase::forward ? layout_.forward : layout_.backward;
  }
  [[nodiscard]] bool encodes(PooledType type) const {
    return type != PooledType::fp32 && !native(type) && layout_.ranks > 1;
  }
  [[nodiscard]] int view(BufferId buffer) { return build_.view(build_.whole(buffer)); }
  models::Op codec(models::OpKind kind, PooledType type, PooledEnd end, BufferId from, BufferId to);
  [[nodiscard]] View slots_at(BufferId buffer, Phase phase, PooledEnd end, PooledWay way) const;
  void exchange(Phase phase, PooledWay way, View from, View to);
  void by_ranks(Phase phase, BufferId from, BufferId to);
  void by_nodes(Phase phase, BufferId from, BufferId to, std::vector<BufferId>& sent);

  ClassBuilder& build_;
  const TableLayout& layout_;
  TableGroups groups_;
  models::DType computed_;
  BufferId counts_;
  Stream stream_ = Stream::exchange;
  bool lasts_ = false;
};

}  // namespace orrery::plan
