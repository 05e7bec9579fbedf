# Precompiles the headers that most sources of a target include. They are listed in
# cmake/precompiled/ and all belong to other projects, so that a change in this project's headers
# does not recompile everything. A source must still include what it uses: clang-tidy and the debug
# build compile without precompiled headers.

option(MCCL_PRECOMPILED "Compile headers of other projects once per target, not per source" ON)

# Precompiles cmake/precompiled/<name>.h for a target.
function(mccl_precompile target name)
  if(MCCL_PRECOMPILED)
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled/${name}.h)
    # ccache needs this option to see the precompiled header in the preprocessed source.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
endfunction()

# Reuses the precompiled headers of another target, which must be compiled with the same options.
function(mccl_precompile_as target other)
  if(MCCL_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM ${other})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
endfunction()
