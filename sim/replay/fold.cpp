// Folding: refines ranks, communicators and links as one structure, and builds its quotient.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/ensure.h"
#include "base/index.h"
#include "sim/links/symmetry.h"
#include "sim/links/traffic.h"

namespace orrery::sim {

namespace {

using base::at;

constexpr std::uint64_t kRank = 1, kCommunicator = 2, kLink = 3;  // kinds of vertices

std::uint64_t number(int value) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}

// All that a communicator's prices depend on.
std::uint64_t colour_of(const Communicator& c) {
  std::uint64_t colour = mix(kCommunicator, number(c.job));
  for (const int value :
       {c.role, c.ranks, c.wired(Wiring::rings).connections, c.span.nodes, c.span.per_node, c.span.within_node ? 1 : 0})
    colour = mix(colour, number(value));
  return mix(mix(colour, c.span.bandwidth.value), c.span.latency.value);
}

struct Vertices {
  std::vector<int> first_rank;  // by job
  int first_communicator = 0, first_link = 0;
};

Structure structure_of(const Traffic& traffic, std::span<const JobOnCluster> jobs, const Fabric* fabric,
                       Vertices& vertices) {
  Structure s;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    vertices.first_rank.push_back(static_cast<int>(s.colours.size()));
    const plan::Schedule& schedule = *jobs[j].schedule;
    for (const plan::RankClass& c : schedule.classes)
      for (int i = 0; i < c.count; ++i) s.add(mix(mix(kRank, number(static_cast<int>(j))), number(c.stage.number())));
  }
  vertices.first_communicator = static_cast<int>(s.colours.size());
  for (const Communicator& c : traffic.communicators) s.add(colour_of(c));
  vertices.first_link = static_cast<int>(s.colours.size());
  for (const int link : traffic.links) {
    const Direction& d = fabric->direction(link);
    s.add(mix(mix(mix(kLink, number(static_cast<int>(d.kind))), number(d.tier)), d.bandwidth));
  }
  constexpr int kMember = 0, kReceiver = 1, kCrosses = 2;  // labels; the last also holds the wiring and the connections
  for (std::size_t i = 0; i < traffic.communicators.size(); ++i) {
    const Communicator& c = traffic.communicators[i];
    const int self = vertices.first_communicator + static_cast<int>(i);
    const bool pair = at(c.role) >= jobs[at(c.job)].schedule->groups.size();
    int label = kMember;
    for (const int rank : members_of(c, jobs[at(c.job)], traffic.jobs[at(c.job)])) {
      s.edges.push_back({vertices.first_rank[at(c.job)] + rank, self, label});
      if (pair) label = kReceiver;
    }
    for (std::size_t w = 0; w < kWirings; ++w)
      for (std::size_t u = c.wirings[w].first; u < c.wirings[w].last; ++u)
        if (!fabric->implied(traffic.links[at(traffic.uses[u].link)]))
          s.edges.push_back({self, vertices.first_link + traffic.uses[u].link,
                             kCrosses + static_cast<int>(kWirings) * traffic.uses[u].count + static_cast<int>(w)});
  }
  return s;
}

// Renumbers the classes of vertices [first, end) from 0 in order of their lowest vertex; returns their number.
int renumber(const std::vector<int>& classes, int first, int end, std::vector<int>& out) {
  std::vector<int> known(classes.size(), -1);
  int count = 0;
  for (int v = first; v < end; ++v) {
    int& number_of = known[at(classes[at(v)])];
    if (number_of < 0) number_of = count++;
    out.push_back(number_of);
  }
  return count;
}

void fold_ranks(Folded& f, std::span<const JobOnCluster> jobs, const std::vector<int>& class_of) {
  std::size_t vertex = 0;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    int rank = 0;
    for (const plan::RankClass& c : jobs[j].schedule->classes)
      for (int i = 0; i < c.count; ++i, ++rank) {
        Folded::Ranks& r = f.ranks[at(class_of[vertex++])];
        if (r.count++ == 0) r.job = static_cast<int>(j), r.stage = c.stage, r.representative = rank;
      }
  }
}

void fold_links(Folded& f, const Traffic& traffic, const Fabric* fabric, const std::vector<int>& class_of, bool every,
                std::vector<bool>& stands) {
  for (std::size_t l = 0; l < traffic.links.size(); ++l) {
    Folded::Links& links = f.links[at(class_of[l])];
    if (links.count++ > 0) continue;
    links.representative = traffic.links[l];
    stands[l] = every || !fabric->implied(traffic.links[l]);
  }
}

// Uses of a link by a class of communicators: which of them cross the link that represents its class, and how often.
void fold_uses(Folded& f, const Traffic& traffic, const std::vector<int>& link_class, const std::vector<bool>& stands) {
  std::map<std::tuple<int, std::size_t, int, int>, int> times;  // (communicators, wiring, links, connections)
  for (std::size_t i = 0; i < traffic.communicators.size(); ++i) {
    const Communicator& c = traffic.communicators[i];
    for (std::size_t w = 0; w < kWirings; ++w)
      for (std::size_t u = c.wirings[w].first; u < c.wirings[w].last; ++u) {
        const Use& use = traffic.uses[u];
        if (stands[at(use.link)]) ++times[{f.class_of_communicator[i], w, link_class[at(use.link)], use.count}];
      }
  }
  for (const auto& [key, count] : times) {
    const auto [communicators, wiring, links, connections] = key;
    f.communicators[at(communicators)].uses[wiring].push_back({links, connections, count});
  }
}

}  // namespace

Folded fold(const Traffic& traffic, std::span<const JobOnCluster> jobs, const Fabric* fabric, bool every_rank) {
  Vertices vertices;
  const Structure structure = structure_of(traffic, jobs, fabric, vertices);
  const std::vector<int> classes = every_rank ? apart(structure) : refine(structure);
  const int end = static_cast<int>(classes.size());
  Folded f;
  std::vector<int> rank_class, link_class;
  f.ranks.resize(at(renumber(classes, 0, vertices.first_communicator, rank_class)));
  f.communicators.resize(
      at(renumber(classes, vertices.first_communicator, vertices.first_link, f.class_of_communicator)));
  f.links.resize(at(renumber(classes, vertices.first_link, end, link_class)));
  fold_ranks(f, jobs, rank_class);
  for (std::size_t i = 0; i < traffic.communicators.size(); ++i) {
    Folded::Communicators& c = f.communicators[at(f.class_of_communicator[i])];
    if (c.count++ > 0) continue;
    c.representative = static_cast<int>(i);
    const Communicator& one = traffic.communicators[i];
    std::set<int> taking_part;
    for (const int rank : members_of(one, jobs[at(one.job)], traffic.jobs[at(one.job)]))
      taking_part.insert(rank_class[at(vertices.first_rank[at(one.job)] + rank)]);
    c.participants = static_cast<int>(taking_part.size());
  }
  std::vector<bool> stands(traffic.links.size(), false);
  fold_links(f, traffic, fabric, link_class, every_rank, stands);
  fold_uses(f, traffic, link_class, stands);
  return f;
}

}  // namespace orrery::sim
