#include "rendezvous/job_key.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <array>

#include "mccl/error.h"

namespace mccl::rendezvous {

std::string make_job_key() {
  std::array<unsigned char, 32> bytes;
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    throw Error("cannot make a job key: the system supplies no random bytes; set MCCL_JOB_KEY");
  }
  std::string key;
  for (const unsigned char byte : bytes) key += fmt::format("{:02x}", byte);
  return key;
}

}  // namespace mccl::rendezvous
