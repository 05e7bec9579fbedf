// An intrusive list of calls, each of which owns the next. Adding, moving or removing a call needs
// no memory and cannot fail. So a submitted call is always in some list, from which it can be
// ended.
#pragma once

#include <iterator>
#include <memory>
#include <utility>

#include "engine/calls/operation.h"

namespace mccl::engine {

/// A linked list of calls that owns its elements. A call is in at most one list at a time. Guarded
/// by the lock of the list's owner.
class OperationList {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Operation;
    using difference_type = std::ptrdiff_t;
    using pointer = Operation*;
    using reference = Operation&;

    Iterator() = default;
    explicit Iterator(Operation* at) : at_(at) {}
    Operation& operator*() const { return *at_; }
    Operation* operator->() const { return at_; }
    Iterator& operator++() {
      at_ = at_->next_.get();
      return *this;
    }
    Iterator operator++(int) { return std::exchange(*this, Iterator(at_->next_.get())); }
    bool operator==(const Iterator& other) const = default;

   private:
    Operation* at_ = nullptr;
  };

  OperationList() = default;
  OperationList(OperationList&& other) noexcept { append(std::move(other)); }
  OperationList& operator=(OperationList&& other) noexcept {
    clear();
    append(std::move(other));
    return *this;
  }
  ~OperationList() { clear(); }

  bool empty() const { return first_ == nullptr; }
  Operation& front() const { return *first_; }
  Iterator begin() const { return Iterator(first_.get()); }
  Iterator end() const { return {}; }

  void push_back(std::shared_ptr<Operation> operation) noexcept {
    Operation* const added = operation.get();
    added->previous_ = last_;
    (last_ ? last_->next_ : first_) = std::move(operation);
    last_ = added;
  }
  void push_front(std::shared_ptr<Operation> operation) noexcept {
    operation->next_ = std::move(first_);
    first_ = std::move(operation);
    (first_->next_ ? first_->next_->previous_ : last_) = first_.get();
  }
  /// Removes and returns the operation, which must be in this list.
  std::shared_ptr<Operation> remove(Operation& operation) noexcept {
    Operation* const previous = std::exchange(operation.previous_, nullptr);
    std::shared_ptr<Operation>& holder = previous ? previous->next_ : first_;
    std::shared_ptr<Operation> removed = std::exchange(holder, std::move(operation.next_));
    (holder ? holder->previous_ : last_) = previous;
    return removed;
  }
  std::shared_ptr<Operation> pop_front() noexcept { return remove(*first_); }
  /// Moves all of `other` to the end of this list.
  void append(OperationList&& other) noexcept {
    if (other.empty()) return;
    other.first_->previous_ = last_;
    (last_ ? last_->next_ : first_) = std::move(other.first_);
    last_ = std::exchange(other.last_, nullptr);
  }

 private:
  /// Removes the calls one by one: destroying the chain as a whole would recurse once for each
  /// call.
  void clear() noexcept {
    while (!empty()) pop_front();
  }

  std::shared_ptr<Operation> first_;
  Operation* last_ = nullptr;
};

}  // namespace mccl::engine
