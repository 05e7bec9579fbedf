#include "transport/rdma/verbs/verbs.h"

#include <fmt/format.h>

#include <system_error>

namespace mccl::transport::rdma {

VerbsError::VerbsError(std::string_view call, std::string_view device, int code)
    : Error(fmt::format("{} of {}: {}", call, device, describe_code(code))), code_(code) {}

std::string describe_code(int code) {
  return fmt::format("{} (errno {})", std::generic_category().message(code), code);
}

std::string_view name_of(Service service) { return service == Service::rc ? "rc" : "uc"; }

std::string describe_status(int status) {
  constexpr std::string_view kTexts[] = {
      "success",
      "a message longer than its buffer, or than the port allows",
      "the queue pair could not carry out the request",
      "bad end-to-end context",
      "memory that is not registered for this access",
      "dropped, since the queue pair had failed before",
      "bad memory window",
      "the response was not understood",
      "local access error",
      "the other end refuses the request",
      "the other end refuses the access",
      "the other end could not carry out the request",
      "the other end does not answer",
      "the other end had no buffer",
  };
  const auto index = static_cast<std::size_t>(status);
  const std::string_view text =
      status >= 0 && index < std::size(kTexts) ? kTexts[index] : "the device reports an error";
  return fmt::format("{} (completion status {})", text, status);
}

}  // namespace mccl::transport::rdma
