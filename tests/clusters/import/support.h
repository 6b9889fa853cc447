#pragma once
/// Fixtures of dumps, and the import of them with the catalogue of this source tree.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "clusters/import/import.h"

namespace orrery::clusters::testing {

inline std::string file_text(const std::string& path) {
  std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string fixture(const std::string& name) {
  return file_text("tests/clusters/import/fixtures/" + name);
}

inline std::optional<std::string> find_in_catalog(const std::string& name) {
  std::string text = file_text("clusters/catalog/" + name + ".yaml");
  if (text.empty()) return std::nullopt;
  return text;
}

inline const Known& known() {
  static const base::Result<Known> read = parse_known(file_text("clusters/import/known.yaml"), "known.yaml");
  EXPECT_TRUE(read) << (read ? "" : base::render(read.error(), false));
  return *read;
}

struct Text {
  std::string file, text;
};

inline base::Result<Imported> import_texts(const std::vector<Text>& texts, ImportOptions options = {}) {
  std::vector<Dump> dumps;
  for (const Text& one : texts)
    dumps.push_back({one.text, one.file, dump_format(one.text).value_or(DumpFormat::topo_matrix)});
  if (options.name.empty()) options.name = "imported";
  return import_cluster(dumps, options, known(), find_in_catalog);
}

/// The fixtures of these names.
inline base::Result<Imported> import_files(const std::vector<std::string>& names, ImportOptions options = {}) {
  std::vector<Text> texts;
  for (const std::string& name : names) texts.push_back({name, fixture(name)});
  return import_texts(texts, std::move(options));
}

inline std::string errors_of(const base::Result<Imported>& result) {
  return result ? "" : base::render(result.error(), false);
}

inline Cluster catalogue(const std::string& name) {
  const std::string text = file_text("clusters/catalog/" + name + ".yaml");
  auto cluster = parse_cluster(text, name + ".yaml", find_in_catalog);
  EXPECT_TRUE(cluster) << name;
  return *cluster;
}

}  // namespace orrery::clusters::testing
