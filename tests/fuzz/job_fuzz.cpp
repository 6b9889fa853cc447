// A job that is accepted reads the same after writing.

#include "plan/spec/job.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(job) {
  const auto job = orrery::plan::parse_job(text, "fuzz.yaml");
  if (!job) {
    (void)orrery::base::render(job.error(), true);
    return;
  }
  const auto again = orrery::plan::parse_job(orrery::plan::write_job(*job), "fuzz.yaml");
  orrery::fuzz::must(again && *again == *job, "a job reads the same after writing");
  orrery::fuzz::must(orrery::plan::learning_rate_at(job->training, job->training.steps / 2) >= 0,
                     "a learning rate is not negative");
}
