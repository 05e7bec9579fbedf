// The loop of every fold, compiled once per instruction set.
//
// `Lanes` converts between memory and values, step() bytes at a time:
// - Values load(const std::uint8_t*), void store(Values, std::uint8_t*), std::size_t step().
// - combine(op, Values, Values) and finish(op, Values) apply an operation.
// - Optional: Values load_one(const std::uint8_t*) loads one element of kOne bytes into every lane,
//   and void store_one(Values, std::uint8_t*) stores the element of the first lane.
//
// The remaining bytes, fewer than a step, are processed element by element or through a zero-padded
// buffer. They use the same vector code, so a result does not depend on an element's position.

#if defined(MCCL_KERNELS_FOLD_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MCCL_KERNELS_FOLD_LOOP_INL_H_
#undef MCCL_KERNELS_FOLD_LOOP_INL_H_
#else
#define MCCL_KERNELS_FOLD_LOOP_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/fold.h"

HWY_BEFORE_NAMESPACE();
namespace mccl::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads from any address. Highway's own load requires an aligned address on the scalar target.
template <class D>
HWY_INLINE hn::Vec<D> load_at(D d, const std::uint8_t* from) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> value;
  std::memcpy(&value, from, sizeof(value));
  return hn::Set(d, value);
#else
  return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(from));
#endif
}

template <class D>
HWY_INLINE void store_at(hn::Vec<D> v, D d, std::uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  const hn::TFromD<D> value = hn::GetLane(v);
  (void)d;
  std::memcpy(to, &value, sizeof(value));
#else
  hn::StoreU(v, d, reinterpret_cast<hn::TFromD<D>*>(to));
#endif
}

/// Processes one vector of T at a time.
template <class T>
struct PlainLanes {
  using D = hn::ScalableTag<T>;
  using Values = hn::Vec<D>;

  HWY_INLINE std::size_t step() const { return hn::Lanes(D()) * sizeof(T); }
  HWY_INLINE Values load(const std::uint8_t* from) const { return load_at(D(), from); }
  HWY_INLINE void store(Values v, std::uint8_t* to) const { store_at(v, D(), to); }
  template <class Op>
  HWY_INLINE Values combine(const Op& op, Values a, Values b) const {
    return op.combine(a, b);
  }
  template <class Op>
  HWY_INLINE Values finish(const Op& op, Values v) const {
    return op.finish(v);
  }
};

/// Extends PlainLanes by load_one() and store_one(), for elements of 4 or 8 bytes.
template <class T>
struct WordLanes : PlainLanes<T> {
  using typename PlainLanes<T>::D;
  using typename PlainLanes<T>::Values;
  static constexpr std::size_t kOne = sizeof(T);

  HWY_INLINE Values load_one(const std::uint8_t* from) const {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return hn::Set(D(), value);
  }
  HWY_INLINE void store_one(Values v, std::uint8_t* to) const {
    const T value = hn::GetLane(v);
    std::memcpy(to, &value, sizeof(T));
  }
};

template <class Lanes, class Op>
class FoldLoop {
 public:
  HWY_INLINE FoldLoop(Lanes lanes, Op op, const FoldArguments& arguments, std::size_t element_bytes)
      : lanes_(lanes),
        op_(op),
        in_(arguments.operands),
        dst_(static_cast<std::uint8_t*>(arguments.dst)),
        bytes_(arguments.n * element_bytes) {}

  HWY_INLINE void run() const {
    const std::size_t step = lanes_.step();
    std::size_t at = in_.size() == 2 ? run_two() : run_many();
    for (; at + step <= bytes_; at += step) lanes_.store(fold_at(at), dst_ + at);
    if (at >= bytes_) return;
    if constexpr (requires { Lanes::kOne; }) {
      if (step <= kFew * Lanes::kOne || bytes_ - at <= kFew * Lanes::kOne) return run_few(at);
    }
    run_tail(at);
  }

 private:
  using Values = typename Lanes::Values;

  /// Maximum number of remaining elements that are processed one by one. More elements go through a
  /// padded buffer, which is slow because small stores are then loaded as one vector.
  static constexpr std::size_t kFew = 4;

  HWY_INLINE const std::uint8_t* input(std::size_t operand, std::size_t at) const {
    return static_cast<const std::uint8_t*>(in_[operand]) + at;
  }

  // All loads of an iteration precede its stores, because dst may be an operand.
  HWY_INLINE std::size_t run_two() const {
    const std::size_t step = lanes_.step();
    const std::uint8_t* const a = input(0, 0);
    const std::uint8_t* const b = input(1, 0);
    std::size_t at = 0;
    for (; at + 4 * step <= bytes_; at += 4 * step) {
      const Values r0 = pair_at(a + at, b + at);
      const Values r1 = pair_at(a + at + step, b + at + step);
      const Values r2 = pair_at(a + at + 2 * step, b + at + 2 * step);
      const Values r3 = pair_at(a + at + 3 * step, b + at + 3 * step);
      lanes_.store(r0, dst_ + at);
      lanes_.store(r1, dst_ + at + step);
      lanes_.store(r2, dst_ + at + 2 * step);
      lanes_.store(r3, dst_ + at + 3 * step);
    }
    return at;
  }

  HWY_INLINE std::size_t run_many() const {
    const std::size_t step = lanes_.step();
    std::size_t at = 0;
    for (; at + 2 * step <= bytes_; at += 2 * step) {
      Values r0 = lanes_.load(input(0, at));
      Values r1 = lanes_.load(input(0, at + step));
      for (std::size_t i = 1; i < in_.size(); ++i) {
        r0 = lanes_.combine(op_, r0, lanes_.load(input(i, at)));
        r1 = lanes_.combine(op_, r1, lanes_.load(input(i, at + step)));
      }
      lanes_.store(lanes_.finish(op_, r0), dst_ + at);
      lanes_.store(lanes_.finish(op_, r1), dst_ + at + step);
    }
    return at;
  }

  HWY_INLINE Values pair_at(const std::uint8_t* a, const std::uint8_t* b) const {
    return lanes_.finish(op_, lanes_.combine(op_, lanes_.load(a), lanes_.load(b)));
  }

  HWY_INLINE Values fold_at(std::size_t at) const {
    Values r = lanes_.load(input(0, at));
    for (std::size_t i = 1; i < in_.size(); ++i) {
      r = lanes_.combine(op_, r, lanes_.load(input(i, at)));
    }
    return lanes_.finish(op_, r);
  }

  HWY_INLINE void run_few(std::size_t at) const {
    for (; at < bytes_; at += Lanes::kOne) {
      Values r = lanes_.load_one(input(0, at));
      for (std::size_t i = 1; i < in_.size(); ++i) {
        r = lanes_.combine(op_, r, lanes_.load_one(input(i, at)));
      }
      lanes_.store_one(lanes_.finish(op_, r), dst_ + at);
    }
  }

  HWY_INLINE void run_tail(std::size_t at) const {
    HWY_ALIGN std::uint8_t padded[2 * HWY_MAX_BYTES] = {};
    const std::size_t left = bytes_ - at;
    std::memcpy(padded, input(0, at), left);
    Values r = lanes_.load(padded);
    for (std::size_t i = 1; i < in_.size(); ++i) {
      std::memcpy(padded, input(i, at), left);
      r = lanes_.combine(op_, r, lanes_.load(padded));
    }
    lanes_.store(lanes_.finish(op_, r), padded);
    std::memcpy(dst_ + at, padded, left);
  }

  Lanes lanes_;
  Op op_;
  std::span<const void* const> in_;
  std::uint8_t* dst_;
  std::size_t bytes_;
};

template <class Lanes, class Op>
HWY_NOINLINE void fold_loop(Lanes lanes, Op op, const FoldArguments& arguments,
                            std::size_t element_bytes) {
  FoldLoop<Lanes, Op>(lanes, op, arguments, element_bytes).run();
}

}  // namespace mccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MCCL_KERNELS_FOLD_LOOP_INL_H_
