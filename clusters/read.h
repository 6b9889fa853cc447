#pragma once
/// Text to Cluster. The brief form says a regular cluster in ten lines (a device, a node, a fabric and how many); the
/// catalogue form refers to a device by name, resolved with `find`. No file is opened here.
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/yaml.h"
#include "clusters/cluster.h"

namespace orrery::clusters {

/// Text of a catalogue entry by name ("devices/a100-sxm4-80gb"), or nothing. Given by apps/, which opens files.
using Find = std::function<std::optional<std::string>(const std::string&)>;

/// What `kind` of a network may say; "torus" has no switches.
[[nodiscard]] const std::vector<std::string>& network_kinds();

[[nodiscard]] base::Result<Cluster> parse_cluster(std::string_view text, std::string file, const Find& find);
[[nodiscard]] Cluster read_cluster(const base::Cursor& at, const Find& find);
/// A self-contained YAML form (devices inlined), for plan files; parse(write(c)) equals c.
[[nodiscard]] std::string write_cluster(const Cluster& cluster, int indent = 0);
/// The same cluster with another number of devices (whole nodes, or fewer devices than a node).
[[nodiscard]] base::Result<Cluster> resized(const Cluster& cluster, int devices);

}  // namespace orrery::clusters
