#pragma once
/// Calibration: named coefficients with their provenance, for one device, one network and one software stack. Defaults
/// come from datasheets and public measurements; calibration files replace some of them by fitted values.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/parameters/parameters.h"

namespace orrery::cost {

/// One coefficient. `value` is in SI units (seconds, bytes, bytes/s) or a plain number.
struct Parameter {
  std::string name;
  double value = 0;
  Unit unit = Unit::number;
  std::string source;  ///< "NVIDIA A100 datasheet", "fit 2026-11-20: runs a, b"
  bool operator==(const Parameter&) const = default;
};

/// A run that a calibration was fitted to: its name, and a fingerprint of the measurements that does not change when
/// the run is renamed.
struct FittedTo {
  std::string run;
  std::string fingerprint;
  bool operator==(const FittedTo&) const = default;
};

struct Calibration {
  std::string name;
  std::string device;                           ///< Device::name that device.* apply to; empty: any
  std::string network;                          ///< Cluster::name that network.* apply to; empty: any
  std::string stack;                            ///< Stack::name that stack.* apply to; empty: any
  std::map<std::string, Parameter> parameters;  ///< by name
  std::vector<FittedTo> fitted_to;              ///< empty: written by hand

  [[nodiscard]] bool has(const std::string& key) const { return parameters.count(key) != 0; }
  /// The value. A missing name is a bug in the caller: defaults() has everything that pricing asks for.
  [[nodiscard]] double at(const std::string& key) const;
  [[nodiscard]] double get(const std::string& key, double fallback) const;
  /// Sets a known coefficient; its unit comes from known_parameters().
  void set(const std::string& key, double value, std::string source);
  bool operator==(const Calibration&) const = default;
};

/// Format of clusters/calibrated/NAME.yaml; strict. Writing and parsing gives the same value.
[[nodiscard]] base::Result<Calibration> parse_calibration(std::string_view text, std::string file);
[[nodiscard]] std::string write_calibration(const Calibration& calibration);

/// Every coefficient that pricing needs except stack.*, for a cluster without measurements: public measurements of its
/// kind of device, or placeholders whose source says "uncalibrated".
[[nodiscard]] Calibration defaults(const clusters::Cluster& cluster);

/// The name of a cluster's links: the link class within a node; with several nodes, "/" and the one between them.
[[nodiscard]] std::string network_of(const clusters::Cluster& cluster);

/// `base` overlaid with the coefficients of `over`; later files win. A file's device.* apply only if its device equals
/// `base`'s (or is empty); likewise network.* (a file for one node's links also applies to several such nodes) and
/// stack.*. Names of skipped files go to `skipped` if given.
[[nodiscard]] Calibration merge(Calibration base, const std::vector<Calibration>& over,
                                std::vector<std::string>* skipped = nullptr);

}  // namespace orrery::cost
