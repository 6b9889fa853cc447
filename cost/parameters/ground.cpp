/// Grounds as files have them.
#include "cost/parameters/ground.h"

#include <fmt/format.h>

#include "base/units.h"
#include "base/yaml.h"

namespace orrery::cost {

Ground read_ground(const base::Cursor& at) {
  constexpr double kMostRate = 1e18;
  Ground out;
  out.device = at.at("device").text();
  out.architecture = static_cast<clusters::Architecture>(at.at("architecture").choice(clusters::architecture_words()));
  out.peak = at.at("peak").quantity(base::UnitKind::flops_per_second, 1, kMostRate);
  out.memory_bandwidth = at.at("memory_bandwidth").quantity(base::UnitKind::bytes_per_second, 1, kMostRate);
  out.mixtures = at.at("mixtures").boolean(false);
  out.adapters = at.optional("adapters").boolean(false);
  out.states = at.optional("states").boolean(false);
  out.indexed = at.optional("indexed").boolean(false);
  return out;
}

std::string ground_text(const Ground& g) {
  constexpr double kTeraflop = 1e12, kGigabyte = 1e9;
  return fmt::format("device: {}, architecture: {}, peak: {} TFLOPS, memory_bandwidth: {} GB/s, mixtures: {}{}{}{}",
                     base::yaml_text(g.device), clusters::name_of(g.architecture), g.peak / kTeraflop,
                     g.memory_bandwidth / kGigabyte, g.mixtures, g.adapters ? ", adapters: true" : "",
                     g.states ? ", states: true" : "", g.indexed ? ", indexed: true" : "");
}

}  // namespace orrery::cost
