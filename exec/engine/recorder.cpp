// The recorder's page: plain memory, written by one rank without locks and read by the supervisor at any time.
#include "exec/engine/recorder.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

namespace orrery::exec {

namespace {

constexpr std::size_t kRing = 2048;       // messages kept
constexpr std::size_t kMostNames = 4096;  // kinds of messages; further ones have no name
constexpr std::size_t kNameBytes = 160;
constexpr std::size_t kWaitBytes = 512;
constexpr std::uint64_t kMagic = 0x6f72726572793031;  // "orrery01"

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double seconds_since(std::int64_t then, std::int64_t now) {
  return then > 0 && now > then ? static_cast<double>(now - then) * 1e-9 : 0;
}

template <std::size_t N>
void copy_text(char (&to)[N], std::string_view text) {
  const std::size_t n = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), n);
  to[n] = '\0';
}

template <std::size_t N>
std::string text_of(const char (&from)[N]) {
  return {from, strnlen(from, N)};
}

}  // namespace

struct RecorderPage {
  struct Note {
    std::int64_t at;  ///< nanoseconds of the steady clock, which all processes of a machine share
    std::int64_t step, micro_batch;
    std::int32_t message, ended;
  };
  std::uint64_t magic;
  std::atomic<std::int32_t> phase;
  std::atomic<std::int32_t> waits;  ///< 1 while `waiting` holds a text
  std::atomic<std::int64_t> step, step_begin, wait_begin;
  char waiting[kWaitBytes];
  std::atomic<std::uint64_t> notes;  ///< written so far
  std::atomic<std::int32_t> names;
  Note ring[kRing];
  char name[kMostNames][kNameBytes];
};

const char* name_of(RankPhase phase) {
  switch (phase) {
    case RankPhase::starting: return "starting";
    case RankPhase::loading: return "loading";
    case RankPhase::training: return "training";
    case RankPhase::saving: return "saving";
    case RankPhase::ending: return "ending";
  }
  return "?";
}

Recorder::Recorder() {
  file_ = memfd_create("orrery-recorder", MFD_CLOEXEC);
  if (file_ >= 0 && ftruncate(file_, sizeof(RecorderPage)) != 0) {
    close(file_);
    file_ = -1;
  }
  const int flags = file_ >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory = mmap(nullptr, sizeof(RecorderPage), PROT_READ | PROT_WRITE, flags, file_, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  page_ = static_cast<RecorderPage*>(memory);  // all zeros is its initial state
  page_->magic = kMagic;
}

Recorder::~Recorder() {
  munmap(page_, sizeof(RecorderPage));
  if (file_ >= 0) close(file_);
}

void Recorder::enter(RankPhase phase) {
  page_->phase.store(static_cast<std::int32_t>(phase), std::memory_order_release);
}

void Recorder::begin_step(std::int64_t step) {
  page_->step_begin.store(now_ns(), std::memory_order_relaxed);
  page_->step.store(step, std::memory_order_release);
}

int Recorder::name_message(std::string_view what) {
  const std::int32_t number = page_->names.load(std::memory_order_relaxed);
  if (number >= static_cast<std::int32_t>(kMostNames)) return -1;
  copy_text(page_->name[number], what);
  page_->names.store(number + 1, std::memory_order_release);
  return number;
}

void Recorder::note(int message, std::int64_t micro_batch, bool ended) {
  const std::uint64_t number = page_->notes.load(std::memory_order_relaxed);
  page_->ring[number % kRing] = {now_ns(), page_->step.load(std::memory_order_relaxed), micro_batch, message, ended};
  page_->notes.store(number + 1, std::memory_order_release);
}

void Recorder::began(int message, std::int64_t micro_batch) {
  note(message, micro_batch, false);
}

void Recorder::ended(int message, std::int64_t micro_batch) {
  note(message, micro_batch, true);
}

void Recorder::waits_for(std::string_view what) {
  page_->waits.store(0, std::memory_order_release);
  copy_text(page_->waiting, what);
  page_->wait_begin.store(now_ns(), std::memory_order_relaxed);
  page_->waits.store(1, std::memory_order_release);
}

void Recorder::waits_no_more() {
  page_->waits.store(0, std::memory_order_release);
}

RecorderView::RecorderView(int descriptor) {
  if (descriptor < 0) return;
  struct stat info {};
  // Reading beyond the end of a file raises a bus error.
  const bool whole = fstat(descriptor, &info) == 0 && info.st_size >= static_cast<off_t>(sizeof(RecorderPage));
  void* memory = whole ? mmap(nullptr, sizeof(RecorderPage), PROT_READ, MAP_SHARED, descriptor, 0) : MAP_FAILED;
  close(descriptor);
  if (memory == MAP_FAILED) return;
  page_ = static_cast<const RecorderPage*>(memory);
  if (page_->magic == kMagic) return;
  munmap(memory, sizeof(RecorderPage));
  page_ = nullptr;
}

RecorderView::~RecorderView() {
  if (page_ != nullptr) munmap(const_cast<RecorderPage*>(page_), sizeof(RecorderPage));
}

RecorderView::RecorderView(RecorderView&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}

RecorderView& RecorderView::operator=(RecorderView&& other) noexcept {
  std::swap(page_, other.page_);
  return *this;
}

Recorded RecorderView::read(std::size_t most) const {
  Recorded out;
  if (page_ == nullptr) return out;
  const std::int64_t now = now_ns();
  const std::int32_t phase = page_->phase.load(std::memory_order_acquire);
  out.phase = static_cast<RankPhase>(std::clamp(phase, 0, static_cast<std::int32_t>(RankPhase::ending)));
  out.step = page_->step.load(std::memory_order_acquire);
  out.in_step_s = seconds_since(page_->step_begin.load(std::memory_order_relaxed), now);
  if (page_->waits.load(std::memory_order_acquire) != 0) {
    out.waiting_for = text_of(page_->waiting);
    out.waiting_s = seconds_since(page_->wait_begin.load(std::memory_order_relaxed), now);
  }
  const std::uint64_t notes = page_->notes.load(std::memory_order_acquire);
  const std::int32_t names = std::min<std::int32_t>(page_->names.load(std::memory_order_acquire), kMostNames);
  const std::uint64_t count = std::min<std::uint64_t>({notes, kRing, most});
  for (std::uint64_t i = notes - count; i < notes; ++i) {
    const RecorderPage::Note& note = page_->ring[i % kRing];
    const bool named = note.message >= 0 && note.message < names;
    out.last.push_back({named ? text_of(page_->name[note.message]) : "a message", note.step, note.micro_batch,
                        seconds_since(note.at, now), note.ended != 0});
  }
  return out;
}

}  // namespace orrery::exec
