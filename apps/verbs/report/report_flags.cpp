// Flags of report.
#include "apps/verbs/report/report_options.h"

namespace orrery::apps {
namespace {

/// Flags of `report --scaling`; all of them require it.
void add_scaling(Flags flags, ReportOptions& o) {
  const Flag scaling =
      flags.option("--scaling", o.scaling, "Job files: shows their best plans on growing numbers of devices")
          .value("JOB ..");
  const auto list = [&](const char* flag, auto& into, const char* says, const char* value) {
    return flags.option(flag, into, says).by_commas().one_each().needs(scaling).value(value);
  };
  list("--gpus", o.gpus, "Sizes: 64,128,256; default: the cluster's, halved again and again", "N,N..")
      .range(1, 1 << 20);
  list("--models", o.models, "Models instead of the jobs' own", "MODEL,..");
  list("--clusters", o.clusters, "Clusters instead of the jobs' own, in the same sizes", "CLUSTER,..");
  list("--sequence", o.sequences, "Sequence lengths instead of the jobs' own; 2k is 2,048", "N,N..")
      .length()
      .range(std::int64_t{1}, std::int64_t{1} << 32);
  list("--batch", o.batches, "Batches instead of the jobs' own; with --weak that of the smallest size", "N,N..")
      .count()
      .range(std::int64_t{1}, std::int64_t{1} << 32);
  flags.flag("--strong", o.strong, "The same batch at all sizes (default)").needs(scaling);
  flags.flag("--weak", o.weak, "A batch that grows with the number of devices, from the smallest size on")
      .needs(scaling);
  flags
      .flag(
          "--both", [&o] { o.strong = o.weak = true; }, "Strong and weak scaling")
      .needs(scaling);
  flags.flag("--hold-plan", o.hold_plan, "One plan at all sizes, where only `data` grows, and with --weak the batch")
      .needs(scaling);
  flags
      .option("--deadline", o.deadline_days,
              "Deadline in days: shows the cheapest, smallest and fastest way to meet it")
      .needs("--tokens")
      .needs(scaling)
      .range(1e-6, 1e6)
      .value("DAYS");
  flags.option("--co2", o.co2, "Carbon intensity of the electricity; default: the world's average")
      .needs("--tokens")
      .needs(scaling)
      .range(0.0, 1e5)
      .value("G_PER_KWH");
  flags
      .option("--measured", o.measured,
              "Rows as validate reads them, shown beside points of the same job; may be repeated")
      .one_each()
      .needs(scaling)
      .value("FILE");
  flags.flag("--all", o.all, "Every series in the terminal; else more than two are only compared").needs(scaling);
  flags.option("--format", o.format, "html, md, csv or json; default: by the file's ending, else html")
      .one_of({"html", "md", "markdown", "csv", "json"})
      .value("html|md|csv|json");
}

}  // namespace

void add_report_flags(Flags flags, ReportOptions& o) {
  flags.option("INPUT", o.inputs,
               "Run directories, plan files and jobs, which are planned; several are compared; none needed with "
               "--scaling or --job");
  flags.option("--hold-out", o.held_out, "Another run, which the calibration has not seen; may be repeated")
      .one_each()
      .value("RUN");
  flags.option("--job", o.job, "Job file, for the ranked plans").value("JOB");
  add_failures(flags, o.failures, "--tokens,--run-tokens");
  flags.flag("--compute-optimal", o.compute_optimal,
             "A run over the compute-optimal number of tokens for the model (Hoffmann et al. 2022)");
  flags.option("--budget", o.budget_flops, "A run of this many FLOPs").range(1.0, 1e36).value("FLOPS");
  flags.flag("--no-what-if", o.no_what_if,
             "Leave out other numbers and splits, and the plans of a plan file's own job");
  add_scaling(flags, o);
  flags
      .option("-o,--output", o.output,
              "File to write, - for standard output; default: report.html, standard output for md, csv and json")
      .value("FILE");
  add_settings(flags, o.settings);
  add_calibrations(flags, o.calibrations);
}

}  // namespace orrery::apps
