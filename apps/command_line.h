#pragma once
/// The command line as plain records. What can be wrong with it is a value too: nothing here prints or exits.
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
  bool force = false;                 ///< write over what Orrery did not write
  bool dry_run = false;               ///< write nothing, launch nothing
};

struct InitOptions {
  std::string model = "tiny-gpt";
  std::string dlrm;                      ///< arguments of the public DLRM benchmark, in place of a model
  std::string cluster;                   ///< empty: the CPU ranks that this machine has cores for
  std::int64_t batch = 0, sequence = 0;  ///< 0: four a device; the model's longest
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
  std::vector<int> gpus;       ///< sizes of the cluster to plan for; empty: as the cluster says
  double memory_fraction = 1;  ///< of a device's memory that a plan may fill
  std::string output;          ///< plan file of the best plan, or of row `pick`
  bool all = false;            ///< every plan, not one of each family
  int pick = 1;
  std::vector<std::string> settings;  ///< "plan.tensor=4", over the job
  std::vector<std::string> calibrations;
};

/// What simulate is told of failures; times as text with their units.
struct FailureOptions {
  std::string mtbf;         ///< of the whole system; "inf": nothing fails
  double per_gpu_hour = 0;  ///< failures; 0: not given
  std::string fleet;        ///< a published one's rate
  std::string period;       ///< of faults, in place of failures at random
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
  std::string beside;    ///< plan of another job on the same cluster at the same time
  FailureOptions failures;
  std::vector<std::string> calibrations;
};

struct TrainOptions {
  std::string plan;
  std::string run;
  std::optional<std::int64_t> steps;
  bool resume = false;
  bool overwrite = false;             ///< an earlier run in the directory goes; with neither, one is refused
  std::int64_t checkpoint_every = 0;  ///< steps; 0: by time
  int keep = 2;                       ///< newest checkpoints that are kept
  std::string on_spike = "warn";
  std::optional<std::int64_t> hash_every;  ///< steps
  int threads = 1;                         ///< per rank
  int restarts = 0;                        ///< after failures
  bool oversubscribe = false;              ///< more than eight ranks on a core
  std::int64_t grace_s = 30;               ///< from a request to stop until the ranks are ended
  std::int64_t deadline_s = 60;            ///< of one wait of one rank for others
  bool verify_serial = false;
  bool repeat = true;   ///< GPUs: kernels that repeat bit by bit, also where others are faster
  bool sample = false;  ///< print text from the model when the run has ended; without a plan, from `run`
  exec::SampleOptions text;
};

struct CalibrateOptions {
  std::vector<std::string> runs;
  std::vector<std::string> held_out;
  std::string output;
  std::vector<std::string> rows;  ///< files of rows, instead of runs
  std::string like;               ///< stack of the same family
  std::string cluster;            ///< what the rows ran on; empty: found by their device
};

struct ReportOptions {
  std::vector<std::string> inputs;               ///< run directories and plan files
  std::vector<std::string> held_out;             ///< of the runs, those that the calibration has not seen
  std::string job;                               ///< for ranked plans
  std::vector<std::string> scaling;              ///< jobs on more and more devices; folders among them are runs
  std::vector<int> gpus;                         ///< their sizes; empty: each cluster and halves of it
  std::vector<std::string> models, clusters;     ///< in place of the jobs' own; empty: those
  std::vector<std::int64_t> sequences, batches;  ///< the same
  bool strong = false, weak = false;             ///< neither: strong
  bool hold_plan = false;                        ///< one plan at all sizes, but for `data`
  double deadline_days = 0;                      ///< of that run; 0: none
  std::optional<double> co2;                     ///< g/kWh; absent: the world's average
  std::vector<std::string> measured;             ///< files of rows to show beside the points
  std::string format = "html";                   ///< of the output: html, md, csv, json
  FailureOptions failures;                       ///< of a whole run; its tokens are the run's
  bool compute_optimal = false;                  ///< as many tokens as the model is best trained on
  double budget_flops = 0;                       ///< of the run; 0: not given
  bool no_what_if = false;                       ///< leave out what other numbers and splits would make of the plan
  std::vector<std::string> settings;             ///< as PlanOptions::settings, over the jobs
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
  std::vector<std::string> files;  ///< published rows; none: those that the project carries
  std::vector<std::string> calibrations;
  std::string stack;  ///< for rows whose stack is not in the catalogue
  bool cross_validate = false;
  bool headlines = false;
  std::string html;        ///< page to write
  std::string intervals;   ///< file of intervals to write
  std::string fit_stacks;  ///< folder of stacks to rewrite with numbers chosen over the rows
};

struct CollectiveOptions {
  std::string cluster;  ///< catalogue name or YAML
  std::string operation = "all_reduce";
  std::string algorithm;           ///< forced, where there is one of that name
  int nodes = 0;                   ///< 0: all
  int per_node = 0;                ///< devices of a node; 0: all
  std::vector<std::string> sizes;  ///< "1MiB"; empty: 1 KiB to 16 GiB
  bool replay = false;             ///< the algorithm itself too: in closed form, and replayed on the links
  int pieces = 0;                  ///< of `replay`: that a message is cut into; 0: by its size
  int channels = 1, tasks = 1;     ///< of `replay`
  std::string measured;            ///< a file of measurements to compare with, instead of a cluster
  std::vector<std::string> calibrations;
};

struct DoctorOptions {
  std::vector<std::string> require;  ///< capabilities that must be there
};

struct ProbeOptions {
  std::string output;  ///< cluster file to write
  bool measure = false;
  int ranks = 0;                ///< 0: one per core
  std::string calibration;      ///< calibration file to write
  std::string backend = "cpu";  ///< or "cuda": what is measured
  std::string cluster;          ///< the machine, for a measurement of GPUs: a name or a file
  std::string events;           ///< file of what a worker's probe printed, in place of measuring here
};

struct ImportOptions {
  std::vector<std::string> files;
  std::string format;         ///< of all files; empty: by content
  std::string device;         ///< catalogue name of the GPU
  std::string node;           ///< catalogue cluster whose node to take
  std::string hosts;          ///< of a fabric: names to take, * for anything
  std::string nic_bandwidth;  ///< with its unit
  int nodes = 0;              ///< 0: as the dumps say
  std::string cluster;        ///< that logs of nccl-tests were measured on
  std::string output;         ///< cluster file; empty: stdout
};

struct ExportOptions {
  std::string run;        ///< run directory; with `as` a plan file will do
  std::int64_t step = 0;  ///< of the checkpoint; 0: the newest
  std::string as;         ///< a framework's name: the plan in its words; empty: the weights
  std::string output;     ///< folder; of a plan a file, empty: stdout
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

/// Either a command to run, or what to say (help, version, a usage error) and the exit code to leave with.
struct Parsed {
  std::optional<CommandLine> command;
  std::string out;          ///< help or version, for stdout
  base::Diagnostics error;  ///< of a usage error
  std::string word;         ///< what stands where the verb should, known or not
  bool json = false;        ///< a usage error is to be told in the envelope
  int exit_code = 0;
};

[[nodiscard]] Parsed parse_command_line(int argc, const char* const* argv);

}  // namespace orrery::apps
