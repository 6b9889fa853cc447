#pragma once
/// Groups of devices on a torus, and which device runs which rank of a mesh there. A group that is a box of the torus,
/// or every few devices along its dimensions, communicates along all its dimensions at once.
#include <optional>
#include <span>
#include <vector>

#include "clusters/build.h"

namespace orrery::clusters {

/// What a group has of one dimension of the torus: `size` devices at equal distances.
struct TorusSide {
  int dimension = 0, extent = 1, first = 0, size = 1, stride = 1;
  [[nodiscard]] int last() const { return first + (size - 1) * stride; }
  /// Whether the members' links close a ring around the dimension.
  [[nodiscard]] bool wraps() const { return size * stride == extent && extent > 2; }
  /// Links on which a member sends along this dimension.
  [[nodiscard]] int links() const { return wraps() ? 2 : 1; }
  bool operator==(const TorusSide&) const = default;
};

/// The dimensions in which a group has more than one device.
struct TorusGroup {
  std::vector<TorusSide> sides;
  /// Links with which a member takes part in a collective, which runs along all dimensions at once: each part of the
  /// message goes around them in another order. A part with a stride passes through devices of other groups; `shared`:
  /// these groups do the same at the same time over the same links.
  [[nodiscard]] double links(bool shared) const;
  /// Messages one after another until the last member has something of all: half of a ring, the whole of a line.
  [[nodiscard]] int hops() const;
  /// Links' worth at which a member sends to the others when all send to all: what the fullest link lets through. In a
  /// ring of n an eighth of n members' messages passes over each link, in a line a quarter. A message is whole there,
  /// with the part that the member keeps.
  [[nodiscard]] double exchange_links(bool shared) const;
};

/// None if the members are not such a group. `members`: each once, in any order.
[[nodiscard]] std::optional<TorusGroup> torus_group(const Torus& torus, std::span<const int> members);
/// Hops of the shortest way from one device to another.
[[nodiscard]] int torus_distance(const Torus& torus, int a, int b);

/// How a mesh of ranks lies on the torus: for each axis of the mesh, how many of each dimension's devices it has.
struct TorusPlaces {
  std::vector<std::vector<int>> parts;  ///< [axis][dimension]; products are the axis's size
  /// Devices by rank, the first axis running fastest.
  [[nodiscard]] std::vector<int> devices(const Torus& torus) const;
};
/// Assigns the axes of a mesh, which fills the torus, as JAX does (jax/_src/mesh_utils.py, create_device_mesh with
/// allow_split_physical_axes). `axes`: sizes, the one that communicates most first; each takes what is left. An axis
/// takes as many whole dimensions as have its size together; if some axis finds none, all are assigned again, with
/// dimensions that may be divided: first what has most devices in whole dimensions, then most whole dimensions, then
/// most devices in dimensions of which others have a part, then most of the first dimensions.
[[nodiscard]] TorusPlaces place_on_torus(const Torus& torus, std::span<const int> axes);

}  // namespace orrery::clusters
