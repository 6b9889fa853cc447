#pragma once
/// The command line as plain records. Errors in it are values too: nothing here prints or exits.
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "exec/run/sample.h"

namespace orrery::apps {

enum class Colour { automatic, always, never };

struct CommonOptions {
  bool json = false;
  bool quiet = false;
  Colour colour = Colour::automatic;
  std::vector<std::string> catalogs;  ///< roots searched before all others
  bool force = false;                 ///< overwrite files that Orrery did not write
  bool dry_run = false;               ///< write nothing, launch nothing
};

struct InitOptions {
  std::string model = "tiny-gpt";
  std::string dlrm;                      ///< arguments of the public DLRM benchmark, instead of a model
  std::string cluster;                   ///< empty: as many CPU ranks as this machine has cores for
  std::int64_t batch = 0, sequence = 0;  ///< 0: four per device; the model's longest
  std::string output = "job.yaml";       ///< "-": stdout
  bool overwrite = false;
};

struct ModelOptions {
  std::string model;          ///< catalogue name, model YAML or Hugging Face config.json
  std::int64_t sequence = 0;  ///< tokens; 0: the model's longest
};

struct PlanOptions {
  std::string job;
  int top = 10;
  std::vector<int> gpus;       ///< cluster sizes to plan for; empty: the cluster's own
  double memory_fraction = 1;  ///< share of a device's memory that a plan may fill
  std::string output;          ///< plan file of the best plan, or of row `pick`
  bool all = false;            ///< every plan, not one per family
  int pick = 1;
  std::vector<std::string> settings;  ///< "plan.tensor=4", overriding the job
  std::vector<std::string> calibrations;
};

/// Assumptions of simulate about failures; times are text with units.
struct FailureOptions {
  std::string mtbf;         ///< of the whole system; "inf": no failures
  double per_gpu_hour = 0;  ///< failures; 0: not given
  std::string fleet;        ///< name of a published fleet whose rate to use
  std::string period;       ///< of periodic faults, instead of random failures
  std::string restart_time, step_time, checkpoint_pause, checkpoint_write;
  std::int64_t checkpoint_every = 0;  ///< steps; 0: the best number
  double tokens = 0;                  ///< of the run; 0: as many as the job's steps read
  [[nodiscard]] bool any() const {
    return !mtbf.empty() || per_gpu_hour > 0 || !fleet.empty() || !period.empty() || !restart_time.empty() ||
           !step_time.empty() || !checkpoint_pause.empty() || !checkpoint_write.empty() || checkpoint_every > 0 ||
           tokens > 0;
  }
};

struct SimulateOptions {
  std::string plan;
  std::string trace;     ///< Chrome trace to write
  std::string timeline;  ///< predicted timeline.json to write
  std::string beside;    ///< plan of another job that runs on the same cluster at the same time
  FailureOptions failures;
  std::vector<std::string> calibrations;
};

struct TrainOptions {
  std::string plan;
  std::string run;
  std::optional<std::int64_t> steps;
  bool resume = false;
  bool overwrite = false;             ///< deletes an earlier run in the directory; otherwise one is refused
  std::int64_t checkpoint_every = 0;  ///< steps; 0: by time
  int keep = 2;                       ///< number of newest checkpoints to keep
  std::string on_spike = "warn";
  std::optional<std::int64_t> hash_every;  ///< steps
  int threads = 1;                         ///< per rank
  int restarts = 0;                        ///< after failures
  bool oversubscribe = false;              ///< allow more than eight ranks per core
  std::int64_t grace_s = 30;               ///< from a stop request until the ranks are killed
  std::int64_t deadline_s = 60;            ///< longest wait of one rank for others
  bool verify_serial = false;
  bool repeat = true;   ///< GPUs: only kernels that repeat bit by bit, even where others are faster
  bool sample = false;  ///< print text from the model after the run; without a plan, from `run`
  exec::SampleOptions text;
};

struct CalibrateOptions {
  std::vector<std::string> runs;
  std::vector<std::string> held_out;
  std::string output;
  std::vector<std::string> rows;  ///< files of measured rows, instead of runs
  std::string like;               ///< stack of the same family
  std::string cluster;            ///< the cluster of the rows; empty: found by their device
};

struct ReportOptions {
  std::vector<std::string> inputs;               ///< run directories and plan files
  std::vector<std::string> held_out;             ///< runs that the calibration has not seen
  std::string job;                               ///< for ranked plans
  std::vector<std::string> scaling;              ///< jobs to plan on more and more devices; folders among them are runs
  std::vector<int> gpus;                         ///< sizes to plan for; empty: each cluster's and halves of it
  std::vector<std::string> models, clusters;     ///< instead of the jobs' own; empty: theirs
  std::vector<std::int64_t> sequences, batches;  ///< likewise
  bool strong = false, weak = false;             ///< neither: strong
  bool hold_plan = false;                        ///< one plan at all sizes, except for `data`
  double deadline_days = 0;                      ///< of the run; 0: none
  std::optional<double> co2;                     ///< g/kWh; absent: the world's average
  std::vector<std::string> measured;             ///< files of measured rows to show beside the points
  std::string format = "html";                   ///< of the output: html, md, csv, json
  FailureOptions failures;                       ///< of a whole run; its tokens are the run's length
  bool compute_optimal = false;                  ///< train on as many tokens as are best for the model
  double budget_flops = 0;                       ///< of the run; 0: not given
  bool no_what_if = false;                       ///< leave out what other numbers and splits would change
  std::vector<std::string> settings;             ///< as PlanOptions::settings, overriding the jobs
  std::vector<std::string> calibrations;
  std::string output;
};

struct ExplainOptions {
  std::string plan;
  std::string versus;  ///< a second plan file
  std::vector<std::string> calibrations;
  std::string cluster;    ///< instead of a plan: a cluster by name or file
  bool clusters = false;  ///< or the catalogue
};

struct ValidateOptions {
  std::vector<std::string> files;  ///< published rows; none: those that come with the project
  std::vector<std::string> calibrations;
  std::string stack;  ///< for rows whose stack is not in the catalogue
  bool cross_validate = false;
  bool headlines = false;
  std::string html;        ///< page to write
  std::string intervals;   ///< file of intervals to write
  std::string fit_stacks;  ///< folder of stacks to rewrite with numbers fitted to the rows
};

struct CollectiveOptions {
  std::string cluster;  ///< catalogue name or YAML
  std::string operation = "all_reduce";
  std::string algorithm;           ///< use this algorithm, if it applies
  int nodes = 0;                   ///< 0: all
  int per_node = 0;                ///< devices per node; 0: all
  std::vector<std::string> sizes;  ///< "1MiB"; empty: 1 KiB to 16 GiB
  bool replay = false;             ///< also the algorithms themselves: in closed form, and replayed on the links
  int pieces = 0;                  ///< of `replay`: parts of a message; 0: by its size
  int channels = 1, tasks = 1;     ///< of `replay`
  std::string measured;            ///< a file of measurements to compare with, instead of a cluster
  std::vector<std::string> calibrations;
};

struct DoctorOptions {
  std::vector<std::string> require;  ///< capabilities that must be present
};

struct ProbeOptions {
  std::string output;  ///< cluster file to write
  bool measure = false;
  int ranks = 0;                ///< 0: one per core
  std::string calibration;      ///< calibration file to write
  std::string backend = "cpu";  ///< or "cuda": what to measure
  std::string cluster;          ///< of a measurement of GPUs: the machine, by name or file
  std::string events;           ///< output of a worker's probe, to use instead of measuring here
};

struct ImportOptions {
  std::vector<std::string> files;
  std::string format;         ///< of all files; empty: detected by content
  std::string device;         ///< catalogue name of the GPU
  std::string node;           ///< catalogue cluster to take the node from
  std::string hosts;          ///< of a fabric: names to take, with * as wildcard
  std::string nic_bandwidth;  ///< with its unit
  int nodes = 0;              ///< 0: as the dumps say
  std::string cluster;        ///< on which nccl-tests' logs were measured
  std::string output;         ///< cluster file; empty: stdout
};

struct ExportOptions {
  std::string run;        ///< run directory; a plan file is enough with `as`
  std::int64_t step = 0;  ///< of the checkpoint; 0: the newest
  std::string as;         ///< framework whose words to export the plan in; empty: export the weights
  std::string output;     ///< folder; for a plan a file, empty: stdout
};

struct SchemaOptions {
  std::string kind;  ///< of file: "job", "plan", "cluster", "model", "stack"
};

using Verb = std::variant<InitOptions, ModelOptions, PlanOptions, SimulateOptions, TrainOptions, CalibrateOptions,
                          ReportOptions, ExplainOptions, ValidateOptions, CollectiveOptions, DoctorOptions,
                          ProbeOptions, ImportOptions, ExportOptions, SchemaOptions>;

struct CommandLine {
  CommonOptions common;
  std::string name;  ///< of the verb, as typed
  Verb verb;
};

/// Either a command to run, or text (help, version, a usage error) and an exit code.
struct Parsed {
  std::optional<CommandLine> command;
  std::string out;          ///< help or version, for stdout
  base::Diagnostics error;  ///< the usage error
  std::string word;         ///< word in the place of the verb, known or not
  bool json = false;        ///< print a usage error in the envelope
  int exit_code = 0;
};

[[nodiscard]] Parsed parse_command_line(int argc, const char* const* argv);

}  // namespace orrery::apps
