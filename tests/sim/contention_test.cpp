// Sharing of links in the replay, worked by hand; and nothing is slowed down where nobody shares.
#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "sim/links/fabric.h"
#include "sim/links/transfers.h"
#include "sim/simulate.h"
#include "tests/sim/small_clusters.h"

namespace orrery::sim {
namespace contention_test {

struct Job {
  plan::Plan plan;
  plan::Schedule schedule;
};

Job job_on(std::shared_ptr<const clusters::Cluster> cluster, int data, int tensor, int pipeline, int zero = 0,
           std::int64_t hidden = 2048, std::int64_t sequence = 2048) {
  models::Model model = samples::tiny_gpt(4, hidden);
  model.heads = model.kv_heads = 8;
  model.head_dim = model.hidden / 8;
  model.max_sequence = sequence;
  plan::PlanSpec spec;
  spec.mesh.data = data, spec.mesh.tensor = tensor, spec.mesh.pipeline = pipeline, spec.states.zero_stage = zero;
  spec.shape.batch = 4 * data, spec.shape.sequence = sequence, spec.numerics.vocab_multiple = 1;
  auto made = plan::make_plan(std::make_shared<models::Model>(std::move(model)), std::move(cluster), spec);
  ENSURE(made.has_value(), "{}", base::render(made.error(), false));
  plan::Schedule schedule = plan::lower(*made);
  return {std::move(*made), std::move(schedule)};
}

// One message of a schedule put on the fabric by hand: a step of a class, in the communicator of one of its ranks.
class Bench {
 public:
  Bench(std::shared_ptr<const clusters::Cluster> cluster, const Job& job)
      : cluster_(std::move(cluster)),
        pricing_(cluster_, testing::stack_that_overlaps(true)),
        job_{&job.schedule, &pricing_, {}},
        fabric_(fabric_of(*cluster_)),
        traffic_(traffic_of(std::span(&job_, 1), *cluster_, fabric_.get())),
        folded_(fold(traffic_, std::span(&job_, 1), fabric_.get(), true)),
        transfers_(std::span(&job_, 1), traffic_, folded_, fabric_.get()) {}

  // The longest step of its kind on a stream that a stage has.
  const plan::Step& step(int stage, plan::Stream stream) const {
    const plan::RankClass& c = job_.schedule->classes[static_cast<std::size_t>(stage)];
    const plan::Step* found = nullptr;
    for (const plan::Block& block : c.blocks)
      for (const plan::Step& s : block.steps)
        if (s.stream == stream && s.kind != plan::StepKind::compute &&
            (!found || s.message_bytes(c.buffers) > found->message_bytes(c.buffers)))
          found = &s;
    ENSURE(found, "no such step");
    return *found;
  }
  // In picoseconds, alone.
  cost::Alone alone(int stage, plan::Stream stream, int rank) {
    const plan::Step& s = step(stage, stream);
    const Communicator& c = communicator(stage, stream, rank);
    const base::Bytes bytes{
        static_cast<double>(s.message_bytes(job_.schedule->classes[static_cast<std::size_t>(stage)].buffers))};
    return s.kind == plan::StepKind::collective ? pricing_.collective_alone(s.collective, bytes, c.span, c.ranks)
                                                : pricing_.send_alone(bytes, c.span);
  }
  const Communicator& communicator(int stage, plan::Stream stream, int rank) {
    return traffic_.communicators[static_cast<std::size_t>(number(stage, stream, rank))];
  }
  void start(int stage, plan::Stream stream, int rank, int tag) {
    const plan::RankClass& c = job_.schedule->classes[static_cast<std::size_t>(stage)];
    const int kind = transfers_.add(
        step(stage, stream), c, folded_.class_of_communicator[static_cast<std::size_t>(number(stage, stream, rank))]);
    transfers_.start(0, kind, tag);
  }
  // Ends in seconds, by tag.
  std::map<int, double> run() {
    std::map<int, double> ends;
    while (const auto time = transfers_.next())
      for (const int tag : transfers_.advance(*time)) ends[tag] = static_cast<double>(*time) * 1e-12;
    return ends;
  }

 private:
  int number(int stage, plan::Stream stream, int rank) const {
    const plan::Step& s = step(stage, stream);
    const auto groups = static_cast<int>(job_.schedule->groups.size());
    const int role =
        s.kind == plan::StepKind::collective ? role_of(s.group) : traffic_.jobs[0].role_of_peer(s.peer, groups);
    return traffic_.jobs[0].communicators[static_cast<std::size_t>(role)][static_cast<std::size_t>(rank)];
  }
  std::shared_ptr<const clusters::Cluster> cluster_;
  cost::Pricing pricing_;
  JobOnCluster job_;
  std::shared_ptr<const Fabric> fabric_;
  Traffic traffic_;
  Folded folded_;
  Transfers transfers_;
};

constexpr double kTick = 2e-12;

TEST(Contention, AMessageAloneTakesItsPrice) {
  testing::SmallCluster c;
  c.nodes = 4, c.devices = 2;
  const auto cluster = testing::make(c);
  const Job job = job_on(cluster, 2, 2, 2);
  for (const plan::Stream stream : {plan::Stream::data, plan::Stream::tensor, plan::Stream::pipeline_send}) {
    Bench bench(cluster, job);
    bench.start(0, stream, 1, 7);
    EXPECT_NEAR(bench.run().at(7), bench.alone(0, stream, 1).total().value, kTick);
  }
}

TEST(Contention, SeveralDataGroupsThroughOneNicEachGetAShare) {
  testing::SmallCluster c;
  c.devices = 4, c.nics = 1, c.pcie_switches = 1;
  const auto cluster = testing::make(c);
  const Job job = job_on(cluster, 2, 4, 1);
  for (int groups = 1; groups <= 4; ++groups) {
    Bench bench(cluster, job);
    for (int g = 0; g < groups; ++g) bench.start(0, plan::Stream::data, g, g);
    const cost::Alone alone = bench.alone(0, plan::Stream::data, 0);
    // Alone a group reaches its algorithm's rate; together they reach what the NIC gives to large collectives.
    const double bytes =
        static_cast<double>(bench.step(0, plan::Stream::data).message_bytes(job.schedule.classes[0].buffers));
    const double nic = 100e9 / 8 * 0.96;
    const double transfer = std::max(alone.transfer.value, groups * bytes / nic);
    for (const auto& [tag, end] : bench.run())
      EXPECT_NEAR(end, alone.latency.value + transfer, 1e-6 * transfer) << groups << " groups";
  }
}

TEST(Contention, TensorAndDataTrafficShareADevicesLinks) {
  testing::SmallCluster c;
  c.nodes = 1, c.devices = 4;
  const auto cluster = testing::make(c);
  const Job job = job_on(cluster, 2, 2, 1);
  Bench bench(cluster, job);
  // Every device is in one group of each: its link carries both.
  for (const int rank : {0, 2}) bench.start(0, plan::Stream::tensor, rank, rank);
  for (const int rank : {0, 1}) bench.start(0, plan::Stream::data, rank, 10 + rank);
  const cost::Alone tensor = bench.alone(0, plan::Stream::tensor, 0), data = bench.alone(0, plan::Stream::data, 0);
  const std::map<int, double> ends = bench.run();
  // By hand: nothing is shared before the second latency is over; then both, until the shorter ends.
  const double capacity = 25e9 * 0.8;
  const auto rate = [&](const cost::Alone& a, double bytes) { return bytes / a.transfer.value; };
  const double tensor_bytes = static_cast<double>(
                   bench.step(0, plan::Stream::tensor).message_bytes(job.schedule.classes[0].buffers)),
               data_bytes = static_cast<double>(
                   bench.step(0, plan::Stream::data).message_bytes(job.schedule.classes[0].buffers));
  double t = std::max(tensor.latency.value, data.latency.value);
  double tensor_left = tensor_bytes - rate(tensor, tensor_bytes) * (t - tensor.latency.value);
  double data_left = data_bytes - rate(data, data_bytes) * (t - data.latency.value);
  if (tensor_left <= 0) {
    EXPECT_NEAR(ends.at(0), tensor.total().value, kTick);
    EXPECT_NEAR(ends.at(10), data.total().value, kTick);
    return;
  }
  const double slow = std::min(rate(tensor, tensor_bytes), capacity / 2);
  const double fast = std::min(rate(data, data_bytes), capacity - slow);
  const double both = std::min(tensor_left / slow, data_left / fast);
  EXPECT_NEAR(ends.at(0), t + tensor_left / slow, 1e-6 * t);
  data_left -= fast * both;
  EXPECT_NEAR(ends.at(10), t + both + data_left / rate(data, data_bytes), 1e-6 * ends.at(10));
  EXPECT_GT(ends.at(10), data.total().value);
}

TEST(Contention, ASendBesideAReductionOfGradients) {
  // Two stages of two nodes with one device each: node 0's NIC carries its ring and its send to node 2.
  testing::SmallCluster c;
  c.nodes = 4, c.devices = 1, c.nics = 1, c.pcie_switches = 1;
  const auto cluster = testing::make(c);
  const Job job = job_on(cluster, 2, 1, 2);
  Bench bench(cluster, job);
  bench.start(0, plan::Stream::data, 0, 1);
  bench.start(0, plan::Stream::pipeline_send, 0, 2);
  const cost::Alone ring = bench.alone(0, plan::Stream::data, 0), send = bench.alone(0, plan::Stream::pipeline_send, 0);
  const std::map<int, double> ends = bench.run();
  EXPECT_GE(ends.at(2), send.total().value - kTick);
  EXPECT_GT(ends.at(1), ring.total().value + kTick);
  // What passes the NIC is the sum: it never gives more than it has.
  const auto bytes = [&](plan::Stream s) {
    return static_cast<double>(bench.step(0, s).message_bytes(job.schedule.classes[0].buffers));
  };
  EXPECT_GE(ends.at(1), (bytes(plan::Stream::data) + bytes(plan::Stream::pipeline_send)) / (100e9 / 8 * 0.96));
}

// A job on the nodes of one parity of a cluster of four, two under each leaf, with two devices on a NIC each.
std::vector<cost::Prediction> on_one_spine(bool beside, double oversubscription) {
  testing::SmallCluster c;
  c.nodes = 4, c.leaf_nodes = 2, c.oversubscription = oversubscription;
  const auto cluster = testing::make(c);
  const cost::Pricing pricing(cluster, testing::stack_that_overlaps(true));
  const auto half = clusters::resized(*cluster, 4);
  const Job job = job_on(std::make_shared<clusters::Cluster>(*half), 4, 1, 1);
  std::vector<JobInCompany> jobs = {{&job.plan, &job.schedule, &pricing, {0, 1, 4, 5}}};
  if (beside) jobs.push_back({&job.plan, &job.schedule, &pricing, {2, 3, 6, 7}});
  std::vector<cost::Prediction> out;
  for (const Simulation& s : simulate(jobs)) out.push_back(s.prediction);
  return out;
}

double data_time(const cost::Prediction& p) {
  for (const cost::CommunicationRow& row : p.communication)
    if (row.dimension == "data") return row.time_s;
  return 0;
}

TEST(Contention, TwoJobsOnOneSpineSlowEachOtherDown) {
  // Two nodes under a leaf with one NIC's worth of uplink: each job alone gets all of it.
  const double alone = data_time(on_one_spine(false, 2).front());
  const std::vector<cost::Prediction> together = on_one_spine(true, 2);
  ASSERT_EQ(together.size(), 2u);
  EXPECT_EQ(together[0].step_time_s, together[1].step_time_s);
  // Not twice as long: alone a message of this size does not fill the uplink either.
  EXPECT_GT(data_time(together[0]), 1.4 * alone);
  EXPECT_LE(data_time(together[0]), 2 * alone);
  // With uplinks for both nobody notices the other.
  EXPECT_EQ(data_time(on_one_spine(true, 1)[1]), data_time(on_one_spine(false, 1)[0]));
}

TEST(Contention, LinksAndBusBandwidthAreThoseOfTheReplay) {
  testing::SmallCluster c;
  c.devices = 1, c.nics = 1, c.pcie_switches = 1;
  const auto cluster = testing::make(c);
  const Job job = job_on(cluster, 2, 1, 1);
  const cost::Pricing pricing(cluster, testing::stack_that_overlaps(true));
  const cost::Prediction p = simulate(job.plan, job.schedule, pricing).prediction;
  double sent = 0, time = 0, bus = 0;  // by one rank
  for (const cost::CommunicationRow& row : p.communication) {
    sent += row.bytes;  // of an all-reduce between two
    if (row.dimension == "data") time = row.time_s, bus = row.bus_bandwidth;
  }
  ASSERT_EQ(p.links.size(), 2u);  // PCIe and the network
  for (const cost::LinkRow& row : p.links) {
    if (row.name != "infiniband") continue;
    // Out of each node and into each: four directions of two cables.
    EXPECT_NEAR(row.bytes, 4 * sent, 1e-9 * row.bytes);
    EXPECT_NEAR(row.mean_utilisation, sent / (12.5e9 * p.step_time_s), 1e-9);
    EXPECT_NEAR(row.peak_utilisation, row.mean_utilisation, 1e-9);
  }
  EXPECT_GT(time, 0);
  EXPECT_GT(bus, 0.1 * 12.5e9);
  EXPECT_LT(bus, 12.5e9);
}

}  // namespace contention_test
}  // namespace orrery::sim
