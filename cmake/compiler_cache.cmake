# Compiles through ccache where it is installed, told what it needs to know of precompiled headers. Who
# has set it up is left alone, but for that.
find_program(CCACHE ccache)
if(NOT CCACHE OR CMAKE_CXX_COMPILER_LAUNCHER)
  return()
endif()

set(ccache_settings CCACHE_SLOPPINESS=pch_defines,time_macros)
# The headers lie in the build folder, and folders of several builds (pip makes one for each) share the
# cache when paths in them are written from there.
execute_process(COMMAND ${CCACHE} --get-config base_dir
  OUTPUT_VARIABLE base_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT base_dir)
  list(APPEND ccache_settings CCACHE_BASEDIR=${CMAKE_BINARY_DIR})
endif()
set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${ccache_settings} ${CCACHE})
