// orrery-worker: one rank of a training run, or of a probe. Exit codes are the command's: 0 the run's record was
// written (completed or stopped on request), 1 failure, 2 usage, 3 bad input, 5 a check failed, 6 something missing.
// All ranks return the same code.
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/worker/options.h"
#include "apps/worker/probe.h"
#include "base/units.h"
#include "clusters/read.h"
#include "exec/cpu/blas_core.h"
#include "exec/engine/cuda_loader.h"
#include "exec/engine/recorder.h"
#include "exec/engine/thread_transport.h"
#include "exec/events.h"
#include "exec/failure.h"
#include "exec/files/files.h"
#include "exec/launch/lifeline.h"
#include "exec/launch/process_tree.h"
#include "exec/mpi/mpi_transport.h"
#include "exec/run/leave.h"
#include "exec/run/run.h"
#include "plan/lower/experts.h"
#include "plan/lower/lower.h"
#include "plan/lower/serial.h"
#include "plan/schedule/check.h"
#include "plan/schedule/rehearse.h"
#include "plan/spec/plan_file.h"
#include "plan/spec/recommender_rules.h"

namespace orrery::worker {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr int kBadInput = 3;
constexpr int kCheckFailed = 5;
constexpr int kMissing = 6;
constexpr std::size_t kMostPlan = 64U << 20;

std::atomic<bool> stop_requested{false};  // signal handlers can write nowhere else

void request_stop(int) {
  stop_requested.store(true);
}

/// Stop signals are delivered to a thread of their own; this thread, and all that it starts later, block them.
/// A handler runs on the stack of what it interrupts, and oneDNN's matrix products point the stack pointer into heap
/// memory: the handler's frame would overwrite what lies below it.
void take_stop_requests() {
  sigset_t requests;
  sigemptyset(&requests);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    std::signal(signal, request_stop);
    sigaddset(&requests, signal);
  }
  std::thread([] {
    for (;;) pause();
  }).detach();
  pthread_sigmask(SIG_BLOCK, &requests, nullptr);
}

/// This process's line to its supervisor, and its recorder. Global, because exit handlers can read nothing else.
struct Ties {
  exec::Recorder recorder;
  std::unique_ptr<exec::Lifeline> line;  ///< none when started by hand
  std::atomic<bool> failed{false};       ///< a rank has reported why
};
Ties* ties = nullptr;

/// Tells the supervisor of any call of exit.
void tell_of_exit(int code, void*) {
  if (ties != nullptr && ties->line) ties->line->exits(code);
}

/// The rank's own end, after success or after it has reported a failure.
int done(int code) {
  if (ties != nullptr && ties->line) ties->line->done(code);
  return code;
}

void say(int rank, const std::string& text) {
  if (rank == 0) fmt::print(stderr, "orrery-worker: {}\n", text);
}

/// Prints to the supervisor's line; if started by hand, to standard output. Progress may be lost if nobody
/// reads.
void print_event(const std::string& line) {
  if (ties != nullptr && ties->line) return ties->line->say(line, line.rfind("{\"event\":\"step", 0) == 0);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

/// Reports to the command as events, to people as text.
void say(int rank, const base::Diagnostics& found) {
  if (rank != 0) return;
  for (const base::Diagnostic& one : found) print_event(exec::diagnostic_event(one).dump());
  say(rank, base::render(found, false));
}

void say_why(int rank, const std::exception& error) {
  if (const auto* input = dynamic_cast<const exec::InputFailure*>(&error))
    say(0, base::Diagnostics{input->diagnostic()});
  else
    say(0, fmt::format("rank {}: {}", rank, error.what()));
}

int code_of(exec::FailureKind kind) {
  switch (kind) {
    case exec::FailureKind::run: return kFailure;
    case exec::FailureKind::environment: return kMissing;
    case exec::FailureKind::check: return kCheckFailed;
    case exec::FailureKind::input: return kBadInput;
  }
  return kFailure;
}

/// A guard's finding (R0020 …) is a failure of the run, anything else is bad input.
int code_of(const base::Diagnostics& found) {
  const bool run = std::any_of(found.begin(), found.end(), [](const auto& one) { return one.code.rfind('R', 0) == 0; });
  return run ? kFailure : kBadInput;
}

int code_of(const std::exception& error) {
  const auto* failure = dynamic_cast<const exec::Failure*>(&error);
  return failure ? code_of(failure->kind()) : kFailure;
}

/// Reports why this process ends. Only the first of its ranks and threads does, since the others' reasons follow.
void last_words(int rank, const std::exception& why) {
  if (ties->failed.exchange(true)) return;
  say_why(rank, why);
  if (!ties->line) return;
  const bool late = dynamic_cast<const exec::DeadlinePassed*>(&why) != nullptr;
  ties->line->fails(late ? std::string(why.what()) : fmt::format("rank {}: {}", rank, why.what()), late);
  done(code_of(why));
}

/// For a rank on a device: reports why, then makes sure that the process ends even if the device's shutdown hangs.
void last_words_on_device(int rank, const std::exception& why, std::chrono::seconds deadline) {
  last_words(rank, why);
  exec::leave_within(std::min(exec::kLongestFarewell, deadline), code_of(why));
}

/// Ends every rank. mpiexec drops unread output when a rank aborts, so it gets a moment first.
[[noreturn]] void fail_all(int rank, const std::exception& why) {
  last_words(rank, why);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  exec::MpiSession::abort(code_of(why));
}

/// What all ranks share.
struct Loaded {
  std::string text;
  plan::PlanFile file;
  plan::Plan plan;
  plan::Schedule schedule;
  bool lowered = true;  ///< the schedule is the plan's, as readers of the run directory will lower it again
};

/// The plan's serial program instead of the plan (plan/lower/serial.h); its file is that of a plan of one rank.
base::Result<Loaded> serial_of(plan::PlanFile file, const plan::Plan& split, const plan::LowerOptions& lowering) {
  auto device = clusters::resized(file.cluster, 1);
  if (!device) return base::fail(device.error());
  auto program = plan::serial_program(split, std::move(*device), lowering);
  if (!program) return base::fail(program.error());
  file.cluster = program->plan.cluster();
  file.spec = program->plan.spec();
  file.job.bounds = {};
  const std::string text = plan::write_plan_file(file);
  return Loaded{text, std::move(file), std::move(program->plan), std::move(program->schedule), !program->own};
}

base::Result<Loaded> load(const Options& options) {
  const std::string text = exec::read_file(options.plan, kMostPlan);
  auto file = plan::parse_plan_file(text, options.plan);
  if (!file) return base::fail(file.error());
  auto made = plan::make_plan(std::make_shared<const models::Model>(file->model),
                              std::make_shared<const clusters::Cluster>(file->cluster), file->spec);
  if (!made) return base::fail(made.error());
  if (base::Diagnostics refused = plan::refused_execution(made->model(), made->cluster(), made->spec());
      !refused.empty())
    return base::fail(std::move(refused));
  const plan::LowerOptions lowering{.recompute_whole_layer = options.recompute_whole_layer,
                                    .zero_gradients = options.zero_gradients};
  if (options.serial) return serial_of(std::move(*file), *made, lowering);
  plan::Schedule schedule = plan::lower(*made, lowering);
  return Loaded{text, std::move(*file), std::move(*made), std::move(schedule)};
}

/// A rank's place on its machine.
struct Seat {
  int on_node = 0, ranks_on_node = 1;
};

int threads_for(const Options& options, int ranks_on_node) {
  return options.threads > 0 ? options.threads : std::max(1, exec::available_cores() / ranks_on_node);
}

exec::Waiter waiter_for(const Options& options, int ranks_on_node, exec::Recorder* recorder = nullptr) {
  return exec::Waiter(
      exec::wait_policy(ranks_on_node * threads_for(options, ranks_on_node), exec::available_cores(), options.deadline),
      recorder);
}

/// What a rank computes and communicates through.
struct Devices {
  exec::CudaLoad cuda;
  std::unique_ptr<exec::Backend> backend;
  std::unique_ptr<exec::Transport> transport;  ///< null: the host's
};

int train_on(Devices& devices, const Options& options, const Loaded& loaded, exec::Transport& host,
             const exec::Waiter& waiter, const Seat& seat) {
  auto& [cuda, backend, device_transport] = devices;
  exec::RunOptions run;
  run.threads = threads_for(options, seat.ranks_on_node);
  run.oversubscribed = run.threads * seat.ranks_on_node > exec::available_cores();
  if (options.backend == "cuda") {
    cuda = exec::load_cuda({std::filesystem::read_symlink("/proc/self/exe").parent_path().string()});
    if (!cuda.module) throw exec::Failure(cuda.reason, exec::FailureKind::environment);
    backend = cuda.module->make_backend(cuda.module->device_for(seat.on_node), exec::make_cpu_backend(run.threads),
                                        {.repeat = options.repeat});
    device_transport = cuda.module->make_transport(
        *backend, host,
        {.deadline_s = std::chrono::duration<double>(options.deadline).count(),
         .on_failure = [rank = host.rank(), deadline = options.deadline](const std::string& why) {
           last_words_on_device(rank, exec::Failure(why), deadline);
         }});
    run.oversubscribed = seat.ranks_on_node > cuda.module->devices();
  } else {
    if (!options.repeat) say(host.rank(), "--no-repeat changes nothing: the CPU backend always repeats bit by bit");
    // A CPU rank's device is an arena of the memory that the cluster gives it.
    backend =
        exec::make_cpu_backend(run.threads, static_cast<std::int64_t>(loaded.plan.cluster().device().memory.value));
  }
  run.directory = options.run;
  run.plan_text = loaded.text;
  run.run_id = options.run_id;
  run.steps = options.steps > 0 ? options.steps : loaded.file.job.training.steps;
  run.resume = options.resume;
  run.overwrite = options.overwrite;
  run.checkpoint = options.checkpoint;
  run.checkpoint_every = options.checkpoint_every;
  run.keep = static_cast<int>(std::min<std::int64_t>(options.keep, 1 << 20));
  run.checkpoint_interval = options.checkpoint_interval;
  run.dump_gradients = options.dump_gradients;
  run.stop = &stop_requested;
  run.progress_thread = options.progress_thread && options.backend == "cpu";
  run.graphs = options.graphs;
  run.queue_messages = options.queue_messages;
  run.guards = {options.stop_on_spike, options.hash_every};
  if (const char* const faults = std::getenv("ORRERY_FAULT")) run.faults = faults;  // for tests (exec/run/faults.h)
  if (options.check_memory) run.check = exec::Arena::Check::overlaps_and_poison;
  run.timeline = loaded.lowered;
  run.report = print_event;
  exec::Transport& transport = device_transport ? *device_transport : host;
  const auto done = exec::run(loaded.plan, loaded.file.job.training, loaded.schedule, *backend, transport, waiter, run);
  if (done) return 0;
  say(host.rank(), done.error());
  return code_of(done.error());
}

/// Runs one rank from its backend to its end; returns the exit code. A failure on a device is reported before the
/// device and its communicators are released, since that may block.
int train(const Options& options, const Loaded& loaded, exec::Transport& host, const exec::Waiter& waiter,
          const Seat& seat) {
  Devices devices;
  try {
    return train_on(devices, options, loaded, host, waiter, seat);
  } catch (const std::exception& error) {
    if (devices.backend && options.backend == "cuda") last_words_on_device(host.rank(), error, options.deadline);
    throw;
  }
}

/// One rank without MPI: a forward pass needs no other rank.
int sample(const Options& options) {
  exec::ThreadWorld world(1);
  const auto transport = world.transport(0);
  const auto backend = exec::make_cpu_backend(threads_for(options, 1));
  base::Diagnostics warnings;
  const auto text =
      exec::sample_run(options.run, options.text, *backend, *transport, waiter_for(options, 1), &warnings);
  if (!warnings.empty()) say(0, warnings);
  if (!text) {
    say(0, text.error());
    return kBadInput;
  }
  print_event(nlohmann::ordered_json{{"event", "sample"}, {"text", exec::printable(*text)}}.dump());
  return 0;
}

/// Loads and checks the plan. Returns an exit code; 0 means go on.
int prepare(const Options& options, int rank, std::unique_ptr<Loaded>& loaded) {
  auto result = load(options);
  if (!result) {
    say(rank, result.error());
    return kBadInput;
  }
  loaded = std::make_unique<Loaded>(std::move(*result));
  base::Diagnostics faults = plan::check(loaded->schedule);
  if (faults.empty()) faults = plan::rehearse(loaded->schedule);
  plan::name_experts(loaded->schedule, rank);
  if (faults.empty()) return 0;
  say(rank, "the lowered schedule is unsound, which is a bug\n" + base::render(faults, false));
  return kCheckFailed;
}

int over_mpi(const Options& options, int* count, char*** arguments) {
  const exec::MpiSession session(count, arguments);
  if (ties->line) ties->line->is_rank(session.rank());
  try {
    const exec::Waiter waiter =
        options.probe ? exec::Waiter(sleeping_policy()) : waiter_for(options, session.ranks_on_node(), &ties->recorder);
    const auto transport = exec::make_mpi_transport(session, waiter);
    if (options.probe)
      return probe(options, *transport, session.rank_on_node(), session.ranks_on_node(), [&](const std::string& why) {
        last_words_on_device(session.rank(), exec::Failure(why), options.deadline);
      });
    ties->recorder.enter(exec::RankPhase::loading);
    std::unique_ptr<Loaded> loaded;
    int code = prepare(options, session.rank(), loaded);
    if (code == 0 && loaded->plan.spec().mesh.ranks() != session.size()) {
      say(session.rank(), fmt::format("the plan is for {}, but mpiexec started {}",
                                      base::count_of(loaded->plan.spec().mesh.ranks(), "rank"), session.size()));
      code = kUsage;
    }
    code = static_cast<int>(transport->maximum(code));
    if (code != 0) return done(code);
    return done(train(options, *loaded, *transport, waiter, {session.rank_on_node(), session.ranks_on_node()}));
  } catch (const std::exception& error) {
    fail_all(session.rank(), error);
  }
}

/// One rank without MPI: there are no messages to exchange.
int probe_over_threads(const Options& options) {
  exec::ThreadWorld world(1);
  return probe(options, *world.transport(0), 0, 1,
               [&](const std::string& why) { last_words_on_device(0, exec::Failure(why), options.deadline); });
}

int over_threads(const Options& options) {
  if (options.probe) return probe_over_threads(options);
  std::unique_ptr<Loaded> loaded;
  if (const int code = prepare(options, 0, loaded); code != 0) return code;
  const int ranks = loaded->plan.spec().mesh.ranks();
  exec::ThreadWorld world(ranks);
  std::atomic<int> code{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const auto transport = world.transport(rank);
        exec::Recorder recorder;
        const exec::Waiter waiter = waiter_for(options, ranks, &recorder);
        if (const int mine = train(options, *loaded, *transport, waiter, {rank, ranks}); mine != 0) code = mine;
      } catch (const std::exception& error) {
        int none = 0;
        code.compare_exchange_strong(none, code_of(error));
        last_words(rank, error);
        world.abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return done(code);
}

void prepare_process(const Options& options) {
  prctl(PR_SET_TIMERSLACK, 1UL);  // microsecond naps, without the default slack of 50 more
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;  // a folder of text opens many files
    setrlimit(RLIMIT_NOFILE, &files);
  }
  if (options.probe) return;  // a signal may end it: there is nothing to save
  take_stop_requests();
}

/// Runs before anything that may block. A process started by a supervisor does not outlive it, nor the launcher's
/// process above itself.
void tie_to_supervisor() {
  static Ties own;
  ties = &own;
  own.line = exec::Lifeline::connect(own.recorder, [] { stop_requested.store(true); });
  if (own.line) on_exit(tell_of_exit, nullptr);
}

}  // namespace
}  // namespace orrery::worker

int main(int count, char** arguments) {
  using namespace orrery;
  if (std::getenv(exec::kRunMark) != nullptr) prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto options = worker::parse_options(count, arguments);
  if (!options) {
    fmt::print(stderr, "{}", base::render(options.error(), false));
    return worker::kUsage;
  }
  if (options->backend == "cpu") exec::execute_again_with_better_blas_core(arguments);
  worker::prepare_process(*options);
  worker::tie_to_supervisor();
  try {
    if (options->sample) return worker::sample(*options);
    return options->transport == "threads" ? worker::over_threads(*options)
                                           : worker::over_mpi(*options, &count, &arguments);
  } catch (const exec::Failure& failure) {
    worker::say(0, failure.what());
    return worker::code_of(failure.kind());
  }
}
