// A cluster that is accepted reads the same after writing, and its groups can be wired.

#include "clusters/read.h"
#include "clusters/rings.h"
#include "clusters/routes.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(cluster) {
  using namespace orrery;
  const clusters::Find find = [](const std::string& name) -> std::optional<std::string> {
    if (!name.starts_with("devices/")) return "name: x\nlike: " + name + "\n";  // a circle
    return "name: x\nkind: gpu\narchitecture: volta\npeak: {fp16: 1 TFLOPS}\nvector_peak: 1 TFLOPS\nmemory: 1 GB\n"
           "memory_bandwidth: 1 GB/s\ncache: 1 MB\nmultiprocessors: 1\n";
  };
  const auto cluster = clusters::parse_cluster(text, "fuzz.yaml", find);
  if (!cluster) {
    (void)base::render(cluster.error(), true);
    return;
  }
  const std::string written = clusters::write_cluster(*cluster);
  const auto again = clusters::parse_cluster(written, "fuzz.yaml", nullptr);
  orrery::fuzz::must(again && clusters::write_cluster(*again) == written, "a cluster reads the same after writing");
  if (cluster->size() < 2 || cluster->size() > 64) return;
  (void)clusters::span_of(*cluster, {0, cluster->size() - 1});
  (void)clusters::bisection(*cluster);
  (void)clusters::wiring_of(*cluster, {0, 1});
}
