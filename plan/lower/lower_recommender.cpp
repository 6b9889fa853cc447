// A training step of a recommendation model. Reading order: build(), forward(), backward(), finish().
#include "plan/lower/lower_recommender.h"

#include <algorithm>
#include <map>

#include "base/ensure.h"
#include "plan/lower/buckets.h"
#include "plan/lower/cached_tables.h"
#include "plan/lower/class_builder.h"
#include "plan/lower/lower_optimizer.h"
#include "plan/lower/parameter_server.h"
#include "plan/lower/passes.h"
#include "plan/lower/pooled_travel.h"
#include "plan/lower/recommender_finish.h"
#include "plan/lower/recommender_ranges.h"
#include "plan/lower/recommender_server.h"
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
                      const Schedule& schedule, const TableLayout& layout, GroupId data, const TableGroups& groups)
      : plan_(plan),
        schedule_(schedule),
        spec_(plan.spec()),
        options_(options),
        habits_(habits),
        model_(*plan.model().recommender),
        layout_(layout),
        data_(data),
        tables_(groups.all),
        n_(layout.samples),
        width_(model_.embedding_dim),
        vectors_(model_.vectors()),
        type_(models::size_of(spec_.numerics.precision) == 2 ? spec_.numerics.precision : DType::fp32),
        stored_(dtype_of(spec_.embedding.stored)),
        served_(spec_.states.has_server() && !options.forward_only),
        travel_(build_, layout, groups, type_) {}

  RankClass build() {
    class_.count = spec_.mesh.ranks();
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
    run_passes(
        {{"serve", served_, [this] { serve(plan_, class_); }}, {"fold", true, [this] { class_.program.fold(); }}},
        schedule_, class_, options_.check_passes);
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
      places_[range.name] = {BucketId(class_.buckets.size()), range.offset, range.elements};
    }
    bucket.ranges = std::move(ranges);
    bucket.embedding = of_tables;
    bucket.shards = spec_.shards();
    const bool whole_rows = of_tables && spec_.states.has_server();
    bucket.elements =
        round_up(bucket.elements, whole_rows ? server_alignment(spec_, width_) : bucket.shards * kParameterAlignment);
    class_.buckets.push_back(std::move(bucket));
  }

  void persistent_buffers() {
    for (std::size_t i = 0; i < class_.buckets.size(); ++i) {
      Bucket& b = class_.buckets[i];
      b.parameters = build_.buffer(b.name + ".parameters", Purpose::parameters, DType::fp32, b.elements, true);
      if (options_.forward_only) continue;
      b.gradients = build_.buffer(b.name + ".gradients", Purpose::gradients, DType::fp32, b.elements, true);
      PlanSpec whole = spec_;  // parameters are masters themselves
      whole.numerics.precision = DType::fp32;
      whole.states.zero_stage = served_ ? 1 : 0;
      if (served_)
        b.received = build_.buffer(b.name + ".received", Purpose::communication, DType::fp32, b.elements, true);
      if (!b.embedding) add_states(build_, whole, b, served_ ? b.shard_elements() : b.elements);
    }
    if (layout_.sharded()) {
      class_.tables = build_.buffer("tables", Purpose::parameters, stored_, layout_.most_elements, true);
      class_.table_states = states("tables.states", layout_.most_elements, layout_.most_rows, layout_.cached());
      if (layout_.cached()) declare_far_tables(build_, layout_, spec_);
    }
    if (!layout_.replicated.empty()) {
      const Bucket& b = class_.buckets.back();
      const std::int64_t values = served_ ? b.shard_elements() : layout_.replicated_elements;
      const std::int64_t rows = served_ ? b.elements / width_ : layout_.replicated_rows;
      class_.replicated_states = states("replicated_tables.states", values, values / width_);
      // States of values change where a row is looked up, whatever its gradient is.
      if (kept().by_value > 0 && !options_.forward_only)
        lookups_ = build_.buffer("replicated_tables.lookups", Purpose::gradients, DType::fp32, rows, true);
    }
    class_.loss = build_.buffer("loss", Purpose::scalars, DType::fp32, 1, true);
    if (options_.forward_only) return;
    class_.gradient_norm = build_.buffer("gradient_norm", Purpose::scalars, DType::fp32, 1, true);
    norm_squared_ = build_.buffer("norm_squared", Purpose::scalars, DType::fp32, turns(), true);
    coefficient_ = build_.buffer("clip_coefficient", Purpose::scalars, DType::fp32, turns(), true);
  }

  // States of tables with this many values and rows, if the optimizer has any.
  BufferId states(const char* name, std::int64_t values, std::int64_t rows, bool always = false) {
    if ((options_.forward_only && !always) || !kept().any()) return {};
    return build_.buffer(name, Purpose::optimizer_states, DType::fp32, kept().of(rows, values), true);
  }

  [[nodiscard]] const TableStates& kept() const { return traits_of(spec_.states.optimizer).table_states; }
  [[nodiscard]] std::int64_t members() const { return layout_.ranks; }
  [[nodiscard]] std::int64_t index_words() const { return layout_.indices * layout_.words; }  ///< of a sample
  /// Updates of a step: a parameter server makes one for each worker.
  [[nodiscard]] int turns() const { return served_ ? spec_.mesh.data : 1; }
  int view(BufferId buffer) { return build_.view(build_.whole(buffer)); }
  BufferId make(const std::string& name, std::int64_t elements, DType dtype = DType::fp32,
                Purpose purpose = Purpose::activations) {
    return build_.buffer(name, purpose, dtype, elements);
  }
  int parameter(const std::string& name) { return place(name, false); }
  int gradient(const std::string& name) { return place(name, true); }
  int place(const std::string& name, bool gradients) {
    const auto& [bucket, offset, elements] = places_.at(name);
    const Bucket& b = build_.bucket(bucket);
    return build_.view({gradients ? b.gradients : b.parameters, offset, elements});
  }
  // Products in 16 bits read a copy of their weight, made where it is first needed; its gradient is widened after them.
  int weight(const std::string& name, std::vector<Op>& ops) {
    if (type_ == DType::fp32) return parameter(name);
    const auto [found, anew] = copies_.try_emplace(name);
    if (!anew) return view(found->second);
    const std::int64_t elements = places_.at(name).elements;
    found->second = value(name + ".copy", elements);
    ops.push_back(build_.flat(OpKind::convert, type_, elements, {parameter(name)}, {view(found->second)}));
    return view(found->second);
  }
  void weight_gradient(const std::string& name, Op op, std::vector<Op>& ops) {
    const BufferId narrow = type_ == DType::fp32 ? BufferId() : value(name + ".dw", places_.at(name).elements);
    op.out = {narrow ? view(narrow) : gradient(name)};
    ops.push_back(std::move(op));
    if (narrow)
      ops.push_back(build_.flat(OpKind::convert, type_, places_.at(name).elements, {view(narrow)}, {gradient(name)}));
  }
  // A value of the MLPs or the interaction, in the plan's precision; tables, masters and gradients of parameters are
  // fp32.
  BufferId value(const std::string& name, std::int64_t elements) { return make(name, elements, type_); }
  Op value_op(OpKind kind, std::int64_t n, std::int64_t m, std::int64_t k, std::vector<int> in, std::vector<int> out) {
    Op op = op_of(kind, n, m, k, std::move(in), std::move(out));
    op.dtype = type_;
    return op;
  }
  // y (n, outputs) = x W^T + b; dW = dz^T x; dx = dz W.
  Op product(std::int64_t m, std::int64_t n, std::int64_t k, std::vector<int> in, int out, bool trans_a, bool trans_b) {
    Op op = value_op(OpKind::matmul, n, m, k, std::move(in), {out});
    op.rounded = spec_.numerics.precision == DType::tf32;
    op.batch = spec_.shape.batch;
    op.trans_a = trans_a;
    op.trans_b = trans_b;
    return op;
  }

  Op bias_gradient(std::int64_t width, BufferId dy, const std::string& name) {
    Op op = value_op(OpKind::bias_grad, n_, width, 0, {view(dy)}, {gradient(name)});
    op.batch = spec_.shape.batch;
    return op;
  }

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
    indices_ = make("indices", n_ * index_words(), DType::int32, Purpose::input);
    build_.compute(Phase::input, -1, "load_clicks",
                   {op_of(OpKind::load_clicks, n_, model_.dense_features, index_words(), {},
                          {view(dense_), view(labels_), view(indices_)})});
    if (layout_.sharded()) find_rows();
    // While rows that are not on the device come, the bottom MLP computes; otherwise it computes while pooled vectors
    // travel.
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
    const std::int64_t lengths = members() * layout_.most_shards * n_,
                       room = members() * layout_.most_indices * layout_.words;
    const BufferId sent_lengths = make("lengths.sent", lengths, DType::int32, Purpose::communication);
    const BufferId sent_indices = make("indices.sent", room, DType::int32, Purpose::communication);
    std::vector<int> out = {view(sent_lengths), view(sent_indices)};
    for (const int counts : travel_.counts()) out.push_back(counts);
    // A rank that gets no indices of others finds its own among those of all samples.
    const std::int64_t sorted = habits_.exchanges_indices ? n_ : n_ * members();
    Op op = op_of(OpKind::bucketise_indices, sorted, index_words(), index_words(), {view(indices_)}, std::move(out));
    build_.compute(Phase::forward, -1, "bucketise", {std::move(op)});
    lengths_ = sent_lengths;
    bags_ = sent_indices;
    if (members() > 1 && habits_.exchanges_indices) {
      lengths_ = make("lengths", lengths, DType::int32, Purpose::communication);
      build_.exchange(Phase::forward, Stream::exchange, tables_, build_.whole(sent_lengths), build_.whole(lengths_),
                      -1);
      bags_ = make("bags", room, DType::int32, Purpose::communication);
      build_.exchange(Phase::forward, Stream::exchange, tables_, build_.whole(sent_indices), build_.whole(bags_), -1,
                      {view(sent_lengths), view(lengths_), layout_.words, mean_index_share(layout_)});
    }
    keep_sent({sent_lengths, sent_indices});
  }

  void look_up() {
    const TableLayout::Lookups most = layout_.heaviest();
    const BufferId pooled = travel_.values("pooled", Phase::forward);
    const DType type = travel_.native(layout_.forward) ? type_ : DType::fp32;
    const std::int64_t written = models::size_of(type) * most.values;  // bytes
    const BufferId rows = layout_.cached() ? places_of_rows_ : bags_;
    std::vector<Op> ops = {op_of(OpKind::embedding_bag, most.count, most.width, written / models::size_of(stored_),
                                 {view(lengths_), view(rows), view(class_.tables)}, {view(pooled)})};
    ops.back().dtype = stored_;
    ops.back().capacity = most_distinct_rows(layout_);
    const BufferId sent = travel_.encoded(Phase::forward, pooled, ops);
    build_.compute(Phase::forward, -1, "embedding", std::move(ops));
    release_sent();
    received_ = travel_.send(Phase::forward, sent, sent_pooled_);
  }

  // A buffer that is sent stays until something waits for what was received: freed earlier, compute would wait for the
  // message.
  void keep_sent(std::vector<BufferId> sent) {
    if (members() > 1) waiting_.insert(waiting_.end(), sent.begin(), sent.end());
  }
  void release_sent() {
    for (const BufferId buffer : waiting_) build_.keep(buffer);
    waiting_.clear();
  }

  // Outputs of each layer. ReLU works in place after each layer, except the last of the top MLP.
  std::vector<BufferId> mlp_forward(const char* prefix, const std::vector<std::int64_t>& widths, BufferId x,
                                    bool last_is_linear, std::vector<Op>& ops) {
    std::vector<BufferId> outputs;
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      const std::string name = prefix + std::to_string(2 * i);
      const bool last = i + 2 == widths.size();
      const BufferId y = value(name, n_ * widths[i + 1]);
      const int w = weight(name + ".weight", ops);
      ops.push_back(
          product(n_, widths[i + 1], widths[i], {view(x), w, parameter(name + ".bias")}, view(y), false, true));
      if (!last || !last_is_linear) ops.push_back(value_op(OpKind::relu, n_, widths[i + 1], 0, {view(y)}, {view(y)}));
      outputs.push_back(y);
      x = y;
    }
    return outputs;
  }

  // From the gradient of the last output to the gradient of the input, which is left out if it is not needed.
  BufferId mlp_backward(const char* prefix, const std::vector<std::int64_t>& widths, BufferId x,
                        const std::vector<BufferId>& outputs, BufferId dy, bool last_is_linear, bool wants_dx,
                        std::vector<Op>& ops) {
    for (std::size_t i = widths.size() - 1; i-- > 0;) {
      const std::string name = prefix + std::to_string(2 * i);
      const bool last = i + 2 == widths.size();
      if (!last || !last_is_linear)
        ops.push_back(value_op(OpKind::relu_grad, n_, widths[i + 1], 0, {view(dy), view(outputs[i])}, {view(dy)}));
      const BufferId input = i > 0 ? outputs[i - 1] : x;
      ops.push_back(bias_gradient(widths[i + 1], dy, name + ".bias"));
      weight_gradient(name + ".weight", product(widths[i + 1], widths[i], n_, {view(dy), view(input)}, -1, true, false),
                      ops);
      if (i == 0 && !wants_dx) return {};
      const BufferId dx = value(name + ".dx", n_ * widths[i]);
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
      const Bucket& tables = class_.buckets.back();
      ops.push_back(op_of(OpKind::embedding_lookup, replicated_lookups(layout_), width_,
                          n_ * layout_.replicated_columns, {view(indices_), view(tables.parameters)}, {view(local_)}));
      ops.back().capacity = distinct_replicated_rows(layout_);
    }
    build_.compute(Phase::forward, -1, "bottom_mlp", std::move(ops));
  }

  void interaction_forward() {
    std::vector<Op> ops;
    const BufferId pooled = travel_.decoded(Phase::forward, received_, ops);
    features_ = value("vectors", n_ * vectors_ * width_);
    std::vector<int> in = {pooled ? view(pooled) : -1, view(bottom_.back())};
    if (local_) in.push_back(view(local_));
    ops.push_back(value_op(OpKind::pooled_join, n_, vectors_ * width_, 0, std::move(in), {view(features_)}));
    if (model_.interaction == models::Interaction::dot) {
      top_input_ = value("interaction", n_ * model_.top_input());
      ops.push_back(value_op(OpKind::interaction_dot, n_, width_, vectors_, {view(features_)}, {view(top_input_)}));
    } else {
      cross_forward(ops);
    }
    build_.compute(Phase::forward, -1, "interaction", std::move(ops));
    keep_sent(std::move(sent_pooled_));
    release_sent();
  }

  // x_{l+1} = x_0 (W V x_l + b) + x_l
  void cross_forward(std::vector<Op>& ops) {
    const std::int64_t wide = model_.top_input(), rank = model_.cross_rank;
    BufferId x = features_;
    for (std::int64_t i = 0; i < model_.cross_layers; ++i) {
      const std::string name = "cross_l." + std::to_string(i);
      const BufferId v = value(name + ".v", n_ * rank), u = value(name + ".u", n_ * wide), y = value(name, n_ * wide);
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
    ops.back().scale = 1.0 / static_cast<double>(spec_.shape.batch);
    build_.compute(Phase::forward, -1, "top_mlp", std::move(ops));
  }

  // -- backward -------------------------------------------------------------------------------------------------------
  void backward() {
    build_.open("backward");
    std::vector<Op> ops;
    const BufferId dlogits = value("dlogits", n_);
    ops.push_back(op_of(OpKind::click_loss_grad, n_, 1, 0, {view(top_.back()), view(labels_)}, {view(dlogits)}));
    ops.back().scale = 1.0 / static_cast<double>(spec_.shape.batch);
    const BufferId dtop = mlp_backward("top_l.", model_.top_widths(), top_input_, top_, dlogits, true, true, ops);
    const BufferId dfeatures = interaction_backward(dtop, ops);
    build_.compute(Phase::backward, -1, "top_mlp", std::move(ops));
    const BufferId dbottom = split_gradients(dfeatures);
    reduce(kTop);
    bottom_backward(dbottom);
    reduce(kBottom);
    if (!layout_.replicated.empty()) reduce(kTables);
    if (lookups_ && data_ && !served_) {
      const View v = build_.whole(lookups_);
      build_.collective(Phase::gradient_reduce, Stream::data, CollectiveKind::all_reduce, data_, v, v, -1, {});
    }
    if (layout_.sharded() && !served_) update_tables();
  }

  BufferId interaction_backward(BufferId dtop, std::vector<Op>& ops) {
    if (model_.interaction == models::Interaction::dot) {
      const BufferId dfeatures = value("dvectors", n_ * vectors_ * width_);
      ops.push_back(value_op(OpKind::interaction_dot_grad, n_, width_, vectors_, {view(dtop), view(features_)},
                             {view(dfeatures)}));
      return dfeatures;
    }
    // dx_l = dy + V^T W^T (dy x_0), and each layer gives dy u to x_0.
    const std::int64_t wide = model_.top_input(), rank = model_.cross_rank;
    const BufferId dx0 = value("dvectors", n_ * wide);
    ops.push_back(build_.zero_of(dx0));
    for (std::int64_t i = model_.cross_layers; i-- > 0;) {
      const std::string name = "cross_l." + std::to_string(i);
      const auto& [x, v, u] = crosses_[static_cast<std::size_t>(i)];
      const BufferId du = value(name + ".du", n_ * wide), dv = value(name + ".dv", n_ * rank);
      ops.push_back(
          value_op(OpKind::cross_grad, n_, wide, 0, {view(dtop), view(features_), view(u)}, {view(du), view(dx0)}));
      ops.push_back(bias_gradient(wide, du, name + ".w.bias"));
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

  // Splits the gradients of vectors among the ranks that have their tables. Returns the gradient of the bottom MLP's
  // output.
  BufferId split_gradients(BufferId dfeatures) {
    const BufferId dbottom = value("dbottom", n_ * width_);
    const bool sharded = layout_.sharded();
    const BufferId gradients = sharded ? travel_.values("gradients.pooled", Phase::backward) : BufferId();
    if (local_) dlocal_ = make("gradients.local", n_ * layout_.replicated_columns);
    std::vector<int> out = {sharded ? view(gradients) : -1, view(dbottom)};
    if (local_) out.push_back(view(dlocal_));
    std::vector<Op> ops = {value_op(OpKind::pooled_split, n_, vectors_ * width_, 0, {view(dfeatures)}, std::move(out))};
    const BufferId sent = sharded ? travel_.encoded(Phase::backward, gradients, ops) : BufferId();
    build_.compute(Phase::backward, -1, "split_gradients", std::move(ops));
    sent_gradients_ = received_gradients_ = sent;
    if (sharded && !served_) received_gradients_ = travel_.send(Phase::backward, sent, waiting_);
    return dbottom;
  }

  void bottom_backward(BufferId dbottom) {
    std::vector<Op> ops;
    (void)mlp_backward("bot_l.", model_.bottom_widths(), dense_, bottom_, dbottom, false, false, ops);
    if (local_) {
      const Bucket& tables = build_.bucket(kTables);
      std::vector<int> out = {view(tables.gradients)};
      if (lookups_) out.push_back(view(lookups_));
      ops.push_back(op_of(OpKind::embedding_lookup_grad, replicated_lookups(layout_), width_,
                          layout_.replicated_elements, {view(indices_), view(dlocal_)}, std::move(out)));
    }
    build_.compute(Phase::backward, -1, "bottom_mlp", std::move(ops));
  }

  void reduce(BucketId bucket) {
    if (!data_ || served_) return;
    const View v = build_.whole(build_.bucket(bucket).gradients);
    build_.collective(Phase::gradient_reduce, Stream::data, CollectiveKind::all_reduce, data_, v, v, -1, bucket);
  }

  void update_tables() {
    std::vector<Op> ops;
    const BufferId gradients = travel_.decoded(Phase::backward, received_gradients_, ops);
    const TableLayout::Lookups most = layout_.heaviest();
    const std::vector<int> in = {view(lengths_), view(bags_), view(gradients)};
    std::vector<int> with_squares = in;
    BufferId squares;
    if (layout_.squares > 0 && kept().by_row > 0 && members() > 1) {
      squares = make("row_squares", turns() * layout_.squares, DType::fp32, Purpose::communication);
      const Op op = op_of(OpKind::embedding_bag_squares, most.count / turns(), most.width, 0, in, {view(squares)});
      add_turns(build_, op, turns(), {squares}, ops);
      build_.compute(Phase::backward, -1, "row_squares", std::move(ops));
      release_sent();
      ops.clear();
      const View v = build_.whole(squares);
      build_.collective(Phase::gradient_reduce, served_ ? Stream::data : Stream::exchange, CollectiveKind::all_reduce,
                        served_ ? data_ : tables_, v, v, -1, {});
      with_squares.push_back(view(squares));
    }
    with_squares.resize(layout_.cached() ? 4 : with_squares.size(), -1);
    if (layout_.cached()) with_squares.push_back(view(class_.cache));
    std::vector<int> out = {view(class_.tables), class_.table_states.exists() ? view(class_.table_states) : -1,
                            view(norm_squared_)};
    Op op = op_of(OpKind::embedding_bag_update, most.count / turns(), most.width, 0, std::move(with_squares),
                  std::move(out));
    op.rule = traits_of(spec_.states.optimizer).rule;
    op.dtype = stored_;
    op.capacity = served_ ? std::min(most_distinct_rows(layout_), op.n) : most_distinct_rows(layout_);
    add_turns(build_, op, turns(), {squares, norm_squared_}, ops);
    build_.compute(Phase::optimizer, -1, "update_tables", std::move(ops));
    release_sent();
  }

  void finish() {
    const RecommenderEnd end{build_,        spec_,        layout_,  data_,          tables_,
                             norm_squared_, coefficient_, lookups_, habits_.reports};
    const BufferId received_lookups = served_ ? lower_push(end, [&] { push_tables(); }) : BufferId();
    build_.open("finish");
    if (served_ && layout_.sharded()) update_tables();
    if (served_)
      lower_served(end, received_lookups, {{lengths_, bags_, kept_counts_}, {sent_gradients_, lookups_}});
    else if (!options_.forward_only)
      lower_updates(end);
    report_loss(end);
  }

  // On a stream of its own: a later step's indices and vectors travel meanwhile.
  void push_tables() {
    if (!layout_.sharded()) return;
    kept_counts_ = travel_.counts_buffer();
    const bool counted = !alike(layout_, PooledWay::exchange, layout_.backward);
    travel_.push_by(Stream::data, data_, counted ? copied(build_, kept_counts_) : kept_counts_);
    std::vector<BufferId> stays;  // as long as updates wait for it
    received_gradients_ = travel_.send(Phase::backward, sent_gradients_, stays);
  }

  const Plan& plan_;
  const Schedule& schedule_;  ///< without classes
  const PlanSpec& spec_;
  const LowerOptions& options_;
  const RecommenderHabits habits_;
  const models::Recommender& model_;
  const TableLayout& layout_;
  GroupId data_, tables_;  ///< of all ranks; none: alone
  std::int64_t n_, width_, vectors_;
  DType type_;    ///< of values between the input and the loss
  DType stored_;  ///< of tables
  const bool served_;
  ClassBuilder build_;
  PooledTravel travel_;
  RankClass& class_ = build_.result();
  static constexpr BucketId kBottom{0}, kTop{1}, kTables{2};  ///< in the order in which they are added
  struct InBucket {
    BucketId bucket = {};
    std::int64_t offset = 0, elements = 0;
  };
  struct Cross {
    BufferId x, v, u;
  };
  std::map<std::string, InBucket> places_;
  std::map<std::string, BufferId> copies_;  ///< of weights, in 16 bits
  BufferId norm_squared_, coefficient_;
  BufferId dense_, labels_, indices_, lengths_, bags_;
  BufferId received_, received_gradients_, local_, dlocal_;
  BufferId features_, top_input_, places_of_rows_, sent_gradients_, kept_counts_;
  BufferId lookups_;                    ///< of each row of replicated tables, where its update asks for them
  std::vector<BufferId> bottom_, top_;  ///< outputs of layers
  std::vector<Cross> crosses_;
  std::vector<BufferId> waiting_;  ///< what was sent since the last wait
  std::vector<BufferId> sent_pooled_;
};

}  // namespace

Schedule lower_recommender(const Plan& plan, const LowerOptions& options, const RecommenderHabits& habits) {
  Schedule schedule;
  schedule.spec = plan.spec();
  schedule.tables = std::make_shared<const TableLayout>(
      make_table_layout(*plan.model().recommender, plan.spec(), plan.cluster().devices_per_node));
  GroupId data;
  if (plan.spec().mesh.data > 1)
    data = schedule.groups.append({.name = "data", .dimensions = {{.stride = 1, .size = plan.spec().mesh.data}}});
  const TableGroups groups = add_table_groups(schedule.groups, *schedule.tables);
  schedule.classes.push_back(
      RecommenderLowering(plan, options, habits, schedule, *schedule.tables, data, groups).build());
  return schedule;
}

}  // namespace orrery::plan
