// Every verb's flags. CLI11 is slow to compile, so only this file and the one that parses include it.
#include "apps/command_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "base/result.h"
#include "base/units.h"

namespace orrery::apps {
namespace {

/// Options that every verb takes, before or after its name.
void add_common(CLI::App& app, CommonOptions& common) {
  static const std::map<std::string, Colour> colours{
      {"auto", Colour::automatic}, {"always", Colour::always}, {"never", Colour::never}};
  app.add_flag("--json", common.json, "One JSON object on stdout and nothing else");
  app.add_flag("--quiet", common.quiet, "No progress on stderr");
  app.add_option("--color", common.colour, "auto, always or never")
      ->transform(CLI::CheckedTransformer(colours))
      ->option_text("WHEN");
  app.add_option("--catalog", common.catalogs, "Folder with further models, clusters and stacks; may be repeated")
      ->allow_extra_args(false)
      ->option_text("DIR");
  app.add_flag("--force", common.force, "Make missing folders, and replace files that Orrery did not write");
  app.add_flag("--dry-run", common.dry_run, "Only check, and say what would be done: write and launch nothing");
}

void add_settings(CLI::App& verb, std::vector<std::string>& settings) {
  verb.add_option("--set", settings, "Set a value of the job by its key: plan.tensor=4; may be repeated")
      ->allow_extra_args(false)
      ->option_text("KEY=VALUE");
}

void add_calibrations(CLI::App& verb, std::vector<std::string>& files) {
  verb.add_option("--calibration", files, "Fitted coefficients to use; may be repeated, the last one wins")
      ->allow_extra_args(false)
      ->option_text("FILE");
}

/// Turns "300e9", "300B" or "1.5T" into a number's digits; returns what is wrong if it is not a count.
std::string as_count(std::string& text) {
  std::string digits = text;
  double factor = 1;
  if (const auto unit = std::string("kKmMbBgGtT").find(text.empty() ? ' ' : text.back()); unit != std::string::npos) {
    constexpr double kFactors[] = {1e3, 1e6, 1e9, 1e9, 1e12};
    factor = kFactors[unit / 2];
    digits.pop_back();
  }
  while (!digits.empty() && digits.back() == ' ') digits.pop_back();
  double number = 0;
  constexpr double kMost = 1e18;
  if (!base::parse_number(digits, number) || number * factor < 1 || number * factor > kMost)
    return fmt::format("{} is not a count; write 300B, 1.5T or 300e9", base::quoted(text));
  text = fmt::format("{:.17g}", number * factor);
  return {};
}

/// `tokens`: the name of the flag that says how long the run is.
void add_failures(CLI::App& simulate, FailureOptions& options, const char* tokens) {
  CLI::Option* mtbf = simulate.add_option("--mtbf", options.mtbf, "Mean time between failures of all devices together")
                          ->option_text("'3.1 h'|inf");
  CLI::Option* rate = simulate.add_option("--failures-per-gpu-hour", options.per_gpu_hour, "Of one device")
                          ->check(CLI::Range(1e-12, 1e6))
                          ->option_text("RATE");
  CLI::Option* fleet = simulate
                           .add_option("--fleet", options.fleet,
                                       "Failure rate of a published fleet: good (default for GPUs), young, pessimistic")
                           ->check(CLI::IsMember({"good", "young", "pessimistic"}))
                           ->option_text("NAME");
  CLI::Option* period =
      simulate.add_option("--fault-period", options.period, "Instead, a fault at this fixed interval")
          ->option_text("'30 s'");
  for (CLI::Option* one : {mtbf, rate, fleet, period})
    for (CLI::Option* other : {mtbf, rate, fleet, period})
      if (one != other) one->excludes(other);
  simulate.add_option("--restart-time", options.restart_time, "From a failure until steps continue")
      ->option_text("'11 min'");
  CLI::Option* every =
      simulate
          .add_option("--checkpoint-every", options.checkpoint_every, "Steps between checkpoints; default: the best")
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
          ->option_text("N");
  period->needs(every);
  simulate.add_option("--step-time", options.step_time, "Of a step, in place of the predicted one")
      ->option_text("'150 ms'");
  simulate.add_option("--checkpoint-pause", options.checkpoint_pause, "In place of the predicted one")
      ->option_text("'80 ms'");
  simulate.add_option("--checkpoint-write", options.checkpoint_write, "In place of the predicted one")
      ->option_text("'2 s'");
  simulate.add_option(tokens, options.tokens, "Tokens of the run; default: those of the job's steps")
      ->transform(CLI::Validator(as_count, ""))
      ->option_text("300B|300e9");
}

void add_beginning(CLI::App& app, InitOptions& options) {
  CLI::App* verb = app.add_subcommand("init", "Write a commented job to begin with");
  verb->add_option("JOB", options.output, "File to write; default job.yaml, - for stdout");
  verb->add_option("--model", options.model,
                   "Catalogue name, model YAML or Hugging Face config.json; default: tiny-gpt")
      ->option_text("MODEL");
  verb->add_option("--dlrm", options.dlrm, "Instead of a model, arguments of the public DLRM benchmark")
      ->option_text("'ARGS'");
  verb->add_option("--cluster", options.cluster, "Catalogue name or cluster YAML; default: this machine's CPU ranks")
      ->option_text("CLUSTER");
  verb->add_option("--batch", options.batch, "Sequences per step; default: four per device")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->option_text("N");
  verb->add_option("--sequence", options.sequence, "Tokens per sequence; default: the model's longest")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->option_text("N");
  verb->add_flag("--overwrite", options.overwrite, "Replace an existing file");
}

void add_predicting(CLI::App& app, Verbs& verbs) {
  CLI::App* plan = app.add_subcommand("plan", "Search for the best plans of a job");
  plan->add_option("JOB", verbs.plan.job, "Job file")->required();
  plan->add_option("--top", verbs.plan.top, "Plans to show")->check(CLI::Range(1, 1000))->option_text("N");
  plan->add_option("--memory-fraction", verbs.plan.memory_fraction,
                   "Share of a device's memory that a plan may be predicted to fill; default 1")
      ->check(CLI::Range(0.01, 1.0))
      ->option_text("F");
  plan->add_option("--gpus", verbs.plan.gpus, "Cluster sizes to plan for; shows the best plan of each: 8,16,32")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->option_text("N,N..");
  plan->add_flag("--all", verbs.plan.all, "Also show plans that differ little from better ones");
  plan->add_option("-o,--output", verbs.plan.output, "Write the best plan")->option_text("PLAN.yaml");
  plan->add_option("--pick", verbs.plan.pick, "Write this row of the table instead of the first one")
      ->check(CLI::Range(1, 1000))
      ->needs("--output")
      ->option_text("N");
  add_settings(*plan, verbs.plan.settings);
  add_calibrations(*plan, verbs.plan.calibrations);

  CLI::App* simulate = app.add_subcommand("simulate", "Predict one training step of a plan by replaying its schedule");
  simulate->add_option("PLAN", verbs.simulate.plan, "Plan file")->required();
  simulate->add_option("--trace", verbs.simulate.trace, "Write a Chrome trace, which Perfetto opens")
      ->option_text("FILE");
  simulate->add_option("--timeline", verbs.simulate.timeline, "Write the predicted timeline.json")->option_text("FILE");
  simulate
      ->add_option("--beside", verbs.simulate.beside,
                   "Another job at the same time on the same machines and switches; the nodes of both alternate")
      ->option_text("PLAN");
  add_failures(*simulate, verbs.simulate.failures, "--run-tokens");
  add_calibrations(*simulate, verbs.simulate.calibrations);

  CLI::App* explain = app.add_subcommand(
      "explain", "Show where a plan's time and memory go, how two plans differ, or what a cluster consists of");
  CLI::App* what = explain->add_option_group("Plan file to explain");
  what->require_option(1);
  what->add_option("PLAN", verbs.explain.plan, "Plan file");
  what->add_option("--cluster", verbs.explain.cluster, "A cluster: catalogue name or file")->option_text("CLUSTER");
  what->add_flag("--clusters", verbs.explain.clusters, "All clusters in the catalogue");
  explain->add_option("--vs", verbs.explain.versus, "Plan file to compare with")->option_text("PLAN");
  add_calibrations(*explain, verbs.explain.calibrations);
}

void add_running(CLI::App& app, Verbs& verbs) {
  CLI::App* train = app.add_subcommand("train", "Run a plan on this machine's ranks");
  train->add_option("PLAN", verbs.train.plan, "Plan file; may be left out with --sample, which trains nothing");
  train->add_option("--run", verbs.train.run, "Run directory to write")->required()->option_text("DIR");
  train->add_option("--steps", verbs.train.steps, "Training steps; default: as the job says")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->option_text("N");
  train->add_flag("--resume", verbs.train.resume, "Continue from the run directory's newest whole checkpoint");
  train->add_flag("--overwrite", verbs.train.overwrite, "Remove an earlier run from the directory and start over")
      ->excludes("--resume");
  train
      ->add_option("--checkpoint-every", verbs.train.checkpoint_every,
                   "Steps between checkpoints; default: one a minute")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->option_text("N");
  train
      ->add_flag("--verify-serial", verbs.train.verify_serial,
                 "Also run the job on one rank, and compare losses and gradients; 20 steps unless told otherwise")
      ->excludes("--resume");
  train->add_option("--keep", verbs.train.keep, "Number of newest checkpoints to keep; default 2")
      ->check(CLI::Range(1, 1 << 20))
      ->option_text("N");
  train->add_option("--restarts", verbs.train.restarts, "Restarts after failures, from the newest checkpoint")
      ->check(CLI::Range(0, 1 << 20))
      ->excludes("--verify-serial")
      ->option_text("N");
  train
      ->add_option("--grace", verbs.train.grace_s,
                   "Seconds for saving after SIGTERM, SIGINT, SIGHUP or SIGUSR1 asks for a stop; default 30")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->option_text("S");
  train
      ->add_option("--deadline", verbs.train.deadline_s,
                   "Seconds that a rank may wait for another; after them the run ends and names it; default 60")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->option_text("S");
  train
      ->add_option("--on-spike", verbs.train.on_spike,
                   "What to do about a spike of the loss or the gradient norm; default warn")
      ->check(CLI::IsMember({"warn", "stop"}))
      ->option_text("warn|stop");
  train
      ->add_option("--hash-every", verbs.train.hash_every,
                   "Steps between comparisons of replicas; 0: only before checkpoints; default: as often as half a "
                   "percent of the time allows")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
      ->option_text("N");
  train->add_option("--threads", verbs.train.threads, "Threads per rank")->check(CLI::Range(1, 1024))->option_text("K");
  train->add_flag("--oversubscribe", verbs.train.oversubscribe, "Allow more than eight ranks per core, for tests");
  train->add_flag_callback(
      "--no-repeat", [&verbs] { verbs.train.repeat = false; },
      "GPUs: a faster backward pass of attention, whose results do not repeat bit by bit");
  exec::SampleOptions& text = verbs.train.text;
  train->add_flag("--sample", verbs.train.sample, "Print text drawn from the model in the run's newest checkpoint");
  train->add_option("--prompt", text.prompt, "Text to continue")->option_text("TEXT");
  train->add_option("--tokens", text.tokens, "Tokens to draw; default 128")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30))
      ->option_text("N");
  train->add_option("--temperature", text.temperature, "0: always the most likely token; default 1")
      ->check(CLI::Range(0.0, 1e6))
      ->option_text("T");
  train->add_option("--top-k", text.top_k, "Draw from the K most likely tokens; default: from all")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->option_text("K");
  train->add_option("--sample-seed", text.seed, "Seed of the draws; default 1")->option_text("S");
  train->add_option("--tokenizer", text.tokenizer, "Vocabulary of the text; default: the job's, else bytes")
      ->option_text("PATH");
}

void add_exporting(CLI::App& app, ExportOptions& options) {
  CLI::App* verb = app.add_subcommand("export", "A run's weights for Hugging Face, or a plan for another framework");
  verb->add_option("RUN", options.run, "Run directory; with --as also a plan file")->required();
  verb->add_option("--as", options.as, "Instead of the weights, the plan as Megatron-LM's flags or DeepSpeed's JSON")
      ->check(CLI::IsMember({"megatron", "deepspeed"}))
      ->option_text("megatron|deepspeed");
  verb->add_option("--step", options.step, "Step of the checkpoint; default: the newest")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->option_text("N");
  verb->add_option("-o,--output", options.output, "Folder to write; with --as a file; default: stdout")
      ->option_text("PATH");
}

/// Flags of `report --scaling`; all of them require it.
void add_scaling(CLI::App& report, ReportOptions& o) {
  CLI::Option* scaling =
      report.add_option("--scaling", o.scaling, "Job files: shows their best plans on growing numbers of devices")
          ->option_text("JOB…");
  const auto list = [&](const char* flag, auto& into, const char* says, const char* value) {
    return report.add_option(flag, into, says)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->needs(scaling)
        ->option_text(value);
  };
  list("--gpus", o.gpus, "Sizes: 64,128,256; default: the cluster's, halved again and again", "N,N..")
      ->check(CLI::Range(1, 1 << 20));
  list("--models", o.models, "Models instead of the jobs' own", "MODEL,..");
  list("--clusters", o.clusters, "Clusters instead of the jobs' own, in the same sizes", "CLUSTER,..");
  list("--sequence", o.sequences, "Sequence lengths instead of the jobs' own", "N,N..")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32));
  list("--batch", o.batches, "Batches instead of the jobs' own; with --weak that of the smallest size", "N,N..")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32));
  report.add_flag("--strong", o.strong, "The same batch at all sizes (default)")->needs(scaling);
  report.add_flag("--weak", o.weak, "A batch that grows with the number of devices, from the smallest size on")
      ->needs(scaling);
  report
      .add_flag_callback(
          "--both", [&o] { o.strong = o.weak = true; }, "Strong and weak scaling")
      ->needs(scaling);
  report
      .add_flag("--hold-plan", o.hold_plan, "One plan at all sizes, where only `data` grows, and with --weak the batch")
      ->needs(scaling);
  CLI::Option* tokens = report.get_option("--tokens");
  report
      .add_option("--deadline", o.deadline_days,
                  "Deadline in days: shows the cheapest, smallest and fastest way to meet it")
      ->needs(tokens)
      ->check(CLI::Range(1e-6, 1e6))
      ->option_text("DAYS");
  report.add_option("--co2", o.co2, "Carbon intensity of the electricity; default: the world's average")
      ->needs(tokens)
      ->check(CLI::Range(0.0, 1e5))
      ->option_text("G_PER_KWH");
  report
      .add_option("--measured", o.measured,
                  "Rows as validate reads them, shown beside points of the same job; may be repeated")
      ->allow_extra_args(false)
      ->needs(scaling)
      ->option_text("FILE");
  report.add_option("--format", o.format, "html (default), md, csv or json; only with --scaling")
      ->check(CLI::IsMember({"html", "md", "csv", "json"}))
      ->needs(scaling)
      ->option_text("html|md|csv|json");
}

void add_learning(CLI::App& app, Verbs& verbs) {
  CLI::App* calibrate = app.add_subcommand("calibrate", "Fit coefficients to measured runs");
  CLI::Option* runs = calibrate->add_option("RUN", verbs.calibrate.runs, "Run directories");
  calibrate->add_option("-o,--output", verbs.calibrate.output, "Calibration file to write; with --rows a stack")
      ->required()
      ->option_text("FILE");
  CLI::Option* rows = calibrate
                          ->add_option("--rows", verbs.calibrate.rows,
                                       "Fit a stack to runs of any framework, given as YAML rows or CSV")
                          ->excludes(runs)
                          ->option_text("FILE…");
  calibrate->add_option("--like", verbs.calibrate.like, "Stack of the same family to start from")
      ->needs(rows)
      ->option_text("STACK");
  calibrate
      ->add_option("--cluster", verbs.calibrate.cluster, "Cluster that the rows ran on; default: found by their device")
      ->needs(rows)
      ->option_text("CLUSTER");
  calibrate
      ->add_option("--hold-out", verbs.calibrate.held_out, "Run that judges the fit and is not fitted; may be repeated")
      ->excludes(rows)
      ->allow_extra_args(false)
      ->option_text("RUN");

  CLI::App* report = app.add_subcommand("report", "One HTML file: predicted and measured, side by side");
  report->add_option("INPUT", verbs.report.inputs,
                     "Run directories and plan files; several are compared; none needed with --scaling or --job");
  report
      ->add_option("--hold-out", verbs.report.held_out,
                   "Another run, which the calibration has not seen; may be repeated")
      ->allow_extra_args(false)
      ->option_text("RUN");
  report->add_option("--job", verbs.report.job, "Job file, for the ranked plans")->option_text("JOB");
  add_failures(*report, verbs.report.failures, "--tokens,--run-tokens");
  report->add_flag("--compute-optimal", verbs.report.compute_optimal,
                   "A run over the compute-optimal number of tokens for the model (Hoffmann et al. 2022)");
  report->add_option("--budget", verbs.report.budget_flops, "A run of this many FLOPs")
      ->check(CLI::Range(1.0, 1e36))
      ->option_text("FLOPS");
  report->add_flag("--no-what-if", verbs.report.no_what_if,
                   "Leave out how the plan would do with other numbers and splits");
  add_scaling(*report, verbs.report);
  report->add_option("-o,--output", verbs.report.output, "File to write; - writes md, csv or json to standard output")
      ->required()
      ->option_text("FILE");
  add_settings(*report, verbs.report.settings);
  add_calibrations(*report, verbs.report.calibrations);
}

void add_looking(CLI::App& app, Verbs& verbs) {
  CLI::App* validate = app.add_subcommand("validate", "Compare predictions with published measurements");
  validate->add_option("FILE", verbs.validate.files, "Rows; default: those that come with Orrery");
  validate->add_option("--stack", verbs.validate.stack, "For rows whose stack is not in the catalogue")
      ->option_text("STACK.yaml");
  validate->add_flag("--cross-validate", verbs.validate.cross_validate,
                     "Fit the stacks' numbers with one source left out at a time, and judge them by that source");
  validate->add_flag("--headlines", verbs.validate.headlines,
                     "Simulate what the sources are known for, and compare with what they published");
  validate->add_option("--html", verbs.validate.html, "Write the report as a page")->option_text("FILE.html");
  validate
      ->add_option("--intervals", verbs.validate.intervals,
                   "Write the intervals of predictions, from rows left out (cost/intervals.yaml)")
      ->option_text("FILE");
  validate
      ->add_option("--fit-stacks", verbs.validate.fit_stacks,
                   "Fit the stacks' numbers to these rows and write them into the stacks in this folder")
      ->option_text("DIR");
  add_calibrations(*validate, verbs.validate.calibrations);

  CLI::App* model = app.add_subcommand("model", "Show a model's parameters and FLOPs");
  model->add_option("MODEL", verbs.model.model, "Catalogue name, model YAML, or Hugging Face config.json or its folder")
      ->required();
  model->add_option("--sequence", verbs.model.sequence, "Tokens per sequence; default: the model's longest")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32))
      ->option_text("N");

  CLI::App* collective = app.add_subcommand(
      "collective", "Show the time and bandwidth of a collective on a cluster, or compare with measurements");
  CollectiveOptions& o = verbs.collective;
  collective->add_option("CLUSTER", o.cluster, "Catalogue name or cluster YAML");
  collective
      ->add_option("--op", o.operation, "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, send")
      ->check(CLI::IsMember(std::vector<std::string>{"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                     "reduce", "all_to_all", "send"}))
      ->option_text("OP");
  collective->add_option("--nodes", o.nodes, "Nodes that take part; default: all of the cluster")
      ->check(CLI::Range(1, 1 << 18))
      ->option_text("N");
  collective->add_option("--per-node", o.per_node, "Devices per node; default: all")
      ->check(CLI::Range(1, 4096))
      ->option_text("G");
  collective->add_option("--sizes", o.sizes, "Message sizes: 64KiB,1MiB,100MB; default: 1 KiB to 16 GiB")
      ->delimiter(',')
      ->option_text("S,S..");
  collective->add_option("--algorithm", o.algorithm, "As in NCCL_ALGO: ring, tree, nvls, nvls-tree, pairwise ..")
      ->option_text("NAME");
  CLI::Option* replay = collective->add_flag(
      "--replay", o.replay,
      "Also show the algorithm itself, or all that can do it: in closed form, and replayed on the links");
  collective
      ->add_option("--pieces", o.pieces, "Pieces that follow one another along trees and chains and through switches")
      ->check(CLI::Range(1, 1024))
      ->needs(replay)
      ->option_text("K");
  collective
      ->add_option("--channels", o.channels,
                   "Divide the message into parts; each goes over the nodes' devices in another order")
      ->check(CLI::Range(1, 64))
      ->needs(replay)
      ->option_text("C");
  collective->add_option("--tasks", o.tasks, "This many collectives at once, with the ranks dealt out to them in turn")
      ->check(CLI::Range(1, 4096))
      ->needs(replay)
      ->option_text("T");
  collective->add_option("--measured", o.measured, "Instead of CLUSTER: predict the rows of this file")
      ->excludes(replay)
      ->option_text("FILE");
  add_calibrations(*collective, o.calibrations);

  CLI::App* doctor = app.add_subcommand("doctor", "Show which of the things that Orrery can use this machine has");
  doctor
      ->add_option("--require", verbs.doctor.require,
                   "Exit 6 unless this is available: mpi, cuda, chromium …; may be repeated")
      ->allow_extra_args(false)
      ->option_text("NAME");
}

void add_probe(CLI::App& app, Verbs& verbs) {
  CLI::App* probe = app.add_subcommand("probe", "Describe this machine, and measure it");
  probe->add_option("-o,--output", verbs.probe.output, "File to write, with a cluster of this machine's CPU ranks")
      ->option_text("CLUSTER.yaml");
  probe->add_flag("--measure", verbs.probe.measure, "Time operators, memory and messages; takes under a minute");
  probe->add_option("--ranks", verbs.probe.ranks, "Ranks, one core each; default: every core")
      ->check(CLI::Range(1, 1 << 16))
      ->option_text("N");
  probe->add_option("--calibration", verbs.probe.calibration, "Calibration file to write; needs --measure or --events")
      ->option_text("FILE");
  probe->add_option("--backend", verbs.probe.backend, "What to measure: cpu (default) or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->option_text("NAME");
  probe
      ->add_option("--cluster", verbs.probe.cluster,
                   "The machine that is measured, unless it is this machine's CPU ranks")
      ->option_text("NAME|FILE");
  probe->add_option("--events", verbs.probe.events, "Fit what a worker's --probe has printed on another machine")
      ->excludes(probe->get_option("--measure"))
      ->option_text("FILE");
}

void add_importing(CLI::App& app, ImportOptions& options) {
  CLI::App* verb = app.add_subcommand(
      "import", "Make a cluster file from dumps of real machines, or a calibration file from nccl-tests");
  verb->add_option("FILE", options.files,
                   "NCCL topology XML, output of `nvidia-smi topo -m`, hwloc XML, output of ibnetdiscover; or logs of "
                   "nccl-tests, for a calibration file")
      ->required();
  verb->add_option("--format", options.format, "Format of all files; default: recognised by content")
      ->option_text("nccl|topo|hwloc|ibnetdiscover");
  verb->add_option("--device", options.device, "Catalogue name of the GPUs, if the dump does not say")
      ->option_text("NAME");
  verb->add_option("--node", options.node,
                   "Catalogue cluster whose nodes the fabric connects, if no dump describes a node")
      ->option_text("NAME");
  verb->add_option("--nodes", options.nodes, "Number of nodes like the one described")
      ->check(CLI::Range(1, 1 << 18))
      ->option_text("N");
  verb->add_option("--hosts", options.hosts, "Hosts of the fabric to use; * matches anything")->option_text("PATTERN");
  verb->add_option("--nic-bandwidth", options.nic_bandwidth, "Bandwidth of one NIC, if the dump does not say")
      ->option_text("'200 Gb/s'");
  verb->add_option("--cluster", options.cluster, "Cluster on which the logs of nccl-tests were measured")
      ->option_text("NAME|FILE");
  verb->add_option("-o,--output", options.output, "Cluster or calibration file to write; default: stdout")
      ->option_text("FILE.yaml");
}

void add_schema(CLI::App& app, SchemaOptions& options) {
  app.add_subcommand("schema", "Show the keys of a kind of file as JSON Schema, for editors")
      ->add_option("KIND", options.kind, "job, plan, cluster, model or stack")
      ->required()
      ->check(CLI::IsMember({"job", "plan", "cluster", "model", "stack"}));
}

void add_helping(CLI::App& app, Asked& asked) {
  CLI::App* help = app.add_subcommand("help", "Show a verb's flags and examples, or everything as a man page");
  help->add_option("VERB", asked.verb, "Default: all verbs");
  help->add_flag("--man", asked.man, "A page for man(1)");
  CLI::App* completion = app.add_subcommand("completion", "Write a script that makes a shell complete verbs and flags");
  completion->add_option("SHELL", asked.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

}  // namespace

void add_flags(CLI::App& app, CommonOptions& common, Verbs& verbs, Asked& asked) {
  add_common(app, common);
  add_beginning(app, verbs.init);
  add_predicting(app, verbs);
  add_running(app, verbs);
  add_learning(app, verbs);
  add_looking(app, verbs);
  add_probe(app, verbs);
  add_importing(app, verbs.import_);
  add_exporting(app, verbs.export_);
  add_schema(app, verbs.schema);
  add_helping(app, asked);
}

}  // namespace orrery::apps
