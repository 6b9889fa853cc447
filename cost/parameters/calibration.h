#pragma once
/// Calibration: named coefficients with their provenance, for one device, one network and one software stack.
/// Defaults come from datasheets and public measurements; calibration files replace some of them by fitted
/// values.
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

/// A run that a calibration was fitted to: as it was called, and a fingerprint of what was measured, which stays when
/// the run is called otherwise.
struct FittedTo {
  std::string run;
  std::string fingerprint;
  bool operator==(const FittedTo&) const = default;
};

struct Calibration {
  std::string name;
  std::string device;                           ///< Device::name that device.* hold for; empty: any
  std::string network;                          ///< Cluster::name that network.* hold for; empty: any
  std::string stack;                            ///< Stack::name that stack.* hold for; empty: any
  std::map<std::string, Parameter> parameters;  ///< by name
  std::vector<FittedTo> fitted_to;              ///< empty: written by hand

  [[nodiscard]] bool has(const std::string& key) const { return parameters.count(key) != 0; }
  /// The value; a missing name is a bug of ours (defaults() has all that pricing asks for).
  [[nodiscard]] double at(const std::string& key) const;
  [[nodiscard]] double get(const std::string& key, double fallback) const;
  /// Sets a known coefficient (its unit comes from the table of known ones).
  void set(const std::string& key, double value, std::string source);
  bool operator==(const Calibration&) const = default;
};

/// clusters/calibrated/NAME.yaml; strict. write then parse gives the same value.
[[nodiscard]] base::Result<Calibration> parse_calibration(std::string_view text, std::string file);
[[nodiscard]] std::string write_calibration(const Calibration& calibration);

/// Every coefficient that pricing needs except stack.*, for a cluster nobody has measured: public
/// measurements of its kind of device, or placeholders whose source says "uncalibrated".
[[nodiscard]] Calibration defaults(const clusters::Cluster& cluster);

/// What names a cluster's links: the link class within a node, and, on several nodes, "/" and the one between them.
[[nodiscard]] std::string network_of(const clusters::Cluster& cluster);

/// `base` with the coefficients of `over` on top, later files winning. A file's device.* count only when its
/// device is `base`'s (or empty), likewise network.* (a file for one node's
/// links also serves several nodes of them) and stack.*; what was passed over is named in `skipped`
/// if given.
[[nodiscard]] Calibration merge(Calibration base, const std::vector<Calibration>& over,
                                std::vector<std::string>* skipped = nullptr);

}  // namespace orrery::cost
