#pragma once
/// Reads a Cluster from text. The brief form describes a regular cluster in ten lines (a device, a node, a fabric, and
/// their numbers); a device or cluster given by catalogue name is resolved with `find`. No file is opened here.
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/yaml.h"
#include "clusters/cluster.h"

namespace orrery::clusters {

/// Text of a catalogue entry by name ("devices/a100-sxm4-80gb"), or nothing. Provided by apps/, which opens files.
using Find = std::function<std::optional<std::string>(const std::string&)>;

/// The values of a network's `kind`; "torus" has no switches.
[[nodiscard]] const std::vector<std::string>& network_kinds();

[[nodiscard]] base::Result<Cluster> parse_cluster(std::string_view text, std::string file, const Find& find);
/// The same without the graph (of a cluster that has a shape) and without `text`: for lists of many clusters.
[[nodiscard]] base::Result<Cluster> parse_description(std::string_view text, std::string file, const Find& find);
[[nodiscard]] Cluster read_cluster(const base::Cursor& at, const Find& find);
/// Self-contained YAML (devices inlined), for plan files; parse(write(c)) equals c.
[[nodiscard]] std::string write_cluster(const Cluster& cluster, int indent = 0);
/// The same cluster with another number of devices (whole nodes, or part of one node).
[[nodiscard]] base::Result<Cluster> resized(const Cluster& cluster, int devices);

}  // namespace orrery::clusters
