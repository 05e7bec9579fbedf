#include "node/peer_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/machine.h"
#include "support/node_process.h"
#include "support/process_memory.h"

namespace mccl::node {
namespace {

#ifdef __linux__

using testing::Child;
using testing::own_process;
using testing::ProcessMemory;

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

TEST(PeerMemory, ReadsTheMemoryOfAProcess) {
  const NodeProcess node;
  std::vector<unsigned char> there(100'000);
  std::iota(there.begin(), there.end(), 0);
  const Child child;  // has a copy of `there`
  const std::vector<unsigned char> expected = there;
  std::fill(there.begin(), there.end(), 0);
  std::vector<unsigned char> here(there.size());
  const ProcessMemory process(child.pid());
  const PeerMemory memory = process.memory(node.passed().header());
  ASSERT_EQ(memory.read(address_of(there.data()), std::as_writable_bytes(std::span(here))), 0);
  EXPECT_EQ(here, expected);
}

TEST(PeerMemory, ReportsMemoryThatDoesNotExist) {
  const NodeProcess node;
  const PeerMemory memory = own_process().memory(node.passed().header());
  std::vector<std::byte> here(3 * page_bytes());
  EXPECT_EQ(memory.read(0, here), EFAULT);
  // The second of three pages cannot be read.
  void* pages =
      ::mmap(nullptr, 3 * page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ::mprotect(static_cast<char*>(pages) + page_bytes(), page_bytes(), PROT_NONE);
  EXPECT_EQ(memory.read(address_of(pages), here), EFAULT);
  ::munmap(pages, 3 * page_bytes());
}

TEST(PeerMemory, MemoryOfWhichAnEndIsUnreadableCannotBeCopied) {
  const std::size_t page = page_bytes();
  void* const pages =
      ::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const std::span memory(static_cast<std::byte*>(pages), 3 * page);
  EXPECT_TRUE(can_be_copied(memory));
  ::mprotect(pages, page, PROT_NONE);
  EXPECT_FALSE(can_be_copied(memory));
  EXPECT_TRUE(can_be_copied(memory.subspan(page)));
  ::mprotect(static_cast<std::byte*>(pages) + 2 * page, page, PROT_NONE);
  EXPECT_FALSE(can_be_copied(memory.subspan(page)));
  ::munmap(pages, 3 * page);
}

TEST(PeerMemory, ReportsAProcessThatHasEnded) {
  const NodeProcess node;
  const std::uint64_t value = 7;  // exists in the child, too
  Child child;
  const ProcessMemory process(child.pid());
  std::uint64_t copy = 0;
  const auto read = [&] {
    return process.memory(node.passed().header())
        .read(address_of(&value), std::as_writable_bytes(std::span(&copy, 1)));
  };
  EXPECT_EQ(read(), 0);
  EXPECT_EQ(copy, 7u);
  child.kill();
  EXPECT_EQ(read(), ESRCH);
}

/// The number of the process belongs to another process by now.
TEST(PeerMemory, ReportsAProcessWhoseNumberWasReused) {
  const NodeProcess node;
  Child child;
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, child.pid(), 0)));
  child.kill();
  std::byte copy = {};
  const std::byte value = {};
  const PeerMemory memory(::getpid(), process.get(), node.passed().header());
  EXPECT_EQ(memory.read(address_of(&value), std::span(&copy, 1)), ESRCH);
}

TEST(PeerMemory, RecognisesTheProcessOfAnArena) {
  const NodeProcess process;
  EXPECT_EQ(own_process().memory(process.passed().header()).obstacle(), "");
}

TEST(PeerMemory, RefusesAProcessThatDidNotMakeTheArena) {
  const std::byte value = {};
  std::byte copy = {};
  const Child child;
  const NodeProcess process;  // does not exist in the child, as after execve(2)
  const ProcessMemory other(child.pid());
  const PeerMemory memory = other.memory(process.passed().header());
  EXPECT_NE(memory.obstacle().find("not the one"), std::string::npos);
  EXPECT_EQ(memory.read(address_of(&value), std::span(&copy, 1)), EFAULT);
  const std::vector<char> room(page_bytes());
  NodeProcess liar;
  liar.arena().header().address = address_of(room.data());
  const PeerMemory lie = own_process().memory(liar.passed().header());
  EXPECT_NE(lie.obstacle().find("not the one"), std::string::npos);
  EXPECT_EQ(lie.read(address_of(&value), std::span(&copy, 1)), ESTALE);
}

#endif

TEST(PeerMemory, OfNoProcessCannotBeRead) {
  std::byte copy = {};
  EXPECT_EQ(PeerMemory().read(0, std::span(&copy, 1)), ENOSYS);
  EXPECT_NE(PeerMemory().obstacle(), "");
}

}  // namespace
}  // namespace mccl::node
