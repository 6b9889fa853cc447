// Tables in parts: find rows, look them up, update them.
#include "plan/lower/sharded_tables.h"

#include <algorithm>
#include <utility>

#include "plan/lower/cached_tables.h"
#include "plan/lower/recommender_ranges.h"
#include "plan/lower/recommender_server.h"
#include "plan/lower/table_locality.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

void ShardedTables::find_rows(BufferId indices) {
  const std::int64_t words = step_.layout.indices * step_.layout.words;  // of a sample
  const std::int64_t lengths = members() * step_.layout.most_shards * step_.layout.samples,
                     room = members() * step_.layout.most_indices * step_.layout.words;
  const BufferId sent_lengths = make("lengths.sent", lengths, DType::int32);
  const BufferId sent_indices = make("indices.sent", room, DType::int32);
  std::vector<int> out = {view(sent_lengths), view(sent_indices)};
  for (const int counts : travel_.counts()) out.push_back(counts);
  // A rank that gets no indices of others finds its own among those of all
  // samples.
  const std::int64_t sorted = step_.exchanges_indices ? step_.layout.samples : step_.layout.samples * members();
  Op op = op_of(OpKind::bucketise_indices, sorted, words, words, {view(indices)}, std::move(out));
  build_.compute(Phase::forward, "bucketise", {std::move(op)});
  lengths_ = sent_lengths;
  bags_ = sent_indices;
  if (members() > 1 && step_.exchanges_indices) {
    lengths_ = make("lengths", lengths, DType::int32);
    build_.exchange(Phase::forward, Stream::exchange, step_.groups.all, build_.whole(sent_lengths),
                    build_.whole(lengths_));
    bags_ = make("bags", room, DType::int32);
    build_.exchange(Phase::forward, Stream::exchange, step_.groups.all, build_.whole(sent_indices), build_.whole(bags_),
                    {}, {view(sent_lengths), view(lengths_), step_.layout.words, mean_index_share(step_.layout)});
  }
  keep_sent({sent_lengths, sent_indices});
}

void ShardedTables::fetch() {
  places_of_rows_ = fetch_rows(build_, step_.layout, step_.spec, {lengths_, bags_, !step_.forward_only}, waiting_);
}

void ShardedTables::look_up() {
  const RankClass& made = build_.result();
  const TableLayout::Lookups most = step_.layout.heaviest();
  const BufferId pooled = travel_.values("pooled", Phase::forward);
  const DType type = travel_.native(step_.layout.forward) ? step_.type() : DType::fp32;
  const std::int64_t written = models::size_of(type) * most.values;  // bytes
  const BufferId rows = step_.layout.cached() ? places_of_rows_ : bags_;
  std::vector<int> in = {view(lengths_), view(rows), view(made.tables)};
  if (step_.layout.cached()) in.push_back(view(bags_));
  std::vector<Op> ops = {op_of(OpKind::embedding_bag, most.count, most.width, written / models::size_of(step_.stored()),
                               std::move(in), {view(pooled)})};
  ops.back().dtype = step_.stored();
  ops.back().capacity = most_distinct_rows(step_.layout);
  const BufferId sent = travel_.encoded(Phase::forward, pooled, ops);
  build_.compute(Phase::forward, "embedding", std::move(ops));
  release_sent();
  received_ = travel_.send(Phase::forward, sent, sent_pooled_);
}

void ShardedTables::arrived() {
  keep_sent(std::exchange(sent_pooled_, {}));
  release_sent();
}

// A buffer that is sent stays until something waits for what was received:
// freed earlier, compute would wait for the message.
void ShardedTables::keep_sent(const std::vector<BufferId>& sent) {
  if (members() > 1) waiting_.insert(waiting_.end(), sent.begin(), sent.end());
}

void ShardedTables::release_sent() {
  for (const BufferId buffer : waiting_) build_.keep(buffer);
  waiting_.clear();
}

void ShardedTables::return_gradients(BufferId sent) {
  sent_gradients_ = received_gradients_ = sent;
  if (!step_.served()) received_gradients_ = travel_.send(Phase::backward, sent, waiting_);
}

void ShardedTables::push() {
  kept_counts_ = travel_.counts_buffer();
  const bool counted = !alike(step_.layout, PooledWay::exchange, step_.layout.backward);
  travel_.push_by(Stream::data, step_.data, counted ? copied(build_, kept_counts_) : kept_counts_);
  std::vector<BufferId> stays;  // as long as updates wait for it
  received_gradients_ = travel_.send(Phase::backward, sent_gradients_, stays);
}

BufferId ShardedTables::row_squares(const std::vector<int>& in, std::vector<Op>& ops) {
  if (step_.layout.squares <= 0 || step_.kept().by_row == 0 || members() == 1) return {};
  const TableLayout::Lookups most = step_.layout.heaviest();
  const BufferId squares = make("row_squares", step_.turns() * step_.layout.squares, DType::fp32);
  const Op op = op_of(OpKind::embedding_bag_squares, most.count / step_.turns(), most.width, 0, in, {view(squares)});
  add_turns(build_, op, step_.turns(), {squares}, ops);
  build_.compute(Phase::backward, "row_squares", std::exchange(ops, {}));
  release_sent();
  const View v = build_.whole(squares);
  build_.collective(Phase::gradient_reduce, step_.served() ? Stream::data : Stream::exchange,
                    CollectiveKind::all_reduce, step_.served() ? step_.data : step_.groups.all, v, v);
  return squares;
}

void ShardedTables::update(BufferId norm_squared) {
  RankClass& made = build_.result();
  std::vector<Op> ops;
  const BufferId gradients = travel_.decoded(Phase::backward, received_gradients_, ops);
  const TableLayout::Lookups most = step_.layout.heaviest();
  const std::vector<int> in = {view(lengths_), view(bags_), view(gradients)};
  const BufferId squares = row_squares(in, ops);
  std::vector<int> with_squares = in;
  if (squares) with_squares.push_back(view(squares));
  with_squares.resize(step_.layout.cached() ? 4 : with_squares.size(), -1);
  if (step_.layout.cached()) with_squares.push_back(view(made.cache));
  std::vector<int> out = {view(made.tables), made.table_states.exists() ? view(made.table_states) : -1,
                          view(norm_squared)};
  Op op = op_of(OpKind::embedding_bag_update, most.count / step_.turns(), most.width, 0, std::move(with_squares),
                std::move(out));
  op.rule = traits_of(step_.spec.states.optimizer).rule;
  op.dtype = step_.stored();
  op.capacity = step_.served() ? std::min(most_distinct_rows(step_.layout), op.n) : most_distinct_rows(step_.layout);
  add_turns(build_, op, step_.turns(), {squares, norm_squared}, ops);
  build_.compute(Phase::optimizer, "update_tables", std::move(ops));
  release_sent();
}

}  // namespace orrery::plan
