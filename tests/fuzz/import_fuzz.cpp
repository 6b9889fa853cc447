// Whatever the dump, it is refused or becomes a cluster that reads the same after writing. The first byte picks the
// format, so that all readers are reached.
#include <fstream>
#include <iterator>
#include <string>

#include "clusters/import/import.h"
#include "tests/fuzz/target.h"

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

FUZZ_TARGET(import) {
  if (text.empty()) return;
  using clusters::DumpFormat;
  const DumpFormat formats[] = {DumpFormat::nccl, DumpFormat::topo_matrix, DumpFormat::hwloc,
                                DumpFormat::ibnetdiscover};
  const DumpFormat format = clusters::dump_format(text).value_or(formats[static_cast<unsigned char>(text[0]) % 4]);
  clusters::ImportOptions options;
  options.name = "fuzz";
  options.device = "a100-sxm4-80gb";
  const auto imported = clusters::import_cluster({{std::string(text), "fuzz", format}}, options, known(), find);
  if (!imported) {
    orrery::fuzz::must(!imported.error().empty(), "a refusal says why");
    (void)orrery::base::render(imported.error(), true);
    return;
  }
  const auto again = clusters::parse_cluster(imported->yaml, "again.yaml", nullptr);
  orrery::fuzz::must(again && clusters::write_cluster(*again) == imported->yaml,
                     "an imported cluster reads the same after writing");
}
