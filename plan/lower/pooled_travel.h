#pragma once
/// The messages of pooled vectors and of their gradients, each way by itself (plan/spec/pooled_way.h). Private to
/// plan/.
#include <vector>

#include "plan/lower/class_builder.h"
#include "plan/spec/table_layout.h"

namespace orrery::plan {

/// Groups of a schedule, by index: of all ranks; of a node's; of those that have the same place in their nodes. -1:
/// none.
struct TableGroups {
  GroupId all, node, places;
};
/// Adds those that the layout needs, behind the group of all ranks.
[[nodiscard]] TableGroups add_table_groups(base::ById<GroupId, Group>& groups, const TableLayout& layout);

/// Forward from the tables to the samples' owners, backward the other way.
class PooledTravel {
 public:
  /// `computed`: type of what is computed beside tables. Vectors of that type travel as they are.
  PooledTravel(ClassBuilder& build, const TableLayout& layout, const TableGroups& groups, models::DType computed);

  [[nodiscard]] bool native(PooledType type) const { return dtype_of(type) == computed_; }
  /// A buffer of vectors as lookups or the interaction write them.
  BufferId values(const char* name, Phase phase);
  /// Views of counts, as `bucketise_indices` writes them.
  [[nodiscard]] std::vector<int> counts();
  [[nodiscard]] BufferId counts_buffer() const { return counts_; }
  /// With a parameter server: what is sent from now on is an all-to-all on this stream and over this group, by `counts`
  /// in place of those of the pass, into a buffer that lasts.
  void push_by(Stream stream, GroupId group, BufferId counts) {
    stream_ = stream, groups_.all = group, counts_ = counts, lasts_ = true;
  }
  /// `values` as they are sent: encoded by an operator that is added to `ops`, or as they are.
  BufferId encoded(Phase phase, BufferId values, std::vector<models::Op>& ops);
  /// Sends them; returns where they come. What has to stay until somebody has waited for it is added to `sent`.
  BufferId send(Phase phase, BufferId buffer, std::vector<BufferId>& sent);
  /// What came, as lookups' updates or the interaction take it.
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
