// Whatever the dump, it is refused or becomes a cluster that reads the same after writing. The first byte picks the
// format, so that all readers are reached.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "clusters/import/import.h"

namespace {

namespace clusters = orrery::clusters;

std::string content(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// scripts/fuzz starts its targets in the root of the source tree.
const clusters::Known& known() {
  static const clusters::Known read =
      clusters::parse_known(content("clusters/import/known.yaml"), "known.yaml").value();
  return read;
}

std::optional<std::string> find(const std::string& name) {
  static const std::string gpu = content("clusters/catalog/devices/a100-sxm4-80gb.yaml");
  return name.starts_with("devices/") ? std::optional(gpu) : std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  using clusters::DumpFormat;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const DumpFormat formats[] = {DumpFormat::nccl, DumpFormat::topo_matrix, DumpFormat::hwloc,
                                DumpFormat::ibnetdiscover};
  const DumpFormat format = clusters::dump_format(text).value_or(formats[data[0] % 4]);
  clusters::ImportOptions options;
  options.name = "fuzz";
  options.device = "a100-sxm4-80gb";
  const auto imported = clusters::import_cluster({{text, "fuzz", format}}, options, known(), find);
  if (!imported) {
    if (imported.error().empty()) std::abort();
    (void)orrery::base::render(imported.error(), true);
    return 0;
  }
  const auto again = clusters::parse_cluster(imported->yaml, "again.yaml", nullptr);
  if (!again || clusters::write_cluster(*again) != imported->yaml) std::abort();
  return 0;
}
