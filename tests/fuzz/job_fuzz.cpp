// A job that is accepted reads the same after writing.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "plan/job.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto job = orrery::plan::parse_job({reinterpret_cast<const char*>(data), size}, "fuzz.yaml");
  if (!job) {
    (void)orrery::base::render(job.error(), true);
    return 0;
  }
  const auto again = orrery::plan::parse_job(orrery::plan::write_job(*job), "fuzz.yaml");
  if (!again || *again != *job) std::abort();
  if (!(orrery::plan::learning_rate_at(job->training, job->training.steps / 2) >= 0)) std::abort();
  return 0;
}
