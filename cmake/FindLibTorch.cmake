# SPDX-License-Identifier: Apache-2.0
# Finds the libtorch inside a PyTorch wheel and defines the targets LibTorch::c10, LibTorch::cpu
# and, of a wheel with CUDA, LibTorch::cuda; LibTorch_CUDA_VERSION is that it was built with.
#
#   LIMBECK_TORCH_DIR  the `torch` folder of a wheel; the default is the project's own environment
#                      that scripts/setup makes.
#
# The package files of the wheel are not used: those of a CUDA wheel need a CUDA toolkit.

if(NOT LIMBECK_TORCH_DIR)
  file(GLOB _candidates ${PROJECT_SOURCE_DIR}/.env/lib/python3*/site-packages/torch)
  if(_candidates)
    list(GET _candidates 0 _first)
    set(LIMBECK_TORCH_DIR ${_first} CACHE PATH "The torch folder of a PyTorch wheel" FORCE)
  endif()
endif()

if(LIMBECK_TORCH_DIR AND EXISTS ${LIMBECK_TORCH_DIR}/version.py)
  file(STRINGS ${LIMBECK_TORCH_DIR}/version.py _version REGEX "^__version__ *= *'")
  string(REGEX REPLACE ".*'([0-9.]+).*" "\\1" LibTorch_VERSION "${_version}")
  file(STRINGS ${LIMBECK_TORCH_DIR}/version.py _version REGEX "^cuda[^=]*= *'")
  string(REGEX REPLACE ".*'([0-9.]+).*" "\\1" LibTorch_CUDA_VERSION "${_version}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch
  REQUIRED_VARS LIMBECK_TORCH_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE
    "Run scripts/setup, or pass -DLIMBECK_TORCH_DIR=<site-packages>/torch of a PyTorch 2.11 wheel.")

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  # libtorch_cpu of a CUDA wheel needs libcudart and libcupti, which are wheels of their own.
  get_filename_component(_site ${LIMBECK_TORCH_DIR} DIRECTORY)
  set(_lib ${LIMBECK_TORCH_DIR}/lib)
  file(GLOB _cuda_libs LIST_DIRECTORIES true ${_site}/nvidia/cu*/lib)
  foreach(name c10 torch_cpu)
    add_library(LibTorch::${name} SHARED IMPORTED)
    set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION ${_lib}/lib${name}.so)
  endforeach()
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  # -idirafter, not -isystem: the wheel bundles its own fmt, which must not hide the system's.
  set(_search "-Wl,--disable-new-dtags;-Wl,-rpath,${_lib};-Wl,-rpath-link,${_lib}")
  foreach(dir ${_cuda_libs})
    list(APPEND _search "-Wl,-rpath,${dir};-Wl,-rpath-link,${dir}")
  endforeach()
  set_target_properties(
    LibTorch::cpu
    PROPERTIES
      INTERFACE_COMPILE_OPTIONS
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${LIMBECK_TORCH_DIR}/include -idirafter ${LIMBECK_TORCH_DIR}/include/torch/csrc/api/include>"
      INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO"
      INTERFACE_LINK_OPTIONS "${_search}"
      INTERFACE_LINK_LIBRARIES "LibTorch::torch_cpu;LibTorch::c10")

  if(EXISTS ${_lib}/libtorch_cuda.so)
    foreach(name c10_cuda torch_cuda)
      add_library(LibTorch::${name} SHARED IMPORTED)
      set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION ${_lib}/lib${name}.so)
    endforeach()
    add_library(LibTorch::cuda INTERFACE IMPORTED)
    set_target_properties(LibTorch::cuda PROPERTIES INTERFACE_LINK_LIBRARIES
                                                    "LibTorch::torch_cuda;LibTorch::c10_cuda")
  endif()
endif()
