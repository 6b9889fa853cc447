// A training step of a recommendation model. Reading order: build(), forward(), backward(), finish().
#include "plan/lower/lower_recommender.h"

#include <utility>

#include "plan/lower/buckets.h"
#include "plan/lower/cached_tables.h"
#include "plan/lower/class_builder.h"
#include "plan/lower/interaction_layers.h"
#include "plan/lower/lower_optimizer.h"
#include "plan/lower/parameter_server.h"
#include "plan/lower/passes.h"
#include "plan/lower/recommender_finish.h"
#include "plan/lower/recommender_ranges.h"
#include "plan/lower/recommender_server.h"
#include "plan/lower/sharded_tables.h"
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
        reports_(habits.reports),
        model_(*plan.model().recommender),
        layout_(layout),
        data_(data),
        step_{spec_, model_, layout_, data, groups, options.forward_only, habits.exchanges_indices},
        served_(step_.served()) {}

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
    }
    bucket.ranges = std::move(ranges);
    bucket.embedding = of_tables;
    bucket.shards = spec_.shards();
    const bool whole_rows = of_tables && spec_.states.has_server();
    bucket.elements = round_up(bucket.elements, whole_rows ? server_alignment(spec_, model_.embedding_dim)
                                                           : bucket.shards * kParameterAlignment);
    class_.buckets.push_back(std::move(bucket));
    dense_.know(BucketId(class_.buckets.size() - 1));
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
      class_.tables = build_.buffer("tables", Purpose::parameters, step_.stored(), layout_.most_elements, true);
      class_.table_states = states("tables.states", layout_.most_elements, layout_.most_rows, layout_.cached());
      if (layout_.cached()) declare_far_tables(build_, layout_, spec_);
    }
    if (!layout_.replicated.empty()) {
      const Bucket& b = class_.buckets.back();
      const std::int64_t values = served_ ? b.shard_elements() : layout_.replicated_elements;
      const std::int64_t rows = served_ ? b.elements / model_.embedding_dim : layout_.replicated_rows;
      class_.replicated_states = states("replicated_tables.states", values, values / model_.embedding_dim);
      // States of values change where a row is looked up, whatever its gradient is.
      if (step_.kept().by_value > 0 && !options_.forward_only)
        lookups_ = build_.buffer("replicated_tables.lookups", Purpose::gradients, DType::fp32, rows, true);
    }
    class_.loss = build_.buffer("loss", Purpose::scalars, DType::fp32, 1, true);
    if (options_.forward_only) return;
    class_.gradient_norm = build_.buffer("gradient_norm", Purpose::scalars, DType::fp32, 1, true);
    norm_squared_ = build_.buffer("norm_squared", Purpose::scalars, DType::fp32, step_.turns(), true);
    coefficient_ = build_.buffer("clip_coefficient", Purpose::scalars, DType::fp32, step_.turns(), true);
  }

  // States of tables with this many values and rows, if the optimizer has any.
  BufferId states(const char* name, std::int64_t values, std::int64_t rows, bool always = false) {
    if ((options_.forward_only && !always) || !step_.kept().any()) return {};
    return build_.buffer(name, Purpose::optimizer_states, DType::fp32, step_.kept().of(rows, values), true);
  }

  int view(BufferId buffer) { return build_.view(build_.whole(buffer)); }
  BufferId make(const std::string& name, std::int64_t elements, DType dtype = DType::fp32,
                Purpose purpose = Purpose::activations) {
    return build_.buffer(name, purpose, dtype, elements);
  }

  void begin() {
    build_.open("begin");
    std::vector<Op> ops = {build_.zero_of(class_.loss)};
    if (!options_.forward_only) ops.push_back(build_.zero_of(norm_squared_));
    build_.compute(options_.forward_only ? Phase::reporting : Phase::optimizer, "zero", std::move(ops));
  }

  [[nodiscard]] DenseLayers::Mlp bottom_mlp() const { return {.prefix = "bot_l.", .widths = model_.bottom_widths()}; }
  [[nodiscard]] DenseLayers::Mlp top_mlp() const {
    return {.prefix = "top_l.", .widths = model_.top_widths(), .last_is_linear = true};
  }

  void forward() {
    build_.open("forward");
    const std::int64_t n = layout_.samples, words = layout_.indices * layout_.words;
    dense_features_ = make("dense", n * model_.dense_features, DType::fp32, Purpose::input);
    labels_ = make("labels", n, DType::fp32, Purpose::input);
    indices_ = make("indices", n * words, DType::int32, Purpose::input);
    build_.compute(Phase::input, "load_clicks",
                   {op_of(OpKind::load_clicks, n, model_.dense_features, words, {},
                          {view(dense_features_), view(labels_), view(indices_)})});
    if (layout_.sharded()) tables_.find_rows(indices_);
    // While rows that are not on the device come, the bottom MLP computes; otherwise it computes while pooled vectors
    // travel.
    if (layout_.cached()) {
      tables_.fetch();
      bottom_forward();
    }
    if (layout_.sharded()) tables_.look_up();
    if (!layout_.cached()) bottom_forward();
    interaction_forward();
    top_forward();
  }

  // With the lookups of tables that every rank has.
  void bottom_forward() {
    std::vector<Op> ops;
    bottom_ = dense_.forward(bottom_mlp(), dense_features_, ops);
    if (!layout_.replicated.empty()) {
      const std::int64_t n = layout_.samples;
      local_ = make("pooled.local", n * layout_.replicated_columns);
      const Bucket& tables = class_.buckets.back();
      ops.push_back(op_of(OpKind::embedding_lookup, replicated_lookups(layout_), model_.embedding_dim,
                          n * layout_.replicated_columns, {view(indices_), view(tables.parameters)}, {view(local_)}));
      ops.back().capacity = distinct_replicated_rows(layout_);
    }
    build_.compute(Phase::forward, "bottom_mlp", std::move(ops));
  }

  void interaction_forward() {
    std::vector<Op> ops;
    const BufferId pooled = tables_.pooled(ops);
    std::vector<int> in = {pooled ? view(pooled) : -1, view(bottom_.back())};
    if (local_) in.push_back(view(local_));
    top_input_ = interaction_.forward(std::move(in), ops);
    build_.compute(Phase::forward, "interaction", std::move(ops));
    tables_.arrived();
  }

  void top_forward() {
    std::vector<Op> ops;
    top_ = dense_.forward(top_mlp(), top_input_, ops);
    ops.push_back(
        op_of(OpKind::click_loss, layout_.samples, 1, 0, {view(top_.back()), view(labels_)}, {view(class_.loss)}));
    ops.back().scale = 1.0 / static_cast<double>(spec_.shape.batch);
    build_.compute(Phase::forward, "top_mlp", std::move(ops));
  }

  // -- backward -------------------------------------------------------------------------------------------------------
  void backward() {
    build_.open("backward");
    std::vector<Op> ops;
    const std::int64_t n = layout_.samples;
    const BufferId dlogits = dense_.value("dlogits", n);
    ops.push_back(op_of(OpKind::click_loss_grad, n, 1, 0, {view(top_.back()), view(labels_)}, {view(dlogits)}));
    ops.back().scale = 1.0 / static_cast<double>(spec_.shape.batch);
    const BufferId dtop = dense_.backward(top_mlp(), top_input_, top_, dlogits, true, ops);
    const BufferId dfeatures = interaction_.backward(dtop, ops);
    build_.compute(Phase::backward, "top_mlp", std::move(ops));
    const BufferId dbottom = split_gradients(dfeatures);
    reduce(kTop);
    bottom_backward(dbottom);
    reduce(kBottom);
    if (!layout_.replicated.empty()) reduce(kTables);
    if (lookups_ && data_ && !served_) {
      const View v = build_.whole(lookups_);
      build_.collective(Phase::gradient_reduce, Stream::data, CollectiveKind::all_reduce, data_, v, v);
    }
    if (layout_.sharded() && !served_) tables_.update(norm_squared_);
  }

  // Splits the gradients of vectors among the ranks that have their tables. Returns the gradient of the bottom MLP's
  // output.
  BufferId split_gradients(BufferId dfeatures) {
    const std::int64_t n = layout_.samples, joined = model_.vectors() * model_.embedding_dim;
    const BufferId dbottom = dense_.value("dbottom", n * model_.embedding_dim);
    const bool sharded = layout_.sharded();
    const BufferId gradients = sharded ? tables_.gradients() : BufferId();
    if (local_) dlocal_ = make("gradients.local", n * layout_.replicated_columns);
    std::vector<int> out = {sharded ? view(gradients) : -1, view(dbottom)};
    if (local_) out.push_back(view(dlocal_));
    std::vector<Op> ops = {dense_.value_op(OpKind::pooled_split, n, joined, 0, {view(dfeatures)}, std::move(out))};
    const BufferId sent = sharded ? tables_.encoded(gradients, ops) : BufferId();
    build_.compute(Phase::backward, "split_gradients", std::move(ops));
    if (sharded) tables_.return_gradients(sent);
    return dbottom;
  }

  void bottom_backward(BufferId dbottom) {
    std::vector<Op> ops;
    (void)dense_.backward(bottom_mlp(), dense_features_, bottom_, dbottom, false, ops);
    if (local_) {
      const Bucket& tables = build_.bucket(kTables);
      std::vector<int> out = {view(tables.gradients)};
      if (lookups_) out.push_back(view(lookups_));
      ops.push_back(op_of(OpKind::embedding_lookup_grad, replicated_lookups(layout_), model_.embedding_dim,
                          layout_.replicated_elements, {view(indices_), view(dlocal_)}, std::move(out)));
    }
    build_.compute(Phase::backward, "bottom_mlp", std::move(ops));
  }

  void reduce(BucketId bucket) {
    if (!data_ || served_) return;
    const View v = build_.whole(build_.bucket(bucket).gradients);
    build_.collective(Phase::gradient_reduce, Stream::data, CollectiveKind::all_reduce, data_, v, v, bucket);
  }

  void finish() {
    const bool sharded = layout_.sharded();
    const RecommenderEnd end{build_,        spec_,        layout_,  data_,   step_.groups.all,
                             norm_squared_, coefficient_, lookups_, reports_};
    const auto push = [&] {
      if (sharded) tables_.push();
    };
    const BufferId received_lookups = served_ ? lower_push(end, push) : BufferId();
    build_.open("finish");
    if (served_ && sharded) tables_.update(norm_squared_);
    if (served_)
      lower_served(end, received_lookups, {tables_.looked_up(), {tables_.sent_gradients(), lookups_}});
    else if (!options_.forward_only)
      lower_updates(end);
    report_loss(end);
  }

  const Plan& plan_;
  const Schedule& schedule_;  ///< without classes
  const PlanSpec& spec_;
  const LowerOptions& options_;
  const bool reports_;  ///< RecommenderHabits::reports
  const models::Recommender& model_;
  const TableLayout& layout_;
  GroupId data_;  ///< of all ranks; none: alone
  const RecommenderStep step_;
  const bool served_;
  ClassBuilder build_;
  RankClass& class_ = build_.result();
  DenseLayers dense_{build_, step_};
  InteractionLayers interaction_{build_, step_, dense_};
  ShardedTables tables_{build_, step_};
  static constexpr BucketId kBottom{0}, kTop{1}, kTables{2};  ///< in the order in which they are added
  BufferId norm_squared_, coefficient_;
  BufferId dense_features_, labels_, indices_;
  BufferId local_, dlocal_;             ///< sums of rows of tables that every rank has, and their gradients
  BufferId lookups_;                    ///< of each row of these tables, where its update asks for them
  std::vector<BufferId> bottom_, top_;  ///< outputs of layers
  BufferId top_input_;
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
