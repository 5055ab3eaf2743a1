#include "executor/emulation/shared_page.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "executor/emulation/fluid_channels.h"

namespace longhaul {
namespace {

// The page is read by the program that wrote it, on one machine: its parts are the structs below,
// in the order of Layout, each at a multiple of 64 bytes. A change of any of them is a new version.
constexpr std::uint64_t kMagic = 0x31'65'67'61'70'68'6c;  // "lhpage1" in memory
constexpr std::uint32_t kVersion = 1;
constexpr long kPermitWaitNanoseconds = 50'000'000;

using Counter = std::atomic<std::uint64_t>;
using PermitOwner = std::atomic<std::int32_t>;  // process id, 0 when free
static_assert(Counter::is_always_lock_free && PermitOwner::is_always_lock_free,
              "atomics work between processes");

struct PageHeader {
  std::uint64_t magic;  // written last
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t page_bytes;
  std::int32_t ranks;
  std::int32_t resources;
  std::int32_t path_entries;
  std::int32_t permits;
  double dilation;
  double wire_factor;
  pthread_mutex_t mutex;
  FluidState fluid;
  std::atomic<std::uint32_t> permits_given;  // changes when a permit is given back
  Counter frames, late_frames, frame_lateness_max;
  Counter completions, late_completions, completion_lateness_max;
};

/// Where the parts lie. Counts are within their limits, so nothing overflows.
struct Layout {
  explicit Layout(const PageHeader& header) {
    const auto n = static_cast<std::size_t>(header.ranks);
    const std::size_t pairs = n * n;
    take(sizeof(PageHeader));
    capacities = take(static_cast<std::size_t>(header.resources) * sizeof(double));
    caps = take(pairs * sizeof(double));
    latencies = take(pairs * sizeof(std::int64_t));
    path_begin = take((pairs + 1) * sizeof(std::int32_t));
    path = take(static_cast<std::size_t>(header.path_entries) * sizeof(std::int32_t));
    permits = take(static_cast<std::size_t>(header.permits) * sizeof(PermitOwner));
    busy = take(pairs * sizeof(std::int32_t));
    channels = take(pairs * sizeof(FluidChannel));
  }
  std::size_t take(std::size_t size) { return std::exchange(bytes, bytes + (size + 63) / 64 * 64); }
  std::size_t bytes = 0;
  std::size_t capacities, caps, latencies, path_begin, path, permits, busy, channels;
};

std::string error_text() {
  return std::strerror(errno);
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

void raise_to(Counter& most, std::uint64_t value) {
  std::uint64_t seen = most.load(std::memory_order_relaxed);
  while (seen < value && !most.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

void count(Counter& all, Counter& late, Counter& most, std::int64_t lateness) {
  all.fetch_add(1, std::memory_order_relaxed);
  if (lateness > kLateNanoseconds) late.fetch_add(1, std::memory_order_relaxed);
  raise_to(most, static_cast<std::uint64_t>(std::max<std::int64_t>(lateness, 0)));
}

Seconds from_nanoseconds(std::uint64_t time) {
  return Seconds(static_cast<double>(time) / 1e9);
}

}  // namespace

std::int64_t monotonic_nanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

double EmulationCounters::late_fraction() const {
  const auto fraction = [](std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  return std::max(fraction(late_frames, frames), fraction(late_completions, completions));
}

EmulationCounters EmulationCounters::since(const EmulationCounters& before) const {
  EmulationCounters later = *this;
  later.frames -= before.frames;
  later.late_frames -= before.late_frames;
  later.completions -= before.completions;
  later.late_completions -= before.late_completions;
  return later;
}

struct SharedPage::State {
  State(std::byte* memory, std::size_t mapped_bytes)
      : base(memory),
        bytes(mapped_bytes),
        header(*reinterpret_cast<PageHeader*>(memory)),
        layout(header) {}
  ~State() { munmap(base, bytes); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  template <class T>
  std::span<T> part(std::size_t offset, std::size_t size) const {
    return {reinterpret_cast<T*>(base + offset), size};
  }
  std::size_t pairs() const {
    const auto n = static_cast<std::size_t>(header.ranks);
    return n * n;
  }
  std::size_t channel(int from, int to) const {
    LH_CHECK(from >= 0 && from < header.ranks && to >= 0 && to < header.ranks && from != to,
             "a channel joins two ranks of the emulation");
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(header.ranks) +
           static_cast<std::size_t>(to);
  }
  std::span<double> capacities() const {
    return part<double>(layout.capacities, static_cast<std::size_t>(header.resources));
  }
  std::span<double> caps() const { return part<double>(layout.caps, pairs()); }
  std::span<std::int64_t> latencies() const {
    return part<std::int64_t>(layout.latencies, pairs());
  }
  std::span<std::int32_t> path_begin() const {
    return part<std::int32_t>(layout.path_begin, pairs() + 1);
  }
  std::span<std::int32_t> path() const {
    return part<std::int32_t>(layout.path, static_cast<std::size_t>(header.path_entries));
  }
  std::span<PermitOwner> permits() const {
    return part<PermitOwner>(layout.permits, static_cast<std::size_t>(header.permits));
  }

  /// Once the description is there and found good.
  void make_fluid() {
    fluid.emplace(FluidNetwork{capacities(), caps(), path_begin(), path()}, header.fluid,
                  part<std::int32_t>(layout.busy, pairs()),
                  part<FluidChannel>(layout.channels, pairs()));
  }
  bool is_description_good() const;

  std::byte* base;
  std::size_t bytes;
  PageHeader& header;
  Layout layout;
  std::optional<FluidChannels> fluid;
};

/// Holds the page's lock, and repairs what its last holder has left if that was killed.
class SharedPage::Lock {
 public:
  explicit Lock(State& state) : mutex_(state.header.mutex) {
    const int error = pthread_mutex_lock(&mutex_);
    LH_CHECK(error == 0 || error == EOWNERDEAD, "a robust lock can be taken");
    if (error == 0) return;
    state.fluid->recover();
    pthread_mutex_consistent(&mutex_);
  }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

bool SharedPage::State::is_description_good() const {
  const auto is_positive = [](double value) { return value > 0; };
  const auto begin = path_begin();
  const auto is_resource = [&](std::int32_t r) { return r >= 0 && r < header.resources; };
  return std::ranges::all_of(capacities(), is_positive) &&
         std::ranges::all_of(caps(), is_positive) && begin.front() == 0 &&
         std::ranges::is_sorted(begin) && begin.back() == header.path_entries &&
         std::ranges::all_of(path(), is_resource) &&
         std::ranges::all_of(latencies(), [](std::int64_t latency) { return latency >= 0; });
}

SharedPage::SharedPage(std::unique_ptr<State> state) : state_(std::move(state)) {}
SharedPage::~SharedPage() = default;

Result<std::unique_ptr<SharedPage>> SharedPage::create(const std::string& path,
                                                       const EmulatedNetwork& network,
                                                       double dilation, int permits) {
  LH_TRY(check_emulation(network, dilation));
  if (permits < 1 || permits > kPermitsMax) {
    return invalid(
        fmt::format("an emulation has 1 to {} permits to compute, not {}", kPermitsMax, permits));
  }
  const auto is_diagonal = [&](std::size_t pair) {
    return pair % static_cast<std::size_t>(network.ranks + 1) == 0;
  };
  std::size_t path_entries = 0;
  for (std::size_t pair = 0; pair < network.paths.size(); ++pair) {
    if (!is_diagonal(pair)) path_entries += network.paths[pair].resources.size();
  }
  PageHeader counts{};
  counts.ranks = network.ranks;
  counts.resources = static_cast<std::int32_t>(network.capacities.size());
  counts.path_entries = static_cast<std::int32_t>(path_entries);
  counts.permits = permits;
  const std::size_t bytes = Layout(counts).bytes;

  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    const bool is_there = errno == EEXIST;
    return failed(fmt::format("cannot create {}: {}", path, error_text()),
                  is_there ? "an emulation may still run on it; if not, remove the file" : "");
  }
  // Space is taken now: a full disk met later, in mapped memory, would kill the process.
  void* memory = MAP_FAILED;
  errno = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (errno == 0) memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const std::string trouble = error_text();
  ::close(file);
  if (memory == MAP_FAILED) {
    unlink(path.c_str());
    return failed(fmt::format("cannot make the {} bytes of {}: {}", bytes, path, trouble));
  }

  auto* header = new (memory) PageHeader{};
  header->ranks = counts.ranks;
  header->resources = counts.resources;
  header->path_entries = counts.path_entries;
  header->permits = counts.permits;
  header->version = kVersion;
  header->header_bytes = sizeof(PageHeader);
  header->page_bytes = bytes;
  header->dilation = dilation;
  header->wire_factor = network.wire_factor;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&header->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);

  auto state = std::make_unique<State>(static_cast<std::byte*>(memory), bytes);
  // From emulated bytes/s to bytes per nanosecond on the wall.
  const double scale = 1e9 * dilation;
  for (std::size_t r = 0; r < network.capacities.size(); ++r) {
    state->capacities()[r] = network.capacities[r].value() / scale;
  }
  std::int32_t entries = 0;
  for (std::size_t pair = 0; pair < state->pairs(); ++pair) {
    const EmulatedPath way = is_diagonal(pair) ? EmulatedPath{} : network.paths[pair];
    state->caps()[pair] = way.rate_cap.value() / scale;
    state->latencies()[pair] = std::llround(way.latency.value() * scale);
    for (const int resource : way.resources) {
      state->path()[static_cast<std::size_t>(entries++)] = resource;
    }
    state->path_begin()[pair + 1] = entries;
  }
  for (PermitOwner& owner : state->permits()) new (&owner) PermitOwner(0);
  state->make_fluid();
  std::atomic_ref(header->magic).store(kMagic, std::memory_order_release);
  return std::unique_ptr<SharedPage>(new SharedPage(std::move(state)));
}

Result<std::unique_ptr<SharedPage>> SharedPage::open(const std::string& path) {
  const auto wrong = [&](const std::string& what) {
    return failed(fmt::format("{} is not the page of an emulation: {}", path, what));
  };
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return failed(fmt::format("cannot open {}: {}", path, error_text()));
  struct stat status{};
  void* memory = MAP_FAILED;
  std::size_t bytes = 0;
  if (fstat(file, &status) == 0 && status.st_size > 0) {
    bytes = static_cast<std::size_t>(status.st_size);
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  ::close(file);
  if (memory == MAP_FAILED) return wrong("it is empty or cannot be mapped");
  const auto unmap = [bytes](void* address) { munmap(address, bytes); };
  std::unique_ptr<void, decltype(unmap)> mapped(memory, unmap);

  if (bytes < sizeof(PageHeader)) return wrong(fmt::format("it has only {} bytes", bytes));
  auto& header = *static_cast<PageHeader*>(memory);
  if (std::atomic_ref(header.magic).load(std::memory_order_acquire) != kMagic) {
    return wrong("it starts with other bytes");
  }
  if (header.version != kVersion || header.header_bytes != sizeof(PageHeader)) {
    return failed(fmt::format("{} was written by another version of this program", path),
                  "run the same build in every process of an emulation");
  }
  const auto within = [](int value, int low, std::size_t high) {
    return value >= low && static_cast<std::size_t>(value) <= high;
  };
  const bool is_sane =
      within(header.ranks, 1, kEmulatedRanksMax) &&
      within(header.resources, 0, kEmulatedResourcesMax) &&
      within(header.path_entries, 0,
             static_cast<std::size_t>(header.ranks * header.ranks) * kEmulatedPathMax) &&
      within(header.permits, 1, kPermitsMax) && header.dilation > 0 && header.wire_factor >= 1;
  if (!is_sane) return wrong("its sizes make no sense");
  if (const std::size_t expected = Layout(header).bytes;
      bytes != expected || header.page_bytes != expected) {
    return wrong(fmt::format("it has {} bytes instead of {}", bytes, expected));
  }
  auto state = std::make_unique<State>(static_cast<std::byte*>(mapped.release()), bytes);
  if (!state->is_description_good()) return wrong("its network makes no sense");
  state->make_fluid();
  return std::unique_ptr<SharedPage>(new SharedPage(std::move(state)));
}

int SharedPage::ranks() const {
  return state_->header.ranks;
}
double SharedPage::dilation() const {
  return state_->header.dilation;
}
std::int64_t SharedPage::latency_nanoseconds(int from, int to) const {
  return state_->latencies()[state_->channel(from, to)];
}

SharedPage::Pace SharedPage::pace(int from, int to, std::span<const std::size_t> payload_bytes,
                                  const WallClock& clock) {
  const std::size_t channel = state_->channel(from, to);
  FluidChannels& fluid = *state_->fluid;
  Pace result;
  const Lock lock(*state_);
  const std::int64_t now = clock();
  fluid.advance(now);
  while (true) {
    while (const auto time = fluid.take_departed(channel)) result.departures.push_back(*time);
    if (result.accepted == payload_bytes.size() || !fluid.has_room(channel)) break;
    while (result.accepted < payload_bytes.size() && fluid.has_room(channel)) {
      fluid.push(channel, static_cast<double>(payload_bytes[result.accepted++]) *
                              state_->header.wire_factor);
    }
    fluid.advance(now);  // what takes no time has left
  }
  result.look_again_at = fluid.look_again_at(channel);
  return result;
}

void SharedPage::clear(int from, int to, const WallClock& clock) {
  const Lock lock(*state_);
  state_->fluid->advance(clock());
  state_->fluid->clear(state_->channel(from, to));
}

std::optional<int> SharedPage::take_permit(const std::atomic<bool>& give_up) {
  const std::span<PermitOwner> owners = state_->permits();
  const auto self = static_cast<std::int32_t>(getpid());
  while (!give_up) {
    const std::uint32_t given = state_->header.permits_given.load();
    for (std::size_t i = 0; i < owners.size(); ++i) {
      std::int32_t nobody = 0;
      if (owners[i].compare_exchange_strong(nobody, self)) return static_cast<int>(i);
    }
    const timespec timeout{.tv_sec = 0, .tv_nsec = kPermitWaitNanoseconds};
    if (futex(state_->header.permits_given, FUTEX_WAIT, given, &timeout) == 0) continue;
    if (errno != ETIMEDOUT) continue;
    // Nobody gave one back for long; perhaps its owner cannot any more.
    for (PermitOwner& owner : owners) {
      std::int32_t process = owner.load();
      if (process != 0 && kill(process, 0) != 0 && errno == ESRCH) {
        owner.compare_exchange_strong(process, 0);
      }
    }
  }
  return std::nullopt;
}

void SharedPage::give_permit(int permit) {
  state_->permits()[static_cast<std::size_t>(permit)].store(0);
  ++state_->header.permits_given;
  futex(state_->header.permits_given, FUTEX_WAKE, 1, nullptr);
}

void SharedPage::count_frame(std::int64_t lateness) {
  PageHeader& h = state_->header;
  count(h.frames, h.late_frames, h.frame_lateness_max, lateness);
}

void SharedPage::count_completion(std::int64_t lateness) {
  PageHeader& h = state_->header;
  count(h.completions, h.late_completions, h.completion_lateness_max, lateness);
}

EmulationCounters SharedPage::counters() const {
  const PageHeader& h = state_->header;
  return {.frames = h.frames,
          .late_frames = h.late_frames,
          .frame_lateness_max = from_nanoseconds(h.frame_lateness_max),
          .completions = h.completions,
          .late_completions = h.late_completions,
          .completion_lateness_max = from_nanoseconds(h.completion_lateness_max)};
}

}  // namespace longhaul
