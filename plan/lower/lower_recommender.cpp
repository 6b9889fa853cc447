// A training step of a recommendation model. Reading order: build(), forward(), backward(), finish().
#include "plan/lower/lower_recommender.h"

#include <algorithm>
#include <map>

#include "base/ensure.h"
#include "plan/lower/buckets.h"
#include "plan/lower/cached_tables.h"
#include "plan/lower/class_builder.h"
#include "plan/lower/lower_optimizer.h"
#include "plan/lower/recommender_ranges.h"
#include "plan/lower/table_locality.h"
#include "plan/spec/table_layout.h"

namespace orrery::plan {

using models::DType;
using models::Op;
using models::OpKind;

namespace {

class RecommenderLowering {
 public:
  RecommenderLowering(const Plan& plan, const LowerOptions& options, const RecommenderHabits& habits,
                      const TableLayout& layout, int data, int tables)
      : spec_(plan.spec()),
        options_(options),
        habits_(habits),
        model_(*plan.model().recommender),
        layout_(layout),
        data_(data),
        tables_(tables),
        n_(layout.samples),
        width_(model_.embedding_dim),
        vectors_(model_.vectors()),
        type_(models::size_of(spec_.precision) == 2 ? spec_.precision : DType::fp32),
        stored_(dtype_of(spec_.embedding.stored)) {}

  RankClass build() {
    class_.count = spec_.ranks();
    add_bucket("bottom", dense_ranges(models::bottom_parameters(model_)));
    add_bucket("top", dense_ranges(models::top_parameters(model_)));
    if (!layout_.replicated.empty()) add_bucket("tables", replicated_ranges(layout_, model_));
    persistent_buffers();
    begin();
    forward();
    if (!options_.forward_only) backward();
    finish();
    build_.settle_lives();
    class_.program.push_back({0, -1});
    class_.program.push_back({1, 0});
    if (!options_.forward_only) class_.program.push_back({2, 0});
    class_.program.push_back({static_cast<std::int32_t>(class_.blocks.size()) - 1, -1});
    class_.program.fold();
    return std::move(build_.result());
  }

 private:
  void add_bucket(const char* name, std::vector<ParameterRange> ranges) {
    const bool of_tables = ranges.front().name.rfind("emb_l", 0) == 0;
    const std::int64_t alignment = of_tables ? 1 : kParameterAlignment;
    Bucket bucket{.name = name};
    for (ParameterRange& range : ranges) {
      range.offset = round_up(bucket.elements, alignment);
      bucket.elements = range.offset + range.elements;
      places_[range.name] = {static_cast<int>(class_.buckets.size()), range.offset, range.elements};
    }
    bucket.ranges = std::move(ranges);
    bucket.embedding = of_tables;
    bucket.shards = spec_.shards();
    bucket.elements = round_up(bucket.elements, bucket.shards * kParameterAlignment);
    class_.buckets.push_back(std::move(bucket));
  }

  void persistent_buffers() {
    for (std::size_t i = 0; i < class_.buckets.size(); ++i) {
      Bucket& b = class_.buckets[i];
      b.parameters = build_.buffer(b.name + ".parameters", Purpose::parameters, DType::fp32, b.elements, true);
      if (options_.forward_only) continue;
      b.gradients = build_.buffer(b.name + ".gradients", Purpose::gradients, DType::fp32, b.elements, true);
      PlanSpec whole = spec_;  // parameters are masters themselves
      whole.precision = DType::fp32;
      if (!b.embedding) add_states(build_, whole, b, b.elements);
    }
    if (layout_.sharded()) {
      class_.tables = build_.buffer("tables", Purpose::parameters, stored_, layout_.most_elements, true);
      class_.table_states = states("tables.states", layout_.most_elements, layout_.most_rows, layout_.cached());
      if (layout_.cached()) declare_far_tables(build_, layout_, spec_);
    }
    if (!layout_.replicated.empty()) {
      class_.replicated_states =
          states("replicated_tables.states", layout_.replicated_elements, layout_.replicated_rows);
      // Adam's moments decay where a row is looked up, whatever its gradient is.
      if (adam() && !options_.forward_only)
        lookups_ =
            build_.buffer("replicated_tables.lookups", Purpose::gradients, DType::fp32, layout_.replicated_rows, true);
    }
    class_.loss = build_.buffer("loss", Purpose::scalars, DType::fp32, 1, true);
    if (options_.forward_only) return;
    class_.gradient_norm = build_.buffer("gradient_norm", Purpose::scalars, DType::fp32, 1, true);
    norm_squared_ = build_.buffer("norm_squared", Purpose::scalars, DType::fp32, 1, true);
    coefficient_ = build_.buffer("clip_coefficient", Purpose::scalars, DType::fp32, 1, true);
  }

  // Of tables of so many values and rows; -1: none.
  int states(const char* name, std::int64_t values, std::int64_t rows, bool always = false) {
    if ((options_.forward_only && !always) || (!adagrad() && !adam())) return -1;
    return build_.buffer(name, Purpose::optimizer_states, DType::fp32, adam() ? 2 * values : rows, true);
  }

  [[nodiscard]] bool adagrad() const { return spec_.optimizer == OptimizerKind::rowwise_adagrad; }
  [[nodiscard]] bool adam() const { return spec_.optimizer == OptimizerKind::adam; }
  [[nodiscard]] std::int64_t members() const { return layout_.ranks; }
  int view(int buffer) { return build_.view(build_.whole(buffer)); }
  int make(const std::string& name, std::int64_t elements, DType dtype = DType::fp32,
           Purpose purpose = Purpose::activations) {
    return build_.buffer(name, purpose, dtype, elements);
  }
  int parameter(const std::string& name) { return place(name, false); }
  int gradient(const std::string& name) { return place(name, true); }
  int place(const std::string& name, bool gradients) {
    const auto& [bucket, offset, elements] = places_.at(name);
    const Bucket& b = build_.bucket(bucket);
    return build_.view({gradients ? b.gradients : b.parameters, offset, elements, false});
  }
  // Products of 16 bits read a copy of their weight, made where first asked for; its gradient is widened behind them.
  int weight(const std::string& name, std::vector<Op>& ops) {
    if (type_ == DType::fp32) return parameter(name);
    const auto [found, anew] = copies_.try_emplace(name, -1);
    if (!anew) return view(found->second);
    const std::int64_t elements = places_.at(name).elements;
    found->second = value(name + ".copy", elements);
    ops.push_back(build_.flat(OpKind::convert, type_, elements, {parameter(name)}, {view(found->second)}));
    return view(found->second);
  }
  void weight_gradient(const std::string& name, Op op, std::vector<Op>& ops) {
    const int narrow = type_ == DType::fp32 ? -1 : value(name + ".dw", places_.at(name).elements);
    op.out = {narrow < 0 ? gradient(name) : view(narrow)};
    ops.push_back(std::move(op));
    if (narrow >= 0)
      ops.push_back(build_.flat(OpKind::convert, type_, places_.at(name).elements, {view(narrow)}, {gradient(name)}));
  }
  // Of the MLPs and the interaction, in the plan's precision; tables, masters and gradients of parameters are in fp32.
  int value(const std::string& name, std::int64_t elements) { return make(name, elements, type_); }
  Op value_op(OpKind kind, std::int64_t n, std::int64_t m, std::int64_t k, std::vector<int> in, std::vector<int> out) {
    Op op = op_of(kind, n, m, k, std::move(in), std::move(out));
    op.dtype = type_;
    return op;
  }
  // Pooled vectors travel as the interaction takes them.
  [[nodiscard]] bool native(PooledType type) const { return dtype_of(type) == type_; }
  [[nodiscard]] bool encoded(PooledType type) const {
    return type != PooledType::fp32 && !native(type) && members() > 1;
  }
  // y (n, outputs) = x W^T + b; dW = dz^T x; dx = dz W.
  Op product(std::int64_t m, std::int64_t n, std::int64_t k, std::vector<int> in, int out, bool trans_a, bool trans_b) {
    Op op = value_op(OpKind::matmul, n, m, k, std::move(in), {out});
    op.rounded = spec_.precision == DType::tf32;
    op.trans_a = trans_a;
    op.trans_b = trans_b;
    return op;
  }
  // Values of what is pooled over all ranks, by the rank that has most.
  [[nodiscard]] std::int64_t slots_of(PooledType type) const { return members() * layout_.most_pooled_values(type); }

  void begin() {
    build_.open("begin");
    std::vector<Op> ops = {build_.zero_of(class_.loss)};
    if (!options_.forward_only) ops.push_back(build_.zero_of(norm_squared_));
    build_.compute(options_.forward_only ? Phase::reporting : Phase::optimizer, -1, "zero", std::move(ops));
  }

  void forward() {
    build_.open("forward");
    dense_ = make("dense", n_ * model_.dense_features, DType::fp32, Purpose::input);
    labels_ = make("labels", n_, DType::fp32, Purpose::input);
    indices_ = make("indices", n_ * layout_.indices, DType::int32, Purpose::input);
    build_.compute(Phase::input, -1, "load_clicks",
                   {op_of(OpKind::load_clicks, n_, model_.dense_features, layout_.indices, {},
                          {view(dense_), view(labels_), view(indices_)})});
    if (layout_.sharded()) find_rows();
    // Rows that are not on the device come meanwhile; else the bottom MLP computes while pooled vectors travel.
    if (layout_.cached()) {
      places_of_rows_ = fetch_rows(build_, layout_, spec_, {lengths_, bags_, !options_.forward_only}, waiting_);
      bottom_forward();
    }
    if (layout_.sharded()) look_up();
    if (!layout_.cached()) bottom_forward();
    interaction_forward();
    top_forward();
  }

  // Indices to those who have their rows.
  void find_rows() {
    const std::int64_t lengths = members() * layout_.most_shards * n_, room = members() * layout_.most_indices;
    const int sent_lengths = make("lengths.sent", lengths, DType::int32, Purpose::communication);
    const int sent_indices = make("indices.sent", room, DType::int32, Purpose::communication);
    counts_ = make("pooled.counts", 4 * members(), DType::int32, Purpose::communication);
    std::vector<int> out = {view(sent_lengths), view(sent_indices)};
    for (int i = 0; i < 4; ++i) out.push_back(count_view(i));
    // Who has no others' indices looks for its own in those of all samples.
    const std::int64_t sorted = habits_.exchanges_indices ? n_ : n_ * members();
    Op op =
        op_of(OpKind::bucketise_indices, sorted, layout_.indices, layout_.indices, {view(indices_)}, std::move(out));
    build_.compute(Phase::forward, -1, "bucketise", {std::move(op)});
    lengths_ = sent_lengths;
    bags_ = sent_indices;
    if (members() > 1 && habits_.exchanges_indices) {
      lengths_ = make("lengths", lengths, DType::int32, Purpose::communication);
      build_.exchange(Phase::forward, Stream::exchange, tables_, build_.whole(sent_lengths), build_.whole(lengths_),
                      -1);
      bags_ = make("bags", room, DType::int32, Purpose::communication);
      build_.exchange(Phase::forward, Stream::exchange, tables_, build_.whole(sent_indices), build_.whole(bags_), -1,
                      {view(sent_lengths), view(lengths_), 1, mean_index_share(layout_)});
    }
    keep_sent({sent_lengths, sent_indices});
  }

  void look_up() {
    const TableLayout::Lookups most = layout_.heaviest();
    const bool as_taken = native(spec_.embedding.forward);
    pooled_ = make("pooled", slots_of(PooledType::fp32), as_taken ? type_ : DType::fp32);
    const std::int64_t written = as_taken ? most.values * models::size_of(type_) : 4 * most.values;  // bytes
    const int rows = layout_.cached() ? places_of_rows_ : bags_;
    std::vector<Op> ops = {op_of(OpKind::embedding_bag, most.count, most.width, written / models::size_of(stored_),
                                 {view(lengths_), view(rows), view(class_.tables)}, {view(pooled_)})};
    ops.back().dtype = stored_;
    ops.back().capacity = most_distinct_rows(layout_);
    send_pooled(std::move(ops));
  }

  // forward sent, forward received, backward sent, backward received
  int count_view(int which) { return build_.view({counts_, which * members(), members(), false}); }

  void send_pooled(std::vector<Op> ops) {
    const PooledType type = spec_.embedding.forward;
    int sent = pooled_;
    if (encoded(type)) {
      sent = make("pooled.sent", slots_of(type), dtype_of(type), Purpose::communication);
      ops.push_back(codec(OpKind::encode_pooled, type, pooled_, sent, false));
    }
    build_.compute(Phase::forward, -1, "embedding", std::move(ops));
    release_sent();
    received_ = pooled_;
    if (members() == 1) return;
    received_ = make("pooled.received", slots_of(type), dtype_of(type), Purpose::communication);
    exchange_pooled(Phase::forward, sent, received_, type, 0);
    sent_pooled_ = sent;
  }

  void exchange_pooled(Phase phase, int from, int to, PooledType type, int first_count) {
    Counted counted{count_view(first_count), count_view(first_count + 1), 1, mean_slot_share(layout_, type)};
    build_.exchange(phase, Stream::exchange, tables_, build_.whole(from), build_.whole(to), -1,
                    alike(layout_, type) ? Counted{} : counted);
  }
  Op codec(OpKind kind, PooledType type, int from, int to, bool by_member) {
    Op op = op_of(kind, n_, slots_of(PooledType::fp32), models::size_of(dtype_of(type)), {view(from)}, {view(to)});
    op.row_shard = by_member;
    op.expected = mean_slot_share(layout_, PooledType::fp32);
    return op;
  }

  // Sent stays where it is until somebody has waited for what came: freed earlier, computing would wait for it.
  void keep_sent(std::vector<int> sent) {
    if (members() > 1) waiting_.insert(waiting_.end(), sent.begin(), sent.end());
  }
  void release_sent() {
    for (const int buffer : waiting_) build_.keep(buffer);
    waiting_.clear();
  }

  // Outputs of each layer; ReLU in place behind each but, of the top, the last.
  std::vector<int> mlp_forward(const char* prefix, const std::vector<std::int64_t>& widths, int x, bool last_is_linear,
                               std::vector<Op>& ops) {
    std::vector<int> outputs;
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      const std::string name = prefix + std::to_string(2 * i);
      const bool last = i + 2 == widths.size();
      const int y = value(name, n_ * widths[i + 1]);
      const int w = weight(name + ".weight", ops);
      ops.push_back(
          product(n_, widths[i + 1], widths[i], {view(x), w, parameter(name + ".bias")}, view(y), false, true));
      if (!last || !last_is_linear) ops.push_back(value_op(OpKind::relu, n_, widths[i + 1], 0, {view(y)}, {view(y)}));
      outputs.push_back(y);
      x = y;
    }
    return outputs;
  }

  // From the gradient of the last output to that of the input, which is left out where nobody wants it.
  int mlp_backward(const char* prefix, const std::vector<std::int64_t>& widths, int x, const std::vector<int>& outputs,
                   int dy, bool last_is_linear, bool wants_dx, std::vector<Op>& ops) {
    for (std::size_t i = widths.size() - 1; i-- > 0;) {
      const std::string name = prefix + std::to_string(2 * i);
      const bool last = i + 2 == widths.size();
      if (!last || !last_is_linear)
        ops.push_back(value_op(OpKind::relu_grad, n_, widths[i + 1], 0, {view(dy), view(outputs[i])}, {view(dy)}));
      const int input = i > 0 ? outputs[i - 1] : x;
      ops.push_back(value_op(OpKind::bias_grad, n_, widths[i + 1], 0, {view(dy)}, {gradient(name + ".bias")}));
      weight_gradient(name + ".weight", product(widths[i + 1], widths[i], n_, {view(dy), view(input)}, -1, true, false),
                      ops);
      if (i == 0 && !wants_dx) return -1;
      const int dx = value(name + ".dx", n_ * widths[i]);
      const int w = weight(name + ".weight", ops);
      ops.push_back(product(n_, widths[i], widths[i + 1], {view(dy), w}, view(dx), false, false));
      dy = dx;
    }
    return dy;
  }

  void bottom_forward() {
    std::vector<Op> ops;
    bottom_ = mlp_forward("bot_l.", model_.bottom_widths(), dense_, false, ops);
    if (!layout_.replicated.empty()) {
      local_ = make("pooled.local", n_ * layout_.replicated_columns);
      const Bucket& tables = build_.bucket(static_cast<int>(class_.buckets.size()) - 1);
      ops.push_back(op_of(OpKind::embedding_lookup, replicated_lookups(layout_), width_,
                          n_ * layout_.replicated_columns, {view(indices_), view(tables.parameters)}, {view(local_)}));
      ops.back().capacity = distinct_replicated_rows(layout_);
    }
    build_.compute(Phase::forward, -1, "bottom_mlp", std::move(ops));
  }

  void interaction_forward() {
    std::vector<Op> ops;
    const int pooled = decoded(Phase::forward, ops);
    features_ = value("vectors", n_ * vectors_ * width_);
    std::vector<int> in = {pooled >= 0 ? view(pooled) : -1, view(bottom_.back())};
    if (local_ >= 0) in.push_back(view(local_));
    ops.push_back(value_op(OpKind::pooled_join, n_, vectors_ * width_, 0, std::move(in), {view(features_)}));
    if (model_.interaction == models::Interaction::dot) {
      top_input_ = value("interaction", n_ * model_.top_input());
      ops.push_back(value_op(OpKind::interaction_dot, n_, width_, vectors_, {view(features_)}, {view(top_input_)}));
    } else {
      cross_forward(ops);
    }
    build_.compute(Phase::forward, -1, "interaction", std::move(ops));
    if (sent_pooled_ >= 0) waiting_.push_back(sent_pooled_);
    release_sent();
  }

  // What was received, as fp32 values.
  int decoded(Phase phase, std::vector<Op>& ops) {
    const bool forward = phase == Phase::forward;
    const PooledType type = forward ? spec_.embedding.forward : spec_.embedding.backward;
    const int received = forward ? received_ : received_gradients_;
    if (received < 0 || !encoded(type)) return received;
    const int values = make(forward ? "pooled.decoded" : "gradients.decoded", slots_of(PooledType::fp32));
    ops.push_back(codec(OpKind::decode_pooled, type, received, values, forward));
    return values;
  }

  // x_{l+1} = x_0 (W V x_l + b) + x_l
  void cross_forward(std::vector<Op>& ops) {
    const std::int64_t wide = model_.top_input(), rank = model_.cross_rank;
    int x = features_;
    for (std::int64_t i = 0; i < model_.cross_layers; ++i) {
      const std::string name = "cross_l." + std::to_string(i);
      const int v = value(name + ".v", n_ * rank), u = value(name + ".u", n_ * wide), y = value(name, n_ * wide);
      const int wv = weight(name + ".v.weight", ops), ww = weight(name + ".w.weight", ops);
      ops.push_back(product(n_, rank, wide, {view(x), wv}, view(v), false, true));
      ops.push_back(product(n_, wide, rank, {view(v), ww, parameter(name + ".w.bias")}, view(u), false, true));
      ops.push_back(value_op(OpKind::cross, n_, wide, 0, {view(features_), view(u), view(x)}, {view(y)}));
      crosses_.push_back({x, v, u});
      x = y;
    }
    top_input_ = x;
  }

  void top_forward() {
    std::vector<Op> ops;
    top_ = mlp_forward("top_l.", model_.top_widths(), top_input_, true, ops);
    ops.push_back(op_of(OpKind::click_loss, n_, 1, 0, {view(top_.back()), view(labels_)}, {view(class_.loss)}));
    ops.back().scale = 1.0 / static_cast<double>(spec_.batch);
    build_.compute(Phase::forward, -1, "top_mlp", std::move(ops));
  }

  // -- backward -------------------------------------------------------------------------------------------------------
  void backward() {
    build_.open("backward");
    std::vector<Op> ops;
    const int dlogits = value("dlogits", n_);
    ops.push_back(op_of(OpKind::click_loss_grad, n_, 1, 0, {view(top_.back()), view(labels_)}, {view(dlogits)}));
    ops.back().scale = 1.0 / static_cast<double>(spec_.batch);
    const int dtop = mlp_backward("top_l.", model_.top_widths(), top_input_, top_, dlogits, true, true, ops);
    const int dfeatures = interaction_backward(dtop, ops);
    build_.compute(Phase::backward, -1, "top_mlp", std::move(ops));
    const int dbottom = split_gradients(dfeatures);
    reduce(1);
    bottom_backward(dbottom);
    reduce(0);
    if (!layout_.replicated.empty()) reduce(2);
    if (lookups_ >= 0 && data_ >= 0) {
      const View v = build_.whole(lookups_);
      build_.collective(Phase::gradient_reduce, Stream::data, CollectiveKind::all_reduce, data_, v, v, -1, -1);
    }
    if (layout_.sharded()) update_tables();
  }

  int interaction_backward(int dtop, std::vector<Op>& ops) {
    if (model_.interaction == models::Interaction::dot) {
      const int dfeatures = value("dvectors", n_ * vectors_ * width_);
      ops.push_back(value_op(OpKind::interaction_dot_grad, n_, width_, vectors_, {view(dtop), view(features_)},
                             {view(dfeatures)}));
      return dfeatures;
    }
    // dx_l = dy + V^T W^T (dy x_0), and each layer gives dy u to x_0.
    const std::int64_t wide = model_.top_input(), rank = model_.cross_rank;
    const int dx0 = value("dvectors", n_ * wide);
    ops.push_back(build_.zero_of(dx0));
    for (std::int64_t i = model_.cross_layers; i-- > 0;) {
      const std::string name = "cross_l." + std::to_string(i);
      const auto& [x, v, u] = crosses_[static_cast<std::size_t>(i)];
      const int du = value(name + ".du", n_ * wide), dv = value(name + ".dv", n_ * rank);
      ops.push_back(
          value_op(OpKind::cross_grad, n_, wide, 0, {view(dtop), view(features_), view(u)}, {view(du), view(dx0)}));
      ops.push_back(value_op(OpKind::bias_grad, n_, wide, 0, {view(du)}, {gradient(name + ".w.bias")}));
      const int wv = weight(name + ".v.weight", ops), ww = weight(name + ".w.weight", ops);
      weight_gradient(name + ".w.weight", product(wide, rank, n_, {view(du), view(v)}, -1, true, false), ops);
      ops.push_back(product(n_, rank, wide, {view(du), ww}, view(dv), false, false));
      weight_gradient(name + ".v.weight", product(rank, wide, n_, {view(dv), view(x)}, -1, true, false), ops);
      ops.push_back(product(n_, wide, rank, {view(dv), wv}, view(dtop), false, false));
      ops.back().accumulate = true;
    }
    ops.push_back(build_.flat(OpKind::accumulate_into, type_, n_ * wide, {view(dtop)}, {view(dx0)}));
    return dx0;
  }

  // Gradients of vectors to those with tables. Returns the bottom's.
  int split_gradients(int dfeatures) {
    const int dbottom = value("dbottom", n_ * width_);
    const bool sharded = layout_.sharded();
    const PooledType type = spec_.embedding.backward;
    const DType kept = native(type) ? type_ : DType::fp32;
    const int gradients = sharded ? make("gradients.pooled", slots_of(PooledType::fp32), kept) : -1;
    if (local_ >= 0) dlocal_ = make("gradients.local", n_ * layout_.replicated_columns);
    std::vector<int> out = {sharded ? view(gradients) : -1, view(dbottom)};
    if (local_ >= 0) out.push_back(view(dlocal_));
    std::vector<Op> ops = {value_op(OpKind::pooled_split, n_, vectors_ * width_, 0, {view(dfeatures)}, std::move(out))};
    int sent = gradients;
    if (sharded && encoded(type)) {
      sent = make("gradients.sent", slots_of(type), dtype_of(type), Purpose::communication);
      ops.push_back(codec(OpKind::encode_pooled, type, gradients, sent, true));
    }
    build_.compute(Phase::backward, -1, "split_gradients", std::move(ops));
    received_gradients_ = gradients;
    if (!sharded || members() == 1) return dbottom;
    received_gradients_ = make("gradients.received", slots_of(type), dtype_of(type), Purpose::communication);
    exchange_pooled(Phase::backward, sent, received_gradients_, type, 2);
    waiting_.push_back(sent);
    waiting_.push_back(counts_);
    return dbottom;
  }

  void bottom_backward(int dbottom) {
    std::vector<Op> ops;
    (void)mlp_backward("bot_l.", model_.bottom_widths(), dense_, bottom_, dbottom, false, false, ops);
    if (local_ >= 0) {
      const Bucket& tables = build_.bucket(2);
      std::vector<int> out = {view(tables.gradients)};
      if (lookups_ >= 0) out.push_back(view(lookups_));
      ops.push_back(op_of(OpKind::embedding_lookup_grad, replicated_lookups(layout_), width_,
                          layout_.replicated_elements, {view(indices_), view(dlocal_)}, std::move(out)));
    }
    build_.compute(Phase::backward, -1, "bottom_mlp", std::move(ops));
  }

  void reduce(int bucket) {
    if (data_ < 0) return;
    const View v = build_.whole(build_.bucket(bucket).gradients);
    build_.collective(Phase::gradient_reduce, Stream::data, CollectiveKind::all_reduce, data_, v, v, -1, bucket);
  }

  void update_tables() {
    std::vector<Op> ops;
    const int gradients = decoded(Phase::backward, ops);
    const TableLayout::Lookups most = layout_.heaviest();
    const std::vector<int> in = {view(lengths_), view(bags_), view(gradients)};
    std::vector<int> with_squares = in;
    if (layout_.squares > 0 && adagrad() && members() > 1) {
      const int squares = make("row_squares", layout_.squares, DType::fp32, Purpose::communication);
      ops.push_back(op_of(OpKind::embedding_bag_squares, most.count, most.width, 0, in, {view(squares)}));
      build_.compute(Phase::backward, -1, "row_squares", std::move(ops));
      release_sent();
      ops.clear();
      const View v = build_.whole(squares);
      build_.collective(Phase::gradient_reduce, Stream::exchange, CollectiveKind::all_reduce, tables_, v, v, -1, -1);
      with_squares.push_back(view(squares));
    }
    with_squares.resize(layout_.cached() ? 4 : with_squares.size(), -1);
    if (layout_.cached()) with_squares.push_back(view(class_.cache));
    std::vector<int> out = {view(class_.tables), class_.table_states >= 0 ? view(class_.table_states) : -1,
                            view(norm_squared_)};
    Op op = op_of(OpKind::embedding_bag_update, most.count, most.width, 0, std::move(with_squares), std::move(out));
    op.rule = traits_of(spec_.optimizer).rule;
    op.dtype = stored_;
    op.capacity = most_distinct_rows(layout_);
    ops.push_back(std::move(op));
    build_.compute(Phase::optimizer, -1, "update_tables", std::move(ops));
    release_sent();
  }

  void finish() {
    build_.open("finish");
    if (!options_.forward_only) {
      if (habits_.reports) norm();
      for (std::size_t i = 0; i < class_.buckets.size(); ++i) update(static_cast<int>(i));
    }
    if (data_ < 0 || !habits_.reports) return;
    const View loss = build_.whole(class_.loss);
    build_.collective(Phase::reporting, Stream::data, CollectiveKind::all_reduce, data_, loss, loss, -1, -1);
  }

  // The squares of the tables' gradients are the ranks' together; all others' are the same on every rank.
  void norm() {
    if (layout_.sharded() && tables_ >= 0)
      build_.collective(Phase::optimizer, Stream::exchange, CollectiveKind::all_reduce, tables_,
                        build_.whole(norm_squared_), build_.whole(norm_squared_), -1, -1);
    std::vector<Op> ops;
    for (const Bucket& b : class_.buckets) {
      ops.push_back(
          build_.flat(OpKind::norm_squared, DType::fp32, b.elements, {view(b.gradients)}, {view(norm_squared_)}));
      ops.back().accumulate = true;
    }
    ops.push_back(build_.flat(OpKind::clip_coefficient, DType::fp32, 1, {view(norm_squared_)},
                              {view(class_.gradient_norm), view(coefficient_)}));
    build_.compute(Phase::optimizer, -1, "norm", std::move(ops));
  }

  void update(int index) {
    const Bucket b = build_.bucket(index);
    const OptimizerTraits& traits = traits_of(spec_.optimizer);
    if (b.embedding) {
      std::vector<int> in = {build_.view({b.gradients, 0, layout_.replicated_elements, false})};
      if (lookups_ >= 0) in.push_back(view(lookups_));
      Op op = build_.flat(OpKind::table_update, DType::fp32, layout_.replicated_elements, std::move(in),
                          {build_.view({b.parameters, 0, layout_.replicated_elements, false}),
                           class_.replicated_states >= 0 ? view(class_.replicated_states) : -1});
      op.rule = traits.rule;
      build_.compute(Phase::optimizer, -1, "update_tables", {std::move(op)}).bucket = index;
      return;
    }
    std::vector<int> out = {view(b.parameters), b.first_moment >= 0 ? view(b.first_moment) : -1};
    if (b.second_moment >= 0) out.push_back(view(b.second_moment));
    Op op =
        build_.flat(traits.update, DType::fp32, b.elements, {view(b.gradients), view(coefficient_)}, std::move(out));
    if (traits.update == OpKind::momentum_update) op.rule = traits.rule;
    build_.compute(Phase::optimizer, -1, name_of(spec_.optimizer), {std::move(op)}).bucket = index;
  }

  const PlanSpec& spec_;
  const LowerOptions& options_;
  const RecommenderHabits habits_;
  const models::Recommender& model_;
  const TableLayout& layout_;
  int data_, tables_;  ///< groups of all ranks; -1: alone
  std::int64_t n_, width_, vectors_;
  DType type_;    ///< of values between the input and the loss
  DType stored_;  ///< of tables
  ClassBuilder build_;
  RankClass& class_ = build_.result();
  struct InBucket {
    int bucket = -1;
    std::int64_t offset = 0, elements = 0;
  };
  struct Cross {
    int x, v, u;
  };
  std::map<std::string, InBucket> places_;
  std::map<std::string, int> copies_;  ///< of weights, in 16 bits
  int norm_squared_ = -1, coefficient_ = -1;
  int dense_ = -1, labels_ = -1, indices_ = -1, lengths_ = -1, bags_ = -1, counts_ = -1;
  int pooled_ = -1, sent_pooled_ = -1, received_ = -1, received_gradients_ = -1, local_ = -1, dlocal_ = -1;
  int features_ = -1, top_input_ = -1, places_of_rows_ = -1;
  int lookups_ = -1;               ///< of each row of replicated tables, where its update asks for them
  std::vector<int> bottom_, top_;  ///< outputs of layers
  std::vector<Cross> crosses_;
  std::vector<int> waiting_;  ///< what was sent since somebody last waited
};

}  // namespace

Schedule lower_recommender(const Plan& plan, const LowerOptions& options, const RecommenderHabits& habits) {
  Schedule schedule;
  schedule.spec = plan.spec();
  schedule.tables = std::make_shared<const TableLayout>(make_table_layout(*plan.model().recommender, plan.spec()));
  int data = -1, tables = -1;
  if (plan.spec().data > 1) {
    data = 0;
    tables = 1;
    for (const char* name : {"data", "tables"})
      schedule.groups.push_back({.name = name, .dimensions = {{.stride = 1, .size = plan.spec().data}}});
  }
  schedule.classes.push_back(RecommenderLowering(plan, options, habits, *schedule.tables, data, tables).build());
  return schedule;
}

}  // namespace orrery::plan
