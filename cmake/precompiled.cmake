# Headers that most sources of a target read, read once. What they are lies in cmake/precompiled/; they
# are all of other projects, so that a change here compiles what it must and no more. A source still
# includes what it uses: clang-tidy and the debug build read it without them.

option(MCCL_PRECOMPILED "Compile headers of other projects once per target, not per source" ON)

# Gives a target the headers of cmake/precompiled/<name>.h.
function(mccl_precompile target name)
  if(MCCL_PRECOMPILED)
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled/${name}.h)
    # The compiler's cache sees what a source was made of only so.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
endfunction()

# Gives a target those of another that is compiled with the same options.
function(mccl_precompile_as target other)
  if(MCCL_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM ${other})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
endfunction()
