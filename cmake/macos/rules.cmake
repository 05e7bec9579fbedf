# Read after project(): CMake asks the machine that it runs on whether programs may say where their
# libraries lie, and a Linux machine does not know.
foreach(language C CXX)
  set(CMAKE_SHARED_LIBRARY_RUNTIME_${language}_FLAG "-Wl,-rpath,")
  set(CMAKE_EXECUTABLE_RUNTIME_${language}_FLAG "-Wl,-rpath,")
endforeach()
