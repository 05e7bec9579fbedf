// An amount of memory that several users share.
#pragma once

#include <cstddef>
#include <utility>

namespace mccl::rendezvous {

/// A fixed number of bytes that users borrow as loans. Must outlive its loans. Not thread-safe.
class Allowance {
 public:
  explicit Allowance(std::size_t bytes) : left_(bytes) {}
  Allowance(const Allowance&) = delete;
  Allowance& operator=(const Allowance&) = delete;

  /// A part of the bytes, which the user holds until give_back() or destruction.
  class Loan {
   public:
    Loan() = default;
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() { give_back(); }

    /// Changes the size of the loan to `bytes`. If too few bytes are left, the loan becomes empty
    /// and the function returns false.
    bool take(Allowance& from, std::size_t bytes) {
      give_back();
      if (bytes > from.left_) return false;
      from.left_ -= bytes;
      from_ = &from;
      bytes_ = bytes;
      return true;
    }
    void give_back() {
      if (from_ == nullptr || bytes_ == 0) return;
      from_->left_ += std::exchange(bytes_, 0);
      from_->given_back_ = true;
    }
    std::size_t bytes() const { return bytes_; }

   private:
    Allowance* from_ = nullptr;
    std::size_t bytes_ = 0;
  };

  std::size_t left() const { return left_; }
  /// Returns true if bytes were given back since the last call. Waiting users may then try again.
  bool was_given_back() { return std::exchange(given_back_, false); }

 private:
  std::size_t left_;
  bool given_back_ = false;
};

}  // namespace mccl::rendezvous
