#pragma once
/// Colour refinement: which parts of a replay are equal, so that one of them may stand for all.
///
/// A structure is vertices with first colours (what they are) and labelled edges (who sees whom, and how). Refinement
/// splits classes until every two vertices of a class see, for each label and class, equally many neighbours: the
/// coarsest equitable partition (McKay, "Practical graph isomorphism", 1981, section 2.4). Whatever starts alike and
/// is moved only by what it sees then stays alike, so replaying one vertex of each class is replaying all of them.
#include <cstdint>
#include <vector>

namespace orrery::sim {

struct Structure {
  struct Edge {
    std::int32_t a = 0, b = 0;  ///< vertices
    std::int32_t label = 0;
  };
  std::vector<std::uint64_t> colours;  ///< first colour of each vertex; equal numbers mean equal things
  std::vector<Edge> edges;

  int add(std::uint64_t colour) {
    colours.push_back(colour);
    return static_cast<int>(colours.size()) - 1;
  }
};

/// Class of each vertex: numbered from 0 by the lowest vertex of each.
[[nodiscard]] std::vector<int> refine(const Structure& structure);

/// Every vertex in a class of its own: what refine() is checked against.
[[nodiscard]] std::vector<int> apart(const Structure& structure);

/// Folds a value into a running colour.
[[nodiscard]] std::uint64_t mix(std::uint64_t seed, std::uint64_t value);
[[nodiscard]] std::uint64_t mix(std::uint64_t seed, double value);

}  // namespace orrery::sim
