// Compiles fmt's own code once, for all sources. With header-only use, fmt would take longer to
// compile than the rest of most sources. With the system's shared library of fmt, that library
// would have to be installed wherever a program runs.
#include <fmt/format-inl.h>

// Instantiations that fmt's headers leave to one source file of each program.
FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
