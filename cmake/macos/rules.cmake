# Included after project(). CMake determines the linker's rpath flags from the machine that it runs
# on, and on Linux it does not know those of macOS.
foreach(language C CXX)
  set(CMAKE_SHARED_LIBRARY_RUNTIME_${language}_FLAG "-Wl,-rpath,")
  set(CMAKE_EXECUTABLE_RUNTIME_${language}_FLAG "-Wl,-rpath,")
endforeach()
