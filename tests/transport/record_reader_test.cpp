#include "transport/tcp/record_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "base/descriptor.h"

namespace mccl::transport::tcp {
namespace {

using Bytes = std::vector<std::byte>;

class Reading : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    for (const int i : {0, 1}) ends_[i] = Descriptor(ends[i]);
    ASSERT_EQ(::fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  }

  void send_record(std::size_t bytes) {
    const Bytes payload(bytes, std::byte{7});
    Bytes record(bytes + kRecordOverhead);
    ASSERT_TRUE(
        seals_.seal(0, number_++, ContentType::application_data, {payload, {}}, record.data()));
    send(record);
  }
  void send(const Bytes& bytes) {
    ASSERT_EQ(::send(ends_[1].get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }

  Descriptor ends_[2];
  RecordKeys seals_{RecordKeys::Use::seal, {}};
  std::uint64_t number_ = 0;
};

TEST_F(Reading, ValidRecordsBeforeAnInvalidOneAreReceived) {
  RecordReader reader({}, ends_[0].get());
  for (const std::size_t bytes : {10, 20, 30}) send_record(bytes);
  send(Bytes(5, std::byte{'?'}));
  send_record(40);
  Bytes to(1000);
  std::size_t received = 0;
  TransferResult result;
  do {
    result = reader.receive(to);
    received += result.bytes;
  } while (result.bytes > 0);
  EXPECT_EQ(received, 60u);
  EXPECT_EQ(result.error, EBADMSG);
}

}  // namespace
}  // namespace mccl::transport::tcp
