// Colour refinement: what it must keep apart, what it must not, and that its classes are equitable.
#include "sim/links/symmetry.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "base/random.h"

namespace orrery::sim {
namespace symmetry_test {

int count(const std::vector<int>& classes) {
  return static_cast<int>(std::set<int>(classes.begin(), classes.end()).size());
}

Structure ring(int size) {
  Structure s;
  for (int i = 0; i < size; ++i) s.add(1);
  for (int i = 0; i < size; ++i) s.edges.push_back({i, (i + 1) % size, 0});
  return s;
}

TEST(Symmetry, ARingIsOneClass) {
  EXPECT_EQ(count(refine(ring(12))), 1);
}

TEST(Symmetry, APathHasAClassForEachDistanceFromItsEnds) {
  Structure path = ring(9);
  path.edges.pop_back();
  EXPECT_EQ(refine(path), (std::vector<int>{0, 1, 2, 3, 4, 3, 2, 1, 0}));
}

TEST(Symmetry, OneOddVertexSplitsARingByItsDistance) {
  Structure s = ring(8);
  s.colours[3] = 2;
  EXPECT_EQ(refine(s), (std::vector<int>{0, 1, 2, 3, 2, 1, 0, 4}));
}

TEST(Symmetry, LabelsOfEdgesCount) {
  Structure s = ring(6);
  s.edges[0].label = 5;
  EXPECT_EQ(refine(s), (std::vector<int>{0, 0, 1, 2, 2, 1}));
}

TEST(Symmetry, TwoEdgesAreNotOne) {
  Structure s;
  for (int i = 0; i < 4; ++i) s.add(1);
  s.edges = {{0, 1, 0}, {2, 3, 0}, {2, 3, 0}};
  EXPECT_EQ(refine(s), (std::vector<int>{0, 0, 1, 1}));
}

TEST(Symmetry, ApartFoldsNothing) {
  EXPECT_EQ(count(apart(ring(7))), 7);
}

// Every vertex of a class has, for each label and class, equally many neighbours.
TEST(Symmetry, ClassesOfRandomStructuresAreEquitable) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Structure s;
    const int size = 4 + static_cast<int>(base::below(40, seed, 1, 0));
    for (int i = 0; i < size; ++i) s.add(base::below(2, seed, 2, static_cast<std::uint64_t>(i)));
    for (std::uint64_t e = 0; e < base::below(60, seed, 3, 0); ++e)
      s.edges.push_back({static_cast<int>(base::below(static_cast<std::uint64_t>(size), seed, 4, e)),
                         static_cast<int>(base::below(static_cast<std::uint64_t>(size), seed, 5, e)),
                         static_cast<int>(base::below(2, seed, 6, e))});
    const std::vector<int> classes = refine(s);
    std::vector<std::map<std::pair<int, int>, int>> sees(static_cast<std::size_t>(size));
    const auto of = [&](int v) { return classes[static_cast<std::size_t>(v)]; };
    for (const Structure::Edge& e : s.edges) {
      ++sees[static_cast<std::size_t>(e.a)][{e.label, of(e.b)}];
      ++sees[static_cast<std::size_t>(e.b)][{e.label, of(e.a)}];
    }
    for (int v = 0; v < size; ++v)
      for (int w = 0; w < v; ++w) {
        const bool same_view = sees[static_cast<std::size_t>(v)] == sees[static_cast<std::size_t>(w)] &&
                               s.colours[static_cast<std::size_t>(v)] == s.colours[static_cast<std::size_t>(w)];
        EXPECT_EQ(of(v) == of(w), same_view) << "seed " << seed << ", vertices " << v << " and " << w;
      }
  }
}

}  // namespace symmetry_test
}  // namespace orrery::sim
