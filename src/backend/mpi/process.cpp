#include "backend/mpi/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <thread>

#include "backend/mpi/finder.h"
#include "backend/mpi/key_source.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "mccl/error.h"
#include "rendezvous/connections/proof.h"
#include "rendezvous/meeting/join.h"
#include "rendezvous/store/tcp_store.h"
#include "transport/tcp/interfaces.h"

namespace mccl::mpi {
namespace {

/// Maximum time for which an ending process waits, after a failure, until the other ranks reach the
/// final barrier.
constexpr std::chrono::seconds kForTheOthers{10};
constexpr int kStatusOfAbort = 1;

/// Process-wide state of this backend. Never destroyed, because the thread of MpiProcess may run
/// until the process ends.
struct Registry {
  std::mutex mutex;
  MpiProcess* process = nullptr;
  std::string failure;  ///< Error of the only attempt to initialise MPI; empty if none has failed.
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

void check_place(const ContextOptions& options, const MpiProcess& process) {
  const std::string library = process.library().identity().describe();
  if (options.size > 0 && options.size != process.size()) {
    throw InvalidArgument(
        fmt::format("this job has {} ranks, but the MPI job has {} ({}): start the ranks with the "
                    "mpirun of this MPI library, as mccl launch --backend mpi does",
                    options.size, process.size(), library));
  }
  if (options.rank >= 0 && options.rank != process.rank()) {
    throw InvalidArgument(fmt::format(
        "rank {} of this job is rank {} of the MPI job ({}): use the ranks that mpirun assigns",
        options.rank, process.rank(), library));
  }
}

}  // namespace

MpiProcess& MpiProcess::get(const ContextOptions& options) {
  Registry& own = registry();
  const std::lock_guard lock(own.mutex);
  if (!own.failure.empty()) throw InvalidArgument(own.failure);
  if (!own.process) {
    auto process = std::unique_ptr<MpiProcess>(new MpiProcess());
    try {
      process->start(options);
    } catch (const std::exception& error) {
      own.failure = error.what();
      static_cast<void>(process.release());  // leaked: an initialisation of MPI cannot be undone
      throw;
    }
    own.process = process.release();
  }
  if (own.process->process_ != ::getpid()) {
    throw InvalidArgument(
        "this process is a fork() child of a process that uses MPI, and a child cannot use MPI; "
        "start it with mpirun instead");
  }
  if (own.process->is_over()) throw InvalidArgument(own.process->failure());
  return *own.process;
}

MpiProcess::MpiProcess() : library_(find_library(process_environment())), thread_("mccl-mpi") {
  process_ = ::getpid();
  if (library_->finalized()) {
    throw InvalidArgument(
        "MPI has been finalised in this process and cannot be initialised again: call MPI_Finalize "
        "only at the end of the program");
  }
  joined_ = library_->initialized();
}

void MpiProcess::start(const ContextOptions& options) {
  // initialise() gets its own copy of the settings, because it may still run after the wait below
  // has timed out.
  std::future<void> started = thread_.take([this, config = options.config] { initialise(config); });
  if (started.wait_for(milliseconds_of(options.config.connect_timeout)) !=
      std::future_status::ready) {
    throw TimeoutError(
        fmt::format("{} has not initialised after {:.3g} s (MCCL_CONNECT_TIMEOUT): it waits for "
                    "all ranks that its launcher started; check the last output of the other ranks",
                    library_->identity().describe(), options.config.connect_timeout));
  }
  started.get();
  Log(rank_, log_options(options.config))
      .info("MPI: {}, {}, {}", library_->identity().describe(), name_of(level_),
            joined_ ? "initialised by the program" : "initialised by MCCL");
  if (!joined_) std::atexit(at_exit);
}

/// Runs on `thread_`. If the library allows only one thread, that thread must make all MPI calls.
void MpiProcess::initialise(const Config& config) {
  if (joined_) {
    level_ = library_->level();
    if (level_ != ThreadLevel::multiple) {
      throw InvalidArgument(
          fmt::format("the program has initialised MPI with {}, but MCCL calls MPI from other "
                      "threads: ask MPI_Init_thread for MPI_THREAD_MULTIPLE (the default of "
                      "mpi4py, unless mpi4py.rc changes it)",
                      name_of(level_)));
    }
  } else {
    level_ = library_->init(ThreadLevel::multiple);
    if (level_ == ThreadLevel::single) {
      throw InvalidArgument(fmt::format(
          "{} provides {}, but MCCL uses threads and needs at least MPI_THREAD_FUNNELED",
          library_->identity().describe(), name_of(level_)));
    }
    library_->return_errors(library_->abi().world);
    library_->return_errors(library_->abi().self);
  }
  set_up(config);
}

void MpiProcess::set_up(const Config& config) {
  const Handle world = library_->abi().world;
  rank_ = library_->rank(world);
  size_ = library_->size(world);
  const Launcher launcher = launcher_of(process_environment());
  if (launcher.ranks > 0 && launcher.ranks != size_) {
    throw InvalidArgument(fmt::format(
        "{} has started {} ranks, but {} sees {} ranks: the library does not match the launcher; "
        "start the ranks with the library's own mpirun{}, or set MPI_LIBNAME to the matching "
        "library",
        launcher.name, launcher.ranks, library_->identity().describe(), size_,
        launcher.name == "srun" ? " or with srun --mpi=pmix or pmi2, whichever the library supports"
                                : ""));
  }
  // Makes MPI return errors while MPI_COMM_WORLD is duplicated, and then restores the program's own
  // error handler.
  Handle program_handler = 0;
  library_->Comm_get_errhandler(world, &program_handler);
  library_->return_errors(world);
  control_ = library_->duplicate(world);
  library_->Comm_set_errhandler(world, program_handler);
  library_->return_errors(control_);
  library_->create_operations();
  if (size_ > 1) find_meeting_place(config);
}

/// Connects to the job's store. Rank 0 serves the store at MCCL_ROOT. If that is not set, it uses a
/// free port, on the loopback interface if all ranks are on one host. Rank 0 broadcasts the address
/// and the key of the store.
void MpiProcess::find_meeting_place(const Config& config) {
  struct Place {
    char root[512];
    char key[rendezvous::kJobKeyLetters + 1];
  };
  const MpiLibrary& mpi = *library_;
  const std::uint64_t host = std::hash<std::string>()(transport::tcp::host_identity());
  const bool has_key = !config.job_key.empty();
  const std::uint64_t own[] = {host,
                               ~host,
                               config.encryption == "on" ? 1U : 0U,
                               has_key ? 1U : 0U,
                               has_key ? 0U : 1U,
                               config.require_key == "1" ? 1U : 0U,
                               config.require_key == "0" ? 0U : 1U};
  std::uint64_t largest[std::size(own)] = {};
  mpi.Allreduce.waits(own, largest, std::size(own), mpi.type_of(DType::u64),
                      mpi.operation(DType::u64, ReduceKind::max), control_);
  const bool one_host = largest[0] == ~largest[1];
  const KeySource source = key_source_of({.one_host = one_host,
                                          .encrypts = largest[2] != 0,
                                          .some_have_key = largest[3] != 0,
                                          .some_lack_key = largest[4] != 0,
                                          .is_required = largest[5] != 0,
                                          .is_waived = largest[6] == 0},
                                         rank_);
  if (source == KeySource::mpi && !one_host && rank_ == 0) {
    Log(rank_, log_options(config))
        .warn(
            "MCCL_JOB_KEY is not set and MCCL_REQUIRE_KEY is 0: the job's key passes between "
            "hosts through MPI, which does not encrypt it");
  }
  const StoreReport report{.log = log_options(config), .metrics = nullptr};
  const auto serve_or_connect = [&](const Place& place) {
    key_ = source == KeySource::mpi ? SecretBytes(place.key) : config.job_key;
    store_ = rendezvous::make_tcp_store_for(
        {.job_key = key_, .encryption = transport::tcp::Encryption::of(config)}, place.root, rank_,
        milliseconds_of(config.connect_timeout), report);
  };
  Place place{};
  if (rank_ == 0) {
    const std::string root = config.root.empty() ? rendezvous::own_root(one_host) : config.root;
    root.copy(place.root, sizeof(place.root) - 1);
    if (source == KeySource::mpi)
      rendezvous::make_job_key().view().copy(place.key, sizeof(place.key) - 1);
    serve_or_connect(place);
  }
  mpi.Bcast.waits(&place, sizeof(place), mpi.abi().byte, 0, control_);
  if (rank_ != 0) serve_or_connect(place);
  erase(std::as_writable_bytes(std::span(place.key)));
}

void MpiProcess::call_in_turn(const std::function<void()>& body) {
  if (hands_over()) return thread_.take(body).get();
  const std::lock_guard lock(calling_);
  body();
}

std::string MpiProcess::failure() const {
  const std::lock_guard lock(mutex_);
  if (!reason_over_.empty() || !is_over()) return reason_over_;
  return "the program has called MPI_Finalize, after which MPI cannot be called; shut MCCL down "
         "before the program calls MPI_Finalize";
}

void MpiProcess::end_for_good(const std::string& reason) {
  note_trouble();
  end_use(
      fmt::format("MPI is no longer used in this process, because MPI cannot cancel a call that "
                  "MCCL has abandoned: {}",
                  reason));
}

void MpiProcess::end_use(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  reason_over_ = reason;
  over_.store(true, std::memory_order_release);
}

void MpiProcess::at_exit() {
  MpiProcess* process = registry().process;
  if (process && process->process_ == ::getpid())
    process->thread_.take([=] { process->end(); }).get();
}

/// Calls MPI_Abort in place of MPI_Finalize. If a rank ends without either call, some launchers,
/// such as that of MPICH 4.0, may report that the job succeeded.
void MpiProcess::depart() {
  std::fflush(nullptr);  // MPI_Abort may end the process without flushing its streams
  library_->Abort(library_->abi().world, kStatusOfAbort);
}

/// Called when the process ends. MPI_Finalize blocks until all ranks call it, so it is called only
/// once all ranks have reached a barrier here. MPI_Finalize must not be omitted: a launcher kills
/// the whole job if one rank exits without it.
void MpiProcess::end() {
  if (joined_ || library_->finalized()) return;
  const bool was_over = is_over();
  end_use("MPI is no longer used, because the process is ending");
  try {
    if (was_over) return depart();
    Handle all_end = 0;
    library_->Ibarrier(control_, &all_end);
    Clock::time_point limit = Clock::time_point::max();
    for (int look = 0; !library_->test(all_end); ++look) {
      // After a failure, another rank may never reach the barrier, so limit the wait.
      if (trouble_ && limit == Clock::time_point::max()) limit = Clock::now() + kForTheOthers;
      if (Clock::now() > limit) return depart();
      if (look > 1000) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    library_->Finalize();
  } catch (const std::exception&) {
    return;  // no message: the launcher reports a rank that exits without MPI_Finalize
  }
}

ContextOptions placed(const ContextOptions& options) {
  MpiProcess& process = MpiProcess::get(options);
  check_place(options, process);
  ContextOptions own = options;
  own.rank = process.rank();
  own.size = process.size();
  own.store = process.store();
  own.config.job_key = process.key();
  own.config.port_base = 0;  // any free port, because several jobs may share a host
  own.config.hostfile.clear();
  if (compression_named(own.config.compression).codec != Codec::none) {
    Log(own.rank, log_options(own.config))
        .warn("MCCL_COMPRESSION={} has no effect: the backend mpi does not compress",
              own.config.compression);
    own.config.compression = "none";
  }
  return own;
}

}  // namespace mccl::mpi
