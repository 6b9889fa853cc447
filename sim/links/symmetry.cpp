// Colours are 128-bit sums of hashes: a neighbourhood is a multiset, so its sum does not depend on the order of edges,
// and two different ones among the few million of a cluster collide with a probability below 1e-24.
#include "sim/links/symmetry.h"

#include <bit>
#include <numeric>

namespace orrery::sim {

namespace {

// The finaliser of MurmurHash3 (Appleby): every input bit affects every output bit.
std::uint64_t scatter(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

struct Colour {
  std::uint64_t high = 0, low = 0;
  bool operator==(const Colour&) const = default;
};

constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15ULL;

// Adds a vertex of colour `c` to a neighbour that sees it through an edge with that label.
void add(Colour& sum, const Colour& c, std::int32_t label) {
  const std::uint64_t salt = scatter(static_cast<std::uint64_t>(label) * kOdd + 1);
  sum.high += scatter(c.high ^ salt);
  sum.low += scatter(c.low + salt);
}

// Numbers colours from 0 by first occurrence. Open addressing, since there are as many vertices as links.
class Numbering {
 public:
  explicit Numbering(std::size_t most) : slots_(std::bit_ceil(2 * most + 2), -1) {}
  int of(const Colour& c) {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = (c.high ^ c.low) & mask;; at = (at + 1) & mask) {
      int& slot = slots_[at];
      if (slot < 0) {
        slot = static_cast<int>(known_.size());
        known_.push_back(c);
        return slot;
      }
      if (known_[static_cast<std::size_t>(slot)] == c) return slot;
    }
  }
  [[nodiscard]] std::size_t count() const { return known_.size(); }

 private:
  std::vector<int> slots_;
  std::vector<Colour> known_;
};

std::size_t number(const std::vector<Colour>& colours, std::vector<int>& classes) {
  Numbering numbering(colours.size());
  for (std::size_t v = 0; v < colours.size(); ++v) classes[v] = numbering.of(colours[v]);
  return numbering.count();
}

}  // namespace

std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  return scatter(seed * kOdd + scatter(value + 1));
}
std::uint64_t mix(std::uint64_t seed, double value) {
  return mix(seed, std::bit_cast<std::uint64_t>(value));
}

std::vector<int> refine(const Structure& structure) {
  const std::size_t count = structure.colours.size();
  std::vector<Colour> colours(count), sums(count);
  for (std::size_t v = 0; v < count; ++v)
    colours[v] = {scatter(structure.colours[v]), scatter(structure.colours[v] + kOdd)};
  std::vector<int> classes(count);
  std::size_t known = number(colours, classes);
  while (true) {
    // A colour includes its previous one, so classes only split; refinement ends when their number stays the same.
    for (std::size_t v = 0; v < count; ++v) sums[v] = {scatter(colours[v].high + 1), scatter(colours[v].low + 2)};
    for (const Structure::Edge& e : structure.edges) {
      add(sums[static_cast<std::size_t>(e.a)], colours[static_cast<std::size_t>(e.b)], e.label);
      add(sums[static_cast<std::size_t>(e.b)], colours[static_cast<std::size_t>(e.a)], e.label);
    }
    colours.swap(sums);
    const std::size_t now = number(colours, classes);
    if (now == known) return classes;
    known = now;
  }
}

std::vector<int> apart(const Structure& structure) {
  std::vector<int> classes(structure.colours.size());
  std::iota(classes.begin(), classes.end(), 0);
  return classes;
}

}  // namespace orrery::sim
