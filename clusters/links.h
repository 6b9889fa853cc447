#pragma once
/// The link-by-link form of a cluster, for irregular machines. For the readers of this folder.
#include "clusters/read.h"

namespace orrery::clusters {

/// Reads `device`, `vertices` and `links` into a Cluster without a shape.
[[nodiscard]] Cluster read_links(const base::Cursor& at, const Find& find);

}  // namespace orrery::clusters
