// Lowered schedules: what runs, in which order, and what lives how long.
#include "plan/lower/lower.h"

#include <gtest/gtest.h>

#include <set>

#include "plan/schedule/check.h"
#include "plan/schedule/orders.h"
#include "plan/schedule/place.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace lower_test {

std::string findings(const Schedule& schedule) {
  return base::render(check(schedule), false);
}

TEST(Lowering, EverySplitYieldsASoundSchedule) {
  for (const auto& [name, spec] : samples::splits())
    for (bool flash : {false, true})
      for (bool whole : {false, true}) {
        PlanSpec s = spec;
        s.numerics.flash = flash || s.mesh.context > 1;
        EXPECT_EQ(findings(lower(samples::make(s), {.recompute_whole_layer = whole})), "") << name;
      }
}

TEST(Lowering, UnevenStagesAreSound) {
  PlanSpec spec;
  spec.mesh.pipeline = 3;
  spec.stages.layers_per_stage = {2, 1, 1};
  EXPECT_EQ(findings(lower(samples::make(spec))), "");
}

TEST(Lowering, ATensorParallelBlockIsComputeAllReduceComputeAllReduceCompute) {
  PlanSpec spec;
  spec.mesh.tensor = 2;
  const Schedule schedule = lower(samples::make(spec));
  std::string seen;
  for (const Step& step : schedule.classes[0].blocks[1].steps)
    if (step.layer == LayerId(0)) seen += step.kind == StepKind::compute ? "c" : "a";
  EXPECT_EQ(seen, "cacac");
}

// Korthikanti et al. 2022, figure 5: g is an all-gather before the block, its mirror a reduce-scatter behind it;
// backward gathers the gradient, gathers the kept input again, and scatters the input's gradient.
TEST(Lowering, SequenceParallelismGathersBeforeAndScattersBehindEachHalfOfABlock) {
  PlanSpec spec;
  spec.mesh.tensor = 2;
  spec.mesh.sequence_parallel = true;
  const Schedule schedule = lower(samples::make(spec));
  const auto seen = [&](std::size_t block) {
    std::string text;
    for (const Step& step : schedule.classes[0].blocks[block].steps) {
      if (step.layer != LayerId(0)) continue;
      text += step.kind == StepKind::compute                      ? "c"
              : step.collective == CollectiveKind::all_gather     ? "g"
              : step.collective == CollectiveKind::reduce_scatter ? "s"
                                                                  : "a";
    }
    return text;
  };
  EXPECT_EQ(seen(1), "cgcscgcsc");
  EXPECT_EQ(seen(2), "gcgcscgcgcsc");
}

// Forward: keys and values set out (s) before the block at hand is computed (c), three times for four ranks, and the
// last block ends the run. Backward: the same three, and four for their gradients, the last of which brings them home;
// what others added arrives while the block's own gradient is computed.
TEST(Lowering, ContextParallelismPassesKeysAndValuesAroundTheRing) {
  PlanSpec spec;
  spec.mesh.context = 4;
  spec.shape.sequence = 16;
  const Schedule schedule = lower(samples::make(spec));
  EXPECT_EQ(findings(schedule), "");
  const auto seen = [&](std::size_t block) {
    std::string text;
    for (const Step& step : schedule.classes[0].blocks[block].steps) {
      if (step.layer != LayerId(0)) continue;
      text += step.kind == StepKind::compute ? "c" : step.collective == CollectiveKind::ring_shift ? "s" : "?";
    }
    return text;
  };
  EXPECT_EQ(seen(1), "cscscscc");
  EXPECT_EQ(seen(2), "cscssccssccsccsc");
}

TEST(Lowering, ARingKeepsWhatTravelsUntilItsSuccessorIsRead) {
  PlanSpec spec;
  spec.mesh.context = 4;
  spec.shape.sequence = 16;
  const Schedule schedule = lower(samples::make(spec));
  // No shift frees anything, or the next compute step would wait for it.
  for (const Block& block : schedule.classes[0].blocks)
    for (const Step& step : block.steps)
      if (step.kind == StepKind::collective && step.collective == CollectiveKind::ring_shift) {
        EXPECT_TRUE(step.deaths.empty());
      }
}

TEST(Lowering, RingsTakeTheShardsOfOneTensorRankAndGradientsAreSummedOverThemAndTheReplicas) {
  PlanSpec spec;
  spec.mesh.context = spec.mesh.data = spec.mesh.tensor = spec.mesh.pipeline = 2;
  spec.shape.batch = 2;
  spec.shape.sequence = 16;
  const Plan plan = samples::make(spec);
  const Schedule schedule = lower(plan);
  const auto members = [&](const std::string& name, int rank) {
    for (const Group& g : schedule.groups)
      if (g.name == name) return g.members(rank);
    return std::vector<int>{};
  };
  EXPECT_EQ(members("tensor", 0), (std::vector<int>{0, 1}));
  EXPECT_EQ(members("context", 0), (std::vector<int>{0, 2}));
  EXPECT_EQ(members("data", 0), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(members("context", 13), (std::vector<int>{13, 15}));
  EXPECT_EQ(plan.rank(StageId(1), 1, 0, 1), 14);
  EXPECT_EQ(plan.stage_of(14), StageId(1));
  EXPECT_EQ(plan.replica_of(14), 1);
  EXPECT_EQ(plan.part_of(14), 1);
}

TEST(MakePlan, RefusesRingsThatCannotBe) {
  const auto code = [](std::int64_t sequence, bool flash) {
    PlanSpec spec;
    spec.mesh.context = 2;
    spec.shape.sequence = sequence;
    spec.numerics.flash = flash;
    const auto made = samples::try_make(spec);
    return made ? std::string() : made.error().front().code;
  };
  EXPECT_EQ(code(16, true), "");
  EXPECT_EQ(code(14, true), "P20");
  EXPECT_EQ(code(16, false), "P22");
}

// The same paper, table 2: without sequence parallelism each rank keeps ten of a layer's 2sbh-byte tensors whole.
TEST(Lowering, SequenceParallelismKeepsATensorRanksShareOfEveryActivation) {
  const auto kept = [](bool sharded) {
    PlanSpec spec;
    spec.mesh.tensor = 2;
    spec.mesh.sequence_parallel = sharded;
    std::int64_t elements = 0;
    const Schedule schedule = lower(samples::make(spec));
    for (const Buffer& b : schedule.classes[0].buffers)
      if (b.per_micro_batch && b.name.rfind("h.1.", 0) == 0) elements += b.elements;
    return elements;
  };
  // Of 16 rows: y, ln_1, residual and ln_2 (32 columns) and four row statistics; halved.
  EXPECT_EQ(kept(false) - kept(true), (4 * 16 * 32 + 4 * 16) / 2);
}

TEST(Lowering, SequenceParallelismSumsTheGradientsOfNormsAndRowBiasesOverTheTensorGroup) {
  PlanSpec spec;
  spec.mesh.tensor = 2;
  spec.mesh.sequence_parallel = true;
  const Schedule schedule = lower(samples::make(spec));
  const RankClass& c = schedule.classes[0];
  std::int64_t summed = 0;
  for (const Step& step : c.blocks[samples::kFinish].steps)
    if (step.kind == StepKind::collective && schedule.groups[step.group].name == "tensor")
      summed += step.source.elements;
  // A block: two norms of weight and bias, two biases of row-split products; the head: one norm. Aligned by 32.
  EXPECT_EQ(summed, 4 * 6 * 32 + 2 * 32);
  for (const Bucket& b : c.buckets)
    for (const ParameterRange& range : b.ranges)
      EXPECT_EQ(range.tensor.partial_gradient, range.offset < b.partial_elements) << range.name;
}

TEST(Lowering, SelectiveRecomputationDropsTheProbabilitiesAlone) {
  const auto kept = [](Recompute recompute, bool flash) {
    PlanSpec spec;
    spec.recomputation.what = recompute;
    spec.numerics.flash = flash;
    std::int64_t elements = 0, recomputed = 0;
    const Schedule schedule = lower(samples::make(spec));
    for (const Buffer& b : schedule.classes[0].buffers) elements += b.per_micro_batch ? b.elements : 0;
    for (const Step& step : schedule.classes[0].blocks[2].steps)
      if (step.phase == Phase::recompute)
        for (const models::Op& op : step.ops) recomputed += op.kind == models::OpKind::attention ? 1 : 100;
    return std::make_pair(elements, recomputed);
  };
  const auto none = kept(Recompute::none, false), selective = kept(Recompute::selective, false);
  EXPECT_EQ(none.first - selective.first, 4 * 4 * 16 * 16);  // four layers of (B 1, H 4, T 16, T 16)
  EXPECT_EQ(selective.second, 4);
  EXPECT_EQ(kept(Recompute::selective, true), kept(Recompute::none, true));  // a flash kernel recomputes by itself
}

TEST(Lowering, RecomputationCanBeOfTheFirstLayersOfAStage) {
  PlanSpec spec;
  spec.mesh.pipeline = 2;
  spec.recomputation.what = Recompute::full;
  spec.recomputation.layers = 1;
  const Schedule schedule = lower(samples::make(spec));
  for (const RankClass& c : schedule.classes) {
    std::set<LayerId> layers;
    for (const Step& step : c.blocks[2].steps)
      if (step.phase == Phase::recompute) layers.insert(step.layer);
    EXPECT_EQ(layers, std::set{LayerId(2 * c.stage.number())});
  }
}

TEST(Lowering, WithoutTensorParallelismABlockIsOneSegment) {
  const Schedule schedule = lower(samples::make({}));
  int steps = 0;
  for (const Step& step : schedule.classes[0].blocks[1].steps) steps += step.layer == LayerId(0);
  EXPECT_EQ(steps, 1);
}

TEST(Lowering, RecomputationKeepsOnlyTheInputsOfBlocks) {
  PlanSpec spec;
  spec.recomputation.what = Recompute::full;
  const Schedule schedule = lower(samples::make(spec));
  std::int64_t kept_by_blocks = 0;
  for (const Buffer& b : schedule.classes[0].buffers)
    if (b.per_micro_batch && b.name.rfind("h.", 0) == 0) kept_by_blocks += b.elements;
  // Blocks 0 to 2 leave their output, the input of the next; block 3's is the head's input. 16 x 32 elements each.
  EXPECT_EQ(kept_by_blocks, 4 * 16 * 32);
}

TEST(Lowering, ZeroThreeHoldsOnlyShardsBetweenUses) {
  PlanSpec spec;
  spec.mesh.data = 2;
  spec.states.zero_stage = 3;
  const Schedule schedule = lower(samples::make(spec));
  const RankClass& c = schedule.classes[0];
  std::int64_t elements = 0, kept = 0;
  for (const Bucket& b : c.buckets) elements += b.elements;
  for (const Buffer& b : c.buffers)
    if (b.persistent && b.purpose == Purpose::parameters) kept += b.elements;
  EXPECT_EQ(kept * 2, elements);
}

TEST(Lowering, EveryModelKindLowers) {
  models::Model llama = samples::tiny_gpt();
  llama.family = models::Family::llama;
  llama.normalisation = models::Normalisation::rms_norm;
  llama.activation = models::Activation::swiglu;
  llama.positions = models::Positions::rope;
  llama.bias = false;
  llama.tied_embeddings = false;
  llama.kv_heads = 2;
  models::Model bert = samples::tiny_gpt();
  bert.pre_norm = false;
  bert.causal = false;
  for (const models::Model& model : {llama, bert})
    for (const auto& [name, spec] : samples::splits())
      EXPECT_EQ(findings(lower(samples::make(spec, model))), "") << name;
}

TEST(Check, FindsAReceiveThatNobodySends) {
  PlanSpec spec;
  spec.mesh.pipeline = 2;
  Schedule schedule = lower(samples::make(spec));
  auto& steps = schedule.classes[0].blocks[1].steps;
  ASSERT_EQ(steps.back().kind, StepKind::send);
  const std::vector<BufferId> deaths = steps.back().deaths;
  steps.pop_back();
  for (const BufferId b : deaths) steps.back().deaths.push_back(b);
  EXPECT_NE(findings(schedule), "");
}

TEST(Check, FindsADeadlockWhenStagesRunOppositeOrders) {
  PlanSpec spec;
  spec.mesh.pipeline = 2;
  spec.stages.order = Order::gpipe;
  Schedule schedule = lower(samples::make(spec));
  Entries& program = schedule.classes[0].program;
  const Entry early = program[1];
  program.set(1, program[program.size() - 2]);  // a gradient before the forwards that stage 1 waits for
  program.set(program.size() - 2, early);
  EXPECT_NE(findings(schedule), "");
}

TEST(Check, FindsAMissingReadAndAnEarlyDeath) {
  Schedule schedule = lower(samples::make({}));
  schedule.classes[0].blocks[1].steps[1].reads.pop_back();
  EXPECT_NE(findings(schedule).find("S02"), std::string::npos);
  schedule = lower(samples::make({}));
  for (Step& step : schedule.classes[0].blocks[1].steps)
    if (!step.births.empty()) {
      step.deaths.push_back(step.births.front());
      break;
    }
  EXPECT_NE(findings(schedule), "");
}

TEST(Place, LiveBuffersNeverOverlapAndStayInTheArena) {
  for (const auto& [name, spec] : samples::splits()) {
    const Schedule schedule = lower(samples::make(spec));
    for (const RankClass& c : schedule.classes) {
      const Placement placement = place(c);
      EXPECT_LE(placement.peak_live_bytes, placement.arena_bytes) << name;
      std::int64_t sum = 0;
      for (std::int64_t bytes : placement.by_purpose) sum += bytes;
      EXPECT_EQ(sum, placement.peak_live_bytes) << name;
      std::map<std::pair<BufferId, int>, std::pair<std::int64_t, std::int64_t>>
          alive;  // (buffer, micro-batch) -> range
      for (const BufferId i : c.buffers.keys())
        if (c.buffers[i].persistent) alive[{i, -1}] = {placement.persistent[i], c.buffers[i].bytes()};
      std::size_t birth = 0;
      std::int64_t most = 0;
      for (std::size_t e = 0; e < c.program.size(); ++e) {
        const auto& steps = c.blocks[static_cast<std::size_t>(c.program[e].block)].steps;
        for (const Step& step : steps) {
          for (BufferId b : step.births) {
            const Placed& p = placement.births[birth++];
            ASSERT_EQ(p.buffer, b);
            for (const auto& [key, range] : alive)
              ASSERT_FALSE(p.offset < range.first + range.second && range.first < p.offset + p.bytes)
                  << name << ": " << c.buffers[b].name << " over " << c.buffers[key.first].name;
            ASSERT_LE(p.offset + p.bytes, placement.arena_bytes);
            alive[{b, c.program[e].micro_batch}] = {p.offset, p.bytes};
          }
          std::int64_t live = 0;
          for (const auto& [key, range] : alive) live += (range.second + kAlignment - 1) / kAlignment * kAlignment;
          most = std::max(most, live);
          for (BufferId b : step.deaths) alive.erase({b, c.program[e].micro_batch});
        }
      }
      EXPECT_EQ(birth, placement.births.size());
      EXPECT_EQ(most, placement.peak_live_bytes) << name;
    }
  }
}

TEST(Place, GPipeHoldsAllMicroBatchesAndOneFOneBOnlyThePipelineDepth) {
  PlanSpec spec;
  spec.mesh.pipeline = 2;
  spec.shape.batch = 8;
  spec.stages.order = Order::gpipe;
  const std::int64_t gpipe = place(lower(samples::make(spec)).classes[0]).arena_bytes;
  spec.stages.order = Order::one_f_one_b;
  const std::int64_t flush = place(lower(samples::make(spec)).classes[0]).arena_bytes;
  EXPECT_GT(gpipe, flush);
  EXPECT_EQ(in_flight(Order::gpipe, 0, 2, 8), 8);
  EXPECT_EQ(in_flight(Order::one_f_one_b, 0, 2, 8), 2);
}

// What a rank's program communicates over replicas, and reads of each bucket's gradients afterwards.
base::ById<BucketId, std::int64_t> bytes_reduced(const RankClass& c) {
  base::ById<BucketId, std::int64_t> bytes(c.buckets.size());
  for (const Entry& entry : c.program)
    for (const Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps)
      if (step.phase == Phase::gradient_reduce && step.kind == StepKind::collective && step.bucket.exists())
        bytes[step.bucket] += step.message_bytes(c.buffers);
  return bytes;
}

TEST(Lowering, OverlappedGradientsAreReducedOnceAndBehindTheirLastWriter) {
  int seen = 0;
  for (const auto& [name, spec] : samples::splits()) {
    if (!spec.reduces_early()) continue;
    SCOPED_TRACE(name);
    ++seen;
    PlanSpec behind = spec;
    behind.states.overlap_gradients = false;
    const Schedule early = lower(samples::make(spec)), late = lower(samples::make(behind));
    for (std::size_t k = 0; k < early.classes.size(); ++k) {
      const RankClass& c = early.classes[k];
      EXPECT_EQ(bytes_reduced(c), bytes_reduced(late.classes[k]));
      for (std::size_t b = 0; b < c.buckets.size(); ++b) {
        int last_written = -1, first_reduced = -1, at = 0;
        bool within = false;
        for (const Entry& entry : c.program)
          for (const Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps) {
            at += step.kind == StepKind::compute ? 1 : 0;  // other buckets may be reduced behind the same writer
            const bool writes =
                std::find(step.writes.begin(), step.writes.end(), c.buckets[b].gradients) != step.writes.end();
            if (writes && step.kind == StepKind::compute) last_written = at;
            if (!writes || step.kind == StepKind::compute || first_reduced >= 0) continue;
            first_reduced = at;
            within = entry.micro_batch + 1 == spec.micro_batches();
          }
        EXPECT_EQ(first_reduced, last_written) << c.buckets[b].name;
        EXPECT_TRUE(within) << c.buckets[b].name;
      }
    }
  }
  EXPECT_GT(seen, 10);
}

TEST(Lowering, ZeroTwoAndThreeAndOneReplicaReduceWhereTheyDidWithOverlapAskedFor) {
  for (const int zero : {0, 2, 3}) {
    PlanSpec spec;
    spec.mesh.data = zero == 0 ? 1 : 2;
    spec.states.zero_stage = zero;
    spec.shape.micro_batch = 2;
    const Schedule plain = lower(samples::make(spec));
    spec.states.overlap_gradients = true;
    const Schedule asked = lower(samples::make(spec));
    EXPECT_EQ(asked.classes.front().blocks.size(), plain.classes.front().blocks.size());
    EXPECT_EQ(asked.steps(), plain.steps());
  }
}

TEST(Orders, OneFOneBMatchesTheFigureForFourStages) {
  // Stage 2 of 4 with 4 micro-batches: F0, F1 B0, F2 B1, F3 B2, B3.
  std::string text;
  for (const Turn& t : turns(Order::one_f_one_b, 2, 4, 4))
    text += (t.forward ? "F" : "B") + std::to_string(t.micro_batch) + " ";
  EXPECT_EQ(text, "F0 F1 B0 F2 B1 F3 B2 B3 ");
}

std::string text_of(const std::vector<Move>& moves, bool messages) {
  std::string text;
  for (const Move& m : moves) {
    const bool pass = m.kind == Move::Kind::forward || m.kind == Move::Kind::backward || m.kind == Move::Kind::weights;
    if (!pass && !messages) continue;
    static const char* const kNames[] = {"F", "B", "s", "t", "r", "g", "W"};
    text +=
        kNames[static_cast<std::size_t>(m.kind)] + std::to_string(m.chunk) + "." + std::to_string(m.micro_batch) + " ";
  }
  return text;
}

// Narayanan et al. 2021, figure 4, below: four devices of two chunks each, eight micro-batches.
TEST(Orders, InterleavedStagesMatchTheFigureForFourDevices) {
  EXPECT_EQ(text_of(interleaved(3, 4, 2, 8), false),
            "F0.0 F0.1 F0.2 F0.3 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F0.4 B0.0 F0.5 B0.1 F0.6 B0.2 F0.7 B0.3 "
            "F1.4 B1.4 F1.5 B1.5 F1.6 B1.6 F1.7 B1.7 B0.4 B0.5 B0.6 B0.7 ");
  const std::string first = text_of(interleaved(0, 4, 2, 8), false);
  EXPECT_EQ(first.substr(0, 65), "F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 F1.2 F1.3 F0.4 F0.5 F0.6 B1.0 F0.7 ");
}

// Qi et al. 2023, figures 2 and 3: four devices, eight micro-batches.
TEST(Orders, ZeroBubbleStagesMatchTheFiguresForFourDevices) {
  EXPECT_EQ(text_of(zero_bubble(Order::zb_h1, 4, 8)[0], false),
            "F0.0 F0.1 F0.2 F0.3 B0.0 W0.0 F0.4 B0.1 W0.1 F0.5 B0.2 W0.2 F0.6 B0.3 W0.3 F0.7 B0.4 W0.4 B0.5 W0.5 B0.6 "
            "W0.6 B0.7 W0.7 ");
  EXPECT_EQ(text_of(zero_bubble(Order::zb_h1, 4, 8)[3], false),
            "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3 W0.0 F0.4 B0.4 W0.1 F0.5 B0.5 W0.2 F0.6 B0.6 W0.3 F0.7 B0.7 W0.4 "
            "W0.5 W0.6 W0.7 ");
  EXPECT_EQ(text_of(zero_bubble(Order::zb_h2, 4, 8)[0], false).substr(0, 55),
            "F0.0 F0.1 F0.2 F0.3 F0.4 F0.5 F0.6 B0.0 W0.0 F0.7 B0.1 ");
}

// Every stage holds as much as the paper says (tables 1 of both): from a forward pass to its weights' gradients.
TEST(Orders, ZeroBubbleStagesHoldWhatThePapersSay) {
  const auto held = [](Order order, int stage, int stages) {
    int now = 0, most = 0;
    const auto moves = zero_bubble(order, stages, 5 * stages);
    for (const Move& m : moves[static_cast<std::size_t>(stage)]) {
      now += m.kind == Move::Kind::forward ? 1 : m.kind == Move::Kind::weights ? -1 : 0;
      most = std::max(most, now);
    }
    return most;
  };
  for (const int stages : {2, 3, 4, 8})
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_EQ(held(Order::zb_h1, stage, stages), stages);
      EXPECT_EQ(held(Order::zb_h2, stage, stages), 2 * stages - 1);
      EXPECT_EQ(held(Order::zb_v, stage, stages), 2 * stages);  // chunks of half a stage
      EXPECT_EQ(held(Order::dualpipe_v, stage, stages), 2 * stages + 1);
    }
}

TEST(Lowering, ZeroBubbleOrdersAreSoundForEveryNumberOfStagesAndMicroBatches) {
  for (const Order order : {Order::zb_h1, Order::zb_h2, Order::zb_v, Order::dualpipe_v})
    for (const int pipeline : {2, 3, 4, 5, 8})
      for (const int micro_batches : {1, 2, 3, 5, 8, 16, 31}) {
        PlanSpec spec;
        spec.stages.order = order;
        spec.mesh.pipeline = pipeline;
        spec.stages.virtual_stages = spec.stages.folds() ? 2 : 1;
        spec.shape.micro_batch = 2;
        spec.shape.batch = 2 * micro_batches;
        const Schedule schedule = lower(samples::make(spec, samples::tiny_gpt(2 * pipeline, 8, 16)));
        EXPECT_EQ(findings(schedule), "") << name_of(order) << ", " << pipeline << " stages, " << micro_batches;
      }
}

TEST(Lowering, ASplitBackwardDoesWhatTheWholeOneDoes) {
  const auto count = [](Order order, models::OpKind kind) {
    PlanSpec spec;
    spec.stages.order = order;
    spec.mesh.pipeline = 2;
    spec.stages.virtual_stages = spec.stages.folds() ? 2 : 1;
    std::size_t n = 0;
    for (const RankClass& c : lower(samples::make(spec)).classes)
      for (const Block& block : c.blocks)
        for (const Step& step : block.steps)
          for (const models::Op& op : step.ops) n += op.kind == kind ? 1 : 0;
    return n;
  };
  using models::OpKind;
  for (const Order order : {Order::zb_h1, Order::zb_h2, Order::zb_v, Order::dualpipe_v})
    for (const OpKind kind : {OpKind::matmul, OpKind::bias_grad, OpKind::layer_norm_grad, OpKind::attention_grad,
                              OpKind::embedding_grad, OpKind::adamw}) {
      const bool folds = order == Order::zb_v || order == Order::dualpipe_v;
      // One stage fewer holds the token table where the model is folded.
      EXPECT_EQ(count(order, kind), count(Order::one_f_one_b, kind) - (folds && kind == OpKind::adamw))
          << name_of(order) << " " << models::name_of(kind);
    }
}

TEST(Lowering, AFoldedModelHasBothEndsOnTheFirstStageAndNoMessageAtTheLast) {
  PlanSpec spec;
  spec.stages.order = Order::zb_v;
  spec.mesh.pipeline = 2;
  spec.stages.virtual_stages = 2;
  spec.stages.layers_per_stage = {1, 2, 3, 1};
  const Plan plan = samples::make(spec, samples::tiny_gpt(7));
  EXPECT_EQ(plan.layers(StageId(0)), 2);
  EXPECT_EQ(plan.layers(StageId(1)), 5);
  EXPECT_EQ(plan.first_layer(kFirstStage, 1), 6);
  const Schedule schedule = lower(plan);
  EXPECT_EQ(findings(schedule), "");
  for (const Group& group : schedule.groups) EXPECT_NE(group.name, "embedding");
  int sends = 0;
  for (const Block& block : schedule.classes[1].blocks)
    for (const Step& step : block.steps) sends += step.kind == StepKind::send;
  EXPECT_EQ(sends, 2);  // forward of the second chunk, backward of the first
}

TEST(MakePlan, RefusesZeroBubbleOrdersThatCannotBe) {
  const auto code = [](auto set) {
    PlanSpec spec;
    spec.stages.order = Order::zb_h1;
    spec.mesh.pipeline = 2;
    set(spec);
    const auto made = samples::try_make(spec);
    return made ? std::string() : made.error().front().code;
  };
  EXPECT_EQ(code([](PlanSpec&) {}), "");
  EXPECT_EQ(code([](PlanSpec& s) { s.mesh.pipeline = 1; }), "P23");
  EXPECT_EQ(code([](PlanSpec& s) { s.stages.order = Order::zb_v; }), "P23");
  EXPECT_EQ(code([](PlanSpec& s) { s.stages.order = Order::zb_v, s.stages.virtual_stages = 2; }), "");
  EXPECT_EQ(code([](PlanSpec& s) { s.stages.order = Order::dualpipe_v; }), "P23");
  EXPECT_EQ(code([](PlanSpec& s) { s.stages.order = Order::dualpipe_v, s.stages.virtual_stages = 2; }), "");
  EXPECT_EQ(code([](PlanSpec& s) { s.stages.virtual_stages = 2; }), "P17");
  EXPECT_EQ(code([](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }), "P24");
}

TEST(Orders, InterleavedMessagesLieBetweenTurns) {
  // Stage 1 of 2, two chunks, two micro-batches: the head's chunk takes its gradient from nobody.
  EXPECT_EQ(text_of(interleaved(1, 2, 2, 2), true),
            "r0.0 F0.0 s0.0 r0.1 F0.1 s0.1 r1.0 F1.0 B1.0 t1.0 r1.1 F1.1 B1.1 t1.1 g0.0 B0.0 t0.0 g0.1 B0.1 t0.1 ");
}

TEST(Lowering, InterleavedStagesAreSoundForEveryNumberOfStagesChunksAndMicroBatches) {
  for (const int pipeline : {2, 3, 4, 5, 8})
    for (const int chunks : {1, 2, 3, 4})
      for (const int rounds : {1, 2, 3, 5}) {
        PlanSpec spec;
        spec.mesh.pipeline = pipeline;
        spec.stages.virtual_stages = chunks;
        spec.shape.batch = pipeline * rounds;
        const Schedule schedule = lower(samples::make(spec, samples::tiny_gpt(pipeline * chunks, 8, 16)));
        EXPECT_EQ(findings(schedule), "") << pipeline << " stages of " << chunks << ", " << rounds << " rounds";
      }
}

TEST(Lowering, InterleavedChunksHoldTheLayersOfTheirVirtualStage) {
  PlanSpec spec;
  spec.mesh.pipeline = 2;
  spec.stages.virtual_stages = 2;
  spec.stages.layers_per_stage = {1, 2, 3, 1};
  const Plan plan = samples::make(spec, samples::tiny_gpt(7));
  EXPECT_EQ(plan.layers(StageId(0)), 4);
  EXPECT_EQ(plan.first_layer(kFirstStage, 1), 3);
  const Schedule schedule = lower(plan);
  EXPECT_EQ(findings(schedule), "");
  std::vector<std::set<int>> layers(2);
  for (const RankClass& c : schedule.classes)
    for (const Bucket& b : c.buckets)
      if (b.name.rfind("h.", 0) == 0) layers[c.stage.index()].insert(std::stoi(b.name.substr(2)));
  EXPECT_EQ(layers[0], (std::set<int>{0, 3, 4, 5}));
  EXPECT_EQ(layers[1], (std::set<int>{1, 2, 6}));
}

TEST(Groups, AreStrides) {
  const Group data{"data", {{2, 3}}, 0};
  EXPECT_EQ(data.members(3), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(data.members(8), (std::vector<int>{6, 8, 10}));
  const Group embedding{"embedding", {{6, 2}}, 2};
  EXPECT_EQ(embedding.members(1), (std::vector<int>{1, 7}));
  EXPECT_EQ(embedding.members(7), (std::vector<int>{1, 7}));
  EXPECT_TRUE(embedding.members(3).empty());
}

TEST(MakePlan, NamesEveryBrokenRule) {
  PlanSpec spec;
  spec.mesh.tensor = 3;
  spec.mesh.data = 2;
  spec.shape.micro_batch = 3;
  spec.shape.batch = 8;
  spec.shape.sequence = 32;
  auto made = make_plan(std::make_shared<models::Model>(samples::tiny_gpt()),
                        std::make_shared<clusters::Cluster>(samples::cpu_cluster(4)), spec);
  ASSERT_FALSE(made.has_value());
  std::set<std::string> codes;
  for (const base::Diagnostic& d : made.error()) codes.insert(d.code);
  EXPECT_EQ(codes, (std::set<std::string>{"P02", "P03", "P04", "P05", "P09", "P10"}));
}

}  // namespace lower_test
}  // namespace orrery::plan
