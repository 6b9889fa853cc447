// Loads of one message on its links.
#include "sim/links/loads.h"

#include <algorithm>

namespace orrery::sim {

double sent_share(Wiring wiring, std::optional<plan::CollectiveKind> collective, int ranks) {
  if (wiring == Wiring::trees) return 0.5;
  if (wiring == Wiring::pairs) return 1.0 / ranks;
  if (!collective || *collective == plan::CollectiveKind::ring_shift) return 1;
  const double n = ranks;
  return (*collective == plan::CollectiveKind::all_reduce ? 2 : 1) * (n - 1) / n;
}

double inside_switch(plan::CollectiveKind collective, const clusters::GroupSpan& span) {
  const double m = span.per_node;
  return collective == plan::CollectiveKind::all_reduce && m > 1 ? (m + 1) / (2 * (m - 1)) : 1;
}

void Scales::fit(bool own, int count, double capacity, double most) {
  const double fits = capacity / most / count;
  double& scale = own ? inside_ : elsewhere_;
  scale = std::min(scale, fits);
  fullest_ = std::min(fullest_, fits);
}

void Scales::fill(Wiring wiring) {
  if (wiring != Wiring::pairs || fullest_ <= 1) return;
  inside_ *= fullest_;
  elsewhere_ *= fullest_;
}

}  // namespace orrery::sim
