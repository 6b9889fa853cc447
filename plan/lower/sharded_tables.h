#pragma once
/// Tables that ranks hold in parts: indices travel to those who have their
/// rows, pooled vectors to their samples, and gradients back, which update the
/// rows. Private to plan/.
#include <string>
#include <vector>

#include "plan/lower/recommender_step.h"

namespace orrery::plan {

class ShardedTables {
 public:
  /// All references must outlive this. Steps are added to the open block.
  ShardedTables(ClassBuilder& build, const RecommenderStep& step)
      : build_(build), step_(step), travel_(build, step.layout, step.groups, step.type()) {}

  /// Sends indices (of all tables, of this rank's samples) to those who have
  /// their rows.
  void find_rows(BufferId indices);
  /// Brings rows that are not on the device into its cache.
  void fetch();
  /// Sums the rows and sends the sums.
  void look_up();
  /// The sums of this rank's samples, once they have come, as the interaction
  /// reads them. A step that waits for them then calls arrived().
  [[nodiscard]] BufferId pooled(std::vector<models::Op>& ops) {
    return travel_.decoded(Phase::forward, received_, ops);
  }
  void arrived();

  /// A buffer for the gradients of these sums, and the same in the form in
  /// which they are sent.
  [[nodiscard]] BufferId gradients() { return travel_.values("gradients.pooled", Phase::backward); }
  [[nodiscard]] BufferId encoded(BufferId gradients, std::vector<models::Op>& ops) {
    return travel_.encoded(Phase::backward, gradients, ops);
  }
  /// Sends them, unless a parameter server's push does that.
  void return_gradients(BufferId sent);
  /// The parameter server's push, on a stream of its own: a later step's
  /// indices and vectors travel meanwhile. `data`: the group of all ranks.
  void push();
  /// `norm_squared` gets the squares of the gradients.
  void update(BufferId norm_squared);

  /// What updates of a parameter server read, some steps later.
  [[nodiscard]] std::vector<BufferId> looked_up() const { return {lengths_, bags_, kept_counts_}; }
  [[nodiscard]] BufferId sent_gradients() const { return sent_gradients_; }

 private:
  [[nodiscard]] std::int64_t members() const { return step_.layout.ranks; }
  [[nodiscard]] int view(BufferId buffer) { return build_.view(build_.whole(buffer)); }
  [[nodiscard]] BufferId make(const std::string& name, std::int64_t elements, models::DType type) {
    return build_.buffer(name, Purpose::communication, type, elements);
  }
  /// Where several ranks have columns of a row: the squares of each row's
  /// gradient, summed over them. None: nothing asks for them.
  [[nodiscard]] BufferId row_squares(const std::vector<int>& in, std::vector<models::Op>& ops);
  void keep_sent(const std::vector<BufferId>& sent);
  void release_sent();

  ClassBuilder& build_;
  const RecommenderStep& step_;
  PooledTravel travel_;
  BufferId lengths_, bags_, places_of_rows_;
  BufferId received_, sent_gradients_, received_gradients_, kept_counts_;
  std::vector<BufferId> waiting_;  ///< what was sent since the last wait
  std::vector<BufferId> sent_pooled_;
};

}  // namespace orrery::plan
