# SPDX-License-Identifier: Apache-2.0
# Compile flags shared by every target of ours, and the precompiled header.

add_library(limbeck_flags INTERFACE)
target_compile_options(
  limbeck_flags
  INTERFACE -Wall
            -Wextra
            -Wpedantic
            -Wshadow
            $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
            $<$<COMPILE_LANGUAGE:CXX>:-Wold-style-cast>
            -Wimplicit-fallthrough
            -Winvalid-pch
            $<$<BOOL:${LIMBECK_WERROR}>:-Werror>
            # Fused multiply-add only where a source file asks for it: results must not depend
            # on what the compiler happens to contract.
            -ffp-contract=off)
if(LIMBECK_SANITIZE)
  target_compile_options(
    limbeck_flags INTERFACE -fsanitize=${LIMBECK_SANITIZE} -fno-sanitize=vptr
                            -fno-omit-frame-pointer)
  target_link_options(limbeck_flags INTERFACE -fsanitize=${LIMBECK_SANITIZE})
endif()

# limbeck_use_torch(<target>): compile against libtorch, with OpenMP and the precompiled header
# of the ATen and autograd headers (4 s a file instead of 20).
function(limbeck_use_torch target)
  target_link_libraries(${target} PRIVATE LibTorch::cpu)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
  target_precompile_headers(${target} REUSE_FROM limbeck_pch)
endfunction()
