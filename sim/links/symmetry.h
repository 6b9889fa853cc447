#pragma once
/// Colour refinement: finds the equal parts of a replay, of which one can represent all.
///
/// A structure is vertices with initial colours (what they are) and labelled edges (which vertex sees which, and how).
/// Refinement splits classes until any two vertices of a class see the same number of neighbours for each label and
/// class: the coarsest equitable partition (McKay, "Practical graph isomorphism", 1981, section 2.4). Vertices that
/// start equal and react only to what they see stay equal, so replaying one vertex of each class replays all of them.
#include <cstdint>
#include <vector>

namespace orrery::sim {

struct Structure {
  struct Edge {
    std::int32_t a = 0, b = 0;  ///< vertices
    std::int32_t label = 0;
  };
  std::vector<std::uint64_t> colours;  ///< initial colour of each vertex; equal numbers mean equal things
  std::vector<Edge> edges;

  int add(std::uint64_t colour) {
    colours.push_back(colour);
    return static_cast<int>(colours.size()) - 1;
  }
};

/// Class of each vertex, numbered from 0 in the order of the lowest vertices.
[[nodiscard]] std::vector<int> refine(const Structure& structure);

/// Puts every vertex in a class of its own: the reference to check refine() against.
[[nodiscard]] std::vector<int> apart(const Structure& structure);

/// Mixes a value into a running colour.
[[nodiscard]] std::uint64_t mix(std::uint64_t seed, std::uint64_t value);
[[nodiscard]] std::uint64_t mix(std::uint64_t seed, double value);

}  // namespace orrery::sim
