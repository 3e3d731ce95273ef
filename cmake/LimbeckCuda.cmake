# SPDX-License-Identifier: Apache-2.0
# The CUDA language and toolkit for core/cuda: any 13.x, as the wheel of libtorch is built with 13.
# Compiling needs neither a GPU nor a driver.

set(_cuda_hint "Install the CUDA toolkit ${LibTorch_CUDA_VERSION}, put nvcc on PATH or name it with "
    "-DCMAKE_CUDA_COMPILER=, or leave LIMBECK_CUDA off.")
if(NOT TARGET LibTorch::cuda)
  message(FATAL_ERROR "LIMBECK_CUDA is on, and ${LIMBECK_TORCH_DIR} is a PyTorch without CUDA. "
                      "Take a wheel with it, or leave LIMBECK_CUDA off.")
endif()

# Ampere and Hopper, and code that drivers compile for what comes after. Devices 8.6 and 8.9 run
# that of 8.0.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "LIMBECK_CUDA is on, and no nvcc was found. " ${_cuda_hint})
endif()
enable_language(CUDA)
find_package(CUDAToolkit)
string(REGEX MATCH "^[0-9]+" _cuda_major "${LibTorch_CUDA_VERSION}")
if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_VERSION_MAJOR EQUAL _cuda_major)
  message(FATAL_ERROR "The PyTorch in ${LIMBECK_TORCH_DIR} is built with CUDA "
                      "${LibTorch_CUDA_VERSION}, and the toolkit found is "
                      "'${CUDAToolkit_VERSION}'. " ${_cuda_hint})
endif()
# C++20 as for C++; CMake 3.25 does not know how nvcc spells it.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # the one that libtorch has
