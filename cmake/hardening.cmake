# Options against the exploitation of faults in memory, for everything that is installed. The tests
# are compiled without optimisation and link the hardened code. tests/python/test_supply_chain.py
# checks the built files.

option(MCCL_HARDENED "Compile and link with options that hinder the exploitation of faults" ON)

include(CheckCXXCompilerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)  # Programs are linked with -pie.

# Hardens the targets of the calling directory, and of those below, that are defined later.
macro(mccl_harden)
  # The sanitizers and the fuzzer replace the same functions, and check more.
  if(MCCL_HARDENED AND NOT MCCL_SANITIZE AND NOT MCCL_FUZZ)
    foreach(option -fstack-protector-strong -fcf-protection=full -mbranch-protection=standard)
      string(MAKE_C_IDENTIFIER "mccl_takes${option}" takes)
      check_cxx_compiler_flag(${option} ${takes})  # The last two are of one processor each.
      if(${takes})
        add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${option}>)
      endif()
    endforeach()
    # Needs optimisation.
    add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:SHELL:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3>")
    if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
      add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
    endif()
  endif()
endmacro()
