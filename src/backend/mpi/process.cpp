#include "backend/mpi/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "backend/mpi/finder.h"
#include "base/environment.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

/// For which the end of a process waits for the other ranks after something has failed.
constexpr std::chrono::seconds kForTheOthers{10};
constexpr int kStatusOfAbort = 1;

/// The only state of this backend that a process has one of. Never destroyed: the engine's thread
/// may live as long as the process does.
struct Registry {
  std::mutex mutex;
  Process* process = nullptr;
  std::string failure;  ///< Of an attempt after which MPI cannot be initialised again.
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

}  // namespace

std::string_view name_of(ThreadLevel level) {
  switch (level) {
    case ThreadLevel::single:
      return "MPI_THREAD_SINGLE";
    case ThreadLevel::funneled:
      return "MPI_THREAD_FUNNELED";
    case ThreadLevel::serialized:
      return "MPI_THREAD_SERIALIZED";
    case ThreadLevel::multiple:
      return "MPI_THREAD_MULTIPLE";
  }
  return "an unknown level";
}

Process& Process::get(std::chrono::microseconds spin, std::chrono::milliseconds patience,
                      const Log& log) {
  Registry& own = registry();
  const std::lock_guard lock(own.mutex);
  if (!own.failure.empty()) throw InvalidArgument(own.failure);
  if (!own.process) {
    auto process = std::unique_ptr<Process>(new Process(spin));
    try {
      process->start(patience, log);
    } catch (const std::exception& error) {
      own.failure = error.what();
      static_cast<void>(process.release());  // what MPI has begun cannot be ended here
      throw;
    }
    own.process = process.release();
  }
  if (own.process->abandoned() || own.process->process_ != ::getpid()) {
    throw InvalidArgument(
        "this process is a child by fork() of one that uses MPI, which no child can; start it "
        "with mpirun instead");
  }
  if (own.process->library().finalized()) {
    throw InvalidArgument(
        "MPI has been finalised in this process, and can be initialised once: "
        "leave MPI_Finalize to the end of the program");
  }
  return *own.process;
}

Process::Process(std::chrono::microseconds spin) : process_(::getpid()) {
  library_ = find_library(process_environment());
  if (library_->finalized()) {
    throw InvalidArgument(
        "MPI has been finalised in this process, and can be initialised once: "
        "leave MPI_Finalize to the end of the program");
  }
  joined_ = library_->initialized();
  engine_ = std::make_shared<Engine>(spin);
}

void Process::start(std::chrono::milliseconds patience, const Log& log) {
  if (!engine_->start([this] { initialise(); }, [this] { end(); }, patience)) {
    throw TimeoutError(fmt::format(
        "{} has not initialised after {:.3g} s (MCCL_CONNECT_TIMEOUT): it waits for all ranks that "
        "its launcher has started; see what the others printed last",
        library_->identity().describe(), std::chrono::duration<double>(patience).count()));
  }
  log.info("MPI: {}, {}, {}", library_->identity().describe(), name_of(level_),
           joined_ ? "initialised by the program" : "initialised by MCCL");
  if (!joined_) std::atexit(at_exit);
}

/// On the engine's thread, so that a library which wants all calls from the thread that initialised
/// it has its will.
void Process::initialise() {
  if (joined_) {
    level_ = library_->level();
    if (level_ != ThreadLevel::multiple) {
      throw InvalidArgument(fmt::format(
          "the program has initialised MPI with {}, but MCCL calls it beside the program: ask "
          "MPI_Init_thread for MPI_THREAD_MULTIPLE (mpi4py does, unless mpi4py.rc says otherwise)",
          name_of(level_)));
    }
  } else {
    level_ = library_->init(ThreadLevel::multiple);
    if (level_ == ThreadLevel::single) {
      throw InvalidArgument(
          fmt::format("{} grants {}, but MCCL has threads: it needs MPI_THREAD_FUNNELED at least",
                      library_->identity().describe(), name_of(level_)));
    }
    library_->return_errors(library_->constants().world);
    library_->return_errors(library_->constants().self);
  }
  set_up();
}

void Process::set_up() {
  const Handle world = library_->constants().world;
  rank_ = library_->rank(world);
  size_ = library_->size(world);
  const Launcher launcher = launcher_of(process_environment());
  if (launcher.ranks > 0 && launcher.ranks != size_) {
    throw InvalidArgument(fmt::format(
        "{} has started {} ranks, but {} sees {}: the library is not that of the launcher; start "
        "the ranks with the library's own mpirun{}, or let MPI_LIBNAME name the right one",
        launcher.name, launcher.ranks, library_->identity().describe(), size_,
        launcher.name == "srun" ? " or srun --mpi=pmix or pmi2, whichever it knows" : ""));
  }
  const Handle program_handler = library_->error_handler(world);
  library_->return_errors(world);
  control_ = library_->duplicate(world);
  library_->set_error_handler(world, program_handler);
  library_->return_errors(control_);
  largest_tag_ = library_->largest_tag(control_);
  operations_ = std::make_unique<Operations>(*library_);
  engine_->use(*library_, control_, rank_, level_, joined_);
}

void Process::enter() {
  engine_->run([this] {
    if (contexts_++ == 0) engine_->notices().open();
  });
}

void Process::leave() {
  if (abandoned_ || process_ != ::getpid()) return;
  engine_->run([this] {
    if (--contexts_ > 0 || engine_->is_over()) return;
    // Who will finalise MPI listens on; a program that does so by itself shall find nothing of
    // ours.
    if (joined_ && !library_->finalized()) engine_->notices().close();
  });
}

void Process::at_exit() {
  Process* process = registry().process;
  if (process && !process->abandoned_ && process->process_ == ::getpid()) process->engine_->stop();
}

/// Ends without MPI_Finalize, and says so to whoever waits with it. By MPI_Abort, since a launcher
/// may report success for a job of which a rank just ends (MPICH 4.0's does, now and then).
void Process::depart() {
  Notices& notices = engine_->notices();
  engine_->tell_departure(size_);
  for (int look = 0; look < 1000 && notices.sending(); ++look) notices.settle();
  std::fflush(nullptr);  // the library may end the process without what a program's end does
  library_->abort(kStatusOfAbort);
}

/// On the engine's thread, when the process ends. MPI_Finalize waits for all ranks, so it is called
/// only when all of them are about to; a launcher ends a job of which one rank ends without.
void Process::end() {
  if (joined_ || library_->finalized()) return;
  try {
    Notices& notices = engine_->notices();
    notices.open();
    if (engine_->is_over()) return depart();
    // After trouble somebody may never come.
    const Clock::time_point limit =
        engine_->had_trouble() ? Clock::now() + kForTheOthers : Clock::time_point::max();
    Handle all_end = library_->ibarrier(control_);
    Notice notice;
    for (int look = 0; !library_->test(all_end, nullptr); ++look) {
      while (notices.receive(notice)) {
        if (notice.what == Notice::What::departed) return;
      }
      notices.settle();
      if (Clock::now() > limit) return depart();
      if (look > 1000) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    while (notices.receive(notice)) {
    }
    notices.close();
    library_->finalize();
  } catch (const std::exception&) {
    return;  // the launcher says what it thinks of a rank that does not finalise
  }
}

}  // namespace mccl::mpi
